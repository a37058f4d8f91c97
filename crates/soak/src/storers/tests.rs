use std::num::NonZeroU32;
use std::time::Duration;

use super::*;

/// Storers, step by step.
struct World {
    storers: Storers,
    at: Instant,
}

impl World {
    /// `storer-0` is the only storer, and its position is version 10.
    fn at_ten() -> Self {
        let mut world = Self { storers: Storers::default(), at: Instant::now() };
        world.lease(0, 1, Some("storer-0"), 10);
        world
    }

    fn lease(&mut self, index: u32, replicas: u32, holder: Option<&str>, position: u64) {
        let position = Position::new(ResourceVersion(position), std::iter::empty());
        self.lease_at(index, replicas, holder, position);
    }

    fn lease_at(&mut self, index: u32, replicas: u32, holder: Option<&str>, position: Position) {
        let replicas = NonZeroU32::new(replicas).expect("not zero");
        let seen = SeenLease { holder: holder.map(str::to_owned), position: Some(position) };
        self.storers.lease_written((index, replicas), seen, self.at);
    }

    fn asks(&mut self, storer: &str, version: u64) {
        self.storers.asked(storer, version, self.at);
    }

    fn is_refused(&mut self, storer: &str, version: u64) {
        self.asks(storer, version);
        self.storers.expired(storer, version);
    }

    fn later(&mut self, seconds: u64) {
        self.at += Duration::from_secs(seconds);
    }

    fn passage(&self, deletion: u64) -> Passage {
        self.storers.passage("a", deletion, self.at)
    }
}

fn skipped() -> Passage {
    Passage::Skipped("storer-0".to_owned())
}

#[test]
fn what_lies_between_a_410_and_where_the_watch_went_on_was_forgotten_and_nothing_else() {
    let mut world = World::at_ten();
    world.is_refused("storer-0", 12);
    assert_eq!(world.passage(15), Passage::Ahead, "it has not continued yet");
    let dropped = |world: &World| [12, 13, 20, 21].map(|it| world.storers.is_dropped("a", it, world.at));
    assert_eq!(dropped(&world), [false, true, true, true]);
    world.asks("storer-0", 20);
    assert_eq!(dropped(&world), [false, true, true, false]);
    world.lease(0, 1, Some("storer-0"), 30);
    for (deletion, passage) in [
        (12, skipped()),
        (13, Passage::Forgotten),
        (20, Passage::Forgotten),
        (21, skipped()),
        (30, skipped()),
        (31, Passage::Ahead),
    ] {
        assert_eq!(world.passage(deletion), passage, "{deletion}");
    }
}

#[test]
fn a_position_that_a_storer_gave_up_by_itself_is_no_excuse() {
    let mut world = World::at_ten();
    // After refusals other than 410, it continues from a list.
    (0..5).for_each(|_| world.asks("storer-0", 12));
    world.asks("storer-0", 20);
    world.lease(0, 1, Some("storer-0"), 20);
    assert_eq!(world.passage(15), skipped());
}

#[test]
fn a_storer_that_asks_for_what_comes_after_a_deletion_has_heard_of_it_or_skipped_it() {
    let mut world = World::at_ten();
    let is_past = |world: &World| world.storers.have_asked_past("a", 15, world.at);
    world.asks("storer-0", 12);
    assert!(!is_past(&world));
    world.asks("storer-0", 20);
    assert!(is_past(&world));
    // Its successor starts from the position in the Lease.
    world.asks("storer-0", 10);
    assert!(!is_past(&world));
    world.is_refused("storer-0", 10);
    world.asks("storer-0", 20);
    assert!(!is_past(&world), "the API server had dropped it");
}

#[test]
fn a_410_to_somebody_else_is_no_excuse() {
    let mut world = World::at_ten();
    world.is_refused("storer-1", 12);
    world.asks("storer-1", 20);
    world.lease(0, 1, Some("storer-0"), 30);
    assert_eq!(world.passage(15), skipped());
}

