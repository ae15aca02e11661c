//! Where programs of models are run: sessions, boxes that stand ready, and what came of each program.
//!
//! One for a server, however many callers it has; `belljar code` has one for a moment. Nothing here
//! knows of a protocol.

mod attend;
mod connection;
mod language;
mod modules;
mod overlay;
mod pool;
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
pub use report::ProgramReport;
pub use session::{ProgramSession, WorkspaceSpec, put_away};
pub use task::{Program, Work};

use crate::config::{ConfigFingerprint, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::skills;
use crate::supervisor::protocol::ToSupervisor;
use crate::supervisor::spec::Ending;
use crate::supervisor::worker_program;
use crate::tool_servers::Servers;
use attend::attend;
use connection::{Ready, Refusal};
use pool::BoxMaker;

/// So many programs run at once; others wait for their turn.
const AT_ONCE: usize = 32;

/// Everything that programs need.
#[derive(Debug)]
pub struct Programs {
    state: Scoped,
    /// What relative paths of templates begin at.
    here: PathBuf,
    file: Option<PathBuf>,
    ground: Option<WorkspaceSpec>,
    warm: usize,
    rules: Mutex<Rules>,
    worker: Arc<std::os::fd::OwnedFd>,
    pub skills: Skills,
    pub servers: Arc<Servers>,
    slots: Arc<tokio::sync::Semaphore>,
}

/// The configuration as it was last read.
#[derive(Debug)]
struct Rules {
    fingerprint: ConfigFingerprint,
    config: Arc<Config>,
    /// The files that it comes from.
    sources: Arc<[Source]>,
    /// What was made of declared services since then.
    offers: BTreeMap<ApiName, Arc<modules::Offer>>,
}

/// What came of a program.
#[derive(Debug)]
pub struct Answer {
    pub run: String,
    pub ending: Ending,
    pub stdout: String,
    pub stderr: String,
    /// What is open in its box that is not by itself.
    pub remarks: Vec<String>,
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The caller can do something about it.
    #[error("{0}")]
    Usage(String),
    #[error("{0:#}")]
    Broken(anyhow::Error),
}

impl From<Refusal> for RunError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Usage(message) => Self::Usage(message),
            Refusal::Broken(error) => Self::Broken(error),
        }
    }
}

impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Hears a program while it runs.
pub trait Listener: Send {
    fn output(&mut self, stream: Stream, text: &str);
    /// Now and then: how long it has been running, and how much it has written.
    fn still(&mut self, since: Duration, written: usize);
}

impl Programs {
    /// Opens everything that is needed; `ground` is the directory that programs are given. No more than
    /// `warm` boxes of a session stand ready.
    pub fn open(
        state: &Scoped,
        here: PathBuf,
        ground: Option<WorkspaceSpec>,
        warm: usize,
    ) -> Result<Self, EngineError> {
        let (state, file) = (state.clone(), state.config_file().map(PathBuf::from));
        session::sweep(&state);
        let rules = Rules::read(&state, ground.as_ref())?;
        let skills = skills::open(&state)?;
        // Declarations of a project count for nothing.
        let (operator, sources) = state.load_config(None)?;
        let servers = Arc::new(Servers::new(&state, (&operator, &sources), &here)?);
        let worker = Arc::new(worker_program().kind(ErrorKind::Broken)?);
        let slots = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let rules = Mutex::new(rules);
        Ok(Self { state, here, file, ground, warm, rules, worker, skills, servers, slots })
    }

    /// A workspace for a new session of whoever opened this.
    pub fn room(&self) -> anyhow::Result<Arc<ProgramSession>> {
        self.room_of(self.state.caller())
    }

    /// A workspace for a new session of `caller`. Its programs are recorded as theirs.
    pub fn room_of(&self, caller: &Caller) -> anyhow::Result<Arc<ProgramSession>> {
        let state = self.state.for_caller(caller.clone()).map_err(EngineError::into_inner)?;
        let room = match &self.ground {
            Some(ground) => ProgramSession::project(&state, ground)?,
            None => ProgramSession::scratch(&state)?,
        };
        Ok(Arc::new(room))
    }

