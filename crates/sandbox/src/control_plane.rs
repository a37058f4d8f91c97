//! Starts the control plane, waits until it serves, and stops it in order.

use std::fs::Permissions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::assets::{self, Assets, Binary};
use crate::credentials::{Endpoint, ServiceAccountKey, random_token, write_private};
use crate::process::{self, Afterwards, Exit, Guarded};
use crate::ready::Probe;

/// From the start of etcd to an API server that serves. Seconds on an idle machine; a busy one gets its time.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Between TERM and KILL. An API server with open watches would take a minute, for data that is thrown away anyway.
const GRACE: Duration = Duration::from_secs(2);

/// How often to look whether something has happened.
const POLL: Duration = Duration::from_millis(50);

/// How often to try again with other ports. One retry is rare, several mean that something else is wrong.
const PORT_ATTEMPTS: u32 = 5;

/// How much of a log an error shows.
const LOG_LINES: usize = 15;

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A binary is missing.
    #[error(transparent)]
    Assets(#[from] assets::Error),
    /// A process could not be started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The folder for data, keys and logs can't be used.
    #[error("can't write to {}: set TMPDIR to a folder with room", path.display())]
    Data {
        /// The file or folder in question.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// There was no port to be had.
    #[error("can't reserve a port on 127.0.0.1")]
    Port(#[source] io::Error),
    /// A part of the control plane ended by itself.
    #[error("{name} ended by itself ({exit}); the last lines of its log:\n{tail}")]
    Ended {
        /// Which part.
        name: String,
        /// How it ended.
        exit: Exit,
        /// What it last said.
        tail: String,
    },
    /// A part of the control plane runs, but does not serve.
    #[error("{name} does not serve after {} s ({why}); the last lines of its log:\n{tail}", START_LIMIT.as_secs())]
    NotReady {
        /// Which part.
        name: String,
        /// The last answer, or what kept it from answering.
        why: String,
        /// What it last said.
        tail: String,
    },
}

/// What to start. The default is what the tests need: etcd and the API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run the built-in controllers too: node lifecycle, garbage collection, service accounts.
    pub controller_manager: bool,
    /// Leave the data folder, with the logs, when all is stopped.
    pub keep_data: bool,
    /// More arguments for the API server, e.g. `--feature-gates=...`.
    pub api_server_args: Vec<String>,
}

/// A running control plane of one's own. Dropping it stops it.
#[derive(Debug)]
pub struct Sandbox {
    // Fields are dropped from top to bottom, and dropping a process waits for its end. This is the order to stop in:
    // an API server that loses etcd first can hang on.
    controller_manager: Option<Guarded>,
    api_server: Guarded,
    etcd: Guarded,
    endpoint: Endpoint,
    kubeconfig: PathBuf,
    /// How many kubeconfigs were written for other tokens; each needs a file name of its own.
    further_kubeconfigs: AtomicU32,
    data: TempDir,
}

impl Sandbox {
    /// Starts a control plane and returns when it serves. Builds it first, if need be.
    pub fn start(options: Options) -> Result<Self, Error> {
        let mut needed = vec![Binary::Etcd, Binary::KubeApiserver];
        if options.controller_manager {
            needed.push(Binary::KubeControllerManager);
        }
        let assets = Assets::find(&needed)?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&assets, &options) {
                // Between choosing a port and using it, anyone may take it.
                Err(Error::Ended { tail, .. })
                    if tail.contains("address already in use") && attempt < PORT_ATTEMPTS =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn start_once(assets: &Assets, options: &Options) -> Result<Self, Error> {
        let deadline = Instant::now() + START_LIMIT;
        let data = tempfile::Builder::new()
            .prefix("label-storage-sandbox-")
            .permissions(Permissions::from_mode(0o700))
            .disable_cleanup(options.keep_data)
            .tempdir()
            .map_err(|source| Error::Data { path: std::env::temp_dir(), source })?;
        let files = Files { folder: data.path().to_owned() };
        let token = files.write_secrets()?;
        let [api_port, client_port, peer_port] = free_ports().map_err(Error::Port)?;

        let etcd = etcd(assets, &files, client_port, peer_port);
        // etcd is the last one to go, so its guard is the one to clean up after a killed owner.
        let remove = (!options.keep_data).then_some(data.path());
        let etcd =
            Guarded::spawn_with("etcd", &etcd, &files.at("etcd.log"), Afterwards { grace: GRACE, remove })?;
        await_until(&etcd, deadline, || connect(client_port))?;

        let api_server = api_server(assets, &files, api_port, client_port, &options.api_server_args);
        let log = files.at("kube-apiserver.log");
        let afterwards = Afterwards { grace: GRACE, remove: None };
        let api_server = Guarded::spawn_with("kube-apiserver", &api_server, &log, afterwards)?;
        // It writes its certificate before it listens.
        await_until(&api_server, deadline, || connect(api_port))?;

        let endpoint = Endpoint {
            server: format!("https://127.0.0.1:{api_port}"),
            certificate: files.at("certificates/apiserver.crt"),
        };
        let kubeconfig = files.at("kubeconfig");
        endpoint.write_kubeconfig(&kubeconfig, &token, "default").map_err(files.error("kubeconfig"))?;
        await_ready(&api_server, deadline, &kubeconfig)?;

        let controller_manager = if options.controller_manager {
            let command = controller_manager(assets, &files, &kubeconfig);
            let log = files.at("kube-controller-manager.log");
            Some(Guarded::spawn_with("kube-controller-manager", &command, &log, afterwards)?)
        } else {
            None
        };
        Ok(Self {
            controller_manager,
            api_server,
            etcd,
            endpoint,
            kubeconfig,
            further_kubeconfigs: AtomicU32::new(0),
            data,
        })
    }

    /// A kubeconfig file for the admin, who may do everything. Its context is `sandbox`, its namespace `default`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a kubeconfig file for whoever `token` stands for, such as a service account: to try what it may do.
    pub fn kubeconfig_with_token(&self, token: &str, namespace: Option<&str>) -> Result<PathBuf, Error> {
        let number = self.further_kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let path = self.data.path().join(format!("kubeconfig-{number}"));
        match self.endpoint.write_kubeconfig(&path, token, namespace.unwrap_or("default")) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::Data { path, source }),
        }
    }

    /// Where the API server listens, e.g. `https://127.0.0.1:40123`.
    pub fn server(&self) -> &str {
        &self.endpoint.server
    }

    /// The folder with the data, the keys and the logs. Owners may put files of their own there.
    pub fn data_folder(&self) -> &Path {
        self.data.path()
    }

    /// The API server's process, to stop it for a while or to kill it in a test.
    pub fn api_server(&self) -> &Guarded {
        &self.api_server
    }

    /// etcd's process.
    pub fn etcd(&self) -> &Guarded {
        &self.etcd
    }

    /// An error if a part of the control plane has ended by itself since it was started.
    pub fn check(&self) -> Result<(), Error> {
        [&self.etcd, &self.api_server].into_iter().chain(&self.controller_manager).try_for_each(still_runs)
    }

    /// From now on, leaves the data folder when all is stopped: after a failure, its logs tell why.
    pub fn keep_data(&mut self) {
        self.data.disable_cleanup(true);
    }
}

