mod rules;

use std::time::Duration;

use jiff::Timestamp;
use label_storage::record::{Leftovers, More, Version};
use label_storage::{Record, ResourceVersion, Uid};

use super::*;
use crate::storers::Passage;

/// One Node named `a`, whose history is written event by event.
struct World {
    fate: Fate,
    ledger: Ledger,
    revision: u64,
    at: Instant,
    /// True if storers have skipped deletions that are not stored.
    is_past: bool,
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), format!("a_{value}"))).collect()
}

impl World {
    fn new() -> Self {
        Self::with_rules("{}")
    }

    fn with_rules(rules: &str) -> Self {
        let rules = Rules::from_yaml(rules).expect("rules");
        let (fate, ledger) = (Fate::new("a", Arc::new(rules)), Ledger::default());
        Self { fate, ledger, revision: 0, at: Instant::now(), is_past: false }
    }

    fn node(&mut self, uid: &str, pairs: &[(&str, &str)], mark: Option<u64>) -> u64 {
        self.node_beside(uid, pairs, mark, |_| {})
    }

    fn node_beside(
        &mut self,
        uid: &str,
        pairs: &[(&str, &str)],
        mark: Option<u64>,
        edit: impl Fn(&mut SeenNode),
    ) -> u64 {
        self.revision += 1;
        let mut seen = SeenNode {
            name: "a".to_owned(),
            uid: uid.to_owned(),
            revision: self.revision,
            kept: labels(pairs),
            rest: Labels::new(),
            marker: mark.map(|generation| format!("{uid}/{generation}")),
            has_startup_taint: false,
        };
        edit(&mut seen);
        self.fate.node_written(seen, self.at, &mut self.ledger);
        self.revision
    }

    fn delete(&mut self, is_heard: bool) -> u64 {
        self.revision += 1;
        self.fate.node_deleted(self.revision, is_heard, self.at, &mut self.ledger);
        self.revision
    }

    /// The record, made from this version of the Node.
    fn record(&mut self, uid: &str, version: u64, pairs: &[(&str, &str)], departed: bool) {
        self.record_but(uid, version, pairs, departed, |_| {});
    }

    fn record_but(
        &mut self,
        uid: &str,
        version: u64,
        pairs: &[(&str, &str)],
        departed: bool,
        edit: impl Fn(&mut Record),
    ) {
        self.revision += 1;
        let before = self.fate.record.as_ref().map(|seen| &seen.record);
        let generation = before.map_or(1, |record| record.generation + 1);
        let is_changed = before.is_none_or(|record| record.labels != labels(pairs));
        let labels_generation =
            if is_changed { Some(generation) } else { before.and_then(|record| record.labels_generation) };
        let mut history = before.map(|record| record.more.history.clone()).unwrap_or_default();
        if let Some(before) = before.filter(|before| is_changed && !before.labels.is_empty()) {
            let generation = before.labels_generation.unwrap_or_default();
            history.push(Version { generation, at: None, labels: before.labels.clone() });
        }
        let history = history.split_off(history.len().saturating_sub(self.fate.rules.history));
        let mut record = Record {
            config_map: None,
            node: "a".to_owned(),
            uid: Uid::new(uid),
            node_version: Some(ResourceVersion(version)),
            generation,
            labels_generation,
            captured_at: None,
            departed_at: departed.then_some(Timestamp::UNIX_EPOCH),
            labels: labels(pairs),
            more: More { history, ..More::default() },
            leftovers: Leftovers::default(),
        };
        edit(&mut record);
        let seen = SeenRecord { revision: self.revision, record };
        let is_past = self.is_past;
        self.fate.record_written(seen, |_, _| is_past, self.at, &mut self.ledger);
    }

    fn later(&mut self, seconds: u64) {
        self.at += Duration::from_secs(seconds);
    }

    /// A Node with one label, which is stored.
    fn stored() -> Self {
        Self::stored_with_rules("{}")
    }

    fn stored_with_rules(rules: &str) -> Self {
        let mut world = Self::with_rules(rules);
        let version = world.node("u1", &[("k", "1")], None);
        world.record("u1", version, &[("k", "1")], false);
        world
    }

    /// The same Node, deleted and re-created without the label.
    fn returned() -> Self {
        let mut world = Self::stored();
        world.delete(true);
        world.node("u2", &[], None);
        world
    }

    fn wrongs(&self) -> Vec<Kind> {
        self.ledger.wrongs.iter().map(|wrong| wrong.kind).collect()
    }
}

