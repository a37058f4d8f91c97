//! Which labels of a Node are kept. That is the storer's decision alone: a restorer that left a label out would mark the
//! Node all the same, and the storer would take the label for removed.
//!
//! A rule says what is stored from now on, and nothing about what was stored before: what a record holds that its storer would
//! not store is left alone in it, and comes back. So rules may change, and differ between replicas while they are rolled
//! out, and nothing that was stored is lost by it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::{Node, Record, key, label};

/// The name of a set of keys: what the kubelet and the cloud say about a machine, and say again when it returns.
pub const MACHINE_FACTS: &str = "machine-facts";

const MACHINE_FACT_KEYS: [&str; 11] = [
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

/// Which labels are stored. By default, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    excluded_keys: BTreeSet<String>,
    excluded_globs: Vec<Glob>,
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

impl FromStr for Rules {
    type Err = Error;

    /// Reads what is to be excluded: keys, patterns and names of sets, with commas between them. Nothing excludes nothing.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut rules = Self::default();
        if text.trim().is_empty() {
            return Ok(rules);
        }
        for pattern in text.split(',').map(str::trim) {
            if pattern == MACHINE_FACTS {
                rules.excluded_keys.extend(MACHINE_FACT_KEYS.map(str::to_owned));
            } else if pattern.contains('*') {
                rules.excluded_globs.push(Glob::new(pattern)?);
            } else if label::is_key(pattern) {
                rules.excluded_keys.insert(pattern.to_owned());
            } else if pattern.is_empty() {
                return Err(Error::Empty);
            } else {
                return Err(Error::NoKey(pattern.to_owned()));
            }
        }
        Ok(rules)
    }
}

impl fmt::Display for Rules {
    /// What is excluded, sets spelled out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.excluded_keys.iter().map(String::as_str);
        let globs = self.excluded_globs.iter().map(|glob| glob.0.as_str());
        for (at, pattern) in keys.chain(globs).enumerate() {
            write!(f, "{}{pattern}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Rules {
    /// Whether a label of this key is stored.
    pub fn keep(&self, key: &str) -> bool {
        !self.excluded_keys.contains(key) && !self.excluded_globs.iter().any(|glob| glob.matches(key))
    }

    /// Whether all are: then nobody need ask for each.
    pub fn keep_all(&self) -> bool {
        self.excluded_keys.is_empty() && self.excluded_globs.is_empty()
    }
}

/// A label key with `*` for any characters, a slash among them, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob(String);

impl Glob {
    fn new(pattern: &str) -> Result<Self, Error> {
        // One that has no key among its simplest matches has a character or a length that no key has.
        let could_match = ["", "x"].iter().any(|any| label::is_key(&pattern.replace('*', any)));
        if could_match { Ok(Self(pattern.to_owned())) } else { Err(Error::NoKey(pattern.to_owned())) }
    }

    fn matches(&self, key: &str) -> bool {
        let mut parts = self.0.split('*');
        let (first, last) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
        let Some(rest) = key.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
            return false;
        };
        let found = parts.try_fold(rest, |rest, part| Some(&rest[rest.find(part)? + part.len()..]));
        found.is_some()
    }
}

impl Node {
    /// The Node as a storer with these rules sees it: without the labels that it does not store. Not for a restorer, which must
    /// know all that a Node has, lest it overwrites something.
    pub fn seen_through(mut self, rules: &Rules) -> Self {
        if !rules.keep_all() {
            self.labels.retain(|key, _| rules.keep(key));
        }
        self
    }
}

impl Record {
    /// The record as a storer with these rules sees it: what it would not store is set aside with all else in there that is not
    /// its business. So it makes the record no different from its Node, and not empty, and is written back as it was.
    pub fn seen_through(mut self, rules: &Rules) -> Self {
        if !rules.keep_all() {
            let beyond = self.labels.extract_if(.., |key, _| !rules.keep(key));
            self.leftovers.data.extend(beyond.map(|(key, value)| key::encode_entry(&key, &value)));
        }
        self
    }
}

#[cfg(test)]
mod tests;
