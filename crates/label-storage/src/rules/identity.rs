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
        let key = |key: &str, is_key: fn(&str) -> bool| match is_key(key) {
            true => Ok(key.to_owned()),
            false => Err(Error::NoKey(key.to_owned())),
        };
        match (text, text.split_once(':')) {
            ("name", _) => Ok(Self::Name),
            ("providerID", _) => Ok(Self::ProviderId),
            ("systemUUID", _) => Ok(Self::SystemUuid),
            (_, Some(("label", its))) => key(its, label::is_key).map(Self::Label),
            (_, Some(("annotation", its))) => key(its, label::is_annotation_key).map(Self::Annotation),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_written_as_they_are_read() {
        for (text, identity) in [
            ("name", IdentityBy::Name),
            ("providerID", IdentityBy::ProviderId),
            ("systemUUID", IdentityBy::SystemUuid),
            ("label:example.com/serial", IdentityBy::Label("example.com/serial".to_owned())),
            ("annotation:Example.com/serial", IdentityBy::Annotation("Example.com/serial".to_owned())),
        ] {
            assert_eq!(identity.to_string(), text);
            assert_eq!(text.parse(), Ok(identity));
        }
        for (text, trust) in [("same-machine", Trust::SameMachine), ("name", Trust::Name)] {
            assert_eq!(trust.to_string(), text);
            assert_eq!(text.parse(), Ok(trust));
        }
    }

    #[test]
    fn what_is_no_identity_is_refused_with_advice() {
        for (text, advice) in [
            ("", "write name, providerID, systemUUID, label:KEY or annotation:KEY"),
            ("providerid", "\"providerid\" is nothing that a node can be known by"),
            ("uid", "\"uid\" is nothing that a node can be known by"),
            ("label:", "\"\" is no key of a label or annotation"),
            ("label:Example.com/serial", "\"Example.com/serial\" is no key"),
            ("annotation:a b", "\"a b\" is no key"),
        ] {
            let refused = text.parse::<IdentityBy>().expect_err(text).to_string();
            assert!(refused.contains(advice), "{text}: {refused}");
        }
        let refused = "machine".parse::<Trust>().expect_err("no trust").to_string();
        assert_eq!(refused, "\"machine\" is no reason to trust a machine: write same-machine or name");
    }
}
