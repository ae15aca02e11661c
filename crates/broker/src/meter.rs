//! Counts what a run uses and reports when a limit or a budget is used up.
//!
//! Pure: the caller passes the time, and nothing is recorded here. A request is checked against all
//! limits before it is counted, so a refused request costs nothing. Bytes are limited while they are
//! transferred. The cost of a response is known only at its end. So a budget of tokens or money
//! reserves what a request can use at most, and [`Meter::settle`] replaces the reservation by the
//! usage. Without usage, the whole reservation is spent.

mod api;
mod json;
mod prices;
mod rate;
mod reserve;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use belljar_model::ByteSize;
use belljar_model::net::{Budget, MicroUsd, Policy, Rate, RuleLimits, SecretName};

use crate::rules::{Permit, TcpPermit};

pub use api::ModelApi;
pub use prices::{ModelPrice, Prices, PricesError};
pub use reserve::{Cost, Estimate, cost};
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
    /// The rest of a budget is reserved for requests that have not ended.
    #[error(
        "the rest of the {limit} of the {owner} is reserved for requests that are still running; try again when they have ended"
    )]
    Reserved {
        /// The owner of the budget.
        owner: Owner,
        /// The budget in readable form.
        limit: String,
    },
    /// The request can use more than what is left of a budget.
    #[error(
        "the request can use up to {needs}, and the {owner} has {left} of its {limit} left; lower the maximum output of the request"
    )]
    TooLarge {
        /// The owner of the budget.
        owner: Owner,
        /// What the request can use, in readable form.
        needs: String,
        /// What is left of the budget, in readable form.
        left: String,
        /// The budget in readable form.
        limit: String,
    },
    /// The broker cannot count what the request uses.
    #[error(
        "the {owner} has a budget of tokens or money, and what this request uses cannot be counted"
    )]
    Uncountable {
        /// The owner of the budget.
        owner: Owner,
    },
}

/// The time after which a request can be repeated while a budget is reserved for others.
const RESERVED_RETRY: Duration = Duration::from_secs(5);

impl Spent {
    /// Returns the rule, secret or run that has the limit.
    pub fn owner(&self) -> &Owner {
        match self {
            Self::Rate { owner, .. }
            | Self::All { owner, .. }
            | Self::Reserved { owner, .. }
            | Self::TooLarge { owner, .. }
            | Self::Uncountable { owner } => owner,
        }
    }

    /// Returns the reason code of the exceeded limit.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate",
            Self::All { .. } | Self::Reserved { .. } | Self::TooLarge { .. } => "spent",
            Self::Uncountable { .. } => "uncountable",
        }
    }

    /// Returns the time for the `Retry-After` header; `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after, .. } => Some(*retry_after),
            Self::Reserved { .. } => Some(RESERVED_RETRY),
            Self::All { .. } | Self::TooLarge { .. } | Self::Uncountable { .. } => None,
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
    /// The tokens and money that are reserved in each of the charged budgets; empty if none.
    reserved: Vec<Reserved>,
}

/// The part of a budget that is reserved for requests that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reserved {
    tokens: u64,
    money: u64,
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
    reserved: Reserved,
}

impl Meter {
    /// Creates a meter with all counters at zero.
    pub fn new(policy: &Policy, prices: Prices) -> Self {
        let account = |owner, budget| Account {
            owner,
            budget,
            used: Used::default(),
            reserved: Reserved::default(),
        };
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

    /// Returns the owner of a budget of tokens or money that a request with these secrets is charged
    /// to: first of a secret, then the run.
    pub fn counts_tokens<'a>(
        &self,
        secrets: impl IntoIterator<Item = &'a SecretName>,
    ) -> Option<&Owner> {
        let secrets = secrets.into_iter().filter_map(|name| self.secrets.get(name));
        let is_counted = |account: &&Account| account.counts_tokens();
        secrets.chain([&self.run]).find(is_counted).map(|account| &account.owner)
    }

