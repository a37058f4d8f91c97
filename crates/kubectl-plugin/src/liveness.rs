//! Whether somebody renews a Lease: one judgement for all commands.
//!
//! Clocks of machines disagree, so what a Lease's own time says counts only where it is no surprise. Otherwise the Lease is looked at again,
//! as the daemons do it: one that changes before our eyes is renewed, whatever the clocks say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use label_storage::ResourceVersion;
use label_storage_runtime::call::Error;
use label_storage_runtime::lease::{Claim, LIFETIME};
use tokio::time::Instant;

use crate::leases::{Held, all_held};

/// So far may a clock be ahead of ours before we doubt both.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

/// Whether it was renewed of late, by its holder's clock and by ours.
pub(crate) fn is_recent(claim: &Claim, now: Timestamp) -> bool {
    let lifetime = SignedDuration::try_from(LIFETIME).unwrap_or(SignedDuration::MAX);
    claim.renewed_at.is_some_and(|at| (-AHEAD..=lifetime).contains(&now.duration_since(at)))
}

/// What several looks at all Leases have shown.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    /// As they were seen last.
    pub(crate) all: Vec<Held>,
    versions: BTreeMap<String, Option<ResourceVersion>>,
    /// Those that have changed while we looked, by name, and when we saw that.
    pub(crate) renewed: BTreeMap<String, Timestamp>,
    /// Those that are recent by the clocks.
    recent: BTreeSet<String>,
}

impl Vigil {
    /// Takes one more look. `now` is by the clock that is trusted most.
    pub(crate) fn look(&mut self, all: Vec<Held>, now: Timestamp) {
        for held in &all {
            let before = self.versions.insert(held.name.clone(), held.version);
            if before.is_some_and(|before| before != held.version) {
                self.renewed.insert(held.name.clone(), now);
            }
            if is_recent(&held.claim, now) {
                self.recent.insert(held.name.clone());
            }
        }
        self.all = all;
    }

    /// Whether somebody holds it, and renews it.
    pub(crate) fn is_alive(&self, held: &Held) -> bool {
        let is_renewed = self.renewed.contains_key(&held.name) || self.recent.contains(&held.name);
        held.claim.holder.is_some() && is_renewed
    }

    /// Looks until all is clear, or for this long. `waits` is called where one look is not enough.
    pub(crate) async fn keep(
        client: &Client,
        namespace: &str,
        now: impl Fn() -> Timestamp,
        is_clear: impl Fn(&Self) -> bool,
        patience: Duration,
        waits: impl FnOnce(),
    ) -> Result<Self, Error> {
        let mut vigil = Self::default();
        vigil.look(all_held(client.clone(), namespace).await?, now());
        if is_clear(&vigil) {
            return Ok(vigil);
        }
        waits();
        let deadline = Instant::now() + patience;
        while !is_clear(&vigil) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_secs(1)).await;
            vigil.look(all_held(client.clone(), namespace).await?, now());
        }
        Ok(vigil)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// A Lease of a shard of so many, renewed at this second.
    pub(crate) fn held(
        daemon: &str,
        (index, replicas): (u32, u32),
        holder: Option<&str>,
        renewed_at: i64,
    ) -> Held {
        let claim = Claim {
            holder: holder.map(str::to_owned),
            home: Some(0),
            position: None,
            renewed_at: Timestamp::from_second(renewed_at).ok(),
        };
        Held {
            name: format!("label-storage.{daemon}.{index}-of-{replicas}"),
            daemon: daemon.to_owned(),
            index,
            replicas: NonZeroU32::new(replicas).expect("not zero"),
            scope: String::new(),
            claim,
            acquired_at: None,
            version: Some(ResourceVersion(7)),
        }
    }

    #[test]
    fn a_lease_that_changes_before_our_eyes_is_renewed_whatever_the_clocks_say() {
        let now = Timestamp::from_second(10_000).expect("a time");
        for (renewed_at, at_a_glance) in
            [(10_000, true), (9_990, true), (10_004, true), (9_900, false), (13_600, false)]
        {
            let lease = held("storer", (0, 1), Some("a"), renewed_at);
            let mut vigil = Vigil::default();
            vigil.look(vec![lease.clone()], now);
            assert_eq!(vigil.is_alive(&lease), at_a_glance, "{renewed_at}");
            vigil.look(vec![lease.clone()], now);
            assert_eq!(vigil.is_alive(&lease), at_a_glance, "it has not changed");
            let later = Held { version: Some(ResourceVersion(8)), ..lease.clone() };
            vigil.look(vec![later.clone()], now);
            assert!(vigil.is_alive(&later), "{renewed_at}");
            let released = held("storer", (0, 1), None, renewed_at);
            assert!(!vigil.is_alive(&released), "nobody holds it");
        }
    }
}
