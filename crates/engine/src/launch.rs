//! Starting boxes: the only caller of [`belljar_box::start`].
//!
//! ```text
//! LaunchSpec ──launch──▶ Launched ──supervise──▶ Ended ──record──▶ RunResult
//!      └─────prepare──▶ Prepared ──record──▶ Launched
//! ```
//! [`launch`] builds the box and records the run while the box is built; the program starts with
//! [`Launched::supervise`]. [`prepare`] builds a box ahead of its task: its worker waits, and the run is
//! recorded when the task arrives.

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
    BuiltBox, DiskCounter, ExecChannel, HomeMount, Mask, Privilege, Request, Supervision, Workspace,
};
use belljar_model::{
    Caller, LayerState, Purpose, Review, RunId, RunName, RunRecord, RunResult, RunState, Template,
    WorkspaceAt,
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
pub use disk::counter;
pub use ended::Ended;
use environment::environment;

/// Everything that one box is started with.
#[derive(Debug)]
pub struct LaunchSpec {
    /// The id of the run, and a random number that goes with it.
    pub id: (RunId, u32),
    pub purpose: Purpose,
    pub name: Option<RunName>,
    pub template: Template,
    /// The files that the template comes from.
    pub sources: Vec<Source>,
    pub argv: Vec<OsString>,
    /// The command as records show it, where that is not `argv`.
    pub shown: Option<Vec<String>>,
    /// The worker, which runs instead of a program of the box.
    pub worker: Option<OwnedFd>,
    pub workspace: Option<Workspace>,
    /// The workspace as records name it.
    pub at: Option<WorkspaceAt>,
    /// A home directory that outlives the run.
    pub home: Option<HomeMount>,
    /// Read-only files inside, which placeholders still go into.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub masks: Vec<Mask>,
    /// Whether more programs can be started in the box later.
    pub exec_channel: bool,
    pub terminal: Option<Terminal>,
    pub environment: Environment,
    pub network: Option<NetworkConfig>,
    /// Restrictions that the operator lifted, for the record.
    pub remarks: Vec<String>,
    /// Where output is kept until it is recorded. `None`: it is not recorded.
    pub output_dir: Option<PathBuf>,
    pub disk: Option<DiskLimit>,
    /// When the start began.
    pub began: Instant,
}

/// The terminal of a program: its size, and the value of `TERM`.
#[derive(Clone, Debug)]
pub struct Terminal {
    pub rows: u16,
    pub columns: u16,
    pub term: OsString,
}

/// The variables of a program.
#[derive(Debug, Default)]
pub enum Environment {
    /// Those of every box, and those that the template names.
    #[default]
    OfTemplate,
    /// Exactly these.
    Exactly(Vec<(OsString, OsString)>),
}

/// Directories whose size the disk limit counts.
#[derive(Clone, Debug)]
pub struct DiskLimit {
    pub dir: PathBuf,
    pub counted: Vec<PathBuf>,
}

impl DiskLimit {
    /// The upper layer of an overlay.
    pub fn of_layers(dir: PathBuf) -> Self {
        Self { counted: vec![dir.join("upper")], dir }
    }
}

impl LaunchSpec {
    /// A box with nothing beside its template.
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
            shown: None,
            worker: None,
            workspace: None,
            at: None,
            home: None,
            files: Vec::new(),
            masks: Vec::new(),
            exec_channel: false,
            terminal: None,
            environment: Environment::default(),
            network: None,
            remarks: Vec::new(),
            output_dir: None,
            disk: None,
            began: Instant::now(),
        }
    }

    fn span(&self) -> Span {
        let (run, purpose) = (self.id.0, self.purpose);
        let span = error_span!("run", %run, %purpose, "box" = Empty);
        if let Some(name) = &self.name {
            span.record("box", name.as_str());
        }
        span
    }

    /// What is known about the run before its program starts.
    pub fn record(&self) -> RunRecord {
        let words = self.argv.iter().map(|word| word.to_string_lossy().into_owned());
        RunRecord {
            id: self.id.0,
            name: self.name.clone(),
            created: self.id.0.millis(),
            workspace: self.at.clone(),
            mode: self.template.mode,
            argv: self.shown.clone().unwrap_or_else(|| words.collect()),
            template: self.template.name.clone(),
            state: RunState::Running,
            review: Review::None,
            result: None,
        }
    }
}

