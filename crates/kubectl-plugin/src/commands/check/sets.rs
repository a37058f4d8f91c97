//! The StatefulSets: which versions run, with which flags, and how many pods are ready.

use std::num::NonZeroU32;

use clap::ArgMatches;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Container;
use kube::{Api, ResourceExt};
use label_storage_runtime::Daemon;
use label_storage_runtime::args::Common;

use super::{Checked, Finding, Look, why};

/// The label that says which version something is of.
const VERSION: &str = "app.kubernetes.io/version";
/// What Helm calls what it has installed.
const RELEASE: &str = "meta.helm.sh/release-name";

/// Both StatefulSets, as far as they are there and can be read.
pub(super) struct Sets {
    pub(super) storer: Option<Set>,
    pub(super) restorer: Option<Set>,
}

impl Sets {
    /// By the name of the daemon.
    pub(super) fn of(&self, daemon: &str) -> Option<&Set> {
        if daemon == "storer" { self.storer.as_ref() } else { self.restorer.as_ref() }
    }

    /// The Helm release that installed them.
    pub(super) fn release(&self) -> Option<&str> {
        [&self.storer, &self.restorer].into_iter().flatten().find_map(|set| set.release.as_deref())
    }
}

/// What is known of one.
pub(super) struct Set {
    /// The service account of its pods.
    pub(super) account: String,
    /// The number of shards; `None` if the daemon is stopped.
    pub(super) shards: Option<NonZeroU32>,
    /// What its pods are told; `None` where this version can't read it.
    pub(super) flags: Option<Common>,
    release: Option<String>,
    version: Option<String>,
    image: Option<String>,
}

pub(super) async fn check(look: &Look) -> (Sets, Checked) {
    let mut findings = Vec::new();
    let storer = one::<storer::Args>(look, "storer", &mut findings).await;
    let restorer = one::<restorer::Args>(look, "restorer", &mut findings).await;
    let sets = Sets { storer, restorer };
    compare(look, &sets, &mut findings);
    let version = sets.storer.as_ref().and_then(|set| set.version.as_deref()).unwrap_or("no version");
    let checked =
        Checked::new("installation", format!("both daemons are of {version}, as this is"), findings);
    (sets, checked)
}

/// Reads one StatefulSet, and looks at it by itself.
async fn one<D: Daemon>(look: &Look, daemon: &str, findings: &mut Vec<Finding>) -> Option<Set> {
    let Look { namespace, .. } = look;
    let api: Api<StatefulSet> = Api::namespaced(look.client.clone(), namespace);
    let set = match api.get_opt(daemon).await {
        Ok(Some(set)) => set,
        Ok(None) => {
            let why = format!("there is no StatefulSet {daemon} in namespace {namespace}");
            findings.push(Finding::unknown(&format!("which version of the {daemon} runs"), why).mend(
                "kubectl get statefulsets --all-namespaces --selector app.kubernetes.io/part-of=label-storage",
            ));
            return None;
        }
        Err(error) => {
            findings.push(Finding::unknown(&format!("which version of the {daemon} runs"), why(&error)));
            return None;
        }
    };
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let container = spec.and_then(|spec| spec.containers.iter().find(|one| one.name == daemon));
    let flags = container.map(|container| flags::<D>(daemon, container));
    let flags = match flags {
        None => {
            let why = format!("StatefulSet {daemon} has no container {daemon}");
            findings.push(Finding::unknown(&format!("what the {daemon} is told"), why));
            None
        }
        Some(Err(error)) => {
            let message = format!("the {daemon} would not start with its flags, by this version: {error}");
            findings.push(
                Finding::error(message)
                    .mend(format!("kubectl edit statefulset {daemon} --namespace {namespace}")),
            );
            None
        }
        Some(Ok(flags)) => Some(flags),
    };
    findings.extend(pods(namespace, daemon, &set));
    if let Some(flags) = &flags {
        findings.extend(told(look, daemon, &set, flags));
    }
    let given = flags.as_ref().and_then(|flags| flags.replicas);
    let shards = u32::try_from(wanted(&set)).ok().and_then(NonZeroU32::new);
    let account = spec.and_then(|spec| spec.service_account_name.clone());
    Some(Set {
        account: account.unwrap_or_else(|| "default".to_owned()),
        shards: shards.map(|replicas| given.unwrap_or(replicas)),
        flags,
        release: set.annotations().get(RELEASE).cloned(),
        version: set.labels().get(VERSION).cloned(),
        image: container.and_then(|container| container.image.clone()),
    })
}

/// The flags of its pods, read as the daemon reads them: from the environment, then from the arguments, which win.
fn flags<D: Daemon>(daemon: &str, container: &Container) -> Result<Common, String> {
    let command = D::command();
    let mut words = vec![daemon.to_owned()];
    for variable in container.env.iter().flatten() {
        let Some(value) = &variable.value else { continue };
        let mut known =
            command.get_arguments().filter_map(|arg| Some((arg, arg.get_env()?, arg.get_long()?)));
        if let Some((arg, _, long)) = known.find(|(_, name, _)| *name == variable.name.as_str()) {
            match arg.get_action().takes_values() {
                true => words.push(format!("--{long}={value}")),
                false if value == "true" => words.push(format!("--{long}")),
                false => {}
            }
        }
    }
    words.extend(container.args.iter().flatten().cloned());
    // Not this process's own environment, which is not the pod's.
    let command = command.mut_args(|arg| arg.env(None::<&str>));
    let read = |matches: ArgMatches| D::from_arg_matches(&matches);
    let read = command.try_get_matches_from(words).and_then(read);
    match read {
        Ok(daemon) => Ok(daemon.common().clone()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().replace("error: ", "")),
    }
}

