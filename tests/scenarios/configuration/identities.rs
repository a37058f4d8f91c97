//! The documented table of what a returning node gets, cell by cell: from the same machine, an unknown one, another one, and under another
//! name.

use super::life::{Content, Example, example};

/// A label that no kubelet can set itself.
const TRUST: &str = "node-restriction.kubernetes.io/tier";

/// The stored items of the machine m1.
const ALL: Content = &[("pool", "gold"), (TRUST, "secret")];

const UNTRUSTED: Content = &[("pool", "gold")];

/// The slot by which machines are identified where names differ.
const SLOT: (&str, &str) = ("annotation:example.com/slot", "7");

const ALL_IN_SLOT: Content = &[SLOT, ("pool", "gold"), (TRUST, "secret")];

const UNTRUSTED_IN_SLOT: Content = &[SLOT, ("pool", "gold")];

/// Each row with rules and an example of its cells.
pub fn rows() -> Vec<(&'static str, &'static str, Example)> {
    let all = "| `all` | all | all | all but trust labels |";
    let untrusted = "| `untrusted` | all | all but trust labels | all but trust labels |";
    let none = "| `none` | all | nothing | all but trust labels |";
    vec![
        (all, "", other_machine(same_machine("table-all", "{}")).has(ALL)),
        (
            untrusted,
            "identity: {otherMachine: untrusted}",
            other_machine(same_machine("table-untrusted", "{identity: {otherMachine: untrusted}}"))
                .has(UNTRUSTED)
                .stored(ALL)
                // The providerID names the machine, too.
                .registers("d", &[("pool", "gold"), (TRUST, "secret"), ("instance:", "i1")])
                .stored(ALL)
                .leaves("d")
                .registers("d", &[("instance:", "i2"), ("machine:", "m1")])
                .has(UNTRUSTED),
        ),
        (
            none,
            "identity: {otherMachine: none}",
            other_machine(same_machine("table-none", "{identity: {otherMachine: none}}"))
                .told("restorer", "OtherMachine", "another machine")
                .left_alone(),
        ),
        (
            all,
            "identity: {by: 'annotation:example.com/slot'}",
            other_name("table-all-slot", "{identity: {by: 'annotation:example.com/slot'}}")
                .has(UNTRUSTED_IN_SLOT),
        ),
        (
            untrusted,
            "identity: {by: 'annotation:example.com/slot', otherMachine: untrusted}",
            other_name(
                "table-untrusted-slot",
                "{identity: {by: 'annotation:example.com/slot', otherMachine: untrusted}}",
            )
            .has(UNTRUSTED_IN_SLOT),
        ),
        (
            none,
            "identity: {by: 'annotation:example.com/slot', otherMachine: none}",
            other_name(
                "table-none-slot",
                "{identity: {by: 'annotation:example.com/slot', otherMachine: none}}",
            )
            .told("restorer", "OtherMachine", "another machine")
            .left_alone(),
        ),
    ]
}

/// The first column: a returns on its own machine, b on an unknown one, and c was on an unknown one.
fn same_machine(name: &'static str, rules: &'static str) -> Example {
    let on_m1: Content = &[("pool", "gold"), (TRUST, "secret"), ("machine:", "m1")];
    [("a", on_m1, &[("machine:", "m1")][..]), ("b", on_m1, &[]), ("c", ALL, &[("machine:", "m1")])]
        .into_iter()
        .fold(example(name, rules), |example, (node, before, after)| {
            example.registers(node, before).stored(ALL).leaves(node).registers(node, after).has(ALL)
        })
}

/// The second column: the machine m2 has the name of m1.
fn other_machine(example: Example) -> Example {
    example
        .registers("m", &[("pool", "gold"), (TRUST, "secret"), ("machine:", "m1")])
        .stored(ALL)
        .leaves("m")
        .registers("m", &[("machine:", "m2")])
}

/// The third column: m1 registers under another name, more than once, and then under its own. At last, another machine registers under
/// another name, so that two columns apply.
fn other_name(name: &'static str, rules: &'static str) -> Example {
    example(name, rules)
        .registers("a", &[SLOT, ("pool", "gold"), (TRUST, "secret"), ("machine:", "m1")])
        .known_by("annotation:example.com/slot=7")
        .stored(ALL)
        .leaves("a")
        .registers("b", &[SLOT, ("machine:", "m1")])
        .known_by("annotation:example.com/slot=7")
        .has(UNTRUSTED_IN_SLOT)
        .stored(ALL)
        .leaves("b")
        .registers("b", &[SLOT, ("machine:", "m1")])
        .known_by("annotation:example.com/slot=7")
        .has(UNTRUSTED_IN_SLOT)
        .stored(ALL)
        .leaves("b")
        .registers("a", &[SLOT, ("machine:", "m1")])
        .known_by("annotation:example.com/slot=7")
        .has(ALL_IN_SLOT)
        .stored(ALL)
        .leaves("a")
        .registers("c", &[SLOT, ("machine:", "m2")])
        .known_by("annotation:example.com/slot=7")
}
