//! Timers of a program: when which number is due. What it means is known to the prelude.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(Instant, u64), u32>,
    keys: HashMap<u32, (Instant, u64)>,
    /// Those that do not keep a program alive.
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

    pub(super) fn refer(&mut self, id: u32, holds: bool) {
        if holds {
            self.weak.remove(&id);
        } else {
            self.weak.insert(id);
        }
    }

    pub(super) fn refers(&self, id: u32) -> bool {
        self.keys.contains_key(&id) && !self.weak.contains(&id)
    }

    /// Whether one is running that keeps the program alive.
    pub(super) fn hold(&self) -> bool {
        self.keys.keys().any(|id| !self.weak.contains(id))
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the first that is due: in the order of their times, then of their starts.
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
    fn timers_are_due_in_the_order_of_their_times_and_then_of_their_starts() {
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
    fn a_timer_that_was_told_so_keeps_nobody_alive() {
        let mut timers = Timers::default();
        timers.start(1, Duration::from_secs(60));
        assert!(timers.hold());
        timers.refer(1, false);
        assert!(!timers.hold());
        assert!(timers.next().is_some());
    }
}
