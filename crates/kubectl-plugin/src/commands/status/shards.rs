//! Who holds which shard.
//!
//! Clocks of machines disagree. So what a Lease's own time tells of is only a suspicion, unless the Lease stays as it is while we look.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use label_storage_runtime::lease::LIFETIME;
use serde::Serialize;

use super::memory::{Noted, Sight, Subject};
use crate::leases::Held;
use crate::liveness::is_recent;

/// The daemons that there should be.
const DAEMONS: [&str; 2] = ["storer", "restorer"];

/// So many shards without a Lease are named: the name of one Lease can claim that there are four billion.
const MOST_ABSENT: usize = 8;

/// How a shard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// The replica that was started for it holds it.
    Home,
    /// Another replica does, in its place.
    Adopted,
    /// Its holder has not renewed it.
    NotRenewed,
    /// It was released, and nobody has taken it.
    Released,
    /// There is no Lease of it.
    Absent,
    /// It is of a number of replicas, or of a `--nodes`, that there was before.
    Retired,
}

impl State {
    /// In words.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Adopted => "adopted",
            Self::NotRenewed => "not-renewed",
            Self::Released => "released",
            Self::Absent => "absent",
            Self::Retired => "retired",
        }
    }

    /// Whether somebody works on it.
    pub(super) const fn is_held(self) -> bool {
        matches!(self, Self::Home | Self::Adopted)
    }
}

/// A shard, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shard {
    pub(super) daemon: String,
    pub(super) index: u32,
    /// Of so many; `None` where not even that is known, since there are no Leases of the daemon.
    pub(super) replicas: Option<NonZeroU32>,
    /// Set where the daemon handles only some Nodes (`--nodes`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) scope: String,
    pub(super) holder: Option<String>,
    /// When it was renewed, by its holder's clock.
    pub(super) renewed_at: Option<String>,
    #[serde(skip)]
    pub(super) renewed: Option<Timestamp>,
    pub(super) state: State,
    /// Whether this is more than work in progress.
    #[serde(skip)]
    pub(super) is_confirmed: bool,
}

/// Which Leases are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// All; there should be some of daemons that handle all Nodes.
    All,
    /// Those of daemons with this `--nodes`.
    Only(&'a str),
}

/// The Leases of one daemon, by the number of replicas and by shard.
type Numbers<'a> = BTreeMap<NonZeroU32, BTreeMap<u32, &'a Held>>;

/// All shards of both daemons. `note` says for how long something has looked as it does.
pub(super) fn shards(
    leases: &[Held],
    scope: Scope<'_>,
    now: Timestamp,
    patience: Duration,
    mut note: impl FnMut(Subject, Sight) -> Noted,
) -> Vec<Shard> {
    let mut groups: BTreeMap<(&str, &str), Numbers<'_>> = BTreeMap::new();
    let wanted = match scope {
        Scope::All => "",
        Scope::Only(scope) => scope,
    };
    for daemon in DAEMONS {
        groups.entry((daemon, wanted)).or_default();
    }
    let is_wanted = |held: &&Held| matches!(scope, Scope::All) || held.scope == wanted;
    for held in leases.iter().filter(is_wanted).filter(|held| held.index < held.replicas.get()) {
        let group = groups.entry((&held.daemon, &held.scope)).or_default();
        group.entry(held.replicas).or_default().insert(held.index, held);
    }
    let mut all = Vec::new();
    // The storer first, as its work comes first.
    for ((daemon, scope), numbers) in groups.into_iter().rev() {
        let mut of_daemon = Vec::new();
        for (replicas, held) in &numbers {
            let known: BTreeSet<u32> = held.keys().copied().collect();
            let unknown = (0..replicas.get()).filter(|index| !known.contains(index)).take(MOST_ABSENT);
            of_daemon.extend(held.values().map(|held| seen(held, now, patience, &mut note)));
            for index in unknown {
                let name = format!("{daemon}.{index}-of-{replicas}.{scope}");
                let noted = note(Subject::Shard(name), Sight::Lease(None));
                let is_confirmed = noted.unchanged_for >= patience;
                of_daemon.push(absent(daemon, scope, index, Some(*replicas), is_confirmed));
            }
        }
        if numbers.is_empty() {
            let noted = note(Subject::Shard(format!("{daemon}.{scope}")), Sight::Lease(None));
            of_daemon.push(absent(daemon, scope, 0, None, noted.unchanged_for >= patience));
        }
        retire(&mut of_daemon);
        of_daemon.sort_by_key(|shard| (shard.replicas, shard.index));
        all.extend(of_daemon);
    }
    retire_scopes(&mut all);
    all
}

