//! Supervisors: one process for each box that runs outside of the command that asked for it.
//!
//! ```text
//!                   Prepare                Start                 program ends
//! process started ──────────▶ Prepared ──────────▶ Recorded, Running ──────────▶ Ended
//!                                │ named boxes and tool servers start at once        │
//!                                └ the worker of a program waits for its task        └ process exits
//! ```
//! A supervisor is *owned* or *detached*. An owned one has one client, over the socket pair that it was
//! started with, and ends when that connection does. A detached one supervises a named box: it is in a
//! session of its own, and clients connect to the socket in the directory of the box.
//!
//! All of them speak the protocol of [`protocol`]. A supervisor has no terminal and no secret.
//! `belljar run` and the reader of clones need no such process: they call [`crate::launch`] themselves.

pub mod asynchronous;
mod build;
pub mod client;
mod connection;
mod exec;
mod health;
mod legacy;
mod listener;
mod live_rules;
mod named_box;
mod output_log;
mod program;
pub mod protocol;
pub mod role;
mod session;
pub mod setup;
pub mod spec;
mod text;
mod tool_server;
mod viewers;
mod worker_reader;

use std::io;
use std::os::fd::OwnedFd;

pub use client::{Starting, approvals, ask, call, spawn, start};
pub use connection::{encode, receive, receive_descriptors, send};

/// The name of the process, and the first argument that makes our program a supervisor.
pub const ROLE: &str = "belljar-supervisor";

/// The program of the worker, in memory that nothing can change. All boxes of a process share it.
pub fn worker_program() -> io::Result<OwnedFd> {
    belljar_box::embedded::sealed("belljar-worker", belljar_embedded::WORKER)
}
