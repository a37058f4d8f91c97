//! Fake answers, in the formats of the API server.

mod frames;
mod list;
mod status;

pub(crate) use frames::{Frames, doubled};
pub(crate) use list::without_a_third;
pub(crate) use status::{expired_event, is_expired, status};

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

/// The encoding of an answer. Watches are in protobuf only; the daemons list leases, and write, in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Protobuf,
    Json,
}

/// The first bytes of every answer in protobuf.
const MAGIC: &[u8; 4] = b"k8s\0";

/// The body of an answer does not match its headers.
#[derive(Debug, thiserror::Error)]
#[error("an answer of the API server can't be edited: {0}")]
pub(crate) struct Malformed(pub(crate) String);

impl Format {
    /// The first format in `Accept`.
    pub(crate) fn asked_for(headers: &HeaderMap) -> Self {
        Self::named(headers, ACCEPT)
    }

    /// The format in `Content-Type`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::named(headers, CONTENT_TYPE)
    }

    fn named(headers: &HeaderMap, header: http::HeaderName) -> Self {
        let value = headers.get(header).map_or(&b""[..], http::HeaderValue::as_bytes);
        if value.starts_with(Self::Protobuf.media_type().as_bytes()) { Self::Protobuf } else { Self::Json }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Json => "application/json",
        }
    }
}
