//! The work queue. A Node is in it once, however many events it had.

mod burst;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use label_storage::RecordKey;
use label_storage::decision::Urgency;
use label_storage::store::Writes;

use self::burst::Burst;
use crate::backoff;
use crate::cache::Doubts;

const URGENCIES: usize = 5;
const MOST_TIDY: usize = 2;
/// While many Nodes change, one departure begins in this time: most of these Nodes are back soon, and need no write.
const DEPARTURE: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The longest back-off of final labels, unless many of them fail: restorers may wait for them.
const LONGEST_URGENT_WAIT: Duration = Duration::from_secs(8);

/// The most repeated failures per second, over all Nodes: permissions, a quota or the namespace may be broken for all of them.
const RETRIES_PER_SECOND: f64 = 5.0;

/// The same for final labels. There are at most 4,096, so none waits for longer than a minute and a half.
const URGENT_RETRIES_PER_SECOND: f64 = 50.0;

/// The number of failures in a row from which on they count as repeated.
const AGAIN_AND_AGAIN: u32 = 3;

/// After a success, this many Nodes that were held back are released.
const RELEASED: usize = 32;

/// Nodes that wait for an attempt, or have one in flight.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    states: HashMap<RecordKey, State>,
    /// By urgency. An element counts only if `states` agrees.
    ready: [VecDeque<RecordKey>; URGENCIES],
    /// By time. An element counts only if `states` agrees.
    waiting: BinaryHeap<Reverse<(Instant, RecordKey)>>,
    failures: HashMap<RecordKey, Failures>,
    /// How many of these are urgent.
    urgent_failures: usize,
    /// True if some Nodes may be held back.
    has_held_back: bool,
    in_flight: usize,
    tidying: usize,
    /// Tidy writes wait while many Nodes change, and departures are few: restores come first, and several writes become one.
    burst: Burst,
    departure: Option<Instant>,
}

/// The failures of a key in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    times: u32,
    /// True if final labels were at stake.
    is_urgent: bool,
    doubts: Doubts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready(Urgency),
    Waiting { until: Instant, urgency: Urgency, why: Why },
    InFlight { urgency: Urgency, is_urgent: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    NotDue,
    /// Back-off after a failure.
    Failed,
    /// Held back: many Nodes fail again and again.
    HeldBack,
    /// It has failed, and its next attempt came too early.
    PutBack,
}

impl WorkQueue {
    /// Queues a Node, for now or for later. A Node that is queued already keeps the better of both places. A Node that has failed keeps its
    /// back-off, unless final labels are at stake that were not before.
    pub(crate) fn push(&mut self, node: &RecordKey, urgency: Urgency, due: Option<Instant>) {
        if let Some(State::InFlight { is_urgent, .. }) = self.states.get_mut(node) {
            *is_urgent |= urgency == Urgency::Urgent;
        }
        let is_better = match (self.states.get(node), due) {
            (None, _) => true,
            (Some(State::InFlight { .. }), _) | (Some(State::Ready(_)), Some(_)) => false,
            (Some(State::Waiting { why: Why::Failed | Why::HeldBack, urgency: present, .. }), _) => {
                urgency == Urgency::Urgent && *present != Urgency::Urgent
            }
            (Some(State::Ready(present)), None) => urgency < *present,
            (Some(State::Waiting { .. }), None) => true,
            // Not for less than a second: each time leaves an element in `waiting`.
            (Some(State::Waiting { until, .. }), Some(due)) => due + Duration::from_secs(1) < *until,
        };
        match due {
            _ if !is_better => (),
            None => self.make_ready(node, urgency),
            Some(until) => self.wait(node, State::Waiting { until, urgency, why: Why::NotDue }, until),
        }
    }

    /// Takes a Node out, unless an attempt is in flight or has failed: its outcome is not known before the next one.
    pub(crate) fn remove(&mut self, node: &str) {
        if let Some(State::Ready(_) | State::Waiting { why: Why::NotDue, .. }) = self.states.get(node) {
            self.states.remove(node);
        }
    }

    pub(crate) fn contains(&self, node: &str) -> bool {
        self.states.contains_key(node)
    }

