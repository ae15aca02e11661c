//! The supervisor of one program in code mode. It prepares a box, waits for the task, records and runs the
//! task, and reports the result.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use belljar_box::{BoxEnd, LayerSync, OverlayLayers, Teardown, Workspace};
use belljar_ledger::Body;
use belljar_model::{ByteSize, Mode, Purpose, RunId};
use belljar_wire::{self as wire, Job};
use rustix::fs::{Mode as FileMode, OFlags};

use super::connection::{receive, send};
use super::protocol::{FromSupervisor, ToSupervisor};
use super::spec::{Ending, ProgramBox, ProgramWorkspace, Rules, Task};
use super::worker_reader::WorkerReader;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::output::OutputRecorder;
use crate::launch::{self, DiskLimit, Ended, LaunchSpec, Prepared, Streams, workspace_at};
use crate::logging;
use crate::network::broker::{NetworkSummary, NetworkUsage};
use crate::scope::Scoped;
use crate::store::CallMark;

/// Prepares a box for one program, reports to the client that the box is ready, and runs the client's task.
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
        .context("cannot report to the client that the box is ready")
        .kind(ErrorKind::Broken)?;
    match receive(connection)
        .context("cannot receive the task of the client")
        .kind(ErrorKind::Broken)?
    {
        Some(ToSupervisor::Start(task)) => {
            let is_exclusive = prepared.workspace.is_exclusive();
            let (ending, remains) = prepared.run(state, connection, *task)?;
            // The client need not wait until mounts and cgroups are removed, unless the next box mounts
            // the same layers.
            let remains = (!is_exclusive).then_some(remains);
            let reported = send(connection, &FromSupervisor::Ended(Box::new(ending)));
            drop(remains);
            reported
                .context("cannot report to the client how the program ended")
                .kind(ErrorKind::Broken)
        }
        Some(_) | None => {
            prepared.prepared.abandon();
            Ok(())
        }
    }
}

/// A box for one program that waits for its task.
struct PreparedProgram {
    workspace: ProgramWorkspace,
    prepared: Prepared,
    /// Tells other processes that the call with this id is running.
    _mark: CallMark,
    /// Records the output of the program.
    recorder: OutputRecorder,
}

impl PreparedProgram {
    /// Builds the box in which the worker program waits for a task.
    fn new(state: &Scoped, of: ProgramBox, worker: OwnedFd) -> Result<Self, EngineError> {
        let id = state.new_id()?;
        let mark = state.store().mark_call(id.0).kind(ErrorKind::CannotStart)?;
        let workspace = of.workspace.clone();
        let (spec, recorder) = launch_spec(state, of, id, Purpose::Call, worker)?;
        let prepared = launch::prepare(state, spec)?;
        Ok(Self { workspace, prepared, _mark: mark, recorder })
    }

    /// Runs a task in the prepared box until the program ends. Returns the report of the end, and a
    /// handle that removes the box when it is dropped.
    fn run(
        self,
        state: &Scoped,
        connection: &UnixStream,
        task: Task,
    ) -> Result<(Ending, Teardown), EngineError> {
        let Self { workspace, prepared, recorder, _mark } = self;
        let mut program = run(state, connection, (prepared, &workspace), recorder, task)?;
        let result = program.ended.result(None);
        let outputs = std::mem::take(&mut program.outputs);
        if let Err(error) = program.ended.recorder.ended(&result, outputs, None) {
            let note = format!("cannot record the end of the run in the ledger: {error}");
            program.ending.notes.push(note);
            program.ending.is_unrecorded = true;
        }
        Ok((program.ending, program.ended.teardown))
    }
}

