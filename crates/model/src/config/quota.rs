//! Parser for the quotas of tenants: `quota` in `[tenant.NAME]`, and in `[serve]` for all tenants.

use super::Config;
use super::keys::{Invalid, ParseValue, Value, number, set, table};
use crate::caller::TenantId;
use crate::quota::Quota;

const KEYS: [(&str, ParseValue<Quota>); 4] = [
    ("boxes", |quota, value| set(&mut quota.boxes, number(value))),
    ("boxes-per-principal", |quota, value| set(&mut quota.boxes_per_principal, number(value))),
    ("runs", |quota, value| set(&mut quota.runs, number(value))),
    ("runs-per-principal", |quota, value| set(&mut quota.runs_per_principal, number(value))),
];

/// Parses a table of quotas. The number 0 permits nothing.
pub(super) fn read(value: &Value<'_>) -> Result<Quota, Invalid> {
    let mut quota = Quota::default();
    table(&mut quota, &KEYS, value)?;
    Ok(quota)
}

impl Config {
    /// Returns the quotas of a tenant: its own, and those of `[serve]` for missing values.
    pub fn quota(&self, tenant: &TenantId) -> Quota {
        let own = self.tenants.get(tenant).and_then(|tenant| tenant.quota);
        own.unwrap_or_default().or(self.default_quota)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Scope;

    fn parse(text: &str) -> Result<Config, String> {
        let config = Config::parse(text, Path::new("belljar.toml"), Scope::Operator);
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn quota_of_a_tenant_replaces_values_of_the_quota_of_all_tenants() {
        let text = "[serve]\nquota = { boxes = 20, runs-per-principal = 3 }\n\
                    [tenant.team-7.quota]\nboxes = 0\nboxes-per-principal = 2\nruns = 9\n";
        let config = parse(text).unwrap();
        let team = config.quota(&"team-7".parse().unwrap());
        let expect = Quota {
            boxes: Some(0),
            boxes_per_principal: Some(2),
            runs: Some(9),
            runs_per_principal: Some(3),
        };
        assert_eq!(team, expect);
        let other = config.quota(&"other".parse().unwrap());
        assert_eq!((other.boxes, other.runs), (Some(20), None));
        assert_eq!(config.tenant_budget(&"team-7".parse().unwrap()), None);
    }

    #[test]
    fn invalid_quota_is_refused_with_its_line() {
        for (text, expect) in [
            ("quota = 1", "2: `quota = 1`: must be a table"),
            ("quota = { boxes = -1 }", "2: `boxes = -1`: must be a whole number"),
            ("quota = { boxen = 1 }", "2: unknown key `boxen`; did you mean `boxes`?"),
        ] {
            for section in ["serve", "tenant.local"] {
                let error = parse(&format!("[{section}]\n{text}\n")).unwrap_err();
                assert!(error.starts_with(&format!("belljar.toml:{expect}")), "{error}");
            }
        }
    }
}
