//! Budgets: accounts with hard limits, for a tenant, a run, a task and a secret.
//!
//! An amount is reserved in all accounts of an owner chain before a task starts, and settled after it
//! ended: the used part is spent, the rest is returned. If the usage is unknown, the whole reservation
//! is spent. Retries and checks pay from the same accounts as first attempts.
//!
//! The account of a tenant holds for all its runs together, also for those that have ended. [`period`] has the
//! rules for its period, and the fold of facts into amounts that the database of runs and tests use.
//!
//! **Invariant:** in each account, `reserved + spent <= cap` for every unit with a cap. Usage beyond a
//! reservation is counted apart, as `over`, and reduces what remains. A limit that is lowered below this sum
//! ends nothing that runs, but nothing more is reserved.

pub mod period;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use belljar_model::caller::TenantId;
use belljar_model::net::{Budget, MicroUsd, SecretName};
use belljar_model::plan::{RunBudget, TaskId};
use belljar_model::{ByteSize, RunId, Timeout};
use serde::{Deserialize, Serialize};

use super::machine::Moment;
use crate::moment;

/// A quantity that budgets limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Requests through the broker.
    Calls,
    Tokens,
    /// Millionths of a US dollar.
    Money,
    /// Seconds of boxes.
    Seconds,
    /// Bytes that pass the broker.
    Bytes,
    /// Boxes at the same time. They are reserved and returned, but never spent.
    Boxes,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; UNITS] =
        [Self::Calls, Self::Tokens, Self::Money, Self::Seconds, Self::Bytes, Self::Boxes];

    /// The name of the unit in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
            Self::Money => "money",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Boxes => "boxes",
        }
    }

    /// Returns the unit with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Returns an amount of the unit as text, for example `5 USD` or `20 tokens`.
    pub fn text(self, amount: u64) -> String {
        match self {
            Self::Money => MicroUsd(amount).to_string(),
            Self::Seconds if amount == 0 => "0s".to_owned(),
            Self::Seconds => Timeout(Some(Duration::from_secs(amount))).to_string(),
            Self::Bytes => match ByteSize::new(amount).map(|size| size.to_string()) {
                Some(size) if size.ends_with('B') => size,
                Some(_) | None => format!("{amount} bytes"),
            },
            Self::Calls | Self::Tokens | Self::Boxes => format!("{amount} {}", self.name()),
        }
    }
}

const UNITS: usize = 6;

/// An amount of each unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts([u64; UNITS]);

/// A limit for each unit; a missing value means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits([Option<u64>; UNITS]);

impl Amounts {
    /// Nothing of each unit.
    pub const NONE: Self = Self([0; UNITS]);

    /// Returns the amount of a unit.
    #[expect(clippy::indexing_slicing, reason = "one place for each unit")]
    pub const fn get(&self, unit: Unit) -> u64 {
        self.0[unit as usize]
    }

    /// Sets the amount of a unit.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "one place for each unit")]
    pub const fn with(mut self, unit: Unit, amount: u64) -> Self {
        self.0[unit as usize] = amount;
        self
    }

    /// Returns whether all amounts are zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let amount = |unit| combine(self.get(unit), other.get(unit));
        Self(Unit::ALL.map(amount))
    }

    /// Adds amounts; a sum above the maximum of `u64` is that maximum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// Subtracts amounts; a negative difference is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// Returns the smaller amount of each unit.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.each(other, u64::min)
    }
}

impl Limits {
    /// Returns the limit of a unit.
    #[expect(clippy::indexing_slicing, reason = "one place for each unit")]
    pub const fn get(&self, unit: Unit) -> Option<u64> {
        self.0[unit as usize]
    }

    /// Sets the limit of a unit.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "one place for each unit")]
    pub const fn with(mut self, unit: Unit, limit: Option<u64>) -> Self {
        self.0[unit as usize] = limit;
        self
    }

