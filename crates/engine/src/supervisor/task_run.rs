//! The host of one attempt of a task: it runs the program of the task in a box and stores the result.
//!
//! The host holds the lock of the run until it exits. A client that connects to the socket of the run and
//! sends nothing learns when the host ends. `Stop` kills the box, `Extend` extends the lease, and `Exec`
//! starts another program in the box of an agent.

mod agent;
mod code;
mod command;
mod lease;
mod output;
mod result;
mod spec;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use belljar_box::DataMount;
use belljar_model::RunResult;

use super::connection::{receive_small, send};
use super::exec::{self, ExecTarget};
use super::listener;
use super::output_log::{OutputLog, TASK_LOG_SIZE};
use super::protocol::{FromSupervisor, Hello, ToSupervisor};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::launch::{self, Environment, LaunchSpec};
use crate::logging;
use crate::network::broker::{LeaseWatch, NetworkUsage};
use crate::scope::Scoped;
use crate::store::{Run, durable};

pub(crate) use agent::{ClonedAt, remove_agent_files};
pub(crate) use lease::LEASE_REQUESTS;
use lease::LeaseRequest;
use output::OutputFile;
pub use result::{TaskOutcome, TaskOutput, TaskResult};
pub use spec::{AgentWork, INPUT_DIR, TaskRunSpec, TaskRunWorkspace, TaskWork};

/// The files of a task in the directory of its box run.
pub(crate) mod files {
    /// The output of the task.
    pub(crate) const OUTPUT: &str = "output";
    /// The end of standard error; see [`OutputLog`](super::OutputLog).
    pub(crate) const LOG: &str = "log";
    pub(crate) const RESULT: &str = "result.json";
    /// The private clone of an agent.
    pub(crate) const CLONE: &str = "repo";
    /// The description of the clone; see [`ClonedAt`](super::ClonedAt).
    pub(crate) const CLONED_AT: &str = "repo.json";
    /// The home directory of an agent.
    pub(crate) const HOME: &str = "home";
}

/// The reason why a task starts no additional program.
const NO_AGENT: &str =
    "the box of this task starts no additional programs: no agent is running in it";

/// The pause between two attempts to write a result to a full disk.
const DISK_RETRY: Duration = Duration::from_secs(1);

/// Reads the end of the output or of the log of a task.
pub(crate) fn read_end(path: &Path) -> io::Result<Vec<u8>> {
    super::output_log::read_end(path, TASK_LOG_SIZE)
}

/// Runs one attempt of a task. The descriptors are those of [`super::spec::Prepare::TaskRun`].
pub(super) fn supervise(
    state: &Scoped,
    spec: TaskRunSpec,
    descriptors: Vec<OwnedFd>,
) -> Result<(), EngineError> {
    let mut descriptors = descriptors.into_iter();
    let mut next =
        || descriptors.next().ok_or_else(|| invalid("a descriptor of the task is missing"));
    let (lock, socket, alive) = (next()?, next()?, next()?);
    let worker = descriptors.next();
    let done = TaskHost::new(state, spec, UnixListener::from(socket))
        .and_then(|host| host.run(state, worker));
    // The lock is free when a driver notices the end.
    drop(lock);
    drop(alive);
    done
}

/// One attempt of a task on its host.
struct TaskHost {
    spec: TaskRunSpec,
    /// The directory of the box run.
    dir: PathBuf,
    stop: Stop,
    /// The reading end of the pipe that kills the box.
    stopped: OwnedFd,
    lease: LeaseWatch,
    /// The running box of an agent, for additional programs.
    exec: Arc<OnceLock<ExecTarget>>,
}

/// Kills the box of a task.
#[derive(Clone)]
struct Stop {
    is_requested: Arc<AtomicBool>,
    /// The writing end of a pipe. A byte in this pipe kills the box.
    pipe: Arc<OwnedFd>,
}

impl Stop {
    fn request(&self) {
        self.is_requested.store(true, Ordering::Release);
        self.kill();
    }

    /// Kills the box without a request of the driver.
    fn kill(&self) {
        rustix::io::write(&*self.pipe, b"1").ok(); // the box may have ended
    }

    fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }
}

/// The end of a program, before its result is stored.
struct ProgramEnd {
    outcome: TaskOutcome,
    output: Option<OutputFile>,
    usage: NetworkUsage,
    wall_micros: u64,
    changed_files: Option<u64>,
    /// The reference with the commits of an agent that failed.
    kept: Option<String>,
}

