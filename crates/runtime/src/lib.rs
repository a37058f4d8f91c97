//! What both daemons stand on.
//!
//! ```text
//!   main ── args, logging, client, preflight ──► ownership: which shards? ──► for each of them a replica
//!
//!   replica ──► engine: observe ─► decide ─► work ─┐
//!                  ▲                               │
//!                  └───────────────────────────────┘
//! ```
//!
//! - [`args`]: the flags that both share, and what follows from them and from the pod they run in; [`rules_file`]: what operators
//!   choose.
//! - [`client`]: a client without hidden retries; [`call`]: a time limit around each call, and what its failure means.
//! - [`source`]: lists and watches as streams; `observer`: the tasks that read them; `sweep`: when they do.
//! - [`engine`]: the loop; [`table`]: what is known of each Node; [`queue`]: which is next; [`limiter`]: how many at a
//!   time.
//! - [`ahead`]: waiting for what the watch is still to tell.
//! - [`nodes`] and [`records`]: one Node or record by name; [`patch`]: what is sent to change a Node. Writing is each daemon's own.
//! - `ownership`: which shards this process works on; [`lease`]: who else does; `tenure`: for how long it may; `stateful_set`: how many
//!   shards there are.
//! - `position`: how far the work on a shard has come.
//! - [`server_clock`]: the time of day, as the API server has it.
//! - [`metrics`]: what is counted; `health`: whether all loops turn; `admin`: where that is asked; `requests`: counts calls.
//! - [`recorder`]: Kubernetes Events about Nodes.
//! - [`preflight`]: what would not work anyway is said before the first list.
//! - [`pace`]: pauses; [`shutdown`]: the first signal finishes what is in flight, the second does not.

mod admin;
pub mod api_source;
pub mod args;
pub mod backoff;
pub mod cache;
pub mod call;
pub mod client;
mod daemon;
pub mod engine;
mod health;
mod informer;
pub mod lease;
pub mod limiter;
mod list_watch;
pub mod logging;
pub mod metrics;
pub mod nodes;
mod ownership;
pub mod patch;
mod position;
pub mod preflight;
pub mod projection;
pub mod reconciler;
pub mod record_key;
pub mod recorder;
pub mod records;
mod replica;
mod requests;
pub mod rules_file;
pub mod server_clock;
pub mod shutdown;
mod stateful_set;
mod tenure;
#[cfg(feature = "testing")]
pub mod testing;
pub mod watch_lag;
pub mod work_queue;

pub use daemon::{Daemon, main};
pub use replica::Replica;