    /// Returns the amounts of the limited units; an unlimited unit reserves nothing.
    pub fn amounts(&self) -> Amounts {
        Amounts(self.0.map(Option::unwrap_or_default))
    }

    /// Returns the limits of the units that the broker counts.
    pub fn network(&self) -> Budget {
        Budget {
            requests: self.get(Unit::Calls),
            // A lease is never zero. If it were, the box would get one byte instead of no limit.
            bytes: self.get(Unit::Bytes).and_then(|bytes| ByteSize::new(bytes.max(1))),
            tokens: self.get(Unit::Tokens),
            money: self.get(Unit::Money).map(MicroUsd),
        }
    }

    /// Adds the amounts of an extension; an unlimited unit stays unlimited.
    #[must_use]
    pub fn plus(self, more: &Self) -> Self {
        let sum = |unit| Some(self.get(unit)?.saturating_add(more.get(unit).unwrap_or(0)));
        Self(Unit::ALL.map(sum))
    }
}

impl From<&RunBudget> for Limits {
    fn from(budget: &RunBudget) -> Self {
        let RunBudget { calls, tokens, money, time, bytes, boxes, secrets: _ } = budget;
        Self([
            *calls,
            *tokens,
            money.map(|money| money.0),
            time.as_ref().map(Duration::as_secs),
            bytes.map(|bytes| bytes.as_u64()),
            boxes.map(u64::from),
        ])
    }
}

impl From<&Budget> for Limits {
    fn from(budget: &Budget) -> Self {
        let Budget { requests, bytes, tokens, money } = budget;
        Self::default()
            .with(Unit::Calls, *requests)
            .with(Unit::Tokens, *tokens)
            .with(Unit::Money, money.map(|money| money.0))
            .with(Unit::Bytes, bytes.map(|bytes| bytes.as_u64()))
    }
}

/// The owner of an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Tenant(TenantId),
    Run(RunId),
    /// A task with all its instances and attempts.
    Task(RunId, TaskId),
    /// A secret in a run. All traffic of the boxes that have the secret counts.
    Secret(RunId, SecretName),
    /// A secret in a task.
    TaskSecret(RunId, TaskId, SecretName),
}

/// The name of an owner in the ledger and in messages about one run, which it does not repeat.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
            Self::Run(_) => f.write_str("run"),
            Self::Task(_, task) => write!(f, "task {task}"),
            Self::Secret(_, name) => write!(f, "secret {name}"),
            Self::TaskSecret(_, task, name) => write!(f, "secret {name} of task {task}"),
        }
    }
}

/// The limits, reservations and usage of one owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    pub cap: Limits,
    pub reserved: Amounts,
    pub spent: Amounts,
    /// The usage beyond reservations, and of units without a limit, which reserve nothing.
    pub over: Amounts,
    /// When the period ends. Then the usage is counted from zero again.
    pub renews: Option<Moment>,
}

impl Account {
    /// Returns what can still be reserved; `None` without a limit.
    pub fn remaining(&self, unit: Unit) -> Option<u64> {
        let used = self.reserved.plus(self.spent).plus(self.over);
        Some(self.cap.get(unit)?.saturating_sub(used.get(unit)))
    }
}

/// The reason why an amount cannot be reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The budget is used up, and no wait can change that.
    Spent(Spent),
    /// Running tasks hold the rest of the budget. The reservation can succeed when one of them ends.
    Busy,
}

/// A budget that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    pub owner: Owner,
    pub unit: Unit,
    pub cap: u64,
    /// When the budget is available again; `None` if it never is.
    pub renews: Option<Moment>,
}

/// A budget that is used up, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedUp {
    /// The owner of the budget, for example `tenant local`.
    pub budget: String,
    pub unit: Unit,
    pub cap: u64,
    pub renews: Option<Moment>,
}

impl From<&Spent> for UsedUp {
    fn from(Spent { owner, unit, cap, renews }: &Spent) -> Self {
        Self { budget: owner.to_string(), unit: *unit, cap: *cap, renews: *renews }
    }
}

