//! The life of a cell: prepare, wait, record, run, tell.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use belljar_box::{Finished, Remains, Workspace};
use belljar_model::code::Selection;
use belljar_model::{Config, Mode, Purpose, Template};
use belljar_sys::signal::{SUPERVISED, SignalFd};
use belljar_wire::{self as wire, Job};
use rustix::fs::{Mode as FileMode, OFlags};

use super::watch::Watch;
use super::word::{Ending, Order, Prepare, Report, Room, Task};
use crate::clock::Clock;
use crate::config;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HostEnv;
use crate::launch::output::Tape;
use crate::launch::{self, DiskLimit, LaunchSpec, Prepared, Streams, at};
use crate::logging;
use crate::network::Outlet;
use crate::network::broker::Account;
use crate::notice::Observer;
use crate::scope::{EngineConfig, Scoped};
use crate::store::CallMark;

/// Runs as a cell. Descriptor 0 is the line to the server, descriptor 1 the worker's program.
pub fn main(host: HostEnv, clock: Clock, observer: Arc<dyn Observer>) -> Result<(), EngineError> {
    let line = rustix::io::dup(std::io::stdin()).context("find the connection");
    let mut line = UnixStream::from(line.kind(ErrorKind::Broken)?);
    let program = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3);
    let program = program.context("find the worker").kind(ErrorKind::Broken)?;
    let opened = host.state_dir().and_then(|home| {
        Scoped::local(EngineConfig { home, config_file: None, host }, clock, observer)
    });
    let lived = opened.and_then(|state| live(&state, &mut line, program));
    lived.inspect_err(|error| {
        let is_usage = error.kind() == ErrorKind::Invalid;
        let report = Report::Failed { is_usage, message: format!("{error:#}") };
        wire::write(&mut line, &report).ok(); // a server that is gone needs no reason
    })
}

fn live(state: &Scoped, line: &mut UnixStream, program: OwnedFd) -> Result<(), EngineError> {
    let Some(Order::Prepare(prepare)) = wire::read(line).kind(ErrorKind::Broken)? else {
        return Ok(());
    };
    let state = &state.for_caller(prepare.caller.clone())?;
    tracing::debug!("box is to be prepared");
    let cell = Cell::prepare(state, &prepare, program)?;
    let _entered = cell.prepared.span().entered();
    let ready = Report::Ready {
        run: cell.prepared.id().to_string(),
        remarks: cell.prepared.remarks().to_vec(),
    };
    wire::write(line, &ready).context("tell that the box stands").kind(ErrorKind::Broken)?;
    match wire::read(line).kind(ErrorKind::Broken)? {
        Some(Order::Run(task)) => {
            let shares_layers =
                matches!(&cell.room, Room::Project { mode, .. } if *mode != Mode::ReadOnly);
            let (ending, remains) = cell.run(state, line, *task)?;
            // Nobody needs to wait until its mounts and cgroups are gone, but the next box that mounts
            // the same layers.
            let remains = (!shares_layers).then_some(remains);
            let told = wire::write(line, &Report::Ended(Box::new(ending)));
            drop(remains);
            told.context("tell the end").kind(ErrorKind::Broken)
        }
        Some(Order::Prepare(_) | Order::Answer { .. } | Order::Cancel) | None => {
            cell.prepared.abandon();
            Ok(())
        }
    }
}

/// A box that waits for its task.
struct Cell {
    room: Room,
    prepared: Prepared,
    /// Says to others that a run of this id is under way.
    _mark: CallMark,
    /// What records the output.
    tape: Tape,
}

