//! Starts boxes. No other module calls [`belljar_box::start`].
//!
//! ```text
//! LaunchSpec ──launch──▶ Launched ──supervise──▶ Ended ──record──▶ RunResult
//!      └─────prepare──▶ Prepared ──record──▶ Launched
//! ```
//! [`launch`] builds the box and concurrently records the run; [`Launched::supervise`] starts the program.
//! [`prepare`] builds a box before its task is known: the worker waits, and the run is recorded when the
//! task arrives.

pub(crate) mod descriptors;
pub mod disk;
mod ended;
mod environment;
pub mod output;

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_box::{
    BuiltBox, DataMount, DiskLimiter, ExecChannel, HomeMount, LayerSync, Mask, OverlayLayers,
    Privilege, Request, Supervision, Workspace,
};
use belljar_model::{
    Caller, Clock, LayerState, Purpose, Review, RunId, RunName, RunRecord, RunResult, RunState,
    Template, WorkspaceAt,
};
use tracing::field::Empty;
use tracing::{Span, error_span};

use self::output::OutputRecorder;
use crate::approvals;
use crate::config::Source;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::{self, BrokerHandle, NetworkConfig};
use crate::notice::Notice;
use crate::record::{self, LedgerHandle, RunIntent, RunRecorder};
use crate::scope::Scoped;
use crate::store::Run;

pub use belljar_box::Stream;
pub use disk::DiskLimit;
pub use ended::Ended;
pub use environment::Environment;

/// Everything that is needed to start one box.
#[derive(Debug)]
pub struct LaunchSpec {
    /// The id of the run, and the random number that was generated with it.
    pub id: (RunId, u32),
    pub purpose: Purpose,
    pub name: Option<RunName>,
    pub template: Template,
    /// The configuration files that define the template.
    pub sources: Vec<Source>,
    pub argv: Vec<OsString>,
    /// The command line for the records, if it differs from `argv`.
    pub recorded_argv: Option<Vec<String>>,
    /// The descriptor of the worker program, which runs instead of a program in the box.
    pub worker: Option<OwnedFd>,
    pub workspace: Option<Workspace>,
    /// The path and identity of the workspace, for the records.
    pub at: Option<WorkspaceAt>,
    /// The persistent home directory of a named box.
    pub home: Option<HomeMount>,
    /// Read-only files in the box, with their contents. Placeholders are inserted later.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// A directory of the state directory that the box can read.
    pub data: Option<DataMount>,
    pub masks: Vec<Mask>,
    /// Whether more programs can be started in the box later.
    pub exec_channel: bool,
    pub terminal: Option<Terminal>,
    pub environment: Environment,
    pub network: Option<NetworkConfig>,
    /// Sentences about restrictions that the operator lifted, for the ledger.
    pub remarks: Vec<String>,
    /// The directory for temporary copies of the output; `None` if the output is not recorded.
    pub output_dir: Option<PathBuf>,
    pub disk: Option<DiskLimit>,
    /// When the start of the box began.
    pub start: Instant,
}

/// The terminal of a program: its size and the value of `TERM`.
#[derive(Clone, Debug)]
pub struct Terminal {
    pub rows: u16,
    pub columns: u16,
    pub term: OsString,
}

impl LaunchSpec {
    /// Returns a spec for a box without workspace, network, terminal or other options.
    pub fn new(
        id: (RunId, u32),
        purpose: Purpose,
        template: Template,
        argv: Vec<OsString>,
    ) -> Self {
        Self {
            id,
            purpose,
            name: None,
            template,
            sources: Vec::new(),
            argv,
            recorded_argv: None,
            worker: None,
            workspace: None,
            at: None,
            home: None,
            files: Vec::new(),
            data: None,
            masks: Vec::new(),
            exec_channel: false,
            terminal: None,
            environment: Environment::default(),
            network: None,
            remarks: Vec::new(),
            output_dir: None,
            disk: None,
            start: Instant::now(),
        }
    }

