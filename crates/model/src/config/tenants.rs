//! Parser for `[tenant.NAME]`, which limits all runs of a tenant together.

use std::time::Duration;

use super::Config;
use super::keys::{Invalid, ParseValue, Value, invalid, number, scalar, set, table};
use crate::caller::TenantId;
use crate::plan::RunBudget;
use crate::tenant::{Period, TenantBudget};
use crate::time::Timeout;

/// The parsed keys of a tenant.
#[derive(Debug, Default)]
struct Raw {
    budget: Option<TenantBudget>,
}

const KEYS: [(&str, ParseValue<Raw>); 1] =
    [("budget", |raw, value| set(&mut raw.budget, budget(value)))];

#[derive(Debug, Default)]
struct RawBudget {
    limits: RunBudget,
    period: Option<Period>,
}

/// The keys of the budget: those of the budget of a run without `secrets`, and the period.
const BUDGET: [(&str, ParseValue<RawBudget>); 7] = [
    ("calls", |raw, value| set(&mut raw.limits.calls, number(value))),
    ("tokens", |raw, value| set(&mut raw.limits.tokens, number(value))),
    ("money", |raw, value| set(&mut raw.limits.money, scalar(value))),
    ("time", |raw, value| set(&mut raw.limits.time, time(value))),
    ("bytes", |raw, value| set(&mut raw.limits.bytes, scalar(value))),
    ("boxes", |raw, value| set(&mut raw.limits.boxes, boxes(value))),
    ("period", |raw, value| set(&mut raw.period, scalar(value))),
];

/// Parses a `[tenant.NAME]` section; an error about the whole section is `Invalid::Here`.
pub(super) fn read(name: TenantId, value: &Value<'_>) -> Result<(TenantId, TenantBudget), Invalid> {
    let mut raw = Raw::default();
    table(&mut raw, &KEYS, value)?;
    let missing =
        || invalid("`budget` is missing; write, for example, `budget = { money = \"5 USD\" }`");
    Ok((name, raw.budget.ok_or_else(missing)?))
}

fn budget(value: &Value<'_>) -> Result<TenantBudget, Invalid> {
    let mut raw = RawBudget::default();
    table(&mut raw, &BUDGET, value)?;
    let RawBudget { limits, period } = raw;
    let boxes_only = RunBudget { boxes: limits.boxes, ..RunBudget::default() };
    if period.is_some() && limits == boxes_only {
        return Err(invalid(
            "`period` needs a limit that it counts: `calls`, `tokens`, `money`, `time` or `bytes`",
        ));
    }
    Ok(TenantBudget { limits, period: period.unwrap_or_default() })
}

fn time(value: &Value<'_>) -> Result<Duration, Invalid> {
    match scalar::<Timeout>(value)? {
        Timeout(Some(time)) if time >= Duration::from_secs(1) => Ok(time),
        Timeout(Some(_)) => Err(invalid("must be at least one second")),
        Timeout(None) => Err(invalid("must be a time; without a limit, remove the key")),
    }
}

fn boxes(value: &Value<'_>) -> Result<u32, Invalid> {
    match number(value)? {
        0 => Err(invalid("must be at least 1; a task needs a box")),
        boxes => Ok(boxes),
    }
}

impl Config {
    /// Returns the budget of a tenant; `None` if the file does not limit it.
    pub fn tenant_budget(&self, tenant: &TenantId) -> Option<&TenantBudget> {
        self.tenants.get(tenant)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Scope;
    use crate::net::MicroUsd;

    fn parse(text: &str, scope: Scope) -> Result<Config, String> {
        Config::parse(text, Path::new("belljar.toml"), scope).map_err(|error| error.to_string())
    }

    #[test]
    fn tenant_has_all_its_limits_and_its_period() {
        let text = "[tenant.local]\nbudget = { calls = 9, tokens = 400000, money = '50 USD', time = '10h', bytes = '1GB', boxes = 8, period = 'month' }\n[tenant.team-7.budget]\nboxes = 2\n";
        let config = parse(text, Scope::Operator).unwrap();
        let local = config.tenant_budget(&TenantId::local()).unwrap();
        let RunBudget { calls, tokens, money, time, bytes, boxes, secrets } = &local.limits;
        assert_eq!((*calls, *tokens, *boxes), (Some(9), Some(400_000), Some(8)));
        assert_eq!(*money, Some(MicroUsd(50_000_000)));
        assert_eq!(*time, Some(Duration::from_secs(36_000)));
        assert_eq!(bytes.map(|bytes| bytes.as_u64()), Some(1_000_000_000));
        assert!(secrets.is_empty());
        assert_eq!(local.period, Period::Month);
        let team = config.tenant_budget(&"team-7".parse().unwrap()).unwrap();
        assert_eq!((team.limits.boxes, team.period), (Some(2), Period::Total));
        assert_eq!(config.tenant_budget(&"other".parse().unwrap()), None);
    }

    #[test]
    fn invalid_tenant_is_refused_with_its_line_and_key() {
        for (text, expect) in [
            ("", "1: tenant `local`: `budget` is missing"),
            ("budget = 5", "2: `budget = 5`: must be a table"),
            ("budget = { money = 5 }", "2: `money = 5`: invalid amount of money"),
            ("budget = { tokens = -1 }", "2: `tokens = -1`: must be a whole number"),
            ("budget = { time = '10' }", "2: `time = '10'`: "),
            ("budget = { time = '500ms' }", "2: `time = '500ms'`: must be at least one second"),
            ("budget = { time = 'none' }", "2: `time = 'none'`: must be a time"),
            ("budget = { bytes = '1.5GB' }", "2: `bytes = '1.5GB'`: "),
            ("budget = { boxes = 0 }", "2: `boxes = 0`: must be at least 1"),
            (
                "budget = { calls = 1, period = 'week' }",
                "2: `period = 'week'`: unknown period; write `day`, `month` or `total`",
            ),
            (
                "budget = { boxes = 1, period = 'day' }",
                "2: `budget = { boxes = 1, period = 'day' }`: `period` needs a limit",
            ),
            ("budget = { token = 1 }", "2: unknown key `token`; did you mean `tokens`?"),
            ("budget = { secrets = {} }", "2: unknown key `secrets`; the keys are calls, "),
            ("budgets = {}", "2: unknown key `budgets`; did you mean `budget`?"),
        ] {
            let error = parse(&format!("[tenant.local]\n{text}\n"), Scope::Operator).unwrap_err();
            assert!(error.starts_with(&format!("belljar.toml:{expect}")), "{error}");
        }
        let error = parse("[tenant.'A b']\nbudget = {}\n", Scope::Operator).unwrap_err();
        assert!(error.starts_with("belljar.toml:1: tenant `A b`: invalid tenant"), "{error}");
    }

    #[test]
    fn c08_project_cannot_set_the_budget_of_a_tenant() {
        let text = "[tenant.local]\nbudget = { calls = 9 }\n";
        let error = parse(text, Scope::Project).unwrap_err();
        assert!(error.contains("only valid in the operator's own file"), "{error}");
        assert!(parse(text, Scope::Operator).is_ok());
    }
}
