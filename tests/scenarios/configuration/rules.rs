//! The examples of single rules, by section of the documentation.

use serde_json::json;

use super::life::{Example, example};

/// A label that no kubelet can set itself.
const TRUST: &str = "node-restriction.kubernetes.io/tier";

/// How rules are given, labels, annotations, taints, cordon.
pub fn what() -> Vec<Example> {
    vec![
        // All labels, and nothing else; a node that returns is given what it lacks.
        example("defaults", "{}")
            .registers(
                "a",
                &[
                    ("pool", "gold"),
                    ("kubernetes.io/hostname", "a"),
                    ("zone", "1"),
                    ("annotation:example.com/owner", "team-a"),
                    ("taint:NoSchedule:dedicated", "gpu"),
                    ("cordon:", "true"),
                ],
            )
            .stored(&[("pool", "gold"), ("kubernetes.io/hostname", "a"), ("zone", "1")])
            .leaves("a")
            .registers("a", &[("zone", "2")])
            .has(&[("pool", "gold"), ("kubernetes.io/hostname", "a"), ("zone", "2")]),
        example("chart", "{labels: {exclude: [machine-facts, controller-labels]}}")
            .registers(
                "a",
                &[
                    ("pool", "gold"),
                    ("kubernetes.io/hostname", "a"),
                    ("kubernetes.io/os", "linux"),
                    ("kubernetes.io/arch", "amd64"),
                    ("node.kubernetes.io/instance-type", "m5.large"),
                    ("topology.kubernetes.io/zone", "eu-1a"),
                    ("topology.kubernetes.io/region", "eu-1"),
                    ("beta.kubernetes.io/os", "linux"),
                    ("beta.kubernetes.io/arch", "amd64"),
                    ("beta.kubernetes.io/instance-type", "m5.large"),
                    ("failure-domain.beta.kubernetes.io/zone", "eu-1a"),
                    ("failure-domain.beta.kubernetes.io/region", "eu-1"),
                ],
            )
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("a", &[("topology.kubernetes.io/zone", "eu-1b")])
            .has(&[("pool", "gold"), ("topology.kubernetes.io/zone", "eu-1b")]),
        example("labels", "{labels: {include: [pool, 'persist.demo/*'], exclude: [persist.demo/scratch]}}")
            .registers(
                "a",
                &[
                    ("pool", "gold"),
                    ("persist.demo/owner", "me"),
                    ("persist.demo/scratch", "x"),
                    ("zone", "1"),
                ],
            )
            .stored(&[("pool", "gold"), ("persist.demo/owner", "me")])
            .leaves("a")
            .registers("a", &[])
            .has(&[("pool", "gold"), ("persist.demo/owner", "me")]),
        example(
            "annotations",
            "{annotations: {include: ['example.com/*'], exclude: [example.com/last-seen]}}",
        )
        .registers(
            "a",
            &[
                ("pool", "gold"),
                ("annotation:example.com/owner", "team-a"),
                ("annotation:example.com/last-seen", "today"),
                ("annotation:example.org/owner", "team-b"),
                ("annotation:csi.volume.kubernetes.io/nodeid", "{}"),
            ],
        )
        .stored(&[("pool", "gold"), ("annotation:example.com/owner", "team-a")])
        .written("annotation-COLON-example.com-SLASH-owner", "team-a")
        .leaves("a")
        .registers("a", &[("annotation:csi.volume.kubernetes.io/nodeid", "{new}")])
        .has(&[
            ("pool", "gold"),
            ("annotation:example.com/owner", "team-a"),
            ("annotation:csi.volume.kubernetes.io/nodeid", "{new}"),
        ]),
        example(
            "taints",
            "{taints: {include: [dedicated, 'example.com/*'], exclude: [example.com/draining]}}",
        )
        .registers(
            "a",
            &[
                ("taint:NoSchedule:dedicated", "gpu"),
                ("taint:NoExecute:dedicated", "cpu"),
                ("taint:PreferNoSchedule:example.com/old", ""),
                ("taint:NoSchedule:other", "x"),
                ("taint:NoSchedule:example.com/draining", ""),
                ("taint:NoExecute:node.kubernetes.io/unreachable", ""),
            ],
        )
        .stored(&[
            ("taint:NoSchedule:dedicated", "gpu"),
            ("taint:NoExecute:dedicated", "cpu"),
            ("taint:PreferNoSchedule:example.com/old", ""),
        ])
        .written("taint-COLON-NoSchedule-COLON-dedicated", "gpu")
        .leaves("a")
        // Items that others have added meanwhile stay.
        .registers("a", &[("taint:NoExecute:node.kubernetes.io/not-ready", "")])
        .has(&[
            ("taint:NoExecute:node.kubernetes.io/not-ready", ""),
            ("taint:NoSchedule:dedicated", "gpu"),
            ("taint:NoExecute:dedicated", "cpu"),
            ("taint:PreferNoSchedule:example.com/old", ""),
        ]),
        example("cordon", "{cordon: true}")
            .registers("a", &[("pool", "gold"), ("cordon:", "true")])
            .stored(&[("pool", "gold"), ("cordon:", "true")])
            .written("cordon-COLON-", "true")
            .leaves("a")
            .registers("a", &[])
            .has(&[("pool", "gold"), ("cordon:", "true")])
            // It never uncordons a node.
            .registers("b", &[("pool", "gold")])
            .stored(&[("pool", "gold")])
            .leaves("b")
            .registers("b", &[("cordon:", "true")])
            .has(&[("pool", "gold"), ("cordon:", "true")]),
    ]
}

