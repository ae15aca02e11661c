//! The state that the threads of a named box's supervisor share: the inputs of the box, its screen and its log.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_box::ExecChannel;
use belljar_model::RunId;
use belljar_model::boxes::BoxName;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::live_rules::LiveRules;
use super::output_log::OutputLog;
use super::protocol::{Health, Live};
use super::viewers::ScreenFeed;
use crate::scope::Scoped;

/// A pipe that is ready for writing takes this many bytes at once (PIPE_BUF).
const PIPE_BUF: usize = 4096;

/// The inputs of a box.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The program reads what is written here.
    pub(super) keys: File,
    /// A byte that is written here ends the box at once.
    pub(super) halt: OwnedFd,
    /// Starts more programs in the box.
    pub(super) exec_channel: Option<ExecChannel>,
    /// The program's terminal, to change its size.
    pub(super) terminal: Option<OwnedFd>,
}

/// One run of a named box.
#[derive(Debug)]
pub(super) struct BoxSession {
    pub(super) name: BoxName,
    pub(super) run: RunId,
    pub(super) scoped: Scoped,
    log: Mutex<OutputLog>,
    halt: OwnedFd,
    keys: Mutex<File>,
    /// The screen, if the program has a terminal.
    screen: Option<ScreenFeed>,
    exec_channel: Option<ExecChannel>,
    /// Counts the programs that were started beside the box's own.
    programs: Arc<()>,
    pub(super) rules: LiveRules,
    since: u64,
    last_output: AtomicU64,
    health: Mutex<Option<Health>>,
}

impl BoxSession {
    pub(super) fn new(
        scoped: Scoped,
        name: &BoxName,
        run: RunId,
        log: OutputLog,
        inputs: Inputs,
        rules: LiveRules,
    ) -> Self {
        let Inputs { keys, halt, exec_channel, terminal } = inputs;
        Self {
            name: name.clone(),
            run,
            log: Mutex::new(log),
            halt,
            keys: Mutex::new(keys),
            screen: terminal.map(ScreenFeed::new),
            exec_channel,
            programs: Arc::default(),
            rules,
            since: scoped.clock().millis(),
            last_output: AtomicU64::new(0),
            health: Mutex::default(),
            scoped,
        }
    }

    pub(super) const fn exec_channel(&self) -> Option<&ExecChannel> {
        self.exec_channel.as_ref()
    }

    /// A permit for one more program, which counts until it is dropped. `None`: `most` are running.
    pub(super) fn permit(&self, most: usize) -> Option<Arc<()>> {
        let permit = Arc::clone(&self.programs);
        (Arc::strong_count(&permit) <= most + 1).then_some(permit)
    }

    pub(super) const fn screen(&self) -> Option<&ScreenFeed> {
        self.screen.as_ref()
    }

    /// Keeps the screen up to date, on a thread of its own.
    pub(super) fn show(self: &Arc<Self>) {
        let session = Arc::clone(self);
        crate::logging::spawn(move || session.screen().map(|screen| screen.run(&session)));
    }

    /// Types keys of a client as fast as the program reads them. Stops when the client disconnects.
    pub(super) fn type_keys(&self, keys: &[u8], client: &UnixStream) -> io::Result<()> {
        let mut rest = keys;
        while !rest.is_empty() {
            let pipe = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            match rustix::io::write(&*pipe, rest.get(..PIPE_BUF).unwrap_or(rest)) {
                Ok(wrote) => rest = rest.get(wrote..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN) => {
                    let own = pipe.try_clone()?;
                    drop(pipe); // other clients may give up before this one does
                    let ends = PollFlags::RDHUP;
                    let mut polled = [PollFd::new(&own, PollFlags::OUT), PollFd::new(client, ends)];
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

    /// Types an answer of the terminal itself. The answer is dropped if the program does not read.
    pub(super) fn type_answer(&self, answer: &[u8]) {
        let pipe = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::write(&*pipe, answer).ok();
    }

    /// The program ended: clients that are attached get the last of its screen.
    pub(super) fn close(&self) {
        if let Some(screen) = self.screen() {
            screen.close();
        }
    }

    /// Takes output of the program.
    pub(super) fn output(&self, chunk: &[u8]) {
        tracing::trace!(bytes = chunk.len(), "program wrote");
        self.last_output.store(self.scoped.clock().millis(), Ordering::Relaxed);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write(chunk);
        if let Some(screen) = self.screen() {
            screen.output(chunk);
        }
    }

    /// Ends the program with SIGHUP and SIGTERM, or kills it at once.
    pub(super) fn stop(&self, now: bool) {
        if now {
            rustix::io::write(&self.halt, b"1").ok(); // the box may be gone
        } else {
            end_gently();
        }
    }

    pub(super) fn set_health(&self, health: Health) {
        tracing::debug!(?health, "health is known");
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    pub(super) fn live(&self) -> Live {
        let last = self.last_output.load(Ordering::Relaxed);
        Live {
            run: self.run,
            pid: std::process::id(),
            since: self.since,
            last_output: (last > 0).then_some(last),
            health: *self.health.lock().unwrap_or_else(PoisonError::into_inner),
            questions: self.rules.control.open_requests(),
            dark: self.rules.control.is_broker_gone(),
        }
    }
}

/// Asks the program to end, as a closed terminal and a shut-down do. The signals go to this process: its
/// supervising thread passes them on, and kills the box if the program ignores them.
pub(super) fn end_gently() {
    for signal in [Signal::HUP, Signal::TERM] {
        rustix::process::kill_process(rustix::process::getpid(), signal).ok(); // it cannot fail
    }
}
