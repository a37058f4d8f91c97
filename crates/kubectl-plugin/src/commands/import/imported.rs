//! The record that an import writes.

use jiff::Timestamp;
use label_storage::restore::Reason;
use label_storage::store::Stored;
use label_storage::{Node, Record, ResourceVersion, Rules, Uid, plan_restore};
use label_storage_runtime::records::Found;

/// In place of the incarnation of an imported record. No Node has this uid.
pub(crate) const NOBODY: &str = "imported";

/// The plan for a record of the file, or its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Intent {
    Create,
    /// The stored record differs, and has this version.
    Replace(ResourceVersion),
    Keep,
    Skip(&'static str),
    /// The stored ConfigMap is in the way.
    Block(String),
}

/// Compares a record with the stored one. Times, generations and history do not count.
pub(super) fn compare(record: &Record, found: Option<&Found>) -> Intent {
    let content = |record: &Record| {
        let Record { node, labels, leftovers, more, .. } = record.clone();
        (node, labels, leftovers, more.identity, more.machine, more.withheld)
    };
    match found.map(|found| (&found.content, found.version())) {
        None => Intent::Create,
        Some((Err(error), _)) => Intent::Block(error.to_string()),
        Some((Ok(stored), _)) if content(&stored.record) == content(record) => Intent::Keep,
        Some((Ok(_), version)) => Intent::Replace(version.unwrap_or(ResourceVersion(0))),
    }
}

/// The effect of a record on an existing Node, as the restorer decides it. If the restorer would not restore the Node, the
/// record is skipped: the storer would wait for that restore.
pub(super) fn effect(record: &Record, node: &Node, rules: &Rules) -> Intent {
    let plan = plan_restore(node, Stored::Record(record), rules, false);
    let is_whole = plan.patch.is_some_and(|patch| patch.restored.is_empty() && patch.withheld.is_empty());
    match plan.reason {
        Reason::Returned | Reason::ReturnedWhole if is_whole => Intent::Keep,
        Reason::Returned | Reason::ReturnedWhole | Reason::SeenInPart => Intent::Create,
        reason => Intent::Skip(reason.as_str()),
    }
}

