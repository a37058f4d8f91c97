//! A private control plane: a real etcd and kube-apiserver on loopback, which end with the process that started them.
//!
//! ```text
//!   assets    finds the binaries: in KUBEBUILDER_ASSETS, or in the cache
//!     ├─ binary        the programs
//!     ├─ go_build      builds them with Go into the cache, once
//!     ├─ modules       the Go modules: the control plane, helm, Prometheus
//!     └─ kubernetes    other versions of Kubernetes
//!   control_plane    starts the parts, waits until they are ready, stops them in order
//!     ├─ credentials    the service account key, the admin's token, kubeconfig files
//!     └─ ready          checks that the API server is ready
//!   etcd       a client of etcd
//!   prometheus    a Prometheus that scrapes given targets
//!     └─ dashboard    the queries of a Grafana dashboard
//!   process    runs each program under a guard, so that it ends with its owner
//!   itself     starts this program again, as a daemon
//!   progress   the progress of a long step, on a terminal or in a log
//!   shell      lines to paste into a shell
//! ```
//!
//! ```no_run
//! let sandbox = sandbox::Sandbox::start(sandbox::Options::default())?;
//! println!("export KUBECONFIG={}", sandbox.kubeconfig().display());
//! # Ok::<(), sandbox::Error>(())
//! ```
//!
//! Long steps print lines on stderr. Nothing is written to stdout.

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