/// Where all shards of daemons for all Nodes are held, what nobody holds of those for some is left over from a roll-out in stages:
/// nobody misses them, and nobody deletes their Leases.
fn retire_scopes(shards: &mut [Shard]) {
    for daemon in DAEMONS {
        let for_all = shards.iter().filter(|shard| shard.daemon == daemon && shard.scope.is_empty());
        let mut for_all = for_all.filter(|shard| shard.state != State::Retired).peekable();
        let is_complete = for_all.peek().is_some() && for_all.all(|shard| shard.state.is_held());
        if !is_complete {
            continue;
        }
        // A scope that somebody is still at work in is not over: there, every shard is missed.
        let of_some = |shard: &&Shard| shard.daemon == daemon && !shard.scope.is_empty();
        let at_work: BTreeSet<String> = shards
            .iter()
            .filter(of_some)
            .filter(|shard| shard.state.is_held())
            .map(|shard| shard.scope.clone())
            .collect();
        let left = shards.iter_mut().filter(|shard| shard.daemon == daemon && !shard.scope.is_empty());
        for shard in left.filter(|shard| !at_work.contains(&shard.scope)) {
            shard.state = State::Retired;
        }
    }
}

/// Where all shards of one number of replicas are held, what nobody holds of another is left over from before.
fn retire(shards: &mut [Shard]) {
    let numbers: BTreeSet<_> = shards.iter().map(|shard| shard.replicas).collect();
    let is_complete = |replicas: &Option<NonZeroU32>| {
        shards.iter().filter(|shard| shard.replicas == *replicas).all(|shard| shard.state.is_held())
    };
    let complete: BTreeSet<_> = numbers.into_iter().filter(is_complete).collect();
    if complete.is_empty() {
        return;
    }
    for shard in shards.iter_mut().filter(|shard| !complete.contains(&shard.replicas)) {
        if !shard.state.is_held() {
            shard.state = State::Retired;
        }
    }
}

fn seen(
    held: &Held,
    now: Timestamp,
    patience: Duration,
    note: &mut impl FnMut(Subject, Sight) -> Noted,
) -> Shard {
    let noted = note(Subject::Shard(held.name.clone()), Sight::Lease(held.version));
    let renewed = held.claim.renewed_at;
    // What we have seen ourselves counts for more than what two clocks say.
    let is_fresh = is_recent(&held.claim, now) || noted.has_changed && noted.unchanged_for < LIFETIME;
    let state = match &held.claim.holder {
        None => State::Released,
        Some(_) if !is_fresh => State::NotRenewed,
        Some(_) if held.claim.home == Some(held.index) => State::Home,
        Some(_) => State::Adopted,
    };
    Shard {
        daemon: held.daemon.clone(),
        index: held.index,
        replicas: Some(held.replicas),
        scope: held.scope.clone(),
        holder: held.claim.holder.clone(),
        renewed_at: renewed.map(|at| at.to_string()),
        renewed,
        state,
        is_confirmed: noted.unchanged_for >= patience,
    }
}

fn absent(daemon: &str, scope: &str, index: u32, replicas: Option<NonZeroU32>, is_confirmed: bool) -> Shard {
    Shard {
        daemon: daemon.to_owned(),
        index,
        replicas,
        scope: scope.to_owned(),
        holder: None,
        renewed_at: None,
        renewed: None,
        state: State::Absent,
        is_confirmed,
    }
}

