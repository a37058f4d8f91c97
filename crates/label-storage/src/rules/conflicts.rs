//! Whose word counts, where a Node that returned has something already, with another value than its record.

use std::fmt;
use std::str::FromStr;

use super::patterns::{Patterns, split};
use crate::item::Item;
use crate::label;

/// Whose word counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Winner {
    /// What the Node has stays, and is stored.
    #[default]
    Node,
    /// What the record holds is put in its place.
    Record,
    /// What the Node has stays, and somebody is told.
    Report,
}

/// By name of what is kept. The first pattern that matches counts; where none does, the Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts(Vec<(Patterns, Winner)>);

/// Conflicts that can't have been meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two commas, or one too many at the end.
    #[error("there is nothing between two commas, or after the last one: remove a comma")]
    Empty,
    /// Nothing that is kept has such a name.
    #[error(
        "{0:?} matches nothing that is kept: give label keys or patterns such as example.com/*, annotation:KEY, \
         taint:EFFECT:KEY (such as taint:*:dedicated) or cordon:"
    )]
    NoName(String),
    /// Nobody of that name can win.
    #[error("{0:?} can't win: write node, record or report")]
    NoWinner(String),
    /// A name alone.
    #[error("{0:?} does not say who wins: write {0}=node, {0}=record or {0}=report")]
    NoEquals(String),
}

impl Conflicts {
    /// Whose word counts for what is kept under this name: a label's key, `annotation:KEY`, `taint:EFFECT:KEY` or `cordon:`.
    pub fn winner(&self, name: &str) -> Winner {
        let found = self.0.iter().find(|(patterns, _)| patterns.matches(name));
        found.map_or_else(Winner::default, |(_, winner)| *winner)
    }

    /// Adds patterns that count where none of those before matches.
    pub fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, winner: Winner) -> Result<(), Error> {
        let mut patterns = Patterns::default();
        for name in names.into_iter().map(str::trim) {
            if name.is_empty() {
                return Err(Error::Empty);
            }
            let is_pattern = name.contains('*');
            let added = patterns.add(name, |name| is_name(name, is_pattern));
            added.ok_or_else(|| Error::NoName(name.to_owned()))?;
        }
        match self.0.last_mut() {
            // So that what means the same is the same, however it was written.
            Some((last, its)) if *its == winner => last.extend(patterns),
            _ if patterns.is_empty() => {}
            _ => self.0.push((patterns, winner)),
        }
        Ok(())
    }

    /// Whether the Node wins always, since nothing else was said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns, in the order in which they count, and who wins there.
    pub fn iter(&self) -> impl Iterator<Item = (&Patterns, Winner)> {
        self.0.iter().map(|(patterns, winner)| (patterns, *winner))
    }
}

/// Whether something that is kept can have this name, or could if it stood for a pattern.
fn is_name(name: &str, is_pattern: bool) -> bool {
    let is_taint =
        |(effect, key): (&str, &str)| !effect.is_empty() && !effect.contains(':') && label::is_key(key);
    match name.strip_prefix("taint:") {
        // The effect may be what a pattern was tried with.
        Some(taint) if is_pattern => taint.split_once(':').is_some_and(is_taint),
        _ => Item::parse(name).is_some(),
    }
}

impl FromStr for Conflicts {
    type Err = Error;

    /// Reads `NAME=WINNER`, with commas between them.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut conflicts = Self::default();
        for part in split(text).map(str::trim) {
            let (name, winner) = match part.split_once('=') {
                Some(both) => both,
                None if part.is_empty() => return Err(Error::Empty),
                None => return Err(Error::NoEquals(part.to_owned())),
            };
            conflicts.add([name], winner.trim().parse()?)?;
        }
        Ok(conflicts)
    }
}

