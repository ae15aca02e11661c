//! Starting supervisors and sending requests to them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use belljar_model::RunId;
use belljar_model::boxes::BoxName;
use rustix::fs::{Mode, OFlags};

use super::connection::{self, receive};
use super::protocol::{FromSupervisor, Hello, ToSupervisor};
use super::spec::Prepare;
use super::{ROLE, build, legacy};
use crate::approvals::{Approvals, RequestId, Supervisors};
use crate::box_store::{self, NamedBox};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HOME_VARIABLE;
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::store::{Run, lock};

/// The time that a supervisor has to answer a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A supervisor that was started for a named box and has not answered yet.
#[derive(Debug)]
pub struct Starting {
    name: BoxName,
    connection: UnixStream,
    log: PathBuf,
}

/// Starts a supervisor that this process owns, and sends it what to prepare. `stderr` gets its notices.
/// The supervisor ends when the returned connection is closed.
pub fn spawn(
    state: &Scoped,
    prepare: Prepare,
    descriptors: &[BorrowedFd<'_>],
    stderr: Stdio,
) -> io::Result<(Child, UnixStream)> {
    let (connection, theirs) = UnixStream::pair()?;
    let child = Command::new(state.host().role_program())
        .arg0(ROLE)
        .env(HOME_VARIABLE, state.engine_home())
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()?;
    tracing::debug!(pid = child.id(), "supervisor started");
    let hello = Hello::of_client(state.caller());
    connection::send_first(&connection, &hello, &ToSupervisor::Prepare(Box::new(prepare)))?;
    if !descriptors.is_empty() {
        connection::send_descriptors(&connection, descriptors)?;
    }
    Ok((child, connection))
}

/// Starts the supervisor of a named box. It goes on when this process ends.
pub fn start(state: &Scoped, of: &NamedBox) -> Result<Starting, EngineError> {
    let log = of.dir.join("keeper.log");
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()));
    let file = file.kind(ErrorKind::CannotStart)?;
    let prepare = Prepare::NamedBox { name: of.name().clone() };
    let (_child, connection) = spawn(state, prepare, &[], file.into())
        .with_context(|| format!("cannot start the supervisor of box {}", of.name()))
        .kind(ErrorKind::CannotStart)?;
    Ok(Starting { name: of.name().clone(), connection, log })
}

impl Starting {
    /// Waits until the box is started or has failed to start. Passes on the supervisor's notices.
    pub fn finish(self, state: &Scoped) -> Result<(), EngineError> {
        let answer = receive::<Hello>(&self.connection)
            .and_then(|_| receive::<FromSupervisor>(&self.connection));
        let noted = std::fs::read_to_string(&self.log).unwrap_or_default();
        for line in noted.lines() {
            state.notice(&Notice::Logged(line.to_owned()));
        }
        match answer {
            Ok(Some(FromSupervisor::Ready { .. })) => Ok(()),
            Ok(Some(FromSupervisor::Failed { kind, message })) => {
                Err(EngineError::message(kind, format!("box {}: {message}", self.name)))
            }
            Ok(Some(_) | None) | Err(_) => {
                let error = anyhow!(
                    "the supervisor of box {} ended before the box was started; {} may say why",
                    self.name,
                    self.log.display()
                );
                Err(EngineError::new(ErrorKind::CannotStart, error))
            }
        }
    }
}

/// Sends a request to the supervisor of a box and returns its answer.
pub fn ask(
    state: &Scoped,
    of: &NamedBox,
    request: &ToSupervisor,
) -> Result<FromSupervisor, EngineError> {
    call(state, of, request, Some(TIMEOUT)).map(|(_, answer)| answer)
}

/// Sends a request and returns the answer with the connection, for requests that go on after it.
pub fn call(
    state: &Scoped,
    of: &NamedBox,
    request: &ToSupervisor,
    timeout: Option<Duration>,
) -> Result<(UnixStream, FromSupervisor), EngineError> {
    let name = of.name();
    tracing::debug!("box" = name.as_str(), request = request.name(), "supervisor is asked");
    build::check(of, request)?;
    let asked = || -> io::Result<_> {
        let connection = connect(&of.dir)?;
        connection.set_read_timeout(timeout)?;
        if build::is_legacy(&of.dir) {
            let answer = legacy::stop(&connection, request)?;
            return Ok((connection, None, answer));
        }
        let hello = Hello::of_client(state.caller());
        connection::send_first(&connection, &hello, request)?;
        let theirs = receive::<Hello>(&connection)?;
        let answer = receive(&connection)?;
        Ok((connection, theirs, answer))
    };
    match asked() {
        Ok((_, _, Some(FromSupervisor::Failed { kind, message }))) => {
            Err(EngineError::message(kind, message))
        }
        Ok((connection, theirs, Some(answer))) => {
            if let (Some(theirs), false) = (&theirs, request.is_stop()) {
                connection::check("the supervisor of the box", theirs)?;
            }
            Ok((connection, answer))
        }
        Err(error) if !is_gone(&error) => {
            let text = format!("cannot get an answer from the supervisor of box {name}");
            Err(EngineError::new(ErrorKind::Broken, anyhow::Error::new(error).context(text)))
        }
        // There is no supervisor, or it is about to exit.
        Ok((_, _, None)) | Err(_) => {
            let text = format!("box {name} is not running; `belljar start {name}` starts it");
            Err(EngineError::message(ErrorKind::WrongState, text))
        }
    }
}

/// The supervisors of named boxes, which carry out the answers to their questions.
#[derive(Clone, Copy, Debug)]
pub struct OfNamedBoxes;

impl Supervisors for OfNamedBoxes {
    fn is_alive(&self, state: &Scoped, name: &BoxName, run: RunId) -> bool {
        let dir = box_store::boxes_dir(state).join(name.as_str());
        lock::is_held(&dir.join("lock"))
            && Run::load(&dir).is_ok_and(|newest| newest.record.id == run)
    }

    fn wake(&self, state: &Scoped, name: &BoxName, id: RequestId) -> Result<(), EngineError> {
        let RequestId { run, number } = id;
        let of = NamedBox::find(state, name)?;
        ask(state, &of, &ToSupervisor::ApprovalAnswered { run, number }).map(drop)
    }
}

/// The questions that wait for an answer in a state directory.
pub const fn approvals(state: &Scoped) -> Approvals<'_> {
    Approvals::new(state, &OfNamedBoxes)
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof
    )
}

/// Connects through a descriptor of the directory: its path may be longer than a socket address.
fn connect(dir: &Path) -> io::Result<UnixStream> {
    let directory = open_directory(dir)?;
    UnixStream::connect(socket_in(&directory))
}

pub(super) fn open_directory(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

pub(super) fn socket_in(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}/socket", directory.as_raw_fd())
}
