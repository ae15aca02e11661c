//! The messages between a supervisor and its clients, in the frames of [`belljar_wire`].
//!
//! The first message in each direction is a [`Hello`]. A peer that receives another protocol version
//! closes the connection. `Hello` and `Stop` keep their form in later versions, so that every version can
//! stop a box. Every other message is a [`ToSupervisor`] or a [`FromSupervisor`]:
//!
//! | client sends | supervisor responds with |
//! |---|---|
//! | `Prepare` and descriptors | `Ready`, or `Failed` |
//! | `Prepare` of a single run | `Ready`, then `RunEnded`; or `Failed` |
//! | `Start` (a program) | `Output` and `ToolCall`, then `Ended` or `Failed` |
//! | `ToolAnswer`, `Cancel` | nothing |
//! | `Status` | `Status` |
//! | `Stop`, `PauseUntilResumed`, `Resume`, `SetNetwork`, `ReloadRules`, `Extend`, `ApprovalAnswered`, `RemoveForward` | `Ok` or `Failed` |
//! | `Forward` | `Forwarded` or `Failed` |
//! | `Pause` | `Ok`; the box is paused until the client closes the connection |
//! | `Attach`, then `Keys`, `Resize`, `Scroll` | `Ok`, then bytes for a terminal |
//! | `Exec` or `ExecFiles`, then `Signal` | `ExecStarted` and descriptors, then `ExecEnded` |
//! | `StartExec`, `DescribeExec` | `Exec`, `NoSuchExec` or `Failed` |
//! | `ListExecs` | `Execs` |
//! | `SignalExec` | `Ok` or `NoSuchExec` |
//! | `AttachExec`, then [`super::exec_protocol::ToExec`] | `ExecAttached`, then [`super::exec_protocol::FromExec`]; or `NoSuchExec`, `Failed` |

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use belljar_model::boxes::NetworkChange;
use belljar_model::net::Budget;
use belljar_model::{Caller, RunId, RunResult};
use belljar_wire::Stream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::exec_protocol::{ExecId, ExecStatus};
use super::spec::{Ending, Prepare, Task};
use crate::error::ErrorKind;
use crate::scope::Scoped;
use crate::screen::protocol::Size;

/// The version of the protocol between supervisors and clients. Belljar 0.1 used version 1, without
/// [`Hello`].
pub const PROTOCOL: u32 = 2;

/// The maximum size of a request to the supervisor of a named box.
pub(super) const MAX_REQUEST: usize = 1 << 20; // bytes

/// The version of this build of Belljar.
pub(super) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// The first message of a client and of a supervisor. Unknown fields of later versions are ignored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub build: String,
    /// The caller that the client acts for. `None` in the message of a supervisor.
    pub caller: Option<Caller>,
    /// The process id of the supervisor. `None` in the message of a client.
    pub pid: Option<u32>,
    /// The path of the operator's configuration file, if the caller belongs to another tenant than `local` and
    /// the file is not at the default path. It has the limits of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator_file: Option<Vec<u8>>,
}

impl Hello {
    pub fn of_client(state: &Scoped) -> Self {
        let (build, caller) = (BUILD.to_owned(), Some(state.caller().clone()));
        let operator_file = state.operator_file().filter(|_| state.policy_file().is_some());
        let operator_file = operator_file.map(|path| path.as_os_str().as_bytes().to_vec());
        Self { protocol: PROTOCOL, build, caller, pid: None, operator_file }
    }

    /// Returns the operator's configuration file of the client.
    pub(crate) fn operator_file(&self) -> Option<PathBuf> {
        self.operator_file.clone().map(|path| PathBuf::from(OsString::from_vec(path)))
    }

    pub(super) fn of_supervisor() -> Self {
        let (build, pid) = (BUILD.to_owned(), Some(std::process::id()));
        Self { protocol: PROTOCOL, build, caller: None, pid, operator_file: None }
    }
}

/// A message from a client to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// Builds a box. Only the process that started the supervisor sends this request, and only once.
    Prepare(Box<Prepare>),
    /// Runs a task in the prepared box.
    Start(Box<Task>),
    /// Cancels the running task: its program is killed.
    Cancel,
    /// The result of a tool call that the supervisor sent as [`FromSupervisor::ToolCall`].
    ToolAnswer {
        id: u64,
        value: Result<Box<RawValue>, String>,
    },
    /// Requests the current state of the box.
    Status,
    /// Pauses every process of the box until the client closes the connection.
    Pause,
    /// Pauses every process of the box until [`ToSupervisor::Resume`], or until the box is stopped.
    PauseUntilResumed,
    /// Ends the pause of [`ToSupervisor::PauseUntilResumed`].
    Resume,
    /// Ends the program of the box with signals, or kills it at once if `now` is set.
    Stop {
        now: bool,
    },
    /// Changes the network rules of the box.
    SetNetwork(NetworkChange),
    /// Reads the configuration again and changes the network rules of the box.
    ReloadRules,
    /// Replaces the lease of a task by a larger one. Only the host of a task supports it.
    Extend(Budget),
    /// Reports that the operator's answer to a question of this run was written to the store.
    ApprovalAnswered {
        run: RunId,
        number: u64,
    },
    /// Attaches the client to the screen of the box. `size` is the size of the client's terminal.
    Attach {
        size: Size,
        read_only: bool,
    },
    /// Keys that an attached client typed.
    Keys(Vec<u8>),
    /// The new size of an attached client's terminal.
    Resize(Size),
    /// Scrolls the screen of an attached client back by a number of lines. `None` shows the newest lines.
    Scroll(Option<i32>),
    /// Starts an additional program in the box.
    Exec(ExecSpec),
    /// Starts the helper for files in the box with these arguments. See [`belljar_init::files`].
    ExecFiles(Vec<Vec<u8>>),
    /// Sends a signal to the program that [`ToSupervisor::Exec`] or [`ToSupervisor::ExecFiles`] started.
    Signal(i32),
    /// Starts an additional program that belongs to the supervisor. Nothing happens if the id is known.
    StartExec {
        id: ExecId,
        spec: ExecSpec,
    },
    DescribeExec(ExecId),
    /// Lists all programs that [`ToSupervisor::StartExec`] started.
    ListExecs,
    SignalExec {
        id: ExecId,
        signal: i32,
    },
    /// Attaches the client, which has the bytes of the streams before these offsets. The client that was
    /// attached before is disconnected.
    AttachExec {
        id: ExecId,
        stdout: u64,
        stderr: u64,
    },
    /// Forwards a port of the host to a port of the box.
    Forward(Forward),
    /// Ends the forward of this port of the host.
    RemoveForward {
        host_port: u16,
    },
}

