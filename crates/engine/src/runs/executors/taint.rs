//! What labels mean for the boxes of a plan, fixed when the plan is submitted, and enforced at each start.

use std::collections::{BTreeMap, BTreeSet};

use belljar_ledger::Digest;
use belljar_model::net::{Allow, RemovedGrants, Rule, SecretKind, SecretName};
use belljar_model::plan::{CheckedPlan, Executor, Label, Task, TaskId, TierName};
use belljar_model::{Config, Net, Template};

use super::Context;
use crate::agents;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::runs::files::RunFiles;
use crate::runs::machine::TaskRef;
use crate::runs::taint::{
    self, BoxTaint, Earned, GrantName, MODEL, Marked, NETWORK, PlanTaint, Removed,
};
use crate::scope::Scoped;

/// The file with what labels mean for the boxes of a plan.
const TAINT: &str = "taint.json";

/// Returns the file with what labels mean for the boxes of a plan, or nothing if they mean nothing.
pub(super) fn fixed_file(
    state: &Scoped,
    plan: &CheckedPlan,
) -> Result<BTreeMap<String, Vec<u8>>, EngineError> {
    if !plan.tasks().iter().any(Task::has_box) {
        return Ok(BTreeMap::new());
    }
    let (config, _) = state.load_config(None)?;
    let taint = of_plan(plan, &config, state.host())?;
    if taint.is_empty() {
        return Ok(BTreeMap::new());
    }
    let text = serde_json::to_vec(&taint).kind(ErrorKind::Broken)?;
    Ok(BTreeMap::from([(TAINT.to_owned(), text)]))
}

/// Reads what labels mean for the boxes of a run.
pub(in crate::runs) fn read(files: &RunFiles, bound: Digest) -> Result<PlanTaint, EngineError> {
    let damaged = || {
        let text = "the marks of the plan's grants are missing or were changed";
        EngineError::message(ErrorKind::Damaged, text)
    };
    match files.optional_fixed(bound, TAINT).ok_or_else(damaged)? {
        None => Ok(PlanTaint::new()),
        Some(text) => serde_json::from_slice(&text).ok().ok_or_else(damaged),
    }
}

/// Returns what labels mean for the boxes of a plan.
fn of_plan(plan: &CheckedPlan, config: &Config, host: &HostEnv) -> Result<PlanTaint, EngineError> {
    let mut all = PlanTaint::new();
    for (position, task) in plan.tasks().iter().enumerate() {
        let Some(template) = plan.box_template(position) else { continue };
        let agent = match &task.executor {
            Executor::Agent { agent, .. } => Some(agents::find(host, agent)?),
            Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Model { .. }
            | Executor::Approval { .. }
            | Executor::Stub { .. } => None,
        };
        let of_agent =
            agent.as_ref().map(|agent| config.clone().with_secrets(agent.declared.clone()));
        let config = of_agent.as_ref().unwrap_or(config);
        let mut marks = Marks { config, found: BoxTaint::default(), secrets: BTreeSet::new() };
        match &task.executor {
            Executor::Command { .. } | Executor::Code { .. } => marks.template(template),
            Executor::Model { tier, escalate, tools, .. } => {
                if tools.is_some() {
                    marks.template(template);
                }
                for (number, name) in (0..).zip(std::iter::once(tier).chain(escalate)) {
                    let Some(secret) = marks.key(&task.id, name)? else { continue };
                    marks.secret(&secret, Some(number));
                }
            }
            Executor::Agent { .. } => {
                marks.template(template);
                if let Some(agent) = &agent {
                    marks.rules(&agent.allow, &[]);
                    agent.secrets.iter().for_each(|secret| marks.secret(secret, None));
                }
            }
            Executor::Approval { .. } | Executor::Stub { .. } => {}
        }
        for (number, check) in (0..).zip(&task.checks) {
            if let Some(name) = check.tier() {
                marks.check(&task.id, name, number)?;
            }
        }
        if marks.found != BoxTaint::default() {
            all.insert(task.id.clone(), marks.found);
        }
    }
    Ok(all)
}

/// Collects the marks of the grants of one box.
struct Marks<'c> {
    config: &'c Config,
    found: BoxTaint,
    /// The secrets of all attempts that were seen.
    secrets: BTreeSet<SecretName>,
}

