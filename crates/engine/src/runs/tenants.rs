//! The budget of a tenant: its limits in `belljar.toml`, and its usage in the database of runs.

use belljar_model::Config;
use belljar_model::caller::TenantId;
use belljar_model::tenant::{Period, TenantBudget};

use super::budget::period::{Day, Used};
use super::budget::{Amounts, Limits, Unit, UsedUp};
use super::machine::Moment;
use super::rows;
use crate::error::EngineError;
use crate::scope::Scoped;

/// The number of boxes of a tenant at the same time, if its budget does not limit them.
const DEFAULT_BOXES: u64 = 4;

/// Returns the limits of a tenant.
pub(super) fn limits(budget: &TenantBudget) -> Limits {
    let limits = Limits::from(&budget.limits);
    limits.with(Unit::Boxes, limits.get(Unit::Boxes).or(Some(DEFAULT_BOXES)))
}

/// The budget of a tenant and its usage in the current period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    pub tenant: TenantId,
    pub period: Period,
    /// The start of the period; `None` if the whole history counts.
    pub since: Option<Moment>,
    /// The end of the period.
    pub renews: Option<Moment>,
    pub limits: Limits,
    pub used: Used,
    /// The leases of tasks that run.
    pub reserved: Amounts,
}

impl TenantView {
    /// Returns the usage of a unit. Boxes are in use as long as they run.
    pub fn used(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Boxes => self.reserved.get(unit),
            Unit::Calls | Unit::Tokens | Unit::Money | Unit::Seconds | Unit::Bytes => {
                self.used.all().get(unit)
            }
        }
    }

    /// Returns what is neither used nor reserved; `None` without a limit.
    pub fn remaining(&self, unit: Unit) -> Option<u64> {
        let taken = self.reserved.plus(self.used.all());
        Some(self.limits.get(unit)?.saturating_sub(taken.get(unit)))
    }

    /// Returns the limits that are used up, so that no task can start in a box.
    pub fn used_up(&self) -> Vec<UsedUp> {
        let units = Unit::ALL.into_iter().filter(|unit| *unit != Unit::Boxes);
        let used_up = |unit: Unit| {
            let cap = self.limits.get(unit).filter(|cap| self.used(unit) >= *cap)?;
            Some(UsedUp {
                budget: format!("tenant {}", self.tenant),
                unit,
                cap,
                renews: self.renews,
            })
        };
        units.filter_map(used_up).collect()
    }
}

/// Returns the budget of the caller's tenant and its usage in the current period.
///
/// The database is brought up to date first, and rebuilt if it is missing or damaged.
pub fn budget(state: &Scoped, config: &Config) -> Result<TenantView, EngineError> {
    let tenant = state.caller().tenant.clone();
    let budget = config.tenant_budget(&tenant).cloned().unwrap_or_default();
    let (period, now) = (budget.period, Moment(state.clock().millis()));
    let usage = rows::up_to_date(state, &|database| database.tenant(period, now))?;
    let day = usage.map_or_else(|| Day::of(now), |usage| usage.day);
    Ok(TenantView {
        tenant,
        period,
        since: day.since(period),
        renews: day.renews(period),
        limits: limits(&budget),
        used: usage.map(|usage| usage.used).unwrap_or_default(),
        reserved: usage.map(|usage| usage.reserved).unwrap_or_default(),
    })
}