#[test]
fn what_should_happen_is_right() {
    let mut world = World::returned();
    assert!(world.fate.check().is_err(), "not restored yet");
    let version = world.node("u2", &[("k", "1")], Some(1));
    assert!(world.fate.check().is_err(), "its record is still of the first incarnation");
    world.record("u2", version, &[("k", "1")], false);
    assert_eq!(world.fate.check(), Ok(()));
    assert_eq!((world.wrongs(), world.ledger.undetermined.total()), (vec![], 0));
    assert!(world.fate.view().is_stored);
}

#[test]
fn a_label_that_is_missing_for_good_is_lost() {
    let mut world = World::returned();
    let version = world.node("u2", &[], Some(1));
    assert_eq!(world.wrongs(), [], "it may still be restored");
    world.record("u2", version, &[], false);
    assert_eq!(world.wrongs(), [Kind::Lost]);
}

#[test]
fn an_older_value_is_as_bad() {
    let mut world = World::stored();
    let version = world.node("u1", &[("k", "2")], None);
    world.record("u1", version, &[("k", "2")], false);
    world.delete(true);
    world.node("u2", &[], None);
    world.node("u2", &[("k", "1")], Some(1));
    assert_eq!(world.wrongs(), [Kind::Resurrected]);
}

#[test]
fn a_removed_label_that_is_back_is_resurrected() {
    let mut world = World::stored();
    let version = world.node("u1", &[], None);
    world.record("u1", version, &[], false);
    world.delete(true);
    world.node("u2", &[], None);
    world.node("u2", &[("k", "1")], Some(1));
    assert_eq!(world.wrongs(), [Kind::Resurrected]);
}

#[test]
fn a_daemon_may_add_and_nothing_else() {
    for pairs in [&[][..], &[("k", "1")]] {
        let mut world = World::stored();
        world.delete(true);
        world.node("u2", &[("k", "2")], None);
        world.node("u2", pairs, Some(1));
        assert_eq!(world.wrongs()[0], Kind::Overwritten, "{pairs:?}");
    }
}

#[test]
fn a_value_that_nobody_set_is_noticed() {
    let mut world = World::stored();
    world.node_beside("u1", &[], None, |seen| _ = seen.kept.insert("k".to_owned(), "b_1".to_owned()));
    assert_eq!(world.wrongs(), [Kind::Foreign]);
}

#[test]
fn a_record_has_to_say_what_its_node_said() {
    let tell: [fn(&mut World); 5] = [
        |world| world.record("u1", 1, &[("k", "2")], false),
        |world| world.record("u1", 7, &[("k", "1")], false),
        |world| {
            let version = world.node("u1", &[("k", "2")], None);
            world.record("u1", version, &[("k", "3")], false);
        },
        |world| {
            let version = world.node("u1", &[("k", "2")], None);
            world.record("u1", version, &[("k", "2")], false);
            world.record("u1", 1, &[("k", "1")], false);
        },
        |world| world.fate.record_deleted(9, &mut world.ledger),
    ];
    for (number, tell) in tell.iter().enumerate() {
        let mut world = World::stored();
        tell(&mut world);
        assert_eq!(world.wrongs(), [Kind::BadRecord], "{number}");
    }
}

#[test]
fn final_labels_have_to_be_stored() {
    let mut world = World::stored();
    world.node("u1", &[("k", "2")], None);
    let deleted = world.delete(true);
    assert!(world.fate.check().is_err());
    world.later(10);
    world.node("u2", &[], None);
    world.record("u1", deleted, &[("k", "2")], true);
    assert_eq!(world.ledger.final_labels_kept, 1);
    let version = world.node("u2", &[("k", "2")], Some(2));
    world.record("u2", version, &[("k", "2")], false);
    assert_eq!((world.wrongs(), world.ledger.undetermined.total()), (vec![], 0));
}

#[test]
fn final_labels_that_nobody_could_hear_are_undetermined_and_what_came_before_is_not() {
    let mut world = World::stored();
    world.node("u1", &[("k", "1"), ("l", "2")], None);
    world.delete(false);
    assert_eq!(world.ledger.undetermined.unheard, 1);
    world.node("u2", &[], None);
    let version = world.node("u2", &[], Some(1));
    world.record("u2", version, &[], false);
    assert_eq!(world.wrongs(), [Kind::Lost], "k was stored long ago");
}

