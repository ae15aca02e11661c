//! Code mode: runs programs that a model wrote, each in its own box.
//!
//! A server has one [`Programs`] for all of its callers. `belljar code` opens one for a single program. A
//! [`ProgramSession`] holds the workspace of one caller and a pool of boxes that are built ahead of the
//! calls. This module does not depend on MCP or any other protocol.

mod connection;
mod follow;
mod language;
mod modules;
mod overlay;
mod pool;
mod queue;
mod report;
mod session;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_code::skill::Skills;
use belljar_model::code::ApiName;
use belljar_model::{Caller, Config};
use tokio_util::sync::CancellationToken;

pub use belljar_wire::Stream;
pub use language::Language;
pub use queue::ClientNumber;
pub use report::ProgramReport;
pub use session::{ProgramSession, WorkspaceSpec, close_session};
pub use task::{Program, Work};

use crate::config::{ConfigFingerprint, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::skills;
use crate::supervisor::protocol::ToSupervisor;
use crate::supervisor::spec::Ending;
use crate::supervisor::worker_program;
use crate::tool_servers::Servers;
use connection::{BoxError, ReadyBox};
use follow::follow;
use pool::BoxBuilder;
use queue::ProgramSlots;

/// The maximum number of programs that run at once. Further programs wait in a queue that clients share
/// fairly.
const MAX_PROGRAMS: usize = 32;

/// Runs the programs of all callers of a server.
#[derive(Debug)]
pub struct Programs {
    state: Scoped,
    /// The directory that relative paths in templates refer to.
    base_dir: PathBuf,
    /// The configuration file that the user named, if any.
    /// The user's directory that programs work on. `None` gives each session a scratch directory.
    workspace: Option<WorkspaceSpec>,
    /// The maximum number of ready boxes per session.
    max_warm: usize,
    loaded: Mutex<LoadedConfig>,
    worker: Arc<std::os::fd::OwnedFd>,
    pub skills: Skills,
    pub servers: Arc<Servers>,
    slots: Arc<ProgramSlots>,
}

/// The configuration as it was last read from its files.
#[derive(Debug)]
struct LoadedConfig {
    fingerprint: ConfigFingerprint,
    config: Arc<Config>,
    /// The files that the configuration was read from.
    sources: Arc<[Source]>,
    /// A cache of the modules that were generated for declared services.
    api_modules: BTreeMap<ApiName, Arc<modules::ApiModule>>,
}

/// The outcome of one program.
#[derive(Debug)]
pub struct ProgramOutcome {
    pub run: String,
    pub ending: Ending,
    pub stdout: String,
    pub stderr: String,
    /// Remarks about default restrictions of the box that the operator lifted.
    pub remarks: Vec<String>,
}

/// The reason why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An error in the request or the configuration, which the caller can correct.
    #[error("{0}")]
    Usage(String),
    /// An internal error, which the caller cannot correct.
    #[error("{0:#}")]
    Broken(anyhow::Error),
}

impl From<BoxError> for RunError {
    fn from(error: BoxError) -> Self {
        match error {
            BoxError::Usage(message) => Self::Usage(message),
            BoxError::Broken(error) => Self::Broken(error),
        }
    }
}

impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Receives the output and the progress of a running program.
pub trait Listener: Send {
    /// Receives output of the program.
    fn output(&mut self, stream: Stream, text: &str);
    /// Receives, at regular intervals, the running time of the program and the number of bytes that it
    /// wrote.
    fn progress(&mut self, elapsed: Duration, written: usize);
}

impl Programs {
    /// Prepares to run programs that work on `workspace`, or on scratch directories if it is `None`. Each
    /// session has at most `max_warm` boxes that are built ahead of the calls.
    pub fn open(
        state: &Scoped,
        base_dir: PathBuf,
        workspace: Option<WorkspaceSpec>,
        max_warm: usize,
    ) -> Result<Self, EngineError> {
        let state = state.clone();
        session::remove_stale(&state);
        let loaded = Mutex::new(LoadedConfig::read(&state, workspace.as_ref())?);
        let skills = skills::open(&state)?;
        // Tool servers come from the operator's file only: a project cannot declare them.
        let (operator, sources) = state.load_config(None)?;
        let servers = Arc::new(Servers::new(&state, (&operator, &sources), &base_dir)?);
        let worker = Arc::new(worker_program().kind(ErrorKind::Broken)?);
        let slots = ProgramSlots::new(MAX_PROGRAMS);
        Ok(Self { state, base_dir, workspace, max_warm, loaded, worker, skills, servers, slots })
    }

    /// Creates a session for the caller that opened this [`Programs`].
    pub fn new_session(&self) -> anyhow::Result<Arc<ProgramSession>> {
        self.new_session_of(self.state.caller())
    }

    /// Creates a session for `caller`. Its programs are recorded under the name of this caller.
    pub fn new_session_of(&self, caller: &Caller) -> anyhow::Result<Arc<ProgramSession>> {
        let state = self.state.for_caller(caller.clone()).map_err(EngineError::into_inner)?;
        Ok(Arc::new(self.session_in(&state)?))
    }

