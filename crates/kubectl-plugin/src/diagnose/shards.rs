//! The holder of each shard.
//!
//! The clocks of machines differ. So a lease with an old time is read again: if it has changed meanwhile, its holder is alive.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use label_storage::ResourceVersion;
use label_storage_runtime::call::{self, Error};
use label_storage_runtime::lease::{LIFETIME, SeenLease, parse_name};
use serde::Serialize;
use strum::Display;

use super::installation::{COMPONENT, DAEMONS};
use super::{Finding, Severity};
use crate::cluster::{Cluster, ours};
use crate::hints::Hints;
use crate::output::age;
use crate::server_time::ServerTime;

/// A renewal that is further in the future than this is a clock error.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

/// The most shards without a lease that are listed: the name of a lease can contain a number up to four billion.
const MOST_ABSENT: usize = 8;

/// The state of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Holding {
    /// Its own replica holds it.
    Home,
    /// Another replica holds it.
    Adopted,
    /// Its holder does not renew it.
    NotRenewed,
    /// Its holder has released it.
    Released,
    /// It has no lease.
    Absent,
    /// It belongs to an earlier number of replicas, or an earlier `--nodes`.
    Retired,
}

/// A shard and its holder.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shard {
    pub(crate) daemon: String,
    pub(crate) index: u32,
    /// `None` if no lease of the daemon exists.
    pub(crate) replicas: Option<NonZeroU32>,
    /// Set if the daemon handles only some nodes (`--nodes`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) scope: String,
    pub(crate) holder: Option<String>,
    pub(crate) renewed_at: Option<Timestamp>,
    #[serde(skip)]
    pub(crate) acquired_at: Option<Timestamp>,
    /// The keys of the records with final labels that are not stored yet.
    #[serde(skip)]
    pub(crate) pending: BTreeSet<String>,
    pub(crate) state: Holding,
}

impl Shard {
    fn absent(daemon: &str, scope: &str, index: u32, replicas: Option<NonZeroU32>) -> Self {
        let [daemon, scope] = [daemon, scope].map(str::to_owned);
        let (holder, state) = (None, Holding::Absent);
        let pending = BTreeSet::new();
        Self { daemon, index, replicas, scope, holder, renewed_at: None, acquired_at: None, pending, state }
    }

    /// True if this is a restorer that has received the deletion of the Node of this key, and its final labels are not stored yet.
    pub(crate) fn keeps_final_labels(&self, key: &str) -> bool {
        self.daemon == DAEMONS[1] && self.state != Holding::Retired && self.pending.contains(key)
    }

    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.state, Holding::Home | Holding::Adopted)
    }

    pub(crate) fn is_problem(&self) -> bool {
        !self.is_held() && self.state != Holding::Retired
    }

    /// The shard and its holder, in a sentence.
    pub(crate) fn sentence(&self, now: Timestamp) -> String {
        let Self { daemon, index, scope, .. } = self;
        let nodes = if scope.is_empty() { String::new() } else { format!(" for --nodes {scope}") };
        let Some(replicas) = self.replicas else {
            return format!("no {daemon}{nodes} has a lease: none is running");
        };
        let shard = format!("{daemon} shard {index} of {replicas}{nodes}");
        let ago = |at: Option<Timestamp>| {
            at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", age(now.duration_since(at))))
        };
        let (acquired, renewed) = (ago(self.acquired_at), ago(self.renewed_at));
        match (&self.holder, self.state) {
            (Some(holder), Holding::Home) => format!("{shard} is held by {holder}, renewed {renewed}"),
            (Some(holder), Holding::Adopted) => {
                format!("{shard} was adopted by {holder} {acquired}, renewed {renewed}")
            }
            (Some(holder), _) => format!("{shard} has no holder: {holder} last renewed its lease {renewed}"),
            (None, Holding::Absent) => format!("{shard} has no holder: it has no lease"),
            (None, _) => format!("{shard} has no holder: its lease was released {renewed}"),
        }
    }

    pub(crate) fn finding(&self, hints: &Hints, now: Timestamp) -> Option<Finding> {
        let (severity, reason) = match self.state {
            Holding::Home | Holding::Retired => return None,
            Holding::Adopted => (Severity::Note, "shard-adopted"),
            _ => (Severity::Error, "shard-not-held"),
        };
        let pods = hints.in_namespace(&format!("get pods -l {COMPONENT}={}", self.daemon));
        Some(Finding::new(severity, reason, self.sentence(now)).fix(pods))
    }
}

