//! Translates a `model` task to the job of the worker, with the grants of its tier.
//!
//! The box of a task without tools can reach the server of its tier and nothing else. The box of a task with
//! tools also has the network of its template. It sees a placeholder of the key. The tiers of a plan are
//! fixed when the plan is submitted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use belljar_model::net::{Allow, MicroUsd, Rule, SecretDecl, SecretName, Slot, Target, TokenPrice};
use belljar_model::plan::{
    Check, CheckedPlan, Executor, ModelTier, OutputKind, Overflow, Task, TaskId, TierName,
    TierProvider,
};
use belljar_model::{Config, Net, RunId, Template};
use belljar_wire::{
    InputSource, Job, ModelFailureKind, ModelInput, ModelJob, ModelOutput, ModelProtocol,
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::host::INPUT_DIR;
use super::{Context, Evidence, FailReason, ModelHost, TaskInputs, TaskRef, TaskWork, Try, lost};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::runs::budget::{Limits, Unit};
use crate::scope::Scoped;
use crate::supervisor::spec::Rules;

/// The file with the tiers of a plan.
const TIERS: &str = "tiers.json";
/// The variable with the placeholder of a key whose declaration names no variable.
const KEY_VARIABLE: &str = "BELLJAR_MODEL_KEY";
/// The maximum number of tokens of an answer if the plan names none.
const DEFAULT_MAX_TOKENS: u64 = 8192;
/// The bytes of a request beside its prompt and its inputs, for an estimate.
const OVERHEAD: u64 = 4096;

/// A tier as it was when its plan was submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FixedTier {
    protocol: ModelProtocol,
    model: String,
    /// The base URL of the server, as the box sees it.
    url: String,
    /// The rule that allows requests to the server.
    rule: Rule,
    secret: Option<SecretDecl>,
    price: Option<TokenPrice>,
    context_window: Option<u64>,
}

/// Returns the file with the tiers that a plan uses, or nothing if it uses none.
pub(super) fn fixed_tiers(
    state: &Scoped,
    plan: &CheckedPlan,
) -> Result<BTreeMap<String, Vec<u8>>, EngineError> {
    let names: BTreeSet<&TierName> = plan.tasks().iter().flat_map(names).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (config, _) = state.load_config(None)?;
    let mut fixed = BTreeMap::new();
    for name in names {
        let tier = config.tiers().find(|tier| tier.name == *name);
        let tier =
            tier.ok_or_else(|| invalid(format!("the configuration has no tier `{name}`")))?;
        let tier = FixedTier::new(tier, &config)
            .map_err(|reason| invalid(format!("tier `{name}`: {reason}")))?;
        fixed.insert(name.clone(), tier);
    }
    let text = serde_json::to_vec(&fixed).kind(ErrorKind::Broken)?;
    Ok(BTreeMap::from([(TIERS.to_owned(), text)]))
}

/// Returns the names of the tiers that a task uses.
fn names(task: &Task) -> impl Iterator<Item = &TierName> {
    let (first, next) = match &task.executor {
        Executor::Model { tier, escalate, .. } => (Some(tier), escalate.as_slice()),
        Executor::Command { .. }
        | Executor::Code { .. }
        | Executor::Agent { .. }
        | Executor::Approval { .. }
        | Executor::Stub { .. } => (None, [].as_slice()),
    };
    let checks = task.checks.iter().filter_map(Check::tier);
    first.into_iter().chain(next).chain(checks)
}

impl FixedTier {
    fn new(tier: &ModelTier, config: &Config) -> Result<Self, String> {
        let (url, rule) = tier.rule().map_err(|error| error.to_string())?;
        let secret = tier.secret.as_ref().map(|name| {
            let known = config.secret(name).cloned();
            known.ok_or_else(|| format!("the secret {name} is not declared"))
        });
        let secret = secret.transpose()?;
        let protocol = match tier.provider {
            TierProvider::Anthropic => ModelProtocol::Anthropic,
            TierProvider::OpenAiChat => ModelProtocol::OpenAiChat,
            TierProvider::OpenAiResponses => ModelProtocol::OpenAiResponses,
        };
        let secret = secret.map(|mut secret| {
            secret.env.get_or_insert_with(|| KEY_VARIABLE.to_owned());
            secret
        });
        let fixed = Self {
            protocol,
            model: tier.model.clone(),
            url,
            rule,
            secret,
            price: tier.price,
            context_window: tier.context_window,
        };
        fixed.check_secret()?;
        Ok(fixed)
    }

