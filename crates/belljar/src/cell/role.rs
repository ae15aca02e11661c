//! The life of a cell: prepare, wait, record, run, tell.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_box::{Count, Finished, Remains, Request, Running, Supervision, Workspace};
use belljar_ledger::Ledger;
use belljar_model::code::Selection;
use belljar_model::{Config, Mode, Review, RunId, RunRecord, RunState, Template, WorkspaceAt};
use belljar_wire::{self as wire, Job};
use rustix::fs::{Mode as FileMode, OFlags};

use super::watch::Watch;
use super::word::{Ending, Order, Prepare, Report, Room, Task};
use crate::broker::Account;
use crate::commands::run::{at, counter, environment, new_id, now, result};
use crate::config::{self, Source};
use crate::failure::{Code as _, FAILED, Failure, NO_BOX, USAGE};
use crate::outlet::{self, Outlet, Outside};
use crate::record::{self, Journal, Plan};
use crate::state::{CallMark, State};
use crate::tape::Tape;

/// Runs as a cell. Descriptor 0 is the line to the server, descriptor 1 the worker's program.
pub(crate) fn main() -> ExitCode {
    let Ok(mut line) = rustix::io::dup(std::io::stdin()).map(UnixStream::from) else {
        return ExitCode::from(FAILED);
    };
    let Ok(program) = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3) else {
        return ExitCode::from(FAILED);
    };
    match live(&mut line, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, error }) => {
            let message = format!("{error:#}");
            let report = Report::Failed { is_usage: code == USAGE, message };
            wire::write(&mut line, &report).ok(); // a server that is gone needs no reason
            ExitCode::from(code)
        }
    }
}

fn live(line: &mut UnixStream, program: OwnedFd) -> Result<(), Failure> {
    let Some(Order::Prepare(prepare)) = wire::read(line).code(FAILED)? else { return Ok(()) };
    let cell = Cell::prepare(&prepare, program)?;
    let ready = Report::Ready { run: cell.id.to_string(), remarks: cell.remarks.clone() };
    wire::write(line, &ready).context("tell that the box stands").code(FAILED)?;
    match wire::read(line).code(FAILED)? {
        Some(Order::Run(task)) => {
            let shares_layers =
                matches!(&cell.room, Room::Project { mode, .. } if *mode != Mode::ReadOnly);
            let (ending, remains) = cell.run(line, *task)?;
            // Nobody needs to wait until its mounts and cgroups are gone, but the next box that mounts
            // the same layers.
            let remains = (!shares_layers).then_some(remains);
            let told = wire::write(line, &Report::Ended(Box::new(ending)));
            drop(remains);
            told.context("tell the end").code(FAILED)
        }
        Some(Order::Prepare(_) | Order::Answer { .. } | Order::Cancel) | None => {
            cell.running.abandon();
            Ok(())
        }
    }
}

/// A box that waits for its task.
struct Cell {
    id: RunId,
    room: Room,
    /// Says to others that a run of this id is under way.
    _mark: CallMark,
    template: Template,
    sources: Vec<Source>,
    remarks: Vec<String>,
    outside: Option<Outside>,
    running: Running,
    env: Vec<(OsString, OsString)>,
    ledger: Ledger,
    workspace: Option<WorkspaceAt>,
}

impl Cell {
    fn prepare(prepare: &Prepare, program: OwnedFd) -> Result<Self, Failure> {
        let state = State::open()?;
        let project = match &prepare.room {
            Room::Project { path, .. } => Some(path.as_path()),
            Room::Scratch { .. } => None,
        };
        let (config, sources) = config::load_from(prepare.config.as_deref(), project)?;
        let (template, remarks) = template(&config, prepare)?;
        let outside = Outlet::of(&template, &config, &state)?.map(Outlet::open);
        let outside = outside.transpose().code(NO_BOX)?;
        let (id, random) = new_id()?;
        let mark = state.mark_call(id).code(NO_BOX)?;
        let workspace = workspace(&prepare.room).code(NO_BOX)?;
        let at = (!workspace.scratch).then(|| at(&workspace)).transpose().code(NO_BOX)?;
        let mut env = environment(&template, id, false);
        let net = outside.as_ref().map(|outside| outside.request(&mut env)).transpose()?;
        let request = Request {
            id,
            random,
            argv: vec!["belljar-worker".into()],
            program: Some(program),
            env,
            workspace: Some(workspace),
            home: None,
            files: Vec::new(),
            masks: Vec::new(),
            door: false,
            hidden: vec![state.home().to_owned()],
            net,
            terminal: None,
            now: now().as_secs(),
            template,
        };
        let (mut running, ledger) =
            belljar_box::start(&request, |_| record::open(&state)).code(NO_BOX)?;
        let prepared = ledger.and_then(|ledger| {
            outside.as_ref().map(|outside| outside.connect(&mut running)).transpose()?;
            // It does nothing before it is told to, and by then the run is on record.
            running.launch().context("start the worker")?;
            Ok(ledger)
        });
        let ledger = match prepared.code(NO_BOX) {
            Ok(ledger) => ledger,
            Err(failure) => {
                running.abandon();
                return Err(failure);
            }
        };
        let Request { template, env, .. } = request;
        Ok(Self {
            id,
            room: prepare.room.clone(),
            _mark: mark,
            template,
            sources,
            remarks,
            outside,
            running,
            env,
            ledger,
            workspace: at,
        })
    }

