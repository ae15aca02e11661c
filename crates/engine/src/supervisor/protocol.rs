//! The messages between a supervisor and its clients, in the frames of [`belljar_wire`].
//!
//! The first message in each direction is a [`Hello`]. The side that finds another version of the protocol
//! there stops. `Hello` and `Stop` keep their form in later versions, so that every version can stop a box.
//! Everything else is one [`ToSupervisor`] or [`FromSupervisor`]:
//!
//! | client sends | supervisor answers |
//! |---|---|
//! | `Prepare` and descriptors | `Ready`, or `Failed` |
//! | `Start` (a program) | `Output` and `ToolCall`, then `Ended` or `Failed` |
//! | `ToolAnswer`, `Cancel` | nothing |
//! | `Status` | `Status` |
//! | `Stop`, `SetNetwork`, `ApprovalAnswered` | `Ok` or `Failed` |
//! | `Pause` | `Ok`; the box is paused until the client closes the connection |
//! | `Attach`, then `Keys`, `Resize`, `Scroll` | `Ok`, then bytes for a terminal |
//! | `Exec`, then `Signal` | `ExecStarted` and descriptors, then `ExecEnded` |

use belljar_model::boxes::NetworkChange;
use belljar_model::{Caller, RunId};
use belljar_wire::Stream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::spec::{Ending, Prepare, Task};
use crate::error::ErrorKind;
use crate::screen::protocol::Size;

/// The version of these messages. Belljar 0.1 spoke version 1, which had no [`Hello`].
pub const PROTOCOL: u32 = 2;

/// The largest frame that a supervisor of a named box reads from a client.
pub(super) const MAX_REQUEST: usize = 1 << 20; // bytes

/// The version of Belljar that was built here.
pub(super) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// The first message of each side. Fields of later versions are ignored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub build: String,
    /// Who the client acts for. A supervisor sends none.
    pub caller: Option<Caller>,
    /// The process of the supervisor. A client sends none.
    pub pid: Option<u32>,
}

impl Hello {
    pub fn of_client(caller: &Caller) -> Self {
        let (build, caller) = (BUILD.to_owned(), Some(caller.clone()));
        Self { protocol: PROTOCOL, build, caller, pid: None }
    }

    pub(super) fn of_supervisor() -> Self {
        let (build, pid) = (BUILD.to_owned(), Some(std::process::id()));
        Self { protocol: PROTOCOL, build, caller: None, pid }
    }
}

/// From a client to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// Build a box. Only the process that started a supervisor sends this, and only once.
    Prepare(Box<Prepare>),
    /// Run this in the prepared box.
    Start(Box<Task>),
    /// End the program: its result is not wanted any more.
    Cancel,
    /// The result of a [`FromSupervisor::ToolCall`].
    ToolAnswer {
        id: u64,
        value: Result<Box<RawValue>, String>,
    },
    Status,
    /// Stop every process of the box until this connection is closed.
    Pause,
    /// End the program with signals, or kill it at once.
    Stop {
        now: bool,
    },
    /// Change the network rules of the box.
    SetNetwork(NetworkChange),
    /// The store has an answer to a question of this run.
    ApprovalAnswered {
        run: RunId,
        number: u64,
    },
    /// Show the screen of the box.
    Attach {
        size: Size,
        read_only: bool,
    },
    /// Type into the attached screen.
    Keys(Vec<u8>),
    /// The terminal of the attached client has another size.
    Resize(Size),
    /// Scroll the attached screen back by so many lines. `None`: show the newest lines.
    Scroll(Option<i32>),
    /// Start one more program in the box.
    Exec(ExecSpec),
    /// Send a signal to the program of [`ToSupervisor::Exec`].
    Signal(i32),
}

impl ToSupervisor {
    /// Whether supervisors of every version understand this request.
    pub(super) const fn is_stop(&self) -> bool {
        matches!(self, Self::Stop { .. })
    }

    /// The kind of the message, for logs. Its content may be private.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Prepare(_) => "prepare",
            Self::Start(_) => "start",
            Self::Cancel => "cancel",
            Self::ToolAnswer { .. } => "tool-answer",
            Self::Status => "status",
            Self::Pause => "pause",
            Self::Stop { now: false } => "stop",
            Self::Stop { now: true } => "stop-now",
            Self::SetNetwork(_) => "set-network",
            Self::ApprovalAnswered { .. } => "approval-answered",
            Self::Attach { .. } => "attach",
            Self::Keys(_) => "keys",
            Self::Resize(_) => "resize",
            Self::Scroll(_) => "scroll",
            Self::Exec(_) => "exec",
            Self::Signal(_) => "signal",
        }
    }
}

/// From a supervisor to a client.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// The box is built. A program waits for its task; a named box or a tool server is started.
    Ready {
        run: RunId,
        remarks: Vec<String>,
    },
    /// The program wrote this.
    Output {
        stream: Stream,
        text: String,
    },
    /// The program calls a tool of another server.
    ToolCall {
        id: u64,
        server: String,
        tool: String,
        input: Box<RawValue>,
    },
    /// The program ended.
    Ended(Box<Ending>),
    Status(Live),
    Ok,
    /// The program runs. The descriptors of its streams follow.
    ExecStarted,
    ExecEnded {
        exit: Option<i32>,
        signal: Option<i32>,
    },
    Failed {
        kind: ErrorKind,
        message: String,
    },
}

/// A program to start in a running box.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecSpec {
    pub argv: Vec<Vec<u8>>,
    /// Variables that are added to those of the box's own program, or replace them.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub workdir: Option<Vec<u8>>,
    /// The size of its terminal. `None`: it gets pipes.
    pub terminal: Option<Size>,
}

/// The state of a running box that only its supervisor knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Live {
    pub run: RunId,
    /// The process of the supervisor.
    pub pid: u32,
    /// When the box was started and when it last wrote output, in milliseconds since the epoch.
    pub since: u64,
    pub last_output: Option<u64>,
    /// How many questions wait for the operator.
    pub questions: usize,
    /// Whether the broker died, so that the box has no network.
    pub dark: bool,
    /// The result of the last health check, if the box has one.
    pub health: Option<Health>,
}

/// The result of a box's health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The first check is not finished.
    Starting,
    Healthy,
    Unhealthy,
}

impl Health {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}