impl fmt::Display for UsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, unit, cap, renews } = self;
        write!(f, "the budget of {budget} is used up ({})", unit.text(*cap))?;
        match renews {
            Some(at) => {
                let at = moment::readable_seconds(at.0.saturating_mul(1_000_000));
                write!(f, "; it is renewed at {at}")
            }
            None => Ok(()),
        }
    }
}

/// The parts of a lease after its use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settlement {
    /// The part that moves from reserved to spent.
    pub spent: Amounts,
    /// The part that is returned.
    pub released: Amounts,
    /// The usage beyond the lease.
    pub over: Amounts,
}

impl Settlement {
    /// Returns the part of a lease that was not used, with the limits of the lease.
    pub fn rest(&self, lease: &Limits) -> Limits {
        Limits(Unit::ALL.map(|unit| lease.get(unit).map(|_| self.released.get(unit))))
    }

    /// Returns the same end of a reservation without its usage, which is already counted.
    #[must_use]
    pub fn returned(&self) -> Self {
        Self { released: self.released.plus(self.spent), ..Self::default() }
    }
}

/// All accounts, by their owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts(BTreeMap<Owner, Account>);

impl Accounts {
    /// Creates an account, or changes the limits of an existing account.
    pub fn open(&mut self, owner: Owner, cap: Limits) {
        self.0.entry(owner).or_default().cap = cap;
    }

    /// Replaces the usage of an account by that of a period.
    pub fn set_period(&mut self, owner: &Owner, used: &period::Used, renews: Option<Moment>) {
        let account = self.0.entry(owner.clone()).or_default();
        (account.spent, account.over, account.renews) = (used.spent, used.over, renews);
    }

    /// Returns the account of an owner.
    pub fn get(&self, owner: &Owner) -> Option<&Account> {
        self.0.get(owner)
    }

