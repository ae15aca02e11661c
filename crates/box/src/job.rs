//! A measurement that is repeated on threads of its own, so that the caller never waits for it.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Ratio of pause to measurement time, so that repeated measurements do not keep a CPU busy.
const PAUSE_RATIO: u32 = 10;

/// A measurement that runs on a thread of its own, at most once at a time.
pub(crate) struct Job<T> {
    running: Option<Receiver<(T, Duration)>>,
    is_due: bool,
    not_before: Instant,
    started: Instant,
    /// Free space of the file system when the measurement started, for the caller.
    pub(crate) free: u64,
}

impl<T: Send + 'static> Job<T> {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { running: None, is_due: true, not_before: now, started: now, free: u64::MAX }
    }

    /// Notes that the last result is out of date.
    pub(crate) const fn note_due(&mut self) {
        self.is_due = true;
    }

    /// Whether a measurement is running or must be repeated.
    pub(crate) const fn is_pending(&self) -> bool {
        self.is_due || self.running.is_some()
    }

    /// Whether a measurement has been running for longer than `limit`.
    pub(crate) fn is_slower_than(&self, limit: Duration) -> bool {
        self.running.is_some() && self.started.elapsed() > limit
    }

    /// Returns the result of a measurement that has finished.
    pub(crate) fn finished(&mut self) -> Option<T> {
        match self.running.as_ref()?.try_recv() {
            Ok((result, took)) => {
                self.running = None;
                self.not_before = Instant::now() + took * PAUSE_RATIO;
                Some(result)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                (self.running, self.is_due) = (None, true);
                None
            }
        }
    }

    /// Starts the measurement if the last result is out of date and the pause is over, or is cut short by
    /// `is_early`. Returns whether it started.
    pub(crate) fn start_if_due(
        &mut self,
        is_early: bool,
        tick: Duration,
        measure: impl FnOnce() -> T + Send + 'static,
    ) -> bool {
        let now = Instant::now();
        let is_paused = now < self.not_before && !(is_early && now >= self.started + tick);
        if self.running.is_some() || !self.is_due || is_paused {
            return false;
        }
        let (result, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("measure".to_owned()).stack_size(256 << 10);
        let spawned = thread.spawn(move || {
            let began = Instant::now();
            result.send((measure(), began.elapsed())).ok(); // the box can have ended
        });
        // Without a thread, the next tick tries again.
        if spawned.is_err() {
            return false;
        }
        (self.is_due, self.running, self.started) = (false, Some(receiver), now);
        true
    }
}
