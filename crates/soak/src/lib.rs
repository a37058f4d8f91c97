//! Random histories of thousands of Nodes under faults, checked by an oracle.
//!
//! ```text
//!   people ──► kube-apiserver ◄── proxy (faults) ◄── fleet: storers and restorers, as processes
//!                   │                 ▲                ▲
//!                  etcd               └── weather ─────┘ kills, suspends, resizes; kills etcd and the API server
//!                   │
//!                 eyes: every write, in order ──────► oracle ─┬─ fate: of one Node ──► ledger ──► report
//!                       proxy: watches, and each 410 ─────────┘─ storers: their positions
//! ```
//!
//! Storms and calms alternate. In a storm, people change, delete and re-create Nodes while faults occur. In a calm, there are no faults, and
//! all Nodes and records must reach the expected state in time. The oracle checks every version of every Node and record, all the time.
//!
//! The oracle does not use the API server: it reads etcd's own history, which has no gaps and one order. `fate.rs` has the expected
//! behaviour of the daemons.
//!
//! A seed repeats the rules of the daemons, the acts of people with their order, Nodes and values, the storms and their blows, and the
//! numbers of the requests that fail. It does not repeat the interleaving, nor its consequences: an act depends on whether its Node exists at
//! that moment, and the order of requests differs.

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
mod settings;
pub mod soak;
mod storers;
pub mod weather;

pub use report::Report;
pub use settings::Settings;
pub use soak::{Stage, Status, run};
