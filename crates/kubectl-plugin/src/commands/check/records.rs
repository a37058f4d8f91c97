//! Records: what is in the way of one, and what can't be read.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use label_storage::name::{is_record_name, node_in_record_name, record_name};
use label_storage::record::{Decoded, MANAGED_BY, NODE, Unreadable};
use label_storage::rules::IdentityBy;
use label_storage_runtime::call;
use label_storage_runtime::records::Found;

use super::{Checked, Finding, Look, why};
use crate::cluster::Cluster;

/// How many of a kind are told one by one.
const ENOUGH: usize = 10;

/// What was found, of each kind the first few, and how many there are.
#[derive(Default)]
struct Few {
    first: Vec<Finding>,
    count: usize,
}

impl Few {
    fn add(&mut self, finding: impl FnOnce() -> Finding) {
        if self.count < ENOUGH {
            self.first.push(finding());
        }
        self.count += 1;
    }

    /// All of it, in not too many words.
    fn told(self, what: &str) -> Vec<Finding> {
        let mut findings = self.first;
        if let (Some(last), true) = (findings.last(), self.count > ENOUGH) {
            findings.push(Finding::new(last.severity, format!("and {} more {what}", self.count - ENOUGH)));
        }
        findings
    }
}

/// What was seen of all records.
#[derive(Default)]
struct Tally {
    unreadable: Few,
    damaged: Few,
    filed_otherwise: Vec<String>,
    filed_otherwise_count: usize,
}

pub(super) async fn check(look: &Look, cluster: &Cluster) -> Checked {
    let mut findings = foreign(look).await;
    let tally = Arc::new(Mutex::new(Tally::default()));
    let (seen, namespace) = (Arc::clone(&tally), look.namespace.clone());
    let identity = cluster.rules.identity.clone();
    let source = cluster.record_source();
    let listed = source.list(move |object| {
        let found = Found::from(object);
        seen.lock().unwrap_or_else(PoisonError::into_inner).see(&namespace, &identity, &found);
    });
    let listed = listed.await;
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    let summary = match listed {
        Ok(listed) => format!("{} records, all can be read", listed.items),
        Err(call::Error { message, .. }) => {
            findings.push(Finding::unknown("whether all records can be read", message));
            String::new()
        }
    };
    findings.extend(tally.unreadable.told("that can't be read"));
    findings.extend(tally.damaged.told("that are damaged"));
    if tally.filed_otherwise_count > 0 {
        let message = format!(
            "{} records are not filed by {}, as the rules say, such as {}: nobody looks at them, and they go after the retention",
            tally.filed_otherwise_count,
            cluster.rules.identity,
            tally.filed_otherwise.join(", ")
        );
        let export = format!("kubectl label-storage export --namespace {} > records.yaml", look.namespace);
        findings.push(Finding::warning(message).mend(export));
    }
    Checked::new("records", summary, findings)
}

impl Tally {
    fn see(&mut self, namespace: &str, identity: &IdentityBy, found: &Found) {
        let name = found.config_map.metadata.name.as_deref().unwrap_or_default();
        match &found.content {
            Err(error) => self.unreadable.add(|| unreadable(namespace, name, error)),
            Ok(Decoded { record, damage }) => {
                if !damage.is_empty() {
                    let what = found.complaint().unwrap_or_default();
                    self.damaged.add(|| {
                        Finding::warning(format!("configmap {name}: {what}"))
                            .mend(format!("kubectl edit configmap {name} --namespace {namespace}"))
                    });
                }
                let by = record.more.identity.as_deref().and_then(|identity| identity.split_once('='));
                let is_filed_so = match (identity, by) {
                    (IdentityBy::Name, by) => by.is_none(),
                    (identity, by) => by.is_some_and(|(kind, _)| kind == identity.to_string()),
                };
                if !is_filed_so {
                    self.filed_otherwise_count += 1;
                    if self.filed_otherwise.len() < 3 {
                        self.filed_otherwise.push(name.to_owned());
                    }
                }
            }
        }
    }
}

/// What mends a record that can't be read.
fn unreadable(namespace: &str, name: &str, error: &Unreadable) -> Finding {
    let annotate = |value: &str| {
        format!("kubectl annotate configmap {name} --namespace {namespace} --overwrite {NODE}{value}")
    };
    let mend = match (error, node_in_record_name(name)) {
        (Unreadable::AnotherNode { .. }, Some(node)) => annotate(&format!("={node}")),
        (Unreadable::NoNode(_), _) => annotate("=NODE"),
        _ => format!("kubectl edit configmap {name} --namespace {namespace}"),
    };
    Finding::error(error.to_string()).mend(mend)
}

/// ConfigMaps of somebody else under the name of a record. The server leaves out the records themselves.
async fn foreign(look: &Look) -> Vec<Finding> {
    let config_maps: Api<ConfigMap> = Api::namespaced(look.client.clone(), &look.namespace);
    let params = ListParams::default().labels(&format!("{}!={}", MANAGED_BY.0, MANAGED_BY.1));
    let others = match config_maps.list_metadata(&params).await {
        Ok(others) => others.items,
        Err(error) => return vec![Finding::unknown("whether other ConfigMaps are in the way", why(&error))],
    };
    let mut found = Few::default();
    for other in others.iter().filter(|other| is_record_name(&other.name_any())) {
        let is_wanted = found.count < ENOUGH && is_there(look, other).await;
        found.add(|| in_the_way(&look.namespace, other, is_wanted));
    }
    found.told("in the way of records")
}

/// Whether the Node is there whose record can't be.
async fn is_there(look: &Look, other: &PartialObjectMeta<ConfigMap>) -> bool {
    let nodes: Api<Node> = Api::all(look.client.clone());
    let name = other.name_any();
    let Some(node) = node_in_record_name(&name) else { return false };
    matches!(nodes.get_metadata_opt(node).await, Ok(Some(_)))
}

fn in_the_way(namespace: &str, other: &PartialObjectMeta<ConfigMap>, is_wanted: bool) -> Finding {
    let name = other.name_any();
    // One that says whose it is, and rightly, has lost its label and nothing else.
    let is_record = other.annotations().get(NODE).is_some_and(|node| record_name(node) == name);
    let what = match is_record {
        true => {
            format!("configmap {name} is a record that has lost its label {}={}", MANAGED_BY.0, MANAGED_BY.1)
        }
        false => format!("configmap {name} is in the place of a record, and is somebody else's"),
    };
    let mend = match is_record {
        true => {
            format!(
                "kubectl label configmap {name} --namespace {namespace} --overwrite {}={}",
                MANAGED_BY.0, MANAGED_BY.1
            )
        }
        false => format!(
            "kubectl get configmap {name} --namespace {namespace} --output yaml > {name}.yaml && \
             kubectl delete configmap {name} --namespace {namespace}"
        ),
    };
    let finding = match is_wanted {
        true => Finding::error(format!("{what}: nothing is stored of its node, which is there")),
        false => Finding::warning(what),
    };
    finding.mend(mend)
}