impl ProgramEnd {
    /// Returns the end of a program that was not started.
    fn cannot_start(error: &EngineError) -> Self {
        Self::without_program(TaskOutcome::CannotStart { error: format!("{error:#}") })
    }

    fn without_program(outcome: TaskOutcome) -> Self {
        let usage = NetworkUsage::default();
        Self { outcome, output: None, usage, wall_micros: 0, changed_files: None, kept: None }
    }
}

/// Returns the outcome of a program. If its broker ended before it, the program had no network from then on,
/// so its end says nothing: the ledger decides whether the attempt is repeated.
fn outcome_with_broker(outcome: TaskOutcome, is_broker_gone: bool) -> TaskOutcome {
    if is_broker_gone && outcome != TaskOutcome::Killed {
        let error = "the broker of the box ended before the program".to_owned();
        return TaskOutcome::Failed { error };
    }
    outcome
}

impl TaskHost {
    /// Prepares the host and starts to serve the socket of the run.
    fn new(state: &Scoped, spec: TaskRunSpec, socket: UnixListener) -> Result<Self, EngineError> {
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (stopped, pipe) = pipe.context("cannot create a pipe").kind(ErrorKind::CannotStart)?;
        let stop = Stop { is_requested: Arc::default(), pipe: Arc::new(pipe) };
        let dir = state.store().layout().run(spec.run);
        let own = spec.rules.template.budget;
        let request = LeaseRequest::new(state, &spec);
        let lease = LeaseWatch::new(own, spec.lease, move || request.send());
        let exec = Arc::default();
        let served = Served { stop: stop.clone(), lease: lease.clone(), exec: Arc::clone(&exec) };
        logging::spawn(move || serve(&socket, &served));
        Ok(Self { spec, dir, stop, stopped, lease, exec })
    }

    fn run(self, state: &Scoped, worker: Option<OwnedFd>) -> Result<(), EngineError> {
        match (&self.spec.work, worker) {
            (TaskWork::Command(argv), _) => {
                let argv = argv.words().to_vec();
                self.run_command(state, argv)
            }
            (TaskWork::Code(job), Some(worker)) => {
                let job = (**job).clone();
                self.run_code(state, job, worker)
            }
            (TaskWork::Agent(work), _) => {
                let work = (**work).clone();
                self.run_agent(state, &work)
            }
            (TaskWork::Code(_), None) => Err(invalid("the worker program of the task is missing")),
        }
    }

    /// Completes the description of the box: the id, the inputs and the environment of the task.
    fn complete(&self, launch: &mut LaunchSpec) -> Result<(), EngineError> {
        launch.environment = Environment::OfTask(self.spec.variables());
        if let Some(inputs) = &self.spec.inputs {
            let opened = belljar_box::open(inputs).context("cannot open the inputs of the task");
            let (place, path) = opened.kind(ErrorKind::CannotStart)?;
            launch.data = Some(DataMount { place, path, target: INPUT_DIR.into() });
        }
        Ok(())
    }

    /// Creates the files for the output and the log of the task.
    fn create_files(&self) -> Result<(OutputFile, OutputLog), EngineError> {
        let create = || -> io::Result<_> {
            let output = OutputFile::create(&self.dir.join(files::OUTPUT), self.spec.max_output)?;
            Ok((output, OutputLog::open(self.dir.join(files::LOG), TASK_LOG_SIZE)?))
        };
        let created = create().map_err(|error| durable::with_disk_full_hint(error, &self.dir));
        created.context("cannot create the output file of the task").kind(ErrorKind::CannotStart)
    }

    /// Stores the result of the attempt durably, before the end of the run is recorded.
    ///
    /// While the disk is full, the result stays in memory.
    fn store(&self, end: ProgramEnd) -> Result<(), EngineError> {
        let ProgramEnd { mut outcome, output, usage, wall_micros, changed_files, kept } = end;
        let output = output.map(|output| self.store_output(output)).transpose()?.flatten();
        if output.is_none() && outcome.is_success() {
            outcome = TaskOutcome::TooLarge;
        }
        let run = self.spec.run;
        tracing::info!(outcome = outcome.name(), "attempt ended");
        let result = TaskResult { run, outcome, output, usage, wall_micros, changed_files, kept };
        let text = serde_json::to_vec_pretty(&result).kind(ErrorKind::Broken)?;
        self.retry("cannot store the result of the task", || {
            durable::write(&self.dir, files::RESULT, &text)?;
            // The directory of the run is new.
            self.dir.parent().map_or(Ok(()), |runs| File::open(runs)?.sync_all())
        })
    }

