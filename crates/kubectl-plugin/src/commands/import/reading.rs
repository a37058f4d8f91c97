//! Reads a file and checks every record. The records go into a temporary file, so that memory holds little of each.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::{collections::BTreeMap, fs::File};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use label_storage::Record;
use serde::Deserialize;
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};

use super::Intent;
use crate::commands::export::{END, HEADER, exported};
use crate::find::is_name;

/// The records of a file.
pub(super) struct Contents {
    /// By the name of the ConfigMap.
    pub(super) entries: BTreeMap<Box<str>, Entry>,
    /// The ConfigMaps as JSON.
    pub(super) spool: File,
    /// Each with its line.
    pub(super) problems: Vec<(u64, String)>,
    /// The changes to the first stored records that differ.
    pub(super) changes: Vec<String>,
}

/// A record without its content.
pub(super) struct Entry {
    line: u64,
    offset: u64,
    bytes: usize,
    pub(super) intent: Intent,
    /// The existing Node of the record.
    pub(super) node: Option<Box<str>>,
}

/// The ConfigMap and the record of an entry.
pub(super) fn get(mut spool: &File, entry: &Entry) -> Result<(ConfigMap, Record)> {
    let mut bytes = vec![0; entry.bytes];
    spool.seek(SeekFrom::Start(entry.offset))?;
    spool.read_exact(&mut bytes)?;
    let (config_map, record, _) = exported(serde_json::from_slice::<ConfigMap>(&bytes)?.into())?;
    Ok((config_map, record))
}

impl Contents {
    pub(super) fn read(input: impl Read) -> io::Result<Self> {
        let (entries, problems, changes) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut records = Self { entries, spool: tempfile::tempfile()?, problems, changes };
        let (mut text, mut before, mut is_cut_off) = (String::new(), 0, false);
        for (number, line) in (1..).zip(BufReader::new(input).lines().chain([Ok("---".to_owned())])) {
            let line = line?;
            is_cut_off = (is_cut_off || line.starts_with(HEADER)) && !line.starts_with(END);
            if line.trim_end() != "---" {
                text = text + &line + "\n";
                continue;
            }
            match parse(&text) {
                Ok(found) => {
                    for item in found {
                        let line = before + item.referenced.line();
                        let problems = records.add(line, item.value)?.into_iter();
                        records.problems.extend(problems.map(|problem| (line, problem)));
                    }
                }
                Err(error) => {
                    let line = error.location().map_or(1, |location| location.line());
                    let problem = UserMessageFormatter.format_message(&error).replace('\n', " ");
                    records.problems.push((before + line, problem));
                }
            }
            text.clear();
            before = number;
        }
        if is_cut_off {
            records
                .problems
                .push((before, format!("the file is incomplete: its last line must begin with {END:?}")));
        } else if records.entries.is_empty() && records.problems.is_empty() {
            records.problems.push((1, "the file has no records".to_owned()));
        }
        Ok(records)
    }

    /// Adds a record, unless it has problems.
    fn add(&mut self, line: u64, config_map: ConfigMap) -> io::Result<Vec<String>> {
        let (config_map, record, mut problems) = match exported(config_map.into()) {
            Ok(read) => read,
            Err(error) => return Ok(vec![error.to_string()]),
        };
        let name = config_map.metadata.name.clone().unwrap_or_default();
        let (node, generation, before) = (&record.node, record.generation, self.entries.get(name.as_str()));
        let more = [
            (!is_name(node)).then(|| format!("{node:?} is not a valid node name")),
            record.is_empty().then(|| "the record has no labels: add some, or remove it".to_owned()),
            (generation > i64::MAX as u64).then(|| format!("the generation {generation} is too large")),
            record.encode_into(&mut ConfigMap::default()).err().map(|error| error.to_string()),
            before.map(|entry| format!("the record is also on line {}: remove one of them", entry.line)),
        ];
        problems.extend(more.into_iter().flatten().map(|problem| format!("configmap {name}: {problem}")));
        if problems.is_empty() {
            let json = serde_json::to_vec(&config_map)?;
            let (offset, bytes) = (self.spool.stream_position()?, json.len());
            self.spool.write_all(&json)?;
            let entry = Entry { line, offset, bytes, intent: Intent::Create, node: None };
            self.entries.insert(name.into(), entry);
        }
        Ok(problems)
    }
}

/// The ConfigMaps in a document.
fn parse(text: &str) -> Result<Vec<Spanned<ConfigMap>>, serde_saphyr::Error> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Spanned<ConfigMap>>,
    }
    let options = serde_saphyr::options! { with_snippet: false };
    if text.contains("\nkind: List\n") {
        return Ok(serde_saphyr::from_str_with_options::<List>(text, options)?.items);
    }
    // A document may be empty.
    Ok(Vec::from_iter(serde_saphyr::from_str_with_options::<Option<_>>(text, options)?))
}

#[cfg(test)]
mod tests;