/// What of a box is needed after it was built.
struct Built {
    /// Has the ids of the run, for all events about it.
    span: Span,
    record: RunRecord,
    purpose: Purpose,
    caller: Caller,
    template: Template,
    sources: Vec<Source>,
    remarks: Vec<String>,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    outside: Option<BrokerHandle>,
    tape: OutputRecorder,
    disk: Option<(PathBuf, Box<DiskCounter<'static>>)>,
    began: Instant,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Built").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Built {
    /// Everything up to the start, which can fail without leaving anything behind.
    fn new(state: &Scoped, spec: LaunchSpec) -> Result<(Self, Request), EngineError> {
        let (record, began) = (spec.record(), spec.began);
        let span = spec.span();
        let _entered = span.clone().entered();
        tracing::debug!(
            template = record.template,
            mode = %record.mode,
            net = %spec.template.net,
            "launch begins"
        );
        let LaunchSpec { id: (id, random), purpose, template, sources, argv, remarks, .. } = spec;
        let outside = spec
            .network
            .map(|network_config| network_config.open(id))
            .transpose()
            .kind(ErrorKind::CannotStart)?;
        let mut env = match spec.environment {
            Environment::OfTemplate => environment(state.host(), &template, id),
            Environment::Exactly(env) => env,
        };
        if let Some(Terminal { term, .. }) = &spec.terminal
            && !env.iter().any(|(name, _)| name == "TERM")
        {
            env.push(("TERM".into(), term.clone()));
        }
        let tape = match &spec.output_dir {
            Some(dir) => OutputRecorder::new(template.record, dir).kind(ErrorKind::CannotStart)?,
            None => OutputRecorder::none(),
        };
        let disk = match spec.disk {
            Some(DiskLimit { dir, counted }) => {
                let count: Box<DiskCounter<'static>> =
                    Box::new(counter(&counted).kind(ErrorKind::CannotStart)?);
                Some((dir, count))
            }
            None => None,
        };
        let mut files = spec.files;
        let net = match &outside {
            Some(outside) => Some(outside.request_with(state, &mut env, &mut files)?),
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
            masks: spec.masks,
            exec_channel: spec.exec_channel,
            hidden: vec![state.home().to_owned()],
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
            outside,
            tape,
            disk,
            began,
        };
        Ok((built, request))
    }

    fn plan(&self) -> RunIntent<'_> {
        RunIntent {
            record: &self.record,
            purpose: self.purpose,
            caller: &self.caller,
            template: &self.template,
            network: self.outside.as_ref().map(BrokerHandle::policy),
            sources: &self.sources,
            argv: &self.argv,
            env: &self.env,
            remarks: &self.remarks,
        }
    }
}

/// A box that is built and recorded. Its program waits.
#[derive(Debug)]
pub struct Launched {
    built: Built,
    running: BuiltBox,
    recorder: RunRecorder,
    /// How long the start took, in microseconds.
    setup: u64,
}

/// A box whose worker waits for a task. Nothing is recorded yet.
#[derive(Debug)]
pub struct Prepared {
    built: Built,
    running: BuiltBox,
    ledger: LedgerHandle,
}

/// Builds a box, and records its run while it is built.
pub fn launch(state: &Scoped, spec: LaunchSpec) -> Result<Launched, EngineError> {
    launch_after(state, spec, || Ok(()))
}