/// Returns the description of the box in which the worker program waits for a task, and the recorder of
/// the program's output.
pub(super) fn launch_spec(
    state: &Scoped,
    of: ProgramBox,
    id: (RunId, u32),
    purpose: Purpose,
    worker: OwnedFd,
) -> Result<(LaunchSpec, OutputRecorder), EngineError> {
    let ProgramBox { rules, workspace: workspace_spec } = of;
    let Rules { template, sources, network, remarks } = rules;
    let network = network.map(|network| network.open(state)).transpose()?;
    let workspace = workspace(&workspace_spec).kind(ErrorKind::CannotStart)?;
    let at = (!workspace.scratch).then(|| workspace_at(&workspace)).transpose();
    let recorder =
        OutputRecorder::new(template.record, workspace_spec.dir()).kind(ErrorKind::CannotStart)?;
    let argv = vec!["belljar-worker".into()];
    let mut spec = LaunchSpec::new(id, purpose, template, argv);
    spec.at = at.kind(ErrorKind::CannotStart)?;
    (spec.sources, spec.remarks, spec.network) = (sources, remarks, network);
    (spec.worker, spec.workspace) = (Some(worker), Some(workspace));
    spec.disk = workspace_spec.writes_to().map(|dir| DiskLimit::of_layers(dir.to_owned()));
    Ok((spec, recorder))
}

/// A program that has ended and whose end is not recorded yet.
pub(super) struct EndedProgram {
    pub(super) ended: Ended,
    pub(super) ending: Ending,
    /// The recorded standard output and standard error.
    pub(super) outputs: [Option<Body>; 2],
    pub(super) usage: NetworkUsage,
    /// Whether the result was larger than the limit of the task.
    pub(super) is_too_large: bool,
    /// Whether the broker ended before the program.
    pub(super) is_broker_gone: bool,
}

/// Records a task, runs it in a prepared box and waits until its program ends.
pub(super) fn run(
    state: &Scoped,
    connection: &UnixStream,
    (prepared, workspace): (Prepared, &ProgramWorkspace),
    recorder: OutputRecorder,
    task: Task,
) -> Result<EndedProgram, EngineError> {
    let Task { job, output, timeout_millis, command } = task;
    // Steps that can fail come before the run is recorded.
    let opened = (|| {
        let pipes = Pipes::new(connection)?;
        let reader = WorkerReader::new(pipes.share()?, &job, output, recorder);
        anyhow::Ok((pipes, reader, null()?))
    })();
    let (pipes, mut reader, null) = match opened.kind(ErrorKind::CannotStart) {
        Ok(opened) => opened,
        Err(error) => {
            prepared.abandon();
            return Err(error);
        }
    };
    let Pipes { connection, input, feed, stop, halt } = pipes;
    // The thread starts now, so that it is ready when the run is recorded.
    let (recorded_sender, recorded) = mpsc::channel::<()>();
    logging::spawn(move || feed_worker(&recorded, &connection, &job, feed, &halt));
    let timeout = timeout_millis.map(Duration::from_millis);
    let limit = prepared.template().limits.disk;
    // The worker waits for its task, so it has not written anything yet.
    let (launched, excess) = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| disk_excess(workspace, limit));
        (prepared.record(command, timeout), measuring.join().unwrap_or(0))
    });
    let mut launched = launched?;
    launched.without_excess(excess);
    recorded_sender.send(()).ok(); // the thread waits for this message
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
    let summary = ended.network_summary.take().unwrap_or_default();
    let (usage, is_too_large) = (summary.usage, reader.is_result_too_large());
    let is_broker_gone = summary.broker_gone;
    let mut ending = ending(&ended.finished, &mut reader, summary);
    if excess > 0 {
        let excess = excess.div_ceil(1 << 20);
        ending.notes.push(format!(
            "before this program started, the files in /workspace exceeded the limit of {limit} by {excess} MiB; a program that writes more is stopped, so delete files first"
        ));
    }
    let outputs = reader.recorder.finish(ended.recorder.ledger(), ended.policy);
    let outputs = outputs.unwrap_or_else(|error| {
        let note = format!("cannot record the output of the program in the ledger: {error:#}");
        ending.notes.push(note);
        [None, None]
    });
    Ok(EndedProgram { ended, ending, outputs, usage, is_too_large, is_broker_gone })
}

