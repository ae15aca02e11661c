//! Parser for `[tenant.NAME]`, with the budget, the quotas, the workspaces and the ceiling of a tenant.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keys::{Invalid, ParseValue, Value, fill, invalid, list, number, scalar, set, table};
use super::{Config, quota};
use crate::caller::TenantId;
use crate::limits::Limits;
use crate::mount::anchor;
use crate::plan::RunBudget;
use crate::template::{DEFAULT_TEMPLATE, Template};
use crate::tenant::{BoxCeiling, Period, TenantBudget, TenantConfig, TenantLimits};
use crate::time::Timeout;

const KEYS: [(&str, ParseValue<TenantConfig>); 4] = [
    ("budget", |tenant, value| set(&mut tenant.budget, budget(value))),
    ("quota", |tenant, value| set(&mut tenant.quota, quota::read(value))),
    ("workspaces", |tenant, value| fill(&mut tenant.workspaces, workspaces(value))),
    ("limits", |tenant, value| table(&mut tenant.limits, &LIMITS, value)),
];

/// The keys of the ceiling, which are those of a template.
const LIMITS: [(&str, ParseValue<TenantLimits>); 7] = [
    ("memory", |limits, value| set(&mut limits.memory, scalar(value))),
    ("cpus", |limits, value| set(&mut limits.cpus, scalar(value))),
    ("pids", |limits, value| set(&mut limits.pids, number(value))),
    ("disk", |limits, value| set(&mut limits.disk, scalar(value))),
    ("files", |limits, value| set(&mut limits.files, number(value))),
    ("output-limit", |limits, value| set(&mut limits.output, scalar(value))),
    ("timeout", |limits, value| set(&mut limits.timeout, time(value))),
];

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
pub(super) fn read(
    name: TenantId,
    value: &Value<'_>,
    file: &Path,
) -> Result<(TenantId, TenantConfig), Invalid> {
    let mut tenant = TenantConfig::default();
    table(&mut tenant, &KEYS, value)?;
    if tenant == TenantConfig::default() {
        return Err(invalid(
            "the section is empty; write, for example, `budget = { money = \"5 USD\" }`",
        ));
    }
    if name.is_local() && tenant.limits != TenantLimits::default() {
        return Err(invalid(
            "`limits` is not possible here: the templates of this file limit the boxes of the tenant `local`",
        ));
    }
    let ceiling = BoxCeiling::new(&tenant.limits, &Limits::default());
    ceiling.clamp(&Limits::default()).check().map_err(invalid)?;
    let base = file.parent().unwrap_or(Path::new(""));
    let workspaces = tenant.workspaces.iter().map(|path| anchor(path, base, None)).collect();
    Ok((name, TenantConfig { workspaces, ..tenant }))
}

/// Parses directories. A path is relative to the directory of the file.
fn workspaces(value: &Value<'_>) -> Result<Vec<PathBuf>, Invalid> {
    let paths = list::<PathBuf>(value)?;
    let is_valid = |path: &PathBuf| {
        !path.as_os_str().is_empty() && !path.starts_with("~") && path.as_path() != Path::new("/")
    };
    match paths.iter().all(is_valid) {
        true => Ok(paths),
        false => Err(invalid("must be directories, without `~` and not the root directory")),
    }
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
        self.tenants.get(tenant)?.budget.as_ref()
    }

    /// Returns the directories of the host that a tenant may use as workspaces.
    pub fn tenant_workspaces(&self, tenant: &TenantId) -> &[PathBuf] {
        self.tenants.get(tenant).map_or(&[], |tenant| &tenant.workspaces)
    }

    /// Returns the upper limits of every box of a tenant. The tenant `local` has none, because the operator
    /// writes its templates. Must be called on the operator's configuration.
    pub fn tenant_ceiling(&self, tenant: &TenantId) -> Option<BoxCeiling> {
        if tenant.is_local() {
            return None;
        }
        let default = self.template(DEFAULT_TEMPLATE).unwrap_or_default();
        let own = self.tenants.get(tenant).map(|tenant| tenant.limits.clone());
        let Template { limits, .. } = default;
        Some(BoxCeiling::new(&own.unwrap_or_default(), &limits))
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
            ("", "1: tenant `local`: the section is empty"),
            ("limits = { memory = '1GiB' }", "1: tenant `local`: `limits` is not possible here"),
            ("workspaces = ['']", "2: `workspaces = ['']`: must be directories"),
            ("workspaces = ['/']", "2: `workspaces = ['/']`: must be directories"),
            ("workspaces = '/srv'", "2: `workspaces = '/srv'`: must be a list"),
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
    fn tenant_has_workspaces_beside_the_file_and_a_ceiling_for_its_boxes() {
        let text = "[template.default]\npids = 100\n[tenant.team-7]\nworkspaces = ['/srv/a', 'b']\nlimits = { memory = '1GiB', timeout = '1h' }\n";
        let config = Config::parse(text, Path::new("/etc/belljar.toml"), Scope::Operator).unwrap();
        let (team, other) = ("team-7".parse().unwrap(), "other".parse().unwrap());
        let paths = [Path::new("/srv/a"), Path::new("/etc/b")];
        assert_eq!(config.tenant_workspaces(&team), paths);
        let ceiling = config.tenant_ceiling(&team).unwrap();
        assert_eq!((ceiling.memory.as_u64(), ceiling.pids), (1 << 30, 100));
        assert_eq!(ceiling.timeout, Some(Duration::from_secs(3600)));
        let ceiling = config.tenant_ceiling(&other).unwrap();
        assert_eq!((ceiling.memory, ceiling.pids), (Limits::default().memory, 100));
        assert_eq!((ceiling.timeout, ceiling.output), (None, None));
        assert_eq!(config.tenant_ceiling(&TenantId::local()), None);
        assert_eq!(config.tenant_workspaces(&other), [] as [PathBuf; 0]);
        let error =
            parse("[tenant.x]\nlimits = { memory = '1MiB' }\n", Scope::Operator).unwrap_err();
        assert!(error.contains("1: tenant `x`: the memory limit must be at least"), "{error}");
    }

    #[test]
    fn c08_project_cannot_set_the_budget_of_a_tenant() {
        let text = "[tenant.local]\nbudget = { calls = 9 }\n";
        let error = parse(text, Scope::Project).unwrap_err();
        assert!(error.contains("only valid in the operator's own file"), "{error}");
        assert!(parse(text, Scope::Operator).is_ok());
    }
}
