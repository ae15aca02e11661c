//! Programs that are started in a box beside its own, for whoever asks.
//!
//! The ends of their streams go to who asked, by descriptor. So nothing of what they read and write
//! passes here, and only the end of the program is told.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use belljar_box::{Ends, ExecError, Guest, GuestEnded, Program};
use belljar_init::wire;
use belljar_ledger::{Body, BoxExec, Receipt};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};

use super::hub::Hub;
use super::protocol::{self, ExecWish, GuestSays, Reply};
use crate::error::{EngineError, ErrorKind};
use crate::record;

const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// So many may be there at once: others who ask the keeper something must get through, too.
const MOST: usize = 24;
/// What a program gets to end when nobody waits for it any more.
const GRACE: Duration = Duration::from_secs(5);

/// Starts a program, and sees it to its end.
pub(super) fn attend(line: &UnixStream, hub: &Hub, wish: ExecWish) -> io::Result<()> {
    line.set_read_timeout(None)?;
    let Some(door) = hub.door() else {
        return protocol::send(line, &Reply::Refused("nothing can be started in it".to_owned()));
    };
    let Some(_seat) = hub.seat(MOST) else {
        let why = format!("{MOST} programs were started beside its own already");
        return protocol::send(line, &Reply::Refused(why));
    };
    let by = rustix::net::sockopt::socket_peercred(line)?;
    if let Err(error) = on_record(hub, &wish, by.uid.as_raw()) {
        let message = format!("it is not on record, so nothing was started: {error:#}");
        return protocol::send(line, &Reply::NotStarted { kind: ErrorKind::CannotStart, message });
    }
    let mut guest = match door.exec(&program(wish)) {
        Ok(guest) => guest,
        Err(error) => {
            tracing::info!("program could not be started in the box");
            return protocol::send(line, &refusal(error));
        }
    };
    tracing::info!(uid = by.uid.as_raw(), "program started in the box");
    let met = protocol::send(line, &Reply::Done).and_then(|()| hand_over(line, &mut guest));
    match met.and_then(|()| watch(line, &guest)) {
        Ok(Some(GuestEnded { exit, signal })) => {
            tracing::info!(exit, signal, "program in the box ended");
            protocol::send(line, &GuestSays::Ended { exit, signal })
        }
        Ok(None) | Err(_) => see_out(&guest),
    }
}

/// Nothing is started before it is written down.
fn on_record(hub: &Hub, wish: &ExecWish, uid: u32) -> Result<Receipt, EngineError> {
    let event = |command: Body| BoxExec {
        uid: u64::from(uid),
        program: wish.argv.first().cloned().unwrap_or_default(),
        command,
        environment: wish.env.iter().map(|(name, _)| text(name)).collect(),
        workdir: wish.workdir.clone(),
        terminal: wish.terminal.is_some(),
    };
    record::exec(&hub.scoped, hub.run, &wish.argv, event)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn program(wish: ExecWish) -> Program {
    let ExecWish { argv, env, workdir, terminal } = wish;
    let word = OsString::from_vec;
    Program {
        argv: argv.into_iter().map(word).collect(),
        env: env.into_iter().map(|(name, value)| (word(name), word(value))).collect(),
        workdir: workdir.map(|path| PathBuf::from(word(path))),
        terminal: terminal.map(|size| (size.sane().rows, size.sane().columns)),
    }
}

fn refusal(error: ExecError) -> Reply {
    let kind = match &error {
        ExecError::NotFound => ErrorKind::ProgramNotFound,
        ExecError::NotExecutable(_) => ErrorKind::NotExecutable,
        ExecError::Workdir(_) | ExecError::TooLong => ErrorKind::Invalid,
        ExecError::Gone | ExecError::Refused { .. } | ExecError::Io { .. } => {
            ErrorKind::CannotStart
        }
    };
    Reply::NotStarted { kind, message: format!("{:#}", anyhow::Error::new(error)) }
}

/// Gives away the ends of its streams: what is closed there the guest sees.
fn hand_over(line: &UnixStream, guest: &mut Guest) -> io::Result<()> {
    let ends = guest.ends.take().ok_or(io::ErrorKind::InvalidInput)?;
    let ends: Vec<BorrowedFd<'_>> = match &ends {
        Ends::Pipes { input, output, error } => vec![input.as_fd(), output.as_fd(), error.as_fd()],
        Ends::Terminal(terminal) => vec![terminal.as_fd()],
    };
    wire::send(line.as_fd(), &0_u8, &ends)
}

/// Passes signals on until the guest ends; none: whoever asked is gone.
fn watch(line: &UnixStream, guest: &Guest) -> io::Result<Option<GuestEnded>> {
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(guest.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN),
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
            match protocol::receive::<GuestSays>(line) {
                Ok(Some(GuestSays::Signal(number))) => guest.signal(number)?,
                Ok(Some(GuestSays::Ended { .. }) | None) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Ends a guest for whom nobody waits any more.
fn see_out(guest: &Guest) -> io::Result<()> {
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
