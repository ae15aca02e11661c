//! The supervisor of one program: prepare a box ahead of the call, wait for the task, record it, run it and
//! report the result.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use belljar_box::{BoxEnd, Teardown, Workspace};
use belljar_model::{Mode, Purpose};
use belljar_wire::{self as wire, Job};
use rustix::fs::{Mode as FileMode, OFlags};

use super::connection::{receive, send};
use super::protocol::{FromSupervisor, ToSupervisor};
use super::spec::{Ending, ProgramBox, ProgramWorkspace, Rules, Task};
use super::worker_reader::WorkerReader;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::output::OutputRecorder;
use crate::launch::{self, DiskLimit, LaunchSpec, Prepared, Streams, workspace_at};
use crate::logging;
use crate::network::broker::NetworkSummary;
use crate::scope::Scoped;
use crate::store::CallMark;

/// Prepares a box, reports that to the client, and runs the task that the client sends.
pub(super) fn supervise(
    state: &Scoped,
    connection: &UnixStream,
    of: ProgramBox,
    worker: OwnedFd,
) -> Result<(), EngineError> {
    let prepared = PreparedProgram::new(state, of, worker)?;
    let _entered = prepared.prepared.span().entered();
    let ready = FromSupervisor::Ready {
        run: prepared.prepared.id(),
        remarks: prepared.prepared.remarks().to_vec(),
    };
    send(connection, &ready)
        .context("cannot report that the box is built")
        .kind(ErrorKind::Broken)?;
    match receive(connection).context("cannot read the task").kind(ErrorKind::Broken)? {
        Some(ToSupervisor::Start(task)) => {
            let is_exclusive = prepared.workspace.is_exclusive();
            let (ending, remains) = prepared.run(state, connection, *task)?;
            // The client need not wait until mounts and cgroups are gone, unless the next box mounts the
            // same layers.
            let remains = (!is_exclusive).then_some(remains);
            let reported = send(connection, &FromSupervisor::Ended(Box::new(ending)));
            drop(remains);
            reported.context("cannot report the end of the program").kind(ErrorKind::Broken)
        }
        Some(_) | None => {
            prepared.prepared.abandon();
            Ok(())
        }
    }
}

/// A box that waits for its task.
struct PreparedProgram {
    workspace: ProgramWorkspace,
    prepared: Prepared,
    /// Shows other processes that a call of this id is under way.
    _mark: CallMark,
    /// Records the output.
    tape: OutputRecorder,
}

impl PreparedProgram {
    fn new(state: &Scoped, of: ProgramBox, worker: OwnedFd) -> Result<Self, EngineError> {
        let ProgramBox { rules, workspace: place } = of;
        let Rules { template, sources, network, remarks } = rules;
        let network = network.map(|network| network.open(state)).transpose()?;
        let id = state.new_id()?;
        let mark = state.store().mark_call(id.0).kind(ErrorKind::CannotStart)?;
        let workspace = workspace(&place).kind(ErrorKind::CannotStart)?;
        let at = (!workspace.scratch).then(|| workspace_at(&workspace)).transpose();
        let tape =
            OutputRecorder::new(template.record, place.dir()).kind(ErrorKind::CannotStart)?;
        let argv = vec!["belljar-worker".into()];
        let mut spec = LaunchSpec::new(id, Purpose::Call, template, argv);
        spec.at = at.kind(ErrorKind::CannotStart)?;
        (spec.sources, spec.remarks, spec.network) = (sources, remarks, network);
        (spec.worker, spec.workspace) = (Some(worker), Some(workspace));
        spec.disk = place.writes_to().map(|dir| DiskLimit::of_layers(dir.to_owned()));
        let prepared = launch::prepare(state, spec)?;
        Ok(Self { workspace: place, prepared, _mark: mark, tape })
    }

    fn run(
        self,
        state: &Scoped,
        connection: &UnixStream,
        task: Task,
    ) -> Result<(Ending, Teardown), EngineError> {
        let Self { prepared, tape, _mark, .. } = self;
        let Task { job, output, timeout_millis, command } = task;
        // Steps that can fail come before the run is recorded.
        let began = (|| {
            let pipes = Pipes::new(connection)?;
            let reader = WorkerReader::new(pipes.share()?, &job, output, tape);
            anyhow::Ok((pipes, reader, null()?))
        })();
        let (pipes, mut reader, null) = match began.kind(ErrorKind::CannotStart) {
            Ok(began) => began,
            Err(failure) => {
                prepared.abandon();
                return Err(failure);
            }
        };
        let Pipes { connection, input, feed, stop, halt } = pipes;
        // The thread starts now, so that it is ready when the run is recorded.
        let (go, recorded) = mpsc::channel::<()>();
        logging::spawn(move || feed_worker(&recorded, &connection, &job, feed, &halt));
        let launched = prepared.record(command, timeout_millis.map(Duration::from_millis))?;
        go.send(()).ok(); // the thread waits for this
        let mut filter = |pipe, chunk: &[u8], _: &mut Vec<u8>| reader.read(pipe, chunk);
        let streams = Streams {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            filter: &mut filter,
            stop: Some(stop.as_fd()),
        };
        let mut ended = launched.supervise(state, streams, || ())?;
        reader.finish();
        let account = ended.network_summary.take().unwrap_or_default();
        let mut ending = ending(&ended.finished, &mut reader, account);
        let outputs = reader.tape.finish(ended.recorder.ledger(), ended.policy);
        let outputs = outputs.unwrap_or_else(|error| {
            ending.notes.push(format!("the output of the program is not on record: {error:#}"));
            [None, None]
        });
        let result = ended.result(None);
        if let Err(error) = ended.recorder.ended(&result, outputs, None) {
            ending.notes.push(format!("the end of the run is not on record: {error}"));
        }
        Ok((ending, ended.teardown))
    }
}

