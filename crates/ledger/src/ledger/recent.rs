//! A bounded map of the runs that were used recently, for processes that run for days.

use std::collections::HashMap;

use belljar_model::RunId;

/// Half of the maximum number of remembered runs.
const HALF: usize = 2048;

/// A map with a value for each recently used run: at least [`HALF`] entries are kept, at most twice
/// as many.
#[derive(Debug)]
pub(super) struct Recent<V> {
    young: HashMap<RunId, V>,
    /// Dropped when `young` is full; an entry that is used before that moves to `young`.
    old: HashMap<RunId, V>,
}

impl<V: Copy> Recent<V> {
    pub(super) fn new() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }

    /// Returns the value of a run and marks the run as used.
    pub(super) fn get(&mut self, run: RunId) -> Option<V> {
        let value = *self.young.get(&run).or_else(|| self.old.get(&run))?;
        self.insert(run, value);
        Some(value)
    }

    pub(super) fn insert(&mut self, run: RunId, value: V) {
        if self.young.len() >= HALF && !self.young.contains_key(&run) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(run, value);
    }

    /// Replaces the value of a remembered run without marking the run as used.
    pub(super) fn update(&mut self, run: RunId, value: V) {
        for runs in [&mut self.young, &mut self.old] {
            if let Some(known) = runs.get_mut(&run) {
                *known = value;
            }
        }
    }

    pub(super) fn extend(&mut self, values: impl IntoIterator<Item = (RunId, V)>) {
        values.into_iter().for_each(|(run, value)| self.insert(run, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: usize) -> RunId {
        RunId::new(u64::try_from(number).unwrap(), 0)
    }

    #[test]
    fn recent_drops_unused_runs_and_keeps_used_ones() {
        let mut recent = Recent::new();
        for number in 0..10 * HALF {
            recent.insert(run(number), number);
            assert_eq!(recent.get(run(0)), Some(0), "in use");
            assert!(recent.young.len() <= HALF && recent.old.len() <= HALF);
        }
        assert_eq!(recent.get(run(1)), None);
        assert_eq!(recent.get(run(10 * HALF - 1)), Some(10 * HALF - 1));
    }

    #[test]
    fn update_changes_a_remembered_run_of_either_half_and_adds_no_run() {
        let mut recent = Recent::new();
        recent.extend((0..=HALF).map(|number| (run(number), 1)));
        assert!(recent.old.contains_key(&run(0)) && recent.young.contains_key(&run(HALF)));
        for number in [0, HALF, HALF + 1] {
            recent.update(run(number), 2);
        }
        assert_eq!(
            [0, HALF, HALF + 1].map(|number| recent.get(run(number))),
            [Some(2), Some(2), None]
        );
    }
}
