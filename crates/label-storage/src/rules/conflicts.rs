//! Whose word counts, where a Node that returned has something already, with another value than its record.

use std::fmt;
use std::str::FromStr;

use super::patterns::{self, Patterns};
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
        for name in names {
            patterns.add(name, is_name).map_err(|error| match error {
                patterns::Error::Empty => Error::Empty,
                patterns::Error::NoKey(name) => Error::NoName(name),
            })?;
        }
        match self.0.last_mut() {
            // So that what means the same is the same.
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

/// Whether something that is kept can have this name.
fn is_name(name: &str) -> bool {
    match name.split_once(':') {
        None => label::is_key(name),
        Some(("cordon", "")) => true,
        Some(("annotation", key)) => label::is_key(key),
        // An effect may be a star, which the patterns replace by nothing or by an x.
        Some(("taint", taint)) => taint.split_once(':').is_some_and(|(effect, key)| {
            label::is_key(key) && effect.bytes().all(|byte| byte.is_ascii_alphabetic())
        }),
        Some(_) => false,
    }
}

impl FromStr for Conflicts {
    type Err = Error;

    /// Reads `NAME=WINNER`, with commas between them.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut conflicts = Self::default();
        if text.trim().is_empty() {
            return Ok(conflicts);
        }
        for part in text.split(',').map(str::trim) {
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

impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Record => "record",
            Self::Report => "report",
        })
    }
}