#[test]
fn a_return_at_once_may_overtake_the_last_change_and_a_later_one_may_not() {
    for (seconds, is_fair, wrongs) in [(0, true, vec![]), (10, true, vec![Kind::Lost]), (10, false, vec![])] {
        let mut world = World::stored();
        world.ledger.is_fair = is_fair;
        world.node("u1", &[("k", "2")], None);
        world.delete(true);
        world.later(seconds);
        world.node("u2", &[], None);
        let version = world.node("u2", &[("k", "1")], Some(1));
        world.record("u2", version, &[("k", "1")], false);
        assert_eq!(world.wrongs(), wrongs, "{seconds} {is_fair}");
        assert!(wrongs.is_empty() == (world.ledger.undetermined.total() > 0));
    }
}

#[test]
fn a_label_removed_before_the_node_was_restored_may_come_back() {
    let mut world = World::stored();
    world.delete(true);
    world.node("u2", &[("k", "2")], None);
    world.node("u2", &[], None);
    world.node("u2", &[("k", "1")], Some(1));
    assert_eq!(world.wrongs(), []);
    assert_eq!(world.ledger.undetermined.removed_unrestored, 1);
}

#[test]
fn a_node_that_is_away_has_a_record_that_says_so() {
    let mut world = World::stored();
    world.delete(true);
    assert!(world.fate.check().is_err());
    world.record("u1", 1, &[("k", "1")], true);
    assert_eq!(world.fate.check(), Ok(()));
}

#[test]
fn what_an_earlier_incarnation_said_last_comes_back_too_where_it_is_stored_late() {
    let mut world = World::stored();
    world.node("u1", &[("k", "1"), ("late", "1")], None);
    let deleted = world.delete(true);
    world.node("u2", &[("late", "2")], None);
    world.node("u2", &[], None);
    world.node("u2", &[("k", "1")], Some(1));
    world.record("u1", deleted, &[("k", "1"), ("late", "1")], true);
    world.node("u2", &[("k", "1"), ("late", "1")], Some(2));
    assert_eq!((world.wrongs(), world.ledger.undetermined.removed_unrestored), (vec![], 1));
}

#[test]
fn a_last_change_that_is_stored_from_a_view_before_the_deletion_is_stored() {
    let mut world = World::stored();
    let changed = world.node("u1", &[("k", "2")], None);
    world.delete(true);
    world.ledger.is_fair = true;
    world.record("u1", changed, &[("k", "2")], false);
    world.later(60);
    world.record("u1", changed, &[("k", "2")], true);
    world.node("u2", &[], None);
    let restored = world.node("u2", &[("k", "2")], Some(2));
    world.record("u2", restored, &[("k", "2")], false);
    assert_eq!((world.wrongs(), world.ledger.undetermined.total()), (vec![], 0));
    assert_eq!(world.ledger.final_labels_kept, 1);
}

#[test]
fn a_node_without_labels_and_without_a_record_leaves_nothing_behind() {
    let mut world = World::stored();
    let removed = world.node("u1", &[], None);
    world.record("u1", removed, &[], false);
    world.revision += 1;
    world.fate.record_deleted(world.revision, &mut world.ledger);
    world.delete(true);
    world.ledger.is_fair = true;
    world.later(60);
    let labelled = world.node("u2", &[("other", "2")], None);
    world.record("u2", labelled, &[("other", "2")], false);
    assert_eq!((world.wrongs(), world.ledger.undetermined.total()), (vec![], 0));
}

/// A Node that was deleted after a change which is not stored, and then judged.
fn judged(passage: &Passage) -> World {
    let mut world = World::stored();
    world.node("u1", &[("k", "2")], None);
    world.delete(true);
    world.fate.judge_deletions(|_, _| passage.clone(), |_, _| false, &mut world.ledger);
    world
}

#[test]
fn a_last_change_that_one_storer_forgot_is_undetermined_once_no_other_has_to_store_it() {
    for (is_forgotten, undetermined) in [(true, 1), (false, 0)] {
        let mut world = judged(&Passage::Ahead);
        world.fate.judge_deletions(|_, _| Passage::Ahead, |_, _| is_forgotten, &mut world.ledger);
        assert_eq!(world.ledger.undetermined.unheard, 0);
        world.fate.judge_deletions(|_, _| Passage::Unclaimed, |_, _| false, &mut world.ledger);
        assert_eq!((world.wrongs(), world.ledger.undetermined.unheard), (vec![], undetermined));
    }
}

#[test]
fn a_last_change_that_the_api_server_forgot_is_undetermined() {
    let mut world = judged(&Passage::Forgotten);
    assert_eq!((world.wrongs(), world.ledger.undetermined.unheard), (vec![], 1));
    world.record("u1", 1, &[("k", "1")], true);
    assert_eq!(world.fate.check(), Ok(()));
}

