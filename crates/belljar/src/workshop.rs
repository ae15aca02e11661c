//! Where programs of models are run: sessions, boxes that stand ready, and what came of each program.
//!
//! One for a server, however many callers it has; `belljar code` has one for a moment. Nothing here
//! knows of a protocol.

mod language;
mod line;
mod modules;
mod room;
mod shelf;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_code::skill::Skills;
use belljar_code::wire::{Job, Stream};
use belljar_model::Config;
use belljar_model::code::ApiName;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use language::Language;
pub(crate) use room::{Ground, Room, put_away};
pub(crate) use task::{Program, Work};

use crate::cell;
use crate::cell::word::{Ending, Order, Report, Task};
use crate::config::{self, Stamp};
use crate::failure::{Code as _, FAILED, Failure};
use crate::servers::Servers;
use crate::skills;
use crate::state::State;
use line::{Ready, Refusal, say};
use shelf::Maker;

/// A cell that was told to end gets so long, then it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// How often a caller that asked for it hears how far its program is.
const TICK: Duration = Duration::from_secs(1);
/// So many programs run at once; others wait for their turn.
const AT_ONCE: usize = 32;

/// Everything that programs need.
#[derive(Debug)]
pub(crate) struct Workshop {
    state: State,
    file: Option<PathBuf>,
    ground: Option<Ground>,
    warm: usize,
    rules: Mutex<Rules>,
    worker: Arc<std::os::fd::OwnedFd>,
    pub(crate) skills: Skills,
    pub(crate) servers: Arc<Servers>,
    slots: Arc<tokio::sync::Semaphore>,
}

/// The configuration as it was last read.
#[derive(Debug)]
struct Rules {
    stamp: Stamp,
    config: Arc<Config>,
    /// What was made of declared services since then.
    offers: BTreeMap<ApiName, Arc<modules::Offer>>,
}

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) run: String,
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What is open in its box that is not by itself.
    pub(crate) remarks: Vec<String>,
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
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
pub(crate) trait Listener: Send {
    fn output(&mut self, stream: Stream, text: &str);
    /// Now and then: how long it has been running, and how much it has written.
    fn still(&mut self, since: Duration, written: usize);
}

impl Workshop {
    /// Opens everything that is needed; `ground` is the directory that programs are given. No more than
    /// `warm` boxes of a session stand ready.
    pub(crate) fn open(
        file: Option<PathBuf>,
        ground: Option<Ground>,
        warm: usize,
    ) -> Result<Self, Failure> {
        let state = State::open()?;
        room::sweep(&state);
        let rules = Rules::read(file.as_ref(), ground.as_ref())?;
        let skills = skills::open(&state)?;
        let servers = Arc::new(Servers::new(&rules.config, &state, file.as_deref())?);
        let worker = Arc::new(cell::worker().code(FAILED)?);
        let slots = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let rules = Mutex::new(rules);
        Ok(Self { state, file, ground, warm, rules, worker, skills, servers, slots })
    }

    /// A workspace for a new session.
    pub(crate) fn room(&self) -> anyhow::Result<Arc<Room>> {
        let room = match &self.ground {
            Some(ground) => Room::project(&self.state, ground)?,
            None => Room::scratch(&self.state)?,
        };
        Ok(Arc::new(room))
    }

    /// The rules in force. A file that has become unreadable leaves those that were.
    pub(crate) fn config(&self) -> Result<Arc<Config>, RunError> {
        let path = self.ground.as_ref().map(|ground| ground.path.as_path());
        let stamp = Stamp::of(self.file.as_deref(), path);
        let mut rules = self.rules();
        if rules.stamp != stamp {
            let read = Rules::read(self.file.as_ref(), self.ground.as_ref());
            *rules = read.map_err(|failure| RunError::Usage(format!("{:#}", failure.error)))?;
        }
        Ok(Arc::clone(&rules.config))
    }

    /// Has boxes made for calls that are sure to come.
    pub(crate) fn warm(&self, room: &Arc<Room>) {
        self.maker().refill(room);
    }

    /// Runs one program in a fresh box of this session.
    pub(crate) async fn run(
        &self,
        room: &Arc<Room>,
        work: Work,
        listener: &mut dyn Listener,
        cancelled: &CancellationToken,
    ) -> Result<Answer, RunError> {
        let config = self.config()?;
        let apis = work.apis.clone();
        let task = self.task(&config, work).await?;
        let slot = self.slots.acquire();
        let _slot = tokio::select! {
            slot = slot => slot,
            () = cancelled.cancelled() => return Err(RunError::Usage("cancelled".to_owned())),
        };
        let turn = match &room.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let ready = self.box_for(room, apis).await?;
        let answer = attend(ready, task, &self.servers, listener, cancelled).await;
        drop(turn);
        self.warm(room);
        answer
    }