/// Nodes, conflicts.
pub fn whose() -> Vec<Example> {
    vec![
        example("nodes-selector", "{nodes: {selector: 'env in (prod,stage),!example.com/throwaway'}}")
            .registers("dev", &[("env", "dev")])
            .not_stored("not-selected")
            .registers("throwaway", &[("env", "stage"), ("example.com/throwaway", "")])
            .not_stored("not-selected")
            .registers("none", &[("pool", "gold")])
            .not_stored("not-selected")
            .registers("prod", &[("env", "prod"), ("pool", "gold")])
            .stored(&[("env", "prod"), ("pool", "gold")])
            // Without what it is selected by, at first.
            .leaves("prod")
            .registers("prod", &[])
            .has(&[("env", "prod"), ("pool", "gold")])
            // A record that exists goes on following its node.
            .changes(json!({"metadata": {"labels": {"env": "dev"}}}))
            .stored(&[("env", "dev"), ("pool", "gold")]),
        example("nodes-opt-in", "{nodes: {optIn: true}}")
            .registers("silent", &[("pool", "gold")])
            .not_stored("not-selected")
            .registers(
                "asking",
                &[
                    ("annotation:label-storage/keep", "persist.demo/*,pool"),
                    ("persist.demo/owner", "me"),
                    ("pool", "gold"),
                    ("zone", "1"),
                ],
            )
            .stored(&[
                ("annotation:label-storage/keep", "persist.demo/*,pool"),
                ("persist.demo/owner", "me"),
                ("pool", "gold"),
            ])
            .leaves("asking")
            .registers("asking", &[("zone", "2")])
            .has(&[
                ("annotation:label-storage/keep", "persist.demo/*,pool"),
                ("persist.demo/owner", "me"),
                ("pool", "gold"),
                ("zone", "2"),
            ])
            // Neither stored nor restored, and not remembered: the next one is restored.
            .leaves("asking")
            .registers("asking", &[("annotation:label-storage/ignore", "true"), ("pool", "silver")])
            .left_alone()
            .leaves("asking")
            .registers("asking", &[])
            .has(&[
                ("annotation:label-storage/keep", "persist.demo/*,pool"),
                ("persist.demo/owner", "me"),
                ("pool", "gold"),
            ]),
        example(
            "conflicts",
            "{taints: {include: [dedicated]}, conflicts: [{keys: [pool], wins: record}, {keys: [example.com/zone], wins: node}, \
             {keys: ['taint:NoSchedule:dedicated', 'example.com/*'], wins: report}]}",
        )
        .registers(
            "a",
            &[
                ("pool", "gold"),
                ("example.com/rack", "7"),
                ("example.com/zone", "1"),
                ("kept", "1"),
                ("taint:NoSchedule:dedicated", "gpu"),
            ],
        )
        .stored(&[
            ("pool", "gold"),
            ("example.com/rack", "7"),
            ("example.com/zone", "1"),
            ("kept", "1"),
            ("taint:NoSchedule:dedicated", "gpu"),
        ])
        .leaves("a")
        .registers(
            "a",
            &[
                ("pool", "default"),
                ("example.com/rack", "8"),
                ("example.com/zone", "2"),
                ("taint:NoSchedule:dedicated", "cpu"),
            ],
        )
        .has(&[
            ("pool", "gold"),
            ("example.com/rack", "8"),
            ("example.com/zone", "2"),
            ("kept", "1"),
            ("taint:NoSchedule:dedicated", "cpu"),
        ])
        .told("restorer", "LabelsRestored", "pool")
        .told("restorer", "RestoreConflict", "example.com/rack")
        .told("restorer", "RestoreConflict", "taint:NoSchedule:dedicated")
        .stored(&[
            ("pool", "gold"),
            ("example.com/rack", "8"),
            ("example.com/zone", "2"),
            ("kept", "1"),
            ("taint:NoSchedule:dedicated", "cpu"),
        ])
        // The overwritten value of the node was never stored; the overwritten value of the record is in the history.
        .remembered(&[&[
            ("pool", "gold"),
            ("example.com/rack", "7"),
            ("example.com/zone", "1"),
            ("kept", "1"),
            ("taint:NoSchedule:dedicated", "gpu"),
        ]])
        // Once it is restored, its own labels are stored.
        .changes(json!({"metadata": {"labels": {"pool": "silver"}}}))
        .stored(&[
            ("pool", "silver"),
            ("example.com/rack", "8"),
            ("example.com/zone", "2"),
            ("kept", "1"),
            ("taint:NoSchedule:dedicated", "cpu"),
        ]),
    ]
}

