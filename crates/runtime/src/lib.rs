//! The runtime that both daemons share.
//!
//! ```text
//!   main ── args, rules_file, logging, client, preflight ──► shard_manager: which shards? ──► one engine for each
//!
//!   engine: informers ─► cache ─► decide ─► work_queue ─► attempt ─┐
//!                          ▲                                       │
//!                          └───────────── the answer ──────────────┘
//! ```
//!
//! - Start: [`args`], [`rules_file`], [`logging`], [`client`], [`preflight`] (permissions), [`shutdown`].
//! - Reading: [`api_source`] (lists and watches as streams), `list_watch` (the tasks), `informer` (when to list and watch), [`projection`]
//!   (what is read of a Node), [`records`].
//! - The loop: [`engine`], [`cache`], [`record_key`], [`reconciler`] (the daemon's side of the loop), [`work_queue`], [`limiter`], [`watch_lag`].
//! - Calls: [`call`] (time limits, and kinds of failure), [`backoff`], [`patch`] (the body of a Node patch).
//! - Shards: `shard_manager`, [`lease`], `stateful_set` (the number of shards), `position` (where to resume), `shard_context`.
//! - Observability: [`metrics`], `requests`, `health`, `admin`, [`recorder`] (Events), [`server_clock`].

mod admin;
pub mod api_source;
pub mod args;
pub mod backoff;
pub mod cache;
pub mod call;
pub mod client;
mod daemon;
pub mod engine;
#[cfg(feature = "testing")]
pub mod fixtures;
mod health;
mod informer;
pub mod lease;
pub mod limiter;
mod list_watch;
pub mod logging;
pub mod metrics;
pub mod patch;
mod position;
pub mod preflight;
pub mod projection;
pub mod reconciler;
pub mod record_key;
pub mod recorder;
pub mod records;
mod requests;
pub mod rules_file;
pub mod server_clock;
mod shard_context;
mod shard_manager;
pub mod shutdown;
mod stateful_set;
pub mod work_queue;

pub use daemon::{Daemon, main};
pub use shard_context::ShardContext;
