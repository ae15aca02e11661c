//! The periods of the budgets of tenants, and the amounts that the facts of runs book.
//!
//! Usage counts in the UTC day of the fact that settles it, and in the month of that day: an attempt that ends
//! after midnight counts in the new day as a whole. Reservations count in every period until they are settled.
//! A fact before the newest day with usage counts in that day, so a clock that was set back does not open a
//! past period again.
//!
//! Pure: the database of runs folds the facts of the ledger with [`book`], and so do tests.

use belljar_model::tenant::Period;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{Amounts, Limits, Settlement, settle};
use crate::runs::machine::{Ended, FactKind, Moment, TaskRef};

/// The usage of an account in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// The usage of reserved amounts.
    pub spent: Amounts,
    /// The usage beyond reservations, and of units without a limit.
    pub over: Amounts,
}

impl Used {
    /// Returns the sum of all usage.
    pub fn all(&self) -> Amounts {
        self.spent.plus(self.over)
    }
}

/// A day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(Date);

impl Day {
    /// Returns the day of a time.
    pub fn of(at: Moment) -> Self {
        let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
        let at = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        Self(at.to_zoned(TimeZone::UTC).date())
    }

    /// Parses a day that is written as `2026-11-18`.
    pub fn parse(text: &str) -> Option<Self> {
        let date: Date = text.parse().ok()?;
        (date.to_string() == text).then_some(Self(date))
    }

    /// Returns the name of the period that contains the day; `None` for the total.
    pub fn name(self, period: Period) -> Option<String> {
        match period {
            Period::Day => Some(self.0.to_string()),
            Period::Month => Some(self.0.strftime("%Y-%m").to_string()),
            Period::Total => None,
        }
    }

    /// Returns the start of the period that contains the day; `None` for the total.
    pub fn since(self, period: Period) -> Option<Moment> {
        match period {
            Period::Day => start(self.0),
            Period::Month => start(self.0.first_of_month()),
            Period::Total => None,
        }
    }

    /// Returns the end of the period that contains the day; `None` for the total.
    pub fn renews(self, period: Period) -> Option<Moment> {
        let last = match period {
            Period::Day => self.0,
            Period::Month => self.0.last_of_month(),
            Period::Total => return None,
        };
        start(last.tomorrow().ok()?)
    }
}

/// Returns the first time of a day; `None` for a day that no time of this system can be in.
fn start(date: Date) -> Option<Moment> {
    let start = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond();
    u64::try_from(start).ok().map(Moment)
}

/// The amounts of an attempt that are not settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Held {
    #[default]
    Nothing,
    /// The lease of an attempt that runs.
    Lease(Limits),
    /// The rest of the lease of an attempt with an output, which its checks can use. Facts alone do not tell
    /// whether checks follow, so it does not count as reserved here.
    Rest(Limits),
}

/// What a fact changes in the accounts of a task, of its run and of its tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Booking {
    pub reserved: Amounts,
    /// The part of earlier reservations that ends.
    pub returned: Amounts,
    pub used: Used,
    /// What the attempt holds after the fact.
    pub held: Held,
}

/// Returns the instance whose accounts a fact changes.
pub fn booked_instance(fact: &FactKind) -> Option<TaskRef> {
    match fact {
        FactKind::TaskStarted { of, .. }
        | FactKind::BudgetLeased { of, .. }
        | FactKind::TaskEnded { of, .. }
        | FactKind::TaskJudged { of, .. }
        | FactKind::TaskLost { of, .. } => Some(of.instance()),
        FactKind::TaskStopped { of, .. } => Some(of.clone()),
        FactKind::PlanAccepted { .. }
        | FactKind::DriverOpened { .. }
        | FactKind::GrantRemoved { .. }
        | FactKind::TaskRetrying { .. }
        | FactKind::ApprovalAsked { .. }
        | FactKind::ApprovalGiven { .. }
        | FactKind::ApprovalRefused { .. }
        | FactKind::AttentionSettled { .. }
        | FactKind::PlanCancelling { .. }
        | FactKind::PlanEnded { .. } => None,
    }
}

