//! Reads plans and checks them against the operator's configuration.

use std::io::Read;

use anyhow::Context as _;
use belljar_model::Config;
use belljar_model::caller::TenantId;
use belljar_model::plan::{Ceiling, CheckedPlan, Plan, PlanFaults, PlanPath, TierFacts};

use crate::agents;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;

/// Returns the upper limit of all plans of the tenant `local`.
pub fn ceiling(host: &HostEnv, config: &Config) -> Result<Ceiling, EngineError> {
    ceiling_of(host, config, &TenantId::local())
}

/// Returns the upper limit of all plans of a tenant: the templates, tiers and agents of the operator, and the
/// budget of the tenant.
pub fn ceiling_of(
    host: &HostEnv,
    config: &Config,
    tenant: &TenantId,
) -> Result<Ceiling, EngineError> {
    let templates = config.names().into_iter();
    let templates = templates.filter_map(|name| Some((name.to_owned(), config.template(name)?)));
    let tiers = config
        .tiers()
        .map(|tier| (tier.name.clone(), TierFacts { is_priced: tier.price.is_some() }));
    Ok(Ceiling {
        templates: templates.collect(),
        tiers: tiers.collect(),
        agents: agents::all(host)?.into_keys().collect(),
        budget: config.tenant_budget(tenant).map(|it| it.limits.clone()).unwrap_or_default(),
    })
}

/// Parses and checks a plan. `file` is its name in faults; `-` is standard input.
pub fn check(text: &str, file: &str, ceiling: &Ceiling) -> Result<CheckedPlan, PlanFaults> {
    Plan::parse(text, file)?.check(ceiling)
}

/// Returns the paths of the host that a checked plan names.
pub fn paths(checked: &CheckedPlan) -> Vec<PlanPath> {
    let mut plan = Plan::default();
    plan.inputs = checked.inputs().clone();
    plan.tasks = checked.tasks().to_vec();
    plan.paths()
}

/// Reads the text of a plan. It reads little more than the size limit of plans, which [`check`] reports.
pub fn read(source: impl Read, file: &str) -> Result<String, EngineError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(Plan::MAX_FILE).unwrap_or(u64::MAX).saturating_add(1);
    source
        .take(limit)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {file}"))
        .kind(ErrorKind::Invalid)?;
    if bytes.len() > Plan::MAX_FILE {
        // The limit can be in the middle of a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        invalid(format!("{file}:{line}: the file is not UTF-8 text"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use belljar_model::Scope;

    use super::*;

    fn host() -> HostEnv {
        HostEnv::new([("HOME".into(), "/nonexistent".into())], "/proc/self/exe".into())
    }

    #[test]
    fn ceiling_has_the_templates_tiers_and_agents_of_the_operator() {
        let text = "[template.small]\nmemory = '64MiB'\n[tier.cheap]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 'anthropic'\nprice = { input = '1 USD', output = '5 USD' }\n[tier.local]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:1'\n";
        let config = Config::parse(text, Path::new("belljar.toml"), Scope::Operator).unwrap();
        let ceiling = ceiling(&host(), &config).unwrap();
        let names: Vec<&str> = ceiling.templates.keys().map(String::as_str).collect();
        assert_eq!(names, ["default", "small"]);
        let priced: Vec<bool> = ceiling.tiers.values().map(|tier| tier.is_priced).collect();
        assert_eq!(priced, [true, false]);
        assert!(ceiling.agents.iter().any(|name| name.as_str() == "claude"));
    }

    #[test]
    fn plan_with_a_higher_limit_than_its_tenant_is_refused() {
        let text = "[tenant.local]\nbudget = { calls = 9, boxes = 2 }\n";
        let config = Config::parse(text, Path::new("belljar.toml"), Scope::Operator).unwrap();
        let check = |tenant: &str, budget: &str| {
            let ceiling = ceiling_of(&host(), &config, &tenant.parse().unwrap()).unwrap();
            let text = format!("[run]\nbudget = {{ {budget} }}\n[task.a]\ndo = {{ stub = '' }}\n");
            check(&text, "p", &ceiling).map(drop).map_err(|faults| faults.to_string())
        };
        let expect = "p:2: `boxes` of the budget is 3, but the budget of the tenant has 2";
        assert_eq!(check("local", "calls = 9, boxes = 3"), Err(expect.to_owned()));
        assert_eq!(check("local", "calls = 9, boxes = 2, tokens = 5"), Ok(()));
        assert_eq!(check("other", "boxes = 3"), Ok(()), "control: another tenant");
    }

    #[test]
    fn read_stops_after_the_size_limit_and_names_the_line_of_invalid_utf8() {
        let long = read(std::io::repeat(b'x'), "p").unwrap();
        assert_eq!(long.len(), Plan::MAX_FILE + 1);
        let faults = check(&long, "p", &Ceiling::default()).unwrap_err().to_string();
        assert_eq!(faults, "p:1: the file is larger than 4 MiB");
        let error = read(&b"a\nb\xff"[..], "p").unwrap_err();
        assert_eq!(format!("{error:#}"), "p:2: the file is not UTF-8 text");
    }
}
