//! The effect of the rules.

use super::*;

#[test]
fn a_daemon_leaves_alone_what_is_not_kept() {
    let tell: [fn(&mut SeenNode); 2] =
        [|_| {}, |seen| seen.rest = labels(&[("excluded", "2"), ("annotation:other", "3")])];
    for tell in tell {
        let mut world = World::stored();
        world.delete(true);
        world.node_beside("u2", &[], None, |seen| seen.rest = labels(&[("excluded", "2")]));
        world.node_beside("u2", &[("k", "1")], Some(1), tell);
        assert_eq!(world.wrongs(), [Kind::Overwritten]);
    }
}

#[test]
fn a_record_has_the_history_that_the_rules_say() {
    for (rules, kept) in [("{}", 3), ("history: 1", 1), ("history: 0", 0)] {
        let mut world = World::stored_with_rules(rules);
        for value in ["2", "3", "4", "5"] {
            let version = world.node("u1", &[("k", value)], None);
            world.record("u1", version, &[("k", value)], false);
        }
        assert_eq!(
            (world.wrongs(), world.fate.record.as_ref().map(|seen| seen.record.more.history.len())),
            (vec![], Some(kept))
        );
        let version = world.node("u1", &[("k", "6")], None);
        world.record_but("u1", version, &[("k", "6")], false, |record| _ = record.more.history.pop());
        assert_eq!(world.wrongs().len(), usize::from(kept > 0), "{rules}");
    }
}

#[test]
fn a_record_names_its_node() {
    let mut world = World::stored();
    let version = world.node("u1", &[("k", "2")], None);
    world.record_but("u1", version, &[("k", "2")], false, |record| record.node = "b".to_owned());
    assert_eq!(world.wrongs(), [Kind::BadRecord]);
}

#[test]
fn an_empty_record_in_the_place_of_a_create_that_may_arrive_is_right() {
    let mut world = World::new();
    world.node("u1", &[], None);
    let tombstone =
        |record: &mut Record| (record.uid, record.node_version) = (None, Some(ResourceVersion(0)));
    world.record_but("", 0, &[], false, tombstone);
    assert_eq!((world.wrongs(), world.fate.check()), (vec![], Ok(())));
    world.record_but("", 0, &[("k", "1")], false, tombstone);
    assert_eq!(world.wrongs(), [Kind::BadRecord]);
}

const RECORD_WINS: &str = "conflicts: [{keys: [k], wins: record}]";

#[test]
fn where_the_record_wins_it_has_to() {
    for (value, wrongs) in [("1", vec![]), ("2", vec![Kind::Resurrected])] {
        let mut world = World::stored_with_rules(RECORD_WINS);
        world.delete(true);
        world.node("u2", &[("k", "2")], None);
        world.node("u2", &[("k", value)], Some(1));
        assert_eq!(world.wrongs(), wrongs, "{value}");
    }
}

#[test]
fn where_the_record_wins_it_does_so_once_and_never_removes() {
    let mut world = World::stored_with_rules(RECORD_WINS);
    world.delete(true);
    world.node("u2", &[("k", "2")], None);
    world.node("u2", &[], Some(1));
    assert_eq!(world.wrongs(), [Kind::Overwritten]);

    let mut world = World::stored_with_rules(RECORD_WINS);
    world.delete(true);
    world.node("u2", &[], None);
    world.node("u2", &[("k", "1")], Some(1));
    world.node("u2", &[("k", "2")], Some(1));
    assert_eq!(world.wrongs(), []);
    world.node("u2", &[("k", "1")], Some(2));
    assert_eq!(world.wrongs(), [Kind::Overwritten], "a person has changed it since");
}

#[test]
fn where_the_record_wins_but_has_nothing_the_last_value_of_the_node_counts() {
    let mut world = World::stored_with_rules("conflicts: [{keys: [l], wins: record}]");
    world.delete(true);
    world.node("u2", &[("l", "2")], None);
    world.node("u2", &[("l", "3")], None);
    let version = world.node("u2", &[("k", "1"), ("l", "3")], Some(1));
    world.record("u2", version, &[("k", "1"), ("l", "3")], false);
    assert_eq!((world.wrongs(), world.fate.check()), (vec![], Ok(())));
}

#[test]
fn where_the_record_wins_a_node_that_left_unrestored_does_not_change_it() {
    for (value, wrongs) in [("1", vec![]), ("2", vec![Kind::Resurrected])] {
        let mut world = World::stored_with_rules(RECORD_WINS);
        world.delete(true);
        world.node("u2", &[("k", "2"), ("l", "2")], None);
        let deleted = world.delete(true);
        world.record("u2", deleted, &[("k", value), ("l", "2")], true);
        world.node("u3", &[], None);
        world.node("u3", &[("k", value), ("l", "2")], Some(2));
        assert_eq!(world.wrongs(), wrongs, "{value}");
    }
}

const STARTUP_TAINT: &str = "startupTaint: {enabled: true, atMost: 1m}";

/// A Node that was re-created with the start-up taint.
fn tainted() -> World {
    let mut world = World::stored_with_rules(STARTUP_TAINT);
    world.delete(true);
    world.node_beside("u2", &[], None, |seen| seen.has_startup_taint = true);
    world
}

#[test]
fn the_start_up_taint_goes_with_the_restore_or_when_its_time_is_over() {
    let mut world = tainted();
    let version = world.node("u2", &[("k", "1")], Some(1));
    world.record("u2", version, &[("k", "1")], false);
    assert_eq!((world.wrongs(), world.fate.check()), (vec![], Ok(())));

    for (seconds, wrongs) in [(0, vec![Kind::StartupTaint]), (60, vec![])] {
        let mut world = tainted();
        world.later(seconds);
        world.node("u2", &[], None);
        assert_eq!(world.wrongs(), wrongs, "{seconds}");
    }

    let mut world = tainted();
    let version = world.node_beside("u2", &[("k", "1")], Some(1), |seen| seen.has_startup_taint = true);
    assert_eq!(world.wrongs(), [Kind::StartupTaint]);
    world.record("u2", version, &[("k", "1")], false);
    assert!(world.fate.check().is_err(), "the taint is still there");
}

#[test]
fn the_start_up_taint_goes_at_once_where_nothing_is_to_be_restored() {
    let mut world = World::with_rules(STARTUP_TAINT);
    world.node_beside("u1", &[], None, |seen| seen.has_startup_taint = true);
    world.node("u1", &[], None);
    assert_eq!((world.wrongs(), world.fate.check()), (vec![], Ok(())));
    world.delete(true);
    world.node_beside("u2", &[], None, |seen| seen.has_startup_taint = true);
    world.node("u2", &[("k", "1")], None);
    assert_eq!(
        world.wrongs(),
        [Kind::Foreign],
        "only the restorer may remove the taint, and may change nothing else with it"
    );
}
