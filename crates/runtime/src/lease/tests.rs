use std::time::Instant;

use serde_json::json;

use super::tracker::{ABSENCE, LeaseAction, LeaseTracker, Me, decide};
use super::*;

fn of(replicas: u32) -> NonZeroU32 {
    NonZeroU32::new(replicas).expect("not zero")
}

fn shard(index: u32, replicas: u32) -> Shard {
    Shard { index, replicas: of(replicas) }
}

fn me() -> Me {
    Me { identity: "storer-1".to_owned(), home: shard(1, 3) }
}

fn held_by(holder: Option<&str>, home: u32, version: u64) -> SeenLease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(version.to_string());
    lease.metadata.annotations = Some([(HOME.to_owned(), home.to_string())].into());
    lease.spec = Some(LeaseSpec { holder_identity: holder.map(str::to_owned), ..LeaseSpec::default() });
    SeenLease::new(lease)
}

#[test]
fn a_lease_is_taken_where_nobody_renews_it_or_it_is_ones_own() {
    let (home, other, long) = (shard(1, 3), shard(2, 3), LIFETIME);
    let soon = Duration::ZERO;
    for (shard, holder, unchanged_for, step) in [
        // One's own.
        (home, None, soon, LeaseAction::Take),
        (home, Some((Some("storer-1"), 1)), soon, LeaseAction::Renew),
        (home, Some((Some("storer-0"), 0)), soon, LeaseAction::Take),
        (home, Some((None, 1)), soon, LeaseAction::Take),
        // Another replica was started for the same shard.
        (home, Some((Some("other-1"), 1)), soon, LeaseAction::Leave),
        (home, Some((Some("other-1"), 1)), long, LeaseAction::Take),
        // Another's.
        (other, None, soon, LeaseAction::Leave),
        (other, None, ABSENCE, LeaseAction::Take),
        (other, Some((Some("storer-2"), 2)), soon, LeaseAction::Leave),
        (other, Some((Some("storer-2"), 2)), long - Duration::from_millis(1), LeaseAction::Leave),
        (other, Some((Some("storer-2"), 2)), long, LeaseAction::Take),
        (other, Some((Some("storer-0"), 0)), soon, LeaseAction::Leave),
        (other, Some((Some("storer-1"), 1)), soon, LeaseAction::Renew),
        (other, Some((None, 2)), soon, LeaseAction::Take),
        (other, Some((Some(""), 2)), soon, LeaseAction::Take),
    ] {
        let seen = holder.map(|(holder, home)| held_by(holder, home, 1));
        assert_eq!(decide(&me(), shard, seen.as_ref(), unchanged_for, ABSENCE), step, "{shard:?} {holder:?}");
    }
}

#[test]
fn only_looks_that_follow_each_other_closely_show_that_nobody_renews() {
    let second = Duration::from_secs(1);
    let (mut tracker, now) = (LeaseTracker::default(), Instant::now());
    let look = |tracker: &mut LeaseTracker, version, seconds| {
        let all = All::from([(shard(0, 2), held_by(Some("a"), 0, version))]);
        let now = now + second * seconds;
        tracker.look(&all, [shard(0, 2), shard(1, 2)].into_iter(), now);
        [0, 1].map(|index| tracker.unchanged_for(shard(index, 2), now).as_secs())
    };
    assert_eq!(look(&mut tracker, 1, 0), [0, 0]);
    assert_eq!(look(&mut tracker, 1, 2), [2, 2]);
    assert_eq!(look(&mut tracker, 2, 4), [0, 4], "renewed");
    assert_eq!(look(&mut tracker, 2, 6), [2, 6]);
    assert_eq!(look(&mut tracker, 1, 8), [0, 8], "an older answer is no proof either");
    assert_eq!(look(&mut tracker, 1, 3600), [0, 0], "nobody looked for an hour");
    assert_eq!(look(&mut tracker, 1, 3601), [1, 1]);
}

