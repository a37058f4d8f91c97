//! Conflicts: a returning Node already has an item, with another value than its record.

use std::fmt;
use std::str::FromStr;

use super::InvalidRule;
use super::patterns::{EMPTY, Patterns};
use crate::item::Item;
use crate::label;

/// Decides a conflict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Winner {
    /// The Node's value stays, and is stored.
    #[default]
    Node,
    /// The record's value replaces the Node's.
    Record,
    /// The Node's value stays, and the conflict is reported.
    Report,
}

/// The winners by name of the item. The first pattern that matches counts; without a match, the Node wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts(Vec<(Patterns, Winner)>);

impl Conflicts {
    /// The winner for the item of this name (see [`Item`]).
    pub fn winner(&self, name: &str) -> Winner {
        let found = self.0.iter().find(|(patterns, _)| patterns.matches(name));
        found.map_or_else(Winner::default, |(_, winner)| *winner)
    }

    /// Adds a pattern that counts where no earlier one matches.
    pub fn add(&mut self, name: &str, winner: Winner) -> Result<(), InvalidRule> {
        let name = name.trim();
        if name.is_empty() {
            return Err(InvalidRule(EMPTY.to_owned()));
        }
        let is_pattern = name.contains('*');
        let mut patterns = Patterns::default();
        patterns.add(name, |name| is_name(name, is_pattern)).ok_or_else(|| {
            InvalidRule(format!(
                "{name:?} can't match any item: give label keys or patterns such as example.com/*, \
                 annotation:KEY, taint:EFFECT:KEY (such as taint:*:dedicated) or cordon:"
            ))
        })?;
        match self.0.last_mut() {
            // Equal rules compare equal, however they were grouped.
            Some((last, its)) if *its == winner => last.extend(patterns),
            _ => self.0.push((patterns, winner)),
        }
        Ok(())
    }

    /// The patterns in the order in which they count, each with its winner.
    pub fn iter(&self) -> impl Iterator<Item = (&Patterns, Winner)> {
        self.0.iter().map(|(patterns, winner)| (patterns, *winner))
    }
}

/// True if an item can have this name. In a pattern, the effect of a taint may be any text.
fn is_name(name: &str, is_pattern: bool) -> bool {
    let is_taint =
        |(effect, key): (&str, &str)| !effect.is_empty() && !effect.contains(':') && label::is_key(key);
    match name.strip_prefix("taint:") {
        Some(taint) if is_pattern => taint.split_once(':').is_some_and(is_taint),
        _ => Item::parse(name).is_some(),
    }
}

impl Winner {
    /// The name in rules, logs and metrics. Users rely on it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Record => "record",
            Self::Report => "report",
        }
    }
}

impl FromStr for Winner {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let found = [Self::Node, Self::Record, Self::Report].into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| {
            InvalidRule(format!("{text:?} is not a valid winner: write node, record or report"))
        })
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
        for (name, winner) in [("a", Winner::Record), ("b", Winner::Record), ("c", Winner::Node)] {
            together.add(name, winner).expect("a name");
        }
        assert_eq!(conflicts("b=record,a=record,c=node"), together);
        assert_ne!(conflicts("a=record,c=node,b=record"), together);
        assert_eq!(conflicts(" "), Conflicts::default());
    }

    #[test]
    fn what_can_not_have_been_meant_is_refused_with_advice() {
        for (text, advice) in [
            ("a=record,", "remove a comma"),
            ("=record", "remove a comma"),
            ("a=storer", "\"storer\" is not a valid winner: write node, record or report"),
            ("a=b=node", "\"b=node\" is not a valid winner"),
            ("a b=node", "\"a b\" can't match any item"),
            ("label:a=node", "\"label:a\" can't match any item: give label keys"),
            ("taint:dedicated=node", "taint:EFFECT:KEY (such as taint:*:dedicated)"),
            ("taint:Never:dedicated=node", "can't match any item"),
            ("taint::dedicated=node", "can't match any item"),
            ("annotation:=node", "can't match any item"),
            ("taint:*:a:b=node", "can't match any item"),
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
