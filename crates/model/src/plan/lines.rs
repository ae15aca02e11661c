//! The lines of a plan file at which its parts are, for faults that are found after parsing.

/// The lines of a plan. Two plans with different lines are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct PlanLines {
    /// The file as the user named it.
    pub(super) file: String,
    pub(super) run: KeyLines,
    /// The lines of the tasks, in the order of the tasks.
    pub(super) tasks: Vec<TaskLines>,
}

impl PartialEq for PlanLines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The lines of a table and of its keys.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyLines {
    pub(super) heading: usize,
    pub(super) keys: Vec<(&'static str, usize)>,
}

impl KeyLines {
    /// Returns the line of a key, or else of the table.
    pub(super) fn line(&self, key: &str) -> usize {
        let found = self.keys.iter().find(|(name, _)| *name == key);
        found.map_or(self.heading, |(_, line)| *line)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(name, _)| *name == key)
    }
}

/// The lines of one task.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskLines {
    /// The keys of the task and of its `do` table, which have no name in common.
    pub(super) keys: KeyLines,
    /// The keys of the `box` table.
    pub(super) overrides: KeyLines,
    /// The elements of `data`.
    pub(super) data: Vec<usize>,
    /// The elements of `needs`.
    pub(super) needs: Vec<usize>,
    /// The elements of `check`.
    pub(super) checks: Vec<usize>,
}
