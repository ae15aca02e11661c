//! Operations on named boxes: create, start, stop, copy, reset, remove and restore them.

mod copies;
mod create;
pub mod gc;
mod lifecycle;
mod network;
mod restore;
pub mod snapshot;
pub mod transfer;
pub mod unapplied;

pub use copies::{Reset, fork, reset};
pub use create::{clone_again, create};
pub use lifecycle::{Stopped, remove, start, stop};
pub use network::change_network;
pub use restore::{Restored, find as find_in_trash, restore};
