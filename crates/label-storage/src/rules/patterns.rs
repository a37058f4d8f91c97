//! Keys by name, by pattern and in sets.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::builtin_exclusions;
use crate::label;

/// The name of a set of keys: what the kubelet and the cloud say about a machine, and say again when it returns.
pub const MACHINE_FACTS: &str = "machine-facts";

pub(super) const MACHINE_FACT_KEYS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Which keys of a kind are kept: those that are included, but for those that are excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// What is kept.
    pub include: Patterns,
    /// And what of that is not.
    pub exclude: Patterns,
}

impl Selection {
    /// Everything.
    pub fn all() -> Self {
        Self::all_but(Patterns::default())
    }

    /// Everything but this.
    pub fn all_but(exclude: Patterns) -> Self {
        Self { include: Patterns::all(), exclude }
    }

    /// Nothing.
    pub fn none() -> Self {
        Self { include: Patterns::default(), exclude: Patterns::default() }
    }

    /// Whether this key is kept.
    pub fn selects(&self, key: &str) -> bool {
        self.include.matches(key) && !self.exclude.matches(key)
    }

    /// Whether every key is: then nobody need ask for each.
    pub fn selects_all(&self) -> bool {
        self.include.is_all() && self.exclude.is_empty()
    }

    /// Whether no key can be.
    pub fn selects_none(&self) -> bool {
        self.include.is_empty() || self.exclude.is_all()
    }
}

/// Some keys: named, in a set that has a name, or matched by a pattern. By default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    keys: BTreeSet<String>,
    globs: BTreeSet<Glob>,
}

/// What the keys are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of labels.
    Label,
    /// Of annotations.
    Annotation,
    /// Of taints.
    Taint,
}

impl Kind {
    /// Whether something of this kind can have such a key.
    fn takes(self, key: &str) -> bool {
        match self {
            Self::Label | Self::Taint => label::is_key(key),
            Self::Annotation => label::is_annotation_key(key),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Label => "label",
            Self::Annotation => "annotation",
            Self::Taint => "taint",
        })
    }
}

/// A pattern that can't have been meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two commas, or one too many at the end.
    #[error("there is nothing between two commas, or after the last one: remove a comma")]
    Empty,
    /// No label has such a key.
    #[error(
        "{0:?} matches no label key: give keys such as example.com/pool, patterns such as example.com/* (* stands for any \
         characters), or the set {MACHINE_FACTS}"
    )]
    NoLabel(String),
    /// Nothing else of that kind has one either.
    #[error(
        "{pattern:?} matches no {kind} key: give keys such as example.com/owner, or patterns such as example.com/* (* stands for any \
         characters)"
    )]
    NoKey {
        /// What the key would be of.
        kind: Kind,
        /// What was given.
        pattern: String,
    },
    /// Chosen in vain.
    #[error(
        "{0:?} is never kept: it tells of a machine's present state, and is set again where it is true; remove it"
    )]
    Never(String),
    /// Chosen without need.
    #[error("{0:?} belongs to Label Storage, which sees to it without being told: remove it")]
    Ours(String),
}

impl Patterns {
    /// What matches every key.
    pub fn all() -> Self {
        Self { keys: BTreeSet::new(), globs: [Glob("*".to_owned())].into() }
    }

    /// Reads keys, patterns and names of sets.
    pub fn of<'a>(kind: Kind, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut read = Self::default();
        for pattern in patterns.into_iter().map(str::trim) {
            if pattern.is_empty() {
                return Err(Error::Empty);
            }
            // The set is one of labels.
            let is_set = pattern == MACHINE_FACTS && kind != Kind::Label;
            let added = if is_set { None } else { read.add(pattern, |key| kind.takes(key)) };
            added.ok_or_else(|| match kind {
                Kind::Label => Error::NoLabel(pattern.to_owned()),
                _ => Error::NoKey { kind, pattern: pattern.to_owned() },
            })?;
        }
        Ok(read)
    }

    /// Reads what is to be kept. To name something that never is kept is an error; to have it among others is not.
    pub fn included<'a>(kind: Kind, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let read = Self::of(kind, patterns)?;
        let is_never = |key: &&str| match kind {
            Kind::Label => false,
            Kind::Annotation => builtin_exclusions::is_machine_annotation(key),
            Kind::Taint => builtin_exclusions::is_lifecycle_taint(key),
        };
        let never = read.keys().find(is_never).map(str::to_owned);
        match never {
            None => Ok(read),
            Some(key) if key.starts_with(builtin_exclusions::OURS) => Err(Error::Ours(key)),
            Some(key) => Err(Error::Never(key)),
        }
    }

    /// Adds a key, a pattern or a set, where `is_key` says what can be a key at all. `None` if it can match nothing.
    pub(super) fn add(&mut self, pattern: &str, is_key: impl Fn(&str) -> bool) -> Option<()> {
        if pattern == MACHINE_FACTS {
            self.keys.extend(MACHINE_FACT_KEYS.map(str::to_owned));
        } else if pattern.contains('*') {
            self.globs.insert(Glob::new(pattern, is_key)?);
        } else if is_key(pattern) {
            self.keys.insert(pattern.to_owned());
        } else {
            return None;
        }
        Some(())
    }

    /// Whether this key is one of them.
    pub fn matches(&self, key: &str) -> bool {
        self.keys.contains(key) || self.globs.iter().any(|glob| glob.matches(key))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.globs.is_empty()
    }

    /// Whether every key is one of them, at first sight.
    pub fn is_all(&self) -> bool {
        self.globs.iter().any(|glob| glob.0.bytes().all(|byte| byte == b'*'))
    }

    /// The keys that are named, those of sets among them.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Everything that was given, as short as it can be said: sets by name.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let has_facts = MACHINE_FACT_KEYS.iter().all(|key| self.keys.contains(*key));
        let keys = self.keys().filter(move |key| !(has_facts && MACHINE_FACT_KEYS.contains(key)));
        let set = has_facts.then_some(MACHINE_FACTS);
        set.into_iter().chain(keys).chain(self.globs.iter().map(|glob| glob.0.as_str()))
    }

    /// Adds all that others match.
    pub(super) fn extend(&mut self, others: Self) {
        self.keys.extend(others.keys);
        self.globs.extend(others.globs);
    }
}

impl FromStr for Patterns {
    type Err = Error;

    /// Reads keys of labels, patterns and names of sets, with commas between them. An empty text has none.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::of(Kind::Label, split(text))
    }
}

impl fmt::Display for Patterns {
    /// With commas between them, as it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pattern) in self.words().enumerate() {
            write!(f, "{}{pattern}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// What stands between the commas of a text. In one that is empty, nothing does.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    let commas = (!text.trim().is_empty()).then(|| text.split(','));
    commas.into_iter().flatten()
}

/// A key with `*` for any characters, a slash among them, or none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glob(pub(super) String);

impl Glob {
    fn new(pattern: &str, is_key: impl Fn(&str) -> bool) -> Option<Self> {
        // One that has no key among its simplest matches has a character or a length that no key has. The two with colons are for
        // the names of taints.
        let could_match = |any: &&str| is_key(&pattern.replace('*', any));
        ["", "x", "x:x", "taint:x"].iter().any(could_match).then(|| Self(pattern.to_owned()))
    }

    pub(super) fn matches(&self, key: &str) -> bool {
        let mut parts = self.0.split('*');
        let (first, last) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
        let Some(rest) = key.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
            return false;
        };
        let found = parts.try_fold(rest, |rest, part| Some(&rest[rest.find(part)? + part.len()..]));
        found.is_some()
    }
}
