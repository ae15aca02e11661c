//! The tools of a `model` task: their names, bounds and permissions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TaskWorkspace;
use crate::permission::Permission;

/// The maximum number of turns of a `model` task, and their number without `turns`.
pub const MAX_TURNS: u32 = 50;

/// The tools of a `model` task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTools {
    /// The tools, each once and sorted.
    pub names: Vec<ModelTool>,
    /// The maximum number of requests to the model.
    pub turns: u32,
    /// The user's directory that the tools see as `/workspace`; `None` for an empty directory that is
    /// removed with the box.
    pub workspace: Option<TaskWorkspace>,
    /// The rules that the plan adds to the operator's `deny` rules.
    pub deny: Vec<Permission>,
}

/// A tool that a model can call in the box of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTool {
    /// Runs a command line with `/bin/sh`.
    Shell,
    /// Reads lines of a text file.
    Read,
    /// Writes a whole file.
    Write,
    /// Replaces a text in a file.
    Edit,
    /// Finds files by a pattern of their paths.
    Glob,
    /// Finds lines of files by a regular expression.
    Grep,
    /// Sends a GET request through the broker.
    Fetch,
    /// Runs a TypeScript program in the worker.
    ExecuteCode,
}

/// What happens to a request that is longer than the context window of its model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The request is not sent, and the task fails as `too_long`.
    #[default]
    Refuse,
    /// The longest inputs lose their middle, and the oldest tool results are removed. Each cut is marked in
    /// the request and in the log of the task.
    Cut,
}

/// The reason why a text is not the name of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool `{name}`; the tools are {}", ModelTool::list())]
pub struct ModelToolError {
    name: String,
}

impl ModelTool {
    /// All tools.
    pub const ALL: [Self; 8] = [
        Self::Shell,
        Self::Read,
        Self::Write,
        Self::Edit,
        Self::Glob,
        Self::Grep,
        Self::Fetch,
        Self::ExecuteCode,
    ];

    /// Returns the name of the tool in plans and for models.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::Fetch => "fetch",
            Self::ExecuteCode => "execute_code",
        }
    }

    /// Returns whether the only use of the tool is to change files.
    pub const fn only_writes(self) -> bool {
        matches!(self, Self::Write | Self::Edit)
    }

    fn list() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl Overflow {
    /// Returns whether a request that is too long is refused.
    pub fn is_refused(&self) -> bool {
        *self == Self::Refuse
    }
}

impl FromStr for ModelTool {
    type Err = ModelToolError;

    fn from_str(name: &str) -> Result<Self, ModelToolError> {
        let found = Self::ALL.into_iter().find(|tool| tool.name() == name);
        found.ok_or_else(|| ModelToolError { name: name.chars().take(64).collect() })
    }
}

impl FromStr for Overflow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "cut" => Ok(Self::Cut),
            _ => Err("must be \"refuse\" or \"cut\"".to_owned()),
        }
    }
}

impl fmt::Display for ModelTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
