//! Random histories of thousands of Nodes in bad weather, against an oracle.
//!
//! ```text
//!   people ──► kube-apiserver ◄── proxy (faults) ◄── fleet: storers and restorers, as processes
//!                   │                 ▲                ▲
//!                  etcd               └── weather ─────┘ kills, suspends, resizes; kills etcd and the API server
//!                   │
//!                 eyes: every write, in its order ──► oracle ─┬─ fate: of one Node ──► ledger ──► report
//!                       proxy: watches, and each 410 ─────────┘─ storers: how far they have come
//! ```
//!
//! Storms and calms alternate. In a storm people change, delete and re-create Nodes, and things go wrong; in a calm all has to become
//! right in time. The oracle checks every version of every Node and of every record, all the time.
//!
//! It does not ask the API server, nor believe what it is answered: it reads etcd's own history, which has no gaps and one order. What
//! it holds the daemons to is in `fate.rs`.
//!
//! What a seed says again: the rules of the daemons; what people do, in which order, to which Nodes, with which values; which storms there are, what strikes when, and whom,
//! of the replicas that are up; and which of the daemons' requests fail, by their number. What it does not: how all this interleaves, and
//! what depends on that. Whether a Node is there when its turn comes decides what is done to it, and requests come in the order in which they come.

mod eyes;
mod fate;
mod fleet;
pub mod ledger;
mod machine;
pub mod object;
mod oracle;
mod person;
pub mod report;
pub mod rules;
pub mod soak;
mod storers;
pub mod weather;

pub use report::Report;
pub use soak::{Settings, Stage, Status, run};
