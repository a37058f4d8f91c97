//! The control plane and the four daemons, each in a process of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use sandbox::process::Guarded;
use sandbox::{Options, Sandbox, itself};
use tokio::runtime::Runtime;

use crate::narrator::Narrator;

// The roles in which this binary starts itself.
pub(crate) const STORER: &str = "storer";
pub(crate) const RESTORER: &str = "restorer";
pub(crate) const PLUGIN: &str = "plugin";

/// The namespace of the records.
pub(crate) const NAMESPACE: &str = "label-storage";

/// The number of storers, and of restorers.
const REPLICAS: u32 = 2;
/// The time limit for a step of the daemons, which normally takes a second or two.
const LIMIT: Duration = Duration::from_secs(60);
/// Much shorter than the daemons' interval, so that the printed times are those of the daemons.
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    pub(crate) client: Client,
    // Fields are dropped in order: the daemons must end before the control plane, or they would log errors.
    daemons: Vec<Guarded>,
    sandbox: Sandbox,
}

impl Stage {
    pub(crate) fn set_up(narrator: &Narrator, runtime: &Runtime) -> anyhow::Result<Self> {
        narrator.heading("A cluster");
        narrator.say("starting a real etcd and kube-apiserver on this machine");
        let sandbox = Sandbox::start(Options::default())?;
        narrator.say(format!("the API server is at {}", sandbox.server()));

        let client = runtime.block_on(async {
            let client = Client::try_from(sandbox::client_config(sandbox.kubeconfig()).await?)?;
            let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
            anyhow::Ok(client)
        })?;

        let mut daemons = Vec::new();
        for kind in [STORER, RESTORER] {
            for index in 0..REPLICAS {
                daemons.push(daemon(kind, index, &sandbox)?);
            }
        }
        narrator
            .say(format!("started {REPLICAS} storers, which copy the labels of each node into a ConfigMap"));
        narrator.say(format!(
            "started {REPLICAS} restorers, which add the labels again when a node is re-created"
        ));
        narrator.say("each replica handles its own share of the nodes");
        Ok(Self { client, daemons, sandbox })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.sandbox.kubeconfig()
    }

    pub(crate) fn data_folder(&self) -> &Path {
        self.sandbox.data_folder()
    }

    /// Keeps the logs, which show the cause of a failure.
    pub(crate) fn keep_data(&mut self) {
        self.sandbox.keep_data();
    }

    /// Repeats `attempt` until it succeeds. The inner `Err` lists everything that is still missing.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut attempt: impl AsyncFnMut() -> anyhow::Result<Result<T, String>>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let missing = match attempt().await? {
                Ok(answer) => return Ok(answer),
                Err(missing) => missing,
            };
            self.check()?;
            if Instant::now() >= deadline {
                anyhow::bail!("{what} took longer than {} s; still missing:\n{missing}", LIMIT.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns when a process has ended unexpectedly.
    pub(crate) async fn failure(&self) -> anyhow::Error {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// An error if a process has ended unexpectedly.
    fn check(&self) -> anyhow::Result<()> {
        self.sandbox.check()?;
        for daemon in &self.daemons {
            if let Some(exit) = daemon.try_wait() {
                let (name, tail) = (daemon.name(), daemon.log_tail(5));
                anyhow::bail!("{name} ended unexpectedly ({exit}); the last lines of its log:\n{tail}");
            }
        }
        Ok(())
    }
}

fn daemon(kind: &str, index: u32, sandbox: &Sandbox) -> anyhow::Result<Guarded> {
    let mut command =
        itself::command(kind, Some(sandbox.kubeconfig())).context("can't find this program's own file")?;
    command.args(["--replica-index", &index.to_string(), "--replicas", &REPLICAS.to_string()]);
    command.args(["--namespace", NAMESPACE, "--interval", "1s"]);
    command.args(["--log-level", "info", "--log-format", "text"]);
    let name = format!("{kind}-{index}");
    let log = sandbox.data_folder().join(format!("{name}.log"));
    Ok(Guarded::spawn(&name, &command, &log)?)
}