impl Cell {
    fn prepare(state: &Scoped, prepare: &Prepare, program: OwnedFd) -> Result<Self, EngineError> {
        let project = match &prepare.room {
            Room::Project { path, .. } => Some(path.as_path()),
            Room::Scratch { .. } => None,
        };
        let (config, sources) =
            config::load_from(state.host(), prepare.config.as_deref(), project)?;
        let (template, remarks) = template(state.host(), &config, prepare)?;
        let network = Outlet::of(&template, &config, state)?;
        let id = state.new_id()?;
        let mark = state.store().mark_call(id.0).kind(ErrorKind::CannotStart)?;
        let workspace = workspace(&prepare.room).kind(ErrorKind::CannotStart)?;
        let at = (!workspace.scratch).then(|| at(&workspace)).transpose();
        let tape = Tape::new(template.record, prepare.room.dir()).kind(ErrorKind::CannotStart)?;
        let argv = vec!["belljar-worker".into()];
        let mut spec = LaunchSpec::new(id, Purpose::Call, template, argv);
        spec.at = at.kind(ErrorKind::CannotStart)?;
        (spec.sources, spec.remarks, spec.network) = (sources, remarks, network);
        (spec.worker, spec.workspace) = (Some(program), Some(workspace));
        spec.disk = prepare.room.writes_to().map(|dir| DiskLimit::of_layers(dir.to_owned()));
        let prepared = launch::prepare(state, spec)?;
        Ok(Self { room: prepare.room.clone(), prepared, _mark: mark, tape })
    }

    fn run(
        self,
        state: &Scoped,
        line: &UnixStream,
        task: Task,
    ) -> Result<(Ending, Remains), EngineError> {
        let Self { prepared, tape, _mark, .. } = self;
        let Task { job, output, timeout_millis, command } = task;
        // What can fail does so before there is anything to take back.
        let began = (|| {
            let ears = Ears::new(line)?;
            let watch = Watch::new(ears.share()?, &job, output, tape);
            anyhow::Ok((ears, watch, null()?))
        })();
        let (ears, mut watch, null) = match began.kind(ErrorKind::CannotStart) {
            Ok(began) => began,
            Err(failure) => {
                prepared.abandon();
                return Err(failure);
            }
        };
        let Ears { line, input, feed, stop, halt } = ears;
        // It is there already when the run is on record.
        let (go, word) = mpsc::channel::<()>();
        logging::spawn(move || listen(&word, line, &job, feed, &halt));
        let launched = prepared.record(command, timeout_millis.map(Duration::from_millis))?;
        go.send(()).ok(); // it waits for nothing else
        let mut filter = |pipe, chunk: &[u8], _: &mut Vec<u8>| watch.hear(pipe, chunk);
        let streams = Streams {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            filter: &mut filter,
            stop: Some(stop.as_fd()),
        };
        let mut ended = launched.supervise(state, streams, || ())?;
        watch.finish();
        let account = ended.account.take().unwrap_or_default();
        let mut ending = ending(&ended.finished, &mut watch, account);
        let outputs = watch.tape.finish(ended.journal.ledger(), ended.policy);
        let outputs = outputs.unwrap_or_else(|error| {
            ending.notes.push(format!("what the program wrote is not on record: {error:#}"));
            [None, None]
        });
        let result = ended.result(None);
        if let Err(error) = ended.journal.ended(&result, outputs, None) {
            ending.notes.push(format!("the end of the run is not on record: {error}"));
        }
        Ok((ending, ended.remains))
    }
}

/// The ends of what a running box is fed and stopped by.
struct Ears {
    line: UnixStream,
    input: OwnedFd,
    feed: File,
    stop: OwnedFd,
    halt: OwnedFd,
}

impl Ears {
    fn new(line: &UnixStream) -> anyhow::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, feed), (stop, halt)) = (pipe()?, pipe()?);
        let line = line.try_clone().context("share the line")?;
        Ok(Self { line, input, feed: feed.into(), stop, halt })
    }

    /// What the one who reads frames needs: the line to the server, and what ends the box.
    fn share(&self) -> anyhow::Result<(UnixStream, OwnedFd)> {
        Ok((self.line.try_clone()?, self.halt.try_clone()?))
    }
}

