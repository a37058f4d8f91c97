//! Which Nodes claim an entry, where entries are not filed by name: one, as a rule; more, where what should tell Nodes apart does not.

use label_storage::ResourceVersion;
use label_storage::summary::{NodeSummary, UidDigest};

use super::Entry;
use super::packed::PackedNode;
use crate::record_key::NodeName;

/// The Nodes that claim an entry.
#[derive(Debug, Default)]
pub(super) struct KeyOwners {
    /// Whoever has claimed it for longest comes first.
    all: Vec<Claim>,
    /// Where somebody was looked for last. Lists tell of Nodes in the same order each time, so the next is likely beside it.
    looked_at: usize,
    /// Whose it was last: the Node that left it last or, before any is seen, the one that the record names.
    last: Option<NodeName>,
}

#[derive(Debug)]
struct Claim {
    name: NodeName,
    node: PackedNode,
    version: ResourceVersion,
    /// The version at which this incarnation was first seen to claim it.
    since: ResourceVersion,
}

impl KeyOwners {
    /// Somebody's claim. Where a zone is taken for an identity, half a cluster claims one entry: not all are to be looked at for each.
    fn of(&mut self, name: &NodeName) -> Option<&mut Claim> {
        let is_it = |claim: &Claim| claim.name == *name;
        let beside = self.looked_at + 1;
        let is_beside = self.all.get(beside).is_some_and(is_it);
        self.looked_at = if is_beside { beside } else { self.all.iter().position(is_it)? };
        self.all.get_mut(self.looked_at)
    }
}

impl Entry {
    /// The name of the Node that is there; where none is, of the last that was known to be: that is whom to ask for. By default,
    /// what the entry is filed under.
    pub fn node_name(&self) -> &str {
        self.asked_for().unwrap_or(&self.key)
    }

    /// The same where it is not filed by name, and such a Node is known.
    pub(crate) fn asked_for(&self) -> Option<&NodeName> {
        let claims = self.claims.as_deref()?;
        claims.all.first().map(|claim| &claim.name).or(claims.last.as_ref())
    }

    /// Whether several Nodes claim to be the one that this is filed under. Nobody can tell then whose record it is.
    pub fn is_contested(&self) -> bool {
        self.claims.as_deref().is_some_and(|claims| claims.all.len() > 1)
    }

    /// All Nodes that claim it, where it is not filed by name: their names, incarnations and versions.
    pub(crate) fn claimants(&self) -> impl Iterator<Item = (&NodeName, UidDigest, ResourceVersion)> {
        let all = self.claims.iter().flat_map(|claims| &claims.all);
        all.filter_map(|claim| Some((&claim.name, claim.node.unpack(claim.version)?.uid, claim.version)))
    }

    /// Those of them that keep pods away until they are restored.
    pub fn tainted_claimants(&self) -> impl Iterator<Item = (&NodeName, UidDigest)> {
        let all = self.claims.iter().flat_map(|claims| &claims.all);
        all.filter_map(|claim| {
            let node = claim.node.unpack(claim.version).filter(|node| node.traits.has_startup_taint)?;
            Some((&claim.name, node.uid))
        })
    }

    /// Whether a Node that was deleted at this version was, as far as is known, not the only one that claimed this.
    pub(crate) fn had_others(&self, name: &str, version: ResourceVersion) -> bool {
        let mut claims = self.claims.iter().flat_map(|claims| &claims.all);
        claims.any(|claim| *claim.name != *name && claim.since < version)
    }

    /// How many Nodes there are in it.
    pub(crate) fn nodes(&self) -> usize {
        self.claims.as_deref().map_or(usize::from(self.node.is_there()), |claims| claims.all.len())
    }

    /// A Node claims it, and looks like this. `is_known`: it did so before.
    pub(super) fn claim(&mut self, name: &NodeName, node: &NodeSummary, is_known: bool) {
        let claims = self.claims.get_or_insert_default();
        let (packed, version) = (PackedNode::pack(node), node.version);
        let known = if is_known { claims.of(name) } else { None };
        match known {
            Some(claim) => {
                let is_same = claim.node.unpack(version).is_some_and(|known| known.uid == node.uid);
                claim.since = if is_same { claim.since } else { version };
                (claim.node, claim.version) = (packed, version);
            }
            None => {
                if claims.all.is_empty() {
                    claims.all.reserve_exact(1);
                }
                claims.all.push(Claim { name: NodeName::clone(name), node: packed, version, since: version });
            }
        }
        self.show();
    }

    /// A Node claims it no more, or never did. Where no other does, the entry has lost its Node.
    pub(super) fn unclaim(&mut self, name: &NodeName, version: ResourceVersion, is_sure: bool) {
        let claims = self.claims.get_or_insert_default();
        let before = claims.all.len();
        claims.all.retain(|claim| claim.name != *name);
        let has_left = claims.all.len() < before;
        if !claims.all.is_empty() {
            return self.show();
        }
        if has_left || is_sure && version >= self.node_version {
            claims.last = Some(NodeName::clone(name));
        }
        self.node = self.node.gone();
        if has_left {
            self.is_surely_gone = is_sure;
        }
        // As with Nodes that are filed by name.
        if is_sure {
            self.node_version = self.node_version.max(version);
            self.is_surely_gone = true;
        }
    }

    /// The record names this Node.
    pub(super) fn recorded(&mut self, name: &str) {
        let has_seen_any = self.node_version.0 > 0;
        let claims = self.claims.get_or_insert_default();
        if claims.last.as_deref() != Some(name) && !has_seen_any {
            claims.last = Some(NodeName::from(name));
        }
    }

    /// Shows the first of those that claim it.
    fn show(&mut self) {
        if let Some(claim) = self.claims.as_deref().and_then(|claims| claims.all.first()) {
            (self.node, self.node_version) = (claim.node, claim.version);
        }
    }
}
