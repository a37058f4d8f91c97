//! The StatefulSets of the daemons, and their rules.

use std::num::NonZeroU32;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Container;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use label_storage_runtime::Daemon;
use label_storage_runtime::args::Common;
use label_storage_runtime::call::in_one_line;
use label_storage_runtime::lease;

use super::Finding;
use super::Severity::{Error, Note, Warning};
use super::shards::Expected;
use crate::cluster::{Cluster, RULES, RulesUnknown};
use crate::hints::NAMESPACE;

pub(crate) const DAEMONS: [&str; 2] = ["storer", "restorer"];

/// The kubectl command that finds an installation.
pub(crate) const FIND: &str = "get statefulsets -A -l app.kubernetes.io/part-of=label-storage";

const PART_OF: &str = "app.kubernetes.io/part-of=label-storage";
/// The label with the name of a daemon.
pub(crate) const COMPONENT: &str = "app.kubernetes.io/component";
const VERSION: &str = "app.kubernetes.io/version";
const RELEASE: &str = "meta.helm.sh/release-name";
const DRY_RUN: &str = "LABEL_STORAGE_DRY_RUN";

/// The StatefulSet of a daemon.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) daemon: &'static str,
    name: String,
    pub(crate) account: String,
    /// The flags of its container, or the reason why they are unknown.
    pub(crate) flags: Result<Common, String>,
    replicas: u32,
    ready: u32,
    is_dry_run_in_env: bool,
    version: String,
    image: String,
}

/// Both StatefulSets.
#[derive(Debug)]
pub(crate) struct Installation {
    /// For each daemon, its StatefulSet, or the reason why it can't be read.
    sets: [Result<Set, String>; 2],
    /// The Helm release, and true if Helm uses server-side apply.
    release: Option<(String, bool)>,
}

impl Installation {
    pub(crate) async fn read(cluster: &Cluster) -> Self {
        let api: Api<StatefulSet> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        let listed = api.list(&ListParams::default().labels(PART_OF)).await;
        let listed = listed.map(|sets| sets.items).map_err(|error| in_one_line(&error));
        let find = |daemon: &str| {
            let is_its = |set: &&StatefulSet| set.labels().get(COMPONENT).is_some_and(|its| its == daemon);
            let found: Vec<_> = listed.as_ref().map_err(Clone::clone)?.iter().filter(is_its).collect();
            match found.as_slice() {
                [set] => Ok(*set),
                [] => Err(format!("namespace {} has no statefulset of the {daemon}", cluster.namespace)),
                [..] => {
                    Err(format!("namespace {} has several statefulsets of the {daemon}", cluster.namespace))
                }
            }
        };
        let storer = find(DAEMONS[0]).map(|set| Set::new::<storer::Args>(DAEMONS[0], set));
        let restorer = find(DAEMONS[1]).map(|set| Set::new::<restorer::Args>(DAEMONS[1], set));
        Self { sets: [storer, restorer], release: listed.iter().flatten().find_map(release) }
    }

    pub(crate) fn set(&self, daemon: &str) -> Option<&Set> {
        self.sets.iter().flatten().find(|set| set.daemon == daemon)
    }

    /// The prefix of the names of cluster-wide objects, which the chart derives from the names of the StatefulSets.
    pub(crate) fn cluster_name(&self, namespace: &str) -> String {
        let mut names =
            self.sets.iter().flatten().filter_map(|set| set.name.strip_suffix(set.daemon)?.strip_suffix('-'));
        let name = names.next().unwrap_or(NAMESPACE);
        if name == namespace { name.to_owned() } else { format!("{name}-{namespace}") }
    }

    /// The numbers of replicas in the StatefulSets, if they are known.
    pub(crate) fn expected(&self) -> Expected {
        self.sets.each_ref().map(|set| {
            let set = set.as_ref().ok()?;
            let flags = set.flags.as_ref().ok()?;
            let scope = flags.nodes.as_ref().map(lease::scope).unwrap_or_default();
            let given = flags.replicas.map_or(set.replicas, NonZeroU32::get);
            // A dry run takes no leases.
            let is_none = flags.dry_run || set.replicas == 0;
            Some((if is_none { 0 } else { given }, scope))
        })
    }

