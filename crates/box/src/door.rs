//! The way into a box that runs: init starts one more program behind the locks that hold all of it.
//!
//! Nobody ever enters a box from outside, so there is no moment in which a process of ours is half in.
//! Each wish goes to init with a socket of its own, over which its answers come: callers do not wait
//! for each other, and a pause is over when its value is gone, whatever became of the caller.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_init::plan::{Call, Guest as Wish, Order, Stdio, Word};
use belljar_init::wire;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::janitor::socket_pair;
use crate::processes;

/// Starts programs in a box and pauses it. To be shared.
#[derive(Debug)]
pub struct Door {
    line: OwnedFd,
    /// Init, to see whether all below it has stopped.
    init: i32,
    /// What every program of the box has, as `NAME=value`.
    env: Vec<Vec<u8>>,
}

/// A program that is to join a box.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub argv: Vec<OsString>,
    /// Beside the variables of the box's first program, and before them.
    pub env: Vec<(OsString, OsString)>,
    /// Inside; relative to where the first program started, and there if it is none.
    pub workdir: Option<PathBuf>,
    /// Rows and columns, when it gets a terminal of its own.
    pub terminal: Option<(u16, u16)>,
}

/// Our ends of a guest's streams.
#[derive(Debug)]
pub enum Ends {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

/// A program that has joined. Dropping this lets it go on.
///
/// As a descriptor it can be waited for: it is readable when the guest has ended.
#[derive(Debug)]
pub struct Guest {
    /// To be taken out. Closing the end of its input reaches the guest.
    pub ends: Option<Ends>,
    line: OwnedFd,
    ended: Mutex<Option<GuestEnded>>,
}

/// How a guest ended. One that ended with its box was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestEnded {
    pub exit: Option<i32>,
    pub signal: Option<i32>,
}