impl ToSupervisor {
    /// Returns whether this is a request to stop the box, which supervisors of every version understand.
    pub(super) const fn is_stop(&self) -> bool {
        matches!(self, Self::Stop { .. })
    }

    /// Returns the name of the message type, for logs. The content of a message may be private.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Prepare(_) => "prepare",
            Self::Start(_) => "start",
            Self::Cancel => "cancel",
            Self::ToolAnswer { .. } => "tool-answer",
            Self::Status => "status",
            Self::Pause => "pause",
            Self::PauseUntilResumed => "pause-until-resumed",
            Self::Resume => "resume",
            Self::Stop { now: false } => "stop",
            Self::Stop { now: true } => "stop-now",
            Self::SetNetwork(_) => "set-network",
            Self::ReloadRules => "reload-rules",
            Self::Extend(_) => "extend",
            Self::ApprovalAnswered { .. } => "approval-answered",
            Self::Attach { .. } => "attach",
            Self::Keys(_) => "keys",
            Self::Resize(_) => "resize",
            Self::Scroll(_) => "scroll",
            Self::Exec(_) => "exec",
            Self::ExecFiles(_) => "exec-files",
            Self::Signal(_) => "signal",
            Self::StartExec { .. } => "start-exec",
            Self::DescribeExec(_) => "describe-exec",
            Self::ListExecs => "list-execs",
            Self::SignalExec { .. } => "signal-exec",
            Self::AttachExec { .. } => "attach-exec",
            Self::Forward(_) => "forward",
            Self::RemoveForward { .. } => "remove-forward",
        }
    }
}

/// A message from a supervisor to a client.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// Reports that the box is ready. A named box or a tool server is running; a program waits for its
    /// task.
    Ready {
        run: RunId,
        remarks: Vec<String>,
    },
    /// Output of the program.
    Output {
        stream: Stream,
        text: String,
    },
    /// A call of the program to a tool of a tool server. The client sends [`ToSupervisor::ToolAnswer`].
    ToolCall {
        id: u64,
        server: String,
        tool: String,
        input: Box<RawValue>,
    },
    /// Reports how the program of a task ended.
    Ended(Box<Ending>),
    /// Reports the result of a single run, which is stored.
    RunEnded(Box<RunResult>),
    /// The current state of a named box.
    Status(Live),
    /// Reports that a request succeeded.
    Ok,
    /// Reports that the additional program has started. The descriptors of its streams follow.
    ExecStarted,
    /// Reports the exit status of the additional program, or the signal that killed it.
    ExecEnded {
        exit: Option<i32>,
        signal: Option<i32>,
    },
    /// The state of an additional program that belongs to the supervisor.
    Exec(Box<ExecStatus>),
    Execs(Vec<ExecStatus>),
    /// The box has no exec with the id of the request.
    NoSuchExec,
    /// The client is attached. The program has read the input before this offset.
    ExecAttached {
        stdin_offset: u64,
    },
    /// Reports that a port is forwarded, and whether a program of the box listens on its port now.
    Forwarded {
        is_served: bool,
    },
    /// Reports that a request failed.
    Failed {
        kind: ErrorKind,
        message: String,
    },
}

/// An additional program to start in a running box.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecSpec {
    pub argv: Vec<Vec<u8>>,
    /// Environment variables that extend or replace those of the box's main program.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub workdir: Option<Vec<u8>>,
    /// The size of the program's terminal. `None` gives the program pipes instead of a terminal.
    pub terminal: Option<Size>,
}

/// A port of the host's loopback that is forwarded to a port of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    pub host_port: u16,
    /// The port on the loopback of the box.
    pub port: u16,
}

/// The current state of a running named box, as its supervisor reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Live {
    pub run: RunId,
    /// The process id of the supervisor.
    pub pid: u32,
    /// The time when the box was started, in milliseconds since the epoch.
    pub since: u64,
    /// The time when the box last wrote output, in milliseconds since the epoch.
    pub last_output: Option<u64>,
    /// The number of questions that wait for the operator's answer.
    pub questions: usize,
    /// Whether the broker exited, so that the box has no network.
    pub dark: bool,
    /// The result of the last health check. `None` if the box has no health check.
    pub health: Option<Health>,
    #[serde(default)]
    pub forwards: Vec<Forward>,
}

/// The result of a box's health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The first health check has not finished yet.
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
