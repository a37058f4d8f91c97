//! What the story is played on: the control plane and the four daemons, each a process of its own.

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

/// What this binary is started as, to be a storer.
pub(crate) const STORER: &str = "storer";
/// What this binary is started as, to be a restorer.
pub(crate) const RESTORER: &str = "restorer";
/// What this binary is started as, to be the kubectl plugin.
pub(crate) const PLUGIN: &str = "plugin";
/// Where the records are.
pub(crate) const NAMESPACE: &str = "label-storage";

/// How many storers and how many restorers share the nodes.
const REPLICAS: u32 = 2;
/// For anything that the daemons should do by themselves, and do within a second or two.
const LIMIT: Duration = Duration::from_secs(60);
/// How often to look. Well below the daemons' own interval, so that the times told are theirs.
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    pub(crate) client: Client,
    // Above the control plane, because fields are dropped in order: daemons without an API server would complain.
    daemons: Vec<Guarded>,
    sandbox: Sandbox,
}

impl Stage {
    pub(crate) fn set_up(narrator: &Narrator, runtime: &Runtime) -> anyhow::Result<Self> {
        narrator.heading("A cluster");
        narrator.say("starting etcd and kube-apiserver, the real ones, on this machine only");
        let sandbox = Sandbox::start(Options::default())?;
        narrator.say(format!("they serve at {}", sandbox.server()));

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
            .say(format!("started {REPLICAS} storers: they copy the labels of each node into a ConfigMap"));
        narrator.say(format!(
            "started {REPLICAS} restorers: they put the labels back on a node that has returned"
        ));
        narrator.say("each of them looks after its share of the nodes");
        Ok(Self { client, daemons, sandbox })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.sandbox.kubeconfig()
    }

    pub(crate) fn data_folder(&self) -> &Path {
        self.sandbox.data_folder()
    }

    /// Leaves the logs behind: after a failure, they tell why.
    pub(crate) fn keep_data(&mut self) {
        self.sandbox.keep_data();
    }

    /// Looks with `attempt` until it has the answer. `Err` in its result says what is still missing.
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
                anyhow::bail!("{what}: not within {} s; missing:\n{missing}", LIMIT.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns when a process has ended by itself.
    pub(crate) async fn failure(&self) -> anyhow::Error {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// An error if a process has ended by itself: then there is nothing to wait for.
    fn check(&self) -> anyhow::Result<()> {
        self.sandbox.check()?;
        for daemon in &self.daemons {
            if let Some(exit) = daemon.try_wait() {
                let (name, tail) = (daemon.name(), daemon.log_tail(5));
                anyhow::bail!("{name} ended by itself ({exit}); the last lines of its log:\n{tail}");
            }
        }
        Ok(())
    }
}

/// Starts one daemon, as it would be started on any machine.
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
