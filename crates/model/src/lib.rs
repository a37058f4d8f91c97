//! A model checker of the protocol: looks at every order in which things can happen, within bounds.
//!
//! The decisions are not modelled: they are those of `label_storage::plan_store` and `plan_restore`, asked for with what a
//! process knows in that moment. What is modelled is the world around them.
//!
//! ```text
//!   world     Nodes, records, the history of deletions, what each process remembers and has begun
//!     │
//!   model     what can happen next: persons, storers, restorers, the network
//!     ├─► protocol   the shipped functions, with or without one `Guard`
//!     └─► promise    what must not happen
//!   search    breadth first, so that what is found is the shortest way to it
//!   cases     what is looked at
//! ```
//!
//! `docs/model.md` says what is left out, and what was found.

pub mod cases;
pub mod guard;
mod model;
pub mod promise;
mod protocol;
pub mod search;
mod world;

pub use guard::Guard;
pub use model::{Config, Resume, Step, Who};
pub use promise::Property;
pub use search::{Counterexample, Report, search};
pub use world::{Left, World};