/// The number of replicas of the storer and of the restorer, each with its scope, if it is known.
pub(crate) type Expected = [Option<(u32, String)>; 2];

/// All leases, from several lists.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    all: Vec<Held>,
    /// The version of each lease, and the time of its last change.
    versions: BTreeMap<String, (Option<ResourceVersion>, Option<Instant>)>,
    now: Timestamp,
}

/// A lease of a daemon.
#[derive(Debug, Clone)]
struct Held {
    name: String,
    version: Option<ResourceVersion>,
    /// The shard, as if its holder were alive.
    shard: Shard,
}

impl Held {
    fn new(lease: Lease) -> Option<Self> {
        let name = lease.metadata.name.clone()?;
        let (daemon, shard, scope) = parse_name(&name).filter(|(_, it, _)| it.index < it.replicas.get())?;
        let acquired_at = lease.spec.as_ref().and_then(|spec| Some(spec.acquire_time.as_ref()?.0));
        let seen = SeenLease::new(lease);
        let (version, claim) = (seen.version(), seen.claim);
        let state = match claim.holder {
            None => Holding::Released,
            Some(_) if claim.home == Some(shard.index) => Holding::Home,
            Some(_) => Holding::Adopted,
        };
        let absent = Shard::absent(daemon, scope, shard.index, Some(shard.replicas));
        let pending = claim.position.iter().flat_map(|position| position.pending.iter());
        let shard = Shard {
            holder: claim.holder,
            renewed_at: claim.renewed_at,
            acquired_at,
            pending: pending.map(|(key, _)| key.to_owned()).collect(),
            state,
            ..absent
        };
        Some(Self { version, shard, name })
    }
}

