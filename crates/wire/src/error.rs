//! Errors in answers.

use std::io;

use crate::{MAX_ITEM, Status};

/// The reason why an answer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the answer ended early")]
    BrokeOff,
    #[error("the answer can't be read: {0}")]
    Io(#[source] io::Error),
    /// The list is a page of a longer one. Pages are never requested here.
    #[error("the list is incomplete: it has a continue token")]
    Partial,
    #[error("the answer has an object of more than {MAX_ITEM} bytes")]
    TooLarge,
    /// Something other than the API server answered, or it answered in another format.
    #[error("the answer is not protobuf: it begins with {0:?}")]
    NotProtobuf(String),
    #[error("the answer is a {0}, which was not asked for")]
    Kind(String),
    #[error("the API server answered with a status: {0}")]
    Status(Status),
    #[error("the answer has no resourceVersion")]
    NoVersion,
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

impl Error {
    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }
}

impl From<io::Error> for Error {
    /// A decompressor or a TLS stream reports an early end as an error.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::BrokeOff,
            _ => Self::Io(error),
        }
    }
}

impl From<prost::DecodeError> for Error {
    fn from(error: prost::DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}
