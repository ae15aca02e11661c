//! Operations on named boxes: create, start, pause, stop, copy, reset, remove and restore them.

mod copies;
mod create;
pub mod execs;
pub mod files;
pub mod gc;
pub mod index;
mod lifecycle;
pub mod log;
mod network;
mod reload;
mod restore;
pub mod snapshot;
mod status;
pub mod transfer;
pub mod unapplied;

pub use copies::{Reset, fork, reset};
pub use create::{clone_again, create};
pub use lifecycle::{Stopped, pause, remove, resume, start, stop};
pub use network::change_network;
pub use reload::{Reloaded, reload_rules};
pub use restore::{Restored, find as find_in_trash, restore};
pub use status::{BoxStatus, maker, status};
