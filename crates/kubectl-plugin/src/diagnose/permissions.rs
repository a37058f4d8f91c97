//! The permissions of the daemons' accounts, and of the user.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use label_storage_runtime::Daemon;
use label_storage_runtime::call::in_one_line;
use label_storage_runtime::preflight::{LEASES, READS, Right, WATCHES, attributes, in_words};

use super::installation::{DAEMONS, Installation};
use super::{Finding, Severity};
use crate::cluster::Cluster;
use crate::hints::NAMESPACE;

/// For Events about Nodes. Daemons work without these permissions.
const EVENTS: [Right; 2] = [("create", "events"), ("patch", "events")];
const EVENT_NAMESPACE: &str = "default";

/// The permissions on records are those on ConfigMaps, and those that the admission policy asks for.
const WRITES: [Right; 7] = [
    ("patch", "nodes"),
    ("create", "configmaps"),
    ("update", "configmaps"),
    ("delete", "configmaps"),
    ("create", "records"),
    ("update", "records"),
    ("delete", "records"),
];

/// The permissions among these that an account or the user lacks, as text.
async fn missing(
    cluster: &Cluster,
    account: Option<&str>,
    rights: &[Right],
    namespace: &str,
) -> kube::Result<String> {
    let is_allowed = async |right| -> kube::Result<bool> {
        let (client, resource_attributes) = (cluster.client.clone(), Some(attributes(right, namespace)));
        let Some(account) = account else {
            let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            let answer = Api::all(client).create(&Default::default(), &review).await?;
            return Ok(answer.status.is_some_and(|status| status.allowed));
        };
        let home = &cluster.namespace;
        let groups = ["serviceaccounts", &format!("serviceaccounts:{home}"), "authenticated"];
        let groups = Some(groups.map(|group| format!("system:{group}")).into());
        let user = Some(format!("system:serviceaccount:{home}:{account}"));
        let spec = SubjectAccessReviewSpec { user, groups, resource_attributes, ..Default::default() };
        let review = SubjectAccessReview { spec, ..Default::default() };
        let answer = Api::all(client).create(&Default::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    let asked = stream::iter(rights.iter().copied()).map(async |right| -> kube::Result<_> {
        Ok((!is_allowed(right).await?).then(|| in_words(right, namespace)))
    });
    let answers: Vec<_> = asked.buffered(8).try_collect().await?;
    Ok(answers.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

pub(crate) async fn of_daemons(cluster: &Cluster, installation: &Installation) -> Vec<Finding> {
    let writes = [<storer::Args as Daemon>::WRITES, <restorer::Args as Daemon>::WRITES];
    let mut findings = Vec::new();
    for (daemon, writes) in DAEMONS.into_iter().zip(writes) {
        findings.extend(of_daemon(cluster, installation, daemon, writes).await.unwrap_or_else(|error| {
            vec![Finding::unknown("permissions-unknown", format!("{daemon}: {}", in_one_line(&error)))]
        }));
    }
    findings
}

async fn of_daemon(
    cluster: &Cluster,
    installation: &Installation,
    daemon: &str,
    writes: &[Right],
) -> kube::Result<Vec<Finding>> {
    let set = installation.set(daemon);
    let account = set.map_or_else(|| format!("{NAMESPACE}-{daemon}"), |set| set.account.clone());
    let flags = set.and_then(|set| set.flags.as_ref().ok());
    let writes = if flags.is_some_and(|flags| flags.dry_run) { &[] } else { writes };
    let watches = if flags.is_some_and(|flags| !flags.watch) { &[][..] } else { &WATCHES };
    let events = if flags.is_none_or(|flags| flags.events) { &EVENTS[..] } else { &[] };
    let needs = [&READS[..], watches, writes, &LEASES].concat();
    let mut findings = Vec::new();
    for (severity, rights, namespace, harm) in [
        (Severity::Error, &needs[..], cluster.namespace.as_str(), ""),
        (
            Severity::Warning,
            events,
            EVENT_NAMESPACE,
            ", so its Events are missing in `kubectl describe node`",
        ),
    ] {
        let missing = missing(cluster, Some(&account), rights, namespace).await?;
        if !missing.is_empty() {
            let message = format!("the account {account} of the {daemon} may not {missing}{harm}");
            let finding = Finding::new(severity, "permission-missing", message);
            findings.push(finding.fix(installation.upgrade(cluster)));
        }
    }
    Ok(findings)
}

/// The permissions of the user, with the commands that do not work without them.
pub(crate) async fn of_user(cluster: &Cluster, installation: &Installation) -> Vec<Finding> {
    let (namespace, reads) = (&cluster.namespace, [&READS[..], &[("list", "leases")]].concat());
    let missing = |rights| missing(cluster, None, rights, namespace);
    let (reads, writes) = match tokio::try_join!(missing(&reads), missing(&WRITES)) {
        Ok(missing) => missing,
        Err(error) => {
            return vec![Finding::unknown("permissions-unknown", format!("yours: {}", in_one_line(&error)))];
        }
    };
    let mut findings = Vec::new();
    if !reads.is_empty() {
        let message = format!("you may not {reads}, so commands can't show everything");
        let show = cluster.hints.in_namespace("auth can-i --list");
        findings.push(Finding::new(Severity::Warning, "your-permissions", message).fix(show));
    }
    if !writes.is_empty() {
        let commands = "restore, forget, set, rename, rollback and import";
        let message = format!("you may not {writes}, so some of {commands} do not work for you");
        let role = format!("{}-records-editor", installation.cluster_name(namespace));
        let bind = format!("create rolebinding records-editor --clusterrole={role} --user=USER");
        let bind = cluster.hints.in_namespace(&bind);
        findings.push(Finding::new(Severity::Note, "your-permissions", message).fix(bind));
    }
    findings
}
