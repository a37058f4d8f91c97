//! What an import would do, before it does anything.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use label_storage::name::record_name;
use label_storage::record::{MANAGED_BY, Unreadable};
use label_storage::restore::Reason;
use label_storage::rules::IdentityBy;
use label_storage::store::Stored;
use label_storage::{Node, Record, ResourceVersion, Rules, plan_restore};
use label_storage_runtime::call;
use label_storage_runtime::projection::{Detail, Projection};
use label_storage_runtime::records::Found;

use super::TOLD;
use super::imported::imported;
use super::reading::{Checked, Documents, record_at};
use crate::cluster::Cluster;
use crate::commands::export::PATIENCE;
use crate::commands::export::document::fingerprint;
use crate::progress::{Progress, Unit};

/// So many are asked for at once of what may be anything.
const PAGE: u32 = 500;

/// What may be overwritten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) replace: bool,
    pub(super) include_living: bool,
}

/// A document, and what there is where it would go.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) document: Checked,
    pub(super) there: There,
    /// Whether the Node is there, and what the import would do for it.
    pub(super) life: Life,
    /// The name that the Node is there under, where that is another than the document has: it may be known by something else.
    pub(super) alias: Option<Box<str>>,
}

/// What there is under a record's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum There {
    /// No record.
    Nothing,
    /// A record that says what the document says.
    Same,
    /// Another, at this version.
    Differs(ResourceVersion),
    /// One that can't be read, for this reason: a person has to look.
    Unreadable(Box<str>),
}

/// Whether the Node is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// It is not.
    Absent,
    /// It is, and lacks something, as far as can be told.
    Lacks,
    /// It is, and lacks nothing.
    Whole,
    /// It is, and would not be given anything, for this reason.
    Refused(&'static str),
}

/// All documents, compared with what there is.
#[derive(Debug)]
pub(super) struct Survey {
    entries: Vec<Entry>,
    /// What would change in the first records that would be overwritten.
    changes: Vec<String>,
    options: Options,
    identity: IdentityBy,
    file: Arc<File>,
}

impl Survey {
    /// Compares all documents with what there is.
    pub(super) async fn make(
        cluster: &Cluster,
        documents: Documents,
        file: Arc<File>,
        options: Options,
    ) -> Result<Self> {
        let Documents { all, names } = documents;
        let names = Arc::new(names);
        let new = |document| Entry { document, there: There::Nothing, life: Life::Absent, alias: None };
        let survey = Self {
            entries: all.into_iter().map(new).collect(),
            changes: Vec::new(),
            options,
            identity: cluster.rules.identity.clone(),
            file,
        };
        let survey = Arc::new(Mutex::new(survey));

        let (each, known) = (Arc::clone(&survey), Arc::clone(&names));
        let mut progress = Progress::new("compared", Unit::Of("records"), None);
        let records = cluster.record_source().allowing(PATIENCE);
        let listed = records.list(move |object| {
            progress.step(1);
            let Some(&at) = known.get(object.name.as_str()) else { return };
            each.lock().unwrap_or_else(PoisonError::into_inner).compare(at, &Found::from(object));
        });
        listed.await?;
        Self::find_strangers(cluster, &names, &survey).await?;

        let each = Arc::clone(&survey);
        let eyes = cluster.projection(Detail::WhatIsThere);
        let mut progress = Progress::new("compared", Unit::Of("nodes"), None);
        let nodes = cluster.node_source(Detail::WhatIsThere).allowing(PATIENCE);
        let listed = nodes.list(move |object| {
            progress.step(1);
            let Ok(node) = eyes.node(object) else { return };
            if node.extras.is_unidentified {
                return;
            }
            let Some(&at) = names.get(record_name(node.filed_under()).as_str()) else { return };
            each.lock().unwrap_or_else(PoisonError::into_inner).meet(at, &node, &eyes);
        });
        listed.await?;
        let survey = Arc::into_inner(survey).context("the lists are over")?;
        Ok(survey.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is in a record's place and is none: no list of records has it.
    async fn find_strangers(
        cluster: &Cluster,
        names: &HashMap<Box<str>, u32>,
        survey: &Arc<Mutex<Self>>,
    ) -> Result<()> {
        let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        let mut params =
            ListParams::default().labels(&format!("{}!={}", MANAGED_BY.0, MANAGED_BY.1)).limit(PAGE);
        loop {
            let page = call::one("list configmaps", config_maps.list_metadata(&params)).await?;
            for name in page.items.iter().filter_map(|stranger| stranger.metadata.name.as_deref()) {
                let mut survey = survey.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(entry) = names.get(name).and_then(|at| survey.entries.get_mut(*at as usize)) {
                    entry.there = There::Unreadable(Unreadable::Foreign(name.to_owned()).to_string().into());
                }
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(());
            }
        }
    }

    fn compare(&mut self, at: u32, found: &Found) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        entry.there = match &found.content {
            Err(error) => There::Unreadable(error.to_string().into()),
            Ok(decoded) if fingerprint(&decoded.record) == entry.document.fingerprint => There::Same,
            Ok(decoded) => {
                if self.changes.len() < TOLD
                    && let Ok((record, _)) = record_at(&self.file, entry.document.place)
                {
                    self.changes.push(change(&decoded.record, &record));
                }
                There::Differs(found.version().unwrap_or(ResourceVersion(0)))
            }
        };
    }

    /// Takes note of a Node that is there.
    fn meet(&mut self, at: u32, node: &Node, eyes: &Projection) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        entry.life = Life::Lacks;
        if !self.options.include_living {
            return;
        }
        if let Ok((record, _)) = record_at(&self.file, entry.document.place) {
            let next = imported(&record, None, Some(node), Timestamp::now(), &eyes.rules);
            entry.life = life(node, &next, &eyes.rules);
            entry.alias = (record.node != node.name).then(|| node.name.as_str().into());
        }
    }

