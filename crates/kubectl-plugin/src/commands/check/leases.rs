//! Leases: every shard held and renewed, and nothing left of another number of replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use label_storage_runtime::call::Error;
use label_storage_runtime::lease::{self, LIFETIME};

use super::{Checked, Finding, Look, sets};
use crate::leases::Held;
use crate::liveness::Vigil;
use crate::server_time::ServerTime;

/// How many of a kind are told one by one.
const ENOUGH: usize = 5;

/// What is to be held: one lease for each index below the number, in this scope.
type Group = (NonZeroU32, String);

pub(super) async fn check(look: &Look, sets: &sets::Sets, times: &ServerTime) -> Checked {
    let vigil = match watch(look, times).await {
        Ok(vigil) => vigil,
        Err(error) => {
            let findings = vec![Finding::unknown("who works on which shard", error.to_string())];
            return Checked::new("leases", "", findings);
        }
    };
    let alive = vigil.all.iter().filter(|held| vigil.is_alive(held));
    let renewed: BTreeSet<&str> = alive.map(|held| held.name.as_str()).collect();
    let mut findings = Vec::new();
    for daemon in ["storer", "restorer"] {
        let set = sets.of(daemon);
        let flags = set.and_then(|set| set.flags.as_ref());
        // A dry run takes none.
        if flags.is_some_and(|flags| flags.dry_run) {
            continue;
        }
        let shards = set.and_then(|set| set.shards);
        let expected = flags
            .zip(shards)
            .map(|(flags, shards)| (shards, flags.nodes.as_ref().map(lease::scope).unwrap_or_default()));
        let of_daemon: Vec<_> = vigil
            .all
            .iter()
            .filter(|held| held.daemon == daemon && held.index < held.replicas.get())
            .collect();
        findings.extend(judge(&look.namespace, daemon, &of_daemon, &renewed, expected));
    }
    let summary = format!("{} shards, each held and renewed", renewed.len());
    Checked::new("leases", summary, findings)
}

/// Looks at all leases, for as long as the daemons would where they do not seem to be renewed.
async fn watch(look: &Look, times: &ServerTime) -> Result<Vigil, Error> {
    let is_clear =
        |vigil: &Vigil| vigil.all.iter().all(|held| held.claim.holder.is_none() || vigil.is_alive(held));
    let waits =
        || eprintln!("waiting for up to {} s, to see whether all leases are renewed", LIFETIME.as_secs());
    Vigil::keep(&look.client, &look.namespace, || times.now(), is_clear, LIFETIME, waits).await
}

/// What is wrong with the leases of one daemon.
fn judge(
    namespace: &str,
    daemon: &str,
    all: &[&Held],
    renewed: &BTreeSet<&str>,
    expected: Option<Group>,
) -> Vec<Finding> {
    let mut groups: BTreeMap<Group, Vec<&Held>> = BTreeMap::new();
    for held in all {
        groups.entry((held.replicas, held.scope.clone())).or_default().push(held);
    }
    let is_alive = |group: &[&Held]| group.iter().any(|held| renewed.contains(held.name.as_str()));
    let mut findings = Vec::new();
    if let Some(expected) = &expected {
        groups.entry(expected.clone()).or_default();
    } else if !groups.values().any(|group| is_alive(group)) {
        let message = format!("no {daemon} works here: no lease of one is renewed");
        let pods =
            format!("kubectl get pods --namespace {namespace} --selector app.kubernetes.io/name={daemon}");
        findings.push(Finding::error(message).mend(pods));
    }
    for (group, leases) in &groups {
        let (replicas, _) = group;
        let is_expected = expected.as_ref() == Some(group);
        if is_expected || is_alive(leases) {
            findings.extend(shards(namespace, daemon, *replicas, leases, renewed));
        }
        if expected.is_some() && !is_expected && is_alive(leases) {
            let message = format!(
                "replicas of the {daemon} work as of {replicas} that are not the StatefulSet's: a roll-out is under way, or there is another installation"
            );
            let show = format!("kubectl rollout status statefulset {daemon} --namespace {namespace}");
            findings.push(Finding::warning(message).mend(show));
        }
        if !is_expected && !is_alive(leases) {
            let names: Vec<_> = leases.iter().take(ENOUGH).map(|held| held.name.as_str()).collect();
            let message = format!(
                "{} leases of the {daemon} are left of {replicas} replicas: they do no harm, and running replicas delete them after 10 minutes",
                leases.len()
            );
            let delete = format!("kubectl delete lease {} --namespace {namespace}", names.join(" "));
            findings.push(Finding::note(message).mend(delete));
        }
    }
    findings
}

