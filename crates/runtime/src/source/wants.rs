//! What is read of objects, beyond what always is.

use label_storage::Rules;
use label_storage_wire::OURS;

/// Says what else is to be read. Asked anew for every list, watch and get.
pub trait Wants: Send + Sync {
    /// Whether the annotation of this key is.
    fn annotation(&self, key: &str) -> bool;

    /// Whether lists and watches of Nodes need taints, the cordon and the machine: then they cost several times as much.
    fn whole_nodes(&self) -> bool;
}

impl Wants for Rules {
    fn annotation(&self, key: &str) -> bool {
        key.starts_with(OURS)
    }

    fn whole_nodes(&self) -> bool {
        false
    }
}