#[test]
fn a_renewal_that_the_watch_reports_counts_if_it_is_newer_and_follows_closely() {
    let second = Duration::from_secs(1);
    let (mut tracker, start) = (LeaseTracker::default(), Instant::now());
    let mut at = |index, version, seconds| {
        let now = start + second * seconds;
        if seconds == 0 {
            let all = [0, 1].map(|index| (shard(index, 2), held_by(Some("a"), index, 5)));
            tracker.look(&All::from(all), std::iter::empty(), now);
        }
        tracker.changed(shard(index, 2), Some(ResourceVersion(version)), now);
        let last = tracker.last.map(|last| (last - start).as_secs());
        (last, [0, 1].map(|index| tracker.unchanged_for(shard(index, 2), now).as_secs()))
    };
    assert_eq!(at(0, 4, 0), (Some(0), [0, 0]));
    assert_eq!(at(0, 6, 6), (Some(6), [0, 6]));
    assert_eq!(at(1, 5, 8), (Some(6), [2, 8]), "the watch is behind the list");
    assert_eq!(at(2, 7, 8), (Some(6), [2, 8]), "another number of shards");
    assert_eq!(at(0, 7, 12), (Some(12), [0, 12]), "nobody has renewed the other");
    assert_eq!(at(0, 8, 22), (Some(12), [10, 22]), "not close enough: the next list begins anew");
}

#[test]
fn a_holder_counts_as_alive_only_if_it_was_seen_to_renew() {
    let second = Duration::from_secs(1);
    let (mut tracker, start) = (LeaseTracker::default(), Instant::now());
    let mut look = |leases: &[(u32, u64)], seconds| {
        let all = leases.iter().map(|(index, version)| (shard(*index, 3), held_by(Some("a"), 0, *version)));
        let now = start + second * seconds;
        tracker.look(&all.collect(), (0..3).map(|index| shard(index, 3)), now);
        [0, 1, 2].map(|index| tracker.is_renewed(shard(index, 3), now))
    };
    assert_eq!(look(&[(0, 1), (1, 1)], 0), [false; 3], "they may be of yesterday");
    assert_eq!(look(&[(0, 2), (1, 1), (2, 1)], 2), [true, false, true], "renewed, the same, created");
    for seconds in 3..17 {
        look(&[(0, u64::from(seconds)), (1, 1), (2, 1)], seconds);
    }
    assert_eq!(look(&[(0, 17), (1, 1), (2, 1)], 17), [true, false, false]);
}

/// The leases of a server that answers each query with these.
fn leases_of(answer: impl Fn(&str) -> Vec<Lease> + Send + 'static) -> Leases {
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let items = answer(request.uri().query().unwrap_or_default());
        // There is always more.
        let list = json!({"metadata": {"continue": "more"}, "items": items});
        let body = kube::client::Body::from(list.to_string().into_bytes());
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(body)))
    });
    Leases {
        api: Api::namespaced(Client::new(server, "default"), "default"),
        daemon: "storer".to_owned(),
        scope: ".0badcafe".to_owned(),
    }
}

fn leases() -> Leases {
    leases_of(|_| Vec::new())
}

#[tokio::test]
async fn a_lease_that_the_list_does_not_come_to_is_read_by_its_name() {
    let named = |name: &str| {
        let mut lease = held_by(Some("storer-1"), 1, 7).lease;
        lease.metadata.name = Some(name.to_owned());
        lease
    };
    let leases = leases_of(move |query| match query.split_once("fieldSelector=metadata.name%3D") {
        Some((_, name)) => vec![named(name.trim_end_matches('&'))],
        None => (0..PAGE).map(|number| named(&format!("other-{number}"))).collect(),
    });
    let wanted = || [shard(0, 2), shard(1, 2)].into_iter();
    let all = leases.list(wanted(), &BTreeSet::new()).await.expect("a list");
    assert_eq!(all.into_keys().collect::<Vec<_>>(), wanted().collect::<Vec<_>>());
}

