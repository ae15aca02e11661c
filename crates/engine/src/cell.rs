//! A process of its own for each box of code: it builds the box ahead, waits for one task, puts it on
//! record, sees it to its end and is gone.
//!
//! The server that asks for it has threads and many callers; here is one thread that builds, one box
//! and one caller. The two speak in frames over a socket.

pub mod role;
mod text;
mod watch;
pub mod word;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::host::HOME_VARIABLE;

/// How the process is called, and what tells our program to be one.
pub const ROLE: &str = "belljar-cell";

/// Starts a cell. It ends when its line does.
pub fn start(home: &Path, worker: &OwnedFd) -> io::Result<(Child, UnixStream)> {
    let (line, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0(ROLE)
        .env(HOME_VARIABLE, home)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(worker.try_clone()?))
        .spawn()?;
    tracing::debug!(pid = child.id(), "cell started");
    Ok((child, line))
}

/// The worker in memory that nobody can change any more. All boxes share it.
pub fn worker() -> io::Result<OwnedFd> {
    belljar_box::embedded::sealed("belljar-worker", belljar_embedded::WORKER)
}
