//! Counts what a run uses and says when a limit or a budget is spent.
//!
//! Pure: the time is passed in and nothing is recorded here. A request is checked against everything
//! before it is counted anywhere, so one that is refused costs nothing. What an answer costs is known
//! only at its end; a budget of tokens or money therefore stops the *next* request, and those under
//! way may exceed it by what they cost. Bytes are cut off as they flow.

mod json;
mod prices;
mod rate;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use belljar_model::ByteSize;
use belljar_model::net::{Budget, MicroUsd, Policy, Rate, RuleLimits, SecretName};

use crate::rules::Permit;

pub use prices::{ModelPrice, Prices, PricesError};
pub use usage::{Observer, Provider, Usage};

use rate::Pace;

/// Whose limit or budget it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A rule, as logs name it.
    Rule(String),
    /// A secret.
    Secret(SecretName),
    /// The whole run.
    Run,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "rule `{rule}`"),
            Self::Secret(name) => write!(f, "secret `{name}`"),
            Self::Run => f.write_str("run"),
        }
    }
}

/// Why a request gets a 429, or an answer ends early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// Too many in too short a time.
    #[error(
        "the {owner} allows {rate} requests; try again in {} s",
        retry_after.as_secs().saturating_add(1)
    )]
    Rate {
        /// Whose limit.
        owner: Owner,
        /// The limit.
        rate: Rate,
        /// When there is room for one more.
        retry_after: Duration,
    },
    /// All that was given is used.
    #[error("the {owner} has used up its {limit}; raise the limit in the operator's belljar.toml")]
    All {
        /// Whose limit.
        owner: Owner,
        /// The limit, as a person reads it: `500 requests`.
        limit: String,
    },
}

impl Spent {
    /// The machine's word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate",
            Self::All { .. } => "spent",
        }
    }

    /// For the header of that name; none if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after, .. } => Some(*retry_after),
            Self::All { .. } => None,
        }
    }
}

/// What has been used of one budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Requests that were let through.
    pub requests: u64,
    /// Bytes of bodies, in both directions.
    pub bytes: u64,
    /// Tokens of models.
    pub tokens: u64,
    /// What those cost.
    pub money: MicroUsd,
}

/// To whom a request is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    rule: Option<usize>,
    secrets: Vec<SecretName>,
}

/// One entry for the record: what was charged to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Whose budget.
    pub owner: Owner,
    /// `tokens` or `microusd`.
    pub unit: &'static str,
    /// Now.
    pub amount: u64,
    /// In all.
    pub total: u64,
}

/// The counters of one run.
#[derive(Debug)]
pub struct Meter {
    rules: HashMap<Option<usize>, RuleUse>,
    secrets: BTreeMap<SecretName, Account>,
    run: Account,
    prices: Prices,
}

#[derive(Debug)]
struct RuleUse {
    name: String,
    limits: RuleLimits,
    pace: Option<Pace>,
    bytes: u64,
}

#[derive(Debug)]
struct Account {
    owner: Owner,
    budget: Budget,
    used: Used,
}

impl Meter {
    /// Nothing is used yet.
    pub fn new(policy: &Policy, prices: Prices) -> Self {
        let account = |owner, budget| Account { owner, budget, used: Used::default() };
        let secrets = policy.secrets.iter().map(|secret| {
            let owner = Owner::Secret(secret.name.clone());
            (secret.name.clone(), account(owner, secret.budget))
        });
        Self {
            rules: HashMap::new(),
            secrets: secrets.collect(),
            run: account(Owner::Run, policy.budget),
            prices,
        }
    }

