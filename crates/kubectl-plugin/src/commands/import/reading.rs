//! The first pass: everything is checked, and of each document the little is kept that the comparison needs.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use label_storage::Record;
use label_storage::name::record_name;

use super::TOLD;
use super::pieces::{self, Piece, Pieces, Place};
use crate::commands::export::END;
use crate::commands::export::document::{Document, Problem, fingerprint};

/// A document that is as it should be.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    /// The Node's name.
    pub(super) node: String,
    /// The ConfigMap's.
    pub(super) config_map: String,
    pub(super) place: Place,
    /// See [`fingerprint`].
    pub(super) fingerprint: u64,
    /// What it is filed under is no name: which kind of thing it is.
    pub(super) identity: Option<String>,
}

/// A file that was read to its end.
pub(super) enum Reading {
    /// All that it has.
    Whole(Vec<Checked>),
    /// It can't be imported.
    Wrong {
        /// The first ones.
        problems: Vec<Problem>,
        /// How many more there are.
        more: usize,
    },
}

/// Reads and checks all documents of a file.
pub(super) fn read(file: &File) -> io::Result<Reading> {
    let mut all = Vec::new();
    let mut seen: HashMap<String, u64> = HashMap::new();
    let (mut problems, mut more) = (Vec::new(), 0);
    let mut wrong = |line: u64, what: String| {
        if problems.len() < TOLD { problems.push(Problem { line, what }) } else { more += 1 }
    };
    let (mut last_line, mut end) = (1, None);
    for piece in Pieces::new(file) {
        let piece = piece?;
        last_line = piece.place.line;
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
        match check(&piece) {
            Ok(checked) => match seen.insert(checked.config_map.clone(), checked.place.line) {
                Some(first) => wrong(
                    checked.place.line,
                    format!("{} stands on line {first} already: remove one of the two", checked.node),
                ),
                None => all.push(checked),
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
    Ok(if problems.is_empty() { Reading::Whole(all) } else { Reading::Wrong { problems, more } })
}

/// The record of a document that was read before.
pub(super) fn record_at(file: &File, place: Place) -> anyhow::Result<Record> {
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

fn check(piece: &Piece) -> Result<Checked, Vec<Problem>> {
    let problem = |what: &str| vec![Problem { line: 1, what: what.to_owned() }];
    let text = piece.text.as_deref().ok_or_else(|| {
        problem("this document is larger than any record, or no UTF-8: correct or remove it")
    })?;
    let record = Document::parse(text).map_err(|problem| vec![problem])?.record()?;
    if record.is_empty() {
        return Err(problem("nothing would come back with this node: write labels, or remove the document"));
    }
    let identity = record.more.identity.as_deref().and_then(|identity| identity.split_once('='));
    Ok(Checked {
        config_map: record_name(record.filed_under()),
        place: piece.place,
        fingerprint: fingerprint(&record),
        identity: identity.map(|(kind, _)| kind.to_owned()),
        node: record.node,
    })
}

#[cfg(test)]
mod tests;
