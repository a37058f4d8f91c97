//! The rules of a soak, and the items that people set so that the rules matter.

use std::time::Duration;

use label_storage::Rules;
use label_storage::item::Item;
use label_storage::rules::patterns::KeyKind;
use label_storage::rules::{Conflicts, IdentityBy, InvalidRule, Patterns, Selection, Winner};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Label keys: ordinary ones, and some that a record has to encode.
const LABELS: [&str; 6] =
    ["pool", "example.com/rack", "a-SLASH-b", "a/b", "topology.example.com/zone", "tier"];
const ANNOTATIONS: [&str; 3] =
    ["annotation:example.com/owner", "annotation:example.com/last-seen", "annotation:note"];
/// Two have the same key and another effect.
const TAINTS: [&str; 4] = [
    "taint:NoSchedule:dedicated",
    "taint:NoExecute:dedicated",
    "taint:NoSchedule:example.com/draining",
    "taint:PreferNoSchedule:example.com/gpu",
];
const CORDON: &str = "cordon:";

/// The key of the identity, if it is a label or an annotation.
const SLOT: &str = "example.com/slot";

const LABEL_PATTERNS: [&str; 6] = ["pool", "tier", "*example.com/*", "*/zone", "a*", "a/b"];
const OTHER_PATTERNS: [&str; 4] = ["example.com/*", "note", "dedicated", "*"];
const EXCLUDED: [&str; 3] = ["example.com/last-seen", "example.com/draining", "*/gpu"];
const CONFLICTS: [&str; 7] =
    ["*", "pool", "*example.com/*", "a*", "annotation:*", "taint:*:dedicated", "tier"];

/// A retention that is longer than any soak.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// The names of the items that people set and remove (see [`label_storage::item`]): all labels, and all of each other kind of which the rules
/// keep any.
pub(crate) fn names(rules: &Rules) -> Vec<&'static str> {
    let mut names = LABELS.to_vec();
    if !rules.annotations.selects_none() {
        names.extend(ANNOTATIONS);
    }
    if !rules.taints.selects_none() {
        names.extend(TAINTS);
    }
    names.extend(rules.cordon.then_some(CORDON));
    names
}

/// The rules of this seed.
pub fn draw(seed: u64) -> anyhow::Result<Rules> {
    // Independent of the acts of people, and of the storms.
    let mut random = SmallRng::seed_from_u64(seed ^ 0x0f_ab1e);
    let labels = match random.random_range(0..4) {
        0 | 1 => Selection::all(),
        2 => Selection::all_but(some(&mut random, KeyKind::Label, &LABEL_PATTERNS)?),
        _ => {
            let include = some(&mut random, KeyKind::Label, &LABEL_PATTERNS)?;
            Selection { include, exclude: one(&mut random, KeyKind::Label, &LABEL_PATTERNS)? }
        }
    };
    let annotations = others(&mut random, KeyKind::Annotation)?;
    let taints = others(&mut random, KeyKind::Taint)?;
    let by = ["providerID", "systemUUID", "label", "annotation"].choose(&mut random);
    let identity = match by.filter(|_| random.random_ratio(1, 2)) {
        Some(&"label") => IdentityBy::Label(SLOT.to_owned()),
        Some(&"annotation") => IdentityBy::Annotation(SLOT.to_owned()),
        Some(by) => by.parse()?,
        None => IdentityBy::Name,
    };
    // One that is shorter than a storm, and one that is longer than the time limit of a calm.
    let at_most = [60, 600].choose(&mut random).copied().map(Duration::from_secs);
    Ok(Rules {
        labels,
        annotations,
        taints,
        cordon: random.random_ratio(1, 3),
        conflicts: winners(&mut random)?,
        identity,
        startup_taint: at_most.filter(|_| random.random_ratio(2, 5)),
        history: [0, 1, 3, 20].choose(&mut random).copied().unwrap_or_default(),
        ..Rules::default()
    })
}

/// Two or three of these.
fn some(random: &mut SmallRng, kind: KeyKind, words: &[&str]) -> Result<Patterns, InvalidRule> {
    let count = random.random_range(2..4);
    Patterns::of(kind, words.sample(random, count).copied())
}

fn one(random: &mut SmallRng, kind: KeyKind, words: &[&str]) -> Result<Patterns, InvalidRule> {
    Patterns::of(kind, words.choose(random).copied())
}

/// The selection of items other than labels: none in half of the cases.
fn others(random: &mut SmallRng, kind: KeyKind) -> Result<Selection, InvalidRule> {
    let include = one(random, kind, &OTHER_PATTERNS)?;
    let exclude = one(random, kind, &EXCLUDED)?;
    Ok(if random.random_ratio(1, 2) { Selection { include, exclude } } else { Selection::none() })
}

