use label_storage::summary::NodeSummary;
use label_storage::{Labels, ResourceVersion, summary};

use super::*;

/// A Node that was created so many seconds ago, of the incarnation and with the label of this number.
fn waiting(standing: Standing, seconds: i64, number: u128) -> Waiting {
    let labels = Labels::from([("pool".to_owned(), number.to_string())]);
    let summary = NodeSummary {
        uid: label_storage::Uid::new(format!("u{number}")).expect("a uid").digest(),
        version: ResourceVersion(7),
        labels: summary::digest(&labels),
        restored_from: None,
        traits: Default::default(),
    };
    let created_at = Timestamp::now() - SignedDuration::from_secs(seconds);
    Waiting { node: "a".into(), standing, summary, created_at: Some(created_at) }
}

/// Looks at this, at these seconds. What follows from the last look: the reasons, and whether it is unsure.
fn looks(looks: impl IntoIterator<Item = (u64, Waiting)>) -> (Vec<&'static str>, bool) {
    let limits = Limits { patience: Duration::from_secs(6), overdue: Duration::from_secs(60) };
    let (mut memory, began) = (Memory::default(), Instant::now());
    let reports = looks.into_iter().map(|(seconds, node)| {
        let standings = Some(Standings { waiting: vec![node], ..Standings::default() });
        let look = Look { at: Timestamp::now(), nodes: Some(1), standings, ..Look::default() };
        Report::of(look, &mut memory, limits, "here", Scope::All, began + Duration::from_secs(seconds))
    });
    let last = reports.last().expect("a look");
    (last.reasons.iter().map(|reason| reason.reason).collect(), last.is_unsure)
}

#[test]
fn what_may_be_work_in_progress_counts_only_if_it_stays() {
    for (standing, reason) in [
        (Standing::Pending, "restore-overdue"),
        (Standing::Unstored, "record-overdue"),
        (Standing::Differs, "labels-not-stored"),
    ] {
        let old = |number| waiting(standing, 120, number);
        assert_eq!(looks([(0, old(1))]), (vec![], true), "{standing:?}");
        assert_eq!(looks([(0, old(1)), (3, old(1))]), (vec![], true), "{standing:?}");
        assert_eq!(looks([(0, old(1)), (6, old(1))]), (vec![reason], false), "{standing:?}");
        assert_eq!(looks([(0, old(1)), (6, old(2))]), (vec![], true), "{standing:?}");
    }
}

#[test]
fn a_node_that_has_only_just_come_may_wait_but_not_with_labels_that_were_stored_before() {
    for (standing, reasons) in [
        (Standing::Pending, vec![]),
        (Standing::Unstored, vec![]),
        (Standing::Differs, vec!["labels-not-stored"]),
    ] {
        let young = || waiting(standing, 30, 1);
        assert_eq!(looks([(0, young()), (6, young())]), (reasons, false), "{standing:?}");
    }
}
