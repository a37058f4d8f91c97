//! The diagnosis that `status`, `explain`, `check` and `get` print: the state of each node, the holder of each shard, and the problems
//! with them and with the installation.
//!
//! - [`state`]: the state of one node, by the daemons' own decisions; [`survey`]: of all nodes and records.
//! - [`shards`]: the holder of each shard, and if it is alive.
//! - [`installation`]: StatefulSets and rules; [`policies`]: admission; [`permissions`]: of the daemons and of the user.

pub(crate) mod installation;
pub(crate) mod permissions;
pub(crate) mod policies;
pub(crate) mod shards;
pub(crate) mod state;
pub(crate) mod survey;

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// Something does not work.
    Error,
    /// Something works, but not as it should, or not for long.
    Warning,
    /// It could not be looked at.
    Unknown,
    /// Good to know.
    Note,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// A word for scripts.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The command that fixes the cause, or shows more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Finding {
    pub(crate) fn new(severity: Severity, reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity, reason, message: message.into(), fix: None }
    }

    pub(crate) fn error(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, reason, message)
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason, message)
    }

    pub(crate) fn note(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, reason, message)
    }

    /// Something could not be looked at.
    pub(crate) fn unknown(reason: &'static str, error: impl std::fmt::Display) -> Self {
        Self::new(Severity::Unknown, reason, format!("unknown: {error}"))
    }

    pub(crate) fn fix(self, command: impl Into<String>) -> Self {
        Self { fix: Some(command.into()), ..self }
    }

    pub(crate) fn is_problem(&self) -> bool {
        self.severity <= Severity::Warning
    }
}

/// The first few names, and the number of the others.
pub(crate) fn few<'a>(names: impl IntoIterator<Item = &'a String>, count: usize) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.into_iter().take(SHOWN).map(String::as_str).collect();
    match count.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
