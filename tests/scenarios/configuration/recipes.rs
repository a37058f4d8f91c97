//! The recipes: the documented actions of each cloud are applied to nodes here.

use serde_json::json;

use super::life::{Example, example};

/// A label that no kubelet can set itself.
const TRUST: &str = "node-restriction.kubernetes.io/tier";

/// Bare metal, GKE.
pub fn machines() -> Vec<Example> {
    vec![
        example(
            "bare-metal",
            "{labels: {exclude: [machine-facts, controller-labels]}, taints: {include: ['*']}, cordon: true, \
             identity: {otherMachine: none}, retention: 90d}",
        )
        .registers(
            "a",
            &[
                ("pool", "gold"),
                ("kubernetes.io/hostname", "a"),
                (TRUST, "secret"),
                ("taint:NoSchedule:dedicated", "gpu"),
                ("taint:NoExecute:node.kubernetes.io/unreachable", ""),
                ("cordon:", "true"),
                ("machine:", "m1"),
            ],
        )
        .stored(&[
            ("pool", "gold"),
            (TRUST, "secret"),
            ("taint:NoSchedule:dedicated", "gpu"),
            ("cordon:", "true"),
        ])
        // New hardware is given the old name.
        .leaves("a")
        .registers("a", &[("kubernetes.io/hostname", "a"), ("machine:", "m2")])
        .told("restorer", "OtherMachine", "another machine")
        .left_alone()
        .leaves("a")
        .registers("a", &[("kubernetes.io/hostname", "a"), ("machine:", "m1")])
        .has(&[
            ("pool", "gold"),
            ("kubernetes.io/hostname", "a"),
            (TRUST, "secret"),
            ("taint:NoSchedule:dedicated", "gpu"),
            ("cordon:", "true"),
        ]),
        example(
            "bare-metal-by-machine",
            "{labels: {exclude: [machine-facts, controller-labels]}, identity: {by: systemUUID}, retention: forever}",
        )
        .registers(
            "a",
            &[("pool", "gold"), ("kubernetes.io/hostname", "a"), (TRUST, "secret"), ("machine:", "m1")],
        )
        .known_by("systemUUID=m1")
        .stored(&[("pool", "gold"), (TRUST, "secret")])
        // It is renamed.
        .leaves("a")
        .registers("b", &[("kubernetes.io/hostname", "b"), ("machine:", "m1")])
        .known_by("systemUUID=m1")
        .has(&[("pool", "gold"), ("kubernetes.io/hostname", "b")])
        .told("restorer", "LabelsWithheld", TRUST)
        .stored(&[("pool", "gold"), (TRUST, "secret")])
        // A board of a series in which all have the same: nothing is restored, until there is only one.
        .registers("c", &[("machine:", "m1")])
        .told("restorer", "IdentityContested", ".b")
        .told("storer", "IdentityContested", ".b")
        .has(&[])
        .leaves("b")
        .known_by("systemUUID=m1")
        .has(&[("pool", "gold")])
        // One that has none.
        .registers("d", &[("pool", "gold"), ("machine:", "00000000-0000-0000-0000-000000000000")])
        .not_stored("no-identity"),
        example("gke", "{labels: {exclude: [machine-facts, controller-labels, 'cloud.google.com/*']}, retention: 7d}")
            .registers(
                "a",
                &[
                    ("pool", "gold"),
                    ("cloud.google.com/gke-nodepool", "one"),
                    ("topology.kubernetes.io/zone", "eu-1a"),
                    (TRUST, "secret"),
                    ("instance:", "gce://project/eu-1a/a"),
                    ("machine:", "vm-1"),
                ],
            )
            .stored(&[("pool", "gold"), (TRUST, "secret")])
            // A repair: the name and the instance's name are the same, and it is another VM.
            .leaves("a")
            .registers(
                "a",
                &[
                    ("cloud.google.com/gke-nodepool", "two"),
                    ("instance:", "gce://project/eu-1a/a"),
                    ("machine:", "vm-2"),
                ],
            )
            .has(&[("pool", "gold"), (TRUST, "secret"), ("cloud.google.com/gke-nodepool", "two")])
            .stored(&[("pool", "gold"), (TRUST, "secret")]),
        example(
            "gke-by-instance",
            "{labels: {exclude: [machine-facts, controller-labels, 'cloud.google.com/*']}, \
             identity: {by: 'annotation:container.googleapis.com/instance_id'}, retention: 1d}",
        )
        .registers(
            "a",
            &[
                ("pool", "gold"),
                ("cloud.google.com/gke-nodepool", "one"),
                ("annotation:container.googleapis.com/instance_id", "1"),
            ],
        )
        .known_by("annotation:container.googleapis.com/instance_id=1")
        .stored(&[("pool", "gold")])
        // The same VM, which a controller says a moment later.
        .leaves("a")
        .registers("a", &[])
        .left_alone()
        .changes(json!({"metadata": {"annotations": {"container.googleapis.com/instance_id": "1"}}}))
        .has(&[("pool", "gold"), ("annotation:container.googleapis.com/instance_id", "1")])
        // And another.
        .leaves("a")
        .registers("a", &[("own", "1"), ("annotation:container.googleapis.com/instance_id", "2")])
        .known_by("annotation:container.googleapis.com/instance_id=2")
        .stored(&[("own", "1")])
        .left_alone(),
    ]
}

