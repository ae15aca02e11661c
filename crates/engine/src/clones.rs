//! Private clones of the user's git repository, one per box, and the import of the box's commits.
//!
//! ```text
//! find_source ──▶ Source ──clone──▶ boxes/NAME/repo   the user's objects, not the user's configuration
//! boxes/NAME/repo ──git in a sealed box──▶ pack ──checked on the host──▶ Work
//! Work ──save_work──▶ refs/belljar/work/NAME ──branch──▶ refs/heads/…
//! Work ──save_work_at──▶ refs/belljar/RUN/TASK
//! ```
//! **Invariant:** git never runs on the host in a repository that a box could write to. A git process in
//! a sealed box reads such a repository. Its output is untrusted: the host checks every object before it
//! reaches the user's repository. In the user's own repository git runs with a configuration that Belljar
//! wrote, see `view`, so it never starts a hook, filter, helper or file system monitor.

mod branch;
mod changes;
mod clone;
mod git;
mod incoming;
mod layout;
mod reader;
mod source;
mod update;
mod view;
mod work;

pub use branch::{branch, default_branch};
pub use changes::{FileChange, FileChangeKind};
pub use clone::{CloneSpec, Cloned, clone};
pub(crate) use clone::{ResolvedBase, clone_at, resolve_base};
pub use source::{Source, find_source, identity};
pub(crate) use source::{SourceOption, find_source_for};
pub use update::{BranchUpdate, UpdateSize};
pub(crate) use work::move_reference;
pub use work::{Commit, DiffStat, DiffStyle, Work, diff, read_work, save_work, save_work_at, stat};

#[cfg(test)]
mod tests;
