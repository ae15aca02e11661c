//! What a supervisor is told to prepare and to run, and how a program ended.
//!
//! The client has read the configuration and sends the result. The supervisor opens what is on the host:
//! directories, the files of secrets, the programs of agents.

use std::path::{Path, PathBuf};

use belljar_model::boxes::BoxName;
use belljar_model::code::ServerName;
use belljar_model::{Mode, Reason, Template};
use belljar_wire::{Job, ProgramResult};
use serde::{Deserialize, Serialize};

use crate::config::Source;
use crate::network::NetworkSpec;
use crate::network::broker::RequestSummary;

/// What a supervisor is started for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prepare {
    /// A named box, as its record in the store describes it. The supervisor is detached.
    NamedBox { name: BoxName },
    /// A worker that waits for one program. One descriptor follows: the program of the worker.
    Program(ProgramBox),
    /// A declared tool server. Two descriptors follow: its standard input and its standard output.
    ToolServer(ToolServerBox),
}

/// The template of a box and the rules of its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    pub template: Template,
    /// The files that the template comes from.
    pub sources: Vec<Source>,
    /// `None`: the box has no network.
    pub network: Option<NetworkSpec>,
    /// Restrictions that the operator lifted.
    pub remarks: Vec<String>,
}

/// The box of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramBox {
    pub rules: Rules,
    pub workspace: ProgramWorkspace,
}

/// The box of a tool server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServerBox {
    pub name: ServerName,
    pub rules: Rules,
    pub transport: ToolServerTransport,
}

/// How a tool server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolServerTransport {
    /// A program in the box reads and writes lines of JSON-RPC.
    Program(Vec<String>),
    /// A worker in the box sends each line to this URL.
    Http { url: String, headers: Vec<SecretHeader> },
}

/// A header whose value is the placeholder of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretHeader {
    pub name: String,
    /// The text before the placeholder.
    pub prefix: String,
    /// The variable of the box that has the placeholder.
    pub variable: String,
}

/// The workspace of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramWorkspace {
    /// The directory `upper` in this directory, which the program writes to.
    Scratch { dir: PathBuf },
    /// A directory of the user, with layers in `dir` unless it is read-only.
    Project { path: PathBuf, mode: Mode, dir: PathBuf },
}

impl ProgramWorkspace {
    /// The directory whose `upper` the box writes to, if the workspace is writable.
    pub fn writes_to(&self) -> Option<&Path> {
        match self {
            Self::Project { mode: Mode::ReadOnly, .. } => None,
            Self::Scratch { dir } | Self::Project { dir, .. } => Some(dir),
        }
    }

    /// The directory of the session.
    pub fn dir(&self) -> &PathBuf {
        match self {
            Self::Scratch { dir } | Self::Project { dir, .. } => dir,
        }
    }

    /// Whether two boxes cannot have this workspace at once.
    pub const fn is_exclusive(&self) -> bool {
        match self {
            Self::Scratch { .. } => false,
            Self::Project { mode, .. } => !matches!(mode, Mode::ReadOnly),
        }
    }
}

/// One program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    pub job: Job,
    /// The command that the ledger records: who asked for what.
    pub command: Vec<String>,
    pub timeout_millis: Option<u64>,
    /// The most bytes of each stream that are passed on.
    pub output: u64,
}

/// How a program ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ending {
    pub reason: Reason,
    pub exit: Option<i32>,
    pub signal: Option<i32>,
    pub wall_micros: u64,
    pub cpu_micros: u64,
    pub peak_memory: Option<u64>,
    /// The result or the exception of a script that came to its end.
    pub done: Option<ProgramResult>,
    /// More was written than was passed on.
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub requests: Vec<RequestSummary>,
    pub more_requests: u64,
    /// Refused requests, and how to allow each.
    pub denied: Vec<String>,
    /// What a person should know.
    pub notes: Vec<String>,
}
