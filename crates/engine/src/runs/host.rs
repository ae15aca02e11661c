//! Task hosts: one detached process for each attempt of a task.
//!
//! ```text
//! start ──▶ claim: directory, lock, socket ──▶ host process ──▶ output, result.json, run.ended ──▶ exit
//! ```
//! [`start`] claims the id of the box run before it starts the host: it creates the directory of the run,
//! takes its lock and binds its socket. It passes the open lock to the host, so the lock is held without a
//! gap until the host exits. The kernel releases it even if the host is killed, and the box dies with its
//! host. So a free lock means that the attempt is over.
//!
//! The host writes the output and then `result.json` to the disk, and only then records the end of the run
//! in the ledger. If the disk is full, the host keeps the result in memory and tries again.
//!
//! A driver waits for many hosts at once: the descriptors of [`Hosted`] and [`Adopted`] become readable
//! when the host ends.

mod inputs;
mod lease;

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use belljar_box::Mask;
use belljar_model::spec::BoxSpec;
use belljar_model::{RunId, Template, display};

pub use crate::supervisor::task_run::{
    AgentWork, INPUT_DIR, TaskOutcome, TaskOutput, TaskResult, TaskRunSpec, TaskRunWorkspace,
    TaskWork,
};
pub use inputs::{InputFile, TaskInputs};
pub(in crate::runs) use lease::{extend, lease_requests};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::NetworkSpec;
use crate::run;
use crate::scope::Scoped;
use crate::store::{durable, lock};
use crate::supervisor;
use crate::supervisor::protocol::{ExecSpec, FromSupervisor, Hello, ToSupervisor};
use crate::supervisor::spec::{Prepare, Rules};
use crate::supervisor::task_run::{files, read_end, remove_agent_files};

/// The maximum time that a host needs to answer a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time between the moment when an exiting host stops listening and the release of its lock.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The notices of the host itself, in the directory of its box run.
const HOST_LOG: &str = "host.log";

/// A host that this process started.
#[derive(Debug)]
pub struct Hosted {
    run: RunId,
    process: Child,
    /// The reading end of a pipe. Only the host has the writing end.
    end: OwnedFd,
    /// The file that the host locks.
    lock: PathBuf,
}

impl Hosted {
    /// Returns the id of the box run.
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Waits until the host has exited and its lock is free.
    pub fn wait(mut self) {
        wait_readable(self.as_fd());
        self.process.wait().ok(); // fails if another thread has reaped the process
        wait_until_free(&self.lock);
    }
}

/// Becomes readable when the host ends.
impl AsFd for Hosted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.process.try_wait().ok(); // a host that goes on is reaped when this process exits
    }
}

/// A host that another process started.
#[derive(Debug)]
pub struct Adopted {
    run: RunId,
    connection: UnixStream,
    /// The file that the host locks.
    lock: PathBuf,
}

impl Adopted {
    /// Returns the id of the box run.
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// Waits until the host has exited and its lock is free.
    pub fn wait(&self) {
        wait_readable(self.as_fd());
        wait_until_free(&self.lock);
    }
}

/// Becomes readable when the host ends.
impl AsFd for Adopted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Starts the host of one attempt, which goes on after this process exits. Returns at once.
///
/// A `code` task needs `worker`, a descriptor of the worker program; see [`supervisor::worker_program`].
/// If the host fails, the failure is the result of the attempt. If the id of the box run was used before,
/// the function fails with [`ErrorKind::AlreadyExists`].
pub fn start(
    state: &Scoped,
    spec: TaskRunSpec,
    worker: Option<BorrowedFd<'_>>,
) -> Result<Hosted, EngineError> {
    spec.check(worker.is_some())?;
    let run = spec.run;
    let dir = state.store().layout().run(run);
    let Claim { lock, socket, log } = claim(&dir, run)?;
    let started = || -> anyhow::Result<Hosted> {
        let (end, alive) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // The lock comes first: the kernel closes descriptors in this order when the host exits.
        let mut descriptors = vec![lock.as_fd(), socket.as_fd(), alive.as_fd()];
        descriptors.extend(worker);
        let prepare = Prepare::TaskRun(Box::new(spec));
        let (process, _) = supervisor::spawn(state, prepare, &descriptors, log.into())?;
        Ok(Hosted { run, process, end, lock: dir.join("lock") })
    };
    started().with_context(|| format!("cannot start the host of box run {run}")).map_err(|error| {
        fs::remove_dir_all(&dir).ok(); // `Store::prune` removes leftovers
        EngineError::new(ErrorKind::CannotStart, error)
    })
}