    pub(crate) fn failures(&self, node: &str) -> u32 {
        self.failures.get(node).map_or(0, |failures| failures.times)
    }

    pub(crate) fn doubts(&self, key: &str) -> Doubts {
        self.failures.get(key).map(|failures| failures.doubts).unwrap_or_default()
    }

    pub(crate) fn all_failures(&self) -> impl Iterator<Item = u32> {
        self.failures.values().map(|failures| failures.times)
    }

    /// The writes for this key that may be under way.
    pub(crate) fn writes(&self, key: &str) -> Writes {
        let is_in_flight = matches!(self.states.get(key), Some(State::InFlight { .. }));
        Writes { is_in_flight, has_failed: self.failures.contains_key(key), is_in_doubt: false }
    }

    /// A key that is ready waits until then, unless it is urgent.
    pub(crate) fn postpone(&mut self, key: &RecordKey, until: Instant) {
        if let Some(State::Ready(urgency)) = self.states.get(key).copied()
            && urgency != Urgency::Urgent
        {
            self.wait(key, State::Waiting { until, urgency, why: Why::NotDue }, until);
        }
    }

    fn make_ready(&mut self, node: &RecordKey, urgency: Urgency) {
        self.states.insert(node.clone(), State::Ready(urgency));
        self.ready[urgency as usize].push_back(node.clone());
    }

    fn wait(&mut self, node: &RecordKey, state: State, until: Instant) {
        self.states.insert(node.clone(), state);
        self.waiting.push(Reverse((until, node.clone())));
    }

    /// The next Node that is due and at least this urgent.
    pub(crate) fn pop(&mut self, least: Urgency, now: Instant) -> Option<RecordKey> {
        while let Some((node, urgency)) = self.pop_due(now) {
            self.make_ready(&node, urgency);
        }
        let all = [Urgency::Urgent, Urgency::Soon, Urgency::Routine, Urgency::Departed, Urgency::Tidy];
        for urgency in all.into_iter().filter(|urgency| *urgency <= least) {
            let must_wait = match urgency {
                Urgency::Urgent | Urgency::Soon | Urgency::Routine => false,
                Urgency::Departed => self.departures_from(now).is_some(),
                Urgency::Tidy => self.tidying >= MOST_TIDY || self.burst.ends_at(now).is_some(),
            };
            if must_wait {
                continue;
            }
            while let Some(node) = self.ready[urgency as usize].pop_front() {
                if self.states.get(&node) == Some(&State::Ready(urgency)) {
                    let is_urgent = urgency == Urgency::Urgent;
                    self.states.insert(node.clone(), State::InFlight { urgency, is_urgent });
                    self.in_flight += 1;
                    self.tidying += usize::from(urgency == Urgency::Tidy);
                    if urgency == Urgency::Departed {
                        self.departure = Some(now);
                    }
                    return Some(node);
                }
            }
        }
        None
    }