    /// The rules in force, read again when their files have changed. Files that are wrong are an error until
    /// they are mended: what was before is not taken for what the operator wants now.
    pub fn config(&self) -> Result<Arc<Config>, RunError> {
        let path = self.ground.as_ref().map(|ground| ground.path.as_path());
        let fingerprint = ConfigFingerprint::of(self.state.host(), self.file.as_deref(), path);
        let mut rules = self.rules();
        if rules.fingerprint != fingerprint {
            let read = Rules::read(&self.state, self.ground.as_ref());
            *rules = read.map_err(|failure| RunError::Usage(format!("{failure:#}")))?;
        }
        Ok(Arc::clone(&rules.config))
    }

    /// Has boxes made for calls that are sure to come.
    pub fn warm(&self, room: &Arc<ProgramSession>) {
        self.maker().refill(room);
    }

    /// Runs one program in a fresh box of this session.
    pub async fn run(
        &self,
        room: &Arc<ProgramSession>,
        work: Work,
        listener: &mut dyn Listener,
        cancelled: &CancellationToken,
    ) -> Result<Answer, RunError> {
        let config = self.config()?;
        let apis = work.apis.clone();
        let task = self.task(&config, work).await?;
        let waiting = async {
            let slot = self.slots.acquire().await;
            (slot, room.turn().await)
        };
        let (_slot, turn) = tokio::select! {
            waited = waiting => waited,
            () = cancelled.cancelled() => return Err(RunError::Usage("cancelled".to_owned())),
        };
        let ready = self.box_for(room, apis.clone()).await?;
        let start = ToSupervisor::Start(Box::new(task));
        let begun = match ready.begin(&start).await {
            Ok(begun) => begun,
            // One that stood for a while may have been killed meanwhile; nothing has run in it.
            Err(_) => self.maker().make(room, apis).await?.begin(&start).await?,
        };
        let run = begun.run.clone();
        tracing::info!(run, "program is handed to a box");
        let answer = attend(begun, &start, &self.servers, listener, cancelled).await;
        tracing::info!(run, failed = answer.is_err(), "program is over");
        drop(turn);
        self.maker().refill_soon(room);
        answer
    }

    async fn box_for(
        &self,
        room: &Arc<ProgramSession>,
        apis: Option<BTreeSet<ApiName>>,
    ) -> Result<Ready, RunError> {
        let maker = self.maker();
        let (fit, stale) =
            room.shelf.take(&maker.fingerprint, apis.is_none() || room.is_exclusive());
        let (fit, unfit) = if apis.is_none() { (fit, None) } else { (None, fit) };
        let gone = stale.into_iter().chain(unfit);
        if room.is_exclusive() {
            // They have the workspace for as long as they are there.
            for ready in gone {
                ready.dismiss().await;
            }
        }
        match fit {
            Some(ready) => {
                // The next one is made when this call has its answer: both at once would only slow
                // each other down. Who has none left cannot wait for that.
                if !room.is_exclusive() && room.shelf.is_empty() {
                    maker.refill(room);
                }
                Ok(ready)
            }
            None => Ok(maker.make(room, apis).await?),
        }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn maker(&self) -> BoxMaker {
        let rules = self.rules();
        BoxMaker {
            worker: Arc::clone(&self.worker),
            here: self.here.clone(),
            config: Arc::clone(&rules.config),
            sources: Arc::clone(&rules.sources),
            fingerprint: rules.fingerprint.clone(),
            warm: rules.config.code().warm.min(self.warm),
        }
    }
}

impl Rules {
    fn read(state: &Scoped, ground: Option<&WorkspaceSpec>) -> Result<Self, EngineError> {
        let (file, path) = (state.config_file(), ground.map(|it| it.path.as_path()));
        // Before the files are read: what changes in between is read again.
        let fingerprint = ConfigFingerprint::of(state.host(), file, path);
        let (config, sources) = state.load_config(path)?;
        let (config, sources) = (Arc::new(config), sources.into());
        Ok(Self { fingerprint, config, sources, offers: BTreeMap::new() })
    }
}
