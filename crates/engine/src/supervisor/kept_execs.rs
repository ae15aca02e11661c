//! Kept execs: additional programs in a named box that belong to the supervisor. They outlive the connections
//! of their clients, so a server can be killed and started again while they run.
//!
//! One thread owns all execs of a box; see [`event_loop`]. It starts with the first exec. Other threads send it
//! functions to call. Memory is bounded: by the number of execs, by the kept output of each stream, and by the
//! window of unread input.

mod client;
mod event_loop;
mod exec;
mod input;
mod limits;
mod output;
#[cfg(test)]
mod pattern;
mod program;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_model::Caller;
use rustix::event::EventfdFlags;

use super::connection::send;
use super::exec::start_program;
use super::exec_protocol::{ExecId, ExecStatus};
use super::protocol::{ExecSpec, FromSupervisor};
use super::session::BoxSession;
use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::logging;
use event_loop::{Attached, Command, Execs};
use exec::About;
use program::ExecProgram;

/// The maximum number of kept execs that run in a box at once. Init starts at most 64 programs.
const MAX_RUNNING: usize = 32;
/// The maximum number of commands that wait for the thread of the execs.
const MAX_COMMANDS: usize = 64;
/// The maximum length of the kept part of a command line, in bytes.
const MAX_ARGV: usize = 1024;
/// The time that clients have to receive the last output after the box has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The kept execs of a box, for the threads that serve clients.
#[derive(Debug, Default)]
pub(super) struct KeptExecs {
    thread: Mutex<Option<Arc<ExecThread>>>,
    /// A shared value whose reference count is one more than the number of running execs.
    running: Arc<()>,
}

/// The connection to the thread of the execs.
#[derive(Debug)]
struct ExecThread {
    commands: SyncSender<Command>,
    wake: Arc<OwnedFd>,
}

impl ExecThread {
    fn start(clock: Clock) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (commands, receiver) = mpsc::sync_channel(MAX_COMMANDS);
        let woken = Arc::clone(&wake);
        logging::spawn(move || event_loop::run(Execs::new(clock), &receiver, &woken));
        Ok(Self { commands, wake })
    }

    /// Calls a function on the thread of the execs. `None` if the thread has ended.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Execs) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, replied) = mpsc::sync_channel(1);
        let command: Command = Box::new(move |execs| {
            reply.send(work(execs)).ok(); // the caller waits
        });
        self.commands.send(command).ok()?;
        rustix::io::write(&*self.wake, &1_u64.to_ne_bytes()).ok(); // fails if the thread is woken already
        replied.recv().ok()
    }
}

impl KeptExecs {
    /// Starts the thread of the execs, unless it runs already.
    fn start_thread(&self, clock: Clock) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            *thread = Some(Arc::new(ExecThread::start(clock)?));
        }
        Ok(())
    }

    /// Calls a function on the thread of the execs. `None` if no exec was ever started.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Execs) -> T + Send + 'static,
    ) -> Option<T> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).clone();
        thread?.call(work)
    }

    /// Returns a permit for one exec, or `None` if too many are running.
    fn permit(&self) -> Option<Arc<()>> {
        let permit = Arc::clone(&self.running);
        (Arc::strong_count(&permit) <= MAX_RUNNING + 1).then_some(permit)
    }

    pub(super) fn status(&self, id: ExecId) -> FromSupervisor {
        let found = self.call(move |execs| execs.status(id)).flatten();
        found.map_or(FromSupervisor::NoSuchExec, exec_response)
    }

    pub(super) fn list(&self) -> FromSupervisor {
        FromSupervisor::Execs(self.call(|execs| execs.list()).unwrap_or_default())
    }

    pub(super) fn signal(&self, id: ExecId, number: i32) -> FromSupervisor {
        match self.call(move |execs| execs.signal(id, number)) {
            Some(true) => FromSupervisor::Ok,
            Some(false) | None => FromSupervisor::NoSuchExec,
        }
    }

    /// Waits a short time until clients have received the last output, after the box has ended.
    pub(super) fn close(&self) {
        let (idle, is_idle) = mpsc::channel();
        if self.call(move |execs| execs.when_idle(idle)).is_some() {
            is_idle.recv_timeout(CLOSE_TIMEOUT).ok();
        }
    }
}

fn exec_response(status: ExecStatus) -> FromSupervisor {
    FromSupervisor::Exec(Box::new(status))
}

/// Starts a program that belongs to the supervisor. Does nothing if an exec has this id already. Returns the
/// response for the client.
pub(super) fn start(
    session: &BoxSession,
    client: &UnixStream,
    caller: &Caller,
    (id, spec): (ExecId, ExecSpec),
) -> io::Result<FromSupervisor> {
    let (execs, target) = (&session.execs, &session.target);
    let known = execs.status(id);
    if !matches!(known, FromSupervisor::NoSuchExec) {
        return Ok(known);
    }
    let Some(permit) = execs.permit() else {
        let name = &target.name;
        let message = format!(
            "box {name}: {MAX_RUNNING} execs are running; wait until one ends, or end one with a signal"
        );
        return Ok(FromSupervisor::Failed { kind: ErrorKind::Busy, message });
    };
    let uid = rustix::net::sockopt::socket_peercred(client)?.uid.as_raw();
    let clock = target.scoped.clock();
    let about = About {
        id,
        argv: start_of(&spec.argv),
        maker: caller.principal.to_string(),
        started: clock.millis(),
    };
    let process = match start_program(target, spec, caller, uid) {
        Ok(process) => process,
        Err(response) => return Ok(response),
    };
    execs.start_thread(clock)?;
    let program = ExecProgram::new(process).ok_or(io::ErrorKind::InvalidInput)?;
    tracing::info!(%id, "exec started");
    let status = execs.call(move |execs| execs.insert(about, program, permit));
    Ok(exec_response(status.ok_or(io::ErrorKind::BrokenPipe)?))
}

/// Attaches a client that has the bytes of each stream before these offsets. The thread of the execs serves
/// the connection from then on.
pub(super) fn attach(
    session: &BoxSession,
    client: &UnixStream,
    id: ExecId,
    from: [u64; 2],
) -> io::Result<()> {
    let socket = client.try_clone()?;
    match session.execs.call(move |execs| execs.attach(id, socket, from)) {
        Some(Attached::Yes) => Ok(()),
        Some(Attached::Unknown) | None => send(client, &FromSupervisor::NoSuchExec),
        Some(Attached::Ahead) => {
            let message = "the program has not written as much output as the client has".to_owned();
            send(client, &FromSupervisor::Failed { kind: ErrorKind::Conflict, message })
        }
    }
}

/// Returns the part of a command line that is kept.
fn start_of(argv: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut left = MAX_ARGV;
    let mut kept = Vec::new();
    for word in argv {
        if left == 0 {
            break;
        }
        let part = word.get(..left).unwrap_or(word);
        left = left.saturating_sub(part.len() + 1);
        kept.push(part.to_vec());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_of_a_long_command_line_has_a_bounded_length() {
        let words = |lengths: &[usize]| -> Vec<Vec<u8>> {
            lengths.iter().map(|length| vec![b'x'; *length]).collect()
        };
        let lengths = |argv: &[usize]| -> Vec<usize> {
            start_of(&words(argv)).iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(&[3, 0, 4]), [3, 0, 4]);
        assert_eq!(lengths(&[1000, 100]), [1000, 23]);
        assert_eq!(lengths(&[5000, 1]), [1024]);
        assert_eq!(lengths(&[0; 3000]).len(), 1024);
    }
}
