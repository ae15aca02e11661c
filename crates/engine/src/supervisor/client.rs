//! Starts supervisors and sends requests to them.

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
use belljar_model::answer::AnswerTerms;
use belljar_model::boxes::BoxName;
use belljar_model::caller::Principal;
use rustix::fs::{Mode, OFlags};

use super::connection::{self, receive};
use super::protocol::{FromSupervisor, Hello, ToSupervisor};
use super::setup::Setup;
use super::spec::Prepare;
use super::{ROLE, build, legacy};
use crate::approvals::{AnswerRule, RequestId, Supervisors};
use crate::box_store::{self, NamedBox};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HOME_VARIABLE;
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::store::{Run, lock};

/// The maximum time to wait for a supervisor's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time to wait for the state of a box, which a supervisor knows at once.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// A supervisor of a named box that has not reported yet whether the box started.
#[derive(Debug)]
pub struct Starting {
    name: BoxName,
    connection: UnixStream,
    log: PathBuf,
}

/// Starts a supervisor process and sends it the box to prepare, with `descriptors`. The supervisor writes
/// its notices to `stderr` and exits when the returned connection is closed.
pub fn spawn(
    state: &Scoped,
    prepare: Prepare,
    descriptors: &[BorrowedFd<'_>],
    stderr: Stdio,
) -> io::Result<(Child, UnixStream)> {
    let (connection, supervisor_end) = UnixStream::pair()?;
    let child = Command::new(state.host().role_program())
        .arg0(ROLE)
        .env(HOME_VARIABLE, state.engine_home())
        .current_dir("/")
        .stdin(OwnedFd::from(supervisor_end))
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()?;
    tracing::debug!(pid = child.id(), "supervisor started");
    let hello = Hello::of_client(state);
    connection::send_first(&connection, &hello, &ToSupervisor::Prepare(Box::new(prepare)))?;
    if !descriptors.is_empty() {
        connection::send_descriptors(&connection, descriptors)?;
    }
    Ok((child, connection))
}

/// Starts the driver of runs with the role `role`, which goes on after this process exits. The driver has
/// the environment of the engine and writes its notices to `log`.
pub(crate) fn spawn_driver(state: &Scoped, role: &str, log: File) -> io::Result<()> {
    let (connection, driver_end) = UnixStream::pair()?;
    let child = Command::new(state.host().role_program())
        .arg0(role)
        .env_clear()
        .envs(&state.host().variables)
        .env(HOME_VARIABLE, state.engine_home())
        .current_dir("/")
        .stdin(OwnedFd::from(driver_end))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    tracing::debug!(pid = child.id(), "driver started");
    reap(child);
    connection::send(&connection, &Hello::of_client(state))
}

/// Waits for a child on another thread, so that a server does not keep the process ids of all children that
/// have ended. A child that outlives this process goes on.
pub(super) fn reap(mut child: Child) {
    const STACK: usize = 64 * 1024; // the thread does nothing but wait
    let waits = std::thread::Builder::new().name("reaper".to_owned()).stack_size(STACK);
    // Without a thread, the process id stays in use until this process exits.
    waits.spawn(move || child.wait().ok()).ok();
}

/// Starts the supervisor of a named box. The supervisor keeps running after this process exits.
pub fn start(state: &Scoped, of: &NamedBox) -> Result<Starting, EngineError> {
    let log = of.dir.join("keeper.log");
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()));
    let file = file.kind(ErrorKind::CannotStart)?;
    let prepare = Prepare::NamedBox { name: of.name().clone() };
    let (child, connection) = spawn(state, prepare, &[], file.into())
        .with_context(|| format!("cannot start the supervisor of box {}", of.name()))
        .kind(ErrorKind::CannotStart)?;
    reap(child);
    Ok(Starting { name: of.name().clone(), connection, log })
}

impl Starting {
    /// Waits until the box has started or failed to start. Passes the supervisor's notices to the observer.
    pub fn finish(self, state: &Scoped) -> Result<(), EngineError> {
        let response = receive::<Hello>(&self.connection)
            .and_then(|_| receive::<FromSupervisor>(&self.connection));
        let notices = std::fs::read_to_string(&self.log).unwrap_or_default();
        for line in notices.lines() {
            state.notice(&Notice::Logged(line.to_owned()));
        }
        match response {
            Ok(Some(FromSupervisor::Ready { .. })) => Ok(()),
            Ok(Some(FromSupervisor::Failed { kind, message })) => {
                Err(EngineError::message(kind, format!("box {}: {message}", self.name)))
            }
            Ok(Some(_) | None) | Err(_) => {
                let error = anyhow!(
                    "cannot start box {}: its supervisor exited unexpectedly; see its log {}",
                    self.name,
                    self.log.display()
                );
                Err(EngineError::new(ErrorKind::CannotStart, error))
            }
        }
    }
}

