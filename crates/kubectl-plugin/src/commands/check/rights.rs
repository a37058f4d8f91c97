//! Rights: of the daemons' accounts, and of whoever asks.

use futures::{StreamExt, stream};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use kube::Api;
use kube::api::PostParams;
use label_storage_runtime::Daemon;
use label_storage_runtime::preflight::{LEASES, READS, Right, WATCHES, attributes, in_words};

use super::{Checked, Finding, Look, sets, why};

/// How many questions are asked at the same time.
const AT_ONCE: usize = 8;

/// Where Events about what is in no namespace are.
const DEFAULT: &str = "default";

/// The permissions that daemons can do without: Events about Nodes, in the namespace `default`.
const EVENTS: [Right; 2] = [("create", "events"), ("patch", "events")];

/// What tells who works on which shard.
const SHARDS: [Right; 1] = [("list", "leases")];

/// What changes Nodes.
const NODES: [Right; 1] = [("patch", "nodes")];

/// What changes records: RBAC's rights on ConfigMaps, and those that an admission policy asks for.
const RECORDS: [Right; 6] = [
    ("create", "configmaps"),
    ("update", "configmaps"),
    ("delete", "configmaps"),
    ("create", "records"),
    ("update", "records"),
    ("delete", "records"),
];

/// Which commands do what to records.
const WRITERS: [(&str, &[&str]); 5] = [
    ("set", &["create", "update"]),
    ("rollback", &["update"]),
    ("forget", &["delete"]),
    ("rename", &["create", "update", "delete"]),
    ("import", &["create", "update"]),
];

/// Of these rights, those that somebody lacks.
async fn missing(
    rights: &[(Right, &str)],
    is_allowed: impl AsyncFn(Right, &str) -> kube::Result<bool>,
) -> kube::Result<Vec<(Right, String)>> {
    let answers = stream::iter(rights.iter().copied())
        .map(|(right, namespace)| {
            let asked = is_allowed(right, namespace);
            async move { asked.await.map(|allowed| (!allowed).then(|| (right, in_words(right, namespace)))) }
        })
        .buffered(AT_ONCE);
    let answers: Vec<_> = answers.collect().await;
    answers.into_iter().filter_map(Result::transpose).collect()
}

/// Rights in words, one after the other.
fn listed(missing: &[(Right, String)]) -> String {
    missing.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// What the daemons' accounts may do.
pub(super) async fn of_daemons(look: &Look, sets: &sets::Sets) -> Checked {
    let mut findings = Vec::new();
    for (daemon, writes) in
        [("storer", <storer::Args as Daemon>::WRITES), ("restorer", <restorer::Args as Daemon>::WRITES)]
    {
        findings.extend(of_daemon(look, sets, daemon, writes).await);
    }
    Checked::new("daemons' rights", "both accounts may do all that they have to", findings)
}

async fn of_daemon(look: &Look, sets: &sets::Sets, daemon: &str, writes: &[Right]) -> Vec<Finding> {
    let account = sets.of(daemon).map_or(daemon, |set| &set.account);
    let flags = sets.of(daemon).and_then(|set| set.flags.as_ref());
    let user = format!("system:serviceaccount:{}:{account}", look.namespace);
    let groups = [
        "serviceaccounts".to_owned(),
        format!("serviceaccounts:{}", look.namespace),
        "authenticated".to_owned(),
    ];
    let groups: Vec<String> = groups.iter().map(|group| format!("system:{group}")).collect();
    let reviews: Api<SubjectAccessReview> = Api::all(look.client.clone());
    let is_allowed = async |right: Right, namespace: &str| {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups.clone()),
            resource_attributes: Some(attributes(right, namespace)),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(is_granted(answer.status))
    };
    let namespace = look.namespace.as_str();
    let here = |right: &Right| (*right, namespace);
    let writes = if flags.is_some_and(|flags| flags.dry_run) { &[] } else { writes };
    let watches = if flags.is_some_and(|flags| !flags.watch) { &[][..] } else { &WATCHES };
    let needs: Vec<_> = [&READS[..], watches, writes, &LEASES].concat().iter().map(here).collect();
    let mut findings = Vec::new();
    match missing(&needs, &is_allowed).await {
        Err(error) => {
            findings.push(Finding::unknown(&format!("what the {daemon}'s account may do"), why(&error)));
            return findings;
        }
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => {
            let message = format!("the {daemon}'s account {account} may not {}", listed(&missing));
            findings.push(Finding::error(message).mend(look.install(sets)));
        }
    }
    if flags.is_none_or(|flags| flags.events) {
        let events = EVENTS.map(|right| (right, DEFAULT));
        // The same question was answered a moment ago.
        let missing = missing(&events, &is_allowed).await.unwrap_or_default();
        if !missing.is_empty() {
            let message = format!(
                "the {daemon}'s account {account} may not {}: kubectl describe node does not show all that it does",
                listed(&missing)
            );
            findings.push(Finding::warning(message).mend(look.install(sets)));
        }
    }
    findings
}

