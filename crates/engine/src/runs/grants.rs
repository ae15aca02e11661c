//! Lists the destinations and secrets that the boxes of a plan can reach.

use std::collections::{BTreeMap, BTreeSet};

use belljar_model::net::{Allow, HostPattern, Rule, RuleTarget, SecretName};
use belljar_model::plan::{Check, CheckedPlan, Executor, TaskId, TierName};
use belljar_model::{Config, Net, Template};

use crate::agents;
use crate::error::EngineError;
use crate::host::HostEnv;

/// A destination that boxes of a plan can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// A host, an address, or a sentence such as `all public hosts`.
    pub to: String,
    /// The secrets that requests to the destination can carry.
    pub secrets: BTreeSet<SecretName>,
    /// Whether a person is asked before each request.
    pub is_asked: bool,
    /// The tasks whose own template allows the destination.
    pub tasks: BTreeSet<TaskId>,
    /// The tiers of models that need the destination.
    pub tiers: BTreeSet<TierName>,
    /// The agents that need the destination.
    pub agents: BTreeSet<String>,
}

/// Returns the destinations of all boxes of a plan, in the order of their names.
pub fn of_plan(
    plan: &CheckedPlan,
    config: &Config,
    host: &HostEnv,
) -> Result<Vec<Grant>, EngineError> {
    let mut grants = Grants { config, found: BTreeMap::new() };
    for (position, task) in plan.tasks().iter().enumerate() {
        if let Some(template) = plan.box_template(position) {
            grants.template(&task.id, template);
        }
        match &task.executor {
            Executor::Model { tier, escalate, .. } => {
                std::iter::once(tier).chain(escalate).for_each(|tier| grants.tier(tier));
            }
            Executor::Agent { agent, .. } => {
                let agent = agents::find(host, agent)?;
                let secrets: BTreeSet<SecretName> = agent.secrets.iter().cloned().collect();
                for rule in rules(&agent.allow) {
                    let grant = grants.rule(&rule, &secrets);
                    grant.agents.insert(agent.name.as_str().to_owned());
                }
            }
            Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Approval { .. }
            | Executor::Stub { .. } => {}
        }
        task.checks.iter().filter_map(Check::tier).for_each(|tier| grants.tier(tier));
    }
    Ok(grants.found.into_values().collect())
}

struct Grants<'a> {
    config: &'a Config,
    found: BTreeMap<String, Grant>,
}

impl Grants<'_> {
    fn to(&mut self, to: String) -> &mut Grant {
        self.found.entry(to.clone()).or_insert_with(|| Grant { to, ..Grant::default() })
    }

    fn template(&mut self, task: &TaskId, template: &Template) {
        match template.net {
            Net::None => return,
            Net::Full => {
                let grant = self.to("all public hosts".to_owned());
                grant.secrets.extend(template.secrets.iter().cloned());
                grant.tasks.insert(task.clone());
            }
            Net::Restricted => {}
        }
        for rule in rules(&template.allow) {
            self.rule(&rule, &template.secrets).tasks.insert(task.clone());
        }
        for rule in &template.ask {
            let grant = self.rule(rule, &template.secrets);
            grant.is_asked = true;
            grant.tasks.insert(task.clone());
        }
    }

    /// Adds the destination of a rule, with those of the secrets that its requests can carry.
    fn rule(&mut self, rule: &Rule, secrets: &BTreeSet<SecretName>) -> &mut Grant {
        let (to, used) = match &rule.what {
            RuleTarget::Http(http) => {
                let is_for = |name: &&SecretName| {
                    let declared = self.config.secret(name);
                    let covers = |host: &HostPattern| host.overlaps(&http.host);
                    http.secrets.contains(*name)
                        || declared.is_some_and(|declared| declared.hosts.iter().any(covers))
                };
                let used = secrets.iter().filter(is_for).chain(&http.secrets).cloned().collect();
                (http.host.to_string(), used)
            }
            RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => {
                (rule.what.to_string(), BTreeSet::new())
            }
        };
        let grant = self.to(to);
        grant.secrets.extend(used);
        grant
    }

    fn tier(&mut self, name: &TierName) {
        let Some(tier) = self.config.tiers().find(|tier| tier.name == *name) else { return };
        let to = tier
            .url
            .as_ref()
            .map_or_else(|| tier.provider.default_host().to_owned(), ToString::to_string);
        let secret = tier.secret.clone();
        let grant = self.to(to);
        grant.secrets.extend(secret);
        grant.tiers.insert(name.clone());
    }
}

/// Returns the rules of an `allow` list; those of a preset are listed one by one.
fn rules(allow: &[Allow]) -> Vec<Rule> {
    let mut all = Vec::new();
    for entry in allow {
        match entry {
            Allow::Rule(rule) => all.push(rule.as_ref().clone()),
            Allow::Preset(name) => {
                all.extend(name.preset().into_iter().flat_map(|preset| preset.rules));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use belljar_model::Scope;

    use super::*;
    use crate::runs::plans;

    fn host() -> HostEnv {
        HostEnv::new([("HOME".into(), "/nonexistent".into())], "/proc/self/exe".into())
    }

    fn texts(config: &str, plan: &str) -> Vec<String> {
        let config = Config::parse(config, Path::new("belljar.toml"), Scope::Operator).unwrap();
        let ceiling = plans::ceiling(&host(), &config).unwrap();
        let plan = plans::check(plan, "p.toml", &ceiling).unwrap();
        let grants = of_plan(&plan, &config, &host()).unwrap();
        let text = |grant: &Grant| {
            let Grant { to, secrets, is_asked, tasks, tiers, agents } = grant;
            let secrets: Vec<&str> = secrets.iter().map(SecretName::as_str).collect();
            let by = tasks.iter().map(ToString::to_string);
            let by = by.chain(tiers.iter().map(ToString::to_string)).chain(agents.iter().cloned());
            let by: Vec<String> = by.collect();
            format!("{to} [{}] asked={is_asked} {}", secrets.join(","), by.join(","))
        };
        grants.iter().map(text).collect()
    }

    #[test]
    fn grants_of_a_plan_are_those_of_its_templates_tiers_and_agents() {
        let config = "[template.web]\nnet = 'restricted'\nallow = ['example.org', 'pypi']\nask = ['ask.example.org']\nsecrets = ['token']\n[secret.token]\nhosts = ['example.org']\n[tier.cheap]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 'anthropic'\n[tier.local]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:1'\n";
        let plan = "[run]\ntemplate = 'web'\n[task.a]\ndo.command = ['true']\n[task.b]\ndo = { model = 'cheap', escalate = ['local'], prompt = 'x' }\n[task.c]\ndo.stub = 1\n";
        let found = texts(config, plan);
        let expected = [
            "api.anthropic.com [anthropic] asked=false cheap",
            "ask.example.org [] asked=true a,b",
            "example.org [token] asked=false a,b",
            "files.pythonhosted.org [] asked=false a,b",
            "http://localhost:1 [] asked=false local",
            "pypi.org [] asked=false a,b",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn tier_of_a_judge_is_a_grant_of_its_plan() {
        let config = "[tier.cheap]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 'anthropic'\n";
        let plan = "[task.a]\ndo.command = ['true']\ncheck = [{ model = 'cheap', prompt = 'x' }]\n";
        assert_eq!(texts(config, plan), ["api.anthropic.com [anthropic] asked=false cheap"]);
    }

    #[test]
    fn plan_without_a_network_reaches_nothing() {
        assert!(texts("", "[task.a]\ndo.command = ['true']\n").is_empty());
    }
}