    /// Returns all accounts with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, &Account)> {
        self.0.iter()
    }

    /// Reserves a lease for a task in all accounts of `chain`, or nothing.
    ///
    /// The lease has for each unit the limit `cap` of the task. If the task has none, it has the
    /// remaining budget divided by the number of ready tasks. The remaining budget of a tenant is also
    /// divided by the number of free boxes, so that other runs can start. No lease is above a remaining
    /// budget. A lease has one box if boxes are limited.
    pub fn lease(&mut self, chain: &[Owner], cap: &Limits, ready: u64) -> Result<Limits, Refusal> {
        let mut lease = Limits::default();
        for unit in Unit::ALL {
            let Some(remaining) = self.remaining(chain, unit) else {
                lease = lease.with(unit, cap.get(unit));
                continue;
            };
            if remaining == 0 {
                return Err(self.refusal(chain, unit));
            }
            let share = self.share(chain, unit, ready);
            let amount = match unit {
                Unit::Boxes => 1,
                Unit::Calls | Unit::Tokens | Unit::Money | Unit::Seconds | Unit::Bytes => {
                    cap.get(unit).unwrap_or(share).min(remaining)
                }
            };
            lease = lease.with(unit, Some(amount));
        }
        self.restore(chain, &lease);
        Ok(lease)
    }

    /// Reserves more for a running task; returns nothing if nothing remains.
    ///
    /// An extension of a unit is at most as large as the lease, and at most the remaining budget
    /// divided by the number of ready and running tasks.
    pub fn extend(&mut self, chain: &[Owner], lease: &Limits, tasks: u64) -> Option<Limits> {
        let more = |unit| {
            let held = lease.get(unit)?;
            let remaining = self.remaining(chain, unit)?;
            let share = (remaining / tasks.max(1)).max(1).min(remaining);
            (unit != Unit::Boxes).then_some(share.min(held)).filter(|amount| *amount > 0)
        };
        let more = Limits(Unit::ALL.map(more));
        if more.amounts().is_zero() {
            return None;
        }
        self.restore(chain, &more);
        Some(more)
    }

    /// Reserves a recorded lease again, after the accounts were rebuilt from the ledger.
    pub fn restore(&mut self, chain: &[Owner], lease: &Limits) {
        for owner in chain {
            let account = self.0.entry(owner.clone()).or_default();
            account.reserved = account.reserved.plus(lease.amounts());
        }
    }

    /// Settles a part of a lease in all accounts of `chain`.
    pub fn settle(&mut self, chain: &[Owner], settlement: &Settlement) {
        let Settlement { spent, released, over } = settlement;
        for owner in chain {
            let account = self.0.entry(owner.clone()).or_default();
            let free = account.reserved.minus(spent.plus(*released));
            account.reserved = free;
            account.spent = account.spent.plus(*spent);
            account.over = account.over.plus(*over);
        }
    }

    /// Returns the part of the remaining budget that one of the ready tasks gets.
    fn share(&self, chain: &[Owner], unit: Unit, ready: u64) -> u64 {
        let part = |owner: &Owner| {
            let account = self.0.get(owner)?;
            let tasks = match owner {
                Owner::Tenant(_) => account.remaining(Unit::Boxes).unwrap_or(1).max(ready),
                Owner::Run(_) | Owner::Task(..) | Owner::Secret(..) | Owner::TaskSecret(..) => {
                    ready
                }
            };
            Some(account.remaining(unit)? / tasks.max(1))
        };
        chain.iter().filter_map(part).min().unwrap_or(u64::MAX).max(1)
    }

    fn remaining(&self, chain: &[Owner], unit: Unit) -> Option<u64> {
        chain.iter().filter_map(|owner| self.0.get(owner)?.remaining(unit)).min()
    }

    /// Returns why nothing remains. A budget that is only reserved can be returned.
    fn refusal(&self, chain: &[Owner], unit: Unit) -> Refusal {
        let spent = chain.iter().find_map(|owner| {
            let account = self.0.get(owner)?;
            let cap = account.cap.get(unit)?;
            let is_used_up = account.spent.plus(account.over).get(unit) >= cap;
            let spent = || Spent { owner: owner.clone(), unit, cap, renews: account.renews };
            is_used_up.then(spent)
        });
        spent.map_or(Refusal::Busy, Refusal::Spent)
    }

    /// Returns a budget of `chain` from which nothing more can be reserved.
    pub fn exhausted(&self, chain: &[Owner]) -> Option<Spent> {
        let units = Unit::ALL.into_iter().filter(|unit| *unit != Unit::Boxes);
        units.into_iter().find_map(|unit| {
            chain.iter().find_map(|owner| {
                let account = self.0.get(owner)?;
                let (cap, renews) = (account.cap.get(unit)?, account.renews);
                let spent = || Spent { owner: owner.clone(), unit, cap, renews };
                (account.remaining(unit) == Some(0)).then(spent)
            })
        })
    }
}

/// Returns whether the broker should ask for an extension: 80 % of a unit of the lease are used.
pub fn needs_more(lease: &Limits, used: &Amounts) -> bool {
    Unit::ALL.into_iter().filter(|unit| *unit != Unit::Boxes).any(|unit| {
        let limit = lease.get(unit).map(u128::from);
        limit.is_some_and(|limit| u128::from(used.get(unit)) * 5 >= limit * 4)
    })
}

/// Splits a lease into its used and its returned part.
///
/// Without a usage, all of the lease is spent. Usage of an unlimited unit is spent without a
/// reservation. Boxes are never spent.
pub fn settle(lease: &Limits, usage: Option<&Amounts>) -> Settlement {
    let held = lease.amounts();
    let used = usage.copied().unwrap_or(held).with(Unit::Boxes, 0);
    let spent = used.min(held);
    Settlement { spent, released: held.minus(spent), over: used.minus(spent) }
}

#[cfg(test)]
mod tests;
