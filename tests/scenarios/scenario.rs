//! The tools of a test: its own nodes and records, daemons, and waiting for conditions.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use faults::{Proxy, Script};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use label_storage::Record;
use label_storage::name::record_name;
use label_storage::node::RESTORED;
use sandbox::process::Guarded;
use sandbox::{Sandbox, itself};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::daemon::Daemon;

/// Names the seed of a run that is to be repeated.
pub const SEED: &str = "LABEL_STORAGE_TEST_SEED";

/// The seed of this run: from the environment, or else a new one.
pub fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random)
}

/// How long anything may take to become true. Far more than it ever should: only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Flags for a daemon that has only its first list and its watches.
pub const NO_LISTS: [&str; 4] = ["--interval", "1h", "--audit-interval", "1h"];

pub type Labels = BTreeMap<String, String>;

/// Labels from pairs.
pub fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The output of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The environment variable with the terminal of the plugin's user.
pub const TERMINAL: &str = "LABEL_STORAGE_TEST_TERMINAL";

/// Has this process, which is the plugin, ask at no other terminal than the one that the test is at, if it is at one: a person who runs the
/// tests is not to be asked.
pub fn leave_terminal() {
    // A session without a terminal gets the first that is opened. Where it can't be made, it is one already.
    _ = rustix::process::setsid();
    if let Some(terminal) = std::env::var_os(TERMINAL) {
        let opened = std::fs::File::options().read(true).write(true).open(terminal);
        opened.expect("the terminal of the test");
    }
}

pub struct Scenario {
    pub client: Client,
    pub namespace: String,
    pub nodes: Api<Node>,
    pub config_maps: Api<ConfigMap>,
    pub sandbox: Arc<Sandbox>,
    /// True if its daemons watch; otherwise they only list.
    pub watch: bool,
    /// True if its daemons list often although they watch.
    lists: AtomicBool,
    folder: TempDir,
    started: AtomicUsize,
}

/// Runs one test, in a namespace of its own, and takes away its nodes afterwards. Where it fails, its error shows what
/// there was: nodes, records and the end of each daemon's log.
pub fn run(
    sandbox: &Arc<Sandbox>,
    name: &str,
    watch: bool,
    test: impl AsyncFnOnce(&Scenario) -> Result<()>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(within(sandbox, name, watch, test))
}

/// The same, for a test that is made of several: each has a namespace of its own.
pub async fn within(
    sandbox: &Arc<Sandbox>,
    name: &str,
    watch: bool,
    test: impl AsyncFnOnce(&Scenario) -> Result<()>,
) -> Result<(), String> {
    let scenario = Scenario::new(sandbox, name, watch).await.map_err(|error| format!("{error:#}"))?;
    // A failed assertion is a failed test like any other: it is reported, and cleaned up after.
    let result = AssertUnwindSafe(test(&scenario)).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        bail!("{}", text.or_else(|| panic.downcast_ref().copied()).unwrap_or("a panic"))
    });
    let report = match &result {
        Ok(()) => String::new(),
        Err(error) => format!("{error:#}\n{}", scenario.describe().await),
    };
    scenario.clean_up().await;
    result.map_err(|_| report)
}