impl fmt::Display for Conflicts {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts =
            self.0.iter().flat_map(|(patterns, winner)| patterns.words().map(move |word| (word, winner)));
        for (at, (word, winner)) in parts.enumerate() {
            write!(f, "{}{word}={winner}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Winner {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "node" => Ok(Self::Node),
            "record" => Ok(Self::Record),
            "report" => Ok(Self::Report),
            _ => Err(Error::NoWinner(text.to_owned())),
        }
    }
}

impl Winner {
    /// A word for rules, logs and metrics; part of what users build upon, so it stays.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Record => "record",
            Self::Report => "report",
        }
    }
}

impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflicts(text: &str) -> Conflicts {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_first_that_matches_counts_and_else_the_node() {
        let conflicts = conflicts(
            "pool=record,example.com/a=node,example.com/*=report,annotation:*=record,taint:*:dedicated=report,taint:NoExecute:*=record",
        );
        for (name, winner) in [
            ("pool", Winner::Record),
            ("pools", Winner::Node),
            ("example.com/a", Winner::Node),
            ("example.com/b", Winner::Report),
            ("annotation:example.com/b", Winner::Record),
            ("annotation:pool", Winner::Record),
            ("taint:NoSchedule:dedicated", Winner::Report),
            ("taint:NoExecute:dedicated", Winner::Report),
            ("taint:NoExecute:other", Winner::Record),
            ("taint:NoSchedule:other", Winner::Node),
            ("cordon:", Winner::Node),
        ] {
            assert_eq!(conflicts.winner(name), winner, "{name}");
        }
        assert_eq!(Conflicts::default().winner("pool"), Winner::Node);
    }

    #[test]
    fn a_star_alone_matches_all_that_is_kept() {
        for name in ["pool", "example.com/a", "annotation:a", "taint:NoSchedule:a", "cordon:"] {
            assert_eq!(conflicts("*=record").winner(name), Winner::Record, "{name}");
        }
        assert_eq!(conflicts("cordon:=report").winner("cordon:"), Winner::Report);
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let mut together = Conflicts::default();
        together.add(["a", "b"], Winner::Record).expect("names");
        together.add(["c"], Winner::Node).expect("names");
        assert_eq!(conflicts("b=record,a=record,c=node"), together);
        assert_eq!(together.to_string(), "a=record,b=record,c=node");
        assert_ne!(conflicts("a=record,c=node,b=record"), together);
        assert!(conflicts(" ").is_empty());
    }

    #[test]
    fn no_names_at_all_say_nothing() {
        let mut none = Conflicts::default();
        none.add([], Winner::Record).expect("no names");
        assert_eq!(none, Conflicts::default());
        assert!(none.is_empty() && !conflicts("a=record").is_empty());
    }

    #[test]
    fn what_can_not_have_been_meant_is_refused_with_advice() {
        for (text, advice) in [
            ("a=record,", "remove a comma"),
            ("=record", "remove a comma"),
            ("a", "\"a\" does not say who wins: write a=node, a=record or a=report"),
            ("a=storer", "\"storer\" can't win: write node, record or report"),
            ("a=b=node", "\"b=node\" can't win"),
            ("a b=node", "\"a b\" matches nothing that is kept"),
            ("label:a=node", "\"label:a\" matches nothing that is kept: give label keys"),
            ("taint:dedicated=node", "taint:EFFECT:KEY (such as taint:*:dedicated)"),
            ("taint:Never:dedicated=node", "matches nothing that is kept"),
            ("taint::dedicated=node", "matches nothing that is kept"),
            ("annotation:=node", "matches nothing that is kept"),
            ("taint:*:a:b=node", "matches nothing that is kept"),
        ] {
            let refused = text.parse::<Conflicts>().expect_err(text).to_string();
            assert!(refused.contains(advice), "{text}: {refused}");
        }
        for text in [
            "taint:*=node",
            "*:dedicated=node",
            "taint:No*:a=node",
            "annotation:Example.com/*=node",
            "taint*=node",
        ] {
            conflicts(text);
        }
    }
}
