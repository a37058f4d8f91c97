//! The guard reports the end of its program, ends it with its owner, and leaves no process behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getpgid, test_kill_process_group};
use sandbox::process::{Guarded, Signal};

use crate::{LIMIT, eventually, is_gone};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn guarded(command: &Command) -> (Guarded, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let process = Guarded::spawn("test", command, &folder.path().join("log")).unwrap();
    (process, folder)
}

#[test]
fn a_program_that_ends_by_itself_gives_its_exit_code_and_output() {
    let (process, _folder) =
        guarded(shell("echo out; echo err >&2; echo $COLOUR; exit 3").env("COLOUR", "blue"));
    assert_eq!(process.wait_timeout(LIMIT).unwrap().code(), 3);
    assert_eq!(process.log_tail(10), "out\nerr\nblue");
    assert_eq!(process.log_tail(1), "blue");
}

#[test]
fn a_program_that_does_not_exist_gives_127_and_says_so_in_the_log() {
    let (process, _folder) = guarded(&Command::new("/no/such/program"));
    assert_eq!(process.wait_timeout(LIMIT).unwrap().code(), 127);
    assert!(process.log_tail(10).contains("/no/such/program"), "{}", process.log_tail(10));
}

#[test]
fn a_killed_program_gives_the_signal_as_a_shell_does() {
    let (process, _folder) = guarded(Command::new("sleep").arg("1000"));
    process.signal(Signal::KILL).unwrap();
    let exit = process.wait_timeout(LIMIT).unwrap();
    assert_eq!((exit.code(), exit.to_string().as_str()), (137, "signal 9"));
    assert!(is_gone(process.pid()));
    // Another process may have the same pid by now.
    process.signal(Signal::KILL).unwrap();
}

#[test]
fn a_paused_program_counts_as_running_and_can_be_stopped() {
    let (process, _folder) = guarded(Command::new("sleep").arg("1000"));
    process.signal(Signal::STOP).unwrap();
    assert_eq!(process.wait_timeout(Duration::from_millis(200)), None);
    assert_eq!(process.stop().unwrap().code(), 143);
}

#[test]
fn dropping_ends_the_program() {
    let (process, _folder) = guarded(Command::new("sleep").arg("1000"));
    let pid = process.pid();
    drop(process);
    assert!(is_gone(pid));
}

#[test]
fn no_process_of_the_guard_remains_after_its_program() {
    let (process, _folder) = guarded(Command::new("sleep").arg("1000"));
    let group = getpgid(Pid::from_raw(process.pid().try_into().unwrap())).unwrap();
    assert_ne!(group, getpgid(None).unwrap(), "a terminal's Ctrl-C would reach the program");
    process.signal(Signal::TERM).unwrap();
    process.wait_timeout(LIMIT).unwrap();
    eventually("the guard's process group is empty", || test_kill_process_group(group) == Err(Errno::SRCH));
}

/// The script must work in every shell that a system may install as `sh`.
#[test]
fn the_script_behaves_the_same_in_every_shell() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guard.sh");
    for shell in
        [&["sh"][..], &["dash"], &["bash", "--posix"], &["busybox", "sh"], &["zsh", "--emulate", "sh"]]
    {
        let folder = tempfile::tempdir().unwrap();
        let to_remove = folder.path().join("data");
        fs::create_dir(&to_remove).unwrap();
        let log = folder.path().join("log");
        let start = |program: &[&str]| {
            let mut guard = Command::new(shell[0]);
            guard.args(&shell[1..]).arg(&script).arg(&log).arg("20").arg(&to_remove);
            guard.args(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()
        };
        let Some(mut ending) = start(&["sh", "-c", "exit 7"]) else {
            continue; // Not every system has every shell.
        };
        let mut output = BufReader::new(ending.stdout.take().unwrap()).lines();
        output.next().unwrap().unwrap().parse::<u32>().unwrap();
        // Not `wait`, which would close the pipe. The end of the output shows that no watcher holds it open any more.
        assert!(output.next().is_none());
        eventually("the guard ends with its program", || ending.try_wait().unwrap().is_some());
        assert_eq!(ending.try_wait().unwrap().unwrap().code(), Some(7), "{shell:?}");
        assert!(to_remove.exists(), "{shell:?}: the owner still runs, so its folder must exist");

        for (program, code) in
            [("echo; exec sleep 1000", 143), ("trap '' TERM; echo; while :; do sleep 1; done", 137)]
        {
            fs::create_dir_all(&to_remove).unwrap();
            fs::write(&log, "").unwrap();
            let mut abandoned = start(&["sh", "-c", program]).unwrap();
            let mut line = String::new();
            BufReader::new(abandoned.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let pid = line.trim().parse().unwrap();
            eventually("the program has set its trap", || fs::metadata(&log).unwrap().len() > 0);
            drop(abandoned.stdin.take());
            eventually("the program is gone", || is_gone(pid));
            eventually("its folder is gone", || !to_remove.exists());
            assert_eq!(abandoned.wait().unwrap().code(), Some(code), "{shell:?}");
        }
    }
}
