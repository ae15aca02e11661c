//! Boxes that stand ready for the next call of one session.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_model::code::{ApiName, Selection};
use belljar_model::{Config, Mode};

use super::connection::{self, Ready, Refusal};
use super::session::ProgramSession;
use crate::config::{ConfigFingerprint, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network::NetworkSpec;
use crate::supervisor::spec::{ProgramBox, ProgramWorkspace, Rules};

/// A box that nobody needed for so long is made anew: its certificates and placeholders age.
const STALE: Duration = Duration::from_secs(600);

/// By then an answer is written. To start processes at the same moment would hold it up.
const ANSWERED: Duration = Duration::from_millis(3);

/// The boxes of one session.
#[derive(Debug, Default)]
pub(super) struct WarmPool(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<Standing>,
    /// How many are being made.
    coming: usize,
    /// The session is over.
    closed: bool,
}

#[derive(Debug)]
struct Standing {
    ready: Ready,
    fingerprint: ConfigFingerprint,
    since: Instant,
}

/// What boxes of a session are made with.
#[derive(Clone, Debug)]
pub(super) struct BoxMaker {
    pub(super) worker: Arc<OwnedFd>,
    pub(super) here: std::path::PathBuf,
    pub(super) config: Arc<Config>,
    pub(super) sources: Arc<[Source]>,
    pub(super) fingerprint: ConfigFingerprint,
    pub(super) warm: usize,
}

impl WarmPool {
    /// One that was made under the same rules if it is `wanted`, and all that are of no use any more.
    pub(super) fn take(
        &self,
        fingerprint: &ConfigFingerprint,
        wanted: bool,
    ) -> (Option<Ready>, Vec<Ready>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fit = |it: &Standing| it.fingerprint == *fingerprint && it.since.elapsed() < STALE;
        let (mut fit, stale): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut inner.ready).into_iter().partition(is_fit);
        let taken = if wanted { fit.pop_front() } else { None };
        inner.ready = fit;
        (taken.map(|it| it.ready), stale.into_iter().map(|it| it.ready).collect())
    }

    /// Whether the next call would have to wait for its box.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ready.is_empty()
    }

    /// No more boxes, now and later.
    pub(super) fn clear(&self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.closed = true;
        inner.ready.clear();
    }

    fn wants(&self, warm: usize) -> bool {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wants = !inner.closed && inner.ready.len() + inner.coming < warm;
        inner.coming += usize::from(wants);
        wants
    }

    fn put(&self, made: Option<Standing>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.coming -= 1;
        if !inner.closed {
            inner.ready.extend(made);
        }
    }
}

impl BoxMaker {
    /// A box for this session, now.
    pub(super) async fn make(
        &self,
        room: &ProgramSession,
        apis: Option<BTreeSet<ApiName>>,
    ) -> Result<Ready, Refusal> {
        let rules = self.rules(room, apis.as_ref()).map_err(|error| {
            if error.kind() == ErrorKind::Invalid {
                return Refusal::Usage(format!("{error:#}"));
            }
            Refusal::Broken(error.into_inner())
        })?;
        let of = ProgramBox { rules, workspace: room.place.clone() };
        connection::prepare(room.state().clone(), Arc::clone(&self.worker), of).await
    }

    /// The template of a box, and the rules of its network.
    fn rules(
        &self,
        room: &ProgramSession,
        apis: Option<&BTreeSet<ApiName>>,
    ) -> Result<Rules, EngineError> {
        let (config, host) = (&self.config, room.state().host());
        let selection = apis.map_or(Selection::All, Selection::Only);
        let made = config.code().template(config, selection).kind(ErrorKind::Invalid)?;
        let mut template = made.template.anchored(&self.here, host.user_home().as_deref());
        template.mode = match &room.place {
            ProgramWorkspace::Project { mode, .. } => *mode,
            ProgramWorkspace::Scratch { .. } => Mode::Overlay,
        };
        let network = NetworkSpec::of(&template, config, host)?;
        Ok(Rules { template, sources: self.sources.to_vec(), network, remarks: made.remarks })
    }

    /// Fills the shelf of a session when its last answer is on its way.
    pub(super) fn refill_soon(self, room: &Arc<ProgramSession>) {
        let room = Arc::downgrade(room);
        tokio::spawn(async move {
            tokio::time::sleep(ANSWERED).await;
            if let Some(room) = room.upgrade() {
                self.refill(&room);
            }
        });
    }

    /// Fills the shelf of a session while nobody waits.
    pub(super) fn refill(&self, room: &Arc<ProgramSession>) {
        // Where only one box can have the workspace, that is the one that stands ready.
        let warm = if room.is_exclusive() { self.warm.min(1) } else { self.warm };
        while room.shelf.wants(warm) {
            let (maker, room) = (self.clone(), Arc::downgrade(room));
            tokio::spawn(async move {
                let Some(room) = room.upgrade() else { return };
                let _turn = room.turn().await;
                // Why there is none is told to whoever asks for one.
                let made = maker.make(&room, None).await.ok();
                let (fingerprint, since) = (maker.fingerprint, Instant::now());
                room.shelf.put(made.map(|ready| Standing { ready, fingerprint, since }));
            });
        }
    }
}