    /// Returns an error if the broker would not insert the key into requests of the tier.
    fn check_secret(&self) -> Result<(), String> {
        let (Some(secret), Some(target)) = (&self.secret, self.target()) else { return Ok(()) };
        if !secret.hosts.iter().any(|host| host.matches(target)) {
            return Err(format!(
                "the secret {} is not for the host {target}; add the host to `hosts` of the secret",
                secret.name
            ));
        }
        let header = match self.protocol {
            ModelProtocol::Anthropic => "x-api-key",
            ModelProtocol::OpenAiChat | ModelProtocol::OpenAiResponses => "authorization",
        };
        let is_slot = |slot: &Slot| matches!(slot, Slot::Header(name) if name == header);
        match secret.slots.iter().any(is_slot) {
            true => Ok(()),
            false => Err(format!(
                "the secret {} cannot be in the header {header}, which the provider requires",
                secret.name
            )),
        }
    }

    /// Returns the name of the key of the tier.
    pub(super) fn secret(&self) -> Option<&SecretName> {
        self.secret.as_ref().map(|secret| &secret.name)
    }

    fn target(&self) -> Option<&Target> {
        self.rule.http().and_then(|http| http.host.target())
    }

    fn host(&self) -> Option<ModelHost> {
        let port = *self.rule.http()?.ports.first()?;
        Some(ModelHost { host: self.target()?.to_string(), port })
    }

    /// Returns the template of a box that has the network of a template, and reaches the server of the tier
    /// too.
    pub(super) fn template_with_tools(&self, template: &Template) -> Template {
        let mut template = template.clone();
        if template.net == Net::None {
            return self.template(&template);
        }
        template.allow.push(Allow::Rule(Box::new(self.rule.clone())));
        template
    }

    /// Returns the template of a box that can reach the server of the tier and nothing else.
    pub(super) fn template(&self, template: &Template) -> Template {
        let mut template = template.clone();
        template.net = Net::Restricted;
        template.allow = vec![Allow::Rule(Box::new(self.rule.clone()))];
        template.ask.clear();
        template.secrets.clear();
        template
    }

    /// Grants the key of the tier, as it was declared when the plan was submitted.
    pub(super) fn grant(&self, rules: &mut Rules) {
        if let Some(network) = &mut rules.network {
            network.set_secrets(self.secret.iter().cloned().collect());
        }
    }

    /// Grants the key of the tier in addition to the secrets of the template.
    pub(super) fn grant_with_tools(&self, rules: &mut Rules) {
        if let Some(network) = &mut rules.network {
            let own = self.secret.as_ref();
            let others = network.secrets().iter();
            let others = others.filter(|other| own.is_none_or(|own| own.name != other.name));
            let all = others.chain(own).cloned().collect();
            network.set_secrets(all);
        }
    }

    /// Returns the maximum number of tokens of an answer. A plan without a maximum gets at most what the
    /// lease has left after the input.
    pub(super) fn max_tokens(&self, named: Option<u64>, input_bytes: u64, lease: &Limits) -> u64 {
        let window = self.context_window.unwrap_or(u64::MAX);
        if let Some(named) = named {
            return named.min(window);
        }
        let input = input_bytes.saturating_add(OVERHEAD).div_ceil(2);
        let by_tokens = lease.get(Unit::Tokens).map(|lease| lease.saturating_sub(input));
        let by_money = lease.get(Unit::Money).zip(self.price).map(|(lease, price)| {
            let TokenPrice { input: MicroUsd(input_price), output: MicroUsd(output_price) } = price;
            let (lease, million) = (u128::from(lease), 1_000_000_u128);
            let input = u128::from(input).saturating_mul(u128::from(input_price)) / million;
            let left = lease.saturating_sub(input).saturating_sub(1).saturating_mul(million);
            u64::try_from(left / u128::from(output_price.max(1))).unwrap_or(u64::MAX)
        });
        let limits = [by_tokens, by_money].into_iter().flatten();
        // If nothing is left, the broker refuses the request. Half of a small window is for the question.
        limits.fold(DEFAULT_MAX_TOKENS, u64::min).min(window / 2).max(1)
    }
}