impl Marks<'_> {
    fn template(&mut self, template: &Template) {
        match template.net {
            Net::None => return,
            Net::Full => self.earn("net = \"full\"".to_owned()),
            Net::Restricted => {}
        }
        self.rules(&template.allow, &template.ask);
        template.secrets.iter().for_each(|secret| self.secret(secret, None));
    }

    fn rules(&mut self, allow: &[Allow], ask: &[Rule]) {
        let allow = allow.iter().filter_map(|allow| match allow {
            Allow::Rule(rule) => Some(rule.as_ref()),
            // The rules of presets have no marks.
            Allow::Preset(_) => None,
        });
        for rule in allow.chain(ask) {
            if rule.marks.untrusted {
                self.earn(format!("rule {}", rule.id));
            }
            if !rule.marks.deny_when.is_empty() {
                let (grant, deny_when) =
                    (GrantName::Rule(rule.id.clone()), rule.marks.deny_when.clone());
                self.found.marked.push(Marked { grant, deny_when, tier: None, check: None });
            }
            let secrets = rule.http().into_iter().flat_map(|http| &http.secrets);
            secrets.for_each(|secret| self.secret(secret, None));
        }
    }

    fn earn(&mut self, from: String) {
        self.found.earned.extend(NETWORK.parse().ok().map(|label| Earned { label, from }));
    }

    fn secret(&mut self, name: &SecretName, tier: Option<u32>) {
        let deny_when = self.deny_when(name);
        let is_new = tier.is_some() || self.secrets.insert(name.clone());
        if is_new && !deny_when.is_empty() {
            let grant = GrantName::Secret(name.clone());
            self.found.marked.push(Marked { grant, deny_when, tier, check: None });
        }
    }

    /// Marks the key of the judge of a check.
    fn check(&mut self, task: &TaskId, tier: &TierName, number: u32) -> Result<(), EngineError> {
        let Some(secret) = self.key(task, tier)? else { return Ok(()) };
        let deny_when = self.deny_when(&secret);
        if !deny_when.is_empty() {
            let (grant, check) = (GrantName::Secret(secret), Some(number));
            self.found.marked.push(Marked { grant, deny_when, tier: None, check });
        }
        Ok(())
    }

    /// Returns the key of a tier, or an error if no model may have it.
    fn key(&self, task: &TaskId, name: &TierName) -> Result<Option<SecretName>, EngineError> {
        let tier = self.config.tiers().find(|known| known.name == *name);
        let Some(secret) = tier.and_then(|tier| tier.secret.as_ref()) else { return Ok(None) };
        if self.deny_when(secret).iter().any(|label| label.as_str() == MODEL) {
            return Err(invalid(format!(
                "task `{task}`: tier `{name}` cannot work: the secret {secret} has `deny-when` with the label {MODEL}"
            )));
        }
        Ok(Some(secret.clone()))
    }

    /// Returns the labels that remove a secret: its own, and those of the client secret that it needs.
    fn deny_when(&self, name: &SecretName) -> BTreeSet<Label> {
        let declared = self.config.secret(name);
        let client = declared.and_then(|declared| match &declared.kind {
            SecretKind::OAuth2 { client_secret, .. } => client_secret.as_ref(),
            SecretKind::Token | SecretKind::SigV4 { .. } | SecretKind::Hmac { .. } => None,
        });
        let client = client.and_then(|name| self.config.secret(name));
        let all = declared.into_iter().chain(client);
        all.flat_map(|declared| declared.deny_when.iter().cloned()).collect()
    }
}

impl Context<'_> {
    /// Returns the grants that labels remove from the box of an instance.
    pub(super) fn removed(&self, of: &TaskRef) -> RemovedGrants {
        taint::grants(&self.progress.removed(of))
    }

    /// Returns why the labels of a task remove a secret without which it cannot start.
    pub(super) fn without_secret(&self, of: &TaskRef, name: &SecretName) -> Option<String> {
        let grant = GrantName::Secret(name.clone());
        self.progress.removed(of).iter().find(|it| it.grant == grant).map(why)
    }

    /// Returns why labels remove the key of a judge, without which its check cannot start.
    pub(super) fn without_judge(&self, of: &TaskRef, check: usize) -> Option<String> {
        self.progress.removed_from_check(of, check).first().map(why)
    }

    /// Returns why labels exclude a check of a task, whose output then could never pass.
    pub(super) fn excluded_check(&self, of: &TaskRef) -> Option<String> {
        let checks = self.plan.task(&of.task).map_or(0, |task| task.checks.len());
        (0..checks).find_map(|check| {
            Some(format!("check {check} cannot start: {}", self.without_judge(of, check)?))
        })
    }
}

