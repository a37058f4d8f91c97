//! The faults that can be applied to a request.

use std::fmt;
use std::time::Duration;

use crate::request::Verb;

/// A fault of one request. A fault that does not fit the request, such as an empty list for a write, is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault: the request and the answer are passed on.
    None,
    /// The request is passed on after this delay.
    Latency(Duration),
    /// The connection is reset, and the server never gets the request.
    ResetBefore,
    /// The server carries the request out, and the connection is reset before the answer.
    ResetAfter,
    /// The connection is reset in the middle of the answer; of a watch, in the middle of an event.
    Truncated,
    /// The answer ends in the middle, as if it were complete.
    Shortened,
    /// There is no answer, and the server never gets the request.
    BlackHole,
    /// There is no answer, and the server gets the request after this delay, even if the client has gone.
    Late(Duration),
    /// The proxy answers with this status, and the server never gets the request.
    Status {
        /// The HTTP status.
        code: u16,
        /// The value of `Retry-After`, in seconds.
        retry_after: Option<u32>,
    },
    /// The server carries the request out, and the proxy answers with this HTTP status.
    StatusAfter(u16),
    /// A list is answered with an empty list at the present version.
    EmptyList,
    /// A list is answered without every third item.
    PartialList,
    /// A list or a read by name is answered with an earlier answer to the same request. Without one, the request is passed on.
    Stale,
    /// Every event of a watch is sent twice.
    DuplicateEvents,
    /// A watch is opened, and has no events.
    SilentWatch,
    /// A watch is opened, and its first event is the error 410: the version is too old. For a server that answers 410 at once, use
    /// [`Status`](Self::Status).
    ExpiredWatch,
}

impl Fault {
    /// The class in which it is counted; `None` for no fault.
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

    /// True if it can be applied to this request.
    pub fn applies_to(self, verb: Verb) -> bool {
        match self {
            Self::EmptyList | Self::PartialList => verb == Verb::List,
            Self::Stale => matches!(verb, Verb::List | Verb::Get),
            Self::DuplicateEvents | Self::SilentWatch | Self::ExpiredWatch => verb == Verb::Watch,
            _ => true,
        }
    }

    /// All faults that can be applied to this request, with realistic values.
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