#[test]
fn a_storer_that_was_down_for_longer_than_the_server_remembers_is_excused() {
    let mut world = World::at_ten();
    world.later(300);
    assert_eq!(world.passage(15), Passage::Unclaimed, "the shard has no holder");
    world.lease(0, 1, Some("storer-0"), 10);
    assert_eq!(world.passage(15), Passage::Ahead, "it may still receive the deletion");
    // The history of the server starts at 40.
    world.is_refused("storer-0", 10);
    world.asks("storer-0", 40);
    world.lease(0, 1, Some("storer-0"), 50);
    assert_eq!([15, 45].map(|deletion| world.passage(deletion)), [Passage::Forgotten, skipped()]);
}

#[test]
fn a_storer_that_was_down_and_is_not_refused_has_to_hear_of_everything() {
    let mut world = World::at_ten();
    world.later(300);
    world.asks("storer-0", 10);
    world.lease(0, 1, Some("storer-0"), 50);
    assert_eq!(world.passage(15), skipped());
}

#[test]
fn a_410_counts_for_nothing_if_the_same_version_is_asked_for_again_and_answered() {
    let mut world = World::at_ten();
    world.is_refused("storer-0", 12);
    // It was killed before it continued, and its successor starts from the position in the Lease.
    world.asks("storer-0", 10);
    world.lease(0, 1, Some("storer-0"), 30);
    assert_eq!(world.passage(15), skipped());
}

#[test]
fn one_of_several_watches_of_a_storer_has_gone_on_when_all_its_leases_say_so() {
    let node = |index| {
        let replicas = NonZeroU32::new(2).expect("not zero");
        (0..).map(|number| format!("n{number}")).find(|node| shard(node, replicas) == index).expect("one")
    };
    let mut world = World { storers: Storers::default(), at: Instant::now() };
    let say = |world: &mut World, positions: [u64; 2]| {
        world.lease(0, 2, Some("storer-0"), positions[0]);
        world.lease(1, 2, Some("storer-0"), positions[1]);
        [0, 1].map(|index| world.storers.passage(&node(index), 15, world.at))
    };
    assert_eq!(say(&mut world, [10, 10]), [Passage::Ahead, Passage::Ahead]);
    world.is_refused("storer-0", 12);
    world.asks("storer-0", 13);
    assert_eq!(say(&mut world, [14, 12]), [Passage::Ahead, Passage::Ahead]);
    assert_eq!(say(&mut world, [14, 20]), [Passage::Ahead, Passage::Forgotten]);
    assert_eq!(say(&mut world, [30, 30]), [Passage::Forgotten, Passage::Forgotten]);
    let late = [0, 1].map(|index| world.storers.passage(&node(index), 25, world.at));
    assert_eq!(late, [skipped(), skipped()], "it had continued long before");
}

#[test]
fn a_watch_of_an_adopted_shard_is_not_the_one_that_was_refused_though_leases_could_not_be_renewed() {
    let mut world = World { storers: Storers::default(), at: Instant::now() };
    let own = shard("a", NonZeroU32::new(2).expect("not zero"));
    world.lease(own, 2, Some("storer-0"), 10);
    world.is_refused("storer-0", 12);
    world.later(LIFETIME.as_secs() + 1);
    world.lease(1 - own, 2, Some("storer-0"), 11);
    world.asks("storer-0", 11);
    world.lease(own, 2, Some("storer-0"), 30);
    assert_eq!(world.passage(15), Passage::Forgotten);
}

