//! Supervisors: one host process for each box that does not run inside of the requesting command.
//!
//! ```text
//!                   Prepare                Start                 program ends
//! process started ──────────▶ Prepared ──────────▶ Recorded, Running ──────────▶ Ended
//!                                │ named boxes and tool servers start at once        │
//!                                └ the worker of a program waits for its task        └ process exits
//! ```
//! A supervisor is *owned* or *detached*. An owned supervisor has one client, which is connected by a
//! socket pair. It exits when the client closes the connection. A detached supervisor watches a named
//! box or hosts one attempt of a task; see [`task_run`]. It runs in its own process session, and
//! clients connect to the socket in the directory of the box or run. The host of a run that a server requests
//! is detached too, but has no socket; see [`single_run`].
//!
//! Every supervisor uses the messages of [`protocol`]. A supervisor has no terminal and no secret.
//! `belljar run` and the clone reader start no supervisor: they call [`crate::launch`] in their own
//! process.

pub mod asynchronous;
mod build;
pub mod client;
mod connection;
mod exec;
pub mod exec_protocol;
mod forwards;
mod health;
mod kept_execs;
mod legacy;
mod listener;
mod live_rules;
mod named_box;
mod output_log;
mod pauses;
mod program;
pub mod protocol;
pub mod role;
mod session;
pub mod setup;
pub mod single_run;
pub mod spec;
pub mod task_run;
mod text_decoder;
mod tool_server;
mod viewers;
mod worker_reader;

use std::io;
use std::os::fd::OwnedFd;

pub use client::{OfNamedBoxes, Starting, ask, call, spawn, start};
pub(crate) use client::{connect as connect_socket, spawn_driver};
pub use connection::{encode, receive, receive_descriptors, send};
pub(crate) use listener::{bind as bind_socket, is_own_user};

/// The name of a supervisor process. Belljar acts as a supervisor when `argv[0]` is this name.
pub const ROLE: &str = "belljar-supervisor";

/// Returns a descriptor of the helper for files in a sealed memory file. See [`belljar_init::files`].
fn files_program() -> io::Result<OwnedFd> {
    belljar_box::embedded::sealed(belljar_init::files::ROLE, belljar_embedded::INIT)
}

/// Returns a descriptor of the worker program in a sealed memory file. All boxes of this process share
/// the file.
pub fn worker_program() -> io::Result<OwnedFd> {
    belljar_box::embedded::sealed("belljar-worker", belljar_embedded::WORKER)
}