/// Sends a request to the supervisor of a box and returns the response.
pub fn ask(
    state: &Scoped,
    of: &NamedBox,
    request: &ToSupervisor,
) -> Result<FromSupervisor, EngineError> {
    let is_status = matches!(request, ToSupervisor::Status);
    let timeout = if is_status { STATUS_TIMEOUT } else { RESPONSE_TIMEOUT };
    call(state, of, request, Some(timeout)).map(|(_, response)| response)
}

/// Sends a request to the supervisor of a box. Returns the response and the open connection, for requests
/// that continue after the first response.
pub fn call(
    state: &Scoped,
    of: &NamedBox,
    request: &ToSupervisor,
    timeout: Option<Duration>,
) -> Result<(UnixStream, FromSupervisor), EngineError> {
    let name = of.name();
    tracing::debug!(
        "box" = name.as_str(),
        request = request.name(),
        "request is sent to the supervisor"
    );
    build::check(of, request)?;
    let exchange = || -> io::Result<_> {
        let connection = connect(&of.dir)?;
        connection.set_read_timeout(timeout)?;
        if build::is_legacy(&of.dir) {
            let response = legacy::stop(&connection, request)?;
            return Ok((connection, None, response));
        }
        connection::send_first(&connection, &Hello::of_client(state), request)?;
        let hello = receive::<Hello>(&connection)?;
        let response = receive(&connection)?;
        Ok((connection, hello, response))
    };
    match exchange() {
        Ok((_, _, Some(FromSupervisor::Failed { kind, message }))) => {
            Err(EngineError::message(kind, message))
        }
        Ok((connection, hello, Some(response))) => {
            if let (Some(hello), false) = (&hello, request.is_stop()) {
                connection::check_protocol("the supervisor of the box", hello)?;
            }
            Ok((connection, response))
        }
        Err(error) if !is_disconnected(&error) => {
            let text = format!("cannot get a response from the supervisor of box {name}");
            Err(EngineError::new(ErrorKind::Broken, anyhow::Error::new(error).context(text)))
        }
        // The supervisor is about to exit. It holds the lock of the box until its last change is saved.
        Ok((_, _, None)) | Err(_) if of.is_up() => {
            let text = format!("box {name} is starting or stopping; try again");
            Err(EngineError::message(ErrorKind::Busy, text))
        }
        Ok((_, _, None)) | Err(_) => {
            let text = format!("box {name} is not running; `belljar start {name}` starts it");
            Err(EngineError::message(ErrorKind::WrongState, text))
        }
    }
}

/// Notifies the supervisors of named boxes when the operator has answered a question of a box.
#[derive(Clone, Copy, Debug)]
pub struct OfNamedBoxes;

impl Supervisors for OfNamedBoxes {
    fn is_alive(&self, state: &Scoped, name: &BoxName, run: RunId) -> bool {
        let dir = box_store::boxes_dir(state).join(name.as_str());
        lock::is_held(&dir.join("lock"))
            && Run::load(&dir).is_ok_and(|latest| latest.record.id == run)
    }

    fn answer_rule(
        &self,
        state: &Scoped,
        name: &BoxName,
        rule: Option<&str>,
    ) -> Result<AnswerRule, EngineError> {
        let of = NamedBox::find(state, name)?;
        let local = || Principal::user(rustix::process::geteuid().as_raw());
        let requester = Some(of.record.maker.clone().unwrap_or_else(local));
        // Questions of an earlier version do not name their rule.
        let Some(rule) = rule else {
            return Ok(AnswerRule { terms: AnswerTerms::default(), requester });
        };
        let template = Setup::of(&of, state)?.template;
        let found = template.ask.iter().find(|known| known.id == rule);
        // A rule that was removed or renamed since the question may have demanded anything.
        let strict = AnswerTerms { operator: true, two_people: false };
        let terms = found.map_or(strict, |rule| rule.marks.answers);
        Ok(AnswerRule { terms, requester })
    }

    fn wake(&self, state: &Scoped, name: &BoxName, id: RequestId) -> Result<(), EngineError> {
        let RequestId { run, number } = id;
        let of = NamedBox::find(state, name)?;
        ask(state, &of, &ToSupervisor::ApprovalAnswered { run, number }).map(drop)
    }
}

/// Returns whether an error means that no process listens on the socket any more.
fn is_disconnected(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof
    )
}

/// Connects to the socket of the supervisor in the directory of a box. The address uses a descriptor of the
/// directory, because the path of the directory may be too long for a socket address.
pub(crate) fn connect(dir: &Path) -> io::Result<UnixStream> {
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
