//! The processes of an owner must end with it, even if it is killed with SIGKILL.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::process::Guarded;

use crate::{eventually, is_gone};

/// Not a test: the test below runs it in a separate process, as the owner that is killed.
#[test]
#[ignore = "an owner to be killed, started by a_killed_owner_takes_its_processes_along"]
fn owner() {
    let folder = tempfile::tempdir().unwrap();
    let mut stubborn = Command::new("sh");
    stubborn.args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"]);
    let owned = [Command::new("sleep").arg("1000"), &mut stubborn]
        .map(|command| Guarded::spawn("owned", command, &folder.path().join("log")).unwrap());
    eventually("the second program has set its trap", || !std::fs::read(owned[1].log()).unwrap().is_empty());
    for process in &owned {
        writeln!(std::io::stdout(), "\npid {}", process.pid()).unwrap();
    }
    // Waits until the test kills this process.
    owned[0].wait_timeout(crate::LIMIT);
}

#[test]
fn a_killed_owner_takes_its_processes_along() {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "dying::owner", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = lines
        .filter_map(|line| line.unwrap().strip_prefix("pid ").map(|pid| pid.parse().unwrap()))
        .take(2)
        .collect();
    assert!(pids.iter().all(|&pid| !is_gone(pid)), "both run while their owner runs");

    owner.kill().unwrap();
    owner.wait().unwrap();
    for pid in pids {
        eventually("the processes of the owner have ended", || is_gone(pid));
    }
}

/// The `sandbox` binary with a control plane that is ready.
struct Up {
    process: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    data_folder: PathBuf,
    api_server: SocketAddr,
}

impl Up {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sandbox")).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = stdout.next().unwrap().unwrap();
        let kubeconfig = Path::new(line.strip_prefix("export KUBECONFIG=").unwrap());
        let content: serde_json::Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        let server = content["clusters"][0]["cluster"]["server"].as_str().unwrap();
        Self {
            data_folder: kubeconfig.parent().unwrap().to_owned(),
            api_server: server.strip_prefix("https://").unwrap().parse().unwrap(),
            process,
            stdout,
        }
    }

    fn serves(&self) -> bool {
        TcpStream::connect(self.api_server).is_ok()
    }
}

#[test]
fn a_killed_sandbox_takes_its_control_plane_and_data_along() {
    let mut sandbox = Up::start();
    assert!(sandbox.serves());
    sandbox.process.kill().unwrap();
    sandbox.process.wait().unwrap();
    eventually("the API server is gone", || !sandbox.serves());
    // The guard of etcd deletes it, after etcd has ended.
    eventually("the data folder is gone", || !sandbox.data_folder.exists());
}

#[test]
fn a_terminated_sandbox_stops_in_order_and_exits_with_0() {
    let mut sandbox = Up::start();
    kill_process(Pid::from_child(&sandbox.process), Signal::TERM).unwrap();
    assert_eq!(sandbox.process.wait().unwrap().code(), Some(0));
    assert!(!sandbox.serves());
    assert!(!sandbox.data_folder.exists());
    assert!(sandbox.stdout.next().is_none(), "stdout has only the export line");
}