    /// Waits until the output is on disk. An output above its limit is removed.
    fn store_output(&self, mut output: OutputFile) -> Result<Option<TaskOutput>, EngineError> {
        if output.is_too_large() {
            std::fs::remove_file(self.dir.join(files::OUTPUT)).ok(); // the result says `too_large`
            return Ok(None);
        }
        self.retry("cannot store the output of the task", || output.sync())?;
        Ok(output.finish())
    }

    /// Repeats a write until the disk has space.
    fn retry(
        &self,
        what: &'static str,
        mut write: impl FnMut() -> io::Result<()>,
    ) -> Result<(), EngineError> {
        loop {
            match write() {
                Err(error) if durable::is_disk_full(&error) && !self.stop.is_requested() => {
                    tracing::warn!("disk is full; the result stays in memory");
                    std::thread::sleep(DISK_RETRY);
                }
                written => return written.context(what).kind(ErrorKind::Broken),
            }
        }
    }

    /// Stores the result of a program that was not started, and closes the record of the run.
    fn fail(
        &self,
        state: &Scoped,
        run: Option<&mut Run>,
        error: &EngineError,
    ) -> Result<(), EngineError> {
        tracing::warn!(kind = ?error.kind(), "program of the task was not started");
        let stored = self.store(ProgramEnd::cannot_start(error));
        if let Some(run) = run {
            launch::finish_run(run, None::<RunResult>, state);
        }
        stored
    }
}

/// What the clients of a host can use.
#[derive(Clone)]
struct Served {
    stop: Stop,
    lease: LeaseWatch,
    exec: Arc<OnceLock<ExecTarget>>,
}

/// Serves the socket of a run until the host exits.
fn serve(socket: &UnixListener, served: &Served) {
    for client in socket.incoming().filter_map(Result::ok) {
        if !listener::is_own_user(&client) {
            tracing::warn!("connection of another user is refused");
            continue;
        }
        let served = served.clone();
        logging::spawn(move || {
            serve_one(&client, &served).ok(); // the client may have disconnected
        });
    }
}

/// Carries out the requests of one client. A client that sends nothing waits for the end of the host.
fn serve_one(client: &UnixStream, served: &Served) -> io::Result<()> {
    let Some(Hello { caller, .. }) = receive_small::<Hello>(client)? else { return Ok(()) };
    while let Some(request) = receive_small::<ToSupervisor>(client)? {
        let invalid =
            |message: String| FromSupervisor::Failed { kind: ErrorKind::Invalid, message };
        let response = if request.is_stop() {
            served.stop.request();
            FromSupervisor::Ok
        } else if let ToSupervisor::Extend(budget) = request {
            match served.lease.extend(budget) {
                Ok(()) => FromSupervisor::Ok,
                Err(message) => FromSupervisor::Failed { kind: ErrorKind::Broken, message },
            }
        } else if let ToSupervisor::Exec(spec) = request {
            match (served.exec.get(), &caller) {
                (Some(target), Some(caller)) => return exec::run(client, target, caller, spec),
                (None, _) => invalid(NO_AGENT.to_owned()),
                (_, None) => invalid("the request of the client names no caller".to_owned()),
            }
        } else {
            invalid(format!("a task does not support the request `{}`", request.name()))
        };
        send(client, &response)?;
    }
    Ok(())
}

/// Opens the input of a command: a file of its inputs, or nothing.
fn open_stdin(inputs: Option<&Path>, name: Option<&str>) -> anyhow::Result<File> {
    match (inputs, name) {
        (Some(dir), Some(name)) => {
            open_input(dir, name).context("cannot open the standard input of the task")
        }
        _ => File::open("/dev/null").context("cannot open /dev/null"),
    }
}

/// Opens the output of a box whose bytes the filter takes.
fn null() -> anyhow::Result<File> {
    File::options().write(true).open("/dev/null").context("cannot open /dev/null")
}

/// Opens a regular file in a directory of inputs, without following a link.
pub(crate) fn open_input(dir: &Path, name: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir.join(name), flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}