fn wanted(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Whether its pods are there.
fn pods(namespace: &str, daemon: &str, set: &StatefulSet) -> Option<Finding> {
    let wanted = wanted(set);
    let ready = set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let show =
        format!("kubectl describe pods --namespace {namespace} --selector app.kubernetes.io/name={daemon}");
    match (wanted, ready) {
        (0, _) => {
            // As many as the chart has by default.
            let start = format!("kubectl scale statefulset {daemon} --namespace {namespace} --replicas=2");
            let message = format!("the {daemon} is stopped: its StatefulSet has 0 replicas");
            Some(Finding::error(message).mend(start))
        }
        (wanted, 0) => Some(Finding::error(format!("of {wanted} {daemon} pods none is ready")).mend(show)),
        (wanted, ready) if ready < wanted => {
            Some(Finding::warning(format!("of {wanted} {daemon} pods {ready} are ready")).mend(show))
        }
        _ => None,
    }
}

/// Whether it is told what is true.
fn told(look: &Look, daemon: &str, set: &StatefulSet, flags: &Common) -> Vec<Finding> {
    let mut findings = Vec::new();
    let namespace = &look.namespace;
    if flags.dry_run {
        let message = format!("the {daemon} runs with --dry-run, and writes nothing");
        findings.push(Finding::warning(message).mend(for_good(namespace, daemon, set)));
    }
    if let Some(nodes) = &flags.nodes {
        let message = format!("the {daemon} is for nodes like {:?} alone (--nodes)", nodes.glob().glob());
        findings.push(Finding::note(message));
    }
    findings
}

/// What takes --dry-run away, wherever it was said.
fn for_good(namespace: &str, daemon: &str, set: &StatefulSet) -> String {
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let container = containers.iter().position(|container| container.name == daemon);
    let argument = container.and_then(|container| {
        let argument = containers[container].args.iter().flatten().position(|arg| arg == "--dry-run")?;
        Some((container, argument))
    });
    match argument {
        Some((container, argument)) => {
            let path = format!("/spec/template/spec/containers/{container}/args/{argument}");
            let patch = format!(
                r#"[{{"op":"test","path":"{path}","value":"--dry-run"}},{{"op":"remove","path":"{path}"}}]"#
            );
            format!(
                "kubectl patch statefulset {daemon} --namespace {namespace} --type json --patch '{patch}'"
            )
        }
        None => {
            format!("kubectl set env statefulset {daemon} --namespace {namespace} LABEL_STORAGE_DRY_RUN-")
        }
    }
}

/// Whether both are of the same version, and by the same rules, and whether this is.
fn compare(look: &Look, sets: &Sets, findings: &mut Vec<Finding>) {
    const OWN: &str = env!("CARGO_PKG_VERSION");
    let (Some(storer), Some(restorer)) = (&sets.storer, &sets.restorer) else { return };
    let install = look.install(sets);
    let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "no version".to_owned());
    if storer.version != restorer.version {
        let message = format!(
            "the storer is of {} and the restorer of {}",
            shown(&storer.version),
            shown(&restorer.version)
        );
        findings.push(Finding::warning(message).mend(install.clone()));
    } else if storer.version.as_deref() != Some(OWN) {
        let message = format!(
            "the daemons are of {}, and this is of {OWN}: it may see things otherwise",
            shown(&storer.version)
        );
        findings.push(Finding::warning(message).mend("cargo install --path crates/kubectl-plugin"));
    }
    if storer.image != restorer.image {
        let message = format!(
            "the storer's image is {}, and the restorer's is {}",
            shown(&storer.image),
            shown(&restorer.image)
        );
        findings.push(Finding::warning(message).mend(install));
    }
    if let (Some(storer), Some(restorer)) = (&storer.flags, &restorer.flags)
        && storer.config != restorer.config
    {
        let message =
            "the storer and the restorer read different rules files (--config): they need the same rules";
        let show =
            format!("kubectl get statefulsets storer restorer --namespace {} --output yaml", look.namespace);
        findings.push(Finding::error(message).mend(show));
    }
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
        let read = flags::<storer::Args>("storer", &container(env.clone(), json!(["--events=false"])));
        let read = read.expect("good flags");
        assert_eq!((read.concurrency.get(), read.dry_run, read.events), (3, true, false));
        let read = flags::<storer::Args>("storer", &container(env, json!(["--concurrency", "5"])));
        assert_eq!(read.expect("good flags").concurrency.get(), 5, "the flag wins");
        let refused = flags::<restorer::Args>("restorer", &container(json!([]), json!(["--retention=7d"])));
        assert!(refused.expect_err("no such flag").contains("--retention"));
    }
}
