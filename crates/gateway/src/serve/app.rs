//! The state that all requests of the server share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_engine::record::checking::LedgerReport;
use belljar_engine::record::durations::DurationReader;
use belljar_engine::scope::{Engine, Scoped};
use belljar_engine::server::{self, witness};
use belljar_model::caller::{Caller, TenantId};
use http::Method;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ServeLimits;
use super::call::blocking;
use super::devices::DeviceLogins;
use super::fair::{StartQueue, Turn};
use super::idempotency::RunningKeys;
use super::identity::Identity;
use super::jobs::JobSlot;
use super::known::KnownSenders;
use super::ledgers::LedgerPool;
use super::metrics::Metrics;
use super::oidc::Oidc;
use super::problem::{Problem, ProblemKind};
use super::prover::Prover;
use super::quotas::Quotas;
use super::rate::{Buckets, Rate, RateCell, RateState, Remaining, RequestKind, whole_seconds};
use super::routes::doctor::Doctor;
use super::signing::SigningKey;
use super::store::{Millis, Store, StoreError, TenantKey};
use super::streams::OpenStreams;
use super::tenants::Tenants;

/// The maximum number of blocking calls of the engine at once.
const MAX_BLOCKING: usize = 32;

/// The time for which the result of a readiness check is used again. Checks write to the disk, and every
/// client can request them.
const READY_TIME: Duration = Duration::from_secs(1);

/// The maximum number of ledgers that are verified at once.
const MAX_VERIFYING: usize = 2;

/// A tenant may do this many times as much as one of its principals.
const TENANT: u32 = 4;

/// The address that people use for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicAddress {
    /// The start of all addresses, without a slash at the end.
    pub(crate) url: String,
    /// The value of the header `Host`.
    pub(crate) host: String,
    /// Whether only this machine can reach the server.
    pub(crate) is_loopback: bool,
}

/// What the operator's file says about people and tenants.
pub(crate) struct Configured {
    pub(crate) quotas: Quotas,
    pub(crate) oidc: Option<Oidc>,
}

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) engine: Engine,
    /// The scope of the tenant `local`.
    pub(crate) state: Scoped,
    /// The user that runs the server, who owns the tenant `local`.
    pub(crate) owner: Caller,
    pub(crate) store: Store,
    pub(crate) key: SigningKey,
    pub(crate) address: PublicAddress,
    pub(crate) metrics: Metrics,
    pub(crate) blocking: Arc<Semaphore>,
    /// Requests that continue if their clients disconnect. The server waits for them when it stops.
    pub(crate) tasks: TaskTracker,
    pub(crate) running_keys: Arc<RunningKeys>,
    pub(crate) known: KnownSenders,
    pub(crate) tenants: Tenants,
    pub(crate) streams: OpenStreams,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
    /// Starts of boxes that wait for their turn.
    pub(crate) starts: StartQueue,
    /// The ledger with logins and tenants.
    pub(crate) system_ledgers: Arc<LedgerPool>,
    pub(crate) system_verifications: Arc<JobSlot<LedgerReport>>,
    pub(crate) doctor: Doctor,
    pub(crate) devices: DeviceLogins,
    pub(crate) quotas: Quotas,
    /// The identity provider, if the operator's file has one.
    pub(crate) oidc: Option<Oidc>,
    /// The verifications of ledgers that may run at once.
    pub(crate) verifying: Arc<Semaphore>,
    /// The time and the result of the last readiness check.
    ready: Mutex<Option<(Instant, bool)>>,
    rates: std::sync::Mutex<Rates>,
    /// The readers of the durations that the ledgers of tenants record.
    durations: std::sync::Mutex<HashMap<TenantId, DurationReader>>,
}

/// The buckets of all principals, tenants and sources.
struct Rates {
    reads: Buckets<TenantKey<String>>,
    writes: Buckets<TenantKey<String>>,
    tenant_reads: Buckets<String>,
    tenant_writes: Buckets<String>,
    failed_logins: Buckets<IpAddr>,
}