/// The pipes of a running box: one for the worker's input, and one that kills the box.
struct Pipes {
    /// The connection to the client.
    connection: UnixStream,
    /// The end of the input pipe that the worker reads from.
    input: OwnedFd,
    /// The end of the input pipe that the supervisor writes to.
    feed: File,
    /// The end of the stop pipe that the supervising thread watches.
    stop: OwnedFd,
    /// The other end of the stop pipe. A byte that is written to it kills the box.
    halt: OwnedFd,
}

impl Pipes {
    fn new(connection: &UnixStream) -> anyhow::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((input, feed), (stop, halt)) = (pipe()?, pipe()?);
        let connection = connection.try_clone().context("cannot duplicate the connection")?;
        Ok(Self { connection, input, feed: feed.into(), stop, halt })
    }

    /// Duplicates the connection to the client and the pipe that kills the box, for the [`WorkerReader`].
    fn share(&self) -> anyhow::Result<(UnixStream, OwnedFd)> {
        Ok((self.connection.try_clone()?, self.halt.try_clone()?))
    }
}

/// Sends the job to the worker once the run is recorded, and then the results of its tool calls. Kills
/// the box when the client cancels the call or disconnects.
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
        return; // the worker has exited, which the main thread notices
    }
    // Only scripts call tools. Other programs get their whole input with the job.
    let mut feed = matches!(job, Job::Script(_)).then_some(feed);
    while let Ok(Some(message)) = receive(connection) {
        let ToSupervisor::ToolAnswer { id, value } = message else { break };
        tracing::debug!(call = id, failed = value.is_err(), "tool returned a result");
        let Some(writer) = &mut feed else { continue };
        if wire::write(writer, &wire::ToWorker::Answer { id, value }).is_err() {
            feed = None;
        }
    }
    // Closing this end is not enough: the reader of the worker has a copy of the writing end.
    rustix::io::write(halt, b"1").ok(); // the box may have ended
}

/// Returns the number of bytes by which the earlier programs of a session exceeded its disk limit.
fn disk_excess(workspace: &ProgramWorkspace, limit: ByteSize) -> u64 {
    let Some(dir) = workspace.writes_to() else { return 0 };
    // If the directory cannot be measured now, the watcher of the running box decides.
    launch::disk::excess(&dir.join("upper"), limit.as_u64()).unwrap_or(0)
}

/// Opens the workspace of a program.
fn workspace(spec: &ProgramWorkspace) -> anyhow::Result<Workspace> {
    match spec {
        ProgramWorkspace::Scratch { dir } => {
            let (place, path) = belljar_box::open(&dir.join("upper"))?;
            Ok(Workspace { place, path, layers: None, scratch: true })
        }
        ProgramWorkspace::Project { path, mode, dir } => {
            let (place, path) = belljar_box::open(path)?;
            let (dir, sync) = (dir.clone(), LayerSync::Skipped);
            let layers = OverlayLayers { dir, sync, image: None };
            let layers = (*mode != Mode::ReadOnly).then_some(layers);
            Ok(Workspace { place, path, layers, scratch: false })
        }
    }
}

fn null() -> anyhow::Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())
        .context("cannot open /dev/null")
}

/// Returns the report of how a program ended.
fn ending(finished: &BoxEnd, reader: &mut WorkerReader, summary: NetworkSummary) -> Ending {
    let (stdout_truncated, stderr_truncated) = reader.is_truncated();
    let NetworkSummary { requests, more_requests, denied, alarms, broker_gone, unrecorded, .. } =
        summary;
    let mut notes: Vec<String> = alarms.into_iter().map(|line| format!("alarm: {line}")).collect();
    if broker_gone {
        let note = "the broker exited before the box, so the box had no network after that";
        notes.push(note.to_owned());
    }
    notes.extend(
        unrecorded.map(|error| format!("cannot record a network request in the ledger: {error}")),
    );
    notes.extend(
        reader
            .frame_error
            .take()
            .map(|error| format!("the worker sent an invalid message: {error}")),
    );
    let exec_error = finished.exec_error.as_ref();
    notes.extend(exec_error.map(|error| format!("cannot start the worker: {error}")));
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
        is_unrecorded: false,
    }
}
