//! The protocol of Label Storage as pure functions: no client, no clock, no I/O.
//!
//! - [`store`] and [`restore`]: the decisions of the two daemons.
//! - [`node`], [`record`], [`item`]: the data that is read and written; [`summary`]: the part that a decision needs;
//!   [`withheld`]: the part that is not restored.
//! - [`decision`] and [`node_state`]: when to reconcile a key, and the state of its Node.
//! - [`final_labels`], [`watch_lag`], [`watch_progress`], [`position`], [`mass_absence`]: small state machines.
//! - [`key`], [`name`], [`shard`](shard()): encodings that never change; [`rules`]: everything that operators choose.

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
pub mod withheld;

pub use label::Labels;
pub use node::{Node, ResourceVersion, Uid};
pub use position::Position;
pub use record::Record;
pub use record_key::{NodeName, RecordKey};
pub use restore::plan_restore;
pub use rules::Rules;
pub use shard::shard;
pub use store::plan_store;
