//! In a dry run, each decision is carried out once: it is logged.

use std::collections::HashMap;

use label_storage::decision::Decision;
use label_storage::node_state::{NodeState, Skip};
use label_storage::summary::{LabelsDigest, UidDigest};
use label_storage::{RecordKey, ResourceVersion};

use crate::cache::Entry;

/// The last decision about each key, and true if it was logged.
#[derive(Debug, Default)]
pub(super) struct DryRun(HashMap<RecordKey, (News, bool)>);

/// A key is logged again if one of these changes: the reason, the incarnation and the labels of the Node, the version of the record.
type News = (&'static str, Option<(UidDigest, LabelsDigest)>, ResourceVersion);

impl DryRun {
    /// True if this decision was logged before. A Node that the rules leave alone is logged here, because no attempt follows.
    pub(super) fn is_said(&mut self, entry: &Entry<'_>, decision: &Decision) -> bool {
        let node = entry.node().map(|node| (node.uid, node.labels));
        let news = (decision.reason, node, entry.record_version());
        if let Some((known, is_said)) = self.0.get(entry.key())
            && *known == news
        {
            return *is_said;
        }
        let left_alone = [Skip::Ignored, Skip::NotSelected, Skip::NoIdentity].map(NodeState::Skipped);
        let is_left_alone = left_alone.contains(&decision.state);
        if is_left_alone {
            tracing::info!(node = entry.node_name(), reason = decision.reason, "would skip the node");
        }
        self.0.insert(entry.key().clone(), (news, is_left_alone));
        is_left_alone
    }

    pub(super) fn said(&mut self, entry: &Entry<'_>) {
        self.0.entry(entry.key().clone()).and_modify(|(_, is_said)| *is_said = true);
    }

    pub(super) fn retain(&mut self, concerns: impl Fn(&str) -> bool) {
        self.0.retain(|key, _| concerns(key));
    }
}
