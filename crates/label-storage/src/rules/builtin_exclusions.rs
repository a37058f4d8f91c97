//! Taints and annotations that are never kept. They describe a machine's present state, and their owner sets them again.
//! Restored to a new machine, they would be wrong.

use super::InvalidRule;
use super::patterns::{KeyKind, Patterns, is_match};

/// The prefix of Label Storage's own taints and annotations.
pub const OURS: &str = "label-storage/";

/// Taints for a Node that starts, drains or is unhealthy.
const TAINTS: [&str; 14] = [
    // CNI and CSI drivers remove such a taint when they are ready.
    "*/agent-not-ready",
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/*",
    "cloud.google.com/impending-node-termination",
    "ignore-taint.cluster-autoscaler.kubernetes.io/*",
    "karpenter.sh/*",
    "label-storage/*",
    "node.cloudprovider.kubernetes.io/*",
    "node.cluster.x-k8s.io/*",
    "node.kubernetes.io/*",
    "readiness.k8s.io/*",
    "startup-taint.cluster-autoscaler.kubernetes.io/*",
    "status-taint.cluster-autoscaler.kubernetes.io/*",
];

/// Annotations that the kubelet, network and storage drivers and cluster managers write.
const ANNOTATIONS: [&str; 32] = [
    "alpha.kubernetes.io/provided-node-ip",
    "cluster.x-k8s.io/*",
    "container.googleapis.com/instance_id",
    "csi.volume.kubernetes.io/*",
    "etcd.k3s.cattle.io/*",
    "etcd.rke2.cattle.io/*",
    "flannel.alpha.coreos.com/*",
    "io.cilium.network.*",
    "k3s.io/*",
    "k8s.ovn.org/*",
    "kube-router.io/pod-cidr",
    "kube-router.io/pod-cidrs",
    "kubeadm.alpha.kubernetes.io/*",
    "kubectl.kubernetes.io/last-applied-configuration",
    "label-storage/*",
    "machine.openshift.io/machine",
    "machineconfiguration.openshift.io/*",
    "network.cilium.io/*",
    "nfd.node.kubernetes.io/*",
    "node.alpha.kubernetes.io/*",
    "node.antrea.io/mac-address",
    "node.antrea.io/transport-addresses",
    "node.antrea.io/wireguard-public-key",
    "node.gke.io/last-applied-node-labels",
    "node.gke.io/last-applied-node-taints",
    "ovn.kubernetes.io/*",
    // Not all of Calico's: people set the AS number and the route reflector.
    "projectcalico.org/IPv4*",
    "projectcalico.org/IPv6*",
    "projectcalico.org/VXLAN*",
    "projectcalico.org/Wireguard*",
    "volumes.kubernetes.io/controller-managed-attach-detach",
    "volumes.kubernetes.io/keep-terminated-pod-volumes",
];

/// True if a taint of this key describes a Node's present state.
pub fn is_lifecycle_taint(key: &str) -> bool {
    TAINTS.iter().any(|pattern| is_match(pattern, key))
}

/// True if an annotation of this key is written by the machine or its manager.
pub fn is_machine_annotation(key: &str) -> bool {
    ANNOTATIONS.iter().any(|pattern| is_match(pattern, key))
}

impl Patterns {
    /// Reads patterns of keys to keep. A key that is never kept may be matched by a pattern, but not named.
    pub(super) fn included<'a>(
        kind: KeyKind,
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, InvalidRule> {
        let read = Self::of(kind, patterns)?;
        let is_never_kept = match kind {
            KeyKind::Label => return Ok(read),
            KeyKind::Annotation => is_machine_annotation,
            KeyKind::Taint => is_lifecycle_taint,
        };
        let named = read.words().find(|word| !word.contains('*') && is_never_kept(word));
        let Some(key) = named.map(str::to_owned) else { return Ok(read) };
        Err(InvalidRule(if key.starts_with(OURS) {
            format!("{key:?} belongs to Label Storage, which handles it itself: remove it")
        } else {
            format!(
                "{key:?} is never kept: it describes the present state of a machine, and is set again when it applies; remove it"
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rules::patterns::SETS;

    #[test]
    fn the_policy_in_the_chart_has_the_same_lists() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/files/lists.yaml");
        let text = std::fs::read_to_string(path).expect("the file");
        let lists: BTreeMap<String, Vec<String>> = serde_saphyr::from_str(&text).expect("lists");
        assert_eq!(lists["never/annotations"], ANNOTATIONS);
        assert_eq!(lists["never/taints"], TAINTS);
        for (name, words) in SETS {
            assert_eq!(lists[&format!("set/{name}")], words);
        }
    }

    #[test]
    fn taints_of_a_nodes_life_are_told_from_those_that_people_choose() {
        for key in [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/out-of-service",
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node.cilium.io/agent-not-ready",
            "ebs.csi.aws.com/agent-not-ready",
            "karpenter.sh/disrupted",
            "ToBeDeletedByClusterAutoscaler",
            "label-storage/restoring",
        ] {
            assert!(is_lifecycle_taint(key), "{key}");
        }
        for key in [
            "dedicated",
            "example.com/gpu",
            "node-role.kubernetes.io/control-plane",
            "node.kubernetes.io",
            "kubernetes.azure.com/scalesetpriority",
        ] {
            assert!(!is_lifecycle_taint(key), "{key}");
        }
    }

    #[test]
    fn annotations_of_a_machine_are_told_from_those_that_people_write() {
        for key in [
            "node.alpha.kubernetes.io/ttl",
            "volumes.kubernetes.io/controller-managed-attach-detach",
            "csi.volume.kubernetes.io/nodeid",
            "kubeadm.alpha.kubernetes.io/cri-socket",
            "flannel.alpha.coreos.com/public-ip",
            "projectcalico.org/IPv4Address",
            "projectcalico.org/IPv4IPIPTunnelAddr",
            "network.cilium.io/ipv4-cilium-host",
            "k3s.io/node-args",
            "label-storage/restored",
        ] {
            assert!(is_machine_annotation(key), "{key}");
        }
        for key in [
            "example.com/owner",
            "cluster-autoscaler.kubernetes.io/scale-down-disabled",
            "cilium.io/bgp-virtual-router.64512",
            "projectcalico.org/RouteReflectorClusterID",
            "projectcalico.org/ASNumber",
        ] {
            assert!(!is_machine_annotation(key), "{key}");
        }
    }
}