    /// Returns a tracing span with the id and purpose of the run.
    fn span(&self) -> Span {
        let (run, purpose) = (self.id.0, self.purpose);
        let span = error_span!("run", %run, %purpose, "box" = Empty);
        if let Some(name) = &self.name {
            span.record("box", name.as_str());
        }
        span
    }

    /// Returns the record of the run before its program starts.
    pub fn record(&self) -> RunRecord {
        let argv = self.argv.iter().map(|arg| arg.to_string_lossy().into_owned());
        RunRecord {
            id: self.id.0,
            name: self.name.clone(),
            created: self.id.0.millis(),
            workspace: self.at.clone(),
            mode: self.template.mode,
            argv: self.recorded_argv.clone().unwrap_or_else(|| argv.collect()),
            template: self.template.name.clone(),
            state: RunState::Running,
            review: Review::None,
            result: None,
        }
    }
}

/// The data of a box that is needed after the box was built.
struct Built {
    /// The tracing span with the ids of the run.
    span: Span,
    record: RunRecord,
    purpose: Purpose,
    caller: Caller,
    template: Template,
    sources: Vec<Source>,
    remarks: Vec<String>,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    broker: Option<BrokerHandle>,
    output_recorder: OutputRecorder,
    disk: Option<(PathBuf, DiskLimiter)>,
    start: Instant,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Built").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Built {
    /// Prepares everything that is needed before a box is started. A failure leaves nothing behind.
    fn new(state: &Scoped, spec: LaunchSpec) -> Result<(Self, Request), EngineError> {
        descriptors::check()?;
        let (record, start) = (spec.record(), spec.start);
        let span = spec.span();
        let _entered = span.clone().entered();
        tracing::debug!(
            template = record.template,
            mode = %record.mode,
            net = %spec.template.net,
            "box is being started"
        );
        let LaunchSpec { id: (id, random), purpose, mut template, sources, argv, remarks, .. } =
            spec;
        // The template was resolved within the limits of the tenant, which the operator may have lowered.
        state.clamp(&mut template.limits)?;
        let broker = spec
            .network
            .map(|network_config| network_config.open(id))
            .transpose()
            .kind(ErrorKind::CannotStart)?;
        let mut env = spec.environment.resolve(state.user(), &template, id);
        if let Some(Terminal { term, .. }) = &spec.terminal
            && !env.iter().any(|(name, _)| name == "TERM")
        {
            env.push(("TERM".into(), term.clone()));
        }
        let output_recorder = match &spec.output_dir {
            Some(dir) => OutputRecorder::new(template.record, dir).kind(ErrorKind::CannotStart)?,
            None => OutputRecorder::none(),
        };
        let disk = spec.disk.map(DiskLimit::limiter).transpose().kind(ErrorKind::CannotStart)?;
        let mut files = spec.files;
        let net = match &broker {
            Some(broker) => Some(broker.request_with(state, &mut env, &mut files)?),
            None => None,
        };
        let request = Request {
            id,
            random,
            argv: argv.clone(),
            program: spec.worker,
            env: env.clone(),
            workspace: spec.workspace,
            home: spec.home,
            files,
            data: spec.data,
            masks: spec.masks,
            exec_channel: spec.exec_channel,
            hidden: vec![state.root().to_owned()],
            net,
            terminal: spec.terminal.map(|terminal| (terminal.rows, terminal.columns)),
            now: state.clock().since_epoch().as_secs(),
            template: template.clone(),
        };
        let built = Self {
            span,
            record,
            purpose,
            caller: state.caller().clone(),
            template,
            sources,
            remarks,
            argv,
            env,
            broker,
            output_recorder,
            disk,
            start,
        };
        Ok((built, request))
    }

