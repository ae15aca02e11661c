//! The progress display of long operations.

use std::time::{Duration, Instant};

use crate::print;

/// A progress display, which appears if an operation takes longer than half a second.
#[derive(Debug)]
pub(super) struct Progress {
    label: &'static str,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    /// Creates a hidden progress display.
    pub(super) fn new(label: &'static str) -> Self {
        Self { label, next: Instant::now() + Duration::from_millis(500), is_shown: false }
    }

    /// Updates the percentage, at most ten times per second.
    pub(super) fn update(&mut self, done: u64, total: u64) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(100);
        self.is_shown = true;
        let percent = u128::from(done) * 100 / u128::from(total.max(1));
        print::progress(&format!("{} {percent} %", self.label));
    }

    /// Removes the progress display from the screen.
    pub(super) fn clear(&self) {
        if self.is_shown {
            print::progress("");
        }
    }
}
