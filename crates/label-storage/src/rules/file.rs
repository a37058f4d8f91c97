//! The rules file, in YAML. An error names the line.

mod complaint;

use serde::Deserialize;
use serde_saphyr::Spanned;

pub use self::complaint::Refused;
use super::patterns::KeyKind;
use super::{Conflicts, InvalidRule, Patterns, Rules, Selection, Winner, units};

/// Scalars are read as text with their position, so that an error can name the line.
#[derive(Default, PartialEq, Deserialize)]
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
    patience: Option<Text>,
    retention: Option<Text>,
    cleanup_share: Option<Text>,
    history: Option<Text>,
    /// All of the above, under the key that it has among the values of the chart.
    rules: Option<Spanned<Box<File>>>,
}

type Text = Spanned<String>;

#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    include: Option<Vec<Text>>,
    exclude: Option<Vec<Text>>,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Nodes {
    selector: Option<Text>,
    opt_in: Option<bool>,
}

#[derive(PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conflict {
    keys: Spanned<Vec<Text>>,
    wins: Text,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Identity {
    by: Option<Text>,
    other_machine: Option<Text>,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct StartupTaint {
    enabled: Option<bool>,
    at_most: Option<Text>,
}

impl Rules {
    /// Reads a rules file, or a values file of the chart that has only `rules`. Omitted fields have their defaults.
    pub fn from_yaml(text: &str) -> Result<Self, Refused> {
        // Without this, `!key` would be read as a tag with an empty value.
        let options = serde_saphyr::options! { with_snippet: false, reject_unsupported_tags: true };
        let file: Option<File> = serde_saphyr::from_str_with_options(text, options)?;
        let (mut file, default) = (file.unwrap_or_default(), Self::default());
        if let Some(Spanned { value: rules, referenced, .. }) = file.rules.take() {
            if file != File::default() || rules.rules.is_some() {
                return Err(Refused::at(
                    referenced,
                    "there are keys beside rules: move all of them below it",
                ));
            }
            file = *rules;
        }
        let nodes = file.nodes.unwrap_or_default();
        let identity = file.identity.unwrap_or_default();
        let (taint, at_most) = (file.startup_taint.unwrap_or_default(), Self::STARTUP_TAINT);
        let at_most = read("startupTaint.atMost", taint.at_most, units::wait, at_most)?;
        Ok(Self {
            labels: selection(KeyKind::Label, file.labels, default.labels)?,
            annotations: selection(KeyKind::Annotation, file.annotations, default.annotations)?,
            taints: selection(KeyKind::Taint, file.taints, default.taints)?,
            cordon: file.cordon.unwrap_or(default.cordon),
            selector: read("nodes.selector", nodes.selector, str::parse, default.selector)?,
            opt_in: nodes.opt_in.unwrap_or(default.opt_in),
            conflicts: file.conflicts.map(conflicts).transpose()?.unwrap_or(default.conflicts),
            identity: read("identity.by", identity.by, str::parse, default.identity)?,
            other_machine: read(
                "identity.otherMachine",
                identity.other_machine,
                str::parse,
                default.other_machine,
            )?,
            startup_taint: taint.enabled.unwrap_or_default().then_some(at_most),
            patience: read("patience", file.patience, units::wait, default.patience)?,
            retention: read("retention", file.retention, units::retention, default.retention)?,
            cleanup_share: read("cleanupShare", file.cleanup_share, str::parse, default.cleanup_share)?,
            history: read("history", file.history, units::history, default.history)?,
        })
    }
}

type Parse<T> = fn(&str) -> Result<T, InvalidRule>;

fn read<T>(key: &str, text: Option<Text>, parse: Parse<T>, default: T) -> Result<T, Refused> {
    let Some(text) = text else { return Ok(default) };
    parse(&text.value).map_err(|why| Refused::at(text.referenced, format!("{key}: {why}")))
}

fn selection(kind: KeyKind, keys: Option<Keys>, default: Selection) -> Result<Selection, Refused> {
    let Keys { include, exclude } = keys.unwrap_or_default();
    let include = include.map(|list| patterns(list, |word| Patterns::included(kind, [word]))).transpose()?;
    let exclude = exclude.map(|list| patterns(list, |word| Patterns::of(kind, [word]))).transpose()?;
    Ok(Selection { include: include.unwrap_or(default.include), exclude: exclude.unwrap_or(default.exclude) })
}

/// Reads the patterns one by one, so that an error names the line.
fn patterns(
    list: Vec<Text>,
    parse: impl Fn(&str) -> Result<Patterns, InvalidRule>,
) -> Result<Patterns, Refused> {
    let mut all = Patterns::default();
    for word in list {
        all.extend(parse(&word.value).map_err(|error| Refused::at(word.referenced, error))?);
    }
    Ok(all)
}

fn conflicts(list: Vec<Conflict>) -> Result<Conflicts, Refused> {
    let mut conflicts = Conflicts::default();
    for Conflict { keys, wins } in list {
        let winner: Winner = wins.value.parse().map_err(|error| Refused::at(wins.referenced, error))?;
        if keys.value.is_empty() {
            let reason = "the list of keys is empty: add keys, or remove the conflict";
            return Err(Refused::at(keys.referenced, reason));
        }
        for name in keys.value {
            let added = conflicts.add(&name.value, winner);
            added.map_err(|error| Refused::at(name.referenced, error))?;
        }
    }
    Ok(conflicts)
}

#[cfg(test)]
mod tests;