/// Returns what a fact books if the last attempt of its instance holds these amounts.
pub fn book(fact: &FactKind, held: &Held) -> Booking {
    match fact {
        FactKind::TaskStarted { lease, .. } => {
            let (reserved, held) = (lease.amounts(), Held::Lease(*lease));
            Booking { reserved, held, ..Booking::default() }
        }
        FactKind::BudgetLeased { more, .. } => match held {
            Held::Lease(lease) => {
                let (reserved, held) = (more.amounts(), Held::Lease(lease.plus(more)));
                Booking { reserved, held, ..Booking::default() }
            }
            // The rest of a lease that is kept for checks is not booked as reserved.
            Held::Rest(rest) => Booking { held: Held::Rest(rest.plus(more)), ..Booking::default() },
            Held::Nothing => Booking::default(),
        },
        FactKind::TaskEnded { end, usage, .. } => {
            let (booking, rest) = settled(held, usage.as_ref());
            match (end, held) {
                (Ended::Done(_), Held::Lease(_)) => Booking { held: Held::Rest(rest), ..booking },
                (Ended::Done(_) | Ended::Failed { .. } | Ended::Lost(_), _) => booking,
            }
        }
        FactKind::TaskJudged { usage, .. } | FactKind::TaskStopped { usage, .. } => {
            settled(held, usage.as_ref()).0
        }
        FactKind::TaskLost { .. } => settled(held, None).0,
        FactKind::PlanAccepted { .. }
        | FactKind::DriverOpened { .. }
        | FactKind::GrantRemoved { .. }
        | FactKind::TaskRetrying { .. }
        | FactKind::ApprovalAsked { .. }
        | FactKind::ApprovalGiven { .. }
        | FactKind::ApprovalRefused { .. }
        | FactKind::AttentionSettled { .. }
        | FactKind::PlanCancelling { .. }
        | FactKind::PlanEnded { .. } => Booking { held: *held, ..Booking::default() },
    }
}

/// Settles everything that an attempt holds. Also returns the part of the lease that was not used.
fn settled(held: &Held, usage: Option<&Amounts>) -> (Booking, Limits) {
    let (lease, returned) = match held {
        Held::Nothing => return (Booking::default(), Limits::default()),
        Held::Lease(lease) => (lease, lease.amounts()),
        Held::Rest(lease) => (lease, Amounts::NONE),
    };
    let parts = settle(lease, usage);
    let Settlement { spent, over, .. } = parts;
    let used = Used { spent, over };
    (Booking { returned, used, ..Booking::default() }, parts.rest(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Moment {
        let time: Timestamp = text.parse().unwrap();
        Moment(time.as_millisecond().try_into().unwrap())
    }

    #[test]
    fn periods_are_days_and_months_of_utc() {
        for (time, day, month, next_day, next_month) in [
            ("1970-01-01T00:00:00Z", "1970-01-01", "1970-01", "1970-01-02", "1970-02-01"),
            ("2024-02-28T23:59:59.999Z", "2024-02-28", "2024-02", "2024-02-29", "2024-03-01"),
            ("2026-12-31T23:59:59Z", "2026-12-31", "2026-12", "2027-01-01", "2027-01-01"),
            ("2026-11-19T00:30:00+02:00", "2026-11-18", "2026-11", "2026-11-19", "2026-12-01"),
        ] {
            let found = Day::of(at(time));
            assert_eq!(found.name(Period::Day).as_deref(), Some(day));
            assert_eq!(found.name(Period::Month).as_deref(), Some(month));
            assert_eq!(found.name(Period::Total), None);
            let midnight = |day: &str| Some(at(&format!("{day}T00:00:00Z")));
            assert_eq!(found.since(Period::Day), midnight(day));
            assert_eq!(found.since(Period::Month), midnight(&format!("{month}-01")));
            assert_eq!(found.renews(Period::Day), midnight(next_day));
            assert_eq!(found.renews(Period::Month), midnight(next_month));
            assert_eq!((found.since(Period::Total), found.renews(Period::Total)), (None, None));
            assert_eq!(Day::parse(day), Some(found));
        }
        assert_eq!(Day::of(Moment(u64::MAX)).renews(Period::Day), None, "the last day never ends");
        for wrong in ["", "2026-11", "2026-13-01", "20261118", "+002026-11-18"] {
            assert_eq!(Day::parse(wrong), None, "{wrong}");
        }
    }
}
