//! The state that all requests of the server share.

use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_engine::scope::{Engine, Scoped};
use belljar_engine::server;
use belljar_model::caller::Caller;
use http::Method;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::call::blocking;
use super::identity::Identity;
use super::metrics::Metrics;
use super::problem::{Problem, ProblemKind};
use super::rate::{Buckets, Rate, whole_seconds};
use super::signing::SigningKey;
use super::store::{Millis, Store, StoreError, TenantKey};

/// The maximum number of blocking calls of the engine at once.
const MAX_BLOCKING: usize = 32;

/// The time for which the result of a readiness check is used again. Checks write to the disk, and every
/// client can request them.
const READY_TIME: Duration = Duration::from_secs(1);

const READS: Rate = Rate::per_second(50, 200);
const WRITES: Rate = Rate::per_second(10, 40);
/// A tenant may do this many times as much as one of its principals.
const TENANT: u32 = 4;
const FAILED_LOGINS: Rate = Rate::per_minute(5);

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
    /// The time and the result of the last readiness check.
    ready: Mutex<Option<(Instant, bool)>>,
    rates: std::sync::Mutex<Rates>,
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
    ) -> Self {
        let owner = state.caller().clone();
        let times =
            |rate: Rate| Rate { burst: rate.burst * TENANT, interval: rate.interval / TENANT };
        let rates = Rates {
            reads: Buckets::new(READS),
            writes: Buckets::new(WRITES),
            tenant_reads: Buckets::new(times(READS)),
            tenant_writes: Buckets::new(times(WRITES)),
            failed_logins: Buckets::new(FAILED_LOGINS),
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
            ready: Mutex::new(None),
            rates: std::sync::Mutex::new(rates),
        }
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn now(&self) -> Millis {
        self.state.clock().millis()
    }

    /// Counts a request of a sender. A sender with too many requests gets the time to wait.
    pub(super) fn check_rate(&self, identity: &Identity, method: &Method) -> Result<(), Problem> {
        let now = Instant::now();
        let principal = identity.key(identity.caller.principal.to_string());
        let tenant = identity.tenant().to_string();
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let mut rates = self.rates();
        let Rates { reads, writes, tenant_reads, tenant_writes, .. } = &mut *rates;
        let (own, all) = if is_read { (reads, tenant_reads) } else { (writes, tenant_writes) };
        let taken = own.take(principal, now).and_then(|()| all.take(tenant, now));
        taken.map_err(|wait| {
            let problem =
                Problem::new(ProblemKind::TOO_MANY, "too many requests; wait and try again");
            problem.retry_after(whole_seconds(wait))
        })
    }

    /// Counts a failed login of a source. Returns the time to wait after too many.
    pub(super) fn count_failed_login(&self, source: IpAddr) -> Result<(), Problem> {
        let taken = self.rates().failed_logins.take(source, Instant::now());
        taken.map_err(|wait| {
            let problem = Problem::new(ProblemKind::TOO_MANY, "too many failed logins");
            problem.retry_after(whole_seconds(wait))
        })
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
