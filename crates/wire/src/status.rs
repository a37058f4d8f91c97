//! What the API server says when it does not give what was asked for.

use std::fmt;

use crate::{Format, json, protobuf};

/// Why the API server did not do it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status, or 0 where the answer does not say.
    pub code: u16,
    /// One word for a program: `Expired`, `Conflict`.
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
    /// How long to leave the server alone.
    pub retry_after_seconds: Option<u32>,
}

impl Status {
    pub(crate) fn new(code: i32, reason: String, message: String, retry_after_seconds: i32) -> Self {
        let retry_after_seconds = u32::try_from(retry_after_seconds).ok().filter(|seconds| *seconds > 0);
        Self { code: u16::try_from(code).unwrap_or_default(), reason, message, retry_after_seconds }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, reason, message, .. } = self;
        write!(f, "{message} ({code} {reason})")
    }
}

/// Reads the body of an answer that is not 200.
///
/// Never fails: what stands between us and the API server answers too, in plain text or HTML. Then the message is an
/// excerpt of that, and the code is 0. Nor does the API server itself always keep to the format that it was asked for.
pub fn read_status(format: Format, bytes: &[u8]) -> Status {
    let status = match format {
        Format::Protobuf => protobuf::read_status(bytes).or_else(|_| json::read_status(bytes)),
        Format::Json => json::read_status(bytes),
    };
    status.unwrap_or_else(|_| Status { message: excerpt(bytes), ..Status::default() })
}

/// Enough of a text to recognise it, on one line of a log, whatever it is.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const ENOUGH: usize = 200;
    let start = &bytes[..bytes.len().min(4 * ENOUGH)];
    let text = String::from_utf8_lossy(start).replace(char::is_control, " ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
