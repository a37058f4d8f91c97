//! Select keys of labels, annotations and taints.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::InvalidRule;
use crate::item::MACHINE_FACT_KEYS;
use crate::label;

/// The names of sets of labels, and the keys and patterns in them. All of these labels are set again when a machine returns.
pub const SETS: [(&str, &[&str]); 2] =
    [("machine-facts", &MACHINE_FACT_KEYS), ("controller-labels", &CONTROLLER_LABELS)];

/// Labels that the kubelet or a controller sets for what it found on the machine. `docs/configuration.md` has the reason for each.
const CONTROLLER_LABELS: [&str; 18] = [
    // CSI drivers, by the kubelet.
    "csi.hetzner.cloud/*",
    "topology.*.csi.*",
    "topology.*.csi/*",
    "topology.csi.*",
    "topology.gke.io/*",
    "topology.linode.com/*",
    "topology.topolvm.io/*",
    // Features of the machine.
    "*.feature.node.kubernetes.io/*",
    "*.node.kubevirt.io/*",
    "amd.com/gpu.*",
    "beta.amd.com/gpu.*",
    "feature.node.kubernetes.io/*",
    "kubevirt.io/schedulable",
    "nvidia.com/*",
    // Clouds and provisioners.
    "karpenter.*/*",
    "kubernetes.azure.com/*",
    "node.kubernetes.io/windows-build",
    "topology.k8s.aws/*",
];

pub(super) const EMPTY: &str = "a value is missing between two commas, or after the last one: remove a comma";

/// The keys that are kept: those that `include` matches and `exclude` does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Matches the keys that are kept.
    pub include: Patterns,
    /// Matches exceptions from `include`.
    pub exclude: Patterns,
}

impl Selection {
    /// Selects every key.
    pub fn all() -> Self {
        Self::all_but(Patterns::default())
    }

    /// Selects every key that these patterns do not match.
    pub fn all_but(exclude: Patterns) -> Self {
        Self { include: Patterns::all(), exclude }
    }

    /// Selects no key.
    pub fn none() -> Self {
        Self { include: Patterns::default(), exclude: Patterns::default() }
    }

    /// True if this key is kept.
    pub fn selects(&self, key: &str) -> bool {
        self.include.matches(key) && !self.exclude.matches(key)
    }

    /// True if every key is kept, so that no key has to be matched.
    pub fn selects_all(&self) -> bool {
        self.include.is_all() && self.exclude.is_empty()
    }

    /// True if no key can be kept.
    pub fn selects_none(&self) -> bool {
        self.include.is_empty() || self.exclude.is_all()
    }
}

/// The objects that have the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Keys of labels.
    Label,
    /// Keys of annotations.
    Annotation,
    /// Keys of taints.
    Taint,
}

/// A set of keys, each named or matched by a pattern with `*`. By default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns(BTreeSet<String>);

impl Patterns {
    /// Matches every key.
    pub fn all() -> Self {
        Self(["*".to_owned()].into())
    }

    /// Reads keys, patterns and names of sets.
    pub fn of<'a>(kind: KeyKind, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidRule> {
        let (word, is_key): (_, fn(&str) -> bool) = match kind {
            KeyKind::Label => ("label", label::is_key),
            KeyKind::Annotation => ("annotation", label::is_annotation_key),
            KeyKind::Taint => ("taint", label::is_key),
        };
        let mut read = Self::default();
        for pattern in patterns.into_iter().map(str::trim) {
            if pattern.is_empty() {
                return Err(InvalidRule(EMPTY.to_owned()));
            }
            let is_foreign_set = set(pattern).is_some() && kind != KeyKind::Label;
            let added = if is_foreign_set { None } else { read.add(pattern, is_key) };
            added.ok_or_else(|| match kind {
                KeyKind::Label => InvalidRule(format!(
                    "{pattern:?} matches no label key: give keys such as example.com/pool, patterns such as \
                     example.com/* (* stands for any characters), or the sets {}",
                    SETS.map(|(name, _)| name).join(" and ")
                )),
                _ => InvalidRule(format!(
                    "{pattern:?} matches no {word} key: give keys such as example.com/owner, or patterns such as \
                     example.com/* (* stands for any characters)"
                )),
            })?;
        }
        Ok(read)
    }

    /// Adds a key, a pattern or a set. `None` if it can't match anything for which `is_key` is true.
    pub(super) fn add(&mut self, pattern: &str, is_key: impl Fn(&str) -> bool) -> Option<()> {
        if let Some(words) = set(pattern) {
            self.0.extend(words.iter().map(|&word| word.to_owned()));
            return Some(());
        }
        // A pattern without a key among its simplest matches has a character or a length that no key has. The two with
        // colons are for the names of taints.
        ["", "x", "x:x", "taint:x"].iter().find(|any| is_key(&pattern.replace('*', any)))?;
        self.0.insert(pattern.to_owned());
        Some(())
    }

    /// True if this key is one of them.
    pub fn matches(&self, key: &str) -> bool {
        // Most patterns differ from a key in the first character.
        let begins =
            |pattern: &String| pattern.starts_with('*') || pattern.bytes().next() == key.bytes().next();
        self.0.iter().any(|pattern| begins(pattern) && is_match(pattern, key))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if one of the patterns is a star alone.
    pub fn is_all(&self) -> bool {
        self.0.iter().any(|pattern| pattern.bytes().all(|byte| byte == b'*'))
    }

    /// The names of sets, then the other keys, then the patterns.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let has_all = |(_, words): &(_, &[&str])| words.iter().all(|word| self.0.contains(*word));
        let (names, sets): (Vec<_>, Vec<_>) = SETS.into_iter().filter(has_all).unzip();
        let others = self.0.iter().map(String::as_str).filter(|word| !sets.concat().contains(word));
        let (globs, keys): (Vec<_>, Vec<_>) = others.partition(|word| word.contains('*'));
        names.into_iter().chain(keys).chain(globs)
    }

    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

impl FromStr for Patterns {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Self::of(KeyKind::Label, text.split(','))
    }
}

/// The keys and patterns in the set of this name.
fn set(name: &str) -> Option<&'static [&'static str]> {
    SETS.iter().find(|(its, _)| *its == name).map(|(_, words)| *words)
}

/// True if the pattern is this key. In a pattern, `*` stands for any number of any characters, slashes too.
pub(super) fn is_match(pattern: &str, key: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == key };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(key) = key.strip_prefix(first).and_then(|key| key.strip_suffix(last)) else { return false };
    middle.split('*').try_fold(key, |key, part| Some(&key[key.find(part)? + part.len()..])).is_some()
}