/// The directory of a box run that this process has created for a host.
struct Claim {
    lock: File,
    socket: UnixListener,
    log: File,
}

/// Creates the directory of a box run, locks it and binds its socket.
fn claim(dir: &Path, run: RunId) -> Result<Claim, EngineError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("box run {run} was started before; start the attempt with a new id");
            return Err(EngineError::message(ErrorKind::AlreadyExists, text));
        }
        created => created
            .map_err(|error| durable::with_disk_full_hint(error, dir))
            .with_context(|| format!("cannot create {}", dir.display()))
            .kind(ErrorKind::CannotStart)?,
    }
    let claimed = || -> io::Result<Claim> {
        let lock = File::create_new(dir.join("lock"))?;
        if !lock::try_acquire(&lock, lock::PROBE_TIMEOUT) {
            return Err(io::Error::other("another process holds the lock of the new run"));
        }
        let socket = supervisor::bind_socket(dir)?;
        let log = File::create_new(dir.join(HOST_LOG))?;
        // `Store::prune` keeps the run until the driver has taken its result.
        File::create_new(dir.join(crate::store::HELD))?;
        Ok(Claim { lock, socket, log })
    };
    claimed().with_context(|| format!("cannot prepare {}", dir.display())).map_err(|error| {
        fs::remove_dir_all(dir).ok(); // `Store::prune` removes leftovers
        EngineError::new(ErrorKind::CannotStart, error)
    })
}

/// Returns whether a host of this box run is alive. If not, its box is dead as well.
///
/// The result can be `true` for a moment after the end of the host was reported: a process that the client
/// started at the same time as the host has a copy of the lock until its `execve`.
pub fn is_running(state: &Scoped, run: RunId) -> bool {
    lock::is_held(&state.store().layout().run(run).join("lock"))
}

/// Returns a handle of a running host that another process started, or `None` if no host is running.
pub fn adopt(state: &Scoped, run: RunId) -> Result<Option<Adopted>, EngineError> {
    let connection = connect(state, run)?;
    let lock = state.store().layout().run(run).join("lock");
    Ok(connection.map(|connection| Adopted { run, connection, lock }))
}

/// Kills the box of an attempt. Returns `false` if no host is running.
///
/// The function does not wait for the end. The outcome is then [`TaskOutcome::Killed`], unless the program
/// has ended before.
pub fn kill(state: &Scoped, run: RunId) -> Result<bool, EngineError> {
    let stop = ToSupervisor::Stop { now: true };
    Ok(request(state, run, &stop, || format!("cannot kill box run {run}"))?.is_some())
}

/// Starts another program in the box of a running agent. Returns the connection that passes the streams of
/// the program, or `None` if no host is running.
pub fn exec(
    state: &Scoped,
    run: RunId,
    program: ExecSpec,
) -> Result<Option<UnixStream>, EngineError> {
    let what = || format!("cannot start a program in the box of box run {run}");
    let connection = request(state, run, &ToSupervisor::Exec(program), what)?;
    if let Some(connection) = &connection {
        connection.set_read_timeout(None).with_context(what).kind(ErrorKind::Broken)?;
    }
    Ok(connection)
}

/// Sends a request to the host of a box run. Returns the connection after the host has carried out the
/// request, or `None` if no host is running. `what` names the request in an error.
fn request(
    state: &Scoped,
    run: RunId,
    request: &ToSupervisor,
    what: impl Fn() -> String,
) -> Result<Option<UnixStream>, EngineError> {
    let Some(connection) = connect(state, run)? else { return Ok(None) };
    let ask = || -> io::Result<Option<FromSupervisor>> {
        connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let hello = supervisor::encode(&Hello::of_client(state))?;
        (&connection).write_all(&[hello, supervisor::encode(request)?].concat())?;
        supervisor::receive(&connection)
    };
    match ask() {
        Ok(Some(FromSupervisor::Failed { kind, message })) => {
            Err(EngineError::message(kind, message))
        }
        Ok(Some(_)) => Ok(Some(connection)),
        // The host ended in the meantime.
        Ok(None) => Ok(None),
        Err(_) if !is_running(state, run) => Ok(None),
        Err(error) => Err(EngineError::new(ErrorKind::Broken, anyhow!(error).context(what()))),
    }
}