/// The same. `ready` is called when everything that fails without a trace has worked, before the start.
pub fn launch_after(
    state: &Scoped,
    spec: LaunchSpec,
    ready: impl FnOnce() -> Result<(), EngineError>,
) -> Result<Launched, EngineError> {
    let (built, request) = Built::new(state, spec)?;
    ready()?;
    let _entered = built.span.clone().entered();
    let plan = built.plan();
    let begin = |layers: &[LayerState]| RunRecorder::begin(state, &plan, layers);
    let mut begun = None;
    let started = belljar_box::start(&request, |layers| begun = Some(begin(layers)));
    let (mut running, recorder) = match (started.kind(ErrorKind::CannotStart), begun) {
        (Ok((running, ())), Some(Ok(recorder))) => (running, recorder),
        (Ok((running, ())), refused) => {
            running.abandon();
            let unrecorded =
                || EngineError::message(ErrorKind::CannotStart, "the run is not on record");
            tracing::warn!("run is not on record and is not started");
            return Err(refused.and_then(Result::err).unwrap_or_else(unrecorded));
        }
        (Err(failure), begun) => {
            tracing::warn!(kind = ?failure.kind(), "box could not be built");
            // A start that failed is recorded too.
            if let Ok(recorder) = begun.unwrap_or_else(|| begin(&[])) {
                recorder.failed(failure.inner()).ok(); // the failure itself is what matters now
            }
            return Err(failure);
        }
    };
    let opened = built.outside.as_ref().map(|outside| outside.connect(&mut running)).transpose();
    let opened = opened.context("open the network of the box").kind(ErrorKind::CannotStart);
    if let Err(failure) = opened {
        running.abandon();
        recorder.failed(failure.inner()).ok(); // see above
        return Err(failure);
    }
    let setup = micros(built.began);
    tracing::info!(setup_micros = setup, "box is built and its run is on record");
    Ok(Launched { built, running, recorder, setup })
}

/// Builds a box whose worker waits for a task.
pub fn prepare(state: &Scoped, spec: LaunchSpec) -> Result<Prepared, EngineError> {
    let (built, request) = Built::new(state, spec)?;
    let _entered = built.span.clone().entered();
    let (mut running, ledger) =
        belljar_box::start(&request, |_| record::open(state)).kind(ErrorKind::CannotStart)?;
    let ready = ledger.and_then(|ledger| {
        built.outside.as_ref().map(|outside| outside.connect(&mut running)).transpose()?;
        // It does nothing before it has its task, and by then the run is on record.
        running.launch().context("start the worker")?;
        Ok(ledger)
    });
    match ready.kind(ErrorKind::CannotStart) {
        Ok(ledger) => {
            tracing::info!("box waits for a task");
            Ok(Prepared { built, running, ledger })
        }
        Err(failure) => {
            tracing::warn!(kind = ?failure.kind(), "box could not be prepared");
            running.abandon();
            Err(failure)
        }
    }
}

impl Prepared {
    pub const fn id(&self) -> RunId {
        self.built.record.id
    }

    /// Has the ids of the run.
    pub fn span(&self) -> Span {
        self.built.span.clone()
    }

    pub fn remarks(&self) -> &[String] {
        &self.built.remarks
    }

    /// Removes the box. Nothing was run and nothing is recorded.
    pub fn abandon(self) {
        let _entered = self.built.span.clone().entered();
        tracing::debug!("prepared box is removed unused");
        self.running.abandon();
    }

    /// Records the task. `command` is what the ledger has as the command line.
    pub fn record(
        self,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<Launched, EngineError> {
        let Self { mut built, mut running, ledger } = self;
        let _entered = built.span.clone().entered();
        built.began = Instant::now();
        built.argv = command.iter().map(Into::into).collect();
        built.record.argv = command;
        let recorder = match RunRecorder::begin_in(ledger, &built.plan(), running.layers()) {
            Ok(recorder) => recorder,
            Err(failure) => {
                running.abandon();
                return Err(failure);
            }
        };
        running.set_timeout(timeout);
        let setup = micros(built.began);
        tracing::info!("task is on record");
        Ok(Launched { built, running, recorder, setup })
    }
}

/// Decides what of a chunk is passed on: the stream, the chunk, and where to put what is.
pub type Filter<'a> = dyn FnMut(Stream, &[u8], &mut Vec<u8>) + 'a;

/// Where the streams of a program lead.
pub struct Streams<'a> {
    pub input: BorrowedFd<'a>,
    pub output: BorrowedFd<'a>,
    pub error: BorrowedFd<'a>,
    pub filter: &'a mut Filter<'a>,
    /// Ends the box at once when something is written here.
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

    pub const fn outside(&self) -> Option<&BrokerHandle> {
        self.built.outside.as_ref()
    }

    /// Has the ids of the run.
    pub fn span(&self) -> Span {
        self.built.span.clone()
    }

