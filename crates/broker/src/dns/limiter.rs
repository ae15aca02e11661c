//! How much a box may ask.
//!
//! No query leaves the machine, so asking cannot carry anything out; but each refusal is put on record, and a box must
//! not be able to fill the record, nor to keep the broker busy.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Queries a second in the long run, and at once after a pause. A package manager with a thousand hosts stays below.
const PER_SECOND: u32 = 500;
const AT_ONCE: u32 = 1000;
/// Different refused names that are recorded one by one.
const MAX_NAMES: usize = 200;

/// Whether a refusal is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A name that was not refused before: record it.
    First,
    /// It is on record already.
    Again,
    /// The first name too many: record that no more are recorded.
    Last,
    /// One of the many after that.
    Over,
}

#[derive(Debug)]
pub struct Limiter {
    left: u32,
    filled: Instant,
    names: HashSet<String>,
    full: bool,
}

impl Limiter {
    pub fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, filled: now, names: HashSet::new(), full: false }
    }

    /// Whether one more query is answered now. If not, it is dropped: the client waits and asks again.
    pub fn query(&mut self, now: Instant) -> bool {
        self.fill(now);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        let earned = passed.as_micros() * u128::from(PER_SECOND) / 1_000_000;
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned == 0 {
            return;
        }
        self.left = self.left.saturating_add(earned).min(AT_ONCE);
        // What is left of a part of a query counts for the next.
        let spent = Duration::from_secs(1) / PER_SECOND;
        self.filled = spent
            .checked_mul(earned)
            .and_then(|spent| self.filled.checked_add(spent))
            .unwrap_or(now);
    }

    /// How to record that a name was refused.
    pub fn refused(&mut self, asked: &str) -> Note {
        if self.names.contains(asked) {
            return Note::Again;
        }
        if self.names.len() < MAX_NAMES {
            self.names.insert(asked.to_owned());
            return Note::First;
        }
        if std::mem::replace(&mut self.full, true) { Note::Over } else { Note::Last }
    }
}