    fn run(self, line: &UnixStream, task: Task) -> Result<(Ending, Remains), Failure> {
        let Self {
            id, room, template, sources, remarks, outside, mut running, env, ledger, ..
        } = self;
        let asked = Instant::now();
        let record = RunRecord {
            id,
            name: None,
            created: id.millis(),
            workspace: self.workspace,
            mode: template.mode,
            argv: task.command.clone(),
            template: template.name.clone(),
            state: RunState::Running,
            review: Review::None,
            result: None,
        };
        let argv: Vec<OsString> = task.command.iter().map(Into::into).collect();
        let network = outside.as_ref().map(Outside::policy);
        let plan = Plan {
            record: &record,
            template: &template,
            network,
            sources: &sources,
            argv: &argv,
            env: &env,
            remarks: &remarks,
        };
        let Task { job, output, timeout_millis, .. } = task;
        // What can fail does so before there is anything to take back.
        let began = (|| {
            let tape = Tape::new(template.record, room.dir()).code(NO_BOX)?;
            let count = room
                .writes_to()
                .map(|dir| counter(&[dir.join("upper")]))
                .transpose()
                .code(NO_BOX)?;
            let ears = Ears::new(line).code(NO_BOX)?;
            let own = ears.share().code(NO_BOX)?;
            let watch = Watch::new(own, &job, output, tape);
            let null = null().code(NO_BOX)?;
            let Ears { line, input, feed, stop, halt } = ears;
            // It is there already when the run is on record.
            let (go, word) = mpsc::channel::<()>();
            std::thread::spawn(move || listen(&word, line, &job, feed, &halt));
            let journal = Journal::begin_in(ledger, &plan, running.layers())?;
            Ok((watch, null, count, (input, stop, go), journal))
        })();
        let (mut watch, null, mut count, (input, stop, go), journal) = match began {
            Ok(began) => began,
            Err(failure) => {
                running.abandon();
                return Err(failure);
            }
        };
        running.set_timeout(timeout_millis.map(Duration::from_millis));
        let setup = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        go.send(()).ok(); // it waits for nothing else
        let mut guard = |pipe, chunk: &[u8], _: &mut Vec<u8>| watch.hear(pipe, chunk);
        let supervision = Supervision {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            guard: Some(&mut guard),
            disk: room.writes_to().zip(count.as_mut().map(|count| count as &mut Count<'_>)),
            stop: Some(stop.as_fd()),
        };
        let (finished, account) = outlet::during(outside.as_ref(), journal.ledger(), id, || {
            running.supervise(supervision)
        });
        let (finished, remains) = finished.code(NO_BOX).inspect_err(|failure| {
            journal.failed(&failure.error).ok(); // the failure itself is what matters now
        })?;
        watch.finish();
        let mut ending = ending(&finished, &mut watch, account.unwrap_or_default());
        let outputs = watch.tape.finish(journal.ledger(), record::policy(&template, network));
        let mut notes = Vec::new();
        let outputs = outputs.unwrap_or_else(|error| {
            notes.push(format!("what the program wrote is not on record: {error:#}"));
            [None, None]
        });
        let result = result(&record, &template, finished, setup, None);
        if let Err(error) = journal.ended(&result, outputs, None) {
            notes.push(format!("the end of the run is not on record: {error}"));
        }
        ending.notes.extend(notes);
        Ok((ending, remains))
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
    let _signals = belljar_sys::signal::SignalFd::new(&[1, 2, 3, 15, 28]); // the main thread's to read
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
fn template(config: &Config, prepare: &Prepare) -> Result<(Template, Vec<String>), Failure> {
    let selection = prepare.apis.as_ref().map_or(Selection::All, Selection::Only);
    let made = config.code().template(config, selection).code(USAGE)?;
    let here = std::env::current_dir().context("find the current directory").code(FAILED)?;
    let mut template = made.template.anchored(&here, config::home().as_deref());
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