/// The record of a file over the stored one.
///
/// - It belongs to no incarnation, so the restorer gives it to the Node, and the storer waits for that.
/// - It is as new as the stored record: a late event of a deletion that is stored already must not undo it.
/// - Its generation is above the stored one and the Node's marker, or the Node would count as restored already.
/// - A Node that does not exist departed now: its retention begins, and the storer does not see a mass loss of Nodes.
pub(super) fn imported(
    file: &Record,
    before: Option<&Record>,
    node: Option<&Node>,
    now: Timestamp,
    rules: &Rules,
) -> Record {
    let mut record = file.clone();
    record.uid = Uid::new(NOBODY);
    record.node_version = Some(before.and_then(|before| before.node_version).unwrap_or(ResourceVersion(0)));
    record.departed_at = node.is_none().then_some(now);
    record.captured_at.get_or_insert(now);
    if let Some(before) = before {
        record.more.history = before.history_under(file, rules);
    }
    let marker = node.and_then(Node::restored_from).map_or(0, |from| from.generation);
    let newest = record.more.history.last().map_or(0, |version| version.generation);
    let least = marker.max(newest).max(before.map_or(0, |before| before.generation));
    if least > 0 {
        record.generation = record.generation.max(least.saturating_add(1));
    }
    record.labels_generation = Some(record.generation);
    record
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use label_storage::record::Version;
    use label_storage::restore;
    use label_storage::store::{self, Circumstances, Sighting, Stored};
    use label_storage::{Labels, plan_restore, plan_store};

    use super::*;

    fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn node(version: &str, kept: Labels, marker: Option<&str>) -> Node {
        Node::new("a".to_owned(), "u1".to_owned(), version, kept, marker.map(str::to_owned)).expect("a node")
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("a time")
    }

    fn at() -> Circumstances {
        let (retention, unchanged_for) = (Duration::from_secs(60), Duration::from_secs(3600));
        Circumstances { unchanged_for, retention, ..Circumstances::at(now()) }
    }

    /// What a file says of the Node that has been gone for a year.
    fn file(kept: Labels) -> Record {
        let mut record = Record::of(&node("7", kept, None), Timestamp::UNIX_EPOCH);
        (record.uid, record.node_version, record.labels_generation) = (None, None, None);
        record.departed_at = Some(Timestamp::UNIX_EPOCH);
        record
    }

    fn stores(sighting: Sighting<&Node>, record: &Record) -> store::Reason {
        plan_store(sighting, Stored::Record(record), at(), &Rules::default()).reason
    }

    fn restores(node: &Node, record: &Record) -> restore::Reason {
        plan_restore(node, Stored::Record(record), &Rules::default(), false).reason
    }

    #[test]
    fn a_backup_is_kept_for_the_whole_retention_however_old_it_is() {
        let record = imported(&file(labels([("a", "1")])), None, None, now(), &Rules::default());
        assert_eq!(record.departed_at, Some(now()));
        assert_eq!(stores(Sighting::Gone, &record), store::Reason::Away);
        let returned = node("9", Labels::new(), None);
        assert_eq!(stores(Sighting::Live(&returned), &record), store::Reason::Returned);
        assert_eq!(restores(&returned, &record), restore::Reason::Returned);
    }

    #[test]
    fn no_marker_says_that_a_living_node_has_it_already() {
        for marker in [None, Some("u1"), Some("u1/1"), Some("u1/99"), Some("u0/99")] {
            let (own, lost) = (labels([("a", "1")]), labels([("a", "1"), ("lost", "found")]));
            let living = node("9", own.clone(), marker);
            let before = Record::of(&living, now());
            let record = imported(&file(lost), Some(&before), Some(&living), now(), &Rules::default());
            assert_eq!(restores(&living, &record), restore::Reason::Returned, "{marker:?}");
            assert_eq!(
                stores(Sighting::Live(&living), &record),
                store::Reason::AwaitingRestore,
                "{marker:?}"
            );
            assert_eq!(record.more.history.iter().map(|version| &version.labels).collect::<Vec<_>>(), [&own]);
        }
    }

    #[test]
    fn a_deletion_that_was_stored_before_does_not_undo_an_import() {
        let deleted = node("9", labels([("a", "old")]), None);
        let before = Record { departed_at: Some(now()), ..Record::of(&deleted, now()) };
        let record = imported(&file(labels([("a", "new")])), Some(&before), None, now(), &Rules::default());
        assert_eq!(stores(Sighting::Deleted(&deleted), &record), store::Reason::ViewOlderThanRecord);
        assert!(record.generation > before.generation);
        // One that nobody has stored yet loses nothing.
        let record = imported(&file(labels([("b", "new")])), None, None, now(), &Rules::default());
        assert_eq!(stores(Sighting::Deleted(&deleted), &record), store::Reason::LeftUnrestored);
    }

    #[test]
    fn history_is_as_long_as_the_rules_say() {
        let mut before = Record::of(&node("9", labels([("a", "0")]), None), now());
        let rules = Rules { history: 2, ..Rules::default() };
        for value in ["1", "2", "3"] {
            before = imported(&file(labels([("a", value)])), Some(&before), None, now(), &rules);
        }
        let values: Vec<_> = before.more.history.iter().map(|version| version.labels["a"].as_str()).collect();
        assert_eq!((values, before.generation), (vec!["1", "2"], 4));
        // That of the file is history, too.
        let mut with_history = file(labels([("a", "4")]));
        with_history.more.history =
            vec![Version { generation: 1, at: None, labels: labels([("a", "file")]) }];
        let after = imported(&with_history, Some(&before), None, now(), &Rules { history: 9, ..rules });
        let versions: Vec<_> = after
            .more
            .history
            .iter()
            .map(|version| (version.generation, version.labels["a"].as_str()))
            .collect();
        assert_eq!((versions, after.generation), (vec![(1, "file"), (2, "1"), (3, "2"), (4, "3")], 5));
    }
}
