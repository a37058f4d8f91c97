use super::{NodeSummary, RecordSummary};
use crate::item::Item;
use crate::node::EVERYTHING;
use crate::store::Stored;
use crate::{Node, node::Why};

/// The number of withheld items of one Node, by reason. It takes 4 bytes, so at most [`MOST`](Self::MOST) are counted for each reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WithheldCounts(u32);

impl WithheldCounts {
    /// The most items that are counted for one reason.
    pub const MOST: u32 = (1 << Self::BITS) - 1;
    const BITS: u32 = 6;

    /// The items that the marker of a Node names, without those that the Node has now. If they are too many to name, the most.
    pub(super) fn of(node: &Node) -> Self {
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

impl NodeSummary {
    /// The items that are withheld from this Node now: the record still has them.
    pub fn withheld(&self, stored: Stored<RecordSummary>) -> WithheldCounts {
        match stored {
            Stored::Record(record) if record.is_of(self) && record.has_withheld => self.traits.withheld,
            // The storer has not followed the restore yet.
            Stored::Record(record) if !record.is_of(self) && record.is_restored_to(self) => {
                self.traits.withheld
            }
            _ => WithheldCounts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, record};

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

    #[test]
    fn items_count_only_while_the_record_has_them() {
        let node = marked("/refused:a").summary();
        let withheld = |record: crate::Record| !node.withheld(Stored::Record(record.summary())).is_empty();
        assert!(withheld(record("a", "u2").withheld("a", "x", None)));
        assert!(!withheld(record("a", "u2").label("k", "v")), "it was removed from the record");
        assert!(withheld(record("a", "u1").label("a", "x")), "the storer has not followed yet");
        let mut changed = record("a", "u1").label("a", "x");
        changed.labels_generation = Some(5);
        changed.generation = 5;
        assert!(!withheld(changed), "it is about to be restored again");
        assert!(node.withheld(Stored::Nothing).is_empty());
    }
}
