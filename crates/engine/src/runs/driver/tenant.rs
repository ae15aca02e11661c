//! The budget of the tenant, which holds for all its runs together.
//!
//! The limits come from the configuration, whose changes take effect without a restart. The usage of the period
//! comes from the database of runs, also that of runs that have ended; afterwards the driver counts itself. The
//! reservations are those of the open runs.
//!
//! As long as the configuration cannot be read, no box starts, unless the limits were known before.

use std::time::{Duration, Instant};

use belljar_model::RunId;
use belljar_model::tenant::{Period, TenantBudget};

use super::rounds::Driver;
use crate::config::ConfigFingerprint;
use crate::error::{EngineError, ErrorKind};
use crate::runs::budget::period::{Day, Used};
use crate::runs::budget::{Limits, Unit, UsedUp};
use crate::runs::machine::{End, FailReason, InputKind, Moment};
use crate::runs::{rows, tenants};

/// The maximum time between two looks at the configuration while runs are open.
const LOOK: Duration = Duration::from_secs(30);
/// The time between two looks at a configuration that cannot be read.
const RETRY: Duration = Duration::from_secs(2);

/// The budget of the tenant in the memory of the driver.
#[derive(Debug, Default)]
pub(super) struct TenantState {
    /// The configuration that was read last.
    fingerprint: Option<ConfigFingerprint>,
    /// The limits; `None` until the configuration could be read.
    budget: Option<TenantBudget>,
    last_look: Option<Instant>,
    /// The last fault that was reported.
    fault: Option<String>,
}

impl TenantState {
    /// Returns whether boxes can start.
    pub(super) const fn is_known(&self) -> bool {
        self.budget.is_some()
    }

    /// Returns the time until the next look at a configuration that cannot be read.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let look = self.last_look.filter(|_| !self.is_known())?;
        Some(RETRY.saturating_sub(look.elapsed()))
    }

    const fn has_period(&self) -> bool {
        match &self.budget {
            Some(budget) => !matches!(budget.period, Period::Total),
            None => false,
        }
    }
}

impl Driver<'_> {
    /// Looks at the configuration from time to time, and at the clock, whose time can be ahead of the time of
    /// the driver after the machine was suspended.
    pub(super) fn keep_budget(&mut self) -> Result<(), EngineError> {
        let pause = if self.budget.is_known() { LOOK } else { RETRY };
        if self.budget.last_look.is_none_or(|look| look.elapsed() >= pause) {
            self.look_for_budget()?;
        }
        if self.budget.has_period() {
            self.advance_to(Moment(self.state.clock().millis()));
        }
        Ok(())
    }

    /// Reads the limits of the tenant if the configuration changed. All facts must be on record.
    pub(super) fn look_for_budget(&mut self) -> Result<(), EngineError> {
        self.budget.last_look = Some(Instant::now());
        let state = self.state;
        let fingerprint = state.config_fingerprint(None);
        if self.budget.fingerprint.as_ref() == Some(&fingerprint) {
            return Ok(());
        }
        let config = match state.load_config(None) {
            Ok((config, _)) => config,
            Err(error) => {
                let kept = match self.budget.is_known() {
                    true => "the earlier budget of the tenant stays in force",
                    false => "no box starts before the budget of the tenant is known",
                };
                let fault = format!("{kept}: {error:#}");
                if self.budget.fault.as_ref() != Some(&fault) {
                    state.failed(&anyhow::anyhow!("{fault}"));
                    self.budget.fault = Some(fault);
                }
                return Ok(());
            }
        };
        let budget = config.tenant_budget(&state.caller().tenant).cloned().unwrap_or_default();
        if self.budget.budget.as_ref() != Some(&budget) {
            self.load_budget(&budget)?;
        }
        self.budget.budget = Some(budget);
        (self.budget.fingerprint, self.budget.fault) = (Some(fingerprint), None);
        Ok(())
    }

    /// Sets the limits of the tenant, and its usage in the current period.
    fn load_budget(&mut self, budget: &TenantBudget) -> Result<(), EngineError> {
        let (limits, period) = (tenants::limits(budget), budget.period);
        let mut usage = (Used::default(), None);
        // Without a limit, the usage does not matter, and a fault of the database stops nothing.
        if limits.with(Unit::Boxes, None) != Limits::default() {
            let now = self.now();
            let found = rows::up_to_date(self.state, &|database| database.tenant(period, now))?;
            let missing = || EngineError::message(ErrorKind::Broken, "there is no ledger");
            let found = found.ok_or_else(missing)?;
            usage = (found.used, found.day.renews(period));
        }
        self.accounts.open(self.tenant.clone(), limits);
        self.accounts.set_period(&self.tenant, &usage.0, usage.1);
        Ok(())
    }

    /// Begins a new period of the budget if the last one has ended at this time.
    pub(super) fn renew_budget(&mut self, now: Moment) {
        let renews = self.accounts.get(&self.tenant).and_then(|account| account.renews);
        if renews.is_none_or(|renews| now < renews) {
            return;
        }
        let period = self.budget.budget.as_ref().map(|budget| budget.period).unwrap_or_default();
        let renews = Day::of(now).renews(period);
        self.accounts.set_period(&self.tenant, &Used::default(), renews);
    }

    /// Adds to the end of an attempt that used up its lease which budget has nothing left.
    pub(super) fn explained(&self, run: RunId, mut kind: InputKind) -> InputKind {
        if let InputKind::Ended(of, End::Failed { reason: FailReason::OverBudget, text }, _) =
            &mut kind
            && let Some(live) = self.runs.get(&run)
            && let Some(spent) =
                self.accounts.exhausted(&live.owners(&self.state.caller().tenant, &of.task))
        {
            text.push_str(&format!("; {}", UsedUp::from(&spent)));
        }
        kind
    }
}
