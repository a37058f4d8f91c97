//! What can happen to a request.

use std::fmt;
use std::time::Duration;

use crate::request::Verb;

/// What happens to a request. One that makes no sense for it (an empty list in answer to a write) does not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is passed on, and so is the answer.
    None,
    /// It is passed on after this long.
    Latency(Duration),
    /// The connection is reset, and the server never sees it.
    ResetBefore,
    /// The server does as it is asked, and the connection is reset before the answer.
    ResetAfter,
    /// The connection is reset in the middle of the answer; of a watch, in the middle of an event.
    Truncated,
    /// The answer ends in the middle, and the connection says that this is all.
    Shortened,
    /// Nothing is ever answered, and the server never sees it.
    BlackHole,
    /// Nothing is ever answered, and the server sees it after this long, whatever became of who sent it.
    Late(Duration),
    /// This is answered instead of the server, which never sees it.
    Status {
        /// The HTTP status.
        code: u16,
        /// The pause that is asked for, in seconds.
        retry_after: Option<u32>,
    },
    /// The server does as it is asked, and this HTTP status is answered.
    StatusAfter(u16),
    /// To a list: that there is nothing, with success, and at the present version.
    EmptyList,
    /// To a list: that there is no more than two thirds of it (every third item is missing).
    PartialList,
    /// To a list, or to one by name: what was answered to the very same request some time ago. If there is nothing, the
    /// request is passed on.
    Stale,
    /// To a watch: every event twice.
    DuplicateEvents,
    /// To a watch: it is there, and nothing ever comes.
    SilentWatch,
    /// To a watch: success, and then an event that says that its version is too old (410). A server that says so at once
    /// is [`Status`](Self::Status).
    ExpiredWatch,
}

impl Fault {
    /// What it is counted as; `None` for none.
    pub fn class(self) -> Option<Class> {
        Some(match self {
            Self::None => return None,
            Self::Latency(_) => Class::Latency,
            Self::ResetBefore => Class::ResetBefore,
            Self::ResetAfter => Class::ResetAfter,
            Self::Truncated => Class::Truncated,
            Self::Shortened => Class::Shortened,
            Self::BlackHole => Class::BlackHole,
            Self::Late(_) => Class::Late,
            Self::Status { code, .. } => Class::Status(code),
            Self::StatusAfter(code) => Class::StatusAfter(code),
            Self::EmptyList => Class::EmptyList,
            Self::PartialList => Class::PartialList,
            Self::Stale => Class::Stale,
            Self::DuplicateEvents => Class::DuplicateEvents,
            Self::SilentWatch => Class::SilentWatch,
            Self::ExpiredWatch => Class::ExpiredWatch,
        })
    }

    /// Whether it can happen to such a request.
    pub fn applies_to(self, verb: Verb) -> bool {
        match self {
            Self::EmptyList | Self::PartialList => verb == Verb::List,
            Self::Stale => matches!(verb, Verb::List | Verb::Get),
            Self::DuplicateEvents | Self::SilentWatch | Self::ExpiredWatch => verb == Verb::Watch,
            _ => true,
        }
    }

    /// One of each that can happen to such a request, as real servers do it.
    pub fn usual(verb: Verb) -> Vec<Self> {
        let status = |code| Self::Status { code, retry_after: None };
        let mut all = vec![
            Self::Latency(Duration::from_millis(300)),
            Self::ResetBefore,
            Self::ResetAfter,
            Self::Truncated,
            Self::Shortened,
            Self::BlackHole,
            status(429),
            Self::Status { code: 429, retry_after: Some(1) },
            status(500),
            status(503),
            status(504),
            Self::EmptyList,
            Self::PartialList,
            Self::Stale,
            Self::DuplicateEvents,
            Self::SilentWatch,
            Self::ExpiredWatch,
        ];
        if verb.is_write() {
            all.extend([status(409), status(422), Self::StatusAfter(500), Self::StatusAfter(504)]);
        }
        if matches!(verb, Verb::List | Verb::Watch) {
            all.push(status(410));
        }
        all.retain(|fault| fault.applies_to(verb));
        all
    }
}

/// Kinds of faults, for counting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the fault of that name")]
pub enum Class {
    Latency,
    ResetBefore,
    ResetAfter,
    Truncated,
    Shortened,
    BlackHole,
    Late,
    Status(u16),
    StatusAfter(u16),
    EmptyList,
    PartialList,
    Stale,
    DuplicateEvents,
    SilentWatch,
    ExpiredWatch,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Latency => "latency",
            Self::ResetBefore => "reset before it was applied",
            Self::ResetAfter => "reset after it was applied",
            Self::Truncated => "reset in the middle of the answer",
            Self::Shortened => "half an answer",
            Self::BlackHole => "black hole",
            Self::Late => "late",
            Self::Status(code) => return f.pad(&format!("{code} instead")),
            Self::StatusAfter(code) => return f.pad(&format!("{code} after it was applied")),
            Self::EmptyList => "empty list",
            Self::PartialList => "list without a third",
            Self::Stale => "stale answer",
            Self::DuplicateEvents => "every event twice",
            Self::SilentWatch => "silent watch",
            Self::ExpiredWatch => "expired watch",
        })
    }
}