/// Feeds the worker its job, once there is word to, and the answers to its calls, until the server takes
/// the call back or is gone. Then the box ends.
fn listen(
    word: &mpsc::Receiver<()>,
    mut line: UnixStream,
    job: &Job,
    mut feed: File,
    halt: &OwnedFd,
) {
    let _signals = SignalFd::new(&SUPERVISED); // the main thread's to read
    if word.recv().is_err() {
        return; // nothing is to be run
    }
    if wire::write(&mut feed, job).is_err() {
        return; // the worker is gone, which the main thread sees
    }
    // A program of another kind has read what is its input from its job.
    let mut feed = matches!(job, Job::Script(_)).then_some(feed);
    while let Ok(Some(order)) = wire::read::<Order>(&mut line) {
        match order {
            Order::Answer { id, value } => {
                tracing::debug!(call = id, failed = value.is_err(), "tool answered");
                let told = wire::ToWorker::Answer { id, value };
                let Some(to) = &mut feed else { continue };
                if wire::write(to, &told).is_err() {
                    feed = None;
                }
            }
            Order::Cancel | Order::Prepare(_) | Order::Run(_) => break,
        }
    }
    // A word, not the end of the pipe: whoever reads frames has an end of it too.
    rustix::io::write(halt, b"1").ok(); // or the box is gone already
}

/// What the box is made from, and what a person should be told about it.
fn template(
    host: &HostEnv,
    config: &Config,
    prepare: &Prepare,
) -> Result<(Template, Vec<String>), EngineError> {
    let selection = prepare.apis.as_ref().map_or(Selection::All, Selection::Only);
    let made = config.code().template(config, selection).kind(ErrorKind::Invalid)?;
    let mut template = made.template.anchored(&prepare.here, host.user_home().as_deref());
    template.mode = match &prepare.room {
        Room::Project { mode, .. } => *mode,
        Room::Scratch { .. } => Mode::Overlay,
    };
    Ok((template, made.remarks))
}

fn workspace(room: &Room) -> anyhow::Result<Workspace> {
    match room {
        Room::Scratch { dir } => {
            let (place, path) = belljar_box::open(&dir.join("upper"))?;
            Ok(Workspace { place, path, layers: None, scratch: true })
        }
        Room::Project { path, mode, dir } => {
            let (place, path) = belljar_box::open(path)?;
            let layers = (*mode != Mode::ReadOnly).then(|| dir.clone());
            Ok(Workspace { place, path, layers, scratch: false })
        }
    }
}

fn null() -> anyhow::Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())
        .context("open /dev/null")
}

/// What the server is told of an end.
fn ending(finished: &Finished, watch: &mut Watch, account: Account) -> Ending {
    let (stdout_truncated, stderr_truncated) = watch.cut();
    let Account { requests, more_requests, denied, alarms, is_dark, unrecorded, .. } = account;
    let mut notes: Vec<String> = alarms.into_iter().map(|line| format!("alarm: {line}")).collect();
    if is_dark {
        notes.push("the broker ended before the box did: from then on it had no network".into());
    }
    notes.extend(unrecorded.map(|error| format!("a request could not be recorded: {error}")));
    notes
        .extend(watch.broken.take().map(|error| format!("the worker was not understood: {error}")));
    notes.extend(finished.exec_error.as_ref().map(|error| format!("the worker: {error}")));
    Ending {
        reason: finished.reason,
        exit: finished.exit,
        signal: finished.signal,
        wall_micros: u64::try_from(finished.wall.as_micros()).unwrap_or(u64::MAX),
        cpu_micros: finished.cpu.user.saturating_add(finished.cpu.system),
        peak_memory: finished.peak_memory,
        done: watch.done.take(),
        stdout_truncated,
        stderr_truncated,
        requests,
        more_requests,
        denied: denied.into_iter().collect(),
        notes,
    }
}