impl FixedTier {
    /// Returns a job for the model of the tier, without a question.
    pub(super) fn job(&self) -> ModelJob {
        ModelJob {
            protocol: self.protocol,
            url: Some(self.url.clone()),
            model: self.model.clone(),
            key_variable: self.secret.as_ref().and_then(|secret| secret.env.clone()),
            system: None,
            prompt: String::new(),
            inputs: Vec::new(),
            output: ModelOutput::Text,
            max_tokens: DEFAULT_MAX_TOKENS,
            window: self.context_window,
            cuts: false,
            tools: None,
        }
    }
}

impl Context<'_> {
    fn tiers(&self) -> Option<BTreeMap<TierName, FixedTier>> {
        serde_json::from_slice(&self.files.fixed(self.bound, TIERS)?).ok()
    }

    /// Returns the names of the secrets that the boxes of a task and of its checks can use. The box of an
    /// agent can use every secret.
    pub(in crate::runs) fn secrets(&self, task: &Task) -> BTreeSet<SecretName> {
        let of_template = || {
            let position = self.plan.index(&task.id)?;
            let template = self.plan.box_template(position)?;
            let rules = template.allow.iter().filter_map(|allow| match allow {
                Allow::Rule(rule) => rule.http(),
                Allow::Preset(_) => None,
            });
            let rules = rules.chain(template.ask.iter().filter_map(Rule::http));
            let of_rules = rules.flat_map(|http| http.secrets.iter());
            Some(template.secrets.iter().chain(of_rules).cloned().collect::<BTreeSet<_>>())
        };
        let of_task = match &task.executor {
            Executor::Model { tools, .. } => {
                tools.as_ref().and_then(|_| of_template()).unwrap_or_default()
            }
            Executor::Agent { .. } => {
                let budgets = [self.plan.budget(), &task.budget];
                budgets.iter().flat_map(|budget| budget.secrets.keys().cloned()).collect()
            }
            Executor::Command { .. } | Executor::Code { .. } => of_template().unwrap_or_default(),
            Executor::Approval { .. } | Executor::Stub { .. } => BTreeSet::new(),
        };
        let mut used = names(task).peekable();
        let tiers = used.peek().and_then(|_| self.tiers()).unwrap_or_default();
        let of_tiers = used.filter_map(|name| tiers.get(name)?.secret().cloned());
        of_task.into_iter().chain(of_tiers).collect()
    }

    /// Returns the tier of the next attempt of an instance.
    pub(super) fn tier(&self, task: &Task, of: &TaskRef) -> Result<FixedTier, EngineError> {
        let number = usize::try_from(self.progress.tier(of).unwrap_or(0)).unwrap_or(usize::MAX);
        let mut tiers = self.tiers().unwrap_or_default();
        let tier = names(task).nth(number).and_then(|name| tiers.remove(name));
        tier.ok_or_else(|| invalid("the tier of the task is missing"))
    }

    /// Returns a tier by its name.
    pub(super) fn tier_named(&self, name: &TierName) -> Result<FixedTier, EngineError> {
        let tier = self.tiers().and_then(|mut tiers| tiers.remove(name));
        tier.ok_or_else(|| invalid(format!("the tier `{name}` of the plan is missing")))
    }

    /// Returns the job of a `model` task.
    pub(super) fn model(
        &self,
        task: &Task,
        of: &Try,
        tier: &FixedTier,
        inputs: &TaskInputs,
        (rules, lease): (&Rules, &Limits),
    ) -> Result<TaskWork, EngineError> {
        let Executor::Model { prompt, max_tokens, overflow, tools, .. } = &task.executor else {
            return Err(invalid("the task is not a request to a model"));
        };
        let prompt = self.files.text(self.bound, &task.id, prompt);
        let mut prompt = prompt.ok_or_else(|| invalid("the prompt of the task is missing"))?;
        if !task.done.is_empty() {
            prompt.push_str("\n\nThe result is complete if all of this is true:");
            task.done.iter().for_each(|criterion| prompt.push_str(&format!("\n- {criterion}")));
        }
        let output = match task.output.kind {
            OutputKind::Json => ModelOutput::Json { schema: self.schema(task)? },
            OutputKind::Choice => {
                ModelOutput::Choice(inputs.files.iter().map(|input| input.name.clone()).collect())
            }
            OutputKind::Text | OutputKind::Bytes | OutputKind::Branch => ModelOutput::Text,
        };
        let size = |path| fs::metadata(path).map_or(0, |file| file.len());
        let mut bytes = inputs.files.iter().map(|input| size(&input.content)).sum::<u64>();
        bytes = bytes.saturating_add(prompt.len() as u64);
        if let ModelOutput::Json { schema: Some(schema) } = &output {
            bytes = bytes.saturating_add(schema.len() as u64);
        }
        let job = ModelJob {
            prompt,
            inputs: self.model_inputs(&of.instance(), inputs),
            output,
            max_tokens: tier.max_tokens(*max_tokens, bytes, lease),
            cuts: *overflow == Overflow::Cut,
            tools: tools.as_ref().map(|tools| self.tool_job(tools, rules)).transpose()?,
            ..tier.job()
        };
        Ok(TaskWork::Code(Box::new(Job::Model(job))))
    }

    /// Returns the inputs of a request. The reason of an earlier failure is one of them, because it can
    /// contain text of a model or a server.
    fn model_inputs(&self, of: &TaskRef, inputs: &TaskInputs) -> Vec<ModelInput> {
        let file = |name: &str, file: &str| ModelInput {
            name: name.to_owned(),
            source: InputSource::File(format!("{INPUT_DIR}/{file}")),
        };
        let files = inputs.files.iter().map(|input| file(&input.name, &input.name));
        let item = inputs.item.as_ref().map(|_| file("item", "item.json"));
        let reason = self.reasons.get(of).map(|reason| ModelInput {
            name: "why the last attempt failed".to_owned(),
            source: InputSource::Text(reason.clone()),
        });
        files.chain(item).chain(reason).collect()
    }

    fn schema(&self, task: &Task) -> Result<Option<String>, EngineError> {
        if task.output.schema.is_none() {
            return Ok(None);
        }
        let schema = self.files.schema(self.bound, &task.id);
        schema.map(Some).ok_or_else(|| invalid("the schema of the task is missing"))
    }

    /// Checks an output against the schema of its task. The error is a sentence.
    pub(super) fn check_schema(&self, task: &TaskId, value: &Json) -> Result<(), String> {
        let Some(task) = self.plan.task(task) else { return Ok(()) };
        let Some(schema) = self.schema(task).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let schema = serde_json::from_str(&schema).map_err(|error| error.to_string())?;
        belljar_wire::schema::check(&schema, value)
            .map_err(|reason| format!("the output does not match its schema: {reason}"))
    }

    /// Returns what the ledger shows about an attempt without a result. Requests to the tiers of the plan
    /// have no effect.
    pub(super) fn lost(&self, of: &Try, box_run: RunId) -> Result<Evidence, EngineError> {
        let is_model = |task: &Task| matches!(task.executor, Executor::Model { .. });
        let tiers = match self.plan.task(&of.task).is_some_and(is_model) {
            true => self.tiers().unwrap_or_default(),
            false => BTreeMap::new(),
        };
        let hosts: Vec<ModelHost> = tiers.values().filter_map(FixedTier::host).collect();
        lost(self.state, box_run, &hosts)
    }
}

/// Returns the reason of a failure with the name that the worker gave it.
pub(super) fn reason(kind: &str) -> FailReason {
    match ModelFailureKind::named(kind).unwrap_or(ModelFailureKind::Invalid) {
        ModelFailureKind::Refused => FailReason::Refused,
        ModelFailureKind::Invalid => FailReason::Invalid,
        ModelFailureKind::CutOff => FailReason::CutOff,
        ModelFailureKind::Unavailable => FailReason::Unavailable,
        ModelFailureKind::TooLong => FailReason::TooLong,
        ModelFailureKind::Turns => FailReason::Turns,
        ModelFailureKind::BadKey => FailReason::BadKey,
        ModelFailureKind::OverBudget => FailReason::OverBudget,
        ModelFailureKind::CannotStart => FailReason::CannotStart,
    }
}
