//! Secrets: sealed on disk, and in a request only where and when they may be.

mod private;
pub mod sealed;
pub mod store;
mod value;

pub use private::NotPrivate;
pub use value::{MAX_VALUE, MIN_VALUE, Value, ValueError};
