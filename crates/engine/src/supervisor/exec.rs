//! Runs additional programs in a named box or in the box of an agent task, for `belljar exec`.
//!
//! The client receives the descriptors of the program's streams. The bytes of these streams do not pass
//! through the supervisor, which only reports the end of the program.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_box::{ExecChannel, ExecEnd, ExecError, ExecProcess, ExecStreams, Program};
use belljar_ledger::{Body, BoxExec, Receipt};
use belljar_model::boxes::BoxName;
use belljar_model::{Caller, RunId};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};

use super::connection::{receive_small, send, send_descriptors};
use super::files_program;
use super::pauses::Pauses;
use super::protocol::{ExecSpec, FromSupervisor, ToSupervisor};
use crate::box_store::boxes_dir;
use crate::error::{EngineError, ErrorKind};
use crate::record;
use crate::scope::Scoped;

const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The maximum number of additional programs that run in a box at once. It is lower than the maximum
/// number of clients, so that other requests are still served.
const MAX_PROGRAMS: usize = 24;
/// The time that an additional program has to end after its client disconnected, before it is killed.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// A box that can start additional programs.
#[derive(Debug)]
pub(super) struct ExecTarget {
    pub(super) name: BoxName,
    pub(super) run: RunId,
    pub(super) scoped: Scoped,
    channel: Option<ExecChannel>,
    /// A shared value whose reference count is one more than the number of running additional programs.
    programs: Arc<()>,
    pub(super) pauses: Pauses,
}

impl ExecTarget {
    pub(super) fn new(
        scoped: Scoped,
        name: BoxName,
        run: RunId,
        channel: Option<ExecChannel>,
    ) -> Self {
        let (programs, pauses) = (Arc::default(), Pauses::default());
        Self { name, run, scoped, channel, programs, pauses }
    }

    pub(super) const fn channel(&self) -> Option<&ExecChannel> {
        self.channel.as_ref()
    }

    /// Returns a permit for one additional program, or `None` if too many programs are running. The program
    /// counts until the permit is dropped.
    fn permit(&self) -> Option<Arc<()>> {
        let permit = Arc::clone(&self.programs);
        (Arc::strong_count(&permit) <= MAX_PROGRAMS + 1).then_some(permit)
    }

    /// Returns the directory of the named box.
    pub(super) fn dir(&self) -> PathBuf {
        boxes_dir(&self.scoped).join(self.name.as_str())
    }

    /// Returns the response to a request to start a program while the box is paused.
    pub(super) fn paused(&self) -> FromSupervisor {
        let message = format!("box {} is paused; resume it first", self.name);
        FromSupervisor::Failed { kind: ErrorKind::WrongState, message }
    }

    /// Returns the response to a request that the box cannot carry out, with the name of the box and the
    /// reason.
    pub(super) fn refused(&self, why: &str) -> FromSupervisor {
        let message = format!("box {}: {why}", self.name);
        FromSupervisor::Failed { kind: ErrorKind::Invalid, message }
    }
}

/// Starts a program in the box for a client, and waits until the program ends or the client disconnects.
pub(super) fn run(
    client: &UnixStream,
    target: &ExecTarget,
    caller: &Caller,
    spec: ExecSpec,
) -> io::Result<()> {
    run_program(client, target, caller, (spec, None))
}

/// Starts the helper for files in the box for a client, and waits until it ends or the client disconnects.
pub(super) fn run_files(
    client: &UnixStream,
    target: &ExecTarget,
    caller: &Caller,
    arguments: Vec<Vec<u8>>,
) -> io::Result<()> {
    let file = files_program()?;
    let role = belljar_init::files::ROLE.as_bytes().to_vec();
    let spec = ExecSpec {
        argv: std::iter::once(role).chain(arguments).collect(),
        env: Vec::new(),
        // The directory of the main program can be gone.
        workdir: Some(b"/".to_vec()),
        terminal: None,
    };
    run_program(client, target, caller, (spec, Some(Arc::new(file))))
}

fn run_program(
    client: &UnixStream,
    target: &ExecTarget,
    caller: &Caller,
    program: (ExecSpec, Option<Arc<OwnedFd>>),
) -> io::Result<()> {
    client.set_read_timeout(None)?;
    let Some(_permit) = target.permit() else {
        let why = format!(
            "cannot start another program: {MAX_PROGRAMS} programs of `belljar exec` are running in the box; wait until one ends"
        );
        return send(client, &target.refused(&why));
    };
    let uid = rustix::net::sockopt::socket_peercred(client)?.uid.as_raw();
    let mut process = match start_file(target, program, caller, uid) {
        Ok(process) => process,
        Err(response) => return send(client, &response),
    };
    let sent = send(client, &FromSupervisor::ExecStarted)
        .and_then(|()| send_streams(client, &mut process));
    match sent.and_then(|()| watch(client, &process)) {
        Ok(Some(ExecEnd { exit, signal })) => {
            tracing::info!(exit, signal, "program in the box ended");
            send(client, &FromSupervisor::ExecEnded { exit, signal })
        }
        Ok(None) | Err(_) => end(&process),
    }
}

