//! The protocol of Label Storage as pure functions: no client, no clock, no I/O.
//!
//! A Node that is deleted and re-created loses its labels. Two daemons keep them: the storer copies each Node's
//! labels into a ConfigMap, the restorer puts them back when a Node of that name returns. Everything that the two
//! *decide* is here, so that the daemons, the tests and every other tool decide alike.
//!
//! ```text
//!                       ┌───────────── this crate ─────────────┐
//!   Node ──observe──►   │ Node ─┐                              │
//!                       │       ├─► plan_store   ─► store::Plan │ ──apply──► ConfigMap
//!   ConfigMap ─────►    │ Record┘                              │
//!                       │       └─► plan_restore ─► restore::Plan ──apply──► Node
//!                       └──────────────────────────────────────┘
//! ```
//!
//! - [`item`]: the names of what is kept; [`key`]: label keys as ConfigMap keys, a bijection; [`name`]: the ConfigMap's name for a Node.
//! - [`node`]: what a decision needs to know of a Node; [`record`]: the same of a ConfigMap, hostile until checked.
//! - [`shard`](shard()): which replica handles a Node; [`rules`]: what operators choose.
//! - [`final_labels`]: what a Node had when it was deleted, until it is stored; [`position`] and
//!   [`watch_progress`]: where a watch is resumed.
//! - [`node_state`]: the meaning of a decision; [`mass_absence`]: doubts a list that lacks many Nodes.
//! - [`store`] and [`restore`]: who is right, the Node or its record, and what follows; [`summary`]: the little that
//!   this takes.

#![warn(missing_docs)]

pub mod decision;
pub mod final_labels;
#[cfg(test)]
mod fixtures;
pub mod item;
pub mod key;
pub mod label;
pub mod mass_absence;
pub mod name;
pub mod node;
pub mod node_state;
pub mod position;
pub mod record;
pub mod record_key;
pub mod restore;
pub mod rules;
mod seen;
pub mod shard;
pub mod store;
pub mod summary;
#[cfg(test)]
mod tests {
    mod protocol_sim;
}
pub mod watch_lag;
pub mod watch_progress;

pub use label::Labels;
pub use node::{Node, ResourceVersion, Uid};
pub use position::Position;
pub use record::Record;
pub use record_key::{NodeName, RecordKey};
pub use restore::plan_restore;
pub use rules::Rules;
pub use shard::shard;
pub use store::plan_store;
