//! A proxy between a daemon and a real API server that fails on demand, in the ways that API servers, and what lies
//! between them and their clients, really do.
//!
//! ```text
//!   daemon ── http ──► Proxy ── https ──► kube-apiserver
//!                        │
//!                        └─ Script: Request ─► Fault      (None: the request is passed on as it is)
//! ```
//!
//! A daemon is sent through it by the kubeconfig that it writes; who the daemon is, is between the daemon and the real
//! server. What the proxy makes up looks like the real thing, in the format that was asked for: a list that lacks a third
//! of its items is a right list, a refusal has a `Status`.
//!
//! - [`Fault`] is what can happen, [`Class`] what it is counted as.
//! - [`Script`] decides, request by request. A closure is one; [`Seeded`] is one that draws at random.

mod edit;
mod exchange;
mod fault;
mod proxy;
mod recordings;
mod request;
mod script;

pub use exchange::Watched;
pub use fault::{Class, Fault};
pub use proxy::Proxy;
pub use request::{Request, Verb};
pub use script::{Script, Seeded};
