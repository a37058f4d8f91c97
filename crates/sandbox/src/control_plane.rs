//! Starts the control plane, waits until it is ready, and stops it in order.

mod parts;

use std::fs::Permissions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::parts::{Commands, Ports, api_server, controller_manager, etcd, free_ports};
use crate::assets::{self, Assets, Binary};
use crate::credentials::{Endpoint, ServiceAccountKey, random_token, write_private};
use crate::etcd::{self as etcd_client, Etcd};
use crate::kubernetes::Version;
use crate::process::{self, Afterwards, Exit, Guarded, Signal};
use crate::ready::Probe;

/// The time limit from the start of etcd until the API server is ready. An idle machine needs seconds.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The time between TERM and KILL. An API server with open watches would take a minute, for data that is deleted anyway.
const GRACE: Duration = Duration::from_secs(2);

/// The interval of checks.
const POLL: Duration = Duration::from_millis(50);

/// The most attempts with other ports. One retry is rare; several have another cause.
const PORT_ATTEMPTS: u32 = 5;

/// The file with the audit events.
const AUDIT_LOG: &str = "audit.log";

/// The metadata and the result of each request, without its body. The control plane's own accounts are left out, because they would fill
/// the file.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"}
    ]
}
"#;

/// The number of log lines in an error.
const LOG_LINES: usize = 15;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A binary is missing.
    #[error(transparent)]
    Assets(#[from] assets::Error),
    /// A process can't be started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The folder for data, keys and logs can't be used.
    #[error("can't write to {}: set TMPDIR to a folder with room", path.display())]
    Data {
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// There is no free port.
    #[error("can't reserve a port on 127.0.0.1")]
    Port(#[source] io::Error),
    /// A part of the control plane ended unexpectedly.
    #[error("{name} ended unexpectedly ({exit}); the last lines of its log:\n{tail}")]
    Ended { name: String, exit: Exit, tail: String },
    /// A part of the control plane runs, but is not ready.
    #[error("{name} is not ready after {} s ({why}); the last lines of its log:\n{tail}", START_LIMIT.as_secs())]
    NotReady {
        name: String,
        /// The last answer, or the error instead of one.
        why: String,
        tail: String,
    },
}

/// The parts to start. By default these are etcd and the API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run the built-in controllers too: node lifecycle, garbage collection, service accounts.
    pub controller_manager: bool,
    /// The version of Kubernetes. `None`: that of `SANDBOX_KUBERNETES`, or the pinned one.
    pub kubernetes: Option<Version>,
    /// Keep the data folder, with the logs, after the stop.
    pub keep_data: bool,
    /// Log every request of a service account: [`Sandbox::audit_log`].
    pub audit: bool,
    /// More arguments for the API server, e.g. `--feature-gates=...`.
    pub api_server_args: Vec<String>,
}

/// A running control plane. Dropping it stops it.
#[derive(Debug)]
pub struct Sandbox {
    // Fields are dropped from top to bottom, and dropping a process waits for its end. So the API server stops first: without etcd it
    // can hang.
    controller_manager: Option<Guarded>,
    api_server: Part,
    etcd: Part,
    /// The commands to start them again.
    commands: Commands,
    ports: Ports,
    keeps_data: bool,
    endpoint: Endpoint,
    kubeconfig: PathBuf,
    /// The number of kubeconfigs that were written for other tokens. Each needs its own file name.
    further_kubeconfigs: AtomicU32,
    data: TempDir,
}

impl Sandbox {
    /// Starts a control plane, and returns when it is ready. Builds it first if necessary.
    pub fn start(options: Options) -> Result<Self, Error> {
        let mut needed = vec![Binary::Etcd, Binary::KubeApiserver];
        if options.controller_manager {
            needed.push(Binary::KubeControllerManager);
        }
        let assets = Assets::find(options.kubernetes.as_ref(), &needed)?;
        let mut attempt = 1;
        loop {
            match Self::start_once(&assets, &options) {
                // Another process may take a port after it was chosen.
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
        let mut api_server_args = options.api_server_args.clone();
        if options.audit {
            api_server_args.extend(files.write_audit_policy()?);
        }
        let ports = free_ports().map_err(Error::Port)?;
        let commands = Commands {
            etcd: etcd(assets, &files, ports),
            api_server: api_server(assets, &files, ports, &api_server_args),
        };
        let remove = (!options.keep_data).then_some(data.path());
        let etcd = commands.start_etcd(&files, ports, remove, deadline)?;
        let api_server = commands.start_api_server(&files, ports, deadline)?;

        let endpoint = Endpoint {
            server: format!("https://127.0.0.1:{}", ports.api),
            certificate: files.at("certificates/apiserver.crt"),
        };
        let kubeconfig = files.at("kubeconfig");
        endpoint.write_kubeconfig(&kubeconfig, &token, "default").map_err(files.error("kubeconfig"))?;
        await_ready(&api_server, deadline, &kubeconfig)?;

        let controller_manager = if options.controller_manager {
            let command = controller_manager(assets, &files, &kubeconfig);
            let log = files.at("kube-controller-manager.log");
            let afterwards = Afterwards { grace: GRACE, remove: None };
            Some(Guarded::spawn_with("kube-controller-manager", &command, &log, afterwards)?)
        } else {
            None
        };
        Ok(Self {
            controller_manager,
            api_server: Part::new(api_server),
            etcd: Part::new(etcd),
            commands,
            ports,
            keeps_data: options.keep_data,
            endpoint,
            kubeconfig,
            further_kubeconfigs: AtomicU32::new(0),
            data,
        })
    }

    /// A kubeconfig file for the admin. Its context is `sandbox`, its namespace `default`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a kubeconfig file with a token, such as that of a service account.
    pub fn kubeconfig_with_token(&self, token: &str, namespace: Option<&str>) -> Result<PathBuf, Error> {
        let number = self.further_kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let path = self.data.path().join(format!("kubeconfig-{number}"));
        match self.endpoint.write_kubeconfig(&path, token, namespace.unwrap_or("default")) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::Data { path, source }),
        }
    }

    /// The address of the API server, such as `https://127.0.0.1:40123`.
    pub fn server(&self) -> &str {
        &self.endpoint.server
    }

    /// The folder with the data, the keys and the logs. Callers may put their own files there.
    pub fn data_folder(&self) -> &Path {
        self.data.path()
    }

    /// The file in which the API server logs the requests of service accounts, one event a line, if that is enabled.
    pub fn audit_log(&self) -> PathBuf {
        self.files().at(AUDIT_LOG)
    }

    /// The process of the API server, so that a test can suspend or kill it.
    pub fn api_server(&self) -> Arc<Guarded> {
        self.api_server.get()
    }

    /// The process of etcd.
    pub fn etcd(&self) -> Arc<Guarded> {
        self.etcd.get()
    }

    pub fn etcd_client(&self) -> Result<Etcd, etcd_client::Error> {
        Etcd::new(self.ports.client)
    }

    /// Kills the API server with SIGKILL, unless that was done before, and restarts it on the same port. Returns when it is ready.
    pub fn restart_api_server(&self) -> Result<(), Error> {
        kill(&self.api_server())?;
        let deadline = Instant::now() + START_LIMIT;
        let files = self.files();
        self.api_server
            .set(again(deadline, || self.commands.start_api_server(&files, self.ports, deadline))?);
        await_ready(&self.api_server(), deadline, &self.kubeconfig)
    }

    /// The same for etcd, with the same data. Returns when the API server is ready, too.
    pub fn restart_etcd(&self) -> Result<(), Error> {
        kill(&self.etcd())?;
        let deadline = Instant::now() + START_LIMIT;
        self.start_etcd(deadline)?;
        await_ready(&self.api_server(), deadline, &self.kubeconfig)
    }

    /// Kills the API server and etcd, changes the data folder of etcd, and restarts etcd. [`Self::restart_api_server`] restarts the API
    /// server.
    pub fn with_etcd_stopped(&self, change: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
        kill(&self.api_server())?;
        kill(&self.etcd())?;
        let files = self.files();
        change(&files.at("etcd")).map_err(files.error("etcd"))?;
        self.start_etcd(Instant::now() + START_LIMIT)
    }

    fn start_etcd(&self, deadline: Instant) -> Result<(), Error> {
        let (files, remove) = (self.files(), (!self.keeps_data).then_some(self.data.path()));
        self.etcd.set(again(deadline, || self.commands.start_etcd(&files, self.ports, remove, deadline))?);
        Ok(())
    }

    fn files(&self) -> Files {
        Files { folder: self.data.path().to_owned() }
    }

    /// An error if a part of the control plane has ended unexpectedly.
    pub fn check(&self) -> Result<(), Error> {
        let parts = [self.etcd(), self.api_server()];
        parts.iter().map(AsRef::as_ref).chain(&self.controller_manager).try_for_each(still_runs)
    }

    /// Keeps the data folder after the stop: its logs show the cause of a failure.
    pub fn keep_data(&mut self) {
        self.keeps_data = true;
        self.data.disable_cleanup(true);
    }
}

/// A process that may be restarted while others use it.
#[derive(Debug)]
struct Part(Mutex<Arc<Guarded>>);

impl Part {
    fn new(process: Guarded) -> Self {
        Self(Mutex::new(Arc::new(process)))
    }

    fn get(&self) -> Arc<Guarded> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, process: Guarded) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(process);
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

    /// Writes the audit policy; returns the arguments for the API server.
    fn write_audit_policy(&self) -> Result<[String; 2], Error> {
        let policy = "audit-policy.json";
        write_private(&self.at(policy), AUDIT_POLICY).map_err(self.error(policy))?;
        let [policy, log] = [policy, AUDIT_LOG].map(|name| self.at(name));
        Ok([
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ])
    }
}

/// Kills a process, and waits until it has released its port and its data.
fn kill(process: &Guarded) -> Result<(), Error> {
    process.signal(Signal::KILL)?;
    match process.wait_timeout(START_LIMIT) {
        Some(_) => Ok(()),
        None => {
            let (name, why) = (process.name().to_owned(), "it can't be killed".to_owned());
            Err(Error::NotReady { name, why, tail: process.log_tail(LOG_LINES) })
        }
    }
}

/// Starts a process on the same port. The port may be taken for a moment, even by a client that tried to connect to it.
fn again(deadline: Instant, start: impl Fn() -> Result<Guarded, Error>) -> Result<Guarded, Error> {
    loop {
        match start() {
            Err(Error::Ended { tail, .. })
                if tail.contains("address already in use") && Instant::now() < deadline =>
            {
                thread::sleep(POLL);
            }
            result => return result,
        }
    }
}

fn connect(port: u16) -> Result<(), String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, POLL).map(drop).map_err(|error| error.to_string())
}

/// Repeats `attempt` until it succeeds, `process` ends or the time limit is over.
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
    // On a separate thread, because an async caller can't run the probe's runtime inside its own.
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
    // Passes on a panic of the thread.
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