    /// The keys whose turn comes next, without those that are urgent and those that may wait.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = &RecordKey> {
        [Urgency::Soon, Urgency::Routine].into_iter().flat_map(move |urgency| {
            let is_current = move |node: &&RecordKey| self.states.get(*node) == Some(&State::Ready(urgency));
            self.ready[urgency as usize].iter().filter(is_current)
        })
    }

    fn pop_due(&mut self, now: Instant) -> Option<(RecordKey, Urgency)> {
        loop {
            let Reverse((due, _)) = self.waiting.peek()?;
            if *due > now {
                return None;
            }
            let Reverse((due, node)) = self.waiting.pop()?;
            if let Some(State::Waiting { until, urgency, .. }) = self.states.get(&node)
                && *until == due
            {
                return Some((node, *urgency));
            }
        }
    }

    /// A Node was deleted, or a new incarnation was seen.
    pub(crate) fn note_change(&mut self, now: Instant) {
        self.burst.note(now);
    }

    /// The time at which another Node is due, if none ends or changes before.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.peek().map(|Reverse((due, _))| *due);
        let has = |urgency: Urgency| !self.ready[urgency as usize].is_empty();
        let tidy = self.burst.ends_at(now).filter(|_| has(Urgency::Tidy));
        let departures = self.departures_from(now).filter(|_| has(Urgency::Departed));
        [waiting, tidy, departures].into_iter().flatten().min()
    }

    /// The time from which the next departure may begin, if that is not now.
    fn departures_from(&self, now: Instant) -> Option<Instant> {
        let ends_at = self.burst.ends_at(now)?;
        self.departure.map(|departure| ends_at.min(departure + DEPARTURE)).filter(|from| *from > now)
    }

    /// An attempt has succeeded. If it had failed before, others may succeed now, too.
    pub(crate) fn done(&mut self, node: &RecordKey) {
        self.land(node);
        if let Some(failures) = self.failures.remove(node) {
            self.urgent_failures -= usize::from(failures.is_urgent);
            self.release();
        }
    }

    fn release(&mut self) {
        if !self.has_held_back {
            return;
        }
        let held_back = self.states.iter().filter_map(|(node, state)| match state {
            State::Waiting { why: Why::HeldBack, urgency, .. } => Some((node.clone(), *urgency)),
            _ => None,
        });
        let released: Vec<_> = held_back.take(RELEASED).collect();
        self.has_held_back = released.len() == RELEASED;
        released.iter().for_each(|(node, urgency)| self.make_ready(node, *urgency));
    }

    /// An attempt came too early: nothing was tried, and the failures stay. Without a time, the Node is out until it is queued again.
    pub(crate) fn put_back(&mut self, node: &RecordKey, until: Option<Instant>) {
        let urgency = match self.states.get(node) {
            Some(State::InFlight { urgency, .. }) => *urgency,
            _ => Urgency::Soon,
        };
        self.land(node);
        if let Some(until) = until {
            let why = if self.failures.contains_key(node) { Why::PutBack } else { Why::NotDue };
            self.wait(node, State::Waiting { until, urgency, why }, until);
        }
    }

    /// An attempt has failed: the Node waits, and longer each time. The next attempt has the doubts of this one.
    pub(crate) fn failed(
        &mut self,
        node: &RecordKey,
        doubts: Doubts,
        retry_after: Option<Duration>,
        now: Instant,
    ) {
        // Final labels stay urgent: urgent Nodes are still attempted at shutdown.
        let is_urgent = matches!(self.states.get(node), Some(State::InFlight { is_urgent: true, .. }));
        let (urgency, longest) =
            if is_urgent { (Urgency::Urgent, LONGEST_URGENT_WAIT) } else { (Urgency::Soon, LONGEST_WAIT) };
        self.land(node);
        let times = self.failures(node).saturating_add(1);
        let before = self.failures.insert(node.clone(), Failures { times, is_urgent, doubts });
        self.urgent_failures += usize::from(is_urgent);
        self.urgent_failures -= usize::from(before.is_some_and(|before| before.is_urgent));
        let pause = backoff::exponential(Duration::from_secs(1), times, longest);
        let is_bad_luck = times < AGAIN_AND_AGAIN;
        let all = if is_bad_luck { 0.0 } else { self.retry_seconds(is_urgent) };
        let all = backoff::around(Duration::from_secs_f64(all));
        let retry_after = retry_after.map(backoff::a_little_more).unwrap_or_default();
        let until = now + pause.max(all).max(retry_after);
        let why = if all > pause { Why::HeldBack } else { Why::Failed };
        self.has_held_back |= why == Why::HeldBack;
        self.wait(node, State::Waiting { until, urgency, why }, until);
    }

    /// The seconds in which each failed key is retried once, of those that are urgent or of the others.
    fn retry_seconds(&self, is_urgent: bool) -> f64 {
        if is_urgent {
            self.urgent_failures as f64 / URGENT_RETRIES_PER_SECOND
        } else {
            (self.failures.len() - self.urgent_failures) as f64 / RETRIES_PER_SECOND
        }
    }

    fn land(&mut self, node: &RecordKey) {
        if let Some(State::InFlight { urgency, .. }) = self.states.remove(node) {
            self.in_flight -= 1;
            self.tidying -= usize::from(urgency == Urgency::Tidy);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// The number of Nodes that could be begun now.
    pub(crate) fn ready(&self, now: Instant) -> usize {
        let is_burst = self.burst.ends_at(now).is_some();
        let may_begin = |state: &State| match state {
            State::Ready(urgency) => *urgency < Urgency::Departed || !is_burst,
            State::Waiting { .. } | State::InFlight { .. } => false,
        };
        self.states.values().filter(|state| may_begin(state)).count()
    }

    pub(crate) fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.failures.retain(|node, _| concerns(node));
        self.urgent_failures = self.failures.values().filter(|failures| failures.is_urgent).count();
        self.states.retain(|node, state| matches!(state, State::InFlight { .. }) || concerns(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(name: &str) -> RecordKey {
        RecordKey::from(name)
    }

    fn pop_all(queue: &mut WorkQueue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(Urgency::Tidy, now)).map(|node| node.to_string()).collect()
    }

    /// True if a write for this key may be under way.
    fn is_unsettled(queue: &WorkQueue, key: &str) -> bool {
        queue.writes(key) != Writes::default()
    }

    #[test]
    fn the_more_urgent_go_first_and_else_the_earlier() {
        let mut queue = WorkQueue::default();
        let all =
            [("a", Urgency::Routine), ("b", Urgency::Soon), ("c", Urgency::Soon), ("d", Urgency::Urgent)];
        for (node, urgency) in all {
            queue.push(&name(node), urgency, None);
        }
        assert_eq!(pop_all(&mut queue, Instant::now()), ["d", "b", "c", "a"]);
        assert_eq!(queue.in_flight(), 4);
    }

    #[test]
    fn a_node_is_in_once_at_its_best_place() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for urgency in [Urgency::Routine, Urgency::Urgent, Urgency::Routine] {
            queue.push(&name("a"), urgency, None);
        }
        queue.push(&name("b"), Urgency::Routine, Some(now + SECOND));
        queue.push(&name("b"), Urgency::Routine, Some(now + SECOND * 9));
        queue.push(&name("c"), Urgency::Routine, Some(now + SECOND));
        queue.push(&name("c"), Urgency::Soon, None);
        assert_eq!((queue.len(), queue.ready(now), queue.next_due(now)), (3, 2, Some(now + SECOND)));
        assert_eq!(pop_all(&mut queue, now), ["a", "c"]);
        assert_eq!(pop_all(&mut queue, now + SECOND), ["b"]);
        for node in ["a", "b", "c"] {
            queue.done(&name(node));
        }
        assert_eq!(pop_all(&mut queue, now + SECOND * 99), Vec::<String>::new());
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_node_that_is_being_worked_on_is_not_begun_again() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.push(&name("a"), Urgency::Soon, None);
        assert!(queue.pop(Urgency::Tidy, now).is_some() && is_unsettled(&queue, "a"));
        queue.push(&name("a"), Urgency::Urgent, None);
        queue.remove("a");
        assert_eq!((queue.pop(Urgency::Tidy, now), queue.in_flight()), (None, 1));
    }

    #[test]
    fn a_node_that_failed_waits_whatever_happens_and_longer_each_time() {
        let (mut queue, mut now) = (WorkQueue::default(), Instant::now());
        queue.push(&name("a"), Urgency::Soon, None);
        for least in [0.9, 1.8, 3.6] {
            assert!(queue.pop(Urgency::Tidy, now).is_some());
            queue.failed(&name("a"), Doubts::default(), None, now);
            queue.push(&name("a"), Urgency::Soon, None);
            queue.remove("a");
            assert!(is_unsettled(&queue, "a"));
            let due = queue.next_due(now).expect("waits");
            assert!(due - now >= SECOND.mul_f64(least), "{:?}", due - now);
            assert_eq!(queue.pop(Urgency::Tidy, due - Duration::from_millis(1)), None);
            now = due;
        }
        assert!(queue.pop(Urgency::Tidy, now).is_some());
        queue.failed(&name("a"), Doubts::default(), Some(SECOND * 30), now);
        assert!(queue.next_due(now) >= Some(now + SECOND * 30));
        assert_eq!(queue.failures("a"), 4);
    }

    #[test]
    fn what_would_be_lost_is_tried_at_once_and_then_often() {
        for is_in_flight in [false, true] {
            let (mut queue, mut now) = (WorkQueue::default(), Instant::now());
            queue.push(&name("a"), Urgency::Soon, None);
            for _ in 0..8 {
                now = queue.next_due(now).unwrap_or(now).max(now);
                assert!(queue.pop(Urgency::Tidy, now).is_some());
                queue.failed(&name("a"), Doubts::default(), None, now);
            }
            if is_in_flight {
                now = queue.next_due(now).expect("waits");
                assert!(queue.pop(Urgency::Tidy, now).is_some());
                queue.push(&name("a"), Urgency::Urgent, None);
            } else {
                queue.push(&name("a"), Urgency::Urgent, None);
                assert!(queue.pop(Urgency::Urgent, now).is_some(), "it does not wait");
            }
            queue.failed(&name("a"), Doubts::default(), None, now);
            queue.push(&name("a"), Urgency::Urgent, None);
            assert_eq!(queue.pop(Urgency::Urgent, now), None, "once is enough");
            let soon = now + LONGEST_URGENT_WAIT.mul_f64(1.2);
            assert_eq!(queue.pop(Urgency::Urgent, soon), Some(name("a")));
        }
    }

    #[test]
    fn tidy_writes_wait_until_nodes_stop_changing() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        (0..99).for_each(|_| queue.note_change(now));
        queue.push(&name("tidy"), Urgency::Tidy, None);
        queue.push(&name("a"), Urgency::Soon, None);
        assert_eq!(queue.ready(now), 1);
        assert_eq!(pop_all(&mut queue, now), ["a"]);
        let quiet = queue.next_due(now).expect("waits");
        assert_eq!(queue.ready(quiet), 1);
        assert_eq!(pop_all(&mut queue, quiet), ["tidy"]);
    }

    #[test]
    fn departures_are_few_while_nodes_change_and_go_before_tidy_writes() {
        let (mut queue, mut now) = (WorkQueue::default(), Instant::now());
        queue.push(&name("tidy"), Urgency::Tidy, None);
        for number in 0..1000 {
            queue.push(&name(&number.to_string()), Urgency::Departed, None);
        }
        let (start, mut begun) = (now, 0);
        while now < start + SECOND * 10 {
            (0..20).for_each(|_| queue.note_change(now));
            begun += pop_all(&mut queue, now).len();
            now = queue.next_due(now).expect("the next one");
        }
        assert_eq!((begun, queue.ready(now)), (100, 0));
        now += SECOND * 10;
        let rest = pop_all(&mut queue, now);
        assert_eq!((rest.len(), rest.last().map(String::as_str)), (901, Some("tidy")));
        assert_eq!(queue.next_due(now), None);
    }

    #[test]
    fn a_wait_is_no_success() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.push(&name("a"), Urgency::Soon, None);
        assert!(queue.pop(Urgency::Tidy, now).is_some());
        queue.failed(&name("a"), Doubts::default(), None, now);
        let due = queue.next_due(now).expect("waits");
        assert!(queue.pop(Urgency::Tidy, due).is_some());
        queue.put_back(&name("a"), Some(due + SECOND));
        queue.remove("a");
        assert_eq!((queue.failures("a"), is_unsettled(&queue, "a"), queue.in_flight()), (1, true, 0));
        assert_eq!(pop_all(&mut queue, due + SECOND), ["a"]);
        queue.put_back(&name("a"), None);
        assert!(!queue.contains("a") && is_unsettled(&queue, "a"));
        queue.push(&name("a"), Urgency::Soon, None);
        assert!(queue.pop(Urgency::Tidy, due).is_some());
        queue.done(&name("a"));
        assert!(!is_unsettled(&queue, "a"));
    }

    #[test]
    fn bad_luck_does_not_wait_for_what_is_broken_for_others() {
        let (mut queue, mut now) = (WorkQueue::default(), Instant::now());
        for number in 0..3000 {
            queue.push(&name(&number.to_string()), Urgency::Soon, None);
        }
        for _ in 0..4 {
            while let Some(node) = queue.pop(Urgency::Tidy, now) {
                queue.failed(&node, Doubts::default(), None, now);
            }
            now += SECOND * 5;
        }
        queue.push(&name("a"), Urgency::Soon, None);
        while queue.pop(Urgency::Soon, now).is_some_and(|node| node != name("a")) {}
        queue.failed(&name("a"), Doubts::default(), None, now);
        assert!(pop_all(&mut queue, now + SECOND * 2).contains(&"a".to_owned()));
    }

    /// The tries in a second of urgent keys and of others in the tenth to twentieth minute, if all fail that long.
    fn tries_per_second(urgent: usize, others: usize) -> [f64; 2] {
        let (mut queue, began) = (WorkQueue::default(), Instant::now());
        for number in 0..urgent + others {
            let urgency = if number < urgent { Urgency::Urgent } else { Urgency::Soon };
            queue.push(&name(&number.to_string()), urgency, None);
        }
        let (mut tries, mut now) = ([0.0; 2], began);
        while now < began + SECOND * 1200 {
            while let Some(node) = queue.pop(Urgency::Tidy, now) {
                let is_urgent = node.parse::<usize>().is_ok_and(|number| number < urgent);
                if now > began + SECOND * 600 {
                    tries[usize::from(!is_urgent)] += 1.0;
                }
                queue.failed(&node, Doubts::default(), None, now);
            }
            now += SECOND;
        }
        tries.map(|tries| tries / 600.0)
    }

    #[test]
    fn final_labels_wait_for_other_final_labels_alone() {
        let [urgent, others] = tries_per_second(1, 2000);
        assert!(urgent > 0.1, "once in {} s", 1.0 / urgent);
        assert!(others <= RETRIES_PER_SECOND * 1.2, "{others}");
        let [urgent, others] = tries_per_second(2000, 1);
        assert!(
            (URGENT_RETRIES_PER_SECOND / 1.2..=URGENT_RETRIES_PER_SECOND * 1.2).contains(&urgent),
            "{urgent}"
        );
        assert!(others > 0.01, "once in {} s", 1.0 / others);
    }

    #[test]
    fn however_many_fail_few_are_tried_in_a_second_and_all_soon_after_one_succeeds() {
        let (mut queue, began) = (WorkQueue::default(), Instant::now());
        for number in 0..3000 {
            queue.push(&name(&number.to_string()), Urgency::Soon, None);
        }
        let (mut tries, mut now) = (0, began);
        while now < began + SECOND * 1200 {
            while let Some(node) = queue.pop(Urgency::Tidy, now) {
                tries += usize::from(now > began + SECOND * 600);
                queue.failed(&node, Doubts::default(), None, now);
            }
            now += SECOND;
        }
        assert!(tries as f64 <= 600.0 * RETRIES_PER_SECOND * 1.2, "{tries} tries in ten minutes");
        // The common cause of their failures is over.
        while queue.len() > 0 {
            now += SECOND;
            while let Some(node) = queue.pop(Urgency::Tidy, now) {
                queue.done(&node);
            }
        }
        assert!(now < began + SECOND * 1200 + LONGEST_WAIT, "{:?}", now - began);
    }

    #[test]
    fn few_are_tidied_at_a_time_and_none_where_only_the_urgent_count() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for node in ["a", "b", "c"] {
            queue.push(&name(node), Urgency::Tidy, None);
        }
        queue.push(&name("d"), Urgency::Routine, None);
        assert_eq!(queue.pop(Urgency::Urgent, now), None);
        assert_eq!(pop_all(&mut queue, now), ["d", "a", "b"]);
        queue.done(&name("a"));
        assert_eq!(pop_all(&mut queue, now), ["c"]);
    }

    #[test]
    fn what_is_of_no_concern_any_more_is_forgotten() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for node in ["a", "b"] {
            queue.push(&name(node), Urgency::Soon, None);
        }
        queue.push(&name("c"), Urgency::Soon, Some(now + SECOND));
        queue.remove("b");
        queue.retain(|node| node != "c");
        assert_eq!(pop_all(&mut queue, now + SECOND * 2), ["a"]);
    }
}
