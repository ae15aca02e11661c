//! Private clones of the user's repository, one per box, and the way back: objects on a ref.
//!
//! ```text
//! look ──▶ Source ──clone──▶ boxes/NAME/repo      the user's objects, none of the user's configuration
//! boxes/NAME/repo ──git in a sealed box──▶ pack ──checked on the host──▶ Work
//! Work ──keep──▶ refs/belljar/work/NAME ──branch──▶ refs/heads/…
//! ```
//! **Invariant:** git never runs on the host in a repository that a box could write to. What is in one
//! is read by a git in a sealed box, and what that says is a stream of bytes from a stranger: every
//! object is checked before it reaches the user's repository. In the user's own repository no hook,
//! filter, helper or monitor is ever started.

mod branch;
mod changes;
mod clone;
mod git;
mod incoming;
mod reader;
mod source;
mod work;

pub use branch::{branch, default_branch};
pub use changes::FileChange;
pub use clone::{CloneSpec, Cloned, clone};
pub use source::{Source, identity, look};
pub use work::{Commit, DiffStyle, Work, diff, has_work, keep};

#[cfg(test)]
mod tests;
