//! Taints and annotations that are never kept. They describe a machine's present state, and their owner sets them again.
//! Restored to a new machine, they would be wrong.

/// The prefix of Label Storage's own taints and annotations.
pub const OURS: &str = "label-storage/";

/// Taints that tell that a Node starts, drains or is unhealthy.
const TAINTS: [&str; 3] = [
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
];

const TAINT_PREFIXES: [&str; 10] = [
    "aws-node-termination-handler/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "node.cloudprovider.kubernetes.io/",
    "node.cluster.x-k8s.io/",
    "node.kubernetes.io/",
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    OURS,
];

/// CNI and CSI drivers remove such a taint when they are ready: `node.cilium.io/agent-not-ready`.
const TAINT_SUFFIX: &str = "/agent-not-ready";

/// Annotations that the kubelet, network and storage drivers and cluster managers write.
const ANNOTATIONS: [&str; 13] = [
    "alpha.kubernetes.io/provided-node-ip",
    "container.googleapis.com/instance_id",
    "kube-router.io/pod-cidr",
    "kube-router.io/pod-cidrs",
    "kubectl.kubernetes.io/last-applied-configuration",
    "machine.openshift.io/machine",
    "node.antrea.io/mac-address",
    "node.antrea.io/transport-addresses",
    "node.antrea.io/wireguard-public-key",
    "node.gke.io/last-applied-node-labels",
    "node.gke.io/last-applied-node-taints",
    "volumes.kubernetes.io/controller-managed-attach-detach",
    "volumes.kubernetes.io/keep-terminated-pod-volumes",
];

const ANNOTATION_PREFIXES: [&str; 19] = [
    "cluster.x-k8s.io/",
    "csi.volume.kubernetes.io/",
    "etcd.k3s.cattle.io/",
    "etcd.rke2.cattle.io/",
    "flannel.alpha.coreos.com/",
    "io.cilium.network.",
    "k3s.io/",
    "k8s.ovn.org/",
    "kubeadm.alpha.kubernetes.io/",
    "machineconfiguration.openshift.io/",
    "network.cilium.io/",
    "nfd.node.kubernetes.io/",
    "node.alpha.kubernetes.io/",
    "ovn.kubernetes.io/",
    // Not all of Calico's: people set the AS number and the route reflector.
    "projectcalico.org/IPv4",
    "projectcalico.org/IPv6",
    "projectcalico.org/VXLAN",
    "projectcalico.org/Wireguard",
    OURS,
];

/// True if a taint of this key describes a Node's present state.
pub fn is_lifecycle_taint(key: &str) -> bool {
    TAINTS.contains(&key)
        || TAINT_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        || key.ends_with(TAINT_SUFFIX)
}

/// True if an annotation of this key is written by the machine or its manager.
pub fn is_machine_annotation(key: &str) -> bool {
    ANNOTATIONS.contains(&key) || ANNOTATION_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

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