/// The pipes that feed and stop a running box.
struct Pipes {
    connection: UnixStream,
    input: OwnedFd,
    feed: File,
    stop: OwnedFd,
    halt: OwnedFd,
}

impl Pipes {
    fn new(connection: &UnixStream) -> anyhow::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, feed), (stop, halt)) = (pipe()?, pipe()?);
        let connection = connection.try_clone().context("cannot share the connection")?;
        Ok(Self { connection, input, feed: feed.into(), stop, halt })
    }

    /// For the reader of the worker: the connection to the client, and the pipe that ends the box.
    fn share(&self) -> anyhow::Result<(UnixStream, OwnedFd)> {
        Ok((self.connection.try_clone()?, self.halt.try_clone()?))
    }
}

/// Sends the job to the worker once the run is recorded, then the results of its tool calls. Ends the box
/// when the client cancels the call or disconnects.
fn feed_worker(
    recorded: &mpsc::Receiver<()>,
    connection: &UnixStream,
    job: &Job,
    mut feed: File,
    halt: &OwnedFd,
) {
    if recorded.recv().is_err() {
        return; // the run could not be recorded
    }
    if wire::write(&mut feed, job).is_err() {
        return; // the worker is gone, which the main thread sees
    }
    // A program that is no script has read all of its input from its job.
    let mut feed = matches!(job, Job::Script(_)).then_some(feed);
    while let Ok(Some(message)) = receive(connection) {
        let ToSupervisor::ToolAnswer { id, value } = message else { break };
        tracing::debug!(call = id, failed = value.is_err(), "tool answered");
        let Some(to) = &mut feed else { continue };
        if wire::write(to, &wire::ToWorker::Answer { id, value }).is_err() {
            feed = None;
        }
    }
    // A byte, not the end of the pipe: the reader of the worker has a copy of the writing end.
    rustix::io::write(halt, b"1").ok(); // the box may be gone
}

fn workspace(place: &ProgramWorkspace) -> anyhow::Result<Workspace> {
    match place {
        ProgramWorkspace::Scratch { dir } => {
            let (place, path) = belljar_box::open(&dir.join("upper"))?;
            Ok(Workspace { place, path, layers: None, scratch: true })
        }
        ProgramWorkspace::Project { path, mode, dir } => {
            let (place, path) = belljar_box::open(path)?;
            let layers = (*mode != Mode::ReadOnly).then(|| dir.clone());
            Ok(Workspace { place, path, layers, scratch: false })
        }
    }
}

fn null() -> anyhow::Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())
        .context("cannot open /dev/null")
}

/// The report of a program's end.
fn ending(finished: &BoxEnd, reader: &mut WorkerReader, account: NetworkSummary) -> Ending {
    let (stdout_truncated, stderr_truncated) = reader.cut();
    let NetworkSummary { requests, more_requests, denied, alarms, broker_gone, unrecorded, .. } =
        account;
    let mut notes: Vec<String> = alarms.into_iter().map(|line| format!("alarm: {line}")).collect();
    if broker_gone {
        notes.push("the broker ended before the box did: from then on it had no network".into());
    }
    notes.extend(unrecorded.map(|error| format!("a request could not be recorded: {error}")));
    notes.extend(
        reader.broken.take().map(|error| format!("the worker sent an invalid message: {error}")),
    );
    notes.extend(finished.exec_error.as_ref().map(|error| format!("the worker: {error}")));
    Ending {
        reason: finished.reason,
        exit: finished.exit,
        signal: finished.signal,
        wall_micros: u64::try_from(finished.wall.as_micros()).unwrap_or(u64::MAX),
        cpu_micros: finished.cpu.user.saturating_add(finished.cpu.system),
        peak_memory: finished.peak_memory,
        done: reader.done.take(),
        stdout_truncated,
        stderr_truncated,
        requests,
        more_requests,
        denied: denied.into_iter().collect(),
        notes,
    }
}
