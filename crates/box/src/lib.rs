//! Runs a program in a box: builds the box from a template, supervises the program, reports its end.
//!
//! ```text
//! Request ──prepare──▶ Plan ──start──▶ init in new namespaces ──Go──▶ payload ──▶ BoxEnd
//! ```
//! The program is hostile. Its output is never parsed, only counted and copied. This crate prints nothing
//! and reads no environment variables.

#![forbid(unsafe_code)]

pub mod doctor;
pub mod embedded;
pub mod view;

mod activity;
mod cgroup;
mod disk;
mod exec;
mod flow;
mod git;
mod held;
mod hint;
mod image;
mod janitor;
mod job;
mod listeners;
mod meter;
mod prepare;
mod privilege;
mod processes;
mod request;
mod seccomp;
mod sockets;
mod standin;
mod start;
mod supervise;
mod trust;
mod verdict;

pub use disk::{DiskCounter, DiskLimiter, DiskUse};
pub use exec::{ExecChannel, ExecEnd, ExecError, ExecProcess, ExecStreams, Paused, Program};
pub use flow::{OutputFilter, Stream};
pub use image::{ImageError, LayerImage};
pub use listeners::Sockets;
pub use prepare::{PrepareError, open};
pub use privilege::{Ids, Privilege};
pub use request::{
    DataMount, HomeMount, LayerSync, MAX_FILES, Mask, MaskKind, NetRequest, OverlayLayers, Request,
    Trust, Workspace,
};
pub use seccomp::{broker_filter, screen_filter};
pub use start::{BuiltBox, StartError, start};
pub use supervise::{SuperviseError, Supervision, Teardown};
pub use verdict::BoxEnd;
