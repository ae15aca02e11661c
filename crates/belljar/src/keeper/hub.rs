//! What the threads of a keeper share: the way into the box, and what came out of it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use belljar_box::{Door, Stream};
use belljar_model::RunId;
use rustix::process::Signal;

use super::history::History;
use super::protocol::{Health, Live};
use super::wires::Wires;
use crate::commands::run::now;

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
    history: Mutex<History>,
    /// A word here ends the box at once.
    halt: OwnedFd,
    /// What is written here the program reads.
    _feed: Mutex<File>,
    _into: Into,
    /// What moves its network.
    pub(super) wires: Wires,
    since: u64,
    last_output: AtomicU64,
    health: Mutex<Option<Health>>,
}

impl Hub {
    pub(super) fn new(
        run: RunId,
        history: History,
        halt: OwnedFd,
        feed: File,
        into: Into,
        wires: Wires,
    ) -> Self {
        let (history, feed) = (Mutex::new(history), Mutex::new(feed));
        let (last_output, health, since) = (AtomicU64::new(0), Mutex::default(), millis());
        Self { run, history, halt, _feed: feed, _into: into, wires, since, last_output, health }
    }

    /// The box wrote something.
    pub(super) fn heard(&self, _stream: Stream, chunk: &[u8]) {
        self.last_output.store(millis(), Ordering::Relaxed);
        self.history.lock().unwrap_or_else(PoisonError::into_inner).write(chunk);
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

    /// The way in for one more program.
    pub(super) fn door(&self) -> Option<&Door> {
        self._into.door.as_ref()
    }

    pub(super) fn set_health(&self, health: Health) {
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
            questions: self.wires.lever.questions().len(),
            dark: self.wires.lever.is_dark(),
        }
    }
}

fn millis() -> u64 {
    u64::try_from(now().as_millis()).unwrap_or(u64::MAX)
}
