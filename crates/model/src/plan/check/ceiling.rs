//! What the operator and the tenant permit at most, and the check of budgets against it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::super::{RunBudget, TierName};
use super::Checker;
use crate::agent::AgentName;
use crate::net::Budget;
use crate::template::Template;
use crate::time::Timeout;

/// The upper limit of all plans of a tenant.
#[derive(Debug, Clone, Default)]
pub struct Ceiling {
    /// The operator's templates; a plan names one of them and its tasks can only tighten it.
    pub templates: BTreeMap<String, Template>,
    /// The tiers of models in `belljar.toml`.
    pub tiers: BTreeMap<TierName, TierFacts>,
    /// The agents that boxes know.
    pub agents: BTreeSet<AgentName>,
    /// The budget of the tenant.
    pub budget: RunBudget,
}

/// The facts about a tier that a plan is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierFacts {
    /// Whether the price of the model is known; without it, a limit of money means nothing.
    pub is_priced: bool,
}

impl Checker<'_> {
    /// Checks that no budget is above the one of its parent.
    pub(super) fn budgets(&mut self) {
        let line = self.plan.lines.run.line("budget");
        for excess in excesses(&self.plan.budget, &self.ceiling.budget, "the tenant") {
            self.faults.add(line, || excess);
        }
        for place in self.places() {
            for excess in excesses(&place.task.budget, &self.plan.budget, "the run") {
                self.faults
                    .add(place.line("budget"), || format!("task `{}`: {excess}", place.task.id));
            }
            for excess in excesses(&place.task.budget, &self.ceiling.budget, "the tenant") {
                self.faults
                    .add(place.line("budget"), || format!("task `{}`: {excess}", place.task.id));
            }
        }
    }
}

/// Returns a message for each limit that is above the one of the parent.
fn excesses(budget: &RunBudget, parent: &RunBudget, whose: &str) -> Vec<String> {
    // Destructured without `..`, so that a new limit cannot be forgotten here.
    let RunBudget { calls, tokens, money, time, bytes, boxes, secrets } = budget;
    let timeout = |time: Option<std::time::Duration>| time.map(|time| Time(Timeout(Some(time))));
    let mut found: Vec<Option<String>> = vec![
        above("calls", *calls, parent.calls, whose),
        above("tokens", *tokens, parent.tokens, whose),
        above("money", *money, parent.money, whose),
        above("time", timeout(*time), timeout(parent.time), whose),
        above("bytes", *bytes, parent.bytes, whose),
        above("boxes", *boxes, parent.boxes, whose),
    ];
    for (name, own) in secrets {
        let Some(parent) = parent.secrets.get(name) else { continue };
        let Budget { requests, bytes, tokens, money } = own;
        let key = |limit: &str| format!("secrets.{name}.{limit}");
        found.extend([
            above(&key("requests"), *requests, parent.requests, whose),
            above(&key("bytes"), *bytes, parent.bytes, whose),
            above(&key("tokens"), *tokens, parent.tokens, whose),
            above(&key("money"), *money, parent.money, whose),
        ]);
    }
    found.into_iter().flatten().collect()
}

/// A time that is compared by its length.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Time(Timeout);

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.0.0.cmp(&other.0.0))
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn above<T: PartialOrd + Display>(
    key: &str,
    own: Option<T>,
    parent: Option<T>,
    whose: &str,
) -> Option<String> {
    let (own, parent) = (own?, parent?);
    (own > parent)
        .then(|| format!("`{key}` of the budget is {own}, but the budget of {whose} has {parent}"))
}