impl Shard {
    /// What is not well about it, in words.
    pub(super) fn complaint(&self, age: impl Fn(Timestamp) -> String) -> String {
        let Self { daemon, index, .. } = self;
        let nodes = if self.scope.is_empty() { String::new() } else { format!(" ({})", self.scope) };
        let Some(replicas) = self.replicas else {
            return format!("no {daemon}{nodes} holds a lease: is it installed, and does it run?");
        };
        let shard = format!("shard {index} of {replicas} of the {daemon}{nodes}");
        match (self.state, &self.holder, self.renewed) {
            (State::NotRenewed, Some(holder), Some(at)) => {
                format!("{shard} is not worked on: {holder} has not renewed its lease for {}", age(at))
            }
            (State::NotRenewed, Some(holder), None) => {
                format!("{shard} is not worked on: {holder} has never renewed its lease")
            }
            _ => format!("{shard} is not worked on: nobody holds its lease"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness;

    fn held(daemon: &str, index: u32, replicas: u32, holder: Option<&str>, seconds: i64) -> Held {
        let renewed_at = Timestamp::now().as_second() - seconds;
        let mut held = liveness::tests::held(daemon, (index, replicas), holder, renewed_at);
        held.claim.home = holder.and_then(|holder| holder.rsplit_once('-')?.1.parse().ok());
        held
    }

    fn states(leases: &[Held]) -> Vec<(String, &'static str)> {
        states_after(leases, Noted { unchanged_for: Duration::ZERO, has_changed: false })
    }

    fn states_after(leases: &[Held], noted: Noted) -> Vec<(String, &'static str)> {
        let all = shards(leases, Scope::All, Timestamp::now(), Duration::ZERO, |_, _| noted);
        let name = |shard: &Shard| match shard.replicas {
            Some(replicas) => format!("{} {}/{replicas}", shard.daemon, shard.index),
            None => shard.daemon.clone(),
        };
        all.iter().map(|shard| (name(shard), shard.state.as_str())).collect()
    }

    #[test]
    fn who_holds_what_is_told_and_what_nobody_holds() {
        let leases = [
            held("storer", 0, 3, Some("storer-0"), 1),
            held("storer", 1, 3, Some("storer-0"), 1),
            held("restorer", 0, 2, Some("restorer-0"), 60),
            held("restorer", 1, 2, None, 1),
        ];
        let expected = [
            ("storer 0/3", "home"),
            ("storer 1/3", "adopted"),
            ("storer 2/3", "absent"),
            ("restorer 0/2", "not-renewed"),
            ("restorer 1/2", "released"),
        ];
        assert_eq!(states(&leases), expected.map(|(name, state)| (name.to_owned(), state)));
        let none = [("storer", "absent"), ("restorer", "absent")];
        assert_eq!(states(&[]), none.map(|(name, state)| (name.to_owned(), state)));
    }

    #[test]
    fn what_is_left_of_another_number_of_replicas_is_no_trouble() {
        let now = held("storer", 0, 1, Some("storer-0"), 1);
        let before = held("storer", 1, 2, Some("storer-1"), 60);
        let all = states(&[now, before.clone()]);
        let storers: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("storer")).collect();
        let states: Vec<_> = storers.iter().map(|(_, state)| *state).collect();
        assert_eq!(states, ["home", "retired", "retired"]);
        let all = super::tests::states(&[before]);
        assert!(all.contains(&("storer 1/2".to_owned(), "not-renewed")), "nobody works: {all:?}");
    }

    #[test]
    fn what_is_left_of_a_roll_out_in_stages_is_no_trouble() {
        let scoped = |seconds| Held {
            name: "label-storage.storer.0-of-1.a1b2c3d4".to_owned(),
            scope: "a1b2c3d4".to_owned(),
            ..held("storer", 0, 1, Some("storer-0"), seconds)
        };
        let states = |leases: &[Held]| {
            let all = states(leases).into_iter().filter(|(name, _)| name.starts_with("storer"));
            all.map(|(_, state)| state).collect::<Vec<_>>()
        };
        let for_all = held("storer", 0, 1, Some("storer-0"), 1);
        assert_eq!(states(&[for_all.clone(), scoped(3600)]), ["retired", "home"]);
        assert_eq!(states(&[for_all, scoped(1)]), ["home", "home"], "somebody is at work there");
        let dead = held("storer", 0, 1, Some("storer-0"), 60);
        assert_eq!(states(&[dead, scoped(3600)]), ["not-renewed", "not-renewed"], "nobody works for all");
    }

    #[test]
    fn a_lease_that_claims_billions_of_replicas_does_no_harm() {
        let all = states(&[held("storer", 5, u32::MAX, Some("x-5"), 1)]);
        assert_eq!(all.len(), 1 + MOST_ABSENT + 1);
    }

    #[test]
    fn a_time_from_the_future_is_doubted() {
        let lease = held("storer", 0, 1, Some("storer-0"), -3600);
        assert_eq!(states(std::slice::from_ref(&lease))[0].1, "not-renewed");
    }

    #[test]
    fn a_lease_that_changes_before_our_eyes_is_renewed_whatever_the_clocks_say() {
        let lease = held("storer", 0, 1, Some("storer-0"), 3600);
        for (seconds, has_changed, state) in
            [(0, true, "home"), (3, true, "home"), (3, false, "not-renewed"), (60, true, "not-renewed")]
        {
            let noted = Noted { unchanged_for: Duration::from_secs(seconds), has_changed };
            assert_eq!(states_after(std::slice::from_ref(&lease), noted)[0].1, state, "{noted:?}");
        }
    }
}
