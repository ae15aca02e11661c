//! Runs a program in a box: template in, confined process out, and an account of how it ended.
//!
//! ```text
//! Request ──prepare──▶ Plan ──start──▶ init in new namespaces ──Go──▶ payload ──▶ Finished
//! ```
//! Runs hostile things and never parses what they say: output is bytes that are counted and passed
//! on. It prints nothing and reads no environment.

#![forbid(unsafe_code)]

pub mod doctor;
pub mod embedded;
pub mod view;

mod cgroup;
mod disk;
mod door;
mod flow;
mod git;
mod hint;
mod janitor;
mod listeners;
mod prepare;
mod processes;
mod request;
mod seccomp;
mod sockets;
mod standin;
mod standing;
mod start;
mod supervise;
mod trust;
mod verdict;

pub use disk::{Count, DiskUse};
pub use door::{Door, Ends, ExecError, Guest, GuestEnded, Paused, Program};
pub use flow::{Guard, Stream};
pub use listeners::Sockets;
pub use prepare::{PrepareError, open};
pub use request::{Kept, MAX_FILES, Mask, MaskKind, NetRequest, Request, Trust, Workspace};
pub use seccomp::{broker_filter, screen_filter};
pub use standing::{Ids, Standing};
pub use start::{Running, StartError, start};
pub use supervise::{Remains, SuperviseError, Supervision};
pub use verdict::Finished;
