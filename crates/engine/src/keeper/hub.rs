//! What the threads of a keeper share: the way into the box, and what came out of it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_box::Door;
use belljar_model::RunId;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::history::History;
use super::protocol::{Health, Live};
use super::viewers::Stage;
use super::wires::Wires;
use crate::scope::Scoped;

/// A pipe that is ready takes this much at once (PIPE_BUF).
const SURE: usize = 4096;

/// The ways into a box beside its program's input.
#[derive(Debug)]
pub(super) struct Into {
    /// Where more programs are started.
    pub(super) door: Option<Door>,
    /// The program's terminal, to change its size.
    pub(super) terminal: Option<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct Hub {
    pub(super) run: RunId,
    pub(super) scoped: Scoped,
    history: Mutex<History>,
    /// A word here ends the box at once.
    halt: OwnedFd,
    /// What is written here the program reads.
    feed: Mutex<File>,
    /// Where it is looked at, if it has a terminal.
    stage: Option<Stage>,
    /// Where more programs come in.
    door: Option<Door>,
    /// One for each program that was started beside the box's own.
    guests: Arc<()>,
    /// What moves its network.
    pub(super) wires: Wires,
    since: u64,
    last_output: AtomicU64,
    health: Mutex<Option<Health>>,
}

impl Hub {
    pub(super) fn new(
        scoped: Scoped,
        run: RunId,
        history: History,
        halt: OwnedFd,
        feed: File,
        into: Into,
        wires: Wires,
    ) -> Self {
        let (history, feed) = (Mutex::new(history), Mutex::new(feed));
        let (last_output, health) = (AtomicU64::new(0), Mutex::default());
        let Into { door, terminal } = into;
        let stage = terminal.map(Stage::new);
        Self {
            run,
            history,
            halt,
            feed,
            stage,
            door,
            guests: Arc::default(),
            wires,
            since: scoped.clock().millis(),
            last_output,
            health,
            scoped,
        }
    }

    /// The way in for one more program.
    pub(super) const fn door(&self) -> Option<&Door> {
        self.door.as_ref()
    }

    /// A place for one more program, as long as it is held; none if so many are taken.
    pub(super) fn seat(&self, most: usize) -> Option<Arc<()>> {
        let seat = Arc::clone(&self.guests);
        (Arc::strong_count(&seat) <= most + 1).then_some(seat)
    }

    pub(super) const fn stage(&self) -> Option<&Stage> {
        self.stage.as_ref()
    }

    /// Shows the box to who looks, on a thread of its own.
    pub(super) fn show(self: &Arc<Self>) {
        let hub = Arc::clone(self);
        crate::logging::spawn(move || hub.stage().map(|stage| stage.run(&hub)));
    }

    /// Types for somebody, as fast as the program reads, until they hang up.
    pub(super) fn feed(&self, keys: &[u8], line: &UnixStream) -> io::Result<()> {
        let mut rest = keys;
        while !rest.is_empty() {
            let feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
            match rustix::io::write(&*feed, rest.get(..SURE).unwrap_or(rest)) {
                Ok(wrote) => rest = rest.get(wrote..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN) => {
                    let own = feed.try_clone()?;
                    drop(feed); // others may stop waiting before we do
                    let ends = PollFlags::RDHUP;
                    let mut polled = [PollFd::new(&own, PollFlags::OUT), PollFd::new(line, ends)];
                    rustix::event::poll(&mut polled, None)?;
                    let [_, line] = polled;
                    if !line.revents().is_empty() {
                        return Ok(());
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Types what the terminal of the box answers. A program that does not read it gets none.
    pub(super) fn answer(&self, answer: &[u8]) {
        let feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::write(&*feed, answer).ok();
    }

    /// The program is over: those who look see the last of it.
    pub(super) fn close(&self) {
        if let Some(stage) = self.stage() {
            stage.close();
        }
    }

    /// The box wrote something.
    pub(super) fn heard(&self, chunk: &[u8]) {
        tracing::trace!(bytes = chunk.len(), "program wrote");
        self.last_output.store(self.scoped.clock().millis(), Ordering::Relaxed);
        self.history.lock().unwrap_or_else(PoisonError::into_inner).write(chunk);
        if let Some(stage) = self.stage() {
            stage.heard(chunk);
        }
    }

    /// Ends the program: by what a terminal that is hung up and a shut-down would send, or at once.
    pub(super) fn stop(&self, now: bool) {
        if now {
            rustix::io::write(&self.halt, b"1").ok(); // or the box is gone already
            return;
        }
        for signal in [Signal::HUP, Signal::TERM] {
            // To ourselves: the supervising thread passes it on and sees to it that it is heeded.
            rustix::process::kill_process(rustix::process::getpid(), signal).ok();
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
            questions: self.wires.lever.questions(),
            dark: self.wires.lever.is_dark(),
        }
    }
}
