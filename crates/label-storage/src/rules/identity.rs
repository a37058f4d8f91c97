//! The identity of a returning Node, and the rule for another machine.

use std::fmt;
use std::str::FromStr;

use super::InvalidRule;
use crate::item::Item;
use crate::label;

/// The property by which a returning Node is recognised, and under which its record is filed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum IdentityBy {
    /// The Node's name.
    #[default]
    Name,
    /// `spec.providerID`, the cloud's name for the machine.
    ProviderId,
    /// `status.nodeInfo.systemUUID`, the machine's own name.
    SystemUuid,
    /// The value of this label.
    Label(String),
    /// The value of this annotation.
    Annotation(String),
}

/// The items that a Node gets if it is another machine than that of the record (see [`Machine::differs_from`](crate::node::Machine)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtherMachine {
    /// All items.
    #[default]
    All,
    /// All items but trust labels (see [`Item::is_trust`]).
    Untrusted,
    /// No items. The Node is not stored either.
    None,
}

impl IdentityBy {
    /// True if a kubelet can claim the identity of another machine.
    pub fn is_forgeable(&self) -> bool {
        match self {
            Self::Name => false,
            Self::Label(key) => !Item::Label(key).is_trust(),
            Self::ProviderId | Self::SystemUuid | Self::Annotation(_) => true,
        }
    }
}

impl FromStr for IdentityBy {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let checked = |key: &str, is_key: fn(&str) -> bool| match is_key(key) {
            true => Ok(key.to_owned()),
            false => Err(InvalidRule(format!(
                "{key:?} is not a label or annotation key: write a key such as label:example.com/serial"
            ))),
        };
        match (text, text.split_once(':')) {
            ("name", _) => Ok(Self::Name),
            ("providerID", _) => Ok(Self::ProviderId),
            ("systemUUID", _) => Ok(Self::SystemUuid),
            (_, Some(("label", key))) => checked(key, label::is_key).map(Self::Label),
            (_, Some(("annotation", key))) => checked(key, label::is_annotation_key).map(Self::Annotation),
            _ => Err(InvalidRule(format!(
                "{text:?} is not an identity: write name, providerID, systemUUID, label:KEY or annotation:KEY"
            ))),
        }
    }
}

impl fmt::Display for IdentityBy {
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

impl FromStr for OtherMachine {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let found = [Self::All, Self::Untrusted, Self::None].into_iter().find(|it| it.to_string() == text);
        found.ok_or_else(|| {
            InvalidRule(format!("{text:?} is not a valid value: write all, untrusted or none"))
        })
    }
}

impl fmt::Display for OtherMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Untrusted => "untrusted",
            Self::None => "none",
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
        for (text, rule) in
            [("all", OtherMachine::All), ("untrusted", OtherMachine::Untrusted), ("none", OtherMachine::None)]
        {
            assert_eq!(rule.to_string(), text);
            assert_eq!(text.parse(), Ok(rule));
        }
    }

    #[test]
    fn what_is_no_identity_is_refused_with_advice() {
        for (text, advice) in [
            ("", "write name, providerID, systemUUID, label:KEY or annotation:KEY"),
            ("providerid", "\"providerid\" is not an identity"),
            ("uid", "\"uid\" is not an identity"),
            ("label:", "\"\" is not a label or annotation key"),
            ("label:Example.com/serial", "\"Example.com/serial\" is not a label or annotation key"),
            ("annotation:a b", "\"a b\" is not a label or annotation key"),
        ] {
            let refused = text.parse::<IdentityBy>().expect_err(text).to_string();
            assert!(refused.contains(advice), "{text}: {refused}");
        }
        let refused = "trusted".parse::<OtherMachine>().expect_err("no rule").to_string();
        assert_eq!(refused, "\"trusted\" is not a valid value: write all, untrusted or none");
    }
}
