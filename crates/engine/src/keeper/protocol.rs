//! What is said over a keeper's socket, in the frames of [`belljar_wire`].

use std::io::{self, Read, Write};

use belljar_model::RunId;
use belljar_model::boxes::{BoxName, NetworkChange};
use belljar_wire::{self as wire, FrameError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::screen::word::Size;

/// From a command to a keeper: the first frame of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Status,
    /// Keep every process of the box still until the line is closed.
    Pause,
    /// End the program: by asking it, or at once.
    Stop {
        now: bool,
    },
    /// Change what the box reaches.
    Network(NetworkChange),
    /// A question of this run is answered: the answer is in the store.
    ApprovalAnswered {
        run: RunId,
        number: u64,
    },
    /// Look at the screen of the box, and type. After `Done` come bytes for a terminal, and go words.
    Attach {
        size: Size,
        read_only: bool,
    },
    /// Start one more program. After `Done` come the ends of its streams, then [`GuestSays`].
    Exec(ExecWish),
}

impl Request {
    /// Which request it is, without what it says.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Pause => "pause",
            Self::Stop { now: false } => "stop",
            Self::Stop { now: true } => "stop-now",
            Self::Network(_) => "network",
            Self::ApprovalAnswered { .. } => "approval-answered",
            Self::Attach { .. } => "attach",
            Self::Exec(_) => "exec",
        }
    }
}

/// A program that is to be started in a box.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecWish {
    pub argv: Vec<Vec<u8>>,
    /// Beside what the box's own program has, and before it.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub workdir: Option<Vec<u8>>,
    /// The size of its terminal; none: it gets pipes.
    pub terminal: Option<Size>,
}

/// Between a keeper and whoever waits for a program, after [`Request::Exec`].
#[derive(Debug, Serialize, Deserialize)]
pub enum GuestSays {
    /// To the program.
    Signal(i32),
    /// From the keeper, at last.
    Ended { exit: Option<i32>, signal: Option<i32> },
}

/// From a viewer to a keeper, after [`Request::Attach`].
#[derive(Debug, Serialize, Deserialize)]
pub enum ViewerSays {
    Keys(Vec<u8>),
    Size(Size),
    /// Look back by so many lines; none: at what is there now.
    Scroll(Option<i32>),
}

/// From a keeper to a command.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Status(Live),
    /// It was not done, and what that means to a program.
    Failed {
        kind: ErrorKind,
        message: String,
    },
    /// A program could not be started, and why.
    NotStarted {
        kind: ErrorKind,
        message: String,
    },
    /// What was asked for cannot be, and why.
    Refused(String),
}

/// What only the keeper knows of its box.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Live {
    pub run: RunId,
    /// The keeper's process.
    pub pid: u32,
    /// Milliseconds since the epoch: when it was started, and when it last wrote something.
    pub since: u64,
    pub last_output: Option<u64>,
    /// How many questions wait for the operator.
    pub questions: usize,
    /// Its broker is gone: it has no network at all.
    pub dark: bool,
    /// What the last check of its health gave, if there is one.
    pub health: Option<Health>,
}

/// How a box is by its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It was not asked yet.
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

/// To a keeper that starts: the first frame.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    pub name: BoxName,
}

/// From a keeper that starts to whoever started it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    Up,
    Failed { kind: ErrorKind, message: String },
}

/// Sends one frame.
pub fn send<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    wire::write(&mut to, message)
}

/// Receives one frame. `None`: the other side is gone.
pub fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<Option<T>> {
    wire::read(&mut from).map_err(|error| match error {
        FrameError::Read { source } => source,
        error @ (FrameError::TooLong { .. } | FrameError::Malformed { .. }) => {
            io::Error::other(error)
        }
    })
}
