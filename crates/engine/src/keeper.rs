//! Keepers: one process for each box that is up, which lives on without whoever started it.
//!
//! A keeper is the supervisor of its box. It has no terminal and no secret; what it is asked comes over a
//! socket that only its own user can speak to.

mod build;
mod guests;
mod health;
mod history;
mod hub;
pub mod protocol;
pub mod role;
mod serve;
pub mod setup;
mod viewers;
mod wires;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use belljar_model::RunId;
use belljar_model::boxes::BoxName;
use rustix::fs::{Mode, OFlags};

use self::protocol::{Begin, Reply, Request, Word};
use crate::approvals::{Approvals, RequestId, Supervisors};
use crate::box_store::{self, NamedBox};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HOME_VARIABLE;
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::store::{Run, lock};

/// How the process is called, and what tells our program to be one.
pub const ROLE: &str = "belljar-keeper";

/// A keeper that answers nothing for so long is not well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A keeper that was started and has not said yet how it went.
#[derive(Debug)]
pub struct Starting {
    name: BoxName,
    line: UnixStream,
    log: PathBuf,
}

/// Starts the keeper of a box.
pub fn start(state: &Scoped, of: &NamedBox) -> Result<Starting, EngineError> {
    let (line, theirs) =
        UnixStream::pair().context("make a socket pair").kind(ErrorKind::CannotStart)?;
    let log = of.dir.join("keeper.log");
    let file = File::create(&log).context("open the keeper's log").kind(ErrorKind::CannotStart)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ROLE).env(HOME_VARIABLE, state.home()).current_dir("/");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(file);
    let child = command.spawn().context("start the keeper").kind(ErrorKind::CannotStart)?;
    tracing::debug!("box" = of.name().as_str(), pid = child.id(), "keeper started");
    protocol::send(&line, &Begin { name: of.name().clone() })
        .context("send the name of the box")
        .kind(ErrorKind::CannotStart)?;
    Ok(Starting { name: of.name().clone(), line, log })
}

impl Starting {
    /// Waits until the box is up, or is known not to be. What the keeper noted on the way is said.
    pub fn finish(self, state: &Scoped) -> Result<(), EngineError> {
        let word = protocol::receive::<Word>(&self.line);
        let noted = std::fs::read_to_string(&self.log).unwrap_or_default();
        for line in noted.lines() {
            state.notice(&Notice::Logged(line.to_owned()));
        }
        match word {
            Ok(Some(Word::Up)) => Ok(()),
            Ok(Some(Word::Failed { kind, message })) => {
                Err(EngineError::message(kind, format!("box {}: {message}", self.name)))
            }
            Ok(None) | Err(_) => {
                let error = anyhow!("the keeper of box {} ended without a word", self.name);
                Err(EngineError::new(ErrorKind::CannotStart, error))
            }
        }
    }
}

/// Asks the keeper of a box; a usage error where there is none.
pub fn ask(of: &NamedBox, request: &Request) -> Result<Reply, EngineError> {
    call(of, request, Some(PATIENCE)).map(|(_, reply)| reply)
}

/// The same, with the line for what comes after the first answer.
pub fn call(
    of: &NamedBox,
    request: &Request,
    patience: Option<Duration>,
) -> Result<(UnixStream, Reply), EngineError> {
    let name = of.name();
    tracing::debug!("box" = name.as_str(), request = request.name(), "supervisor is asked");
    build::check(of, request)?;
    let asked = || -> io::Result<(UnixStream, Option<Reply>)> {
        let line = connect(&of.dir)?;
        line.set_read_timeout(patience)?;
        protocol::send(&line, request)?;
        let reply = protocol::receive(&line)?;
        Ok((line, reply))
    };
    match asked() {
        Ok((_, Some(Reply::Failed { kind, message }))) => Err(EngineError::message(kind, message)),
        Ok((_, Some(Reply::Refused(why)))) => Err(invalid(format!("box {name}: {why}"))),
        Ok((line, Some(reply))) => Ok((line, reply)),
        Err(error) if !is_gone(&error) => {
            let error = anyhow::Error::new(error).context(format!("ask the keeper of box {name}"));
            Err(EngineError::new(ErrorKind::Broken, error))
        }
        // There is none, or it was just about to go.
        Ok((_, None)) | Err(_) => {
            let text = format!("box {name} is not running; `belljar start {name}` starts it");
            Err(EngineError::message(ErrorKind::WrongState, text))
        }
    }
}

/// The keepers of boxes, which carry out the answers to their questions.
#[derive(Clone, Copy, Debug)]
pub struct Keepers;

impl Supervisors for Keepers {
    fn is_alive(&self, state: &Scoped, name: &BoxName, run: RunId) -> bool {
        let dir = box_store::place(state).join(name.as_str());
        lock::is_held(&dir.join("lock"))
            && Run::load(&dir).is_ok_and(|newest| newest.record.id == run)
    }

    fn wake(&self, state: &Scoped, name: &BoxName, id: RequestId) -> Result<(), EngineError> {
        let RequestId { run, number } = id;
        let of = NamedBox::find(state, name)?;
        ask(&of, &Request::ApprovalAnswered { run, number }).map(drop)
    }
}

/// What waits for an answer in a state directory.
pub const fn approvals(state: &Scoped) -> Approvals<'_> {
    Approvals::new(state, &Keepers)
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe)
}

/// Connects by way of the directory: its path may be longer than the address of a socket can be.
fn connect(dir: &Path) -> io::Result<UnixStream> {
    let place = directory(dir)?;
    UnixStream::connect(through(&place))
}

fn directory(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn through(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}/socket", place.as_raw_fd())
}
