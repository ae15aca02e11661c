//! Runs programs of clients in a named box, beside the box's own program.
//!
//! The client gets the descriptors of the program's streams. Their bytes do not pass through this process,
//! which only reports the end of the program.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use belljar_box::{ExecEnd, ExecError, ExecProcess, ExecStreams, Program};
use belljar_ledger::{Body, BoxExec, Receipt};
use belljar_model::Caller;
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};

use super::connection::{receive_small, send, send_descriptors};
use super::listener::refused;
use super::protocol::{ExecSpec, FromSupervisor, ToSupervisor};
use super::session::BoxSession;
use crate::error::{EngineError, ErrorKind};
use crate::record;

const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The most programs of clients at once. It is below the limit of clients, so that other requests are served.
const MOST: usize = 24;
/// The time that a program has to end after its client disconnected.
const GRACE: Duration = Duration::from_secs(5);

/// Starts a program and waits for its end.
pub(super) fn run(
    client: &UnixStream,
    session: &BoxSession,
    caller: &Caller,
    spec: ExecSpec,
) -> io::Result<()> {
    client.set_read_timeout(None)?;
    let Some(channel) = session.exec_channel() else {
        return send(client, &refused(session, "no program can be started in it"));
    };
    let Some(_permit) = session.permit(MOST) else {
        let why = format!("{MOST} programs of clients are running in it; wait until one ends");
        return send(client, &refused(session, &why));
    };
    let program = text(spec.argv.first().map_or(&[], Vec::as_slice));
    let failed = |kind, why: &str| {
        let message = format!("box {}: {program}: {why}", session.name);
        send(client, &FromSupervisor::Failed { kind, message })
    };
    let peer = rustix::net::sockopt::socket_peercred(client)?;
    if let Err(error) = record(session, &spec, caller, peer.uid.as_raw()) {
        let why = format!("the start could not be recorded, so nothing was started: {error:#}");
        return failed(ErrorKind::CannotStart, &why);
    }
    let mut guest = match channel.exec(&wanted(spec)) {
        Ok(guest) => guest,
        Err(error) => {
            tracing::info!("program could not be started in the box");
            return failed(kind_of(&error), &format!("{:#}", anyhow::Error::new(error)));
        }
    };
    tracing::info!(uid = peer.uid.as_raw(), "program started in the box");
    let met =
        send(client, &FromSupervisor::ExecStarted).and_then(|()| hand_over(client, &mut guest));
    match met.and_then(|()| watch(client, &guest)) {
        Ok(Some(ExecEnd { exit, signal })) => {
            tracing::info!(exit, signal, "program in the box ended");
            send(client, &FromSupervisor::ExecEnded { exit, signal })
        }
        Ok(None) | Err(_) => end(&guest),
    }
}

/// Records the start, which must be durable before the program starts.
fn record(
    session: &BoxSession,
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
    record::exec(&session.scoped, session.run, &spec.argv, event)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wanted(spec: ExecSpec) -> Program {
    let ExecSpec { argv, env, workdir, terminal } = spec;
    let word = OsString::from_vec;
    Program {
        argv: argv.into_iter().map(word).collect(),
        env: env.into_iter().map(|(name, value)| (word(name), word(value))).collect(),
        workdir: workdir.map(|path| PathBuf::from(word(path))),
        terminal: terminal.map(|size| (size.sane().rows, size.sane().columns)),
    }
}

const fn kind_of(error: &ExecError) -> ErrorKind {
    match error {
        ExecError::NotFound => ErrorKind::ProgramNotFound,
        ExecError::NotExecutable(_) => ErrorKind::NotExecutable,
        ExecError::Workdir(_) | ExecError::TooLong => ErrorKind::Invalid,
        ExecError::Gone | ExecError::Refused { .. } | ExecError::Io { .. } => {
            ErrorKind::CannotStart
        }
    }
}

/// Sends the descriptors of the program's streams to the client. None stay open here, so that the program
/// sees when the client closes them.
fn hand_over(client: &UnixStream, guest: &mut ExecProcess) -> io::Result<()> {
    let ends = guest.streams.take().ok_or(io::ErrorKind::InvalidInput)?;
    let ends: Vec<BorrowedFd<'_>> = match &ends {
        ExecStreams::Pipes { input, output, error } => {
            vec![input.as_fd(), output.as_fd(), error.as_fd()]
        }
        ExecStreams::Terminal(terminal) => vec![terminal.as_fd()],
    };
    send_descriptors(client, &ends)
}

/// Passes signals on until the program ends. `None`: the client is gone.
fn watch(client: &UnixStream, guest: &ExecProcess) -> io::Result<Option<ExecEnd>> {
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(guest.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [ended, said] = polled.map(|it| !it.revents().is_empty());
        if ended {
            return guest.wait().map(Some);
        }
        if said {
            match receive_small(client) {
                Ok(Some(ToSupervisor::Signal(number))) => guest.signal(number)?,
                Ok(Some(_) | None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Ends a program whose client is gone.
fn end(guest: &ExecProcess) -> io::Result<()> {
    guest.signal(SIGHUP)?;
    guest.signal(SIGTERM)?;
    let until = Instant::now() + GRACE;
    while !guest.is_over() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return guest.signal(SIGKILL);
        }
        let mut polled = [PollFd::from_borrowed_fd(guest.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&timespec(left))).ok(); // looked at again
    }
    Ok(())
}
