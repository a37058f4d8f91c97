//! Items of the record that the restorer does not restore, as the marker names them.

use strum::{IntoStaticStr, VariantArray};

use crate::Node;
use crate::item::Item;

/// Stands in the marker, after a reason, for all items of the record that the Node lacks, if there are too many to name each.
pub const EVERYTHING: &str = "*";

/// The reason why an item of the record is not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Why {
    /// It was read from another machine, which by the rules gets no such item.
    OtherMachine,
    /// It is a trust label, the Node has another name, and a kubelet can claim any identity of this kind.
    OtherName,
    /// It describes the state of the machine, or belongs to kubelet, network or storage.
    Never,
    /// The Node's annotations would exceed the limit of the API server.
    TooLarge,
    /// The cluster refused it: an admission policy, a webhook or the API server.
    Refused,
}

impl Why {
    /// All of them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in markers, logs and metrics. Users rely on it, so it does not change.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The number of withheld items of one Node, by reason. It takes 4 bytes, so at most [`MOST`](Self::MOST) are counted for each reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WithheldCounts(u32);

impl WithheldCounts {
    /// The most items that are counted for one reason.
    pub const MOST: u32 = (1 << Self::BITS) - 1;
    const BITS: u32 = 6;

    /// The items that the marker of a Node names, without those that the Node has now. If they are too many to name, the most.
    pub(crate) fn of(node: &Node) -> Self {
        let is_lacking = |name| Item::parse(name).is_none_or(|item| node.value_of(item).is_none());
        let lacking = node.withheld_with_reasons().filter(|(_, name)| is_lacking(name));
        lacking.fold(Self::default(), |counts, (reason, name)| {
            let why = Why::ALL.iter().find(|why| why.as_str() == reason);
            let count = if name == EVERYTHING { Self::MOST } else { 1 };
            why.map_or(counts, |why| counts.with(*why, count))
        })
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number for this reason.
    pub fn get(self, why: Why) -> u32 {
        self.0 >> Self::shift(why) & Self::MOST
    }

    fn with(self, why: Why, more: u32) -> Self {
        let count = (self.get(why) + more).min(Self::MOST);
        Self(self.0 & !(Self::MOST << Self::shift(why)) | count << Self::shift(why))
    }

    const fn shift(why: Why) -> u32 {
        why as u32 * Self::BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::node;

    fn marked(list: &str) -> Node {
        node("a").incarnation("u2").marked(&format!("u2/4{list}"))
    }

    fn counts(node: &Node) -> Vec<(&'static str, u32)> {
        let counts = node.summary().traits.withheld;
        let all = Why::ALL.iter().map(|why| (why.as_str(), counts.get(*why)));
        let counted: Vec<_> = all.filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts.is_empty(), counted.is_empty());
        counted
    }

    #[test]
    fn items_are_counted_by_the_reason_in_the_marker() {
        assert_eq!(counts(&marked("")), []);
        assert_eq!(counts(&marked("/refused:a,never:b,refused:c")), [("never", 1), ("refused", 2)]);
        assert_eq!(counts(&marked("/other-machine:a,other-name:b,too-large:annotation:c")).len(), 3);
        assert_eq!(counts(&marked("/refused:a,refused:b").label("a", "own")), [("refused", 1)]);
        assert_eq!(counts(&marked("/other-machine:*,refused:a")), [("other-machine", 63), ("refused", 1)]);
        let many: Vec<_> = (0..100).map(|number| format!("never:n{number}")).collect();
        assert_eq!(
            counts(&marked(&format!("/refused:a,{}", many.join(",")))),
            [("never", 63), ("refused", 1)]
        );
        assert_eq!(counts(&marked("/unknown:a")), []);
        assert_eq!(
            counts(&node("a").incarnation("u2").marked("u1/4/refused:a")),
            [],
            "of another incarnation"
        );
    }
}
