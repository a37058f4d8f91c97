//! A private control plane: a real etcd and a real kube-apiserver, on loopback, gone when its owner is.
//!
//! ```text
//!   assets    where the binaries are: KUBEBUILDER_ASSETS, or the cache, or ...
//!     ├─ binary        the programs that there are
//!     ├─ go_build      ... built with Go into the cache, once
//!     ├─ modules       from what: the control plane, helm, Prometheus
//!     └─ kubernetes    or from another version of Kubernetes
//!   control_plane    starts them, waits until they serve, stops them in order
//!     ├─ credentials    the service account key, the admin's token, kubeconfig files
//!     └─ ready          asks the API server whether it serves
//!   etcd       what only etcd can be asked
//!   prometheus    a Prometheus that scrapes what it is told to
//!     └─ dashboard    what a Grafana dashboard would ask it
//!   process    runs each under a guard, so that nothing outlives the owner
//!   itself     this program once more, as a daemon
//!   progress   how far a long step is, for a terminal and for a log
//!   shell      lines to paste into a shell
//! ```
//!
//! ```no_run
//! let sandbox = sandbox::Sandbox::start(sandbox::Options::default())?;
//! println!("export KUBECONFIG={}", sandbox.kubeconfig().display());
//! # Ok::<(), sandbox::Error>(())
//! ```
//!
//! Steps that take long say so on stderr; nothing is ever written to stdout.

pub mod assets;
mod binary;
mod control_plane;
mod credentials;
pub mod dashboard;
pub mod etcd;
pub mod go_build;
pub mod itself;
pub mod kubernetes;
mod modules;
pub mod process;
pub mod progress;
pub mod prometheus;
mod ready;
pub mod shell;

pub use control_plane::{Error, Options, Sandbox};
pub use ready::client_config;
