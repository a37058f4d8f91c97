//! The permissions of the daemons' accounts, and of the user.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use label_storage_runtime::Daemon;
use label_storage_runtime::call::in_one_line;
use label_storage_runtime::preflight::{LEASES, READS, Right, WATCHES, attributes, in_words};

use super::Finding;
use super::installation::{DAEMONS, Installation};
use super::policies::prefix;
use crate::cluster::Cluster;

/// Daemons can do without these, which are for Events about Nodes.
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

/// The permissions among these that are missing, in words.
async fn missing(
    rights: &[Right],
    namespace: &str,
    is_allowed: impl AsyncFn(Right) -> kube::Result<bool>,
) -> kube::Result<Vec<String>> {
    let answers = stream::iter(rights.iter().copied()).map(|right| {
        let asked = is_allowed(right);
        async move { asked.await.map(|allowed| (!allowed).then(|| in_words(right, namespace))) }
    });
    let answers: Vec<_> = answers.buffered(8).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
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
    let namespace = cluster.namespace.as_str();
    let set = installation.set(daemon);
    let account = set.map_or(daemon, |set| &set.account);
    let flags = set.and_then(|set| set.flags());
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let groups =
        ["serviceaccounts".to_owned(), format!("serviceaccounts:{namespace}"), "authenticated".to_owned()];
    let groups: Vec<String> = groups.iter().map(|group| format!("system:{group}")).collect();
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let is_allowed = async |right: Right, namespace: &str| {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups.clone()),
            resource_attributes: Some(attributes(right, namespace)),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    let writes = if flags.is_some_and(|flags| flags.dry_run) { &[] } else { writes };
    let watches = if flags.is_some_and(|flags| !flags.watch) { &[][..] } else { &WATCHES };
    let needs = [&READS[..], watches, writes, &LEASES].concat();
    let fix = installation.upgrade(&cluster.hints, namespace);
    let mut findings = Vec::new();
    let lacks = missing(&needs, namespace, async |right| is_allowed(right, namespace).await).await?;
    if !lacks.is_empty() {
        let message = format!("the account {account} of the {daemon} may not {}", lacks.join(", "));
        findings.push(Finding::error("permission-missing", message).fix(fix.clone()));
    }
    let events = if flags.is_none_or(|flags| flags.events) { &EVENTS[..] } else { &[] };
    let lacks =
        missing(events, EVENT_NAMESPACE, async |right| is_allowed(right, EVENT_NAMESPACE).await).await?;
    if !lacks.is_empty() {
        let message = format!(
            "the account {account} of the {daemon} may not {}, so `kubectl describe node` lacks its Events",
            lacks.join(", ")
        );
        findings.push(Finding::warning("permission-missing", message).fix(fix));
    }
    Ok(findings)
}

/// The permissions of the user, with the commands that do not work without them.
pub(crate) async fn of_user(cluster: &Cluster) -> Vec<Finding> {
    let namespace = cluster.namespace.as_str();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let is_allowed = async |right: Right| {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes(right, namespace)),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    let reads = [&READS[..], &[("list", "leases")]].concat();
    let asked =
        tokio::try_join!(missing(&reads, namespace, &is_allowed), missing(&WRITES, namespace, &is_allowed));
    let (reads, writes) = match asked {
        Ok(missing) => missing,
        Err(error) => {
            return vec![Finding::unknown("permissions-unknown", format!("yours: {}", in_one_line(&error)))];
        }
    };
    let mut findings = Vec::new();
    if !reads.is_empty() {
        let message = format!("you may not {}, so commands can't show everything", reads.join(", "));
        let show = cluster.hints.in_namespace("auth can-i --list");
        findings.push(Finding::warning("your-permissions", message).fix(show));
    }
    if !writes.is_empty() {
        let message = format!(
            "you may not {}, so some of restore, forget, set, rename, rollback and import do not work for you",
            writes.join(", ")
        );
        let role = format!("{}-records-editor", prefix(namespace));
        let bind = format!("create rolebinding records-editor --clusterrole={role} --user=USER");
        findings.push(Finding::note("your-permissions", message).fix(cluster.hints.in_namespace(&bind)));
    }
    findings
}
