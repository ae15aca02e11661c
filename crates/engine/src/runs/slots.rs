//! The slots of a schedule: the instants at which a cron expression in a time zone is due.
//!
//! Pure: no clock and no I/O. The library parses the expression and finds the local times that match it.
//! This module decides which instants they are, because the rules of cron at a change of the clock are ours:
//!
//! | hours of the expression | local time that the clock skips | local time that the clock shows twice |
//! |---|---|---|
//! | given, such as `2` or `*/2` | one slot at the end of the gap | a slot at the first of both instants |
//! | `*` | no slot | a slot at both instants |
//!
//! So a schedule of each day has exactly one slot on each day, and a schedule of each hour follows the
//! elapsed time. A slot is an instant, so several local times in one gap are one slot.

use std::fmt;

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// The number of fields of a cron expression.
const FIELDS: usize = 5;

/// Why a text is not a cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error(
        "a cron expression has {FIELDS} fields (minute, hour, day of the month, month, day of the week), but this one has {found}"
    )]
    Fields { found: usize },
    #[error("invalid cron expression: {what}")]
    Syntax { what: String },
    #[error("no date within four years matches the cron expression")]
    Never,
}

/// A parsed cron expression.
#[derive(Clone)]
pub struct Cron {
    /// In UTC, so that its instants stand for local times.
    local: Crontab,
    /// Whether the field of the hours is `*`.
    is_hourly: bool,
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron").field("is_hourly", &self.is_hourly).finish_non_exhaustive()
    }
}

impl Cron {
    /// Parses an expression. `now` is the time from which it must match a date.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, CronError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        // The library accepts the name of a time zone as another field.
        let &[_, hours, _, _, _] = fields.as_slice() else {
            return Err(CronError::Fields { found: fields.len() });
        };
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let local = cronexpr::parse_crontab_with(&fields.join(" "), options);
        let local = local.map_err(|error| {
            // The library marks the place in a copy of the text, on lines of its own.
            let text = error.to_string();
            let what = text.rsplit_once("^ ").map_or(text.as_str(), |(_, what)| what);
            CronError::Syntax { what: what.replace('\n', " ") }
        })?;
        let cron = Self { local, is_hourly: hours == "*" };
        match cron.next_local(Offset::UTC.to_datetime(now)) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never),
        }
    }

    /// Returns the first whole minute after a local time that matches.
    fn next_local(&self, after: DateTime) -> Option<DateTime> {
        let after = Offset::UTC.to_timestamp(after).ok()?;
        // The library searches four years ahead, and times have an upper limit.
        after.checked_add(SignedDuration::from_hours(5 * 366 * 24)).ok()?;
        let next = self.local.find_next(MakeTimestamp(after)).ok()?;
        Some(next.datetime())
    }
}

/// The slots of a cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct Slots {
    cron: Cron,
    zone: TimeZone,
}

impl Slots {
    pub const fn new(cron: Cron, zone: TimeZone) -> Self {
        Self { cron, zone }
    }

    /// Returns the first slot after an instant; `None` if none follows within four years.
    pub fn after(&self, at: Timestamp) -> Option<Timestamp> {
        if self.cron.is_hourly { self.shown_after(at) } else { self.resolved_after(at) }
    }

    /// Returns an instant as the local time of the zone.
    pub fn local(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    /// Returns the newest slot after an instant up to another, which is included.
    pub fn newest(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let slots = std::iter::successors(self.after(after), |slot| self.after(*slot));
        slots.take_while(|slot| *slot <= until).last()
    }

    /// Returns the next instant of a matching local time; each local time has exactly one instant.
    fn resolved_after(&self, at: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(at);
        loop {
            // Local times that were shown before the clock was set back are at `at` or earlier.
            local = self.cron.next_local(local)?;
            let instant = self.resolve(local)?;
            if instant > at {
                return Some(instant);
            }
        }
    }

    /// Returns the instant of a local time: the first one, or the end of the gap that contains it.
    fn resolve(&self, local: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            AmbiguousOffset::Gap { before, .. } => {
                let shifted = before.to_timestamp(local).ok()?; // as if the clock had not been changed
                let later = shifted.checked_add(SignedDuration::from_secs(1)).ok()?;
                self.zone.preceding(later).next().map(|change| change.timestamp())
            }
        }
    }

    /// Returns the next instant at which the clock shows a matching local time.
    fn shown_after(&self, at: Timestamp) -> Option<Timestamp> {
        let (mut from, mut local) = (at, self.zone.to_datetime(at));
        loop {
            let found =
                self.zone.to_offset(from).to_timestamp(self.cron.next_local(local)?).ok()?;
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            let Some(change) = change.filter(|change| found >= *change) else { return Some(found) };
            // The instant of the change itself can be a slot.
            (from, local) = (change, self.zone.to_datetime(change));
            local = local.checked_sub(SignedDuration::from_secs(1)).ok()?;
        }
    }
}

#[cfg(test)]
mod tests;