/// Identity, and other machines.
pub fn who() -> Vec<Example> {
    vec![
        example("identity-provider-id", "{identity: {by: providerID}}")
            .registers("a", &[("instance:", "cloud://i-1"), ("pool", "gold")])
            .known_by("providerID=cloud://i-1")
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("b", &[("instance:", "cloud://i-1")])
            .known_by("providerID=cloud://i-1")
            .has(&[("pool", "gold")])
            .stored(&[("pool", "gold")])
            // Another instance under the old name gets none.
            .registers("a", &[("instance:", "cloud://i-2"), ("own", "1")])
            .known_by("providerID=cloud://i-2")
            .stored(&[("own", "1")])
            .left_alone()
            // The cloud sets the identity a while later.
            .leaves("b")
            .registers("c", &[])
            .not_stored("no-identity")
            .left_alone()
            .changes(json!({"spec": {"providerID": "cloud://i-1"}}))
            .has(&[("pool", "gold")]),
        example("identity-label", "{identity: {by: 'label:example.com/slot'}}")
            .registers("a", &[("example.com/slot", "7"), ("pool", "gold"), ("machine:", "m1")])
            .known_by("label:example.com/slot=7")
            .stored(&[("example.com/slot", "7"), ("pool", "gold")])
            .leaves("a")
            .registers("b", &[("example.com/slot", "7"), ("machine:", "m2")])
            .known_by("label:example.com/slot=7")
            .has(&[("example.com/slot", "7"), ("pool", "gold")])
            .stored(&[("example.com/slot", "7"), ("pool", "gold")])
            .registers("a", &[("example.com/slot", "8"), ("machine:", "m1")])
            .known_by("label:example.com/slot=8")
            .stored(&[("example.com/slot", "8")])
            .left_alone(),
        example("other-machine-none", "{identity: {otherMachine: none}}")
            .registers("a", &[("pool", "gold"), ("machine:", "m1")])
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("a", &[("own", "1"), ("machine:", "m2")])
            .told("restorer", "OtherMachine", "delete configmap label-storage.")
            .left_alone()
            .still_stored(&[("pool", "gold")])
            // Also when that node is deleted again: its own machine has all, and nothing of what the other had.
            .leaves("a")
            .registers("a", &[("machine:", "m1")])
            .has(&[("pool", "gold")])
            .stored(&[("pool", "gold")])
            // Where nothing is known, there is no difference.
            .leaves("a")
            .registers("a", &[])
            .has(&[("pool", "gold")]),
        example("other-machine-untrusted", "{identity: {otherMachine: untrusted}}")
            .registers("a", &[(TRUST, "secret"), ("pool", "gold"), ("machine:", "m1")])
            .stored(&[(TRUST, "secret"), ("pool", "gold")])
            .leaves("a")
            .registers("a", &[("machine:", "m2")])
            .has(&[("pool", "gold")])
            .told("restorer", "LabelsWithheld", TRUST)
            // They stay in the record until their machine returns.
            .stored(&[(TRUST, "secret"), ("pool", "gold")])
            .leaves("a")
            .registers("a", &[("machine:", "m1")])
            .has(&[(TRUST, "secret"), ("pool", "gold")]),
    ]
}