    async fn box_for(
        &self,
        room: &Arc<Room>,
        apis: Option<BTreeSet<ApiName>>,
    ) -> Result<Ready, RunError> {
        let maker = self.maker();
        if apis.is_none()
            && let Some(ready) = room.shelf.take(&maker.stamp)
        {
            if room.turn.is_none() {
                maker.refill(room);
            }
            return Ok(ready);
        }
        if room.turn.is_some() {
            // One that stands ready under other rules has the workspace.
            drop(room.shelf.take(&maker.stamp));
        }
        Ok(maker.make(room, apis).await?)
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn maker(&self) -> Maker {
        let rules = self.rules();
        Maker {
            worker: Arc::clone(&self.worker),
            config: self.file.clone(),
            stamp: rules.stamp.clone(),
            warm: rules.config.code().warm.min(self.warm),
        }
    }
}

impl Rules {
    fn read(file: Option<&PathBuf>, ground: Option<&Ground>) -> Result<Self, Failure> {
        let (file, path) = (file.map(PathBuf::as_path), ground.map(|it| it.path.as_path()));
        // Before the files are read: what changes in between is read again.
        let stamp = Stamp::of(file, path);
        let (config, _) = config::load_from(file, path)?;
        Ok(Self { stamp, config: Arc::new(config), offers: BTreeMap::new() })
    }
}

/// Gives a box its task and hears it out.
async fn attend(
    ready: Ready,
    task: Task,
    servers: &Arc<Servers>,
    listener: &mut dyn Listener,
    cancelled: &CancellationToken,
) -> Result<Answer, RunError> {
    let Ready { run, remarks, mut line } = ready;
    // What comes out of a box may name anything: only what it was given can be called.
    let given = match &task.job {
        Job::Script(script) => script.tools.clone(),
        Job::Program(_) | Job::Bridge(_) => Vec::new(),
    };
    say(&mut line.said, &Order::Run(Box::new(task))).await?;
    let began = Instant::now();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut calls: JoinSet<(u64, Result<Box<RawValue>, String>)> = JoinSet::new();
    let mut tick = tokio::time::interval(TICK);
    tick.tick().await;
    let mut killed_at: Option<tokio::time::Instant> = None;
    loop {
        let gone = async {
            match killed_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            report = line.heard.next() => match report? {
                Some(Report::Output { stream, text }) => {
                    listener.output(stream, &text);
                    match stream {
                        Stream::Stdout => stdout.push_str(&text),
                        Stream::Stderr => stderr.push_str(&text),
                    }
                }
                Some(Report::Call { id, server, tool, .. })
                    if !given.iter().any(|it| it.server == server && it.tool == tool) =>
                {
                    let value = Err(format!("this program was not given {server}.{tool}"));
                    say(&mut line.said, &Order::Answer { id, value }).await.ok(); // or it is gone
                }
                Some(Report::Call { id, server, tool, input }) => {
                    let (servers, cancelled) = (Arc::clone(servers), cancelled.clone());
                    calls.spawn(async move {
                        (id, servers.call(&server, &tool, input, cancelled).await)
                    });
                }
                Some(Report::Ended(ending)) => {
                    return Ok(Answer { run, ending: *ending, stdout, stderr, remarks });
                }
                Some(Report::Failed { is_usage: true, message }) => return Err(RunError::Usage(message)),
                Some(Report::Failed { message, .. }) => return Err(anyhow::anyhow!(message).into()),
                Some(Report::Ready { .. }) => return Err(anyhow::anyhow!("a cell spoke out of turn").into()),
                None => return Err(anyhow::anyhow!("the process of the box ended without a word").into()),
            },
            Some(Ok((id, value))) = calls.join_next() => {
                // A cell that is gone says so above.
                say(&mut line.said, &Order::Answer { id, value }).await.ok();
            }
            () = cancelled.cancelled(), if killed_at.is_none() => {
                killed_at = Some(tokio::time::Instant::now() + GRACE);
                say(&mut line.said, &Order::Cancel).await.ok(); // or it is gone already
            }
            () = gone => return Err(anyhow::anyhow!("the box did not end when it was told to").into()),
            _ = tick.tick() => listener.still(began.elapsed(), stdout.len() + stderr.len()),
        }
    }
}
