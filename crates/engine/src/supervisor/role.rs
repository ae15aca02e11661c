//! The main function of a supervisor: greet the client, read what to prepare, and supervise that box.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_sys::signal::{SUPERVISOR_SIGNALS, SignalFd};

use super::connection::{self, receive, receive_descriptors, send};
use super::protocol::{Hello, ToSupervisor};
use super::spec::Prepare;
use super::{named_box, program, tool_server};
use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::notice::Observer;
use crate::scope::{EngineConfig, Scoped};

/// Runs as a supervisor. Descriptor 0 is the connection to the process that started it.
pub fn main(host: HostEnv, clock: Clock, observer: Arc<dyn Observer>) -> Result<(), EngineError> {
    // A terminal that the starting process has must not send signals to the box.
    rustix::process::setsid().ok(); // fails only for the leader of a group, which has its own session
    let connection = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    let connection = connection.context("cannot find the connection").kind(ErrorKind::Broken)?;
    let connection = UnixStream::from(connection);
    let supervised = supervise(&connection, host, clock, observer);
    supervised.inspect_err(|error| {
        send(&connection, &connection::failure(error)).ok(); // the client may be gone
    })
}

fn supervise(
    connection: &UnixStream,
    host: HostEnv,
    clock: Clock,
    observer: Arc<dyn Observer>,
) -> Result<(), EngineError> {
    let hello = send(connection, &Hello::of_supervisor()).and_then(|()| receive(connection));
    let hello: Option<Hello> = hello.context("cannot greet the client").kind(ErrorKind::Broken)?;
    let Some(hello) = hello else { return Ok(()) };
    connection::check("the client", &hello)?;
    let caller = hello.caller.ok_or_else(|| invalid("the client names no caller"))?;
    // Blocked before there are threads: the supervising thread reads these signals.
    let _signals = SignalFd::new(&SUPERVISOR_SIGNALS)
        .context("cannot watch for signals")
        .kind(ErrorKind::CannotStart)?;
    let home = host.state_dir()?;
    let engine = EngineConfig { home, config_file: None, host };
    let state = Scoped::open(engine, clock, observer, caller)?;
    let request = receive(connection).context("cannot read what to prepare");
    let prepare = match request.kind(ErrorKind::Broken)? {
        Some(ToSupervisor::Prepare(prepare)) => *prepare,
        Some(other) => {
            return Err(invalid(format!("expected `prepare`, received `{}`", other.name())));
        }
        None => return Ok(()),
    };
    match prepare {
        Prepare::NamedBox { name } => named_box::supervise(&state, connection, &name),
        Prepare::Program(of) => {
            let [worker] = descriptors(connection)?;
            program::supervise(&state, connection, of, worker)
        }
        Prepare::ToolServer(of) => {
            let streams = descriptors(connection)?;
            tool_server::supervise(&state, connection, of, streams)
        }
    }
}

/// The descriptors that follow a request to prepare.
fn descriptors<const N: usize>(
    connection: &UnixStream,
) -> Result<[std::os::fd::OwnedFd; N], EngineError> {
    let received = receive_descriptors(connection).context("cannot receive descriptors");
    let received = received.kind(ErrorKind::Broken)?;
    let count = received.len();
    let list: Result<[_; N], _> = received.try_into();
    list.map_err(|_| invalid(format!("expected {N} descriptors, received {count}")))
}
