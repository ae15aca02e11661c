//! Starts the host of a run.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use anyhow::Context as _;
use rustix::fs::MemfdFlags;

use super::SingleRun;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::supervisor::client::{reap, spawn};
use crate::supervisor::spec::Prepare;

/// Starts the host of a run, which goes on after this process exits. `input` is the standard input of the
/// program. Returns the connection on which the host reports the start and the end of the run.
pub fn start(state: &Scoped, run: SingleRun, input: &[u8]) -> Result<UnixStream, EngineError> {
    let started = || -> io::Result<UnixStream> {
        let input = input_file(input)?;
        let prepare = Prepare::SingleRun(Box::new(run));
        let (host, connection) = spawn(state, prepare, &[input.as_fd()], Stdio::null())?;
        reap(host);
        Ok(connection)
    };
    started().context("cannot start the host of the run").kind(ErrorKind::CannotStart)
}

/// Returns a file in memory with this content, at its start.
fn input_file(content: &[u8]) -> io::Result<File> {
    let file = rustix::fs::memfd_create("belljar-input", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}
