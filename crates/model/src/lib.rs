//! A model checker of the protocol: it searches every order of events, within bounds.
//!
//! The decisions are not modelled: the shipped functions of `label_storage` make them, with the knowledge that a
//! process has in that moment. The world around them is modelled.
//!
//! ```text
//!   world     Nodes, records, the history of deletions, the memory and the job of each process
//!     │
//!   model     the next steps: of persons, storers, restorers, the network
//!     ├─► protocol   the shipped functions, with or without one `Guard`
//!     └─► promise    the promises, and their checks
//!   search    breadth first, so that a counterexample is a shortest one
//!   cases     the bounds of each search
//! ```
//!
//! `docs/model.md` lists the parts that are left out.

pub mod cases;
pub mod guard;
mod model;
pub mod promise;
mod protocol;
pub mod search;
mod world;

pub use guard::Guard;
pub use model::{Config, RestorerWatch, Resume, Step, Who};
pub use promise::Property;
pub use search::{Counterexample, Report, search};
pub use world::{Left, World};
