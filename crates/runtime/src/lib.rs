//! The runtime that both daemons share. `ARCHITECTURE.md` describes the [loop](engine) and its modules.

mod admin;
pub mod api_source;
pub mod args;
pub mod backoff;
mod boot_time;
pub mod cache;
pub mod call;
pub mod client;
mod daemon;
pub mod engine;
#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
pub mod fresh;
mod health;
mod informer;
pub mod lease;
mod limiter;
mod list_watch;
pub mod logging;
pub mod metrics;
pub mod patch;
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
mod work_queue;

pub use daemon::{Daemon, main};
pub use shard_context::ShardContext;
