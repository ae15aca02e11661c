//! The host of one run of a program that a server requests. It runs the program as `belljar run` does, and
//! keeps the output in the directory of the run.
//!
//! The host is detached: the run goes on without its client. The client that starts the host gets `Ready` when
//! the run is recorded, and `RunEnded` as soon as the result is stored. Every other client reads the files of
//! the run; see [`find`] and [`output`].

mod client;
mod files;

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context as _;
use belljar_box::Stream;
use belljar_model::spec::RunSpec;
use belljar_model::{RunId, RunResult};
use serde::{Deserialize, Serialize};

use super::connection::{failure, send};
use super::protocol::FromSupervisor;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::Streams;
use crate::run::{self, RunOptions};
use crate::scope::Scoped;

pub use client::start;
use files::OutputFiles;
pub use files::{FoundRun, KEPT_OUTPUT, KeptOutput, find, output};

/// The notices of the host, in the directory of the run.
const LOG: &str = "host.log";

/// One run of a program. The id is one of [`Scoped::new_id`], which is used once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleRun {
    pub id: (RunId, u32),
    pub spec: RunSpec,
}

/// Runs a program whose standard input is `input`, until it ends.
pub(super) fn supervise(
    state: &Scoped,
    connection: &UnixStream,
    SingleRun { id, spec }: SingleRun,
    input: &OwnedFd,
) -> Result<(), EngineError> {
    let options = RunOptions { current_dir: state.home().to_owned() };
    let started = run::start_as(state, id, &spec, &options)?;
    let prepared = prepare(state, started.dir());
    let (mut output, null) = match prepared.kind(ErrorKind::CannotStart) {
        Ok(prepared) => prepared,
        Err(failure) => {
            started.abandon(state, &failure);
            return Err(failure);
        }
    };
    let ready = FromSupervisor::Ready { run: id.0, remarks: Vec::new() };
    send(connection, &ready).ok(); // the run goes on without its client
    let mut filter = |stream: Stream, chunk: &[u8], _: &mut Vec<u8>| output.write(stream, chunk);
    let streams = Streams {
        input: input.as_fd(),
        output: null.as_fd(),
        error: null.as_fd(),
        filter: &mut filter,
        stop: None,
    };
    let report = |result: &RunResult, recorded: Result<(), &EngineError>| {
        let message = match recorded {
            Ok(()) => FromSupervisor::RunEnded(Box::new(result.clone())),
            Err(error) => failure(error),
        };
        send(connection, &message).ok(); // the result is stored
        connection.shutdown(Shutdown::Both).ok(); // the client does not wait for the end of the box
    };
    started.supervise_then(state, streams, || (), report).map(drop)
}

/// Creates the files of the run before its program starts. Returns them with a descriptor that discards output.
fn prepare(state: &Scoped, dir: &Path) -> anyhow::Result<(OutputFiles, File)> {
    let output = OutputFiles::create(dir, &state.caller().principal)
        .context("cannot create the files for the output of the program")?;
    let log = File::create(dir.join(LOG)).context("cannot create the log of the run")?;
    rustix::stdio::dup2_stderr(&log).context("cannot write the log of the run")?;
    let null = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    Ok((output, null))
}