/// Connects to the host of a box run, or returns `None` if no host is running.
fn connect(state: &Scoped, run: RunId) -> Result<Option<UnixStream>, EngineError> {
    let dir = state.store().layout().run(run);
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        // The socket exists before the lock is visible to others, and longer than the lock is held.
        if !is_running(state, run) {
            return Ok(None);
        }
        match supervisor::connect_socket(&dir) {
            Ok(connection) => return Ok(Some(connection)),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => {
                let error = anyhow!(error).context(format!("cannot connect to the host of {run}"));
                return Err(EngineError::new(ErrorKind::Broken, error));
            }
        }
    }
}

/// Reads the durable result of an attempt. Returns `None` if the attempt has no result: it runs, it was
/// never started, or its host was killed.
pub fn result(state: &Scoped, run: RunId) -> Result<Option<TaskResult>, EngineError> {
    let path = state.store().layout().run(run).join(files::RESULT);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display())),
    };
    let text = text.kind(ErrorKind::Broken)?;
    let result = serde_json::from_slice(&text);
    let result = result.with_context(|| format!("cannot parse {}", path.display()));
    result.kind(ErrorKind::Damaged).map(Some)
}

/// Returns the path of the output of an attempt. The file exists if the result has an output.
pub fn output(state: &Scoped, run: RunId) -> PathBuf {
    state.store().layout().run(run).join(files::OUTPUT)
}

/// Returns the path of the log of an attempt: the end of what it wrote to standard error.
pub fn log(state: &Scoped, run: RunId) -> PathBuf {
    state.store().layout().run(run).join(files::LOG)
}

/// Moves the output of an attempt to `to`, durably. Does nothing if an earlier call did it.
pub fn take_output(state: &Scoped, run: RunId, to: &Path) -> Result<(), EngineError> {
    let from = output(state, run);
    let moved = match fs::rename(&from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && to.exists() => Ok(()),
        moved => moved,
    };
    // An old name that a crash restores does no harm.
    let sync = || to.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all());
    moved
        .and_then(|()| sync())
        .with_context(|| format!("cannot move the output of box run {run}"))
        .kind(ErrorKind::Broken)
}

/// Lets Belljar remove the directory of a box run, after its result was recorded.
pub fn release(state: &Scoped, run: RunId) {
    let dir = state.store().layout().run(run);
    fs::remove_file(dir.join(crate::store::HELD)).ok(); // a run that stays held only uses space
    remove_agent_files(&dir); // a host that was killed leaves them
}

/// Returns the last lines that the program wrote to standard error, or to standard output if it wrote
/// nothing to standard error. Terminal sequences are removed.
pub fn tail(state: &Scoped, run: RunId, lines: usize) -> Vec<String> {
    let dir = state.store().layout().run(run);
    let text = [files::LOG, files::OUTPUT].into_iter().find_map(|name| {
        let text = read_end(&dir.join(name)).ok()?;
        (!text.is_empty()).then_some(text)
    });
    let text = text.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let last = all.len().saturating_sub(lines);
    all.iter().skip(last).map(|line| display::safe_line(line).to_string()).collect()
}

/// Waits until no process holds a lock, for at most [`EXIT_TIMEOUT`].
fn wait_until_free(lock: &Path) {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while lock::is_held(lock) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a descriptor is readable or closed by its peer.
fn wait_readable(descriptor: BorrowedFd<'_>) {
    let mut polled =
        [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
    while rustix::event::poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
}

/// Resolves the template of a task: the rules and the masks of its box.
///
/// Relative paths of the template refer to `current_dir`. The workspace is that of `on`.
pub fn resolve(
    state: &Scoped,
    on: &BoxSpec,
    workspace: Option<&Path>,
    current_dir: &Path,
) -> Result<(Rules, Vec<Mask>), EngineError> {
    let resolved = run::resolve(state, on, workspace, current_dir)?;
    let run::Resolved { template, config, sources, masks } = resolved;
    let network = NetworkSpec::of(&template, &config, state.host())?;
    Ok((Rules { template, sources, network, remarks: Vec::new() }, masks))
}

/// Resolves a template that was fixed when its plan was submitted.
pub(super) fn resolve_fixed(
    state: &Scoped,
    template: &Template,
    workspace: Option<&Path>,
    current_dir: &Path,
) -> Result<(Rules, Vec<Mask>), EngineError> {
    let resolved = run::resolve_fixed(state, template, workspace, current_dir)?;
    let run::Resolved { template, config, sources, masks } = resolved;
    let network = NetworkSpec::of(&template, &config, state.host())?;
    Ok((Rules { template, sources, network, remarks: Vec::new() }, masks))
}
