//! What both daemons stand on.
//!
//! ```text
//!   main ── args, logging, client, preflight ──► run: ┌─► observe ─► plan ─► apply ─┐
//!                                                     └────────── pace ◄────────────┘
//! ```
//!
//! - [`args`]: the flags that both share, and what follows from them and from the pod they run in.
//! - [`client`]: a client without hidden retries; [`call`]: a time limit around each call, and what its failure means.
//! - [`nodes`] and [`records`]: reading the cluster. Writing is each daemon's own.
//! - [`preflight`]: what would not work anyway is said before the first pass.
//! - [`pass`]: the loop, one look at the cluster at a time; [`pace`]: when the next one is due, and which nodes wait longer.
//! - [`shutdown`]: the first signal finishes what is in flight, the second does not.

pub mod args;
pub mod call;
pub mod client;
mod daemon;
pub mod logging;
pub mod nodes;
pub mod pace;
pub mod pass;
pub mod preflight;
pub mod records;
pub mod shutdown;

pub use daemon::{Daemon, main};