/// EKS, AKS, spot pools.
pub fn instances() -> Vec<Example> {
    vec![
        example(
            "eks",
            "{labels: {exclude: [machine-facts, controller-labels, 'eks.amazonaws.com/*']}, identity: {by: providerID}, retention: 1d}",
        )
        .registers(
            "ip-10-0-1-23",
            &[
                ("pool", "gold"),
                ("eks.amazonaws.com/nodegroup", "one"),
                (TRUST, "secret"),
                ("instance:", "aws:///eu-1a/i-1"),
                ("machine:", "vm-1"),
            ],
        )
        .known_by("providerID=aws:///eu-1a/i-1")
        .stored(&[("pool", "gold"), (TRUST, "secret")])
        // The instance did not answer for a while.
        .leaves("ip-10-0-1-23")
        .registers("ip-10-0-1-23", &[("instance:", "aws:///eu-1a/i-1"), ("machine:", "vm-1")])
        .known_by("providerID=aws:///eu-1a/i-1")
        .has(&[("pool", "gold"), (TRUST, "secret")])
        // Its successor has its address.
        .leaves("ip-10-0-1-23")
        .registers(
            "ip-10-0-1-23",
            &[
                ("eks.amazonaws.com/nodegroup", "one"),
                ("instance:", "aws:///eu-1a/i-2"),
                ("machine:", "vm-2"),
            ],
        )
        .known_by("providerID=aws:///eu-1a/i-2")
        .left_alone(),
        example(
            "eks-by-slot",
            "{labels: {exclude: [machine-facts, controller-labels, 'eks.amazonaws.com/*']}, identity: {by: 'label:example.com/slot'}, \
             retention: 7d}",
        )
        .registers(
            "ip-10-0-1-23",
            &[
                ("example.com/slot", "s1"),
                ("pool", "gold"),
                (TRUST, "secret"),
                ("instance:", "aws:///eu-1a/i-1"),
                ("machine:", "vm-1"),
            ],
        )
        .known_by("label:example.com/slot=s1")
        .stored(&[("example.com/slot", "s1"), ("pool", "gold"), (TRUST, "secret")])
        .leaves("ip-10-0-1-23")
        .registers(
            "ip-10-0-1-42",
            &[("example.com/slot", "s1"), ("instance:", "aws:///eu-1a/i-2"), ("machine:", "vm-2")],
        )
        .known_by("label:example.com/slot=s1")
        .has(&[("example.com/slot", "s1"), ("pool", "gold")])
        .told("restorer", "LabelsWithheld", TRUST),
        example(
            "aks",
            "{labels: {exclude: [machine-facts, controller-labels]}, identity: {otherMachine: none}, retention: 3d}",
        )
        .registers(
            "vmss000001",
            &[
                ("pool", "gold"),
                ("kubernetes.azure.com/agentpool", "one"),
                ("instance:", "azure:///vmss/virtualMachines/1"),
                ("machine:", "vm-1"),
            ],
        )
        .stored(&[("pool", "gold")])
        // An upgrade.
        .leaves("vmss000001")
        .registers(
            "vmss000001",
            &[("instance:", "azure:///vmss/virtualMachines/1"), ("machine:", "vm-1")],
        )
        .has(&[("pool", "gold")])
        .stored(&[("pool", "gold")])
        // The number is used again.
        .leaves("vmss000001")
        .registers(
            "vmss000001",
            &[("own", "1"), ("instance:", "azure:///vmss/virtualMachines/1"), ("machine:", "vm-2")],
        )
        .told("restorer", "OtherMachine", "another machine")
        .left_alone(),
        example(
            "spot-left-out",
            "{labels: {exclude: [machine-facts, controller-labels]}, nodes: {selector: 'cloud.google.com/gke-spot!=true,\
             eks.amazonaws.com/capacityType!=SPOT,karpenter.sh/capacity-type!=spot,\
             kubernetes.azure.com/scalesetpriority!=spot'}}",
        )
        .registers("gke", &[("cloud.google.com/gke-spot", "true"), ("pool", "gold")])
        .not_stored("not-selected")
        .registers("eks", &[("eks.amazonaws.com/capacityType", "SPOT"), ("pool", "gold")])
        .not_stored("not-selected")
        .registers("karpenter", &[("karpenter.sh/capacity-type", "spot"), ("pool", "gold")])
        .not_stored("not-selected")
        .registers("aks", &[("kubernetes.azure.com/scalesetpriority", "spot"), ("pool", "gold")])
        .not_stored("not-selected")
        .registers("a", &[("eks.amazonaws.com/capacityType", "ON_DEMAND"), ("pool", "gold")])
        .stored(&[("eks.amazonaws.com/capacityType", "ON_DEMAND"), ("pool", "gold")])
        .leaves("a")
        .registers("a", &[])
        .has(&[("eks.amazonaws.com/capacityType", "ON_DEMAND"), ("pool", "gold")]),
        // `storing` and `retaining` test the retention and the share.
        example(
            "spot-short",
            "{labels: {exclude: [machine-facts, controller-labels]}, retention: 2h, cleanupShare: 100%, history: 0}",
        )
        .registers("a", &[("pool", "gold"), ("kubernetes.io/os", "linux")])
        .stored(&[("pool", "gold")])
        .changes(json!({"metadata": {"labels": {"pool": "silver"}}}))
        .stored(&[("pool", "silver")])
        .remembered(&[])
        .leaves("a")
        .registers("a", &[])
        .has(&[("pool", "silver")]),
    ]
}