#[test]
fn of_a_lease_that_is_too_large_the_holder_is_kept() {
    let large = || "x".repeat(LARGEST);
    let mut lease = held_by(Some("storer-1"), 1, 7).lease;
    lease.metadata.annotations.get_or_insert_default().insert("filler".to_owned(), large());
    let seen = SeenLease::new(lease.clone());
    assert_eq!(seen.claim.holder.as_deref(), Some("storer-1"));
    assert_eq!((seen.version(), size(&seen.lease) < 200), (Some(ResourceVersion(7)), true));
    lease.spec.get_or_insert_default().holder_identity = Some(large());
    assert!(size(&SeenLease::new(lease).lease) < 200);
}

#[tokio::test]
async fn a_name_says_which_shard_and_nothing_else_fits() {
    let leases = leases();
    let name = leases.name(shard(2, 12));
    assert_eq!(name, "label-storage.storer.2-of-12.0badcafe");
    assert_eq!(leases.shard(&name), Some(shard(2, 12)));
    for name in [
        "label-storage.storer.2-of-12",
        "label-storage.storer.2-of-2.0badcafe",
        "label-storage.storer.02-of-12.0badcafe",
        "label-storage.storer.2-of-0.0badcafe",
        "label-storage.storer.-2-of-12.0badcafe",
        "label-storage.restorer.2-of-12.0badcafe",
        "storer",
        "",
    ] {
        assert_eq!(leases.shard(name), None, "{name}");
    }
}

fn position(version: u64, pending: &[(&str, u64)]) -> Position {
    let pending = pending.iter().map(|(key, version)| (*key, ResourceVersion(*version)));
    Position::new(ResourceVersion(version), pending)
}

#[test]
fn a_shard_is_followed_from_where_all_deletions_have_been_dealt_with() {
    let at = |index, replicas, version: Option<u64>| {
        let mut seen = held_by(Some("a"), 0, 1);
        seen.claim.position = version.map(|version| position(version, &[]));
        (shard(index, replicas), seen)
    };
    let versions = |all: &[(Shard, SeenLease)]| -> Vec<u64> {
        let positions = positions(&all.iter().cloned().collect(), shard(0, 2));
        positions.iter().map(|position| position.version.0).collect()
    };
    assert!(versions(&[]).is_empty());
    assert_eq!(versions(&[at(0, 2, Some(5))]), [5]);
    assert!(versions(&[at(0, 2, None), at(1, 2, Some(7))]).is_empty());
    let three = [at(0, 3, Some(8)), at(1, 3, Some(6)), at(2, 3, Some(9))];
    assert_eq!(versions(&three), [6], "all of the three have come to 6");
    assert!(versions(&three[..2]).is_empty(), "nobody knows of the third");
    assert_eq!(versions(&[&three[..], &[at(0, 2, Some(5))]].concat()), [6, 5]);
    assert_eq!(versions(&[&three[..], &[at(0, 2, Some(7))]].concat()), [7, 6]);
}

#[tokio::test]
async fn a_position_is_read_as_it_was_written() {
    let leases = leases();
    for position in [position(205, &[]), position(205, &[("y", 180), ("label:serial=\"1\"", 190)])] {
        let claim =
            Claim { holder: Some("a".to_owned()), home: Some(0), position: Some(position), renewed_at: None };
        let mut lease = Lease::default();
        leases.fill(&mut lease, shard(0, 2), claim.clone());
        assert_eq!(SeenLease::new(lease).claim, claim);
    }
    // A person has written this.
    for (text, pending) in [("99999999999999999999", "{}"), ("-1", "{}"), ("", "{}"), ("4", "["), ("5", "{}")]
    {
        let mut lease = Lease::default();
        let annotations = [(POSITION, text), (PENDING, pending)];
        lease.metadata.annotations =
            Some(annotations.map(|(key, text)| (key.to_owned(), text.to_owned())).into());
        let expected = (text == "5").then(|| position(5, &[]));
        assert_eq!(SeenLease::new(lease).claim.position, expected, "{text} {pending}");
    }
}
