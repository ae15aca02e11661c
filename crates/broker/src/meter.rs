//! Counts what a run uses and reports when a limit or a budget is used up.
//!
//! Pure: the caller passes the time, and nothing is recorded here. A request is checked against all
//! limits before it is counted, so a refused request costs nothing. The cost of a response is known
//! only at its end. So a budget of tokens or money stops the *next* request, and active requests
//! can exceed the budget by their own cost. Bytes are limited while they are transferred.

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

use rate::TokenBucket;

/// The rule, secret or run that has a limit or budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The rule with this name.
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

/// The exceeded limit because of which a request gets status 429 or a response ends early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// The rate limit is exceeded.
    #[error(
        "the {owner} allows {rate} requests; try again in {} s",
        retry_after.as_secs().saturating_add(1)
    )]
    Rate {
        /// The rule, secret or run that has the limit.
        owner: Owner,
        /// The exceeded rate.
        rate: Rate,
        /// The time until the next request is allowed.
        retry_after: Duration,
    },
    /// A limit or budget is used up completely.
    #[error(
        "the {owner} has used up its limit of {limit}; raise the limit in the operator's belljar.toml"
    )]
    All {
        /// The rule, secret or run that has the limit.
        owner: Owner,
        /// The limit in readable form, such as `500 requests`.
        limit: String,
    },
}

impl Spent {
    /// Returns the reason code of the exceeded limit.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate",
            Self::All { .. } => "spent",
        }
    }

    /// Returns the time for the `Retry-After` header; `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after, .. } => Some(*retry_after),
            Self::All { .. } => None,
        }
    }
}

/// The amounts that were used of one budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The number of requests that were sent.
    pub requests: u64,
    /// The number of body bytes in both directions.
    pub bytes: u64,
    /// Tokens of models.
    pub tokens: u64,
    /// Cost of the tokens.
    pub money: MicroUsd,
}

/// The rule and the secrets whose limits a request counts towards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    rule: Option<usize>,
    secrets: Vec<SecretName>,
}

/// An amount of tokens or money that is charged to a budget, for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The rule, secret or run whose budget is charged.
    pub owner: Owner,
    /// The unit of the amount: `tokens` or `microusd`.
    pub unit: &'static str,
    /// The amount of this charge, in `unit`.
    pub amount: u64,
    /// Total amount so far.
    pub total: u64,
}

/// Counts the requests, bytes, tokens and costs of one run and enforces their limits.
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
    rate_limit: Option<TokenBucket>,
    bytes: u64,
}

#[derive(Debug)]
struct Account {
    owner: Owner,
    budget: Budget,
    used: Used,
}

impl Meter {
    /// Creates a meter with all counters at zero.
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

    /// Counts a request and its secrets towards the limits, or returns the exceeded limit.
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
            rate_limit: permit.limits().requests.map(TokenBucket::new),
            bytes: 0,
        });
        rule.check_total(0)?;
        for account in accounts(&mut self.secrets, &mut self.run, &charge) {
            account.check()?;
        }
        // Checked last, because a successful check already counts.
        if let (Some(rate_limit), Some(rate)) = (&mut rule.rate_limit, rule.limits.requests) {
            rate_limit.take(now).map_err(|retry_after| Spent::Rate {
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

    /// Counts body bytes of either direction; returns an error if a limit is exceeded.
    pub fn bytes(&mut self, charge: &Charge, bytes: u64) -> Result<(), Spent> {
        let mut result = Ok(());
        if let Some(rule) = self.rules.get_mut(&charge.rule) {
            rule.bytes = rule.bytes.saturating_add(bytes);
            // All counters are updated before an error is returned, because the bytes were
            // transferred.
            result = result.and(rule.check_total(1));
        }
        for account in accounts(&mut self.secrets, &mut self.run, charge) {
            account.used.bytes = account.used.bytes.saturating_add(bytes);
            result = result.and(account.check_bytes(1));
        }
        result
    }

    /// Counts the tokens that a model used, and returns the charges to record.
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

    /// Returns the amounts that the run has used of its budget.
    pub fn run(&self) -> Used {
        self.run.used
    }

    /// Returns the amounts that were used of a secret's budget.
    pub fn secret(&self, name: &SecretName) -> Option<Used> {
        self.secrets.get(name).map(|account| account.used)
    }
}

/// Returns the counters that a request is charged to: one per secret, and the one of the run.
fn accounts<'a>(
    secrets: &'a mut BTreeMap<SecretName, Account>,
    run: &'a mut Account,
    charge: &Charge,
) -> impl Iterator<Item = &'a mut Account> {
    let charged = secrets.iter_mut().filter(|(name, _)| charge.secrets.contains(name));
    charged.map(|(_, account)| account).chain([run])
}

impl RuleUse {
    /// Returns an error if the byte limit is used up; `over` is 1 if reaching the limit is still
    /// allowed.
    fn check_total(&self, over: u64) -> Result<(), Spent> {
        match self.limits.total {
            Some(limit) if self.bytes >= limit.as_u64().saturating_add(over) => {
                Err(exceeded(&Owner::Rule(self.name.clone()), limit))
            }
            _ => Ok(()),
        }
    }
}

impl Account {
    /// Returns an error if the budget does not allow one more request.
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
                Err(exceeded(&self.owner, limit))
            }
            _ => Ok(()),
        }
    }
}

fn exceeded(owner: &Owner, limit: ByteSize) -> Spent {
    Spent::All { owner: owner.clone(), limit: format!("{limit} of traffic") }
}
