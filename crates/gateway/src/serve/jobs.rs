//! Long operations that continue when their request has ended. A client asks for the newest one of a kind.
//!
//! Jobs are in memory: after a restart of the server, no job is known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use tokio::sync::{Semaphore, watch};

use super::app::App;
use super::problem::{Problem, ProblemKind};
use super::routes::time;
use super::store::Millis;

/// The newest job of one kind. At most one runs at a time.
pub(crate) struct JobSlot<R>(Mutex<Option<Arc<Job<R>>>>);

impl<R> Default for JobSlot<R> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

/// A job that runs or has ended.
pub(crate) struct Job<R> {
    id: String,
    started: Millis,
    progress: Arc<Progress>,
    end: watch::Receiver<Option<Arc<JobEnd<R>>>>,
}

/// The completed and the whole work of a job, in the unit of the job.
#[derive(Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    of: AtomicU64,
}

struct JobEnd<R> {
    at: Millis,
    result: Result<R, Problem>,
}

impl Progress {
    pub(crate) fn set(&self, done: u64, of: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }

    /// Counts one more completed unit.
    pub(crate) fn add(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl<R: Send + Sync + 'static> JobSlot<R> {
    /// Starts a job unless one runs. `turns` limits the jobs of all tenants that run at once.
    pub(crate) fn start(
        &self,
        app: &Arc<App>,
        turns: &Arc<Semaphore>,
        work: impl FnOnce(&Progress) -> Result<R, Problem> + Send + 'static,
    ) -> Result<Arc<Job<R>>, Problem> {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.as_ref().is_some_and(|job| job.end.borrow().is_none()) {
            let detail = "such an operation runs already; wait until it has ended";
            return Err(Problem::new(ProblemKind::BUSY, detail).retry_after(5));
        }
        let mut id = [0; 8];
        getrandom::fill(&mut id)
            .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
        let (sender, end) = watch::channel(None);
        let progress = Arc::new(Progress::default());
        let job = Job { id: hex::encode(id), started: app.now(), progress, end };
        let (progress, shared) = (Arc::clone(&job.progress), Arc::clone(app));
        let turns = Arc::clone(turns);
        // The server does not wait for a job when it stops: the job changes nothing that would be lost.
        tokio::spawn(async move {
            let permit = turns.acquire_owned().await;
            let done = tokio::task::spawn_blocking(move || work(&progress)).await;
            drop(permit);
            let failed = |_| Err(Problem::internal("the operation failed"));
            let result = done.unwrap_or_else(failed);
            sender.send_replace(Some(Arc::new(JobEnd { at: shared.now(), result })));
        });
        let job = Arc::new(job);
        *newest = Some(Arc::clone(&job));
        Ok(job)
    }

    /// Returns the newest job.
    pub(crate) fn newest(&self) -> Result<Arc<Job<R>>, Problem> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || {
            let detail = "no such operation was started since the server started";
            Problem::new(ProblemKind::NOT_FOUND, detail)
        };
        newest.clone().ok_or_else(none)
    }
}

impl<R> Job<R> {
    /// Waits until the job has ended, but not longer than this. Returns whether it has ended.
    pub(crate) async fn wait(&self, time: Duration) -> bool {
        let mut end = self.end.clone();
        let ended = tokio::time::timeout(time, end.wait_for(Option::is_some)).await;
        ended.is_ok()
    }

    /// Describes the job for a client.
    pub(crate) fn view<V>(&self, report: impl Fn(&R) -> V) -> JobView<V> {
        let end = self.end.borrow().clone();
        let (state, ended, report, failure) = match end.as_deref() {
            None => (JobState::Running, None, None, None),
            Some(JobEnd { at, result: Ok(result) }) => {
                (JobState::Done, Some(*at), Some(report(result)), None)
            }
            Some(JobEnd { at, result: Err(problem) }) => {
                (JobState::Failed, Some(*at), None, Some(problem.detail().to_owned()))
            }
        };
        JobView {
            id: self.id.clone(),
            state,
            done: self.progress.done.load(Ordering::Relaxed),
            of: self.progress.of.load(Ordering::Relaxed),
            started: time(self.started),
            ended: ended.map(time),
            report,
            failure,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobState {
    Running,
    Done,
    Failed,
}

impl JobState {
    const ALL: [Self; 3] = [Self::Running, Self::Done, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

impl Serialize for JobState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A long operation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{V}Job")]
pub(crate) struct JobView<V> {
    id: String,
    #[schemars(schema_with = "schema_of_state")]
    state: JobState,
    /// The completed part of the work.
    done: u64,
    /// The whole work; 0 if that is not known yet.
    of: u64,
    started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// The result of an operation that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<V>,
    /// The reason why the operation failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

fn schema_of_state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": JobState::ALL.map(JobState::name) })
}
