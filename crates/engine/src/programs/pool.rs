//! A pool of boxes that are built ahead of the next calls of one session.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_model::code::{ApiName, Selection};
use belljar_model::{Config, Mode};

use super::connection::{self, BoxError, ReadyBox};
use super::session::ProgramSession;
use crate::config::{ConfigFingerprint, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::NetworkSpec;
use crate::supervisor::spec::{ProgramBox, ProgramWorkspace, Rules};

/// The maximum age of a ready box. Older boxes are replaced, since their certificates and placeholders
/// expire.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The delay between the end of a call and the building of the next box, so that building does not delay
/// the response to the call.
const REFILL_DELAY: Duration = Duration::from_millis(3);

/// The boxes of one session that are built and wait for a program.
#[derive(Debug, Default)]
pub(super) struct WarmPool(Mutex<PoolState>);

/// The boxes of a [`WarmPool`] and their counters.
#[derive(Debug, Default)]
struct PoolState {
    ready: VecDeque<PooledBox>,
    /// The number of boxes that are being built.
    building: usize,
    /// Whether the session has ended, so that no box is added any more.
    is_closed: bool,
}

/// A ready box, with the fingerprint of the configuration and the time of its building.
#[derive(Debug)]
struct PooledBox {
    ready: ReadyBox,
    fingerprint: ConfigFingerprint,
    since: Instant,
}

/// Builds boxes for the programs of a session under one configuration.
#[derive(Clone, Debug)]
pub(super) struct BoxBuilder {
    pub(super) worker: Arc<OwnedFd>,
    /// The directory that relative paths in templates refer to.
    pub(super) base_dir: std::path::PathBuf,
    pub(super) config: Arc<Config>,
    pub(super) sources: Arc<[Source]>,
    pub(super) fingerprint: ConfigFingerprint,
    /// The maximum number of ready boxes per session.
    pub(super) max_warm: usize,
}

impl WarmPool {
    /// Takes a ready box that was built under the same configuration, if `is_wanted` is set. Also takes all
    /// boxes that are too old or were built under another configuration.
    pub(super) fn take(
        &self,
        fingerprint: &ConfigFingerprint,
        is_wanted: bool,
    ) -> (Option<ReadyBox>, Vec<ReadyBox>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_usable =
            |it: &PooledBox| it.fingerprint == *fingerprint && it.since.elapsed() < MAX_AGE;
        let (mut usable, stale): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut state.ready).into_iter().partition(is_usable);
        let taken = if is_wanted { usable.pop_front() } else { None };
        state.ready = usable;
        (taken.map(|it| it.ready), stale.into_iter().map(|it| it.ready).collect())
    }

    /// Returns whether no box is ready, so that the next call must wait for its box.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ready.is_empty()
    }

    /// Removes all ready boxes and closes the pool, so that no further box is added.
    pub(super) fn close(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        state.ready.clear();
    }

    /// Reserves a place for a box that will be built. Returns `false` if the pool has `max_warm` boxes or
    /// is closed.
    fn reserve(&self, max_warm: usize) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_space = !state.is_closed && state.ready.len() + state.building < max_warm;
        state.building += usize::from(has_space);
        has_space
    }

    /// Adds a box to its reserved place. `None` releases the place of a box that could not be built.
    fn put(&self, built: Option<PooledBox>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.building -= 1;
        if !state.is_closed {
            state.ready.extend(built);
        }
    }
}

impl BoxBuilder {
    /// Builds a box for a program of a session. `apis` names the services of the box; `None` selects all.
    pub(super) async fn build(
        &self,
        session: &ProgramSession,
        apis: Option<BTreeSet<ApiName>>,
    ) -> Result<ReadyBox, BoxError> {
        let rules = self.rules(session, apis.as_ref()).map_err(|error| {
            if error.kind() == ErrorKind::Invalid {
                return BoxError::Usage(format!("{error:#}"));
            }
            BoxError::Broken(error.into_inner())
        })?;
        let of = ProgramBox { rules, workspace: session.workspace.clone() };
        connection::prepare(session.state().clone(), Arc::clone(&self.worker), of).await
    }

    /// Returns the template and the network rules of a box.
    fn rules(
        &self,
        session: &ProgramSession,
        apis: Option<&BTreeSet<ApiName>>,
    ) -> Result<Rules, EngineError> {
        let (config, host) = (&self.config, session.state().host());
        let selection = apis.map_or(Selection::All, Selection::Only);
        let resolved = config.code().template(config, selection).kind(ErrorKind::Invalid)?;
        let mut template = resolved.template.anchored(&self.base_dir, host.user_home().as_deref());
        template.mode = match &session.workspace {
            ProgramWorkspace::Project { mode, .. } => *mode,
            ProgramWorkspace::Scratch { .. } => Mode::Overlay,
        };
        session.state().clamp(&mut template.limits)?;
        let network = NetworkSpec::of(&template, config, host)?;
        Ok(Rules { template, sources: self.sources.to_vec(), network, remarks: resolved.remarks })
    }

    /// Refills the pool of a session after a short delay, in which the response to the last call is sent.
    pub(super) fn refill_soon(self, session: &Arc<ProgramSession>) {
        let session = Arc::downgrade(session);
        tokio::spawn(async move {
            tokio::time::sleep(REFILL_DELAY).await;
            if let Some(session) = session.upgrade() {
                self.refill(&session);
            }
        });
    }

    /// Starts to build boxes in the background until the pool of a session is full.
    pub(super) fn refill(&self, session: &Arc<ProgramSession>) {
        // Only one box at a time can mount an exclusive workspace.
        let max_warm = if session.is_exclusive() { self.max_warm.min(1) } else { self.max_warm };
        while session.pool.reserve(max_warm) {
            let (builder, session) = (self.clone(), Arc::downgrade(session));
            tokio::spawn(async move {
                let Some(session) = session.upgrade() else { return };
                let _workspace_lock = session.lock_workspace().await;
                // An error is ignored here: the next call builds its own box and reports the error.
                let built = builder.build(&session, None).await.ok();
                let (fingerprint, since) = (builder.fingerprint, Instant::now());
                session.pool.put(built.map(|ready| PooledBox { ready, fingerprint, since }));
            });
        }
    }
}
