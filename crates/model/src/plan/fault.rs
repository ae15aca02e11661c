//! Faults of a plan file, with file and line.

use std::fmt;

use serde::Serialize;

use crate::display::safe_line;

/// The maximum number of faults that are reported in full.
const MAX_FAULTS: usize = 20;
/// The maximum length of a reason; a cycle of many tasks is longer than every other reason.
const MAX_REASON: usize = 8 << 10; // bytes
/// The maximum length of a quote from the file, in characters.
const MAX_QUOTE: usize = 60; // characters

/// One fault of a plan. Safe to print, although a model could have written the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanFault {
    /// The file as the user named it; `-` is standard input.
    pub file: String,
    /// The line number of the fault, counted from 1.
    pub line: usize,
    /// What is wrong and what to write instead, without control characters.
    pub reason: String,
}

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", safe_line(&self.file), self.line, self.reason)
    }
}

/// The faults of a plan in the order of the file: the first ones in full, and the number of the rest.
///
/// Printed, they are one line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanFaults {
    faults: Vec<PlanFault>,
    more: usize,
}

impl PlanFaults {
    /// Returns the faults that are reported in full, at least one and at most 20.
    pub fn list(&self) -> &[PlanFault] {
        &self.faults
    }

    /// Returns a list with one fault.
    pub fn one(file: &str, line: usize, reason: String) -> Self {
        let mut collector = Collector::new(file);
        collector.add(line, || reason);
        collector.into_faults()
    }

    /// Returns the faults of a file, each with its line, or `None` if there are none.
    pub fn of(file: &str, faults: impl IntoIterator<Item = (usize, String)>) -> Option<Self> {
        let mut collector = Collector::new(file);
        for (line, reason) in faults {
            collector.add(line, || reason);
        }
        collector.finish(()).err()
    }

    /// Returns the faults of both lists, in the order of the file.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.faults.extend(other.faults);
        self.faults.sort_by_key(|fault| fault.line);
        let rest = self.faults.len().saturating_sub(MAX_FAULTS);
        self.faults.truncate(MAX_FAULTS);
        self.more = self.more.saturating_add(other.more).saturating_add(rest);
        self
    }

    /// Returns the number of further faults.
    pub const fn more(&self) -> usize {
        self.more
    }
}

impl std::error::Error for PlanFaults {}

impl fmt::Display for PlanFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{fault}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// The faults found so far.
#[derive(Debug)]
pub(super) struct Collector {
    file: String,
    faults: Vec<PlanFault>,
    more: usize,
}

impl Collector {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), faults: Vec::new(), more: 0 }
    }

    /// Adds a fault. The reason is built only if it will be reported, because a file can have very
    /// many faults and a suggestion takes time.
    pub(super) fn add(&mut self, line: usize, reason: impl FnOnce() -> String) {
        if self.faults.len() == MAX_FAULTS {
            self.more += 1;
            return;
        }
        let mut reason = safe_line(reason());
        if reason.len() > MAX_REASON {
            reason.truncate(reason.floor_char_boundary(MAX_REASON));
            reason.push('…');
        }
        self.faults.push(PlanFault { file: self.file.clone(), line, reason });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns `value`, or the faults if there are any.
    pub(super) fn finish<T>(self, value: T) -> Result<T, PlanFaults> {
        if self.is_empty() { Ok(value) } else { Err(self.into_faults()) }
    }

    pub(super) fn into_faults(mut self) -> PlanFaults {
        self.faults.sort_by_key(|fault| fault.line);
        PlanFaults { faults: self.faults, more: self.more }
    }
}

/// Returns the beginning of a text from the file for an error message: one short line.
pub(super) fn quote(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut quote: String = line.chars().take(MAX_QUOTE).collect();
    if quote.len() < text.len() {
        quote.push('…');
    }
    quote
}
