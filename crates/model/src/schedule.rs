//! Schedules: plans that are started at given times.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::config::{ConfigError, Fault};
use crate::id::RunName;

/// A schedule of `belljar.toml`. The engine checks the cron expression and the time zone, because the check of
/// a zone reads the time zone database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub name: RunName,
    /// The file of the plan. Starts with `~` if the file does.
    pub plan: PathBuf,
    /// The cron expression with five fields.
    pub cron: String,
    /// The name of the time zone, such as `Europe/Berlin`.
    pub zone: String,
    pub missed: Missed,
    pub overlap: Overlap,
    /// The configuration file, for errors.
    pub file: PathBuf,
    /// The line numbers of the values.
    pub lines: ScheduleLines,
}

/// The line numbers of a schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleLines {
    pub heading: usize,
    pub plan: usize,
    pub cron: usize,
    /// The line of `zone`, or of the heading if the zone is the default.
    pub zone: usize,
}

/// A key of a schedule whose value can be invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleKey {
    Plan,
    Cron,
    Zone,
}

impl Schedule {
    /// The time zone of a schedule without `zone`.
    pub const DEFAULT_ZONE: &str = "UTC";

    /// Returns the error about the value of a key, with the file and the line.
    pub fn error(&self, key: ScheduleKey, what: String) -> ConfigError {
        let (key, line, value) = match key {
            ScheduleKey::Plan => ("plan", self.lines.plan, self.plan.to_string_lossy()),
            ScheduleKey::Cron => ("cron", self.lines.cron, self.cron.as_str().into()),
            ScheduleKey::Zone => ("zone", self.lines.zone, self.zone.as_str().into()),
        };
        let fault = Fault::Value { key: key.to_owned(), quoted: format!("\"{value}\""), what };
        ConfigError { file: self.file.clone(), line, fault }
    }
}

/// What happens to slots at which no driver ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Missed {
    /// The newest missed slot is fired, if it is at most one hour late.
    #[default]
    Once,
    /// Missed slots are never fired.
    Skip,
}

/// What happens at a slot while the run of an earlier slot is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The slot is not fired.
    #[default]
    Skip,
    /// One slot waits until the earlier run has ended.
    Queue,
    /// The slot is fired.
    Allow,
}

/// A text is not a value of `missed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write `once` or `skip`")]
pub struct MissedError;

/// A text is not a value of `overlap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write `skip`, `queue` or `allow`")]
pub struct OverlapError;

impl Missed {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Skip => "skip",
        }
    }
}

impl Overlap {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Allow => "allow",
        }
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Missed {
    type Err = MissedError;

    fn from_str(text: &str) -> Result<Self, MissedError> {
        [Self::Once, Self::Skip].into_iter().find(|it| it.name() == text).ok_or(MissedError)
    }
}

impl FromStr for Overlap {
    type Err = OverlapError;

    fn from_str(text: &str) -> Result<Self, OverlapError> {
        let all = [Self::Skip, Self::Queue, Self::Allow];
        all.into_iter().find(|it| it.name() == text).ok_or(OverlapError)
    }
}