#[test]
fn while_the_number_of_replicas_changes_one_that_still_has_to_hear_of_it_is_enough() {
    let index = shard("a", NonZeroU32::new(2).expect("not zero"));
    let mut world = World::at_ten();
    world.lease(index, 2, Some("storer-1"), 10);
    world.lease(0, 1, Some("storer-0"), 20);
    assert_eq!(world.passage(15), Passage::Ahead);
    world.lease(index, 2, Some("storer-1"), 20);
    assert!(matches!(world.passage(15), Passage::Skipped(_)));
    // Deletions before the start of a Lease do not concern its holder.
    let mut world = World::at_ten();
    world.lease(index, 2, Some("storer-1"), 16);
    assert_eq!(world.passage(15), Passage::Ahead);
    // Neither do deletions after its end.
    let mut world = World::at_ten();
    world.lease(index, 2, Some("storer-1"), 10);
    world.later(20);
    world.lease(0, 1, Some("storer-0"), 20);
    assert_eq!(world.passage(15), skipped());
}

#[test]
fn a_lease_is_released_by_who_held_it() {
    let mut world = World::at_ten();
    world.is_refused("storer-0", 12);
    world.asks("storer-0", 20);
    world.lease(0, 1, None, 20);
    assert_eq!(world.passage(15), Passage::Forgotten);
}

#[test]
fn a_deletion_that_a_holder_inherits_as_pending_is_its_own() {
    let mut world = World::at_ten();
    let pending = || Position::new(ResourceVersion(30), [("a", ResourceVersion(15))].into_iter());
    world.lease_at(0, 1, None, pending());
    let index = shard("a", NonZeroU32::new(5).expect("not zero"));
    world.lease_at(index, 5, Some("storer-2"), pending());
    world.later(20);
    world.lease_at(index, 5, Some("storer-2"), pending());
    assert_eq!(world.passage(15), Passage::Ahead);
    world.lease(index, 5, Some("storer-2"), 40);
    assert_eq!(world.passage(15), Passage::Skipped("storer-2".to_owned()));
    assert_eq!(world.passage(14), Passage::Unclaimed, "it was settled before");
}

#[test]
fn a_holder_that_comes_back_is_responsible_for_what_the_other_has_not_reached() {
    let mut world = World::at_ten();
    world.later(20);
    world.lease(0, 1, Some("storer-1"), 20);
    world.is_refused("storer-0", 12);
    world.asks("storer-0", 35);
    world.lease(0, 1, Some("storer-0"), 40);
    let passages = [15, 30, 38].map(|deletion| world.passage(deletion));
    assert_eq!(passages, [Passage::Unclaimed, Passage::Forgotten, skipped()]);
}

#[test]
fn a_deletion_that_a_storer_has_forgotten_is_not_claimed_by_the_next() {
    let mut world = World::at_ten();
    let index = shard("a", NonZeroU32::new(5).expect("not zero"));
    let is_forgotten = |world: &World| world.storers.is_forgotten("a", 15, world.at);
    world.lease(index, 5, Some("storer-4"), 10);
    world.is_refused("storer-4", 10);
    world.asks("storer-4", 20);
    assert!(!is_forgotten(&world));
    world.lease(index, 5, Some("storer-4"), 20);
    assert!(is_forgotten(&world));
    assert_eq!(world.passage(15), Passage::Ahead, "storer-0 of the former number may store it");
    world.later(20);
    world.lease(index, 5, Some("storer-1"), 20);
    assert_eq!((world.passage(15), is_forgotten(&world)), (Passage::Unclaimed, false));
}

#[test]
fn a_watch_that_was_refused_before_a_pending_deletion_has_not_gone_on_before_that() {
    let mut world = World::at_ten();
    world.later(20);
    let index = shard("a", NonZeroU32::new(2).expect("not zero"));
    world.lease(1 - index, 2, Some("storer-0"), 18);
    let pending = Position::new(ResourceVersion(20), [("b", ResourceVersion(15))].into_iter());
    world.lease_at(index, 2, Some("storer-0"), pending);
    world.is_refused("storer-0", 14);
    world.lease(1 - index, 2, Some("storer-0"), 18);
    world.lease(index, 2, Some("storer-0"), 25);
    assert_eq!(world.passage(22), Passage::Forgotten);
}