/// Whether each of so many shards has somebody who works on it.
fn shards(
    namespace: &str,
    daemon: &str,
    replicas: NonZeroU32,
    leases: &[&Held],
    renewed: &BTreeSet<&str>,
) -> Vec<Finding> {
    let of: BTreeMap<u32, &&Held> = leases.iter().map(|held| (held.index, held)).collect();
    let show = |index: u32| format!("kubectl describe pod {daemon}-{index} --namespace {namespace}");
    let mut findings = Vec::new();
    // However many somebody's lease speaks of: no more than are there, and a few that are not.
    let missing = (0..replicas.get()).filter(|index| !of.contains_key(index)).take(ENOUGH);
    for index in missing {
        let message = format!("nobody works on shard {index} of {replicas} of the {daemon}: it has no lease");
        findings.push(Finding::error(message).mend(show(index)));
    }
    for (index, held) in of {
        let (name, claim) = (&held.name, &held.claim);
        let shard = format!("shard {index} of {replicas} of the {daemon}");
        match &claim.holder {
            None => {
                let message =
                    format!("nobody works on {shard}: lease {name} was released, and nobody has taken it");
                findings.push(Finding::error(message).mend(show(index)));
            }
            Some(holder) if !renewed.contains(name.as_str()) => {
                let message = format!("nobody works on {shard}: {holder} does not renew its lease {name}");
                findings.push(Finding::error(message).mend(show(index)));
            }
            Some(holder) if claim.home.is_some_and(|home| home != index) => {
                let message = format!("{holder} stands in for the replica of {shard}, which is not there");
                findings.push(Finding::warning(message).mend(show(index)));
            }
            Some(_) => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use label_storage_runtime::lease::Claim;

    use super::super::Severity;
    use super::*;

    fn held(index: u32, replicas: u32, holder: Option<&str>, home: u32) -> Held {
        Held {
            name: format!("label-storage.storer.{index}-of-{replicas}"),
            daemon: "storer".to_owned(),
            index,
            replicas: NonZeroU32::new(replicas).expect("not 0"),
            scope: String::new(),
            version: None,
            acquired_at: None,
            claim: Claim {
                holder: holder.map(str::to_owned),
                home: Some(home),
                position: None,
                renewed_at: None,
            },
        }
    }

    fn found(leases: &[Held], dead: &[&str], expected: Option<u32>) -> Vec<(Severity, String)> {
        let renewed =
            leases.iter().map(|held| held.name.as_str()).filter(|name| !dead.contains(name)).collect();
        let expected = expected.and_then(NonZeroU32::new).map(|replicas| (replicas, String::new()));
        let findings = judge("ns", "storer", &leases.iter().collect::<Vec<_>>(), &renewed, expected);
        findings.into_iter().map(|finding| (finding.severity, finding.message)).collect()
    }

    fn one(findings: &[(Severity, String)], severity: Severity, words: &str) {
        assert!(matches!(findings, [(s, m)] if *s == severity && m.contains(words)), "{words}: {findings:?}");
    }

    #[test]
    fn every_shard_has_somebody() {
        let whole = [held(0, 2, Some("a"), 0), held(1, 2, Some("b"), 1)];
        assert_eq!(found(&whole, &[], Some(2)), []);
        assert_eq!(found(&whole, &[], None), []);
        let dead = "label-storage.storer.1-of-2";
        one(&found(&whole, &[dead], Some(2)), Severity::Error, "b does not renew");
        one(&found(&whole[..1], &[], None), Severity::Error, "shard 1 of 2 of the storer: it has no lease");
        let adopted = [held(0, 2, Some("a"), 0), held(1, 2, Some("a"), 0)];
        one(&found(&adopted, &[], Some(2)), Severity::Warning, "a stands in for the replica of shard 1");
        let released = [held(0, 2, Some("a"), 0), held(1, 2, None, 1)];
        one(&found(&released, &[dead], Some(2)), Severity::Error, "was released");
        one(&found(&[], &[], None), Severity::Error, "no storer works here");
    }

    #[test]
    fn what_is_left_of_another_number_is_told() {
        let both = [held(0, 1, Some("a"), 0), held(2, 3, Some("z"), 2)];
        one(&found(&both, &["label-storage.storer.2-of-3"], Some(1)), Severity::Note, "left of 3 replicas");
        let alive = found(&both, &[], Some(1));
        assert!(
            alive
                .iter()
                .any(|(severity, message)| *severity == Severity::Warning && message.contains("as of 3"))
        );
    }

    #[test]
    fn an_absurd_number_of_shards_is_told_in_a_few_lines() {
        let findings = found(&[held(0, u32::MAX, Some("a"), 0)], &[], None);
        assert_eq!(findings.len(), ENOUGH);
    }
}
