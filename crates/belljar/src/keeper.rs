//! Keepers: one process for each box that is up, which lives on without whoever started it.
//!
//! A keeper is the supervisor of its box. It has no terminal and no secret; what it is asked comes over a
//! socket that only its own user can speak to.

mod guests;
mod health;
mod history;
mod hub;
pub(crate) mod protocol;
pub(crate) mod role;
mod serve;
pub(crate) mod setup;
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
use belljar_model::boxes::BoxName;
use rustix::fs::{Mode, OFlags};

use self::protocol::{Reply, Request, Word};
use crate::boxes::NamedBox;
use crate::failure::{Code as _, FAILED, Failure, NO_BOX, usage};
use crate::print;

/// How the process is called, and what tells our program to be one.
pub(crate) const ROLE: &str = "belljar-keeper";

/// A keeper that answers nothing for so long is not well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A keeper that was started and has not said yet how it went.
#[derive(Debug)]
pub(crate) struct Starting {
    name: BoxName,
    line: UnixStream,
    log: PathBuf,
}

/// Starts the keeper of a box.
pub(crate) fn start(of: &NamedBox) -> Result<Starting, Failure> {
    let (line, theirs) = UnixStream::pair().context("make a socket pair").code(NO_BOX)?;
    let log = of.dir.join("keeper.log");
    let file = File::create(&log).context("open the keeper's log").code(NO_BOX)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ROLE).arg(of.name().as_str()).current_dir("/");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(file);
    command.spawn().context("start the keeper").code(NO_BOX)?;
    Ok(Starting { name: of.name().clone(), line, log })
}

impl Starting {
    /// Waits until the box is up, or is known not to be. What the keeper noted on the way is said.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let word = protocol::receive::<Word>(&self.line);
        let noted = std::fs::read_to_string(&self.log).unwrap_or_default();
        noted.lines().for_each(print::pass_on);
        match word {
            Ok(Some(Word::Up)) => Ok(()),
            Ok(Some(Word::Failed { code, message })) => {
                Err(Failure { code, error: anyhow!("box {}: {message}", self.name) })
            }
            Ok(None) | Err(_) => {
                let error = anyhow!("the keeper of box {} ended without a word", self.name);
                Err(Failure { code: NO_BOX, error })
            }
        }
    }
}

/// Asks the keeper of a box; a usage error where there is none.
pub(crate) fn ask(of: &NamedBox, request: &Request) -> Result<Reply, Failure> {
    call(of, request, Some(PATIENCE)).map(|(_, reply)| reply)
}

/// The same, with the line for what comes after the first answer.
pub(crate) fn call(
    of: &NamedBox,
    request: &Request,
    patience: Option<Duration>,
) -> Result<(UnixStream, Reply), Failure> {
    let name = of.name();
    let asked = || -> io::Result<(UnixStream, Option<Reply>)> {
        let line = connect(&of.dir)?;
        line.set_read_timeout(patience)?;
        protocol::send(&line, request)?;
        let reply = protocol::receive(&line)?;
        Ok((line, reply))
    };
    match asked() {
        Ok((_, Some(Reply::Refused(why)))) => Err(usage(format!("box {name}: {why}"))),
        Ok((line, Some(reply))) => Ok((line, reply)),
        Err(error) if !is_gone(&error) => {
            let error = anyhow::Error::new(error).context(format!("ask the keeper of box {name}"));
            Err(Failure { code: FAILED, error })
        }
        // There is none, or it was just about to go.
        Ok((_, None)) | Err(_) => {
            Err(usage(format!("box {name} is not running; `belljar start {name}` starts it")))
        }
    }
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