/// The files of one control plane.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn error(&self, name: &str) -> impl FnOnce(io::Error) -> Error {
        let path = self.at(name);
        |source| Error::Data { path, source }
    }

    /// Writes the service account key and the list of tokens; returns the admin's.
    fn write_secrets(&self) -> Result<String, Error> {
        let write = |name: &str, text: &str| write_private(&self.at(name), text).map_err(self.error(name));
        let key = ServiceAccountKey::generate().map_err(self.error("service-account.key"))?;
        write("service-account.key", &key.private)?;
        write("service-account.pub", &key.public)?;
        let token = random_token().map_err(self.error("tokens.csv"))?;
        write("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"))?;
        Ok(token)
    }
}

fn etcd(assets: &Assets, files: &Files, client_port: u16, peer_port: u16) -> Command {
    let [client, peer] = [client_port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
    let mut etcd = Command::new(assets.path(Binary::Etcd));
    etcd.arg("--data-dir").arg(files.at("etcd"));
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    // The data needn't survive a power cut, and waiting for the disk is most of what a write costs. The quota is the
    // most that etcd recommends, so that 100,000 nodes fit.
    etcd.args(["--unsafe-no-fsync", "--quota-backend-bytes", "8589934592", "--log-level", "error"]);
    etcd
}

fn api_server(assets: &Assets, files: &Files, port: u16, etcd_port: u16, further: &[String]) -> Command {
    let mut server = Command::new(assets.path(Binary::KubeApiserver));
    server.args(["--etcd-servers", &format!("http://127.0.0.1:{etcd_port}")]);
    server.args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
    server.arg("--cert-dir").arg(files.at("certificates"));
    server.arg("--token-auth-file").arg(files.at("tokens.csv"));
    server.arg("--service-account-signing-key-file").arg(files.at("service-account.key"));
    server.arg("--service-account-key-file").arg(files.at("service-account.pub"));
    server.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    server.args(["--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged"]);
    // As real clusters run: what a node may do to itself is part of what is tested here.
    server.args(["--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"]);
    // Several tests share one server.
    server.args(["--max-requests-inflight", "3000", "--max-mutating-requests-inflight", "2000"]);
    server.args(further);
    server
}

fn controller_manager(assets: &Assets, files: &Files, kubeconfig: &Path) -> Command {
    let mut manager = Command::new(assets.path(Binary::KubeControllerManager));
    manager.arg("--kubeconfig").arg(kubeconfig);
    manager.arg("--service-account-private-key-file").arg(files.at("service-account.key"));
    // It is the only one, and nobody asks it anything: no election, no port.
    manager.args(["--use-service-account-credentials", "--leader-elect=false", "--secure-port=0"]);
    manager
}

/// Three loopback ports that are free at this moment; held together, so that they differ.
fn free_ports() -> io::Result<[u16; 3]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn connect(port: u16) -> Result<(), String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, POLL).map(drop).map_err(|error| error.to_string())
}

/// Asks with `attempt` until it succeeds, `process` ends or time is up.
fn await_until(
    process: &Guarded,
    deadline: Instant,
    mut attempt: impl FnMut() -> Result<(), String>,
) -> Result<(), Error> {
    loop {
        still_runs(process)?;
        let Err(why) = attempt() else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            let tail = process.log_tail(LOG_LINES);
            return Err(Error::NotReady { name: process.name().to_owned(), why, tail });
        }
        thread::sleep(POLL);
    }
}

fn await_ready(api_server: &Guarded, deadline: Instant, kubeconfig: &Path) -> Result<(), Error> {
    // On a thread of its own, because a caller that is async already can't run the probe's runtime inside its own.
    let ready = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let probe = Probe::new(kubeconfig);
            await_until(api_server, deadline, || match &probe {
                Ok(probe) => probe.ask().map_err(|error| format!("{error:#}")),
                Err(error) => Err(format!("{error:#}")),
            })
        });
        asking.join()
    });
    // The thread's panic is this caller's panic.
    ready.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn still_runs(process: &Guarded) -> Result<(), Error> {
    match process.try_wait() {
        None => Ok(()),
        Some(exit) => {
            Err(Error::Ended { name: process.name().to_owned(), exit, tail: process.log_tail(LOG_LINES) })
        }
    }
}