impl Scenario {
    /// On this control plane, under this name.
    pub async fn new(sandbox: &Arc<Sandbox>, name: &str, watch: bool) -> Result<Self> {
        let client = Client::try_from(sandbox::client_config(sandbox.kubeconfig()).await?)?;
        let mode = if watch { "" } else { "-polling" };
        // Room for what a test appends to the names of its nodes.
        let name: String = name.replace('_', "-").chars().take(40).collect();
        let namespace = format!("{}{mode}", name.trim_end_matches('-'));
        let metadata = json!({"metadata": {"name": namespace}});
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(metadata)?).await?;
        Ok(Self {
            nodes: Api::all(client.clone()),
            config_maps: Api::namespaced(client.clone(), &namespace),
            client,
            namespace,
            sandbox: Arc::clone(sandbox),
            watch,
            lists: AtomicBool::new(false),
            folder: TempDir::new()?,
            started: AtomicUsize::new(0),
        })
    }

    /// The full name of one of this test's nodes.
    pub fn node(&self, name: &str) -> String {
        format!("{}.{name}", self.namespace)
    }

    // Nodes, as a person or a kubelet changes them.

    pub async fn create(&self, node: &str, labels: Labels) -> Result<()> {
        let node = json!({"metadata": {"name": node, "labels": labels}});
        self.create_from(serde_json::from_value(node)?).await
    }

    /// A node of whatever this says: labels, annotations, spec, status.
    pub async fn create_as(&self, node: &str, mut content: Value) -> Result<()> {
        content["metadata"]["name"] = json!(node);
        self.create_from(serde_json::from_value(content)?).await
    }

    pub async fn create_from(&self, node: Node) -> Result<()> {
        self.nodes.create(&PostParams::default(), &node).await.context("create a node")?;
        Ok(())
    }

    pub async fn delete(&self, node: &str) -> Result<()> {
        self.nodes.delete(node, &DeleteParams::default()).await.context("delete a node")?;
        Ok(())
    }

    /// Sets labels; a `None` removes one.
    pub async fn label<const N: usize>(&self, node: &str, labels: [(&str, Option<&str>); N]) -> Result<()> {
        self.patch(node, json!({"metadata": {"labels": BTreeMap::from(labels)}})).await
    }

    /// Sets annotations; a `None` removes one.
    pub async fn annotate<const N: usize>(
        &self,
        node: &str,
        annotations: [(&str, Option<&str>); N],
    ) -> Result<()> {
        self.patch(node, json!({"metadata": {"annotations": BTreeMap::from(annotations)}})).await
    }

    pub async fn patch(&self, node: &str, patch: Value) -> Result<()> {
        let patched = self.nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.context("patch a node")?;
        Ok(())
    }

    pub async fn get(&self, node: &str) -> Result<Node> {
        Ok(self.nodes.get(node).await?)
    }

    pub async fn labels(&self, node: &str) -> Result<Labels> {
        Ok(self.nodes.get_opt(node).await?.and_then(|node| node.metadata.labels).unwrap_or_default())
    }

    // Records.

    pub async fn config_map(&self, node: &str) -> Result<Option<ConfigMap>> {
        Ok(self.config_maps.get_opt(&record_name(node)).await?)
    }

    pub async fn record(&self, node: &str) -> Result<Option<Record>> {
        let Some(config_map) = self.config_map(node).await? else { return Ok(None) };
        Ok(Record::decode(&config_map).ok().map(|decoded| decoded.record))
    }

    pub async fn patch_record(&self, node: &str, patch: Value) -> Result<()> {
        let name = record_name(node);
        self.config_maps
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("patch a record")?;
        Ok(())
    }

    pub async fn delete_record(&self, node: &str) -> Result<()> {
        self.config_maps
            .delete(&record_name(node), &DeleteParams::default())
            .await
            .context("delete a record")?;
        Ok(())
    }

    /// Creates a foreign ConfigMap with the name of this node's record.
    pub async fn occupy_record(&self, node: &str) -> Result<()> {
        let foreign = json!({"metadata": {"name": record_name(node)}, "data": {"pool": "theirs"}});
        self.config_maps.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
        Ok(())
    }

    // Waiting.

    /// Waits until `look` finds what is expected.
    pub async fn eventually<T: PartialEq + Debug>(
        &self,
        what: &str,
        expected: T,
        look: impl AsyncFnMut() -> Result<T>,
    ) -> Result<()> {
        self.eventually_within(PATIENCE, what, expected, look).await
    }

    /// The same, for what takes a minute by its nature.
    pub async fn eventually_after<T: PartialEq + Debug>(
        &self,
        what: &str,
        expected: T,
        look: impl AsyncFnMut() -> Result<T>,
    ) -> Result<()> {
        self.eventually_within(PATIENCE * 3, what, expected, look).await
    }

    async fn eventually_within<T: PartialEq + Debug>(
        &self,
        patience: Duration,
        what: &str,
        expected: T,
        mut look: impl AsyncFnMut() -> Result<T>,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let found = look().await;
            if found.as_ref().is_ok_and(|found| *found == expected) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("never became true: {what}: expected {expected:?}, found {found:?}");
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// A node is created with these labels, which are stored; it is deleted, and comes back without them.
    pub async fn leaves_and_returns(&self, node: &str, kept: &Labels) -> Result<()> {
        self.create(node, kept.clone()).await?;
        self.eventually_stored(node, kept.clone()).await?;
        self.delete(node).await?;
        self.create(node, Labels::new()).await
    }

    pub async fn annotations(&self, node: &str) -> Result<Labels> {
        let mut annotations = self.get(node).await?.metadata.annotations.unwrap_or_default();
        // The marker is not an item.
        annotations.remove(RESTORED);
        Ok(annotations)
    }

    pub async fn eventually_labelled(&self, node: &str, expected: Labels) -> Result<()> {
        self.eventually(&format!("labels of {node}"), expected, async || self.labels(node).await).await
    }

    /// Waits until the record holds exactly these labels, read from the node's present incarnation.
    pub async fn eventually_stored(&self, node: &str, expected: Labels) -> Result<()> {
        let uid = self.get(node).await?.metadata.uid;
        self.eventually(&format!("record of {node}"), (uid, expected), async || {
            let record = self.record(node).await?.context("no record")?;
            Ok((record.uid.map(|uid| uid.to_string()), record.labels))
        })
        .await
    }

    /// Waits until the record says that its node is gone.
    pub async fn eventually_departed(&self, node: &str) -> Result<()> {
        self.eventually(&format!("departure of {node}"), true, async || {
            Ok(self.record(node).await?.is_some_and(|record| record.departed_at.is_some()))
        })
        .await
    }

    /// Waits until both watches of a daemon are there: from then on nothing is missed.
    pub async fn is_watching(&self, daemon: &Daemon) -> Result<()> {
        let watches = async || Ok(daemon.log().matches(" INFO watching ").count() >= 2);
        self.eventually("both watches", true, watches).await
    }

    /// Lets the daemons that are started from now on list often, as [`Self::has_acted`] needs. Otherwise, those that watch list at their start
    /// alone, unless a watch breaks.
    pub fn list_often(&self) {
        self.lists.store(true, Ordering::Relaxed);
    }

    /// Waits until a daemon has acted upon what is there now. It decides before it acts, and its next decision may
    /// come from a list that was under way already; the third shows that it has acted upon the second.
    pub async fn has_acted(&self, daemon: &Daemon, node: &str) -> Result<()> {
        ensure!(!self.watch || self.lists.load(Ordering::Relaxed), "this scenario has to call `list_often`");
        let before = daemon.decisions(node);
        self.eventually("three more passes", true, async || Ok(daemon.decisions(node) >= before + 3)).await
    }

    /// Waits until a daemon, after a failure, has come to an end with a node.
    pub async fn has_acted_again(&self, daemon: &Daemon, node: &str) -> Result<()> {
        let ends = |line: &&str| {
            let is_end =
                ["nothing to write after a fresh read", "INFO stored"].iter().any(|end| line.contains(end));
            is_end && line.contains(node)
        };
        let has_ended = async || {
            let log = daemon.log();
            let (_, after) = log.split_once("no answer within").context("no failure")?;
            Ok(after.lines().any(|line| ends(&line)))
        };
        self.eventually("another attempt", true, has_ended).await
    }

    /// Waits until a daemon has decided this about a node.
    pub async fn has_decided(&self, daemon: &Daemon, node: &str, reason: &str) -> Result<()> {
        let (node, reason) = (format!("node=\"{node}\""), format!("reason=\"{reason}\""));
        let what = format!("{reason} of {node}");
        self.eventually(&what, true, async || Ok(daemon.has_logged(&["decided", &node, &reason]))).await
    }

    // Daemons.

    /// Starts a storer for this test's nodes.
    pub fn storer(&self, flags: &[&str]) -> Result<Daemon> {
        self.daemon("storer", flags)
    }

    /// Starts a restorer for this test's nodes.
    pub fn restorer(&self, flags: &[&str]) -> Result<Daemon> {
        self.daemon("restorer", flags)
    }

    /// One of each.
    pub fn pair(&self) -> Result<(Daemon, Daemon)> {
        Ok((self.storer(&[])?, self.restorer(&[])?))
    }

    pub fn daemon(&self, kind: &str, flags: &[&str]) -> Result<Daemon> {
        self.daemon_with(self.sandbox.kubeconfig(), kind, flags)
    }

    /// A proxy to this test's API server.
    pub async fn proxy(&self, script: impl Script) -> Result<Proxy> {
        // Not on this test's own runtime, which stands still while a daemon is waited for that has yet to say goodbye.
        static ELSEWHERE: LazyLock<std::io::Result<Runtime>> =
            LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build());
        let runtime = ELSEWHERE.as_ref().map_err(|error| anyhow!("{error}"))?;
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = self.file(&format!("proxied-{number}"));
        let sandbox = Arc::clone(&self.sandbox);
        let start = async move { Proxy::start(sandbox.kubeconfig(), &kubeconfig, script).await };
        runtime.spawn(start).await?
    }

    /// Starts a daemon that speaks to the API server through a proxy.
    pub fn daemon_through(&self, proxy: &Proxy, kind: &str, flags: &[&str]) -> Result<Daemon> {
        self.daemon_with(proxy.kubeconfig(), kind, flags)
    }

    fn daemon_with(&self, kubeconfig: &Path, kind: &str, flags: &[&str]) -> Result<Daemon> {
        self.run_binary(kind, &self.with_flags(flags)?, Some(kubeconfig.to_owned()))
    }

    /// [`Self::flags`], followed by these: the last value of a flag counts. `--rules YAML` stands for `--config` with a file of that content.
    pub fn with_flags(&self, flags: &[&str]) -> Result<Vec<String>> {
        let (mut all, mut flags) = (self.flags(), flags.iter());
        while let Some(flag) = flags.next() {
            if *flag != "--rules" {
                all.push((*flag).to_owned());
                continue;
            }
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            let file = self.file(&format!("rules-{number}.yaml"));
            std::fs::write(&file, flags.next().context("--rules needs a value")?)?;
            all.extend(["--config".to_owned(), file.to_str().context("a path of text")?.to_owned()]);
        }
        Ok(all)
    }

    /// Flags that keep a daemon to this test's namespace and nodes.
    pub fn flags(&self) -> Vec<String> {
        let (nodes, watch) = (format!("{}.*", self.namespace), format!("--watch={}", self.watch));
        let place = ["--namespace", &self.namespace, "--nodes", &nodes, &watch];
        let audit = if self.watch && !self.lists.load(Ordering::Relaxed) { "1h" } else { "150ms" };
        let pace = ["--interval", "150ms", "--audit-interval", audit, "--log-level", "debug"];
        place.into_iter().chain(pace).map(str::to_owned).collect()
    }

    /// A StatefulSet in this test's namespace. No controller creates its pods: see [`Self::pod`].
    pub async fn create_set(&self, name: &str, replicas: u32) -> Result<()> {
        let labels = json!({"app": name});
        let container = json!({"name": name, "image": name});
        let set = json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        });
        self.sets().create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        Ok(())
    }

    /// As `kubectl scale` does.
    pub async fn scale(&self, set: &str, replicas: u32) -> Result<()> {
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.sets().patch_scale(set, &PatchParams::default(), &scale).await.context("scale")?;
        Ok(())
    }

    pub fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Starts a daemon as the pod of this ordinal of the StatefulSet of its name.
    pub fn pod(&self, kind: &str, ordinal: u32, flags: &[&str]) -> Result<Daemon> {
        let (args, pod) = (self.with_flags(flags)?, format!("{kind}-{ordinal}"));
        self.run_with_env(kind, &args, Some(self.sandbox.kubeconfig().to_owned()), &[("POD_NAME", &pod)])
    }

    /// Runs a daemon with exactly these arguments.
    pub fn run_binary(&self, kind: &str, args: &[String], kubeconfig: Option<PathBuf>) -> Result<Daemon> {
        self.run_with_env(kind, args, kubeconfig, &[])
    }

    /// Runs a daemon with exactly these arguments, and these environment variables.
    pub fn run_with_env(
        &self,
        kind: &str,
        args: &[String],
        kubeconfig: Option<PathBuf>,
        variables: &[(&str, &str)],
    ) -> Result<Daemon> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.path().join(format!("{kind}-{number}.log"));
        let mut command = itself::command(kind, kubeconfig.as_deref())?;
        command.args(args).env("HOME", self.folder.path()).envs(variables.iter().copied());
        Ok(Daemon::new(Guarded::spawn(kind, &command, &log)?))
    }

    /// Runs `kubectl label-storage` with these arguments, in this test's namespace, without a terminal.
    pub fn plugin(&self, args: &[&str]) -> Result<Told> {
        self.plugin_reading("", args)
    }

    /// The same, with something to read.
    pub fn plugin_reading(&self, input: &str, args: &[&str]) -> Result<Told> {
        let mut command = itself::command("plugin", Some(self.sandbox.kubeconfig()))?;
        command.args(args).env("LABEL_STORAGE_NAMESPACE", &self.namespace).env("HOME", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().context("a stdin")?;
        let input = input.to_owned();
        // It may end before it has read all.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output()?;
        let _ = writer.join();
        let text = |bytes| String::from_utf8(bytes).context("text");
        Ok(Told { code: output.status.code(), out: text(output.stdout)?, err: text(output.stderr)? })
    }

    /// A file in this test's own folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    // The end.

    async fn own_nodes(&self) -> Result<Vec<Node>> {
        let prefix = format!("{}.", self.namespace);
        let mut nodes = self.nodes.list(&ListParams::default()).await?.items;
        nodes.retain(|node| node.metadata.name.as_ref().is_some_and(|name| name.starts_with(&prefix)));
        Ok(nodes)
    }

    /// The state of the cluster, for the report of a failure.
    pub async fn describe(&self) -> String {
        let mut text = String::new();
        for node in self.own_nodes().await.unwrap_or_default().into_iter().take(5) {
            let meta = node.metadata;
            text +=
                &format!("node {:?} {:?} {:?} {:?}\n", meta.name, meta.uid, meta.labels, meta.annotations);
        }
        let records =
            self.config_maps.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for record in records.into_iter().take(5) {
            text += &format!(
                "record {:?} {:?} {:?}\n",
                record.metadata.name, record.metadata.annotations, record.data
            );
        }
        let logs = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        for log in logs.filter(|file| file.path().extension().is_some_and(|end| end == "log")) {
            let content = std::fs::read_to_string(log.path()).unwrap_or_default();
            let lines: Vec<_> = content.lines().rev().take(25).collect();
            text += &format!("--- {}\n", log.file_name().display());
            lines.iter().rev().for_each(|line| text += &format!("{line}\n"));
        }
        text
    }

    /// Every daemon of every test lists all nodes: what is left behind would slow the others down.
    async fn clean_up(&self) {
        let names =
            self.own_nodes().await.unwrap_or_default().into_iter().filter_map(|node| node.metadata.name);
        let deletions = futures::stream::iter(names).for_each_concurrent(8, async |name| {
            // One that is gone already is as good.
            let _ = self.nodes.delete(&name, &DeleteParams::default()).await;
        });
        deletions.await;
    }
}
