//! Annotations, to the byte: the API server takes 256 KiB of them.

use super::*;
use crate::rules::OtherMachine;

/// The room that is left for the marker while annotations are restored.
const FOR_THE_MARKER: usize = 16 << 10;

/// A Node whose own annotations leave this many bytes free.
fn with_free(bytes: usize) -> Node {
    let size = MAX_ANNOTATIONS - bytes;
    node("a").incarnation("u2").machine("B").annotated("own", &"x".repeat(size - "own".len()))
}

fn plan(node: &Node, record: &Record, conflicts: &str) -> Plan {
    let conflicts = conflicts.parse().expect("conflicts");
    let rules = Rules { conflicts, other_machine: OtherMachine::Untrusted, ..Rules::default() };
    plan_restore(node, Stored::Record(record), &rules, false)
}

/// The names of the annotations that come back.
fn restored(node: &Node, record: &Record, conflicts: &str) -> Vec<String> {
    plan(node, record, conflicts).patch.expect("a patch").restored.into_keys().collect()
}

#[test]
fn an_annotation_that_just_fits_is_restored_and_a_larger_one_is_not() {
    let record = record("a", "u1").label("annotation:abc", "defgh");
    assert_eq!(restored(&with_free(FOR_THE_MARKER + 8), &record, ""), ["annotation:abc"]);
    assert_eq!(restored(&with_free(FOR_THE_MARKER + 7), &record, ""), [""; 0]);
}

#[test]
fn every_annotation_takes_its_room() {
    let record = record("a", "u1")
        .label("annotation:abc", "defgh")
        .label("annotation:ij", "klm")
        .label("annotation:n", &"o".repeat(300));
    assert_eq!(
        restored(&with_free(FOR_THE_MARKER + 8 + 5 + 301), &record, ""),
        ["annotation:abc", "annotation:ij", "annotation:n"]
    );
    assert_eq!(
        restored(&with_free(FOR_THE_MARKER + 8 + 5 + 300), &record, ""),
        ["annotation:abc", "annotation:ij"]
    );
    // One that does not fit takes none.
    assert_eq!(restored(&with_free(FOR_THE_MARKER + 12), &record, ""), ["annotation:abc"]);
    assert_eq!(restored(&with_free(FOR_THE_MARKER + 7), &record, ""), ["annotation:ij"]);
}

#[test]
fn an_annotation_that_is_replaced_takes_what_is_longer_of_it() {
    let record = record("a", "u1").label("annotation:abc", "defgh").label("annotation:ij", "klm");
    let node = |free: usize| with_free(free + "abc".len() + "de".len()).annotated("abc", "de");
    let both = ["annotation:abc", "annotation:ij"];
    assert_eq!(restored(&node(FOR_THE_MARKER + 3 + 5), &record, "*=record"), both);
    assert_eq!(restored(&node(FOR_THE_MARKER + 3 + 4), &record, "*=record"), ["annotation:abc"]);
    assert_eq!(restored(&node(FOR_THE_MARKER + 2), &record, "*=record"), [""; 0]);
    // A shorter value takes no room, and makes none for others.
    let node = |free: usize| with_free(free + "abc".len() + 9).annotated("abc", &"x".repeat(9));
    assert_eq!(restored(&node(FOR_THE_MARKER + 5), &record, "*=record"), both);
    assert_eq!(restored(&node(FOR_THE_MARKER + 4), &record, "*=record"), ["annotation:abc"]);
}

#[test]
fn a_node_that_just_has_room_for_the_marker_is_restored_and_one_with_less_is_not() {
    let record = record("a", "u1").label("pool", "gold").label("annotation:owner", "me");
    let trusted = record.clone().label("node-restriction.kubernetes.io/tier", "x").machine("A");
    for (record, name) in [(&record, "annotation:owner"), (&trusted, "node-restriction.kubernetes.io/tier")] {
        let needed = |node: &Node| {
            let marker = plan(node, record, "").patch.expect("a patch").marker.expect("a marker");
            (RESTORED.len() + marker.len(), marker)
        };
        // The annotation does not fit, and the marker names all that is withheld.
        let (bytes, marker) = needed(&with_free(FOR_THE_MARKER));
        assert!(marker.contains(name) && marker.ends_with("too-large:annotation:owner"), "{marker}");
        assert_eq!(needed(&with_free(bytes)), (bytes, marker));
        // Where the names do not fit, the reasons do.
        let (fewest, short) = needed(&with_free(bytes - 1));
        assert!(short.ends_with("too-large:*") && fewest < bytes, "{short}");
        assert_eq!(needed(&with_free(fewest)), (fewest, short));
        let refused = plan(&with_free(fewest - 1), record, "");
        assert_eq!(refused, Plan { patch: None, reason: Reason::NoRoom });
    }
}

#[test]
fn the_old_marker_makes_room_for_the_new_one() {
    let record = record("a", "u1").label("pool", "gold");
    let node = with_free(100).annotated(RESTORED, &"x".repeat(500));
    assert_eq!(restored(&node, &record, ""), ["pool"]);
}

#[test]
fn a_marker_names_what_was_withheld_up_to_its_limit() {
    let node = node("a").incarnation("u2").machine("B");
    // The marker where many labels are withheld, and one more whose name can be longer.
    let marker = |many: usize, digits: usize| {
        let name = |at: usize, digits: usize| format!("node-restriction.kubernetes.io/{at:0digits$}");
        let record =
            (0..many).fold(record("a", "u1").machine("A"), |record, at| record.label(&name(at, 10), "x"));
        let record = record.label(&name(many, digits), "x");
        plan(&node, &record, "").patch.expect("a patch").marker.expect("a marker")
    };
    let (one, two) = (marker(1, 5).len(), marker(2, 5).len());
    let room = FOR_THE_MARKER - RESTORED.len() - one;
    let (more, rest) = (room / (two - one), room % (two - one));
    let longest = marker(1 + more, 5 + rest);
    assert_eq!(RESTORED.len() + longest.len(), FOR_THE_MARKER);
    assert!(marker(1 + more, 5 + rest + 1).ends_with("/other-machine:*"));
}