#[test]
fn a_last_change_that_a_storer_skipped_is_lost() {
    let mut world = judged(&Passage::Skipped("storer-0".to_owned()));
    assert_eq!((world.wrongs(), world.ledger.undetermined.total()), (vec![Kind::Lost], 0));
    world.fate.judge_deletions(
        |_, _| Passage::Skipped("storer-0".to_owned()),
        |_, _| false,
        &mut world.ledger,
    );
    world.record("u1", 1, &[("k", "1")], true);
    assert_eq!(world.fate.check(), Ok(()), "reported once");
    assert_eq!(world.wrongs().len(), 1);
}

#[test]
fn a_last_change_that_is_still_ahead_has_to_be_stored() {
    let mut world = judged(&Passage::Ahead);
    world.record("u1", 1, &[("k", "1")], true);
    assert!(world.fate.check().is_err());
    assert_eq!((world.wrongs(), world.ledger.undetermined.total()), (vec![], 0));
}

#[test]
fn a_change_that_was_undone_before_the_deletion_is_not_lost() {
    let mut world = World::stored();
    world.node("u1", &[("k", "2")], None);
    world.node("u1", &[("k", "1")], None);
    world.delete(true);
    world.fate.judge_deletions(
        |_, _| Passage::Skipped("storer-0".to_owned()),
        |_, _| false,
        &mut world.ledger,
    );
    world.record("u1", 1, &[("k", "1")], true);
    assert_eq!((world.fate.check(), world.wrongs()), (Ok(()), vec![]));
}

#[test]
fn a_last_change_that_was_skipped_is_not_overtaken_but_lost() {
    for is_past in [false, true] {
        let mut world = World::stored();
        world.node("u1", &[("k", "2")], None);
        world.delete(true);
        world.later(10);
        world.node("u2", &[], None);
        let version = world.node("u2", &[("k", "1")], Some(1));
        world.is_past = is_past;
        world.record("u2", version, &[("k", "1")], false);
        assert_eq!(world.wrongs(), if is_past { vec![Kind::Lost] } else { vec![] });
    }
}

#[test]
fn a_last_change_that_the_api_server_has_dropped_was_not_overtaken() {
    for is_dropped in [false, true] {
        let mut world = World::stored();
        world.node("u1", &[("k", "2")], None);
        world.delete(true);
        world.node("u2", &[], None);
        world.fate.note_dropped(|_, _| is_dropped);
        world.node("u2", &[("k", "1")], Some(1));
        let undetermined = &world.ledger.undetermined;
        let counts = (undetermined.unheard, undetermined.overtaken_at_once);
        assert_eq!(counts, if is_dropped { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn a_last_change_that_the_next_incarnation_was_given_is_kept() {
    for (value, kept, overtaken) in [("2", 1, 0), ("1", 0, 1)] {
        let mut world = World::stored();
        world.node("u1", &[("k", "2")], None);
        world.delete(true);
        world.node("u2", &[], None);
        let version = world.node("u2", &[("k", value)], Some(1));
        world.record("u2", version, &[("k", value)], false);
        let undetermined = &world.ledger.undetermined;
        assert_eq!((world.wrongs(), world.ledger.final_labels_kept), (vec![], kept), "{value}");
        assert_eq!(undetermined.overtaken_at_once.min(1), overtaken, "{value}");
    }
}

#[test]
fn a_node_restored_from_a_record_of_long_ago_is_an_error_in_fair_weather() {
    for (seconds, wrongs) in [(0, vec![]), (10, vec![Kind::Lost])] {
        let mut world = World::stored();
        world.ledger.is_fair = true;
        world.node("u1", &[("k", "2")], None);
        let deleted = world.delete(true);
        world.node("u2", &[], None);
        world.record("u1", deleted, &[("k", "2")], true);
        world.later(seconds);
        world.node("u2", &[("k", "1")], Some(1));
        assert_eq!(world.wrongs(), wrongs, "{seconds}");
    }
}

#[test]
fn a_label_removed_after_the_node_was_restored_stays_removed() {
    let mut world = World::returned();
    world.node("u2", &[("k", "1")], Some(1));
    world.node("u2", &[], Some(1));
    assert_eq!(world.ledger.undetermined.removed_unrestored, 0);
    world.node("u2", &[("k", "1")], Some(2));
    assert_eq!(world.wrongs(), [Kind::Resurrected]);
}