    /// The Node of a document, by name.
    fn node(&self, entry: &Entry) -> String {
        let record = record_at(&self.file, entry.document.place);
        record.map_or_else(|_| format!("line {}", entry.document.place.line), |(record, _)| record.node)
    }

    /// Why nothing is imported, if anything is in the way.
    pub(super) fn obstacle(&self) -> Option<String> {
        let in_the_way: Vec<_> =
            self.entries.iter().filter(|entry| self.fate(entry) == Fate::InTheWay).collect();
        let unreadable = in_the_way.iter().find_map(|entry| match &entry.there {
            There::Unreadable(why) => Some(why),
            _ => None,
        });
        if let Some(why) = unreadable {
            return Some(format!("nothing was changed: a record is in the way that can't be read: {why}"));
        }
        let (first, count) = (in_the_way.first()?, in_the_way.len());
        let names: Vec<_> = in_the_way.iter().take(TOLD).map(|entry| self.node(entry)).collect();
        let more =
            if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
        let line = first.document.place.line;
        Some(format!(
            "nothing was changed: {count} records are there and differ (the first stands on line {line}): give --replace to \
             overwrite them, or take them out of the file: {}{more}",
            names.join(", ")
        ))
    }

    /// What is to be written.
    pub(super) fn into_todo(mut self) -> Vec<Entry> {
        let entries = std::mem::take(&mut self.entries);
        let is_todo = |entry: &Entry| matches!(self.fate(entry), Fate::New | Fate::Changed);
        entries.into_iter().filter(is_todo).collect()
    }

    fn fate(&self, entry: &Entry) -> Fate {
        match (&entry.there, &entry.life) {
            (There::Same, _) => Fate::Same,
            (_, Life::Absent) => self.unless_in_the_way(entry),
            _ if !self.options.include_living => Fate::Living,
            (_, Life::Whole) => Fate::Same,
            (_, Life::Refused(_)) => Fate::Refused,
            (_, Life::Lacks) => self.unless_in_the_way(entry),
        }
    }

    fn unless_in_the_way(&self, entry: &Entry) -> Fate {
        match entry.there {
            There::Nothing => Fate::New,
            There::Differs(_) if self.options.replace => Fate::Changed,
            _ => Fate::InTheWay,
        }
    }

    /// Shows what would be done.
    pub(super) fn print(&self) -> Result<()> {
        io::stdout().lock().write_all(self.to_text().as_bytes())?;
        let strangers = self.entries.iter().filter(|entry| !entry.document.is_looked_for).count();
        if strangers > 0 {
            eprintln!(
                "warning: {strangers} records are filed otherwise than by {}, as the rules have it here: no node will find them",
                self.identity
            );
        }
        Ok(())
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        let of = |fate: Fate| self.entries.iter().filter(move |entry| self.fate(entry) == fate);
        let count = |fate: Fate| of(fate).count();
        for (mark, fate) in [("+", Fate::New), ("skipped, its node is there:", Fate::Living)] {
            for entry in of(fate).take(TOLD) {
                _ = writeln!(text, "{mark} {}", self.node(entry));
            }
            if let Some(more) = count(fate).checked_sub(TOLD).filter(|more| *more > 0) {
                _ = writeln!(text, "{mark} and {more} more");
            }
        }
        for entry in of(Fate::Refused).take(TOLD) {
            let Life::Refused(why) = entry.life else { continue };
            _ = writeln!(text, "skipped, its node would not be given it ({why}): {}", self.node(entry));
        }
        if count(Fate::Changed) + count(Fate::InTheWay) > 0 {
            self.changes.iter().for_each(|change| text += change);
        }
        let skipped = count(Fate::Living) + count(Fate::Refused);
        _ = writeln!(
            text,
            "{} new, {} changed, {} the same, {skipped} skipped because the node is there",
            count(Fate::New),
            count(Fate::Changed) + count(Fate::InTheWay),
            count(Fate::Same),
        );
        text
    }
}

/// What becomes of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    New,
    Changed,
    Same,
    /// Its Node is there, and counts for more.
    Living,
    /// Its Node is there, and would not be given it.
    Refused,
    /// There is a record that differs, and it is not to be overwritten.
    InTheWay,
}

/// What a Node that is there would make of a record: asked of the very function that the restorer asks.
pub(super) fn life(node: &Node, record: &Record, rules: &Rules) -> Life {
    let plan = plan_restore(node, Stored::Record(record), rules, false);
    match (plan.reason, plan.patch) {
        (Reason::SeenInPart, _) => Life::Lacks,
        (Reason::Returned | Reason::ReturnedWhole, Some(patch)) => {
            let lacks = !patch.restored.is_empty() || !patch.withheld.is_empty();
            if lacks { Life::Lacks } else { Life::Whole }
        }
        // A storer would wait for a restore that never comes, and store nothing of the Node meanwhile.
        (reason, _) => Life::Refused(reason.as_str()),
    }
}

/// What would change in a record, as a diff.
fn change(before: &Record, after: &Record) -> String {
    let mut text = format!("~ {}\n", after.node);
    for (name, value, _) in before.all() {
        if !after.all().any(|(other, new, _)| other == name && new == value) {
            _ = writeln!(text, "  - {name}={value:?}");
        }
    }
    for (name, value, _) in after.all() {
        if !before.all().any(|(other, old, _)| other == name && old == value) {
            _ = writeln!(text, "  + {name}={value:?}");
        }
    }
    if before.more.machine != after.more.machine {
        text += "  ~ machine\n";
    }
    if before.leftovers != after.leftovers {
        text += "  ~ leftovers\n";
    }
    text
}
