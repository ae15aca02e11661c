//! How far a long work is, for a person who waits.

use std::time::{Duration, Instant};

use crate::print;

/// Tells of a work when it takes long, and then now and then.
#[derive(Debug)]
pub(super) struct Progress {
    doing: &'static str,
    next: Instant,
    told: bool,
}

impl Progress {
    pub(super) fn new(doing: &'static str) -> Self {
        Self { doing, next: Instant::now() + Duration::from_millis(500), told: false }
    }

    pub(super) fn tell(&mut self, done: u64, of: u64) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(100);
        self.told = true;
        let percent = u128::from(done) * 100 / u128::from(of.max(1));
        print::progress(&format!("{} {percent} %", self.doing));
    }

    /// Leaves nothing of it on the screen.
    pub(super) fn clear(&self) {
        if self.told {
            print::progress("");
        }
    }
}