    /// Counts a request with these secrets in it, or says why it may not be sent.
    pub fn request<'a>(
        &mut self,
        permit: &Permit,
        secrets: impl IntoIterator<Item = &'a SecretName>,
        now: Instant,
    ) -> Result<Charge, Spent> {
        let charge =
            Charge { rule: permit.index(), secrets: secrets.into_iter().cloned().collect() };
        let rule = self.rules.entry(charge.rule).or_insert_with(|| RuleUse {
            name: permit.rule().to_owned(),
            limits: *permit.limits(),
            pace: permit.limits().requests.map(Pace::new),
            bytes: 0,
        });
        rule.check_total(0)?;
        for account in accounts(&mut self.secrets, &mut self.run, &charge) {
            account.check()?;
        }
        // Last, because this counts.
        if let (Some(pace), Some(rate)) = (&mut rule.pace, rule.limits.requests) {
            pace.take(now).map_err(|retry_after| Spent::Rate {
                owner: Owner::Rule(rule.name.clone()),
                rate,
                retry_after,
            })?;
        }
        for account in accounts(&mut self.secrets, &mut self.run, &charge) {
            account.used.requests += 1;
        }
        Ok(charge)
    }

    /// Counts bytes that a body sends or brings. An error when they are more than is left.
    pub fn bytes(&mut self, charge: &Charge, bytes: u64) -> Result<(), Spent> {
        let mut result = Ok(());
        if let Some(rule) = self.rules.get_mut(&charge.rule) {
            rule.bytes = rule.bytes.saturating_add(bytes);
            // All is counted before anything is refused, for the bytes were there.
            result = result.and(rule.check_total(1));
        }
        for account in accounts(&mut self.secrets, &mut self.run, charge) {
            account.used.bytes = account.used.bytes.saturating_add(bytes);
            result = result.and(account.check_bytes(1));
        }
        result
    }

    /// Counts what a model used, and tells what there is to record.
    pub fn usage(&mut self, charge: &Charge, provider: Provider, usage: &Usage) -> Vec<Charged> {
        let (tokens, money) = (usage.tokens(), self.prices.cost(provider, usage));
        let mut charged = Vec::new();
        for account in accounts(&mut self.secrets, &mut self.run, charge) {
            let used = &mut account.used;
            used.tokens = used.tokens.saturating_add(tokens);
            used.money = MicroUsd(used.money.0.saturating_add(money.0));
            let owner = account.owner.clone();
            let of = |unit, amount, total| Charged { owner: owner.clone(), unit, amount, total };
            charged.push(of("tokens", tokens, used.tokens));
            charged.push(of("microusd", money.0, used.money.0));
        }
        charged
    }

    /// What the run has used.
    pub fn run(&self) -> Used {
        self.run.used
    }

    /// What has been used with a secret.
    pub fn secret(&self, name: &SecretName) -> Option<Used> {
        self.secrets.get(name).map(|account| account.used)
    }
}

/// The accounts that pay: each secret's, and the run's.
fn accounts<'a>(
    secrets: &'a mut BTreeMap<SecretName, Account>,
    run: &'a mut Account,
    charge: &Charge,
) -> impl Iterator<Item = &'a mut Account> {
    let charged = secrets.iter_mut().filter(|(name, _)| charge.secrets.contains(name));
    charged.map(|(_, account)| account).chain([run])
}

impl RuleUse {
    /// Whether there are bytes left; `over` is one where exactly the limit may be reached.
    fn check_total(&self, over: u64) -> Result<(), Spent> {
        match self.limits.total {
            Some(limit) if self.bytes >= limit.as_u64().saturating_add(over) => {
                Err(all(&Owner::Rule(self.name.clone()), limit))
            }
            _ => Ok(()),
        }
    }
}

impl Account {
    /// Whether there is room for one more request.
    fn check(&self) -> Result<(), Spent> {
        let Budget { requests, bytes: _, tokens, money } = self.budget;
        let spent = |limit: String| Err(Spent::All { owner: self.owner.clone(), limit });
        if let Some(limit) = requests.filter(|&limit| self.used.requests >= limit) {
            return spent(format!("{limit} requests"));
        }
        if let Some(limit) = tokens.filter(|&limit| self.used.tokens >= limit) {
            return spent(format!("{limit} tokens"));
        }
        if let Some(limit) = money.filter(|&limit| self.used.money >= limit) {
            return spent(limit.to_string());
        }
        self.check_bytes(0)
    }

    fn check_bytes(&self, over: u64) -> Result<(), Spent> {
        match self.budget.bytes {
            Some(limit) if self.used.bytes >= limit.as_u64().saturating_add(over) => {
                Err(all(&self.owner, limit))
            }
            _ => Ok(()),
        }
    }
}

fn all(owner: &Owner, limit: ByteSize) -> Spent {
    Spent::All { owner: owner.clone(), limit: format!("{limit} of traffic") }
}
