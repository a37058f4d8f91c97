//! A write of a record whose outcome is not known: the API server may still carry it out, as long as the record is as it expects.

/// The write of one record that has no answer. `V` is the version of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InDoubt<V> {
    /// The version of the record that it expects; `None` for a create, which expects that there is no record.
    pub expected: Option<V>,
}

/// The answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAnswer {
    /// It was carried out.
    Done,
    /// It was refused, and is not carried out.
    Refused,
    /// There is no answer, or it does not show the outcome.
    Unknown,
}

impl<V: PartialEq> InDoubt<V> {
    /// True if it can still be carried out, given the version of the record that was just read.
    pub fn holds(&self, read: Option<V>) -> bool {
        self.expected == read
    }

    /// The write in doubt after `sent` was answered, if `before` was in doubt until then. A write that was carried out changed the record, so
    /// that none from before can be carried out any more.
    pub fn after(before: Option<Self>, sent: Self, answer: WriteAnswer) -> Option<Self> {
        match answer {
            WriteAnswer::Done => None,
            WriteAnswer::Refused => before,
            WriteAnswer::Unknown => Some(sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: InDoubt<u8> = InDoubt { expected: Some(1) };
    const NEW: InDoubt<u8> = InDoubt { expected: Some(2) };

    #[test]
    fn a_write_can_be_carried_out_while_the_record_is_as_it_expects() {
        assert!(OLD.holds(Some(1)));
        assert!(!OLD.holds(Some(2)) && !OLD.holds(None));
        let create = InDoubt::<u8> { expected: None };
        assert!(create.holds(None) && !create.holds(Some(1)));
    }

    #[test]
    fn a_refused_write_tells_nothing_about_one_from_before() {
        assert_eq!(InDoubt::after(Some(OLD), NEW, WriteAnswer::Done), None);
        assert_eq!(InDoubt::after(Some(OLD), NEW, WriteAnswer::Refused), Some(OLD));
        assert_eq!(InDoubt::after(Some(OLD), NEW, WriteAnswer::Unknown), Some(NEW));
    }
}
