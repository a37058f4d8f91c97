//! By what a Node that returns is known again, and when it is trusted.

use std::fmt;
use std::str::FromStr;

use crate::label;

/// By what a Node that returns is known again: what its record is filed under.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum IdentityBy {
    /// By its name.
    #[default]
    Name,
    /// By `spec.providerID`, the cloud's name for the machine.
    ProviderId,
    /// By `status.nodeInfo.systemUUID`, the machine's own.
    SystemUuid,
    /// By the value of this label.
    Label(String),
    /// By the value of this annotation.
    Annotation(String),
}

/// What a returning machine must be for security labels to come back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trust {
    /// The very machine that they were read from.
    #[default]
    SameMachine,
    /// Any that the record is filed for.
    Name,
}

/// Something that is no such choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nodes have no such thing.
    #[error(
        "{0:?} is nothing that a node can be known by: write name, providerID, systemUUID, label:KEY or annotation:KEY"
    )]
    NoIdentity(String),
    /// No label or annotation has such a key.
    #[error("{0:?} is no key of a label or annotation: write a key such as label:example.com/serial")]
    NoKey(String),
    /// Nobody is trusted like that.
    #[error("{0:?} is no reason to trust a machine: write same-machine or name")]
    NoTrust(String),
}

impl FromStr for IdentityBy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let key = |key: &str| match label::is_key(key) {
            true => Ok(key.to_owned()),
            false => Err(Error::NoKey(key.to_owned())),
        };
        match (text, text.split_once(':')) {
            ("name", _) => Ok(Self::Name),
            ("providerID", _) => Ok(Self::ProviderId),
            ("systemUUID", _) => Ok(Self::SystemUuid),
            (_, Some(("label", its))) => key(its).map(Self::Label),
            (_, Some(("annotation", its))) => key(its).map(Self::Annotation),
            _ => Err(Error::NoIdentity(text.to_owned())),
        }
    }
}

impl fmt::Display for IdentityBy {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("name"),
            Self::ProviderId => f.write_str("providerID"),
            Self::SystemUuid => f.write_str("systemUUID"),
            Self::Label(key) => write!(f, "label:{key}"),
            Self::Annotation(key) => write!(f, "annotation:{key}"),
        }
    }
}

impl FromStr for Trust {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "same-machine" => Ok(Self::SameMachine),
            "name" => Ok(Self::Name),
            _ => Err(Error::NoTrust(text.to_owned())),
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameMachine => "same-machine",
            Self::Name => "name",
        })
    }
}
