//! The accounts of the daemons have exactly the permissions that the daemons use.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use http::Request;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use label_storage::name::record_name;
use serde_json::{Value, json};

use super::manifests::{self, NAMESPACE, apply, client_as, of_kind};
use crate::command_line::token;
use crate::daemon::Daemon;
use crate::scenario::{Labels, Scenario, labels};

const DAEMONS: [&str; 2] = ["storer", "restorer"];

/// One thing that an account may do, or has done. Where a role names no object, neither does this.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    account: String,
    verb: String,
    group: String,
    resource: String,
    /// `None`: in all namespaces, or of what is in none.
    namespace: Option<String>,
    name: Option<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// All that the roles grant to the daemons' accounts, one by one.
pub fn granted(documents: &[Value]) -> Result<BTreeSet<Permission>> {
    let mut granted = BTreeSet::new();
    let bindings = of_kind(documents, "RoleBinding").chain(of_kind(documents, "ClusterRoleBinding"));
    for binding in bindings {
        let (role, namespace) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
        let rules = documents
            .iter()
            .find(|document| {
                document["kind"] == role["kind"]
                    && document["metadata"]["name"] == role["name"]
                    && (role["kind"] == "ClusterRole" || document["metadata"]["namespace"] == *namespace)
            })
            .with_context(|| format!("no {role}"))?;
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            for rule in rules["rules"].as_array().into_iter().flatten() {
                let names = texts(&rule["resourceNames"]).into_iter().map(Some);
                let names = if names.len() == 0 { vec![None] } else { names.collect::<Vec<_>>() };
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            for name in &names {
                                granted.insert(Permission {
                                    account: text(&subject["name"]),
                                    verb: verb.clone(),
                                    group: group.clone(),
                                    resource: resource.clone(),
                                    namespace: namespace.as_str().map(str::to_owned),
                                    name: name.clone(),
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    ensure!(granted.len() > 20, "few permissions: {granted:#?}");
    Ok(granted)
}

/// The audit log of the daemons' accounts.
pub struct Audit {
    /// Each as it would have to be granted with the object's name, and without.
    used: BTreeSet<Permission>,
    /// The requests that RBAC or a policy refused.
    pub forbidden: Vec<Value>,
}

impl Audit {
    pub fn read(log: &Path, namespace: &str) -> Result<Self> {
        let (mut used, mut forbidden) = (BTreeSet::new(), Vec::new());
        // The last line may be half written.
        let log = std::fs::read_to_string(log)?;
        let lines = log.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
        for event in lines {
            let prefix = format!("system:serviceaccount:{namespace}:");
            let user = text(&event["user"]["username"]);
            let Some(account) = user.strip_prefix(&prefix) else { continue };
            if event["responseStatus"]["code"] == 403 {
                forbidden.push(event);
                continue;
            }
            let object = &event["objectRef"];
            let permission = Permission {
                account: account.to_owned(),
                verb: text(&event["verb"]),
                group: text(&object["apiGroup"]),
                resource: text(&object["resource"]),
                namespace: object["namespace"].as_str().map(str::to_owned),
                name: object["name"].as_str().map(str::to_owned),
            };
            used.insert(Permission { name: None, ..permission.clone() });
            used.insert(permission);
        }
        Ok(Self { used, forbidden })
    }

    /// The writes of the accounts, also those that failed. A review of one's own permissions is not a write.
    pub fn writes(&self) -> Vec<&Permission> {
        let is_write = |it: &&Permission| {
            !["get", "list", "watch"].contains(&it.verb.as_str()) && it.resource != "selfsubjectaccessreviews"
        };
        self.used.iter().filter(is_write).collect()
    }
}

/// Runs a replica as its pod would: with the arguments and the environment of the manifest, and its own account's token.
/// Only the port differs, since all replicas share this machine, the nodes, since other tests have some too, and where the rules are.
pub async fn replica(s: &Scenario, set: &Value, index: u32, more: &[&str]) -> Result<Daemon> {
    let [name, namespace] = ["name", "namespace"].map(|key| text(&set["metadata"][key]));
    let spec = &set["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let kind = text(&container["name"]);
    let mut args = texts(&container["args"]);
    let rules = args.iter_mut().find(|arg| *arg == "--config=/etc/label-storage/rules.yaml");
    *rules.context("no rules")? = format!("--config={}", s.file("rules.yaml").display());
    ensure!(args.iter().any(|arg| arg == "--admin-address=[::]:8080"), "{args:?}");
    args.extend(["--admin-address=127.0.0.1:0", "--probe-address=127.0.0.1:0"].map(str::to_owned));
    args.push(format!("--nodes={}.*", s.namespace));
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    let token = token(s, &namespace, &text(&spec["serviceAccountName"])).await?;
    let kubeconfig = s.sandbox.kubeconfig_with_token(&token, Some(&namespace))?;
    let pod = format!("{name}-{index}");
    let environment = [("POD_NAME", pod.as_str()), ("LABEL_STORAGE_NAMESPACE", &namespace)];
    let names: BTreeSet<_> =
        container["env"].as_array().into_iter().flatten().map(|variable| text(&variable["name"])).collect();
    ensure!(names == environment.map(|(name, _)| name.to_owned()).into(), "the pods have others: {names:?}");
    s.run_with_env(&kind, &args, Some(kubeconfig), &environment)
}

/// The authorizer learns of new roles by watching.
pub async fn await_rights(s: &Scenario, namespace: &str, granted: &BTreeSet<Permission>) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(s.client.clone());
    for permission in granted {
        let review = json!({"spec": {
            "user": format!("system:serviceaccount:{namespace}:{}", permission.account),
            "resourceAttributes": {
                "verb": permission.verb,
                "group": permission.group,
                "resource": permission.resource,
                "namespace": permission.namespace,
                "name": permission.name,
            },
        }});
        let review: SubjectAccessReview = serde_json::from_value(review)?;
        s.eventually(&format!("{permission:?}"), true, async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        })
        .await?;
    }
    Ok(())
}

pub async fn every_permission_is_used_and_none_is_missing(s: &Scenario) -> Result<()> {
    let documents = manifests::committed()?;
    apply(&s.client, &documents).await?;
    let granted = granted(&documents)?;
    await_rights(s, NAMESPACE, &granted).await?;

    let (storer, restorer) = (manifests::set(&documents, "storer")?, manifests::set(&documents, "restorer")?);
    std::fs::write(s.file("rules.yaml"), manifests::rules(&documents)?)?;
    let records: Api<ConfigMap> = Api::namespaced(s.client.clone(), NAMESPACE);
    let events: Api<Event> = Api::namespaced(s.client.clone(), "default");
    let stored = async |node: &str, expected: Option<Labels>| {
        let name = record_name(node);
        s.eventually_after(&format!("record of {node}"), expected.clone(), async || {
            let mut data = records.get_opt(&name).await?.map(|record| record.data.unwrap_or_default());
            data.iter_mut().for_each(|data| data.retain(|key, _| !key.starts_with("history-")));
            Ok(data)
        })
        .await
    };

    // Records that can't be read, and more of them than a burst of Events.
    let spoilt: Vec<_> = (0..120).map(|number| s.node(&format!("spoilt-{number}"))).collect();
    for node in &spoilt {
        s.create(node, labels([("pool", "silver")])).await?;
        let record = json!({"metadata": {
            "name": record_name(node),
            "labels": {"app.kubernetes.io/managed-by": "label-storage"},
            "annotations": {"label-storage/node": "somebody"},
        }});
        records.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    }

    // One replica of each at first, whose leases are of no use to the two that follow.
    let alone = ["--replicas=1"];
    let first = [replica(s, storer, 0, &alone).await?, replica(s, restorer, 0, &alone).await?];
    for daemon in &first {
        let is_up = async || Ok(daemon.has_logged(&["listed all nodes and records"]));
        s.eventually("it has listed all", true, is_up).await?;
    }
    let [moving, emptied] = ["moving", "emptied"].map(|name| s.node(name));
    s.create(&moving, labels([("pool", "silver")])).await?;
    s.create(&emptied, labels([("pool", "silver")])).await?;
    stored(&moving, Some(labels([("pool", "silver")]))).await?;
    stored(&emptied, Some(labels([("pool", "silver")]))).await?;
    s.delete(&moving).await?;
    s.create(&moving, Labels::new()).await?;
    s.eventually_labelled(&moving, labels([("pool", "silver")])).await?;
    for kind in DAEMONS {
        let teller = format!("label-storage/{kind}");
        s.eventually(&format!("the {kind} tells of spoilt records"), true, async || {
            let events = events.list(&ListParams::default()).await?.items;
            let is_ours = |event: &&Event| event.reporting_controller.as_ref() == Some(&teller);
            Ok(events.iter().filter(is_ours).count() >= 50)
        })
        .await?;
    }
    for daemon in &first {
        daemon.process.stop();
    }
    let [spoilt, others @ ..] = &spoilt[..] else { unreachable!() };
    for node in others {
        s.delete(node).await?;
    }

    let mut daemons = Vec::new();
    for set in [storer, restorer] {
        for index in 0..2 {
            daemons.push(replica(s, set, index, &["--lease-retirement=1s"]).await?);
        }
    }
    // A record that comes after its node, such as from a backup: the restorer asks how the node looks by now.
    let late = s.node("late");
    s.create(&late, Labels::new()).await?;
    let restorers: Vec<_> = daemons.iter().filter(|daemon| daemon.process.name() == "restorer").collect();
    for restorer in restorers {
        let is_up = async || Ok(restorer.has_logged(&["listed all nodes and records"]));
        s.eventually("it has listed all", true, is_up).await?;
    }
    let record = json!({
        "metadata": {
            "name": record_name(&late),
            "labels": {"app.kubernetes.io/managed-by": "label-storage"},
            "annotations": {"label-storage/node": late, "label-storage/node-uid": "of-another-cluster"},
        },
        "data": {"pool": "late"},
    });
    records.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    s.eventually_labelled(&late, labels([("pool", "late")])).await?;

    s.label(&moving, [("pool", Some("gold"))]).await?;
    stored(&moving, Some(labels([("pool", "gold")]))).await?;
    s.label(&emptied, [("pool", None)]).await?;
    stored(&emptied, None).await?;

    let log = s.sandbox.audit_log();
    let (spoilt, mut changes) = (record_name(spoilt), 0);
    s.eventually("all that is granted is used", BTreeSet::new(), async || {
        // It changes, and still can't be read: one Event with a count of two.
        changes += 1;
        let change = json!({"data": {"pool": changes.to_string()}});
        records.patch(&spoilt, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(granted.difference(&Audit::read(&log, NAMESPACE)?.used).cloned().collect())
    })
    .await?;
    // A line that is still being written is no JSON yet.
    for daemon in &daemons {
        daemon.process.stop();
    }
    assert_eq!(Audit::read(&log, NAMESPACE)?.forbidden, Vec::<Value>::new());
    for line in daemons.iter().flat_map(|daemon| daemon.log().lines().map(str::to_owned).collect::<Vec<_>>())
    {
        serde_json::from_str::<Value>(&line).with_context(|| format!("not JSON: {line}"))?;
    }
    Ok(())
}

pub async fn the_daemons_have_a_priority_level_of_their_own(s: &Scenario) -> Result<()> {
    apply(&s.client, &manifests::rendered(s, &["--set=flowControl.enabled=true"])?).await?;
    let schemas: Api<FlowSchema> = Api::all(s.client.clone());
    let name = format!("label-storage-{}", s.namespace);
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", s.namespace);
    for account in DAEMONS {
        let client = client_as(s, &s.namespace, &format!("label-storage-{account}")).await?;
        for (path, schema) in [("/api/v1/nodes", name.clone()), (leases.as_str(), format!("{name}-leases"))] {
            let expected = schemas.get(&schema).await?.uid();
            s.eventually(&format!("{account}: {path} is {schema}"), expected, async || {
                let request = Request::get(format!("{path}?limit=1")).body(kube::client::Body::empty())?;
                let answer = client.send(request).await?;
                let uid = answer.headers().get("x-kubernetes-pf-flowschema-uid").context("no header")?;
                Ok(Some(uid.to_str()?.to_owned()))
            })
            .await?;
        }
    }
    Ok(())
}
