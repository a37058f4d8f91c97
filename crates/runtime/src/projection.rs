//! The view that a daemon has of Nodes: the fields that it reads.

use std::sync::Arc;

use label_storage::node::{self, Extras, Machine, RESTORED, Taint};
use label_storage::rules::IdentityBy;
use label_storage::{Node, Rules, label};
use label_storage_wire::{self as wire, Content, NodePart, Object};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// The whole Node, so that nothing is overwritten.
    #[default]
    WhatIsThere,
    /// Only what the rules store: a change of anything else is no change.
    WhatIsKept,
}

#[derive(Debug, Clone, Default)]
pub struct Projection {
    pub rules: Arc<Rules>,
    pub detail: Detail,
}

impl Projection {
    /// True if the names of Nodes are the keys of records. Then a Node never changes its shard.
    pub(crate) fn files_by_name(&self) -> bool {
        self.rules.identity == IdentityBy::Name
    }

    /// True if this annotation is read. All are read of a whole Node: its record may have some that other rules have stored.
    pub(crate) fn wants_annotation(&self, content: Content, key: &str) -> bool {
        let wants_all = self.detail == Detail::WhatIsThere && content == Content::Node;
        wants_all || self.rules.wants_annotation(key)
    }

    /// True if lists need taints, the cordon and the machine, and cost several times as much.
    pub(crate) fn needs_whole_nodes(&self) -> bool {
        let lifts_taints = self.detail == Detail::WhatIsThere && self.rules.startup_taint.is_some();
        self.rules.needs_whole_nodes() || lifts_taints
    }

    /// True if events need them, too: a restorer can use a Node as its event shows it. For the server such an event costs no more.
    pub(crate) fn watches_whole_nodes(&self) -> bool {
        self.detail == Detail::WhatIsThere || self.needs_whole_nodes()
    }

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
    let taint = |wire::Taint { key, value, effect, time_added }| Taint { key, value, effect, time_added };
    let taints = part.taints.into_iter().map(taint).collect();
    // The names of two machines may differ in nothing but bytes that are not UTF-8.
    let known = |text: String| (!text.is_empty() && label::is_intact(&text)).then_some(text);
    let machine = Machine { provider_id: known(part.provider_id), system_uuid: known(part.system_uuid) };
    Extras { taints, is_unschedulable: part.is_unschedulable, machine, is_whole: true, ..Extras::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_utf8_names_no_machine() {
        let machine = |name: &str| {
            let (provider_id, system_uuid) = (name.to_owned(), name.to_owned());
            extras(NodePart { provider_id, system_uuid, ..NodePart::default() }).machine
        };
        assert!(!machine("A").is_unknown());
        assert!(machine("").is_unknown() && machine("A\u{fffd}").is_unknown());
    }
}