/// What the person who asks may do: which commands will not work. Writing records takes a right of its own where a policy says so, or
/// may say so.
pub(super) async fn of_person(look: &Look, has_policy: Option<bool>) -> Checked {
    let namespace = look.namespace.as_str();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(look.client.clone());
    let is_allowed = async |right: Right, namespace: &str| {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes(right, namespace)),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(is_granted(answer.status))
    };
    let counts = |(_, resource): &&Right| *resource != "records" || has_policy != Some(false);
    let asked = async |rights: &[Right]| {
        let rights: Vec<_> = rights.iter().filter(counts).map(|right| (*right, namespace)).collect();
        missing(&rights, &is_allowed).await
    };
    let answers = tokio::try_join!(asked(&READS), asked(&SHARDS), asked(&NODES), asked(&RECORDS));
    let (reading, shards, nodes, records) = match answers {
        Ok(answers) => answers,
        Err(error) => {
            let findings = vec![Finding::unknown("what you may do", why(&error))];
            return Checked::new("your rights", "", findings);
        }
    };
    let user = user(look).await;
    let mut findings = Vec::new();
    if !reading.is_empty() {
        let message = format!("no command can tell you all: you may not {}", listed(&reading));
        findings.push(Finding::warning(message).mend(grant_reading(look, &user)));
    }
    if !shards.is_empty() {
        let message = format!(
            "neither status nor explain can tell who works on which shard: you may not {}",
            listed(&shards)
        );
        let finding = Finding::warning(message);
        // The same command is there already.
        findings.push(if reading.is_empty() { finding.mend(grant_reading(look, &user)) } else { finding });
    }
    // What follows says nothing about the installation.
    if !nodes.is_empty() {
        let message = format!(
            "you can't use restore, nor rollback for nodes that are there: you may not {}",
            listed(&nodes)
        );
        findings.push(Finding::note(message).mend(grant_nodes(look, &user)));
    }
    if !records.is_empty() {
        let lacks = |verb: &&str| records.iter().any(|((lacked, _), _)| lacked == verb);
        let commands = WRITERS.iter().filter(|(_, verbs)| verbs.iter().any(lacks));
        let commands: Vec<_> = commands.map(|(command, _)| *command).collect();
        let message = format!("you can't use {}: you may not {}", commands.join(", "), listed(&records));
        let editor = format!(
            "kubectl create rolebinding mend-records --namespace {namespace} --clusterrole={}-records-editor --user={user}",
            look.name
        );
        findings.push(Finding::note(message).mend(editor));
    }
    Checked::new("your rights", "you may use every command", findings)
}

/// Who asks, as the API server knows them.
async fn user(look: &Look) -> String {
    let reviews: Api<SelfSubjectReview> = Api::all(look.client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = answer.ok().and_then(|review| review.status?.user_info?.username);
    user.unwrap_or_else(|| "USER".to_owned())
}

/// How somebody else lets them look.
fn grant_reading(look: &Look, user: &str) -> String {
    let Look { namespace, name, .. } = look;
    let reader = format!("{name}-reader");
    format!(
        "kubectl create clusterrole {reader} --verb=get,list,watch --resource=nodes && \
         kubectl create clusterrolebinding {reader} --clusterrole={reader} --user={user} && \
         kubectl create role {reader} --namespace {namespace} --verb=get,list,watch --resource=configmaps,leases,statefulsets && \
         kubectl create rolebinding {reader} --namespace {namespace} --role={reader} --user={user}"
    )
}

/// How somebody else lets them change Nodes.
fn grant_nodes(look: &Look, user: &str) -> String {
    let by_hand = format!("{}-by-hand", look.name);
    format!(
        "kubectl create clusterrole {by_hand} --verb=get,list,patch --resource=nodes && \
         kubectl create clusterrolebinding {by_hand} --clusterrole={by_hand} --user={user}"
    )
}

fn is_granted(status: Option<SubjectAccessReviewStatus>) -> bool {
    status.is_some_and(|status| status.allowed)
}
