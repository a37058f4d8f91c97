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
use label_storage_runtime::preflight::{
    EVENTS_ABOUT_MANY, EVENTS_ABOUT_NODES, LEASES, READS, Right, WATCHES,
};

use super::{Checked, Finding, Look, sets, why};

/// How many questions are asked at the same time.
const AT_ONCE: usize = 8;

/// Where Events about what is in no namespace are.
const DEFAULT: &str = "default";

/// What commands of this plugin need, beside reading.
struct Need {
    commands: &'static str,
    rights: &'static [Right],
}

/// What every command reads.
const READING: Need = Need { commands: "no command", rights: &READS };
/// What tells who works on which shard.
const SHARDS: Need = Need { commands: "neither status nor explain", rights: &[Right::new("list", "leases")] };

/// What each command writes. Writing a record takes two rights: RBAC's on ConfigMaps, and one that an admission policy asks for.
const WRITING: [Need; 5] = [
    Need { commands: "restore", rights: &[Right::new("patch", "nodes")] },
    Need {
        commands: "set and rollback",
        rights: &[Right::new("update", "configmaps"), Right::new("update", "records")],
    },
    Need {
        commands: "forget",
        rights: &[Right::new("delete", "configmaps"), Right::new("delete", "records")],
    },
    Need {
        commands: "rename",
        rights: &[
            Right::new("create", "configmaps"),
            Right::new("create", "records"),
            Right::new("delete", "configmaps"),
            Right::new("delete", "records"),
        ],
    },
    Need {
        commands: "import",
        rights: &[
            Right::new("create", "configmaps"),
            Right::new("create", "records"),
            Right::new("update", "configmaps"),
            Right::new("update", "records"),
        ],
    },
];

/// A right in a namespace, in words.
fn named(right: Right, namespace: &str) -> String {
    let Right { verb, resource } = right;
    match right.is_namespaced() {
        true => format!("{verb} {resource} in namespace {namespace}"),
        false => format!("{verb} {resource}"),
    }
}

/// Of these rights, those that somebody lacks.
async fn missing(
    rights: &[(Right, &str)],
    is_allowed: impl AsyncFn(Right, &str) -> kube::Result<bool>,
) -> kube::Result<Vec<String>> {
    let answers = stream::iter(rights.iter().copied())
        .map(|(right, namespace)| {
            let asked = is_allowed(right, namespace);
            async move { asked.await.map(|allowed| (!allowed).then(|| named(right, namespace))) }
        })
        .buffered(AT_ONCE);
    let answers: Vec<_> = answers.collect().await;
    answers.into_iter().filter_map(Result::transpose).collect()
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
            resource_attributes: Some(right.attributes(namespace)),
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
            let message = format!("the {daemon}'s account {account} may not {}", missing.join(", "));
            findings.push(Finding::error(message).mend(look.install(sets)));
        }
    }
    if flags.is_none_or(|flags| flags.events) {
        let about_nodes = EVENTS_ABOUT_NODES.iter().map(|right| (*right, DEFAULT));
        let events: Vec<_> = about_nodes.chain(EVENTS_ABOUT_MANY.iter().map(here)).collect();
        // The same question was answered a moment ago.
        let missing = missing(&events, &is_allowed).await.unwrap_or_default();
        if !missing.is_empty() {
            let message = format!(
                "the {daemon}'s account {account} may not {}: kubectl describe node does not show all that it does",
                missing.join(", ")
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
            resource_attributes: Some(right.attributes(namespace)),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(is_granted(answer.status))
    };
    let counts = |right: &&Right| right.resource != "records" || has_policy != Some(false);
    let user = user(look).await;
    let mut findings = Vec::new();
    for (need, writes) in
        [(&READING, false), (&SHARDS, false)].into_iter().chain(WRITING.iter().map(|need| (need, true)))
    {
        let rights: Vec<_> = need.rights.iter().filter(counts).map(|right| (*right, namespace)).collect();
        let missing = match missing(&rights, &is_allowed).await {
            Ok(missing) if missing.is_empty() => continue,
            Ok(missing) => missing,
            Err(error) => {
                findings.push(Finding::unknown("what you may do", why(&error)));
                break;
            }
        };
        let (commands, lacks) = (need.commands, missing.join(", "));
        let finding = match writes {
            // It says nothing about the installation.
            true => Finding::note(format!("you can't use {commands}: you may not {lacks}")),
            false => Finding::warning(format!("{commands} can tell you all: you may not {lacks}")),
        };
        let is_about_nodes = rights.iter().any(|(right, _)| !right.is_namespaced());
        findings.push(finding.mend(grant(look, &user, is_about_nodes, writes)));
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

/// How somebody else gives them that right.
fn grant(look: &Look, user: &str, is_about_nodes: bool, writes: bool) -> String {
    let Look { namespace, name, .. } = look;
    let reader = format!("{name}-reader");
    let read = format!(
        "kubectl create role {reader} --namespace {namespace} --verb=get,list,watch --resource=configmaps,leases,statefulsets && \
         kubectl create rolebinding {reader} --namespace {namespace} --role={reader} --user={user}"
    );
    match (is_about_nodes, writes) {
        (true, true) => format!(
            "kubectl create clusterrole {name}-by-hand --verb=get,list,patch --resource=nodes && \
             kubectl create clusterrolebinding {name}-by-hand --clusterrole={name}-by-hand --user={user}"
        ),
        (true, false) => format!(
            "kubectl create clusterrole {reader} --verb=get,list,watch --resource=nodes && \
             kubectl create clusterrolebinding {reader} --clusterrole={reader} --user={user} && {read}"
        ),
        (false, true) => format!(
            "kubectl create rolebinding mend-records --namespace {namespace} --clusterrole={name}-records-editor --user={user}"
        ),
        (false, false) => read,
    }
}

fn is_granted(status: Option<SubjectAccessReviewStatus>) -> bool {
    status.is_some_and(|status| status.allowed)
}