impl App {
    /// Creates the state of a server. `state` is the scope of the user that runs it.
    pub(super) fn new(
        engine: Engine,
        state: Scoped,
        store: Store,
        key: SigningKey,
        address: PublicAddress,
        (limits, prover, configured): (ServeLimits, Option<Prover>, Configured),
        stop: CancellationToken,
    ) -> Self {
        let owner = state.caller().clone();
        let times =
            |rate: Rate| Rate { burst: rate.burst * TENANT, interval: rate.interval / TENANT };
        let rates = Rates {
            reads: Buckets::new(limits.reads),
            writes: Buckets::new(limits.writes),
            tenant_reads: Buckets::new(times(limits.reads)),
            tenant_writes: Buckets::new(times(limits.writes)),
            failed_logins: Buckets::new(limits.failed_logins),
        };
        Self {
            engine,
            state,
            owner,
            store,
            key,
            address,
            metrics: Metrics::new(),
            blocking: Arc::new(Semaphore::new(MAX_BLOCKING)),
            tasks: TaskTracker::new(),
            running_keys: Arc::default(),
            known: KnownSenders::default(),
            tenants: Tenants::default(),
            streams: OpenStreams::default(),
            stop,
            starts: StartQueue::new(limits.starts),
            doctor: Doctor::new(prover),
            devices: DeviceLogins::new(limits.device_poll),
            quotas: configured.quotas,
            oidc: configured.oidc,
            system_ledgers: Arc::default(),
            system_verifications: Arc::default(),
            verifying: Arc::new(Semaphore::new(MAX_VERIFYING)),
            ready: Mutex::new(None),
            rates: std::sync::Mutex::new(rates),
            durations: std::sync::Mutex::default(),
        }
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn now(&self) -> Millis {
        self.state.clock().millis()
    }

    /// Counts a request of a sender, and leaves the rest of the limit for the response. A sender with too many
    /// requests gets the time to wait.
    pub(super) fn check_rate(
        &self,
        identity: &Identity,
        method: &Method,
        state: &RateCell,
    ) -> Result<(), Problem> {
        let now = Instant::now();
        let principal = identity.key(identity.caller.principal.to_string());
        let tenant = identity.tenant().to_string();
        let kind = RequestKind::of(method);
        let mut rates = self.rates();
        let Rates { reads, writes, tenant_reads, tenant_writes, .. } = &mut *rates;
        let (own, all) = match kind {
            RequestKind::Read => (reads, tenant_reads),
            RequestKind::Write => (writes, tenant_writes),
        };
        let taken = own.take(principal, now).and_then(|left| all.take(tenant, now).map(|_| left));
        let remaining = taken.unwrap_or_else(|wait| Remaining { requests: 0, full_in: wait });
        state.set(RateState { kind, rate: own.rate(), remaining }).ok(); // a request is counted once
        taken.map(drop).map_err(|wait| {
            let problem =
                Problem::new(ProblemKind::TOO_MANY, "too many requests; wait and try again");
            problem.retry_after(whole_seconds(wait))
        })
    }

    /// Waits until the sender may start a box, and measures the time.
    pub(crate) async fn wait_for_start(&self, who: &Identity) -> Result<Turn, Problem> {
        let start = Instant::now();
        let turn = self.starts.wait_for_turn(who).await;
        self.metrics.queue.observe(start.elapsed().as_secs_f64());
        turn
    }

    /// Counts a failed login of a source. Returns the time to wait after too many.
    pub(super) fn count_failed_login(&self, source: IpAddr) -> Result<(), Problem> {
        let taken = self.rates().failed_logins.take(source, Instant::now());
        taken.map(drop).map_err(|wait| {
            let problem = Problem::new(ProblemKind::TOO_MANY, "too many failed logins");
            problem.retry_after(whole_seconds(wait))
        })
    }

    /// Adds the durations that the ledgers of all tenants recorded since the last call. Blocks.
    pub(super) fn read_durations(&self) -> Result<(), Problem> {
        let mut readers = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        for tenant in witness::tenants(&self.state)? {
            let scope = self.engine.of(&Caller { tenant: tenant.clone(), ..self.owner.clone() })?;
            let reader = readers.entry(tenant).or_default();
            reader.read(&scope)?.into_iter().for_each(|it| self.metrics.recorded(it));
        }
        Ok(())
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the state directory and the ledger can be written.
    pub(super) async fn check_ready(&self) -> Result<(), Problem> {
        let mut last = self.ready.lock().await;
        let known = last.filter(|(time, _)| time.elapsed() < READY_TIME);
        let is_ready = match known {
            Some((_, is_ready)) => is_ready,
            None => {
                let state = self.state.clone();
                let check = move || server::check_writable(&state).map_err(Problem::from);
                let checked = blocking(self, check).await;
                if checked.is_err() {
                    tracing::warn!("the state directory or the ledger cannot be written");
                }
                *last = Some((Instant::now(), checked.is_ok()));
                checked.is_ok()
            }
        };
        if is_ready {
            return Ok(());
        }
        let detail = "the state directory cannot be written";
        Err(Problem::new(ProblemKind::UNAVAILABLE, detail).retry_after(5))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the database of the server failed");
        Self::new(ProblemKind::INTERNAL, "the database of the server cannot be used").retry_after(5)
    }
}
