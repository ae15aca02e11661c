//! What a cell is told and what it says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use belljar_model::code::ApiName;
use belljar_model::{Caller, Mode, Reason};
use belljar_wire::{Job, ProgramResult, Stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::network::broker::Asked;

/// To a cell.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Build the box. The first word; answered by [`Report::Ready`].
    Prepare(Box<Prepare>),
    /// Do this. The second word, and the last of its kind.
    Run(Box<Task>),
    /// What came of a [`Report::Call`].
    Answer { id: u64, value: Result<Box<RawValue>, String> },
    /// Nobody wants it any more.
    Cancel,
}

/// From a cell.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The box stands, under the id that its run will have.
    Ready {
        run: String,
        remarks: Vec<String>,
    },
    Output {
        stream: Stream,
        text: String,
    },
    /// The program calls a function of another server.
    Call {
        id: u64,
        server: String,
        tool: String,
        input: Box<RawValue>,
    },
    Ended(Box<Ending>),
    /// There is no box, or its run is not on record. The user's own fault when `is_usage`.
    Failed {
        is_usage: bool,
        message: String,
    },
}

/// Which box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// Who its program runs for.
    pub caller: Caller,
    /// The operator's file, if not the usual one.
    pub config: Option<PathBuf>,
    /// What relative paths of its template are relative to.
    pub here: PathBuf,
    /// The services that it reaches; all that are declared if it does not say.
    pub apis: Option<BTreeSet<ApiName>>,
    pub room: Room,
}

/// What its workspace is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// `upper` of this directory, to be written to.
    Scratch { dir: PathBuf },
    /// A directory of the user's, with layers in `dir` unless it is only read.
    Project { path: PathBuf, mode: Mode, dir: PathBuf },
}

impl Room {
    /// The directory whose `upper` its box writes to, if it may.
    pub fn writes_to(&self) -> Option<&Path> {
        match self {
            Self::Project { mode: Mode::ReadOnly, .. } => None,
            Self::Scratch { dir } | Self::Project { dir, .. } => Some(dir),
        }
    }

    /// Where what belongs to it is kept.
    pub fn dir(&self) -> &PathBuf {
        match self {
            Self::Scratch { dir } | Self::Project { dir, .. } => dir,
        }
    }
}

/// One program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    pub job: Job,
    /// What the ledger has as its command: who asked for what, in words.
    pub command: Vec<String>,
    pub timeout_millis: Option<u64>,
    /// Most bytes of each stream that are passed on.
    pub output: u64,
}

/// How it ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ending {
    pub reason: Reason,
    pub exit: Option<i32>,
    pub signal: Option<i32>,
    pub wall_micros: u64,
    pub cpu_micros: u64,
    pub peak_memory: Option<u64>,
    /// What the program gave or threw, if it ran in the engine and came to its end.
    pub done: Option<ProgramResult>,
    /// More was written than was passed on.
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub requests: Vec<Asked>,
    pub more_requests: u64,
    /// What was refused, and how to allow it.
    pub denied: Vec<String>,
    /// What a person should know.
    pub notes: Vec<String>,
}
