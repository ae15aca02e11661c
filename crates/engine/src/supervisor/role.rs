//! The main function of a supervisor process. It reads the request of its client, prepares the box and
//! supervises it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_sys::signal::{SUPERVISOR_SIGNALS, SignalFd};

use super::connection::{self, receive, receive_descriptors, send};
use super::protocol::{Hello, ToSupervisor};
use super::spec::Prepare;
use super::{named_box, program, single_run, task_run, tool_server};
use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::notice::Observer;
use crate::scope::{EngineConfig, Scoped};

/// Runs this process as a supervisor. Descriptor 0 is the connection to the client that started the
/// process.
pub fn main(host: HostEnv, clock: Clock, observer: Arc<dyn Observer>) -> Result<(), EngineError> {
    // The terminal of the client must not send signals to the box.
    rustix::process::setsid().ok(); // fails only for a process group leader, which has its own session
    let connection = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    let connection =
        connection.context("cannot use standard input as a connection").kind(ErrorKind::Broken)?;
    let connection = UnixStream::from(connection);
    let supervised = supervise(&connection, host, clock, observer);
    supervised.inspect_err(|error| {
        send(&connection, &connection::failure(error)).ok(); // the client may have exited
    })
}

fn supervise(
    connection: &UnixStream,
    host: HostEnv,
    clock: Clock,
    observer: Arc<dyn Observer>,
) -> Result<(), EngineError> {
    // The client of a task may have exited. Its request is already in the socket.
    send(connection, &Hello::of_supervisor()).ok();
    let hello: Option<Hello> = receive(connection)
        .context("cannot receive the version of the client")
        .kind(ErrorKind::Broken)?;
    let Some(hello) = hello else { return Ok(()) };
    connection::check_protocol("the client", &hello)?;
    let config_file = hello.operator_file();
    let caller =
        hello.caller.ok_or_else(|| invalid("the first message of the client names no caller"))?;
    // Signals are blocked before other threads start, since the supervising thread reads them.
    let _signals = SignalFd::new(&SUPERVISOR_SIGNALS)
        .context("cannot create a descriptor for signals")
        .kind(ErrorKind::CannotStart)?;
    let home = host.state_dir()?;
    let engine = EngineConfig { home, config_file, host };
    let state = Scoped::open(engine, clock, observer, caller)?;
    let request = receive(connection).context("cannot read the request to prepare a box");
    let prepare = match request.kind(ErrorKind::Broken)? {
        Some(ToSupervisor::Prepare(prepare)) => *prepare,
        Some(other) => {
            let text = format!("expected the request `prepare`, received `{}`", other.name());
            return Err(invalid(text));
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
        Prepare::TaskRun(spec) => {
            let received = receive_descriptors(connection);
            let received = received.context("cannot receive the descriptors of the task");
            task_run::supervise(&state, *spec, received.kind(ErrorKind::Broken)?)
        }
        Prepare::SingleRun(run) => {
            let [input] = descriptors(connection)?;
            single_run::supervise(&state, connection, *run, &input)
        }
    }
}

/// Receives the `N` file descriptors that follow a request to prepare a box.
fn descriptors<const N: usize>(
    connection: &UnixStream,
) -> Result<[std::os::fd::OwnedFd; N], EngineError> {
    let received =
        receive_descriptors(connection).context("cannot receive the descriptors of the box");
    let received = received.kind(ErrorKind::Broken)?;
    let count = received.len();
    let list: Result<[_; N], _> = received.try_into();
    list.map_err(|_| invalid(format!("expected {N} file descriptors, received {count}")))
}