    /// The variables of the program.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.built.env
    }

    /// Where more programs are started.
    pub fn exec_channel(&mut self) -> Option<ExecChannel> {
        self.running.take_exec_channel()
    }

    /// The program's terminal, to change its size.
    pub fn terminal(&self) -> Option<OwnedFd> {
        self.running.terminal().ok().flatten()
    }

    /// Removes the box and records why its program was not started.
    pub fn abandon(self, error: &EngineError) {
        let _entered = self.built.span.clone().entered();
        tracing::warn!(kind = ?error.kind(), "program is not started");
        self.running.abandon();
        self.recorder.failed(error.inner()).ok(); // the failure itself is what matters now
    }

    /// Starts the program and waits for its end. `ended` is called at once when it is over.
    pub fn supervise(
        self,
        state: &Scoped,
        streams: Streams<'_>,
        ended: impl FnOnce(),
    ) -> Result<Ended, EngineError> {
        let Self { built, running, recorder, setup } = self;
        let Built { span, record, template, outside, mut tape, mut disk, .. } = built;
        let _entered = span.clone().entered();
        tracing::info!("program starts");
        let Streams { input, output, error, filter, stop } = streams;
        let mut filter = |stream: Stream, chunk: &[u8], kept: &mut Vec<u8>| {
            tape.write(stream, chunk);
            filter(stream, chunk, kept);
        };
        let disk =
            disk.as_mut().map(|(dir, count)| (dir.as_path(), &mut **count as &mut DiskCounter<'_>));
        let supervision =
            Supervision { input, output, error, filter: Some(&mut filter), disk, stop };
        let (finished, account) =
            network::during(outside.as_ref(), recorder.ledger(), record.id, || {
                running.supervise(supervision)
            });
        ended();
        let (finished, remains) = finished.kind(ErrorKind::CannotStart).inspect_err(|failure| {
            recorder.failed(failure.inner()).ok(); // the failure itself is what matters now
        })?;
        tracing::info!(
            reason = finished.reason.name(),
            exit = finished.exit,
            signal = finished.signal,
            wall_micros = u64::try_from(finished.wall.as_micros()).unwrap_or(u64::MAX),
            "program ended"
        );
        let policy = record::policy(&template, outside.as_ref().map(BrokerHandle::policy));
        let outputs = tape.finish(recorder.ledger(), policy).unwrap_or_else(|error| {
            state.notice(&Notice::NotRecorded(format!(
                "what the program wrote is not on record; how it ended will be: {error:#}"
            )));
            [None, None]
        });
        Ok(Ended {
            span,
            finished,
            remains,
            account,
            recorder,
            policy,
            outputs,
            record,
            template,
            setup,
        })
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The directories of the overlay, as the workspace's owner has them.
pub fn prepare_layers(run: &Run, workspace: &mut Workspace) -> anyhow::Result<()> {
    let stat = rustix::fs::fstat(&workspace.place).context("look at the workspace")?;
    let as_root = Privilege::of_this_process() == Privilege::Root;
    run.make_layers(as_root.then_some((stat.st_uid, stat.st_gid)))?;
    run.copy_mode(&workspace.path)?;
    workspace.layers = Some(run.dir.clone());
    Ok(())
}

/// Which workspace it is, and when it was looked at.
pub fn at(workspace: &Workspace) -> anyhow::Result<WorkspaceAt> {
    let stat = rustix::fs::fstat(&workspace.place).context("look at the workspace")?;
    let clock = belljar_workspace::file_clock();
    Ok(WorkspaceAt { path: workspace.path.clone(), dev: stat.st_dev, ino: stat.st_ino, clock })
}

/// Records the end, and removes what nobody needs.
pub fn settle(run: &mut Run, result: Option<RunResult>, state: &Scoped) {
    run.record.state = RunState::Finished;
    run.record.result = result;
    if !run.record.review.is_pending() {
        run.remove_layers();
    }
    if let Err(error) = run.save() {
        state.failed(&error);
    }
    // Now and then, so that the list of runs does not grow for ever.
    if run.id().millis().is_multiple_of(64) {
        state.store().prune(state.clock().now()).ok(); // tried again by a later run
        approvals::remove_old(state, approvals::RETENTION, false).ok(); // see above
    }
}
