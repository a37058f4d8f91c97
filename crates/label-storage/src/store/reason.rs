//! The storer's reasons. Users rely on their names.

use strum::IntoStaticStr;

/// The reason for a decision of the storer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// The Node has labels and there is no record yet.
    FirstSeen,
    /// The Node has no labels and there is no record: none is needed.
    NoLabels,
    /// The record has the Node's labels.
    UpToDate,
    /// The Node's labels differ from the record's, and are stored.
    LabelsChanged,
    /// The restorer has marked this incarnation: its own labels are stored from now on.
    Restored,
    /// The record is marked as departed, but the Node exists.
    NotGone,
    /// A new incarnation that is not restored yet, so its labels are not stored.
    AwaitingRestore,
    /// As [`AwaitingRestore`](Self::AwaitingRestore), and the record is still marked as departed.
    Returned,
    /// This view of the Node is older than the one that the record was made from.
    ViewOlderThanRecord,
    /// The ConfigMap can't be read: a person has to fix it.
    RecordUnreadable,
    /// The record has no labels left. It stays until all older plans have expired.
    EmptyForNow,
    /// The record has had no labels for long enough.
    EmptyForGood,
    /// The Node was deleted, and its final labels are stored.
    FinalLabels,
    /// The Node was deleted before it was restored: its labels are merged over the record's.
    LeftUnrestored,
    /// The Node was deleted: its retention begins.
    Departed,
    /// The Node is absent, and its record is kept.
    Away,
    /// The Node has been absent for longer than the retention.
    RetentionOver,
    /// The Node is absent, and has no record.
    NothingStored,
    /// The Node has the ignore annotation. Its record stays unchanged.
    Ignored,
    /// The rules do not select this Node.
    NotSelected,
    /// The Node lacks the identity that the rules require.
    NoIdentity,
    /// The Node was deleted, and was on another machine than that of the record.
    OtherMachine,
    /// An earlier write of the record may still arrive. This write changes nothing else, and makes the API server refuse the earlier one.
    OutcomeUnknown,
    /// The ConfigMap has lost the label of records. This write only adds it again.
    LabelLost,
}

impl Reason {
    /// True if a living Node's labels are written to a record that may be another incarnation's.
    pub const fn takes_over(self) -> bool {
        matches!(self, Self::FirstSeen | Self::LabelsChanged | Self::Restored)
    }

    /// The name in logs and metrics. Users rely on it, so it does not change.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