    /// Creates a session for a single call of `caller`. No box is built ahead for it.
    pub fn new_session_for_one_call(&self, caller: &Caller) -> anyhow::Result<Arc<ProgramSession>> {
        let state = self.state.for_caller(caller.clone()).map_err(EngineError::into_inner)?;
        let session = self.session_in(&state)?;
        session.pool.close();
        Ok(Arc::new(session))
    }

    fn session_in(&self, state: &Scoped) -> anyhow::Result<ProgramSession> {
        match &self.workspace {
            Some(workspace) => ProgramSession::project(state, workspace),
            None => ProgramSession::scratch(state),
        }
    }

    /// Returns the current configuration, which is read again when its files have changed. Invalid files
    /// are an error: the former configuration is not used in their place.
    pub fn config(&self) -> Result<Arc<Config>, RunError> {
        let path = self.workspace.as_ref().map(|workspace| workspace.path.as_path());
        let fingerprint = self.state.config_fingerprint(path);
        let mut loaded = self.loaded();
        if loaded.fingerprint != fingerprint {
            let read = LoadedConfig::read(&self.state, self.workspace.as_ref());
            *loaded = read.map_err(|error| RunError::Usage(format!("{error:#}")))?;
        }
        Ok(Arc::clone(&loaded.config))
    }

    /// Sets the number of clients that share the program slots. Each of them can start at least one
    /// program while others use all other slots.
    pub fn expect_clients(&self, clients: usize) {
        self.slots.expect_clients(clients);
    }

    /// Starts to build boxes for the next calls of a session.
    pub fn warm(&self, session: &Arc<ProgramSession>) {
        self.builder().refill(session);
    }

    /// Runs one program of `client` in a new box of a session, and returns its outcome.
    pub async fn run(
        &self,
        session: &Arc<ProgramSession>,
        work: Work,
        client: ClientNumber,
        listener: &mut dyn Listener,
        cancelled: &CancellationToken,
    ) -> Result<ProgramOutcome, RunError> {
        let config = self.config()?;
        let apis = work.apis.clone();
        let task = self.task(&config, work)?;
        let waiting = async {
            // The slot comes last, so that calls that wait for their workspace take no slot.
            let workspace_lock = session.lock_workspace().await;
            (workspace_lock, self.slots.acquire(client).await)
        };
        let (workspace_lock, _slot) = tokio::select! {
            waited = waiting => waited,
            () = cancelled.cancelled() => return Err(RunError::Usage("cancelled".to_owned())),
        };
        let ready = self.box_for(session, apis.clone()).await?;
        let start = ToSupervisor::Start(Box::new(task));
        let started = match ready.start(&start).await {
            Ok(started) => started,
            // A ready box may have been killed while it waited. The program has not started in it.
            Err(_) => self.builder().build(session, apis).await?.start(&start).await?,
        };
        let run = started.run.clone();
        tracing::info!(run, "program is started in a box");
        let outcome = follow(started, &start, &self.servers, listener, cancelled).await;
        tracing::info!(run, failed = outcome.is_err(), "program ended");
        drop(workspace_lock);
        self.builder().refill_soon(session);
        outcome
    }

    /// Returns a ready box of the session's pool, or builds a new one. A call that names its services
    /// always gets a new box.
    async fn box_for(
        &self,
        session: &Arc<ProgramSession>,
        apis: Option<BTreeSet<ApiName>>,
    ) -> Result<ReadyBox, RunError> {
        let builder = self.builder();
        let is_wanted = apis.is_none() || session.is_exclusive();
        let (usable, stale) = session.pool.take(&builder.fingerprint, is_wanted);
        let (usable, unusable) = if apis.is_none() { (usable, None) } else { (None, usable) };
        let removed = stale.into_iter().chain(unusable);
        if session.is_exclusive() {
            // The new box cannot mount the workspace while another box has it.
            for ready in removed {
                ready.dismiss().await;
            }
        }
        match usable {
            Some(ready) => {
                // The pool is refilled after this call, since building a box now would slow the call down.
                // An empty pool is refilled at once, for calls that run at the same time.
                if !session.is_exclusive() && session.pool.is_empty() {
                    builder.refill(session);
                }
                Ok(ready)
            }
            None => Ok(builder.build(session, apis).await?),
        }
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedConfig> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a builder of boxes under the current configuration.
    fn builder(&self) -> BoxBuilder {
        let loaded = self.loaded();
        BoxBuilder {
            worker: Arc::clone(&self.worker),
            base_dir: self.base_dir.clone(),
            config: Arc::clone(&loaded.config),
            sources: Arc::clone(&loaded.sources),
            fingerprint: loaded.fingerprint.clone(),
            max_warm: loaded.config.code().warm.min(self.max_warm),
        }
    }
}

impl LoadedConfig {
    /// Reads the configuration files that apply to a workspace.
    fn read(state: &Scoped, workspace: Option<&WorkspaceSpec>) -> Result<Self, EngineError> {
        let path = workspace.map(|it| it.path.as_path());
        // The fingerprint is taken first, so that a change during the reading is noticed later.
        let fingerprint = state.config_fingerprint(path);
        let (config, sources) = state.load_config(path)?;
        let (config, sources) = (Arc::new(config), sources.into());
        Ok(Self { fingerprint, config, sources, api_modules: BTreeMap::new() })
    }
}
