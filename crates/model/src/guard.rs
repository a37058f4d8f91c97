//! The guards of the protocol. Each can be removed, to show its purpose.

/// One guard. It is removed where the model calls the shipped functions or carries out their plans, never in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Guard {
    /// A record names the incarnation that it was made from. Without: every incarnation counts as that one
    Uid,
    /// The storer waits until a new incarnation is marked. Without: it stores it at once
    Marker,
    /// A Node that lacks no label is marked, too. Without: it is not marked
    MarkWhole,
    /// A marker counts only with the Node's own uid. Without: a copied marker counts, too
    OwnMarker,
    /// A marker counts only for the ConfigMap that it was made from. Without: also for a later one of the same name
    RecordUid,
    /// The storer reads the Node last. Without: it plans from any earlier view
    ConfirmingGet,
    /// The restorer reads the record after it has seen the Node. Without: before
    FreshRecord,
    /// An emptied record stays for half a minute. Without: it is deleted at once
    Tombstone,
    /// A plan that is too old is dropped. Without: it is carried out at any time
    PlanLifetime,
    /// A record is replaced or deleted only in the version that was read. Without: in any version
    RecordVersion,
    /// A record is created only if there is none. Without: an existing one is replaced
    CreateOnly,
    /// A Node is patched only in the version that was seen. Without: in any version of the same incarnation
    NodeVersion,
    /// A deletion counts only if it is newer than the record. Without: also if it is as new
    NewerDeleted,
    /// Final labels are obsolete if a later incarnation was restored and has no record. Without: they are stored
    History,
    /// Final labels are kept if no record is known, even if they are empty. Without: they are not kept
    KeepNone,
    /// A marker counts only if the labels of the record have not changed since. Without: always
    LabelsGeneration,
    /// A storer without an answer to a write sends another one, so that the first is refused. Without: it continues
    InDoubt,
    /// Final labels are kept if a write of the record may be under way. Without: only if the record lacks them
    Unsettled,
    /// A departed record has the version of the deletion. Without: only if it was made from the final labels
    DepartedVersion,
    /// A deletion before the resume position is not stored again. Without: it is
    Settled,
    /// A Node is restored from final labels that are not stored yet. Without: from the record alone
    Anticipation,
    /// A restorer drops final labels once a later incarnation was restored. Without: it keeps them until they are stored
    Superseded,
    /// A restorer drops final labels if a person edits the record. Without: it restores them over the edit
    Edited,
}
