//! The state that the threads of a named box's supervisor share: the box's inputs, screen and output log.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_box::ExecChannel;
use belljar_model::RunId;
use belljar_model::boxes::BoxName;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::exec::ExecTarget;
use super::forwards::Forwards;
use super::kept_execs::KeptExecs;
use super::live_rules::LiveRules;
use super::output_log::OutputLog;
use super::protocol::{Health, Live};
use super::viewers::ScreenFeed;
use crate::scope::Scoped;
use crate::screen::log_lines;

/// The number of bytes that a pipe accepts at once when it is ready for writing.
const PIPE_BUF: usize = 4096;

/// The descriptors and channels by which a supervisor controls a running box.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The writing end of the pipe for the program's input.
    pub(super) keys: File,
    /// The writing end of the stop pipe. A byte that is written to this pipe kills the box.
    pub(super) halt: OwnedFd,
    /// The channel that starts additional programs in the box.
    pub(super) exec_channel: Option<ExecChannel>,
    /// The program's terminal, whose size can be changed.
    pub(super) terminal: Option<OwnedFd>,
}

/// One run of a named box, as the threads of its supervisor share it.
#[derive(Debug)]
pub(super) struct BoxSession {
    pub(super) target: ExecTarget,
    log: Arc<Mutex<OutputLog>>,
    halt: OwnedFd,
    keys: Mutex<File>,
    /// The screen, if the program has a terminal.
    screen: Option<ScreenFeed>,
    pub(super) rules: LiveRules,
    since: u64,
    last_output: AtomicU64,
    health: Mutex<Option<Health>>,
    /// Whether a client asked the supervisor to stop the box.
    is_stopping: AtomicBool,
    pub(super) forwards: Forwards,
    pub(super) execs: KeptExecs,
}

impl BoxSession {
    pub(super) fn new(
        scoped: Scoped,
        name: &BoxName,
        run: RunId,
        mut log: OutputLog,
        inputs: Inputs,
        rules: LiveRules,
    ) -> Self {
        let Inputs { keys, halt, exec_channel, terminal } = inputs;
        if terminal.is_some() && !log.is_empty() {
            log.write(&log_lines::start_of_run());
        }
        let log = Arc::new(Mutex::new(log));
        Self {
            screen: terminal.map(|terminal| ScreenFeed::new(terminal, Arc::clone(&log))),
            log,
            halt,
            keys: Mutex::new(keys),
            rules,
            since: scoped.clock().millis(),
            last_output: AtomicU64::new(0),
            health: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            forwards: Forwards::default(),
            execs: KeptExecs::default(),
            target: ExecTarget::new(scoped, name.clone(), run, exec_channel),
        }
    }

    pub(super) const fn screen(&self) -> Option<&ScreenFeed> {
        self.screen.as_ref()
    }

    /// Starts a thread that keeps the screen of the box up to date.
    pub(super) fn start_screen(self: &Arc<Self>) {
        let session = Arc::clone(self);
        crate::logging::spawn(move || session.screen().map(|screen| screen.run(&session)));
    }

    /// Writes the keys of a client to the program's input, as fast as the program reads them. Stops when
    /// the client disconnects.
    pub(super) fn type_keys(&self, keys: &[u8], client: &UnixStream) -> io::Result<()> {
        let mut rest = keys;
        while !rest.is_empty() {
            let pipe = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            match rustix::io::write(&*pipe, rest.get(..PIPE_BUF).unwrap_or(rest)) {
                Ok(wrote) => rest = rest.get(wrote..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN) => {
                    let own = pipe.try_clone()?;
                    drop(pipe); // other clients may disconnect before this one
                    let writable = PollFd::new(&own, PollFlags::OUT);
                    let mut polled = [writable, PollFd::new(client, PollFlags::RDHUP)];
                    rustix::event::poll(&mut polled, None)?;
                    let [_, client] = polled;
                    if !client.revents().is_empty() {
                        return Ok(());
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes a reply of the terminal to the program's input. The reply is dropped if the pipe is full.
    pub(super) fn type_reply(&self, reply: &[u8]) {
        let pipe = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::write(&*pipe, reply).ok();
    }

    /// Closes the screen, the execs and the forwarded ports after the program ended. Attached clients still
    /// receive the last output.
    pub(super) fn close(&self) {
        self.forwards.close();
        self.target.pauses.end(&self.target.dir());
        if let Some(screen) = self.screen() {
            screen.close();
        }
        self.execs.close();
    }

    /// Passes output of the program to the output log and the screen.
    pub(super) fn output(&self, chunk: &[u8]) {
        tracing::trace!(bytes = chunk.len(), "program wrote");
        self.last_output.store(self.target.scoped.clock().millis(), Ordering::Relaxed);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write(chunk);
        if let Some(screen) = self.screen() {
            screen.output(chunk);
        }
    }

    /// Ends the program of the box with SIGHUP and SIGTERM, or kills it at once if `now` is set.
    pub(super) fn stop(&self, now: bool) {
        self.is_stopping.store(true, Ordering::Release);
        // A paused program cannot end by a signal.
        self.target.pauses.end(&self.target.dir());
        if now {
            rustix::io::write(&self.halt, b"1").ok(); // the box may have ended
        } else {
            end_gently();
        }
    }

    /// Returns whether a client asked the supervisor to stop the box.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn set_health(&self, health: Health) {
        tracing::debug!(?health, "health check finished");
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    /// Returns the current state of the box.
    pub(super) fn live(&self) -> Live {
        let last = self.last_output.load(Ordering::Relaxed);
        Live {
            run: self.target.run,
            pid: std::process::id(),
            since: self.since,
            last_output: (last > 0).then_some(last),
            health: *self.health.lock().unwrap_or_else(PoisonError::into_inner),
            questions: self.rules.control.open_requests(),
            dark: self.rules.control.is_broker_gone(),
            forwards: self.forwards.list(),
        }
    }
}

/// Sends SIGHUP and SIGTERM to the supervisor itself. Its supervising thread passes the signals to the
/// program, and kills the box if the program ignores them.
pub(super) fn end_gently() {
    for signal in [Signal::HUP, Signal::TERM] {
        rustix::process::kill_process(rustix::process::getpid(), signal).ok(); // cannot fail
    }
}
