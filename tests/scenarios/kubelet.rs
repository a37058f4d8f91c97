//! A scheduler and a kubelet in one, for a sandbox that has neither. It runs the pods of a namespace as processes.
//!
//! Each process is a daemon with the arguments, the environment, the files and the token that its pod specifies. The API server
//! knows the kubelet as `system:node:NAME`, so the Node authorizer, the daemons' roles and the admission policies are in force.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Node, Pod, ServiceAccount, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use sandbox::process::Signal;
use serde_json::{Value, json};

use crate::daemon::{self, Daemon};
use crate::scenario::Scenario;

/// The time between two looks at the pods.
const PERIOD: Duration = Duration::from_millis(200);

/// Far below the 40 s after which the controllers take a Node for unreachable.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long a container may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client that the API server knows as the kubelet of this Node.
pub async fn client(s: &Scenario, node: &str) -> Result<Client> {
    let mut config = sandbox::client_config(s.sandbox.kubeconfig()).await?;
    config.auth_info.impersonate = Some(format!("system:node:{node}"));
    config.auth_info.impersonate_groups =
        Some(["system:nodes", "system:authenticated"].map(str::to_owned).into());
    Ok(Client::try_from(config)?)
}

pub struct Kubelet<'a> {
    s: &'a Scenario,
    node: String,
    namespace: String,
    /// For requests as the kubelet.
    client: Client,
    /// By the pods' uids: a force-deleted pod may still end while another of its name runs.
    running: BTreeMap<String, Running>,
    heartbeat: Option<Instant>,
}

struct Running {
    daemon: Daemon,
    /// The address and the path of the readiness probe.
    probe: (SocketAddr, String),
    restarts: i32,
    /// When it gets SIGKILL; set with SIGTERM.
    kill_at: Option<Instant>,
    grace: Duration,
}

impl<'a> Kubelet<'a> {
    /// Registers a Node that all pods of this namespace are bound to.
    pub async fn register(s: &'a Scenario, namespace: &str) -> Result<Self> {
        let node = s.node("kubelet");
        let client = client(s, &node).await?;
        let object = serde_json::from_value(json!({"metadata": {"name": node}}))?;
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &object).await?;
        let (namespace, running) = (namespace.to_owned(), BTreeMap::new());
        Ok(Self { s, node, namespace, client, running, heartbeat: None })
    }

    /// Runs pods until `work` is done. Errors are in a log in the scenario's folder, and every step is tried again.
    pub async fn run_pods_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let pods = async {
            loop {
                if let Err(error) = self.sync().await {
                    let log = fs::File::options().create(true).append(true).open(self.s.file("kubelet.log"));
                    let _ = log.and_then(|mut log| writeln!(log, "{error:#}"));
                }
                tokio::time::sleep(PERIOD).await;
            }
        };
        tokio::select! {
            done = work => done,
            () = pods => unreachable!("it never ends"),
        }
    }

    async fn sync(&mut self) -> Result<()> {
        if self.heartbeat.is_none_or(|last| last.elapsed() > HEARTBEAT) {
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now()});
            let status = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
            let nodes: Api<Node> = Api::all(self.client.clone());
            nodes.patch_status(&self.node, &PatchParams::default(), &status).await.context("a heartbeat")?;
            self.heartbeat = Some(Instant::now());
        }
        let pods: Api<Pod> = Api::namespaced(self.s.client.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default()).await?.items;
        let live = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
        let wanted: Vec<_> = pods.iter().filter(live).filter_map(ResourceExt::uid).collect();
        for (_, unwanted) in self.running.iter_mut().filter(|(uid, _)| !wanted.contains(uid)) {
            unwanted.end()?;
        }
        self.running.retain(|uid, running| wanted.contains(uid) || !running.has_ended());
        let mut result = Ok(());
        for pod in &pods {
            let synced = self.sync_pod(pod).await.with_context(|| pod.name_any());
            result = result.and(synced);
        }
        result
    }

    async fn sync_pod(&mut self, pod: &Pod) -> Result<()> {
        let (uid, spec) = (pod.uid().context("a uid")?, pod.spec.as_ref().context("a spec")?);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        match self.running.get_mut(&uid) {
            _ if spec.node_name.is_none() => return self.bind(pod).await,
            None if is_deleted => {
                let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
                pods.delete(&pod.name_any(), &params).await?;
            }
            Some(_) if is_deleted => {}
            None => {
                let started = self.start(pod, 0).await?;
                self.running.insert(uid, started);
            }
            Some(running) if running.has_ended() => {
                let restarts = running.restarts + 1;
                let restarted = self.start(pod, restarts).await?;
                self.running.insert(uid, restarted);
            }
            Some(running) => {
                let reported =
                    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
                let reported = reported.map(|container| (container.ready, container.restart_count)).next();
                let state = (running.is_ready().await, running.restarts);
                if reported != Some(state) {
                    let status = Patch::Strategic(json!({"status": status(&spec.containers[0], state)}));
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await?;
                }
            }
        }
        Ok(())
    }

    /// As the scheduler does.
    async fn bind(&self, pod: &Pod) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.s.client.clone(), &self.namespace);
        let (name, target) = (pod.name_any(), json!({"apiVersion": "v1", "kind": "Node", "name": self.node}));
        let binding =
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        pods.create_subresource::<_, Value>("binding", &name, &PostParams::default(), &binding).await?;
        Ok(())
    }

    /// Starts the daemon in the pod's container, and replaces paths and ports in its arguments by those on this machine.
    async fn start(&self, pod: &Pod, restarts: i32) -> Result<Running> {
        let spec = pod.spec.as_ref().context("a spec")?;
        let [container] = &*spec.containers else { bail!("not one container") };
        let image = container.image.as_deref().unwrap_or_default();
        ensure!(image.starts_with("label-storage:"), "can't pull image {image}");
        let mut args = container.args.clone().unwrap_or_default();
        let mut kubeconfig = None;
        for mount in container.volume_mounts.iter().flatten() {
            match self.mount(pod, mount).await.with_context(|| mount.name.clone())? {
                Mounted::Files(folder) => {
                    args = args.iter().map(|arg| arg.replace(&mount.mount_path, &folder)).collect();
                }
                Mounted::Token(file) => kubeconfig = Some(file),
            }
        }
        // Pods share this machine's network. An address of its own for each makes a chosen port stay free.
        let [a, b, c] = rand::random::<[u8; 3]>();
        let address = Ipv4Addr::new(127, a | 1, b, c);
        let mut ports = BTreeMap::new();
        for port in container.ports.iter().flatten() {
            let own = TcpListener::bind((address, 0))?.local_addr()?;
            let listens = |arg: &str| arg.ends_with(&format!(":{}", port.container_port));
            for arg in args.iter_mut().filter(|arg| listens(arg)) {
                *arg = format!("{}={own}", arg.split_once('=').context("an address")?.0);
            }
            ports.insert(port.name.clone(), own);
        }
        let probe = container.readiness_probe.as_ref().and_then(|probe| probe.http_get.clone());
        let probe = probe.context("no readiness probe")?;
        let IntOrString::String(port) = probe.port else { bail!("a probe of an unnamed port") };
        let address = *ports.get(&Some(port)).context("a probe of an unknown port")?;
        let command = container.command.iter().flatten().next().context("no command")?;
        let variables = environment(pod, container)?;
        let variables: Vec<_> = variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        let daemon = self.s.run_with_env(command.trim_start_matches('/'), &args, kubeconfig, &variables)?;
        let grace = spec.termination_grace_period_seconds.unwrap_or_default();
        let grace = Duration::from_secs(grace.try_into()?);
        let probe = (address, probe.path.unwrap_or_default());
        Ok(Running { daemon, probe, restarts, kill_at: None, grace })
    }

    async fn mount(&self, pod: &Pod, mount: &VolumeMount) -> Result<Mounted> {
        let spec = pod.spec.as_ref().context("a spec")?;
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let volume = volume.context("no such volume")?;
        if let Some(source) = &volume.config_map {
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let folder = self.s.file(&format!("{}-{}", pod.uid().unwrap_or_default(), mount.name));
            fs::create_dir_all(&folder)?;
            for (name, text) in maps.get(&source.name).await?.data.unwrap_or_default() {
                fs::write(folder.join(name), text)?;
            }
            return Ok(Mounted::Files(folder.to_str().context("a path of text")?.to_owned()));
        }
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        if sources.filter(|source| source.service_account_token.is_some()).count() != 1 {
            bail!("neither a ConfigMap nor a token");
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()});
        let request = json!({"metadata": {}, "spec": {"audiences": [], "boundObjectRef": bound}});
        let request: TokenRequest = serde_json::from_value(request)?;
        let account = spec.service_account_name.as_ref().context("no account")?;
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let token = answer.status.and_then(|status| status.token).context("no token")?;
        Ok(Mounted::Token(self.s.sandbox.kubeconfig_with_token(&token, Some(&self.namespace))?))
    }
}

