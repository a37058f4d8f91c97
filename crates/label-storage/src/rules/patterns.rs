//! Keys by name, by pattern and in sets.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

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

/// A pattern that can't have been meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two commas, or one too many at the end.
    #[error("there is nothing between two commas, or after the last one: remove a comma")]
    Empty,
    /// No label key looks like that.
    #[error(
        "{0:?} matches no label key: give keys such as example.com/pool, patterns such as example.com/* (* stands for any \
         characters), or the set {MACHINE_FACTS}"
    )]
    NoKey(String),
}

impl Patterns {
    /// What matches every key.
    pub fn all() -> Self {
        Self { keys: BTreeSet::new(), globs: [Glob("*".to_owned())].into() }
    }

    /// Reads keys, patterns and names of sets.
    pub fn from_list<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut read = Self::default();
        for pattern in patterns {
            read.add(pattern, label::is_key)?;
        }
        Ok(read)
    }

    /// Adds a key, a pattern or a set, where `is_key` says what can be a key at all.
    pub(super) fn add(&mut self, pattern: &str, is_key: impl Fn(&str) -> bool) -> Result<(), Error> {
        let pattern = pattern.trim();
        if pattern == MACHINE_FACTS {
            self.keys.extend(MACHINE_FACT_KEYS.map(str::to_owned));
        } else if pattern.contains('*') {
            self.globs.insert(Glob::new(pattern, is_key)?);
        } else if pattern.is_empty() {
            return Err(Error::Empty);
        } else if is_key(pattern) {
            self.keys.insert(pattern.to_owned());
        } else {
            return Err(Error::NoKey(pattern.to_owned()));
        }
        Ok(())
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

    /// Reads keys, patterns and names of sets, with commas between them. An empty text has none.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() { Ok(Self::default()) } else { Self::from_list(text.split(',')) }
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

/// A key with `*` for any characters, a slash among them, or none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glob(pub(super) String);

impl Glob {
    fn new(pattern: &str, is_key: impl Fn(&str) -> bool) -> Result<Self, Error> {
        // One that has no key among its simplest matches has a character or a length that no key has. A taint's name has a colon,
        // for which a star may stand, too.
        let could_match = ["", "x", "x:x"].iter().any(|any| is_key(&pattern.replace('*', any)));
        if could_match { Ok(Self(pattern.to_owned())) } else { Err(Error::NoKey(pattern.to_owned())) }
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