/// The start-up taint, retention, cleanupShare, history. What takes longer than a test may is shown elsewhere: that the taint comes off
/// at last, by `startup`, with a shorter time; what happens when the retention is over, and that only a share of the records is
/// deleted, by `storing` and `retaining`, with one of a minute. Here it is shown that the daemons run with these.
pub fn when() -> Vec<Example> {
    vec![
        // `startup` tests that one patch removes the taint and adds the labels.
        example("startup-taint", "{startupTaint: {enabled: true}}")
            .registers("a", &[("taint:NoSchedule:label-storage/restoring", ""), ("pool", "gold")])
            .has(&[("pool", "gold")])
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("a", &[("taint:NoSchedule:label-storage/restoring", "")])
            .has(&[("pool", "gold")]),
        // `absent_storer` tests the wait.
        example("patience", "{identity: {otherMachine: none}, patience: 10m}")
            .registers("a", &[("pool", "gold")])
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("a", &[])
            .has(&[("pool", "gold")]),
        example("retention", "{retention: 90d}")
            .registers("a", &[("pool", "gold")])
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("a", &[])
            .has(&[("pool", "gold")]),
        example("cleanup-share", "{retention: 7d, cleanupShare: 25%}")
            .registers("a", &[("pool", "gold")])
            .stored(&[("pool", "gold")])
            .leaves("a")
            .registers("a", &[])
            .has(&[("pool", "gold")]),
        example("history", "{history: 5}")
            .registers("a", &[("round", "0")])
            .stored(&[("round", "0")])
            .changes(json!({"metadata": {"labels": {"round": "1"}}}))
            .stored(&[("round", "1")])
            .changes(json!({"metadata": {"labels": {"round": "2"}}}))
            .stored(&[("round", "2")])
            .changes(json!({"metadata": {"labels": {"round": "3"}}}))
            .stored(&[("round", "3")])
            .changes(json!({"metadata": {"labels": {"round": "4"}}}))
            .stored(&[("round", "4")])
            .changes(json!({"metadata": {"labels": {"round": "5"}}}))
            .stored(&[("round", "5")])
            .changes(json!({"metadata": {"labels": {"round": "6"}}}))
            .stored(&[("round", "6")])
            .remembered(&[
                &[("round", "1")],
                &[("round", "2")],
                &[("round", "3")],
                &[("round", "4")],
                &[("round", "5")],
            ])
            // It is never given back by itself.
            .leaves("a")
            .registers("a", &[])
            .has(&[("round", "6")]),
    ]
}
