//! The due times of a program's timers, by id. The prelude keeps their callbacks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// The running timers of a program.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(Instant, u64), u32>,
    keys: HashMap<u32, (Instant, u64)>,
    /// The ids of timers that do not keep the program running (`unref`).
    weak: HashSet<u32>,
    started: u64,
}

impl Timers {
    pub(super) fn start(&mut self, id: u32, delay: Duration) {
        self.forget(id);
        self.started += 1;
        let now = Instant::now();
        let key = (now.checked_add(delay).unwrap_or(now), self.started);
        self.due.insert(key, id);
        self.keys.insert(id, key);
    }

    pub(super) fn stop(&mut self, id: u32) {
        self.forget(id);
        self.weak.remove(&id);
    }

    fn forget(&mut self, id: u32) {
        if let Some(key) = self.keys.remove(&id) {
            self.due.remove(&key);
        }
    }

    /// Sets whether a timer keeps the program running.
    pub(super) fn set_ref(&mut self, id: u32, holds: bool) {
        if holds {
            self.weak.remove(&id);
        } else {
            self.weak.insert(id);
        }
    }

    pub(super) fn has_ref(&self, id: u32) -> bool {
        self.keys.contains_key(&id) && !self.weak.contains(&id)
    }

    /// Returns whether any timer keeps the program running.
    pub(super) fn keep_alive(&self) -> bool {
        self.keys.keys().any(|id| !self.weak.contains(id))
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Removes and returns the id of the first due timer, ordered by due time and then by start.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let id = entry.remove();
        self.keys.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_due_by_time_and_then_by_start() {
        let mut timers = Timers::default();
        for (id, delay) in [(1, 20), (2, 10), (3, 10), (4, 5)] {
            timers.start(id, Duration::from_millis(delay));
        }
        timers.stop(3);
        let late = Instant::now() + Duration::from_secs(1);
        let order: Vec<u32> = std::iter::from_fn(|| timers.take_due(late)).collect();
        assert_eq!(order, [4, 2, 1]);
        assert!(timers.next().is_none());
    }

    #[test]
    fn unreferenced_timer_does_not_keep_the_program_running() {
        let mut timers = Timers::default();
        timers.start(1, Duration::from_secs(60));
        assert!(timers.keep_alive());
        timers.set_ref(1, false);
        assert!(!timers.keep_alive());
        assert!(timers.next().is_some());
    }
}
