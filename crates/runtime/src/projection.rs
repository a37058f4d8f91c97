//! What a daemon sees of Nodes: by which rules, and how much.

use std::sync::Arc;

use label_storage::node::{self, Extras, Machine, RESTORED, Taint};
use label_storage::rules::IdentityBy;
use label_storage::{Node, Rules};
use label_storage_wire::{Content, NodePart, Object};

/// How much of a Node a daemon has to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// All that it has, lest something is overwritten.
    #[default]
    WhatIsThere,
    /// What would be stored, and no more: what else a Node has is no change, and no reason for a record.
    WhatIsKept,
}

/// What to read of objects, and what to make of it.
#[derive(Debug, Clone, Default)]
pub struct Projection {
    /// Which rules hold.
    pub rules: Arc<Rules>,
    /// Who looks.
    pub detail: Detail,
}

impl Projection {
    /// Whether records are filed by name. Then a Node is of one shard for as long as it lives.
    pub(crate) fn files_by_name(&self) -> bool {
        self.rules.identity == IdentityBy::Name
    }

    /// Whether the annotation of this key is read. Of a whole Node all are, lest something is overwritten: its record may have what
    /// other rules have stored.
    pub(crate) fn wants_annotation(&self, content: Content, key: &str) -> bool {
        let wants_all = self.detail == Detail::WhatIsThere && content == Content::Node;
        wants_all || self.rules.wants_annotation(key)
    }

    /// Whether lists and watches of Nodes need taints, the cordon and the machine: then they cost several times as much.
    pub(crate) fn needs_whole_nodes(&self) -> bool {
        let lifts_taints = self.detail == Detail::WhatIsThere && self.rules.startup_taint.is_some();
        self.rules.needs_whole_nodes() || lifts_taints
    }

    /// A Node, of what came over the wire.
    pub fn node(&self, mut object: Object) -> Result<Node, node::Error> {
        let marker = object.annotations.remove(RESTORED);
        let mut node = Node::new(object.name, object.uid, &object.resource_version, object.labels, marker)?;
        node.extras =
            Extras { annotations: object.annotations, ..object.node.map(extras).unwrap_or_default() };
        let node = node.filed(&self.rules);
        Ok(match self.detail {
            Detail::WhatIsThere => node,
            Detail::WhatIsKept => node.seen_through(&self.rules),
        })
    }
}

fn extras(part: NodePart) -> Extras {
    let taints = part.taints.into_iter().map(|taint| Taint {
        key: taint.key,
        value: taint.value,
        effect: taint.effect,
        time_added: taint.time_added,
    });
    let known = |text: String| (!text.is_empty()).then_some(text);
    let machine = Machine { provider_id: known(part.provider_id), system_uuid: known(part.system_uuid) };
    let (taints, is_unschedulable) = (taints.collect(), part.is_unschedulable);
    Extras { taints, is_unschedulable, machine, is_whole: true, ..Extras::default() }
}
