//! Refuses a list that lacks a large share of the Nodes, until the next list confirms it.
//!
//! A deleted Node is missing in a list. But a broken API server, an empty cache or the wrong cluster also sends incomplete lists. Each
//! Node that a list lacks is read by name before its record is written. A list that lacks many of them is not used at all, until the
//! next list agrees.

/// A list that lacks fewer Nodes than this is always used: a cluster of two Nodes may lose one.
const FEW: usize = 3;

/// More than one in this many is a large share.
const PART: usize = 3;

/// The state between two lists: true if the last one was refused.
#[derive(Debug, Default)]
pub struct MassAbsence {
    is_doubted: bool,
}

impl MassAbsence {
    /// True if a list that lacks `missing` of the `known` Nodes is to be used.
    pub fn accepts(&mut self, missing: usize, known: usize) -> bool {
        let is_large = missing >= FEW && missing * PART > known;
        let was_doubted = std::mem::take(&mut self.is_doubted);
        self.is_doubted = is_large && !was_doubted;
        !self.is_doubted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_share_is_accepted_at_once() {
        for (missing, known) in [(0, 0), (1, 1), (2, 2), (3, 9), (33, 100)] {
            assert!(MassAbsence::default().accepts(missing, known), "{missing} of {known}");
        }
    }

    #[test]
    fn a_large_share_is_accepted_when_the_next_list_agrees() {
        for (missing, known) in [(3, 3), (3, 8), (34, 100), (100, 100)] {
            let mut absence = MassAbsence::default();
            assert!(!absence.accepts(missing, known), "{missing} of {known}");
            assert!(absence.accepts(missing, known), "the second list agrees");
            assert!(!absence.accepts(missing, known), "the next loss is another one");
        }
    }

    #[test]
    fn nodes_that_are_there_again_end_the_doubt() {
        let mut absence = MassAbsence::default();
        assert!(!absence.accepts(100, 100));
        assert!(absence.accepts(0, 100));
        assert!(!absence.accepts(100, 100));
    }
}
