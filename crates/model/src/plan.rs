//! Plans: graphs of tasks that `belljar submit` carries out.
//!
//! A plan is data. It is parsed from TOML or JSON, checked as a whole, and never changes afterwards.
//! Only [`Plan::check`] creates a [`CheckedPlan`], and only a checked plan can be submitted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::agent::AgentName;
use crate::answer::AnswerTerms;
use crate::net::{MicroUsd, SecretName};
use crate::size::ByteSize;
use crate::spec::Argv;
use crate::template::Overrides;

mod authored;
mod check;
mod checked;
mod fault;
mod id;
mod json;
mod lines;
mod node;
mod read;
mod tier;
mod tools;

pub use authored::{PathPurpose, PlanPath, holds_credentials};
pub use check::{Ceiling, TierFacts};
pub use checked::{CheckedPlan, StoredPlanError};
pub use fault::{PlanFault, PlanFaults};
pub use id::{IdError, InputName, Label, TaskId, TierName};
pub use read::check_syntax;
pub use tier::{ModelTier, TierProvider, TierProviderError};
pub use tools::{MAX_TURNS, ModelTool, ModelToolError, ModelTools, Overflow};

pub use crate::net::TokenPrice;

/// A plan as its file describes it, with correct values but unchecked references between tasks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The name of the plan: `name` in `[run]`, else the name of its file without the extension.
    pub name: String,
    /// The operator's template for the boxes of all tasks.
    pub template: String,
    /// The budget of the whole run; no task can exceed it.
    pub budget: RunBudget,
    pub inputs: BTreeMap<InputName, PlanInput>,
    /// The task whose output is the answer of the run; if missing, all tasks without dependents count.
    pub answer: Option<TaskId>,
    /// The tasks in the order of the file.
    pub tasks: Vec<Task>,
    /// The lines of the file, for the faults of [`Plan::check`].
    lines: lines::PlanLines,
}

/// A file, or a text in the plan, that tasks read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanInput {
    pub content: Text,
    /// The labels of the content, for example `untrusted`.
    pub labels: Vec<Label>,
}

/// A text that is part of the plan, or a file that `submit` reads once and copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    Inline(String),
    File(PathBuf),
}

/// One task of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub id: TaskId,
    pub executor: Executor,
    /// The data edges: outputs and inputs that the task reads. A data edge is also an order edge.
    pub data: Vec<Edge>,
    /// The order edges: tasks that must be done before this task starts.
    pub needs: Vec<Edge>,
    pub output: OutputSpec,
    pub when: Option<When>,
    pub for_each: Option<ForEach>,
    /// The maximum number of attempts, per tier for a model task.
    pub attempts: u32,
    /// The pause before the second attempt; it doubles with each further attempt, up to five minutes.
    pub backoff: Duration,
    pub on_crash: OnCrash,
    /// The criteria for a complete result. The prompt of the executor and of each check by a model contains
    /// them.
    pub done: Vec<String>,
    /// The checks of the output, in this order, before any dependent sees it.
    pub checks: Vec<Check>,
    /// The limits of the box; they can only tighten the template.
    pub overrides: Overrides,
    pub budget: RunBudget,
    /// The labels of what the task reads beside its inputs: its workspace, its repository and its mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
}

impl Task {
    /// Returns whether the task runs in a box.
    pub fn has_box(&self) -> bool {
        match self.executor {
            Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Agent { .. }
            | Executor::Model { .. } => true,
            Executor::Approval { .. } | Executor::Stub { .. } => false,
        }
    }

    /// Returns the number of instances; for a list that another task makes, its maximum.
    pub fn max_instances(&self) -> usize {
        match &self.for_each {
            None => 1,
            Some(ForEach::Values(values)) => values.len(),
            Some(ForEach::Output { max, .. }) => usize::try_from(*max).unwrap_or(usize::MAX),
        }
    }
}

/// An edge from a task or an input of the plan to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    pub from: Source,
    /// Written `id?`: the edge accepts failed and skipped instances if at least one is done.
    pub optional: bool,
}

/// The start of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Task(TaskId),
    Input(InputName),
}

