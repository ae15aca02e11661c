//! The limits of the sender and of the tenant, with what is used of them.

use belljar_engine::runs::limits::{self, RunUsage};
use belljar_engine::scope::Scoped;
use belljar_model::net::MicroUsd;
use belljar_model::quota::Quota;
use schemars::JsonSchema;
use serde::Serialize;

use super::{decimal, time};
use crate::serve::app::App;
use crate::serve::identity::Identity;
use crate::serve::problem::Problem;
use crate::serve::quotas;
use crate::serve::tenants::Tenant;

/// The limits that the sender has. A missing value means no limit.
#[derive(Serialize, JsonSchema)]
pub(super) struct Budgets {
    /// The running boxes that the sender made.
    #[serde(skip_serializing_if = "Option::is_none")]
    boxes: Option<Count>,
    /// The running boxes of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_boxes: Option<Count>,
    /// The open runs of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<Count>,
    /// The open runs of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_runs: Option<Count>,
    /// The money that runs of the sender may spend today.
    #[serde(skip_serializing_if = "Option::is_none")]
    money: Option<Money>,
}

/// A limit of a number.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CountBudget")]
struct Count {
    used: u64,
    max: u32,
}

/// A limit of money in USD for a day of UTC.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MoneyBudget")]
struct Money {
    used: String,
    /// The rest of the budgets of open runs.
    reserved: String,
    max: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    renews: Option<String>,
}

impl Budgets {
    /// Reads what is used of the limits. `None` for a sender without limits. Blocks.
    pub(super) fn read(
        app: &App,
        tenant: &Tenant,
        state: &Scoped,
        who: &Identity,
    ) -> Result<Option<Self>, Problem> {
        let quota = app.quotas.of(&app.state, who.tenant());
        let (own_boxes, money) = (quotas::own_boxes(quota, who), who.limits.money_per_day);
        if quota == Quota::default() && own_boxes.is_none() && money.is_none() {
            return Ok(None);
        }
        let up = match own_boxes.or(quota.boxes) {
            Some(_) => tenant.boxes.running(&tenant.scope)?,
            None => std::collections::BTreeMap::new(),
        };
        let own = up.values().filter(|maker| **maker == who.caller.principal).count();
        let usage = limits::usage(state, &who.caller.principal)?;
        let count = |used: usize, max: Option<u32>| {
            max.map(|max| Count { used: u64::try_from(used).unwrap_or(u64::MAX), max })
        };
        Ok(Some(Self {
            boxes: count(own, own_boxes),
            tenant_boxes: count(up.len(), quota.boxes),
            runs: quota.runs_per_principal.map(|max| Count { used: usage.runs_of_principal, max }),
            tenant_runs: quota.runs.map(|max| Count { used: usage.runs, max }),
            money: money.map(|max| Money::of(&usage, max)),
        }))
    }
}

impl Money {
    fn of(usage: &RunUsage, max: MicroUsd) -> Self {
        Self {
            used: decimal(usage.money_today),
            reserved: decimal(usage.money_reserved),
            max: decimal(max),
            renews: usage.renews.map(|at| time(at.0)),
        }
    }
}