/// The winners of conflicts: always the Node, in half of the cases.
fn winners(random: &mut SmallRng) -> Result<Conflicts, InvalidRule> {
    let mut winners = Conflicts::default();
    let count = if random.random_ratio(1, 2) { random.random_range(1..4) } else { 0 };
    for _ in 0..count {
        let winner = [Winner::Record, Winner::Record, Winner::Node, Winner::Report].choose(random);
        let name = CONFLICTS.choose(random).copied().unwrap_or("*");
        winners.add(name, winner.copied().unwrap_or_default())?;
    }
    Ok(winners)
}

/// Refuses rules that the oracle can't judge.
pub fn judgeable(rules: &Rules) -> anyhow::Result<()> {
    let default = Rules::default();
    let is_changed = match &rules.identity {
        IdentityBy::Label(key) => LABELS.contains(&key.as_str()),
        IdentityBy::Annotation(key) => ANNOTATIONS.contains(&Item::Annotation(key).to_string().as_str()),
        IdentityBy::Name | IdentityBy::ProviderId | IdentityBy::SystemUuid => false,
    };
    let unjudged = [
        ("an identity that people change", is_changed),
        ("nodes.selector", rules.selector != default.selector),
        ("nodes.optIn", rules.opt_in),
        ("identity.otherMachine", rules.depends_on_machine()),
        ("a retention below 1d", rules.retention < LONG),
    ];
    match unjudged.into_iter().find(|(_, is_there)| *is_there) {
        Some((rule, _)) => {
            anyhow::bail!("the soak can't judge {rule}: remove it from the rules")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = 400;

    #[test]
    fn a_seed_draws_the_same_rules_again_and_a_file_says_them() {
        for seed in 0..MANY {
            let rules = draw(seed).expect("rules");
            assert_eq!(rules, draw(seed).expect("rules"));
            assert_eq!(Rules::from_yaml(&rules.to_string()).expect("a file"), rules);
            judgeable(&rules).expect("rules that can be judged");
        }
    }

    #[test]
    fn each_rule_is_drawn_in_a_fair_share_of_runs() {
        let drawn: Vec<_> = (0..MANY).map(|seed| draw(seed).expect("rules")).collect();
        let has_winner = |rules: &Rules, winner| rules.conflicts.iter().any(|(_, its)| its == winner);
        let by = |rules: &Rules, by: &str| rules.identity.to_string().starts_with(by);
        type IsDrawn<'a> = &'a dyn Fn(&Rules) -> bool;
        let shares: [(&str, IsDrawn<'_>); 16] = [
            ("all labels", &|rules| rules.labels.selects_all()),
            ("labels excluded", &|rules| !rules.labels.exclude.is_empty()),
            ("labels included", &|rules| !rules.labels.include.is_all()),
            ("annotations", &|rules| !rules.annotations.selects_none()),
            ("taints", &|rules| !rules.taints.selects_none()),
            ("cordon", &|rules| rules.cordon),
            ("the record wins", &|rules| has_winner(rules, Winner::Record)),
            ("conflicts are reported", &|rules| has_winner(rules, Winner::Report)),
            ("the node wins always", &|rules| rules.conflicts == Conflicts::default()),
            ("by name", &|rules| rules.identity == IdentityBy::Name),
            ("by providerID", &|rules| by(rules, "providerID")),
            ("by systemUUID", &|rules| by(rules, "systemUUID")),
            ("by a label", &|rules| by(rules, "label:")),
            ("by an annotation", &|rules| by(rules, "annotation:")),
            ("start-up taint", &|rules| rules.startup_taint.is_some()),
            ("no history", &|rules| rules.history == 0),
        ];
        for (what, is_drawn) in shares {
            let percent = drawn.iter().filter(|rules| is_drawn(rules)).count() as u64 * 100 / MANY;
            assert!((7..75).contains(&percent), "{what}: {percent} %");
        }
    }

    #[test]
    fn what_is_never_kept_is_not_set() {
        assert_eq!(names(&Rules::default()), LABELS);
        let all = Rules {
            annotations: Selection::all(),
            taints: Selection::all(),
            cordon: true,
            ..Rules::default()
        };
        assert_eq!(names(&all).len(), 14);
        assert!(names(&all).iter().all(|name| all.keeps(name, None)));
    }

    #[test]
    fn rules_that_can_not_be_judged_are_refused() {
        for text in [
            "nodes: {selector: a}",
            "nodes: {optIn: true}",
            "identity: {by: 'label:pool'}",
            "identity: {by: 'annotation:note'}",
            "identity: {otherMachine: untrusted}",
            "identity: {otherMachine: none}",
            "retention: 1h",
        ] {
            judgeable(&Rules::from_yaml(text).expect("rules")).expect_err(text);
        }
    }
}
