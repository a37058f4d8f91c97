//! The diagnosis that `status`, `explain`, `check` and `get` print: the state of one node ([`state`]) and of all ([`survey`]), the holder of
//! each shard ([`shards`]), and the problems with the [`installation`], its admission [`policies`] and the [`permissions`].

pub(crate) mod installation;
pub(crate) mod permissions;
pub(crate) mod policies;
pub(crate) mod shards;
pub(crate) mod state;
pub(crate) mod survey;

use serde::Serialize;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// Something does not work.
    Error,
    /// Something works in part, or will stop working.
    Warning,
    /// It could not be checked.
    Unknown,
    /// Information.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The identifier for scripts.
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