/// Returns the sentence about a secret that a label removed.
fn why(removed: &Removed) -> String {
    let label = taint::sentence(&removed.label, &removed.from);
    format!("the {} is removed because of the label {label}", removed.grant)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use belljar_model::Scope;

    use super::*;
    use crate::runs::plans;

    const CONFIG: &str = "[template.web]\nnet = 'restricted'\nsecrets = ['deploy', 'plain']\nallow = [{ name = 'pages', host = 'pages.example.com', untrusted = true }, { name = 'deploys', host = 'deploy.example.com', deny-when = ['untrusted'] }, 'plain.example.com']\n[template.open]\nnet = 'full'\n[secret.deploy]\nhosts = ['deploy.example.com']\nenv = 'D'\ndeny-when = ['network', 'untrusted']\n[secret.plain]\nhosts = ['plain.example.com']\nenv = 'P'\n[secret.key]\nhosts = ['api.anthropic.com']\nslots = ['header:x-api-key']\nenv = 'K'\ndeny-when = ['untrusted']\n[tier.cheap]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 'key'\n[tier.local]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:1'\n";

    fn taint_with(config: &str, plan: &str) -> Result<PlanTaint, EngineError> {
        let host = HostEnv::new([("HOME".into(), "/nonexistent".into())], "/proc/self/exe".into());
        let config = Config::parse(config, Path::new("belljar.toml"), Scope::Operator).unwrap();
        let ceiling = plans::ceiling(&host, &config).unwrap();
        let plan = plans::check(plan, "p.toml", &ceiling).unwrap();
        of_plan(&plan, &config, &host)
    }

    /// Returns the earned labels and the marked grants of each task as text.
    fn texts(plan: &str) -> Vec<String> {
        let text = |(task, taint): (_, BoxTaint)| {
            let earned = taint.earned.iter().map(|it| format!("{} by {}", it.label, it.from));
            let marked = taint.marked.iter().map(|it| {
                let labels: Vec<&str> = it.deny_when.iter().map(Label::as_str).collect();
                format!("{} not {} {:?}", it.grant, labels.join("/"), it.tier)
            });
            format!("{task}: {}", earned.chain(marked).collect::<Vec<_>>().join(", "))
        };
        taint_with(CONFIG, plan).unwrap().into_iter().map(text).collect()
    }

    #[test]
    fn marks_of_a_box_are_those_of_its_rules_secrets_and_tiers() {
        let plan = "[run]\ntemplate = 'web'\n[task.a]\ndo.command = ['true']\n[task.b]\ndo = { model = 'local', escalate = ['cheap'], prompt = 'x' }\n[task.c]\ndo.stub = 1\n[task.d]\ndo = { command = ['true'] }\nbox = { net = 'none' }\n";
        assert_eq!(
            texts(plan),
            [
                "a: network by rule pages, rule deploys not untrusted None, secret deploy not network/untrusted None",
                "b: secret key not untrusted Some(1)",
            ]
        );
    }

    #[test]
    fn open_network_earns_its_label_unless_the_box_cannot_use_it() {
        let plan = "[run]\ntemplate = 'open'\n[task.a]\ndo.command = ['true']\n[task.b]\ndo = { model = 'local', prompt = 'x' }\n[task.c]\ndo = { model = 'local', prompt = 'x', tools = ['shell'] }\n";
        assert_eq!(texts(plan), ["a: network by net = \"full\"", "c: network by net = \"full\""]);
        assert!(texts("[task.a]\ndo.command = ['true']\n").is_empty());
    }

    #[test]
    fn key_of_a_judge_is_marked_for_its_check_and_not_for_the_task() {
        let plan = "[task.a]\ndo.command = ['true']\ncheck = [{ command = ['true'] }, { model = 'cheap', prompt = 'x' }, { model = 'local', prompt = 'x' }]\n";
        let taint = taint_with(CONFIG, plan).unwrap();
        let [(_, BoxTaint { earned, marked })] = &taint.iter().collect::<Vec<_>>()[..] else {
            panic!("{taint:?}")
        };
        assert!(earned.is_empty());
        let [Marked { grant, tier: None, check: Some(1), .. }] = &marked[..] else {
            panic!("{marked:?}")
        };
        assert_eq!(grant.to_string(), "secret key");
    }

    #[test]
    fn tier_whose_key_excludes_models_is_refused() {
        let config =
            CONFIG.replace("deny-when = ['untrusted']\n[tier", "deny-when = ['model']\n[tier");
        for plan in [
            "[task.a]\ndo = { model = 'cheap', prompt = 'x' }\n",
            "[task.a]\ndo.command = ['true']\ncheck = [{ model = 'cheap', prompt = 'x' }]\n",
        ] {
            let error = taint_with(&config, plan).unwrap_err();
            assert!(format!("{error:#}").contains("tier `cheap` cannot work"), "{error:#}");
            assert!(taint_with(CONFIG, plan).is_ok(), "control");
        }
    }
}
