//! Descriptions of the box that a supervisor prepares, of the task that it runs, and of how a program
//! ended.
//!
//! The client reads the configuration and sends the result. The supervisor opens the files on the host:
//! directories, the files of secrets, the programs of agents.

use std::path::{Path, PathBuf};

use belljar_model::boxes::BoxName;
use belljar_model::code::ServerName;
use belljar_model::{Mode, Reason, Template};
use belljar_wire::{Job, ProgramResult};
use serde::{Deserialize, Serialize};

use super::single_run::SingleRun;
use super::task_run::TaskRunSpec;
use crate::config::Source;
use crate::network::NetworkSpec;
use crate::network::broker::RequestSummary;

/// The box that a supervisor prepares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Prepare {
    /// A named box, as its record in the store describes it. Its supervisor is detached.
    NamedBox { name: BoxName },
    /// A box with a worker that waits for one program. A descriptor of the worker program follows this
    /// message.
    Program(ProgramBox),
    /// The box of a tool server. Descriptors of its standard input and its standard output follow this
    /// message.
    ToolServer(ToolServerBox),
    /// The box of one attempt of a task. Its supervisor is detached. Descriptors of the lock of the run, of
    /// its socket, of a pipe that is closed when the supervisor exits, and for a `code` task of the worker
    /// program follow this message.
    TaskRun(Box<TaskRunSpec>),
    /// The box of one run of a program. Its supervisor is detached. A descriptor of the standard input follows
    /// this message.
    SingleRun(Box<SingleRun>),
}

/// The template of a box and its network rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    pub template: Template,
    /// The configuration files that the template was read from.
    pub sources: Vec<Source>,
    /// The network of the box. `None` means that the box has no network.
    pub network: Option<NetworkSpec>,
    /// Remarks about default restrictions that the operator lifted.
    pub remarks: Vec<String>,
}

/// The description of a box for one program in code mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramBox {
    pub rules: Rules,
    pub workspace: ProgramWorkspace,
}

/// The description of a box for a tool server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServerBox {
    pub name: ServerName,
    pub rules: Rules,
    pub transport: ToolServerTransport,
}

/// How Belljar communicates with a tool server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolServerTransport {
    /// The tool server is a program in the box that reads and writes lines of JSON-RPC.
    Program(Vec<String>),
    /// The tool server is at this URL. A worker in the box sends each JSON-RPC message to the URL.
    Http { url: String, headers: Vec<SecretHeader> },
}

/// An HTTP header whose value contains the placeholder of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretHeader {
    pub name: String,
    /// The text before the placeholder, such as `Bearer`.
    pub prefix: String,
    /// The environment variable of the box that contains the placeholder.
    pub variable: String,
}

/// The workspace of a program in code mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramWorkspace {
    /// A scratch directory: the program writes to the subdirectory `upper` of `dir`.
    Scratch { dir: PathBuf },
    /// The user's directory `path`. Unless the mode is read-only, changes go to overlay layers in `dir`.
    Project { path: PathBuf, mode: Mode, dir: PathBuf },
}

impl ProgramWorkspace {
    /// Returns the directory whose subdirectory `upper` the box writes to, or `None` if the workspace is
    /// read-only.
    pub fn writes_to(&self) -> Option<&Path> {
        match self {
            Self::Project { mode: Mode::ReadOnly, .. } => None,
            Self::Scratch { dir } | Self::Project { dir, .. } => Some(dir),
        }
    }

    /// Returns the directory on the host that holds the data of the session.
    pub fn dir(&self) -> &PathBuf {
        match self {
            Self::Scratch { dir } | Self::Project { dir, .. } => dir,
        }
    }

    /// Returns whether only one box at a time can use this workspace.
    pub const fn is_exclusive(&self) -> bool {
        match self {
            Self::Scratch { .. } => false,
            Self::Project { mode, .. } => !matches!(mode, Mode::ReadOnly),
        }
    }
}

/// One program to run in a prepared box.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    pub job: Job,
    /// The command that the ledger records for this task.
    pub command: Vec<String>,
    pub timeout_millis: Option<u64>,
    /// The maximum number of bytes of each output stream that are sent to the client.
    pub output: u64,
}

/// The report of how a program in code mode ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ending {
    pub reason: Reason,
    pub exit: Option<i32>,
    pub signal: Option<i32>,
    pub wall_micros: u64,
    pub cpu_micros: u64,
    pub peak_memory: Option<u64>,
    /// The result or the exception of a script. `None` if the program was killed before it finished.
    pub done: Option<ProgramResult>,
    /// Whether the program wrote more to standard output than was sent to the client.
    pub stdout_truncated: bool,
    /// Whether the program wrote more to standard error than was sent to the client.
    pub stderr_truncated: bool,
    pub requests: Vec<RequestSummary>,
    pub more_requests: u64,
    /// Descriptions of refused network requests, with how to allow each.
    pub denied: Vec<String>,
    /// Remarks for the user about the run.
    pub notes: Vec<String>,
    /// Whether the end of the run could not be recorded in the ledger.
    #[serde(default)]
    pub is_unrecorded: bool,
}