/// Why a program could not be started in a box.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("there is no such program in the box")]
    NotFound,
    #[error("the program cannot be executed")]
    NotExecutable(#[source] io::Error),
    #[error("the working directory cannot be entered inside the box")]
    Workdir(#[source] io::Error),
    #[error("the command line and its variables are longer than {} KiB", MAX_BYTES / 1024)]
    TooLong,
    #[error("the box is gone")]
    Gone,
    #[error("the box could not {what}")]
    Refused { what: String, source: io::Error },
    #[error("{doing}")]
    Io { doing: &'static str, source: io::Error },
}

/// The processes of a box stand still for as long as this lives.
#[derive(Debug)]
#[must_use]
pub struct Paused {
    _asked: OwnedFd,
}

/// What of a message is left for argv and the environment.
const MAX_BYTES: usize = wire::MAX_MESSAGE - 4096;
/// More than the length of a string takes in a message.
const LENGTH: usize = 8;
const KILLED: i32 = 9;
/// How long processes get to stop. Only one that waits for the kernel needs any time.
const TO_STOP: Duration = Duration::from_secs(10);

impl Door {
    pub(crate) fn new(line: OwnedFd, init: i32, env: Vec<Vec<u8>>) -> Self {
        Self { line, init, env }
    }

    /// Starts one more program behind all the locks of the box. It ends with the box.
    ///
    /// Waits while the box is paused.
    pub fn exec(&self, program: &Program) -> Result<Guest, ExecError> {
        let wish = self.wish(program)?;
        let (line, theirs) = socket_pair().map_err(failed("make a socket pair"))?;
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed("make a pipe"));
        let (input, output, error) = (pipe()?, pipe()?, pipe()?);
        let mut with = vec![theirs.as_fd()];
        if program.terminal.is_none() {
            with.extend([input.0.as_fd(), output.1.as_fd(), error.1.as_fd()]);
        }
        self.send(&Call::Exec(Box::new(wish)), &with)?;
        drop(with);
        drop(theirs);
        let mut terminal = hear(&line)?;
        let ends = match program.terminal {
            None => Ends::Pipes { input: input.1, output: output.0, error: error.0 },
            Some(_) => Ends::Terminal(terminal.pop().ok_or(ExecError::Gone)?),
        };
        Ok(Guest { ends: Some(ends), line, ended: Mutex::new(None) })
    }

    /// Stops every process of the box until the value is dropped.
    ///
    /// Whoever is stopped cannot resist, but a process can have prepared a timer that wakes it up. So
    /// what is read meanwhile is not what honest programs left half done, and still may be hostile.
    /// Afterwards those go on, too, which had been stopped before.
    pub fn pause(&self) -> io::Result<Paused> {
        let (asked, theirs) = socket_pair()?;
        wire::send(self.line.as_fd(), &Call::Pause, &[theirs.as_fd()])?;
        drop(theirs);
        let stopped = wire::receive(asked.as_fd(), wire::MAX_WORD)?;
        let Some((Word::Stopped, _)) = stopped else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if self.stands_still() {
            Ok(Paused { _asked: asked })
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Whether every thread has come to its stop, within a time.
    fn stands_still(&self) -> bool {
        let began = Instant::now();
        while began.elapsed() < TO_STOP {
            // Twice: a list that is made while processes come and go may lack one.
            if (0..2).all(|_| processes::stand_still_below(self.init)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn wish(&self, program: &Program) -> Result<Wish, ExecError> {
        let given = |entry: &[u8]| {
            let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
            program.env.iter().any(|(given, _)| given.as_bytes() == name)
        };
        let own = program
            .env
            .iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        let boxes = self.env.iter().filter(|entry| !given(entry)).cloned();
        let wish = Wish {
            argv: program.argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            env: own.chain(boxes).collect(),
            workdir: program.workdir.as_ref().map(|path| path.as_os_str().as_bytes().to_vec()),
            stdio: program
                .terminal
                .map_or(Stdio::Pipes, |(rows, columns)| Stdio::Terminal { rows, columns }),
        };
        let strings = wish.argv.iter().chain(&wish.env).chain(&wish.workdir);
        let bytes: usize = strings.map(|string| string.len() + LENGTH).sum();
        if bytes > MAX_BYTES { Err(ExecError::TooLong) } else { Ok(wish) }
    }

    fn send(&self, call: &Call, with: &[BorrowedFd<'_>]) -> Result<(), ExecError> {
        wire::send(self.line.as_fd(), call, with).map_err(|source| {
            let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            if gone.contains(&source.kind()) {
                ExecError::Gone
            } else {
                ExecError::Io { doing: "ask init", source }
            }
        })
    }
}

impl Guest {
    /// Sends a signal; those of a terminal go to the whole group. Nothing happens after its end.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        match wire::send(self.line.as_fd(), &Order::Signal(number), &[]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Waits until it ends.
    pub fn wait(&self) -> io::Result<GuestEnded> {
        loop {
            if let Some(ended) = self.look()? {
                return Ok(ended);
            }
            self.ready(true)?;
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        !matches!(self.look(), Ok(None))
    }

    /// Takes the last word, if it was said.
    fn look(&self) -> io::Result<Option<GuestEnded>> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() && self.ready(false)? {
            *ended = Some(match wire::receive(self.line.as_fd(), wire::MAX_WORD)? {
                Some((Word::Ended { exit, signal }, _)) => GuestEnded { exit, signal },
                _ => GuestEnded { exit: None, signal: Some(KILLED) },
            });
        }
        Ok(*ended)
    }

    /// Whether something can be heard, now or after a wait.
    fn ready(&self, wait: bool) -> io::Result<bool> {
        let mut polled = [PollFd::from_borrowed_fd(self.line.as_fd(), PollFlags::IN)];
        let timeout = (!wait).then(rustix::event::Timespec::default);
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// Waits for the word that a guest runs, and what comes with it.
fn hear(line: &OwnedFd) -> Result<Vec<OwnedFd>, ExecError> {
    let heard = wire::receive(line.as_fd(), wire::MAX_WORD).map_err(failed("hear from init"))?;
    let os = io::Error::from_raw_os_error;
    Err(match heard {
        Some((Word::Started, with)) => return Ok(with),
        Some((Word::NoWorkdir { errno }, _)) => ExecError::Workdir(os(errno)),
        Some((Word::ExecFailed { errno }, _)) if errno == Errno::NOENT.raw_os_error() => {
            ExecError::NotFound
        }
        Some((Word::ExecFailed { errno }, _)) => ExecError::NotExecutable(os(errno)),
        Some((Word::Failed { what, errno }, _)) => ExecError::Refused { what, source: os(errno) },
        Some((Word::Ended { .. } | Word::Stopped, _)) | None => ExecError::Gone,
    })
}

fn failed<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> ExecError {
    move |source| ExecError::Io { doing, source: source.into() }
}
