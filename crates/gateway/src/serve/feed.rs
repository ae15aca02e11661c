//! New events of a tenant's ledger, for all clients that follow it.
//!
//! One task per tenant reads the ledger while at least one client follows it. The kernel reports when the log
//! grows. Clients that are slower than the queue miss events; they learn that, and start again.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_engine::record::feed::{EventFeed, FeedEvent};
use belljar_engine::scope::Scoped;
use rustix::fs::inotify;
use tokio::net::unix::pipe;
use tokio::sync::broadcast;

use super::app::App;
use super::call::blocking;
use super::problem::Problem;

/// The number of events that a slow client can be behind.
const QUEUE: usize = 256;
/// The number of events that are read at once.
const BATCH: usize = 128;
/// The time after which the log is read although the kernel reported no change.
const POLL: Duration = Duration::from_secs(1);
/// The time that a slow client has before it misses events.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// The events of one tenant.
pub(crate) struct Feed {
    state: Mutex<FeedState>,
    sender: broadcast::Sender<Arc<FeedEvent>>,
    /// A second reader, for clients that read older events.
    replay: Mutex<Option<EventFeed>>,
}

#[derive(Default)]
struct FeedState {
    /// The position of the next event, if the task runs.
    next: Option<u64>,
}

/// A client's place in the feed.
pub(crate) struct Subscription {
    /// The position of the first event that the receiver can get.
    pub(crate) next: u64,
    pub(crate) receiver: broadcast::Receiver<Arc<FeedEvent>>,
}

impl Default for Feed {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(QUEUE);
        Self { state: Mutex::default(), sender, replay: Mutex::default() }
    }
}

impl Feed {
    /// Adds a client, and starts the task that reads the ledger if it does not run.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        app: &Arc<App>,
        scope: &Scoped,
    ) -> Result<Subscription, Problem> {
        let (receiver, next) = {
            let state = self.state();
            (self.sender.subscribe(), state.next)
        };
        if let Some(next) = next {
            return Ok(Subscription { next, receiver });
        }
        let opened = scope.clone();
        let (feed, size) = blocking(app, move || {
            let mut feed = EventFeed::open(&opened)?;
            let size = feed.as_mut().map_or(Ok(0), EventFeed::refresh)?;
            Ok((feed, size))
        })
        .await?;
        let mut state = self.state();
        if let Some(next) = state.next {
            return Ok(Subscription { next, receiver }); // another client was faster
        }
        state.next = Some(size);
        let (this, app, scope) = (Arc::clone(self), Arc::clone(app), scope.clone());
        let tasks = app.tasks.clone();
        tasks.spawn(async move { this.run(&app, &scope, feed, size).await });
        Ok(Subscription { next: size, receiver })
    }

    /// Returns older events. Blocks.
    pub(crate) fn replay(&self, scope: &Scoped, from: u64) -> Result<Vec<FeedEvent>, Problem> {
        let mut replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        if replay.is_none() {
            *replay = EventFeed::open(scope)?;
        }
        let Some(feed) = replay.as_mut() else { return Ok(Vec::new()) };
        feed.refresh()?;
        Ok(feed.events(from, BATCH)?)
    }

    /// Reads the ledger until no client follows it any more, or the server stops.
    async fn run(&self, app: &Arc<App>, scope: &Scoped, feed: Option<EventFeed>, mut next: u64) {
        let (mut feed, mut change) = (feed, None);
        loop {
            if change.is_none() {
                // The log does not exist before the first event of a tenant.
                change = ChangeOf::watch(&EventFeed::log_file(scope));
            }
            let opened = scope.clone();
            let read = blocking(app, move || {
                let mut feed = feed.map_or_else(|| EventFeed::open(&opened), |it| Ok(Some(it)))?;
                let events = match &mut feed {
                    Some(feed) => {
                        feed.refresh()?;
                        feed.events(next, BATCH)?
                    }
                    None => Vec::new(),
                };
                Ok((feed, events))
            })
            .await;
            let events = match read {
                Ok((read, events)) => {
                    feed = read;
                    events
                }
                Err(_) => {
                    tracing::error!("the events of the ledger cannot be read");
                    feed = None;
                    Vec::new()
                }
            };
            let is_behind = events.len() == BATCH;
            next += u64::try_from(events.len()).unwrap_or(u64::MAX);
            if !self.send(events, next).await {
                return;
            }
            tokio::select! {
                () = async {}, if is_behind => {}
                () = wait(change.as_ref()), if !is_behind => {}
                () = app.stop.cancelled() => return,
            }
        }
    }

    /// Sends events to all clients. Returns `false`, and ends the feed, if there is no client.
    async fn send(&self, events: Vec<FeedEvent>, next: u64) -> bool {
        let start = tokio::time::Instant::now();
        while self.sender.len() + events.len() > QUEUE && start.elapsed() < PATIENCE {
            tokio::time::sleep(PAUSE).await;
        }
        let mut state = self.state();
        if self.sender.receiver_count() == 0 {
            state.next = None;
            return false;
        }
        for event in events {
            self.sender.send(Arc::new(event)).ok(); // the last client can leave at any time
        }
        state.next = Some(next);
        true
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a change of the log, or for the time of the next read.
async fn wait(change: Option<&ChangeOf>) {
    let changed = async {
        match change {
            Some(change) => change.wait().await,
            None => std::future::pending().await,
        }
    };
    drop(tokio::time::timeout(POLL, changed).await);
}

/// Reports changes of a file, by inotify(7).
struct ChangeOf {
    /// The descriptor of inotify is read like a pipe.
    events: pipe::Receiver,
}

impl ChangeOf {
    /// Watches a file. `None` if it cannot be watched: then the file is read at intervals.
    fn watch(file: &Path) -> Option<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let events = inotify::init(flags).ok()?;
        inotify::add_watch(&events, file, inotify::WatchFlags::MODIFY).ok()?;
        Some(Self { events: pipe::Receiver::from_owned_fd_unchecked(events).ok()? })
    }

    /// Waits until the file has changed since the last call.
    async fn wait(&self) {
        if self.events.readable().await.is_err() {
            return std::future::pending().await; // the file is read at intervals
        }
        let mut buffer = [0; 4096];
        // The content of the events is not used: each means that the file changed.
        while self.events.try_read(&mut buffer).is_ok_and(|read| read > 0) {}
    }
}
