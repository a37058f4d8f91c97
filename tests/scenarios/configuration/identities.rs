//! The documented table of identity, fence and trust labels, row by row: another machine of the same name, and
//! the same machine under another.

use super::life::{Content, Example, example};

/// A label that no kubelet can set itself.
const TRUST: &str = "node-restriction.kubernetes.io/tier";

/// The stored items of the machine m1.
const ALL: Content = &[("pool", "gold"), (TRUST, "secret")];

/// And without what a machine has to be trusted with.
const UNTRUSTED: Content = &[("pool", "gold")];

/// Each row, its rules, and what they are to come to.
pub fn rows() -> Vec<(&'static str, &'static str, Example)> {
    vec![
        (
            "| `by: name` | all but trust labels | nothing: no record of that name |",
            "identity: {by: name}",
            by_name("table-name", "{}").registers("a", &[("machine:", "m2")]).has(UNTRUSTED),
        ),
        (
            "| `by: name`, `trustLabels: name` | all | nothing |",
            "identity: {by: name, trustLabels: name}",
            by_name("table-name-trust", "{identity: {trustLabels: name}}")
                .registers("a", &[("machine:", "m2")])
                .has(ALL),
        ),
        (
            "| `by: name`, `fence: true` | nothing | nothing |",
            "identity: {by: name, fence: true}",
            by_name("table-name-fence", "{identity: {fence: true}}")
                .registers("a", &[("machine:", "m2")])
                .told("restorer", "OtherMachine", "another machine")
                .left_alone(),
        ),
        (
            "| `by: name`, `fence: true`, `trustLabels: name` | nothing: the fence comes first | nothing |",
            "identity: {by: name, fence: true, trustLabels: name}",
            by_name("table-name-fence-trust", "{identity: {fence: true, trustLabels: name}}")
                .registers("a", &[("machine:", "m2")])
                .told("restorer", "OtherMachine", "another machine")
                .left_alone(),
        ),
        (
            "| `by: systemUUID` | nothing: no record of that machine | all but trust labels |",
            "identity: {by: systemUUID}",
            example("table-machine", "{identity: {by: systemUUID}}")
                .registers("a", &[("pool", "gold"), (TRUST, "secret"), ("machine:", "m1")])
                .known_by("systemUUID=m1")
                .stored(ALL)
                .leaves("a")
                .registers("a", &[("machine:", "m2")])
                .known_by("systemUUID=m2")
                .left_alone()
                .registers("b", &[("machine:", "m1")])
                .has(UNTRUSTED),
        ),
        (
            "| `by: providerID` | nothing: no record of that instance | all but trust labels |",
            "identity: {by: providerID}",
            example("table-instance", "{identity: {by: providerID}}")
                .registers(
                    "a",
                    &[("pool", "gold"), (TRUST, "secret"), ("instance:", "i1"), ("machine:", "m1")],
                )
                .known_by("providerID=i1")
                .stored(ALL)
                .leaves("a")
                .registers("a", &[("instance:", "i2"), ("machine:", "m2")])
                .known_by("providerID=i2")
                .left_alone()
                .registers("b", &[("instance:", "i1"), ("machine:", "m1")])
                .has(UNTRUSTED)
                .leaves("b")
                .registers("c", &[("instance:", "i1"), ("machine:", "m3")])
                .has(UNTRUSTED),
        ),
        (
            "| `by: label:…` or `annotation:…` | by what it says; trust labels only if the machine is the same | all but trust labels, unless the key is one itself |",
            "identity: {by: 'annotation:example.com/slot'}",
            example("table-slot", "{identity: {by: 'annotation:example.com/slot'}}")
                .registers(
                    "a",
                    &[
                        ("annotation:example.com/slot", "7"),
                        ("pool", "gold"),
                        (TRUST, "secret"),
                        ("machine:", "m1"),
                    ],
                )
                .known_by("annotation:example.com/slot=7")
                .stored(ALL)
                .leaves("a")
                .registers("b", &[("annotation:example.com/slot", "7"), ("machine:", "m1")])
                .known_by("annotation:example.com/slot=7")
                .has(&[("annotation:example.com/slot", "7"), ("pool", "gold")])
                .stored(ALL)
                .leaves("b")
                .registers("a", &[("annotation:example.com/slot", "7"), ("machine:", "m2")])
                .has(&[("annotation:example.com/slot", "7"), ("pool", "gold")]),
        ),
    ]
}

/// A machine that has left the name a, and under another has nothing of what it had.
fn by_name(name: &'static str, rules: &'static str) -> Example {
    example(name, rules)
        .registers("a", &[("pool", "gold"), (TRUST, "secret"), ("machine:", "m1")])
        .stored(ALL)
        .leaves("a")
        .registers("b", &[("machine:", "m1")])
        .left_alone()
}