    /// Counts a request and its secrets towards the limits and reserves what it can use, or returns
    /// the exceeded limit.
    pub fn request<'a>(
        &mut self,
        permit: &Permit,
        secrets: impl IntoIterator<Item = &'a SecretName>,
        estimate: Option<&Estimate>,
        now: Instant,
    ) -> Result<Charge, Spent> {
        let secrets = secrets.into_iter().cloned().collect();
        let charge = Charge { rule: permit.index(), secrets, reserved: Vec::new() };
        self.count(charge, permit.rule(), permit.limits(), estimate, now)
    }

    /// Counts a raw TCP connection towards the budget of the run, like a request.
    pub fn connection(&mut self, permit: &TcpPermit, now: Instant) -> Result<Charge, Spent> {
        let charge = Charge { rule: None, secrets: Vec::new(), reserved: Vec::new() };
        self.count(charge, permit.rule(), &RuleLimits::default(), None, now)
    }

    fn count(
        &mut self,
        mut charge: Charge,
        rule: &str,
        limits: &RuleLimits,
        estimate: Option<&Estimate>,
        now: Instant,
    ) -> Result<Charge, Spent> {
        let rule = self.rules.entry(charge.rule).or_insert_with(|| RuleUse {
            name: rule.to_owned(),
            limits: *limits,
            rate_limit: limits.requests.map(TokenBucket::new),
            bytes: 0,
        });
        rule.check_total(0)?;
        let money = estimate.map_or(0, |it| it.api.cost(&self.prices, &it.usage).0);
        let mut reserved = Vec::new();
        for account in accounts(&mut self.secrets, &mut self.run, &charge) {
            account.check()?;
            if let Some(estimate) = estimate {
                reserved.push(account.reservation(estimate, money)?);
            }
        }
        // Checked last, because a successful check already counts.
        if let (Some(rate_limit), Some(rate)) = (&mut rule.rate_limit, rule.limits.requests) {
            rate_limit.take(now).map_err(|retry_after| Spent::Rate {
                owner: Owner::Rule(rule.name.clone()),
                rate,
                retry_after,
            })?;
        }
        for (at, account) in accounts(&mut self.secrets, &mut self.run, &charge).enumerate() {
            account.used.requests += 1;
            let Reserved { tokens, money } = reserved.get(at).copied().unwrap_or_default();
            account.reserved.tokens = account.reserved.tokens.saturating_add(tokens);
            account.reserved.money = account.reserved.money.saturating_add(money);
        }
        charge.reserved = reserved;
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

    /// Replaces the reservation of a request by what it used, and returns the charges to record.
    /// Must be called once for each request with a reservation.
    pub fn settle(&mut self, charge: &Charge, outcome: Outcome<'_>) -> Vec<Charged> {
        let (tokens, money, takes_rest) = match outcome {
            Outcome::Unsent => (0, 0, false),
            Outcome::Used(api, usage) => (usage.tokens(), api.cost(&self.prices, usage).0, false),
            Outcome::AtLeast(api, usage) => (usage.tokens(), api.cost(&self.prices, usage).0, true),
            Outcome::Unknown => (0, 0, true),
        };
        let mut charged = Vec::new();
        for (at, account) in accounts(&mut self.secrets, &mut self.run, charge).enumerate() {
            let held = charge.reserved.get(at).copied().unwrap_or_default();
            account.reserved.tokens = account.reserved.tokens.saturating_sub(held.tokens);
            account.reserved.money = account.reserved.money.saturating_sub(held.money);
            let rest = if takes_rest { held } else { Reserved::default() };
            let (tokens, money) = (tokens.max(rest.tokens), money.max(rest.money));
            if tokens == 0 && money == 0 {
                continue;
            }
            let used = &mut account.used;
            used.tokens = used.tokens.saturating_add(tokens);
            used.money = MicroUsd(used.money.0.saturating_add(money));
            let owner = account.owner.clone();
            let of = |unit, amount, total| Charged { owner: owner.clone(), unit, amount, total };
            charged.push(of("tokens", tokens, used.tokens));
            charged.push(of("microusd", money, used.money.0));
        }
        charged
    }

    /// Returns the cost of the tokens of a response.
    pub fn cost(&self, api: ModelApi, usage: &Usage) -> MicroUsd {
        api.cost(&self.prices, usage)
    }

    /// Returns the budget of the run.
    pub fn budget(&self) -> Budget {
        self.run.budget
    }

    /// Replaces the budget of the run. What was used and reserved stays counted.
    pub fn set_budget(&mut self, budget: Budget) {
        self.run.budget = budget;
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

/// What a request with a reservation used.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// The request was not sent, or the provider refused it.
    Unsent,
    /// The provider reported the usage.
    Used(ModelApi, &'a Usage),
    /// The response ended before its final usage.
    AtLeast(ModelApi, &'a Usage),
    /// The response had no usage.
    Unknown,
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

    fn counts_tokens(&self) -> bool {
        self.budget.tokens.is_some() || self.budget.money.is_some()
    }

    /// Returns what the budget must reserve for a request, or an error if too little is left.
    fn reservation(&self, estimate: &Estimate, money: u64) -> Result<Reserved, Spent> {
        let fit = |needs: u64, limit: u64, used: u64, reserved: u64, text: fn(u64) -> String| {
            let left = limit.saturating_sub(used).saturating_sub(reserved);
            let owner = || self.owner.clone();
            if left == 0 || needs > left && reserved > 0 {
                return Err(Spent::Reserved { owner: owner(), limit: text(limit) });
            }
            if needs > left && !estimate.is_open {
                let (needs, left, limit) = (text(needs), text(left), text(limit));
                return Err(Spent::TooLarge { owner: owner(), needs, left, limit });
            }
            Ok(needs.min(left))
        };
        let (used, reserved) = (self.used, self.reserved);
        let tokens = |number: u64| format!("{number} tokens");
        let dollars = |number: u64| MicroUsd(number).to_string();
        let needs = estimate.usage.tokens();
        Ok(Reserved {
            tokens: self
                .budget
                .tokens
                .map_or(Ok(0), |limit| fit(needs, limit, used.tokens, reserved.tokens, tokens))?,
            money: self.budget.money.map_or(Ok(0), |limit| {
                fit(money, limit.0, used.money.0, reserved.money, dollars)
            })?,
        })
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