/// A volume of a pod.
enum Mounted {
    /// A folder with the files of a ConfigMap.
    Files(String),
    /// A kubeconfig with the token of the pod's account.
    Token(PathBuf),
}

impl Running {
    fn has_ended(&self) -> bool {
        self.daemon.process.try_wait().is_some()
    }

    async fn is_ready(&self) -> bool {
        let answer = tokio::time::timeout(PROBE_TIMEOUT, daemon::get(self.probe.0, &self.probe.1)).await;
        matches!(answer, Ok(Ok((200, _))))
    }

    /// Sends SIGTERM, and SIGKILL after the grace period.
    fn end(&mut self) -> Result<()> {
        let process = &self.daemon.process;
        match self.kill_at {
            None => {
                process.signal(Signal::TERM)?;
                self.kill_at = Some(Instant::now() + self.grace);
            }
            Some(at) if Instant::now() > at => process.signal(Signal::KILL)?,
            Some(_) => {}
        }
        Ok(())
    }
}

fn now() -> Time {
    Time(jiff::Timestamp::now())
}

fn environment(pod: &Pod, container: &Container) -> Result<BTreeMap<String, String>> {
    let object = serde_json::to_value(pod)?;
    let variables = container.env.iter().flatten().map(|variable| {
        let value = match &variable.value_from {
            None => variable.value.clone(),
            Some(source) => source.field_ref.as_ref().and_then(|field| {
                let value = object.pointer(&format!("/{}", field.field_path.replace('.', "/")))?;
                value.as_str().map(str::to_owned)
            }),
        };
        Ok((variable.name.clone(), value.with_context(|| format!("no value of {}", variable.name))?))
    });
    variables.collect()
}

fn status(container: &Container, (is_ready, restarts): (bool, i32)) -> Value {
    let is_true = if is_ready { "True" } else { "False" };
    let condition = |name| json!({"type": name, "status": is_true, "lastTransitionTime": now()});
    let container = json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": is_ready, "started": true,
        "restartCount": restarts, "state": {"running": {"startedAt": now()}},
    });
    let conditions = [condition("Ready"), condition("ContainersReady")];
    json!({"phase": "Running", "conditions": conditions, "containerStatuses": [container]})
}