    /// Returns the data about the run that is recorded before its program starts.
    fn intent(&self) -> RunIntent<'_> {
        RunIntent {
            record: &self.record,
            purpose: self.purpose,
            caller: &self.caller,
            template: &self.template,
            network: self.broker.as_ref().map(BrokerHandle::policy),
            sources: &self.sources,
            argv: &self.argv,
            env: &self.env,
            remarks: &self.remarks,
        }
    }
}

/// A box that is built and recorded. Its program is not started yet.
#[derive(Debug)]
pub struct Launched {
    built: Built,
    built_box: BuiltBox,
    recorder: RunRecorder,
    /// The duration of the start, in microseconds.
    setup: u64,
}

/// A box whose worker waits for a task. The run is not recorded yet.
#[derive(Debug)]
pub struct Prepared {
    built: Built,
    built_box: BuiltBox,
    ledger: LedgerHandle,
}

/// Builds a box and concurrently records its run. The program is not started yet.
pub fn launch(state: &Scoped, spec: LaunchSpec) -> Result<Launched, EngineError> {
    launch_after(state, spec, || Ok(()))
}

/// Builds a box as [`launch`] does, and calls `ready` before the box is started.
///
/// All steps that fail without leaving a record are done before `ready` is called.
pub fn launch_after(
    state: &Scoped,
    spec: LaunchSpec,
    ready: impl FnOnce() -> Result<(), EngineError>,
) -> Result<Launched, EngineError> {
    let (built, request) = Built::new(state, spec)?;
    ready()?;
    let _entered = built.span.clone().entered();
    let intent = built.intent();
    let record = |layers: &[LayerState]| RunRecorder::begin(state, &intent, layers);
    let mut recorded = None;
    let started = belljar_box::start(&request, |layers| recorded = Some(record(layers)));
    let (mut built_box, recorder) = match (started.kind(ErrorKind::CannotStart), recorded) {
        (Ok((built_box, ())), Some(Ok(recorder))) => (built_box, recorder),
        (Ok((built_box, ())), unrecorded) => {
            built_box.abandon();
            let missing = || {
                let text = "cannot start the run: it was not recorded in the ledger";
                EngineError::message(ErrorKind::CannotStart, text)
            };
            tracing::warn!("run could not be recorded and is not started");
            return Err(unrecorded.and_then(Result::err).unwrap_or_else(missing));
        }
        (Err(failure), recorded) => {
            tracing::warn!(kind = ?failure.kind(), "box could not be built");
            // A failed start is recorded as well.
            if let Ok(recorder) = recorded.unwrap_or_else(|| record(&[])) {
                recorder.failed(failure.inner()).ok(); // the caller gets the first error
            }
            return Err(failure);
        }
    };
    let connected = built.broker.as_ref().map(|broker| broker.connect(&mut built_box)).transpose();
    let connected = connected.context("cannot connect the box to its broker");
    if let Err(failure) = connected.kind(ErrorKind::CannotStart) {
        built_box.abandon();
        recorder.failed(failure.inner()).ok(); // the caller gets the first error
        return Err(failure);
    }
    let setup = elapsed_micros(built.start);
    tracing::info!(setup_micros = setup, "box is built and its run is recorded");
    Ok(Launched { built, built_box, recorder, setup })
}

/// Builds a box whose worker waits for a task. The run is recorded when the task arrives.
pub fn prepare(state: &Scoped, spec: LaunchSpec) -> Result<Prepared, EngineError> {
    let (built, request) = Built::new(state, spec)?;
    let _entered = built.span.clone().entered();
    let (mut built_box, ledger) =
        belljar_box::start(&request, |_| record::open(state)).kind(ErrorKind::CannotStart)?;
    let ready = ledger.and_then(|ledger| {
        built.broker.as_ref().map(|broker| broker.connect(&mut built_box)).transpose()?;
        // The worker does nothing before it gets its task, and the run is recorded before that.
        built_box.launch().context("cannot start the worker")?;
        Ok(ledger)
    });
    match ready.kind(ErrorKind::CannotStart) {
        Ok(ledger) => {
            tracing::info!("box waits for a task");
            Ok(Prepared { built, built_box, ledger })
        }
        Err(failure) => {
            tracing::warn!(kind = ?failure.kind(), "box could not be prepared");
            built_box.abandon();
            Err(failure)
        }
    }
}

