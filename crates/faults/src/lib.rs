//! A proxy between a daemon and a real API server. It fails on demand, in the ways in which API servers, networks and load
//! balancers really fail.
//!
//! ```text
//!   daemon ── http ──► Proxy ── https ──► kube-apiserver
//!                        │
//!                        └─ Script: Request ─► Fault      (None: the request is passed on as it is)
//! ```
//!
//! The proxy writes a kubeconfig for its clients. Credentials are passed on to the real server. Fake answers have the format that was
//! requested: a list that lacks a third of its items is a valid list, and an error has a `Status`.
//!
//! - [`Fault`] is the fault of one request, [`Class`] the class in which it is counted.
//! - [`Script`] decides for each request. A closure is a script; [`Seeded`] draws faults at random.

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
