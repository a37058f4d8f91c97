//! What of a Node is not its metadata.

use serde::Deserialize;

use crate::{NodePart, Taint};

#[derive(Default, Deserialize)]
pub(super) struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    unschedulable: Option<bool>,
    taints: Option<Vec<SpecTaint>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecTaint {
    key: Option<String>,
    value: Option<String>,
    effect: Option<String>,
    time_added: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    node_info: Option<Info>,
}

#[derive(Default, Deserialize)]
struct Info {
    #[serde(rename = "systemUUID")]
    system_uuid: Option<String>,
}

/// A Node, of both parts of it.
pub(super) fn node(spec: Spec, status: Status) -> NodePart {
    let taints = spec.taints.unwrap_or_default().into_iter().map(|taint| Taint {
        key: taint.key.unwrap_or_default(),
        value: taint.value.unwrap_or_default(),
        effect: taint.effect.unwrap_or_default(),
        time_added: taint.time_added,
    });
    NodePart {
        provider_id: spec.provider_id.unwrap_or_default(),
        is_unschedulable: spec.unschedulable.unwrap_or_default(),
        taints: taints.collect(),
        system_uuid: status.node_info.unwrap_or_default().system_uuid.unwrap_or_default(),
    }
}