impl Prepared {
    pub const fn id(&self) -> RunId {
        self.built.record.id
    }

    /// Returns the tracing span with the ids of the run.
    pub fn span(&self) -> Span {
        self.built.span.clone()
    }

    pub fn remarks(&self) -> &[String] {
        &self.built.remarks
    }

    pub const fn template(&self) -> &Template {
        &self.built.template
    }

    /// Removes the unused box. The run is not recorded.
    pub fn abandon(self) {
        let _entered = self.built.span.clone().entered();
        tracing::debug!("prepared box is removed unused");
        self.built_box.abandon();
    }

    /// Records the run in the ledger when its task is known. `command` is the recorded command line.
    pub fn record(
        self,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<Launched, EngineError> {
        let Self { mut built, mut built_box, ledger } = self;
        let _entered = built.span.clone().entered();
        built.start = Instant::now();
        built.argv = command.iter().map(Into::into).collect();
        built.record.argv = command;
        let recorder = match RunRecorder::begin_in(ledger, &built.intent(), built_box.layers()) {
            Ok(recorder) => recorder,
            Err(failure) => {
                built_box.abandon();
                return Err(failure);
            }
        };
        built_box.set_timeout(timeout);
        let setup = elapsed_micros(built.start);
        tracing::info!("task is recorded");
        Ok(Launched { built, built_box, recorder, setup })
    }
}

/// A filter for program output. Its arguments are the stream, a chunk, and a buffer for the bytes to pass on.
pub type Filter<'a> = dyn FnMut(Stream, &[u8], &mut Vec<u8>) + 'a;

/// The descriptors that the standard streams of a program are connected to.
pub struct Streams<'a> {
    pub input: BorrowedFd<'a>,
    pub output: BorrowedFd<'a>,
    pub error: BorrowedFd<'a>,
    pub filter: &'a mut Filter<'a>,
    /// A descriptor that stops the box as soon as it is readable.
    pub stop: Option<BorrowedFd<'a>>,
}

impl std::fmt::Debug for Streams<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Launched {
    pub const fn id(&self) -> RunId {
        self.built.record.id
    }

    pub const fn template(&self) -> &Template {
        &self.built.template
    }

    pub const fn broker(&self) -> Option<&BrokerHandle> {
        self.built.broker.as_ref()
    }

    /// Returns the tracing span with the ids of the run.
    pub fn span(&self) -> Span {
        self.built.span.clone()
    }

    /// Does not count the `excess` of files that were above the disk limit before the program starts.
    pub fn without_excess(&mut self, excess: u64) {
        let disk = self.built.disk.take();
        self.built.disk = disk.map(|(dir, limiter)| (dir, disk::without_excess(limiter, excess)));
    }