/// Records an additional program in the ledger and starts it. Returns the response for the client if this
/// fails.
pub(super) fn start_program(
    target: &ExecTarget,
    spec: ExecSpec,
    caller: &Caller,
    uid: u32,
) -> Result<ExecProcess, FromSupervisor> {
    start_file(target, (spec, None), caller, uid)
}

/// Starts a program that has a path in the box, or whose file is given.
fn start_file(
    target: &ExecTarget,
    (spec, file): (ExecSpec, Option<Arc<OwnedFd>>),
    caller: &Caller,
    uid: u32,
) -> Result<ExecProcess, FromSupervisor> {
    let Some(channel) = target.channel() else {
        return Err(target.refused("this box cannot start additional programs"));
    };
    let program = text(spec.argv.first().map_or(&[], Vec::as_slice));
    let failed = |kind, why: &str| {
        let message = format!("box {}: {program}: {why}", target.name);
        FromSupervisor::Failed { kind, message }
    };
    if target.pauses.is_kept() {
        return Err(target.paused());
    }
    if let Err(error) = record(target, &spec, caller, uid) {
        let why = format!(
            "the program was not started: cannot record its start in the ledger: {error:#}"
        );
        return Err(failed(ErrorKind::CannotStart, &why));
    }
    match target.pauses.start_program(|| channel.exec(&Program { file, ..program_of(spec) })) {
        None => Err(target.paused()),
        Some(Ok(process)) => {
            tracing::info!(uid, "program started in the box");
            Ok(process)
        }
        Some(Err(error)) => {
            tracing::info!("program could not be started in the box");
            let kind = error_kind(&error);
            Err(failed(kind, &format!("{:#}", anyhow::Error::new(error))))
        }
    }
}

/// Records the start of an additional program in the ledger. The event is durable before the program
/// starts.
fn record(
    target: &ExecTarget,
    spec: &ExecSpec,
    caller: &Caller,
    uid: u32,
) -> Result<Receipt, EngineError> {
    let event = |command: Body| BoxExec {
        uid: u64::from(uid),
        program: spec.argv.first().cloned().unwrap_or_default(),
        command,
        environment: spec.env.iter().map(|(name, _)| text(name)).collect(),
        workdir: spec.workdir.clone(),
        terminal: spec.terminal.is_some(),
        principal: Some(caller.principal.to_string()),
        session: caller.session.as_ref().map(ToString::to_string),
    };
    record::exec(&target.scoped, target.run, &spec.argv, event)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Converts the request of a client into the program to start.
fn program_of(spec: ExecSpec) -> Program {
    let ExecSpec { argv, env, workdir, terminal } = spec;
    let os_string = OsString::from_vec;
    Program {
        argv: argv.into_iter().map(os_string).collect(),
        env: env.into_iter().map(|(name, value)| (os_string(name), os_string(value))).collect(),
        workdir: workdir.map(|path| PathBuf::from(os_string(path))),
        terminal: terminal.map(|size| (size.clamped().rows, size.clamped().columns)),
        file: None,
    }
}

const fn error_kind(error: &ExecError) -> ErrorKind {
    match error {
        ExecError::NotFound => ErrorKind::ProgramNotFound,
        ExecError::NotExecutable(_) => ErrorKind::NotExecutable,
        ExecError::Workdir(_) | ExecError::TooLong => ErrorKind::Invalid,
        ExecError::Gone | ExecError::Refused { .. } | ExecError::Io { .. } => {
            ErrorKind::CannotStart
        }
    }
}

/// Sends the descriptors of the program's streams to the client and closes them in this process, so that
/// the program notices when the client closes them.
fn send_streams(client: &UnixStream, process: &mut ExecProcess) -> io::Result<()> {
    let streams = process.streams.take().ok_or(io::ErrorKind::InvalidInput)?;
    let streams: Vec<BorrowedFd<'_>> = match &streams {
        ExecStreams::Pipes { input, output, error } => {
            vec![input.as_fd(), output.as_fd(), error.as_fd()]
        }
        ExecStreams::Terminal(terminal) => vec![terminal.as_fd()],
    };
    send_descriptors(client, &streams)
}

/// Passes the client's signals to the program until the program ends. Returns `None` if the client
/// disconnects.
fn watch(client: &UnixStream, process: &ExecProcess) -> io::Result<Option<ExecEnd>> {
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [has_ended, has_message] = polled.map(|it| !it.revents().is_empty());
        if has_ended {
            return process.wait().map(Some);
        }
        if has_message {
            match receive_small(client) {
                Ok(Some(ToSupervisor::Signal(number))) => process.signal(number)?,
                Ok(Some(_) | None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Ends a program whose client has disconnected: with signals, and after the grace period by killing it.
fn end(process: &ExecProcess) -> io::Result<()> {
    process.signal(SIGHUP)?;
    process.signal(SIGTERM)?;
    let deadline = Instant::now() + GRACE_PERIOD;
    while !process.is_over() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return process.signal(SIGKILL);
        }
        let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&timespec(left))).ok(); // the loop checks again
    }
    Ok(())
}
