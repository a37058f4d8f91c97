//! The errors that the API server, or a proxy before it, answers with.

use std::fmt;

use serde::Deserialize;

use crate::protobuf;

/// An error answer of the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status, or 0 if the answer has none.
    pub code: u16,
    /// One word, such as `Expired` or `Conflict`.
    pub reason: String,
    pub message: String,
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

/// Reads the body of an answer that is not 200. It may be a `Status` in protobuf or in JSON.
///
/// Never fails: a proxy or a load balancer answers in plain text or HTML. Then the message is an excerpt of the body, and
/// the code is 0.
pub fn read_status(bytes: &[u8]) -> Status {
    let status = protobuf::read_status(bytes).ok().or_else(|| read_json(bytes));
    status.unwrap_or_else(|| Status { message: excerpt(bytes), ..Status::default() })
}

/// `None` if it is another kind of object.
fn read_json(bytes: &[u8]) -> Option<Status> {
    let Json { kind, message, reason, details, code } = serde_json::from_slice(bytes).ok()?;
    let retry_after = details.and_then(|details| details.retry_after_seconds).unwrap_or_default();
    (kind == "Status").then(|| {
        Status::new(
            code.unwrap_or_default(),
            reason.unwrap_or_default(),
            message.unwrap_or_default(),
            retry_after,
        )
    })
}

#[derive(Deserialize)]
struct Json {
    kind: String,
    message: Option<String>,
    reason: Option<String>,
    details: Option<Details>,
    code: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<i32>,
}

/// The start of a text, on one line, for logs.
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