    /// The command that installs the objects again.
    pub(crate) fn upgrade(&self, cluster: &Cluster) -> String {
        let Cluster { hints, namespace, .. } = cluster;
        match &self.release {
            None if namespace == NAMESPACE => {
                hints.kubectl("apply --server-side --force-conflicts -f deploy/label-storage.yaml")
            }
            None => hints.helm("upgrade --install label-storage deploy/chart"),
            Some((release, is_applied)) => {
                // With server-side apply, Helm refuses to overwrite a field that another client has changed.
                let force = if *is_applied { " --force-conflicts" } else { "" };
                hints.helm(&format!("upgrade {release} deploy/chart --reset-then-reuse-values{force}"))
            }
        }
    }

    pub(crate) fn findings(&self, cluster: &Cluster) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (set, daemon) in self.sets.iter().zip(DAEMONS) {
            match set {
                Ok(set) => findings.extend(self.of_set(set, cluster)),
                Err(error) => {
                    let unknown = Finding::unknown("statefulset-unknown", format!("{daemon}: {error}"));
                    findings.push(unknown.fix(cluster.hints.kubectl(FIND)));
                }
            }
        }
        if let [Ok(storer), Ok(restorer)] = &self.sets {
            findings.extend(self.compare(storer, restorer, cluster));
        }
        findings
    }

    fn of_set(&self, set: &Set, cluster: &Cluster) -> Vec<Finding> {
        let (hints, Set { daemon, name, replicas, ready, .. }) = (&cluster.hints, set);
        let mut findings = Vec::new();
        if *replicas == 0 {
            let scale = hints.in_namespace(&format!("scale statefulset {name} --replicas=2"));
            let message = format!("the {daemon} is scaled to 0 replicas");
            findings.push(Finding::new(Error, "stopped", message).fix(scale));
        } else if ready < replicas {
            let show = hints.in_namespace(&format!("describe pods -l {COMPONENT}={daemon}"));
            let message = format!("{ready} of {replicas} {daemon} pods are ready");
            let severity = if *ready == 0 { Error } else { Warning };
            findings.push(Finding::new(severity, "pods-not-ready", message).fix(show));
        }
        let flags = match &set.flags {
            Ok(flags) => flags,
            Err(error) => {
                let message = format!("the {daemon} can't start with its flags: {error}");
                findings.push(Finding::new(Error, "flags-refused", message).fix(self.upgrade(cluster)));
                return findings;
            }
        };
        if flags.dry_run {
            let fix = match set.is_dry_run_in_env {
                true => hints.in_namespace(&format!("set env statefulset {name} {DRY_RUN}-")),
                false => self.upgrade(cluster),
            };
            let values = "if the Helm values have dryRun, or extraArgs the flag, remove it there";
            let message = format!("the {daemon} runs with --dry-run and writes nothing; {values}");
            findings.push(Finding::new(Warning, "dry-run", message).fix(fix));
        }
        if let Some(nodes) = &flags.nodes {
            let glob = nodes.glob().glob();
            let message = format!("the {daemon} handles only nodes that match {glob:?} (--nodes)");
            findings.push(Finding::new(Note, "some-nodes", message));
        }
        findings
    }

    fn compare(&self, storer: &Set, restorer: &Set, cluster: &Cluster) -> Vec<Finding> {
        const OWN: &str = env!("CARGO_PKG_VERSION");
        let mut findings = Vec::new();
        let mut add = |severity, reason, message| {
            findings.push(Finding::new(severity, reason, message).fix(self.upgrade(cluster)));
        };
        let (one, other) = (&storer.version, &restorer.version);
        if one != other {
            add(Warning, "versions-differ", format!("the storer is version {one} and the restorer {other}"));
        } else if one != OWN {
            let message =
                format!("the daemons are version {one}, and this plugin is {OWN}: install the same version");
            add(Warning, "versions-differ", message);
        }
        if storer.image != restorer.image {
            let images = format!("{}, and that of the restorer is {}", storer.image, restorer.image);
            add(Warning, "images-differ", format!("the image of the storer is {images}"));
        }
        let config = |set: &Set| set.flags.as_ref().ok().map(|flags| flags.config.clone());
        if config(storer).zip(config(restorer)).is_some_and(|(one, other)| one != other) {
            let message = "the storer and the restorer read different rules files (--config)";
            add(Error, "rules-differ", message.to_owned());
        }
        findings
    }
}