    /// Returns the environment variables of the program.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.built.env
    }

    /// Takes the channel for starting more programs in the box, if the box has one.
    pub fn take_exec_channel(&mut self) -> Option<ExecChannel> {
        self.built_box.take_exec_channel()
    }

    /// Returns the terminal of the program, for changing its size.
    pub fn terminal(&self) -> Option<OwnedFd> {
        self.built_box.terminal().ok().flatten()
    }

    /// Removes the box and records the error that prevented the start of its program.
    pub fn abandon(self, error: &EngineError) {
        let _entered = self.built.span.clone().entered();
        tracing::warn!(kind = ?error.kind(), "program is not started");
        self.built_box.abandon();
        self.recorder.failed(error.inner()).ok(); // the caller has the first error
    }

    /// Returns the clock of file timestamps. It is later than all changes of files before the launch.
    pub fn file_clock(&self) -> Clock {
        belljar_workspace::file_clock_after(self.built.start)
    }

    /// Starts the program and waits until it ends. Calls `ended` as soon as the program has ended.
    pub fn supervise(
        self,
        state: &Scoped,
        streams: Streams<'_>,
        ended: impl FnOnce(),
    ) -> Result<Ended, EngineError> {
        let Self { built, built_box, recorder, setup } = self;
        let Built { span, record, template, broker, mut output_recorder, disk, .. } = built;
        let _entered = span.clone().entered();
        tracing::info!("program starts");
        let Streams { input, output, error, filter, stop } = streams;
        let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| {
            output_recorder.write(stream, chunk);
            filter(stream, chunk, kept);
        };
        let supervision =
            Supervision { input, output, error, filter: Some(&mut filter), disk, stop };
        let (finished, network_summary) =
            network::record_during(broker.as_ref(), recorder.ledger(), record.id, || {
                built_box.supervise(supervision)
            });
        ended();
        let (finished, teardown) =
            finished.kind(ErrorKind::CannotStart).inspect_err(|failure| {
                recorder.failed(failure.inner()).ok(); // the caller gets the first error
            })?;
        tracing::info!(
            reason = finished.reason.name(),
            exit = finished.exit,
            signal = finished.signal,
            wall_micros = u64::try_from(finished.wall.as_micros()).unwrap_or(u64::MAX),
            "program ended"
        );
        let policy = record::policy(&template, broker.as_ref().map(BrokerHandle::policy));
        let outputs = output_recorder.finish(recorder.ledger(), policy).unwrap_or_else(|error| {
            state.notice(&Notice::NotRecorded(format!(
                "cannot record the output of the program; its exit status will be recorded: {error:#}"
            )));
            [None, None]
        });
        Ok(Ended {
            span,
            finished,
            teardown,
            network_summary,
            recorder,
            policy,
            outputs,
            record,
            template,
            setup,
        })
    }
}

/// Returns the time since an instant, in microseconds.
fn elapsed_micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Creates the directories of the overlay, with the owner and mode of the workspace.
pub fn prepare_layers(run: &Run, workspace: &mut Workspace, sync: LayerSync) -> anyhow::Result<()> {
    let stat =
        rustix::fs::fstat(&workspace.place).context("cannot read the identity of the workspace")?;
    let as_root = Privilege::of_this_process() == Privilege::Root;
    run.make_layers(as_root.then_some((stat.st_uid, stat.st_gid)))?;
    run.copy_mode(&workspace.path)?;
    workspace.layers = Some(OverlayLayers { dir: run.dir.clone(), sync, image: None });
    Ok(())
}

/// Returns the path and identity of a workspace, and the current time of its file system.
pub fn workspace_at(workspace: &Workspace) -> anyhow::Result<WorkspaceAt> {
    let stat =
        rustix::fs::fstat(&workspace.place).context("cannot read the identity of the workspace")?;
    let clock = belljar_workspace::file_clock();
    Ok(WorkspaceAt { path: workspace.path.clone(), dev: stat.st_dev, ino: stat.st_ino, clock })
}

/// Saves the final record of a run and removes empty layers and old runs.
pub fn finish_run(run: &mut Run, result: Option<RunResult>, state: &Scoped) {
    run.record.state = RunState::Finished;
    run.record.result = result;
    if !run.record.review.is_pending() {
        run.remove_layers();
    }
    if let Err(error) = run.save() {
        state.failed(&error);
    }
    // Prune in about one of 64 runs, so that the list of runs stays bounded.
    if run.id().millis().is_multiple_of(64) {
        state.store().prune(state.clock().now()).ok(); // a later run retries
        approvals::remove_old(state, approvals::RETENTION, false).ok(); // a later run retries
    }
}
