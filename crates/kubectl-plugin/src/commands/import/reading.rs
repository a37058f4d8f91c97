//! The first pass: everything is checked, and of each document the little is kept that the comparison needs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;

use label_storage::Record;
use label_storage::name::record_name;
use label_storage::rules::IdentityBy;

use super::TOLD;
use super::pieces::{self, Piece, Pieces, Place};
use crate::commands::export::END;
use crate::commands::export::document::{Document, Problem, Tags, fingerprint};
use crate::progress::{Progress, Unit};

/// A document that is as it should be: what is needed of it, which is little, and where the rest is.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) place: Place,
    /// See [`fingerprint`].
    pub(super) fingerprint: u64,
    /// Whether a Node would look where its record is.
    pub(super) is_looked_for: bool,
}

/// All documents of a file.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) all: Vec<Checked>,
    /// Which of them goes into the ConfigMap of this name.
    pub(super) names: HashMap<Box<str>, u32>,
}

/// A file that was read to its end.
pub(super) enum Reading {
    /// All that it has.
    Whole(Documents),
    /// It can't be imported.
    Wrong {
        /// The first ones.
        problems: Vec<Problem>,
        /// How many more there are.
        more: usize,
    },
}

/// Reads and checks all documents of a file, for a cluster where Nodes are known by this.
pub(super) fn read(file: &File, identity: &IdentityBy) -> io::Result<Reading> {
    let mut progress = Progress::new("checked", Unit::Bytes, Some(file.metadata()?.len()));
    let mut documents = Documents::default();
    let (mut problems, mut more) = (Vec::new(), 0);
    let mut wrong = |line: u64, what: String| {
        if problems.len() < TOLD { problems.push(Problem { line, what }) } else { more += 1 }
    };
    let (mut last_line, mut end) = (1, None);
    for piece in Pieces::new(file) {
        let piece = piece?;
        last_line = piece.place.line;
        progress.step(piece.place.bytes as u64);
        if end.is_some() {
            wrong(
                piece.place.line,
                format!("this stands after the end: move it before the document {END:?}"),
            );
        }
        if is_end(&piece) {
            end = Some(piece.place.line);
            continue;
        }
        match check(&piece, identity) {
            Ok((checked, record)) => match documents.names.entry(record_name(record.filed_under()).into()) {
                Entry::Occupied(first) => {
                    let first = documents.all.get(*first.get() as usize).map_or(0, |first| first.place.line);
                    let what =
                        format!("{} stands on line {first} already: remove one of the two", record.node);
                    wrong(checked.place.line, what);
                }
                Entry::Vacant(entry) => {
                    entry.insert(u32::try_from(documents.all.len()).map_err(io::Error::other)?);
                    documents.all.push(checked);
                }
            },
            Err(found) => found.into_iter().for_each(|problem| {
                wrong(piece.place.line + problem.line - 1, problem.what);
            }),
        }
    }
    if end.is_none() {
        let what = format!(
            "the file has no end, so it may have been cut off: if it is whole, write a last document {END:?}, after a line ---"
        );
        wrong(last_line, what);
    }
    Ok(if problems.is_empty() { Reading::Whole(documents) } else { Reading::Wrong { problems, more } })
}

/// The record of a document that was read before.
pub(super) fn record_at(file: &File, place: Place) -> anyhow::Result<(Record, Tags)> {
    let text = pieces::read_at(file, place)?;
    let wrong =
        |problem: &Problem| anyhow::anyhow!("line {}: {}", place.line + problem.line - 1, problem.what);
    let document = Document::parse(&text).map_err(|problem| wrong(&problem))?;
    document
        .record()
        .map_err(|problems| problems.first().map_or_else(|| anyhow::anyhow!("unreadable"), wrong))
}

fn is_end(piece: &Piece) -> bool {
    let text = piece.text.as_deref().unwrap_or_default();
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.eq([END])
}

fn check(piece: &Piece, identity: &IdentityBy) -> Result<(Checked, Record), Vec<Problem>> {
    let problem = |what: &str| vec![Problem { line: 1, what: what.to_owned() }];
    let text = piece.text.as_deref().ok_or_else(|| {
        problem("this document is larger than any record, or no UTF-8: correct or remove it")
    })?;
    let (record, _) = Document::parse(text).map_err(|problem| vec![problem])?.record()?;
    if record.is_empty() {
        return Err(problem("nothing would come back with this node: write labels, or remove the document"));
    }
    let by = record.more.identity.as_deref().and_then(|identity| Some(identity.split_once('=')?.0));
    let is_looked_for = match identity {
        IdentityBy::Name => by.is_none(),
        other => by.is_some_and(|by| by == other.to_string()),
    };
    Ok((Checked { place: piece.place, fingerprint: fingerprint(&record), is_looked_for }, record))
}

#[cfg(test)]
mod tests;