/// The program, service or person that carries out a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Executor {
    /// A program with arguments in a box; its standard output is the output of the task.
    Command {
        argv: Argv,
        /// The user's directory that the box sees, or none.
        workspace: Option<TaskWorkspace>,
    },
    /// A TypeScript program in a box; the value that it returns is the output.
    Code { source: Text },
    /// A coding agent in a private clone; its commits are the output.
    Agent { agent: AgentName, repo: PathBuf, base: Base, prompt: Text },
    /// A request to a language model.
    Model {
        tier: TierName,
        /// The tiers that are tried next when all attempts of a tier failed or were rejected.
        escalate: Vec<TierName>,
        prompt: Text,
        max_tokens: Option<u64>,
        /// What happens to a request that is longer than the context window of its model.
        #[serde(default, skip_serializing_if = "Overflow::is_refused")]
        overflow: Overflow,
        /// The tools that the model can use in the box of the task, or none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Box<ModelTools>>,
    },
    /// A decision of a person.
    Approval {
        question: String,
        /// The task whose branch is put into the user's repository after the approval.
        apply: Option<TaskId>,
        /// The time after which the approval is refused.
        deadline: Duration,
        /// The labels that an approval removes from the output.
        clears: Vec<Label>,
        /// The labels of inputs with which the approval is refused without asking.
        deny_when: Vec<Label>,
        /// Who may answer.
        #[serde(default, skip_serializing_if = "AnswerTerms::is_empty")]
        answers: AnswerTerms,
    },
    /// A given output, without a box; for tests and `--dry-run`.
    Stub { output: Json, delay: Duration, fail: Option<String> },
}

impl Executor {
    /// Returns the directory of the user that the box sees, if any.
    pub const fn workspace(&self) -> Option<&TaskWorkspace> {
        match self {
            Self::Command { workspace, .. } => workspace.as_ref(),
            Self::Model { tools: Some(tools), .. } => tools.workspace.as_ref(),
            Self::Model { tools: None, .. }
            | Self::Code { .. }
            | Self::Agent { .. }
            | Self::Approval { .. }
            | Self::Stub { .. } => None,
        }
    }
}

/// The directory that a command or the tools of a model see as `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskWorkspace {
    pub directory: PathBuf,
    /// Whether files can be changed; the changes are held back for review.
    pub overlay: bool,
}

/// The commit from which an agent starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// A branch or a commit of the user's repository.
    Revision(String),
    /// Written `task:ID`: the commit that an agent task made.
    Task(TaskId),
}

/// The type and the limit of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSpec {
    pub kind: OutputKind,
    /// The JSON schema of an output of kind `json`.
    pub schema: Option<PathBuf>,
    /// A longer output fails the task as `too_large`; it is never truncated.
    pub max: ByteSize,
}

/// The type of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    Text,
    Json,
    Bytes,
    /// The commit of an agent task.
    Branch,
    /// The id of one of the task's inputs.
    Choice,
}

/// A condition on the JSON output of another task; if it is false, the task is skipped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    pub of: TaskId,
    /// A JSON pointer (RFC 6901) into the output.
    pub at: String,
    pub test: Test,
}

/// The comparison of a condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    Equals(Json),
    In(Vec<Json>),
    Exists(bool),
}

/// The items for which a task is repeated; each item makes one instance, `id[n]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForEach {
    Values(Vec<Json>),
    /// The elements of a list in the JSON output of another task.
    Output {
        of: TaskId,
        at: String,
        /// A longer list fails the task as `too_large`.
        max: u32,
    },
}

/// What happens to an attempt whose box and supervisor are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCrash {
    /// Repeats the attempt only if the ledger shows that it had no effect; else a person decides.
    Evidence,
    /// Always repeats the attempt.
    Rerun,
    /// A person always decides.
    Ask,
}

/// A check of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The output must match this JSON schema.
    Schema(PathBuf),
    /// The command must exit with status 0, in a box of the task's template without network.
    Command(Argv),
    /// A model of this tier judges the output by the criteria in `done`.
    Model { tier: TierName, prompt: Text },
    /// The command decides, in a box as for [`Check::Command`]: exit status 0 confirms the output, 1 refutes
    /// it, and every other end is undecided. Only a confirmed output passes.
    Verify(Argv),
}

impl Check {
    /// Returns the key that a plan uses for this kind of check.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Schema(_) => "schema",
            Self::Command(_) => "command",
            Self::Model { .. } => "model",
            Self::Verify(_) => "verify",
        }
    }

    /// Returns the tier of a check by a model.
    pub const fn tier(&self) -> Option<&TierName> {
        match self {
            Self::Model { tier, .. } => Some(tier),
            Self::Schema(_) | Self::Command(_) | Self::Verify(_) => None,
        }
    }
}

/// The limits of a run or of a task; a missing value is limited by the level above only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunBudget {
    /// Model requests and other requests through the broker.
    pub calls: Option<u64>,
    pub tokens: Option<u64>,
    pub money: Option<MicroUsd>,
    pub time: Option<Duration>,
    /// The bytes that pass the broker.
    pub bytes: Option<ByteSize>,
    /// The number of boxes at the same time; only for a run.
    pub boxes: Option<u32>,
    /// Limits for single secrets.
    pub secrets: BTreeMap<SecretName, crate::net::Budget>,
}

#[cfg(test)]
mod tests;