impl Leases {
    /// Lists the leases until each requested shard has a holder, but no longer than `patience`.
    pub(crate) async fn settle(
        cluster: &Cluster,
        time: &ServerTime,
        patience: Duration,
        shards: impl Fn(&Self) -> Vec<Shard>,
    ) -> Result<Vec<Shard>, Error> {
        let (mut leases, began, mut is_silent) = (Self::default(), Instant::now(), true);
        let api: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        loop {
            let listed = call::one("list leases", api.list(&ours())).await?;
            leases.see(listed.items.into_iter().filter_map(Held::new).collect(), time.now());
            let shards = shards(&leases);
            if !shards.iter().any(Shard::is_problem) || began.elapsed() >= patience {
                return Ok(shards);
            }
            if std::mem::take(&mut is_silent) {
                eprintln!("waiting for up to {} s to see if leases are renewed", patience.as_secs());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn see(&mut self, all: Vec<Held>, now: Timestamp) {
        for held in &all {
            let seen = self.versions.entry(held.name.clone()).or_insert((held.version, None));
            if seen.0 != held.version {
                *seen = (held.version, Some(Instant::now()));
            }
        }
        (self.all, self.now) = (all, now);
    }

    fn is_alive(&self, held: &Held) -> bool {
        let lifetime = SignedDuration::try_from(LIFETIME).unwrap_or(SignedDuration::MAX);
        let is_recent = |at| (-AHEAD..=lifetime).contains(&self.now.duration_since(at));
        let changed_at = self.versions.get(&held.name).and_then(|(_, changed_at)| *changed_at);
        held.shard.renewed_at.is_some_and(is_recent) || changed_at.is_some_and(|at| at.elapsed() < LIFETIME)
    }

    /// All shards of both daemons; with a scope, those of daemons with this `--nodes`.
    pub(crate) fn shards(&self, scope: Option<&str>, expected: &Expected) -> Vec<Shard> {
        let of_both = DAEMONS.into_iter().zip(expected);
        of_both.flat_map(|(daemon, expected)| self.of_daemon(daemon, scope, expected.as_ref())).collect()
    }

    fn of_daemon(&self, daemon: &str, only: Option<&str>, expected: Option<&(u32, String)>) -> Vec<Shard> {
        let wanted = only.or(expected.map(|(_, scope)| scope.as_str())).unwrap_or_default();
        let expected = expected.map(|(replicas, _)| *replicas);
        let mut groups = Groups::new();
        for held in self.all.iter().filter(|held| held.shard.daemon == daemon) {
            let (scope, mut shard) = (held.shard.scope.as_str(), held.shard.clone());
            if shard.is_held() && !self.is_alive(held) {
                shard.state = Holding::NotRenewed;
            }
            if let Some(replicas) = shard.replicas.filter(|_| only.is_none_or(|only| only == scope)) {
                groups.entry((scope, replicas)).or_default().insert(shard.index, shard);
            }
        }
        if let Some(replicas) = expected.and_then(NonZeroU32::new) {
            groups.entry((wanted, replicas)).or_default();
        }
        if groups.is_empty() && expected != Some(0) {
            return vec![Shard::absent(daemon, wanted, 0, None)];
        }
        for ((scope, replicas), group) in &mut groups {
            let missing = (0..replicas.get()).filter(|index| !group.contains_key(index));
            for index in missing.take(MOST_ABSENT).collect::<Vec<_>>() {
                group.insert(index, Shard::absent(daemon, scope, index, Some(*replicas)));
            }
        }
        for group in left_over(&groups, wanted, expected) {
            let shards = groups.get_mut(&group).into_iter().flat_map(BTreeMap::values_mut);
            shards.for_each(|shard| shard.state = Holding::Retired);
        }
        groups.into_values().flat_map(BTreeMap::into_values).collect()
    }
}

/// The shards of a daemon with the same `--nodes` and number of replicas.
type Groups<'a> = BTreeMap<(&'a str, NonZeroU32), BTreeMap<u32, Shard>>;

/// The groups without any holder that are left from an earlier number of replicas or an earlier `--nodes`.
fn left_over<'a>(groups: &Groups<'a>, wanted: &str, expected: Option<u32>) -> Vec<(&'a str, NonZeroU32)> {
    let is_whole = |((scope, _), group): (&(&str, NonZeroU32), &BTreeMap<u32, Shard>)| {
        *scope == wanted && group.values().all(Shard::is_held)
    };
    let has_whole = groups.iter().any(is_whole);
    let renewed_at = |group: &BTreeMap<u32, Shard>| group.values().filter_map(|shard| shard.renewed_at).max();
    let is_current = |(scope, replicas): (&str, NonZeroU32)| match expected {
        Some(expected) if scope == wanted => replicas.get() == expected,
        _ if scope != wanted && has_whole => false,
        _ => {
            let of_scope = groups.iter().filter(|((other, _), _)| *other == scope);
            let latest = of_scope.max_by_key(|(_, group)| renewed_at(group));
            latest.is_some_and(|(latest, _)| *latest == (scope, replicas))
        }
    };
    let without_holder = groups.iter().filter(|(_, group)| !group.values().any(Shard::is_held));
    without_holder.map(|(key, _)| *key).filter(|key| !is_current(*key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 10_000;

    fn held(daemon: &str, (index, replicas): (u32, u32), holder: Option<&str>, seconds: i64) -> Held {
        let mut lease = Lease::default();
        lease.metadata.name = Some(format!("label-storage.{daemon}.{index}-of-{replicas}"));
        let mut held = Held::new(lease).expect("a lease");
        held.version = Some(ResourceVersion(7));
        held.shard.holder = holder.map(str::to_owned);
        held.shard.state = match holder.and_then(|holder| holder.rsplit_once('-')?.1.parse::<u32>().ok()) {
            None => Holding::Released,
            Some(home) if home == index => Holding::Home,
            Some(_) => Holding::Adopted,
        };
        held.shard.renewed_at = Timestamp::from_second(NOW - seconds).ok();
        held
    }

    fn scoped(held: Held) -> Held {
        let shard = Shard { scope: "a1b2c3d4".to_owned(), ..held.shard };
        Held { name: format!("{}.a1b2c3d4", held.name), shard, ..held }
    }

    fn leases(all: &[Held]) -> Leases {
        let mut leases = Leases::default();
        leases.see(all.to_vec(), Timestamp::from_second(NOW).expect("a time"));
        leases
    }

    fn expected(numbers: [Option<u32>; 2]) -> Expected {
        numbers.map(|number| number.map(|number| (number, String::new())))
    }

    fn states(all: &[Held], numbers: [Option<u32>; 2]) -> Vec<String> {
        let shards = leases(all).shards(None, &expected(numbers));
        let name = |shard: &Shard| match shard.replicas {
            Some(replicas) => format!("{} {}/{replicas} {}", shard.daemon, shard.index, shard.state),
            None => format!("{} {}", shard.daemon, shard.state),
        };
        shards.iter().map(name).collect()
    }

    fn storers(all: &[Held], expected: Option<u32>) -> Vec<String> {
        states(all, [expected, Some(0)]).into_iter().filter(|text| text.starts_with("storer")).collect()
    }

    #[test]
    fn each_shard_has_a_state() {
        let all = [
            held("storer", (0, 3), Some("storer-0"), 1),
            held("storer", (1, 3), Some("storer-0"), 1),
            held("restorer", (0, 2), Some("restorer-0"), 60),
            held("restorer", (1, 2), None, 1),
        ];
        let expected = [
            "storer 0/3 home",
            "storer 1/3 adopted",
            "storer 2/3 absent",
            "restorer 0/2 not-renewed",
            "restorer 1/2 released",
        ];
        assert_eq!(states(&all, [None, None]), expected);
        assert_eq!(states(&all, [Some(3), Some(2)]), expected);
        assert_eq!(states(&[], [None, None]), ["storer absent", "restorer absent"]);
        assert_eq!(states(&[], [Some(1), Some(0)]), ["storer 0/1 absent"]);
    }

    #[test]
    fn leases_of_another_number_of_replicas_are_retired() {
        let (now, before) =
            (held("storer", (0, 1), Some("storer-0"), 1), held("storer", (1, 2), Some("storer-1"), 60));
        let expected = ["storer 0/1 home", "storer 0/2 retired", "storer 1/2 retired"];
        assert_eq!(storers(&[now.clone(), before.clone()], None), expected);
        assert_eq!(storers(&[now.clone(), before.clone()], Some(1)), expected);
        assert_eq!(
            storers(std::slice::from_ref(&before), None),
            ["storer 0/2 absent", "storer 1/2 not-renewed"]
        );
        let older = held("storer", (0, 5), None, 600);
        let released = held("storer", (0, 1), None, 30);
        assert_eq!(storers(&[released.clone(), older.clone()], None)[0], "storer 0/1 released");
        assert_eq!(storers(&[released.clone(), older.clone()], None)[1], "storer 0/5 retired");
        let scaled_to_0 = storers(&[released, older, before], Some(0));
        assert!(scaled_to_0.iter().all(|text| text.ends_with("retired")), "{scaled_to_0:?}");
    }

    #[test]
    fn leases_of_an_earlier_scope_are_retired() {
        let for_all = held("storer", (0, 1), Some("storer-0"), 1);
        let old = |seconds| scoped(held("storer", (0, 1), Some("storer-0"), seconds));
        assert_eq!(storers(&[for_all.clone(), old(3600)], None), ["storer 0/1 home", "storer 0/1 retired"]);
        assert_eq!(storers(&[for_all, old(1)], None), ["storer 0/1 home", "storer 0/1 home"]);
        let dead = held("storer", (0, 1), Some("storer-0"), 60);
        assert_eq!(storers(&[dead, old(3600)], None), ["storer 0/1 not-renewed", "storer 0/1 not-renewed"]);
    }

    #[test]
    fn a_lease_that_claims_billions_of_replicas_does_no_harm() {
        let all = storers(&[held("storer", (5, u32::MAX), Some("x-5"), 1)], None);
        assert_eq!(all.len(), 1 + MOST_ABSENT);
    }

    #[test]
    fn a_lease_that_changes_meanwhile_is_alive_whatever_the_clocks_say() {
        for (seconds, at_a_glance) in [(0, true), (10, true), (-4, true), (100, false), (-3600, false)] {
            let lease = held("storer", (0, 1), Some("storer-0"), seconds);
            let mut leases = leases(std::slice::from_ref(&lease));
            assert_eq!(leases.is_alive(&lease), at_a_glance, "{seconds}");
            let later = Held { version: Some(ResourceVersion(8)), ..lease };
            leases.see(vec![later.clone()], leases.now);
            assert!(leases.is_alive(&later), "{seconds}");
        }
    }

    #[test]
    fn sentences_name_the_holder() {
        let all = [held("storer", (0, 2), Some("storer-0"), 3), held("storer", (1, 2), Some("storer-1"), 16)];
        let leases = leases(&all);
        let lines: Vec<_> = leases
            .shards(None, &expected([Some(2), Some(0)]))
            .iter()
            .map(|shard| shard.sentence(leases.now))
            .collect();
        assert_eq!(
            lines,
            [
                "storer shard 0 of 2 is held by storer-0, renewed 3s ago",
                "storer shard 1 of 2 has no holder: storer-1 last renewed its lease 16s ago",
            ]
        );
    }
}
