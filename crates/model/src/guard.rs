//! The guards of the protocol. Each can be removed, to show its purpose.

/// One guard. It is removed where the model calls the shipped functions or carries out their plans, never in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Guard {
    /// A record says which incarnation it was made from: without, every incarnation is the record's own
    Uid,
    /// The storer waits until a new incarnation is marked: without, it stores it at once
    Marker,
    /// A Node that lacks no label is marked too: without, it is not
    MarkWhole,
    /// A marker counts only with the Node's own uid: without, one that was copied along counts too
    OwnMarker,
    /// A marker counts only for the ConfigMap that it was made from: without, also for the one that took its place
    RecordUid,
    /// The storer reads the Node last: without, it plans from any earlier view
    ConfirmingGet,
    /// The restorer reads the record after it has seen the Node: without, before
    FreshRecord,
    /// An emptied record stays for half a minute: without, it is deleted at once
    Tombstone,
    /// A plan that is too old is dropped: without, it is carried out at any time
    PlanLifetime,
    /// A record is replaced or deleted only as it was read: without, however it is
    RecordVersion,
    /// A record is created only if there is none: without, over any
    CreateOnly,
    /// A Node is patched only as it was seen: without, if it is still the same incarnation
    NodeVersion,
    /// A deletion counts only if it is newer than the record: without, also if it is as new
    NewerDeleted,
    /// Final labels are obsolete if a later incarnation was restored and has no record: without, they are stored
    History,
    /// Final labels are kept if no record is known, even if there are none: without, they are not
    KeepNone,
    /// A marker counts only if the labels have not changed since: without, always
    LabelsGeneration,
    /// A storer that has no answer to a write makes another one, so that the first is refused: without, it goes on
    InDoubt,
    /// Final labels are kept if a write of the record may be under way: without, only if the record lacks them
    Unsettled,
    /// A departed record has the version of the deletion: without, only if it was made from the final labels
    DepartedVersion,
    /// A deletion that was dealt with before the position it resumed from is not dealt with again: without, it is
    Settled,
}