/// Checks that the rules of the daemons can be read.
pub(crate) fn rules(cluster: &Cluster) -> Option<Finding> {
    Some(match cluster.rules_unknown.as_ref()? {
        RulesUnknown::Forbidden(why) => Finding::unknown("rules-unknown", why),
        RulesUnknown::Refused(why) => {
            let message = format!("{why}; a daemon can't start with these rules");
            let edit = cluster.hints.in_namespace(&format!("edit configmap {}", RULES.0));
            Finding::new(Error, "rules-refused", message).fix(edit)
        }
    })
}

impl Set {
    fn new<D: Daemon>(daemon: &'static str, set: &StatefulSet) -> Self {
        let spec = set.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let container = pod.and_then(|pod| pod.containers.iter().find(|container| container.name == daemon));
        let count = |count: Option<i32>| count.and_then(|count| u32::try_from(count).ok());
        let mut env = container.into_iter().flat_map(|container| container.env.iter().flatten());
        Self {
            daemon,
            name: set.name_any(),
            account: pod.and_then(|pod| pod.service_account_name.clone()).unwrap_or("default".to_owned()),
            replicas: count(spec.and_then(|spec| spec.replicas)).unwrap_or(1),
            ready: count(set.status.as_ref().and_then(|status| status.ready_replicas)).unwrap_or(0),
            flags: container.map_or_else(|| Err(format!("there is no container {daemon}")), flags::<D>),
            is_dry_run_in_env: env.any(|variable| variable.name == DRY_RUN),
            version: set.labels().get(VERSION).cloned().unwrap_or("unknown".to_owned()),
            image: container.and_then(|container| container.image.clone()).unwrap_or_default(),
        }
    }
}

/// The flags of a container, read as the daemon reads them: from the environment, then from the arguments, which win.
fn flags<D: Daemon>(container: &Container) -> Result<Common, String> {
    let command = D::command();
    let mut words = vec![container.name.clone()];
    for variable in container.env.iter().flatten() {
        let mut args = command.get_arguments();
        let arg = args.find(|arg| arg.get_env().is_some_and(|name| name == variable.name.as_str()));
        let flag = arg.and_then(|arg| Some((arg.get_long()?, arg.get_action().takes_values())));
        match (flag, &variable.value) {
            (Some((long, true)), Some(value)) => words.push(format!("--{long}={value}")),
            (Some((long, false)), Some(value)) if value == "true" => words.push(format!("--{long}")),
            _ => {}
        }
    }
    words.extend(container.args.iter().flatten().cloned());
    // The environment of this process is not that of the pod.
    let command = command.mut_args(|arg| arg.env(None::<&str>));
    let read = command.try_get_matches_from(words).and_then(|matches| D::from_arg_matches(&matches));
    read.map(|daemon| daemon.common().clone())
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().replace("error: ", ""))
}

fn release(set: &StatefulSet) -> Option<(String, bool)> {
    let is_applied = set
        .managed_fields()
        .iter()
        .any(|entry| entry.manager.as_deref() == Some("helm") && entry.operation.as_deref() == Some("Apply"));
    Some((set.annotations().get(RELEASE)?.clone(), is_applied))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(env: serde_json::Value, args: serde_json::Value) -> Container {
        serde_json::from_value(json!({"name": "storer", "env": env, "args": args})).expect("a container")
    }

    #[test]
    fn flags_are_read_as_the_daemon_would() {
        let env = json!([
            {"name": "LABEL_STORAGE_CONCURRENCY", "value": "3"},
            {"name": "LABEL_STORAGE_DRY_RUN", "value": "true"},
            {"name": "LABEL_STORAGE_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "OTHER", "value": "x"},
        ]);
        let read = flags::<storer::Args>(&container(env.clone(), json!(["--events=false"])));
        let read = read.expect("good flags");
        assert_eq!((read.concurrency.get(), read.dry_run, read.events), (3, true, false));
        let read = flags::<storer::Args>(&container(env, json!(["--concurrency", "5"])));
        assert_eq!(read.expect("good flags").concurrency.get(), 5, "the flag wins");
        let refused = flags::<restorer::Args>(&container(json!([]), json!(["--retention=7d"])));
        assert!(refused.expect_err("no such flag").contains("--retention"));
    }
}
