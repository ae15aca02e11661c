//! Limits the DNS queries of a box.
//!
//! No query leaves the machine, so queries cannot leak data. But each refusal is recorded, and a
//! box must not be able to fill the ledger or to keep the broker busy.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The rate limit of DNS queries per second; enough for a package manager with a thousand hosts.
const PER_SECOND: u32 = 500;
const BURST: u32 = 1000;
/// The maximum number of different refused DNS names that are recorded.
const MAX_NAMES: usize = 200;

/// Whether and how a refused DNS name is recorded in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The name is refused for the first time: record the name.
    First,
    /// The refused name is already recorded: record nothing.
    Again,
    /// The limit of recorded names is reached: record that no more names follow.
    Last,
    /// The limit of recorded names was reached before: record nothing.
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
        Self { left: BURST, filled: now, names: HashSet::new(), full: false }
    }

    /// Returns whether the rate limit allows to answer a DNS query now. A refused query is dropped,
    /// so the client retries.
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
        self.left = self.left.saturating_add(earned).min(BURST);
        // The remaining fraction of a query counts for the next call.
        let spent = Duration::from_secs(1) / PER_SECOND;
        self.filled = spent
            .checked_mul(earned)
            .and_then(|spent| self.filled.checked_add(spent))
            .unwrap_or(now);
    }

    /// Returns how to record that a DNS name was refused.
    pub fn refused(&mut self, name: &str) -> Note {
        if self.names.contains(name) {
            return Note::Again;
        }
        if self.names.len() < MAX_NAMES {
            self.names.insert(name.to_owned());
            return Note::First;
        }
        if std::mem::replace(&mut self.full, true) { Note::Over } else { Note::Last }
    }
}
