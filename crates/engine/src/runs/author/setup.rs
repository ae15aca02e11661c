//! The tier that writes a plan, and what the plan may use.

use std::collections::BTreeSet;
use std::path::Path;

use belljar_model::net::SecretName;
use belljar_model::plan::{Ceiling, ModelTier, TierName};
use belljar_model::{Config, DEFAULT_TEMPLATE, Template};

use super::prompt::Names;
use crate::agents::{self, TaskAgent};
use crate::error::{EngineError, invalid};
use crate::runs::plans;
use crate::scope::Scoped;
use crate::secrets;

/// The tiers that write plans if the caller names none, most capable first.
const PREFERRED: [&str; 3] = ["frontier", "capable", "cheap"];

/// What the configuration gives for a request.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) tier: TierName,
    pub(super) template: Template,
    pub(super) names: Names,
    /// Everything of the operator.
    pub(super) operator: Ceiling,
    /// What the plan may use: one template, and the tiers and agents that can work now.
    pub(super) ceiling: Ceiling,
}

pub(super) fn of(
    state: &Scoped,
    dir: &Path,
    tier: Option<&TierName>,
    template: Option<&str>,
) -> Result<Setup, EngineError> {
    let (config, _) = state.load_config(Some(dir))?;
    let operator = plans::ceiling_of(state.host(), &config, &state.caller().tenant)?;
    let name = template.unwrap_or(DEFAULT_TEMPLATE);
    let Some(template) = operator.templates.get(name).cloned() else {
        let known: Vec<&str> = operator.templates.keys().map(String::as_str).collect();
        return Err(invalid(format!("unknown template `{name}`; known: {}", known.join(", "))));
    };
    let stored: BTreeSet<SecretName> =
        secrets::stored(state)?.into_iter().map(|stored| stored.name).collect();
    let tier = chosen(&config, tier)?;
    if let Some(secret) = tier.secret.as_ref().filter(|secret| !stored.contains(secret)) {
        let text = format!("the secret `{secret}` of tier `{}` is not set", tier.name);
        return Err(invalid(text).advise(format!("store it with `belljar secret set {secret}`")));
    }
    let has_key = |tier: &&ModelTier| tier.secret.as_ref().is_none_or(|it| stored.contains(it));
    let tiers: BTreeSet<TierName> =
        config.tiers().filter(has_key).map(|tier| tier.name.clone()).collect();
    let has_host_programs = template.rootfs.is_none();
    let can_work =
        |source: &&agents::AgentSource| TaskAgent::fix(state, source, has_host_programs).is_ok();
    let all = agents::all(state.host())?;
    let usable = all.values().filter(can_work).map(|source| source.agent.name.clone()).collect();
    let names = Names { tiers, agents: usable, secrets: stored };
    let ceiling = Ceiling {
        templates: [(template.name.clone(), template.clone())].into(),
        tiers: operator
            .tiers
            .iter()
            .filter(|(name, _)| names.tiers.contains(name))
            .map(|(name, facts)| (name.clone(), *facts))
            .collect(),
        agents: names.agents.clone(),
        budget: operator.budget.clone(),
    };
    Ok(Setup { tier: tier.name.clone(), template, names, operator, ceiling })
}

/// Returns the tier that writes the plan.
fn chosen<'c>(config: &'c Config, named: Option<&TierName>) -> Result<&'c ModelTier, EngineError> {
    let find = |name: &str| config.tiers().find(|tier| tier.name.as_str() == name);
    let known: Vec<&str> = config.tiers().map(|tier| tier.name.as_str()).collect();
    if let Some(named) = named {
        let unknown = || invalid(format!("unknown tier `{named}`; known: {}", list(&known)));
        return find(named.as_str()).ok_or_else(unknown);
    }
    if let Some(tier) = PREFERRED.into_iter().find_map(find) {
        return Ok(tier);
    }
    if known.is_empty() {
        let error = invalid("your belljar.toml has no model to ask");
        return Err(error.advise(
            "add `[tier.capable]` with `provider = \"anthropic\"`, `model = \"NAME\"` and `secret = \"anthropic\"`, and store the key with `belljar secret set anthropic`",
        ));
    }
    if let [only] = known.as_slice()
        && let Some(tier) = find(only)
    {
        return Ok(tier);
    }
    let preferred = PREFERRED.join(", ");
    let error = invalid(format!("your belljar.toml has none of the tiers {preferred}"));
    Err(error.advise(format!("choose one with --tier: {}", list(&known))))
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the secret with the key of a tier.
pub(super) fn secret_of(
    state: &Scoped,
    tier: &TierName,
) -> Result<Option<SecretName>, EngineError> {
    let (config, _) = state.load_config(None)?;
    let secret =
        config.tiers().find(|known| known.name == *tier).and_then(|tier| tier.secret.clone());
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use belljar_model::Scope;

    use super::*;

    fn choose(tiers: &[&str], named: Option<&str>) -> Result<String, String> {
        let tier = |name: &&str| {
            format!(
                "[tier.{name}]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:1'\n"
            )
        };
        let text: String = tiers.iter().map(tier).collect();
        let config = Config::parse(&text, Path::new("belljar.toml"), Scope::Operator).unwrap();
        let named = named.map(|name| name.parse().unwrap());
        let chosen = chosen(&config, named.as_ref()).map(|tier| tier.name.to_string());
        chosen.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn tier_is_the_named_one_or_the_most_capable_or_the_only_one() {
        assert_eq!(choose(&["cheap", "capable"], None).unwrap(), "capable");
        assert_eq!(choose(&["capable", "frontier", "cheap"], None).unwrap(), "frontier");
        assert_eq!(choose(&["cheap", "capable"], Some("cheap")).unwrap(), "cheap");
        assert_eq!(choose(&["local"], None).unwrap(), "local");
    }

    #[test]
    fn missing_tier_is_an_error_that_names_the_next_step() {
        let none = choose(&[], None).unwrap_err();
        assert!(none.contains("`[tier.capable]`") && none.contains("belljar secret set"), "{none}");
        let several = choose(&["a", "b"], None).unwrap_err();
        assert!(several.ends_with("choose one with --tier: a, b"), "{several}");
        let unknown = choose(&["a"], Some("c")).unwrap_err();
        assert_eq!(unknown, "unknown tier `c`; known: a");
    }
}
