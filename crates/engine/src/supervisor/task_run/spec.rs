//! The description of one attempt of a task, which a driver sends to its host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_box::Mask;
use belljar_model::boxes::BoxName;
use belljar_model::net::{Budget, RemovedGrants};
use belljar_model::spec::Argv;
use belljar_model::{Mode, RunId};
use belljar_wire::Job;
use serde::{Deserialize, Serialize};

use crate::agents::TaskAgent;
use crate::error::{EngineError, invalid};
use crate::supervisor::spec::Rules;

/// The directory in the box with the inputs of a task.
pub const INPUT_DIR: &str = "/run/task/in";

/// The maximum size of the output of a task in bytes.
const MAX_OUTPUT: u64 = 64 << 20;

/// One attempt of a task.
///
/// The driver records `run` before it starts the host, so that it finds the attempt again after a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRunSpec {
    /// The id of the box run. It is used once.
    pub run: RunId,
    /// The id of the plan's run, which the program sees as `BELLJAR_RUN`.
    pub plan_run: RunId,
    /// The name of the task instance, such as `fix[0]`.
    pub task: String,
    pub attempt: u32,
    /// A key that is equal in all attempts of a task instance.
    pub idempotency_key: String,
    /// The template of the box and its network rules; see [`crate::runs::host::resolve`].
    pub rules: Rules,
    /// Paths of the workspace that are hidden or read-only; see [`crate::runs::host::resolve`].
    pub masks: Vec<Mask>,
    pub work: TaskWork,
    pub workspace: TaskRunWorkspace,
    /// The directory that the program sees at [`INPUT_DIR`].
    pub inputs: Option<PathBuf>,
    /// The file in `inputs` that a command reads from standard input.
    pub stdin: Option<String>,
    /// The maximum size of the output in bytes. A larger output ends the attempt.
    pub max_output: u64,
    /// The lease of the attempt for the network. The driver can extend it.
    #[serde(default)]
    pub lease: Budget,
}

/// The program of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskWork {
    /// A command. Its standard output is the output of the task.
    Command(Argv),
    /// A job for the worker: a script, whose value is the output of the task as JSON, or a request to a
    /// model, whose answer is the output.
    Code(Box<Job>),
    /// An agent in a private clone of a repository. Its commits are the output of the task.
    Agent(Box<AgentWork>),
}

/// The work of an agent. The rules of its box are those of [`TaskRunSpec::rules`] and of its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentWork {
    pub agent: TaskAgent,
    /// A directory in the repository of the user.
    pub repo: PathBuf,
    /// The commit that the clone starts from; `None` for a repository without commits.
    pub base: Option<String>,
    /// The name of the branch in the clone; `None` for a name that is made from `name`.
    pub branch: Option<String>,
    /// The reference in the user's repository that gets the commits, below `refs/belljar`.
    pub reference: String,
    /// The name of the clone: in its messages, and in the name of its branch.
    pub name: BoxName,
    /// The directory that relative paths of the template refer to.
    pub current_dir: PathBuf,
    /// The grants that labels removed from the box.
    #[serde(default)]
    pub removed: RemovedGrants,
}

impl AgentWork {
    /// Returns the reference that gets the commits of an attempt that failed or was rejected.
    pub(crate) fn failed_reference(&self, attempt: u32) -> String {
        format!("{}.failed-{attempt}", self.reference)
    }
}

/// The directory of the user that a task sees as its workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskRunWorkspace {
    None,
    ReadOnly(PathBuf),
    /// The task can change files; the changes are held back for review.
    Overlay(PathBuf),
    /// The files of a commit, which Belljar wrote for this box. The task can change them for itself.
    Checkout(PathBuf),
}

impl TaskRunWorkspace {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::None => None,
            Self::ReadOnly(path) | Self::Overlay(path) | Self::Checkout(path) => Some(path),
        }
    }

    /// Returns the directory of the user, whose settings restrict the box.
    pub(crate) fn user_path(&self) -> Option<&Path> {
        match self {
            Self::None | Self::Checkout(_) => None,
            Self::ReadOnly(path) | Self::Overlay(path) => Some(path),
        }
    }

    /// Returns the mode of the box. A task never changes the files of the user directly.
    pub(crate) const fn mode(&self) -> Mode {
        match self {
            Self::None | Self::ReadOnly(_) => Mode::ReadOnly,
            Self::Overlay(_) | Self::Checkout(_) => Mode::Overlay,
        }
    }
}

/// Returns whether a job can have a workspace of the user.
const fn uses_workspace(job: &Job) -> bool {
    match job {
        Job::Model(job) => job.tools.is_some(),
        Job::Script(_) | Job::Program(_) | Job::Bridge(_) => false,
    }
}

impl TaskRunSpec {
    /// Refuses a spec that no host can carry out.
    pub(crate) fn check(&self, has_worker: bool) -> Result<(), EngineError> {
        if self.max_output > MAX_OUTPUT {
            return Err(invalid(format!(
                "the output limit of a task is at most {MAX_OUTPUT} bytes"
            )));
        }
        match &self.work {
            TaskWork::Command(_) => {}
            TaskWork::Code(_) if !has_worker => {
                return Err(invalid("a `code` task needs a descriptor of the worker program"));
            }
            TaskWork::Code(job) if !matches!(**job, Job::Script(_) | Job::Model(_)) => {
                return Err(invalid("a `code` task must be a script or a request to a model"));
            }
            TaskWork::Code(job)
                if self.workspace != TaskRunWorkspace::None && !uses_workspace(job) =>
            {
                return Err(invalid("a `code` task or a task without tools has no workspace"));
            }
            TaskWork::Code(_) => {}
            TaskWork::Agent(_) if self.workspace != TaskRunWorkspace::None => {
                return Err(invalid("the workspace of an `agent` task is its private clone"));
            }
            TaskWork::Agent(_) => {}
        }
        if let Some(name) = &self.stdin
            && (name.contains('/') || self.inputs.is_none())
        {
            return Err(invalid("the standard input of a task must be a file in its inputs"));
        }
        Ok(())
    }

    /// Returns the variables that a task gets in addition to those of the template.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let run = self.plan_run.to_string();
        let attempt = self.attempt.to_string();
        [
            ("BELLJAR_RUN", run.as_str()),
            ("BELLJAR_TASK", &self.task),
            ("BELLJAR_ATTEMPT", &attempt),
            ("BELLJAR_IDEMPOTENCY_KEY", &self.idempotency_key),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec()
    }
}
