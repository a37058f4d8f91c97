//! Rules as they are written in a file, and what is wrong with such a file: with the line, so that who wrote it need not search.

mod complaint;

use std::str::FromStr;

use serde::Deserialize;
use serde_saphyr::Spanned;

pub use self::complaint::Refused;
use super::amount;
use super::conflicts::Winner;
use super::draft::{Choice, Draft};
use super::patterns::{Kind, Patterns};
use super::{Conflicts, Selector};

/// The file, as YAML has it. What people write is read as text, with its place, and looked at afterwards.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    labels: Option<Keys>,
    annotations: Option<Keys>,
    taints: Option<Keys>,
    cordon: Option<bool>,
    nodes: Option<Nodes>,
    conflicts: Option<Vec<Conflict>>,
    identity: Option<Identity>,
    startup_taint: Option<StartupTaint>,
    retention: Option<Text>,
    cleanup_share: Option<Text>,
    history: Option<Text>,
}

type Text = Spanned<String>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    include: Option<Vec<Text>>,
    exclude: Option<Vec<Text>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Nodes {
    selector: Option<Text>,
    opt_in: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conflict {
    keys: Spanned<Vec<Text>>,
    wins: Text,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Identity {
    by: Option<Text>,
    fence: Option<bool>,
    trust_labels: Option<Text>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct StartupTaint {
    enabled: Option<bool>,
    at_most: Option<Text>,
}

impl Draft {
    /// Reads a file. An empty one says nothing, which is no mistake.
    pub fn from_yaml(text: &str) -> Result<Self, Refused> {
        // A selector that begins with an exclamation mark would be a tag, and its value nothing at all.
        let options = serde_saphyr::options! { with_snippet: false, reject_unsupported_tags: true };
        let file: Option<File> = serde_saphyr::from_str_with_options(text, options)?;
        let file = file.unwrap_or_default();
        let nodes = file.nodes.unwrap_or_default();
        let identity = file.identity.unwrap_or_default();
        let startup_taint = file.startup_taint.unwrap_or_default();
        Ok(Self {
            labels: choice(Kind::Label, file.labels)?,
            annotations: choice(Kind::Annotation, file.annotations)?,
            taints: choice(Kind::Taint, file.taints)?,
            cordon: file.cordon,
            selector: read(nodes.selector, Selector::from_str)?,
            opt_in: nodes.opt_in,
            conflicts: file.conflicts.map(conflicts).transpose()?,
            identity: read(identity.by, str::parse)?,
            fence: identity.fence,
            trust: read(identity.trust_labels, str::parse)?,
            has_startup_taint: startup_taint.enabled,
            startup_taint: read(startup_taint.at_most, amount::startup_taint)?,
            retention: read(file.retention, amount::retention)?,
            cleanup_share: read(file.cleanup_share, str::parse)?,
            history: read(file.history, amount::history)?,
        })
    }
}

fn read<T, E: ToString>(
    text: Option<Text>,
    how: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, Refused> {
    text.map(|text| how(&text.value).map_err(|error| Refused::at(text.referenced, error))).transpose()
}

fn choice(kind: Kind, keys: Option<Keys>) -> Result<Choice, Refused> {
    let Keys { include, exclude } = keys.unwrap_or_default();
    Ok(Choice {
        include: include.map(|list| patterns(list, |word| Patterns::included(kind, [word]))).transpose()?,
        exclude: exclude.map(|list| patterns(list, |word| Patterns::of(kind, [word]))).transpose()?,
    })
}

/// Reads them one by one: each has its line.
fn patterns<E: ToString>(
    list: Vec<Text>,
    how: impl Fn(&str) -> Result<Patterns, E>,
) -> Result<Patterns, Refused> {
    let mut all = Patterns::default();
    for word in list {
        all.extend(how(&word.value).map_err(|error| Refused::at(word.referenced, error))?);
    }
    Ok(all)
}

fn conflicts(list: Vec<Conflict>) -> Result<Conflicts, Refused> {
    let mut conflicts = Conflicts::default();
    for Conflict { keys, wins } in list {
        let winner: Winner = wins.value.parse().map_err(|error| Refused::at(wins.referenced, error))?;
        if keys.value.is_empty() {
            return Err(Refused::at(
                keys.referenced,
                "there are no keys here: name some, or remove the conflict",
            ));
        }
        for name in keys.value {
            conflicts
                .add([name.value.as_str()], winner)
                .map_err(|error| Refused::at(name.referenced, error))?;
        }
    }
    Ok(conflicts)
}

#[cfg(test)]
mod tests;
