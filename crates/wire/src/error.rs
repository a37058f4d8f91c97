//! What can be wrong with an answer.

use std::io;

use crate::{MAX_ITEM, Status};

/// Why an answer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection was lost, or a proxy gave up.
    #[error("the answer ended early")]
    BrokeOff,
    /// The input itself failed: the connection, or what unpacks it.
    #[error("the answer could not be read: {0}")]
    Io(#[source] io::Error),
    /// The list is a page of a longer one. Pages are never asked for here.
    #[error("the list is only a part: more was to follow")]
    Partial,
    /// No object is that large.
    #[error("the answer has an object of more than {MAX_ITEM} bytes")]
    TooLarge,
    /// Something other than the API server answered, or it answered in another format.
    #[error("the answer is not protobuf: it begins with {0:?}")]
    NotProtobuf(String),
    /// Another kind of object than was asked for.
    #[error("the answer is a {0}, which was not asked for")]
    Kind(String),
    /// The API server said why it does not give what was asked for.
    #[error("the API server answered with a status: {0}")]
    Status(Status),
    /// Without it nobody can tell what is newer.
    #[error("the answer has no resourceVersion")]
    NoVersion,
    /// The bytes make no sense.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

impl Error {
    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }
}

impl From<io::Error> for Error {
    /// What unpacks or decrypts the input reports an early end as an error of its own.
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
