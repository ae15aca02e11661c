//! The state of one broker, shared by all of its connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use belljar_model::net::{Budget, Policy, SecretName, Target};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::active::ActiveTraffic;
use crate::address::Filter;
use crate::dns::{self, Limiter, Note, Pool, Resolver};
use crate::http::Refusal;
use crate::lease::Leases;
use crate::marks::{self, Marks, Noted};
use crate::meter::{Meter, Owner, Prices, Spent};
use crate::record::{BrokerEvent, Decided, Recorder, Verdict};
use crate::rules::Rules;
use crate::setup::{Hello, Placeholder, Setup};
use crate::tls::{Authority, Roots, Scope, Upstream as Tls};
use crate::upstream::{Proxy, Upstream};
use crate::vault::sealed::{Key, Unsealed};
use crate::vault::{Vault, VaultError};

/// The inputs that the broker reads from files at its start, because it has no file access later.
#[derive(Debug)]
pub struct Materials {
    pub roots: Roots,
    pub resolver: Resolver,
    pub values: Vec<(SecretName, Unsealed)>,
    /// The vault key with which the secrets were encrypted.
    pub key: Option<Key>,
    /// The addresses of the HTTP proxy that the policy names.
    pub proxy: Vec<SocketAddr>,
    /// A function that returns the current time.
    pub clock: fn() -> SystemTime,
}

/// A broker that is ready to serve.
#[derive(Debug)]
pub struct Prepared {
    rules: Rules,
    ask_timeout: Duration,
    vault: Vault,
    meter: Meter,
    /// Whether the budget is a lease.
    leased: bool,
    upstream: Upstream,
    authority: Authority,
    clock: fn() -> SystemTime,
}

/// The reason why a broker cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot create the CA certificate of the box")]
    Authority(#[from] crate::tls::AuthorityError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("cannot load the root certificates of the system")]
    Tls(#[from] crate::tls::UpstreamError),
}

/// Creates a broker and the files and placeholders for its box.
pub fn prepare(setup: Setup, materials: Materials) -> Result<(Prepared, Hello), PrepareError> {
    let Setup { policy, own, changes, leased, .. } = setup;
    // The certificates that the box trusts cannot change while it runs.
    let scope = if changes { Scope::Any } else { Scope::of(&policy) };
    let authority = Authority::new(scope, (materials.clock)())?;
    let tls = Tls::new(&materials.roots)?;
    let proxy = policy.proxy.as_ref().map(|_| Proxy { addresses: materials.proxy });
    let upstream = Upstream::new(tls, materials.resolver, Filter::new(own), proxy);
    let set_at: Vec<(SecretName, u64)> =
        materials.values.iter().map(|(name, it)| (name.clone(), it.set_at)).collect();
    let values = materials.values.into_iter().map(|(name, it)| (name, it.value)).collect();
    let vault = Vault::new(policy.secrets.clone(), values)?.renewing(materials.key, &set_at);
    let placeholders = vault.placeholders().into_iter();
    let placeholders =
        placeholders.map(|(secret, env, text)| Placeholder { secret, env, text }).collect();
    let hello = Hello {
        certificate: authority.pem().into_bytes(),
        java: authority.jks(),
        placeholders,
        remarks: Vec::new(),
    };
    let clock = materials.clock;
    let (rules, meter) = (Rules::new(&policy), Meter::new(&policy, Prices::default()));
    let ask_timeout = policy.ask_timeout.duration();
    Ok((Prepared { rules, ask_timeout, vault, meter, leased, upstream, authority, clock }, hello))
}

/// A broker that serves one box.
#[derive(Debug)]
pub(crate) struct Broker {
    rules: Mutex<Arc<Rules>>,
    ask_timeout: Mutex<Duration>,
    /// The number of rule changes so far, for subscribers.
    changes: watch::Sender<u64>,
    pub(crate) active: Arc<ActiveTraffic>,
    pub(crate) vault: Vault,
    meter: Mutex<Meter>,
    /// The lease that the supervisor can extend; `None` for a fixed budget.
    leases: Option<Leases>,
    marks: Mutex<Marks>,
    pub(crate) upstream: Upstream,
    pub(crate) authority: Authority,
    pub(crate) clock: fn() -> SystemTime,
    pub(crate) recorder: Recorder,
    names: Mutex<Names>,
    denied: Mutex<Denied>,
    tasks: Mutex<JoinSet<()>>,
    held: Arc<Semaphore>,
}

/// The error for more responses with a secret than a box can have in one minute (B09).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} responses in one minute contained a secret; requests to hosts with secrets are refused until the minute is over",
    marks::MAX_PER_MINUTE
)]
pub(crate) struct TooManyMarks;

/// The state of the box's DNS names: assigned addresses and query limits.
#[derive(Debug)]
struct Names {
    pool: Pool,
    limiter: Limiter,
}

/// The number of denials that were recorded in the ledger.
#[derive(Debug, Default)]
struct Denied {
    recorded: u32,
}

/// The maximum number of denials in the ledger; later ones are dropped, so that a box cannot fill
/// the ledger.
const MAX_DENIALS: u32 = 10_000;

/// The memory limit for buffered bodies, in units of [`HELD_PIECE`] bytes. A box can send thousands
/// of requests at once.
const MAX_HELD_PIECES: usize = 64;
const HELD_PIECE: usize = 1 << 20;

impl Broker {
    pub(crate) fn new(prepared: Prepared, recorder: Recorder) -> Self {
        let Prepared { rules, ask_timeout, vault, meter, leased, upstream, authority, clock } =
            prepared;
        let names = Names { pool: Pool::new(true), limiter: Limiter::new(Instant::now()) };
        Self {
            rules: Mutex::new(Arc::new(rules)),
            ask_timeout: Mutex::new(ask_timeout),
            changes: watch::Sender::new(0),
            active: Arc::default(),
            vault,
            meter: Mutex::new(meter),
            leases: leased.then(Leases::default),
            marks: Mutex::default(),
            upstream,
            authority,
            clock,
            recorder,
            names: Mutex::new(names),
            denied: Mutex::default(),
            tasks: Mutex::default(),
            held: Arc::new(Semaphore::new(MAX_HELD_PIECES)),
        }
    }

    /// Returns the rules that are in force now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.rules))
    }

    /// Returns how long a question waits for the operator's answer.
    pub(crate) fn ask_timeout(&self) -> Duration {
        *lock(&self.ask_timeout)
    }

    /// Returns a receiver that is notified of each change of the rules.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Applies new rules and aborts requests and connections that they do not allow. The secrets
    /// and their hosts stay the same; the rules that carry a secret can change.
    pub(crate) fn change(&self, policy: &Policy) {
        let rules = Arc::new(self.rules().followed_by(policy));
        *lock(&self.rules) = Arc::clone(&rules);
        *lock(&self.ask_timeout) = policy.ask_timeout.duration();
        self.active.cut(&rules);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Replaces the budget of the run.
    pub(crate) fn set_budget(&self, budget: Budget) {
        self.meter().set_budget(budget);
        if let Some(leases) = &self.leases {
            leases.changed();
        }
    }

    /// Asks for a larger lease and waits for the answer. Returns whether a request that did not fit can be
    /// checked again.
    pub(crate) async fn extend_lease(&self, spent: &Spent) -> bool {
        let Some(leases) = self.leases.as_ref().filter(|_| spent.owner() == &Owner::Run) else {
            return false;
        };
        let before = self.meter().budget();
        leases.wait(|| self.recorder.exhausted()).await;
        self.meter().budget() != before
    }

    /// Answers a DNS query; returns `None` if the query is ignored.
    pub(crate) fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let now = Instant::now();
        let mut names = lock(&self.names);
        let Names { pool, limiter } = &mut *names;
        if !limiter.query(now) {
            return None;
        }
        let answer = dns::answer(query, &self.rules(), pool, now);
        let events = match answer.decided {
            dns::Decided::Allowed { name, kind, rule } => {
                let (name, query) = (name.to_string(), kind.to_string());
                let reason = "a rule allows it".to_owned();
                match limiter.refused(&format!("allowed {name}")) {
                    Note::First => {
                        vec![BrokerEvent::Dns {
                            name,
                            query,
                            verdict: Verdict::Allow,
                            rule: Some(rule),
                            reason,
                        }]
                    }
                    Note::Again | Note::Last | Note::Over => Vec::new(),
                }
            }
            dns::Decided::Denied { name, kind, denial } => {
                let rule = denial.rule.clone();
                let reason = Refusal::from(denial).on_record();
                events_of_refused_name(limiter, name.to_string(), kind.to_string(), rule, reason)
            }
            dns::Decided::NoHostName { asked, kind } => {
                let reason = "no-host-name: not a valid host name".to_owned();
                events_of_refused_name(limiter, asked, kind.to_string(), None, reason)
            }
            dns::Decided::Local | dns::Decided::Malformed => Vec::new(),
        };
        if !events.is_empty() {
            self.recorder.send(events);
        }
        answer.reply
    }

    /// Returns the target behind a dialled address: the name that DNS assigned to the address, or
    /// the address.
    pub(crate) fn target_of(&self, address: IpAddr) -> Target {
        match lock(&self.names).pool.name(address, Instant::now()) {
            Some(name) => Target::Name(name.clone()),
            None => Target::Address(address),
        }
    }

    pub(crate) fn meter(&self) -> MutexGuard<'_, Meter> {
        lock(&self.meter)
    }

    pub(crate) fn marks(&self) -> MutexGuard<'_, Marks> {
        lock(&self.marks)
    }

    /// Counts a response whose replaced secrets grew from `before` to `after`. Returns an error if
    /// there were too many such responses in this minute.
    pub(crate) fn mark(&self, before: u64, after: u64) -> Result<(), TooManyMarks> {
        for _ in 0..marks::answers(before, after) {
            let noted = self.marks().add(Instant::now());
            match noted {
                Noted::Within => {}
                Noted::Reached => self.alarm("secret-guessing", TooManyMarks.to_string()),
                Noted::Over => return Err(TooManyMarks),
            }
        }
        Ok(())
    }

    /// Waits until there is memory for a body that is buffered before it is sent.
    pub(crate) async fn reserve_memory(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes.div_ceil(HELD_PIECE).clamp(1, MAX_HELD_PIECES)).ok()?;
        Arc::clone(&self.held).acquire_many_owned(pieces).await.ok()
    }

    /// Records a denied request in the ledger, up to a limit.
    pub(crate) fn deny(&self, decided: Decided) {
        let mut denied = lock(&self.denied);
        denied.recorded = denied.recorded.saturating_add(1);
        match denied.recorded {
            ..MAX_DENIALS => self.recorder.send(vec![BrokerEvent::Decided(decided)]),
            MAX_DENIALS => {
                let detail = format!("{MAX_DENIALS} refused requests; no more are recorded");
                self.alarm("flood", detail);
            }
            _ => {}
        }
    }

    /// Records an alarm about behaviour that is typical of an attack.
    pub(crate) fn alarm(&self, alarm: &'static str, detail: String) {
        self.recorder.send(vec![BrokerEvent::Alarm { alarm: alarm.to_owned(), detail }]);
    }

    /// Records that a placeholder in a streamed body was masked.
    pub(crate) fn record_masked(&self, name: &str, target: &Target) {
        let (name, host) = (name.to_owned(), target.to_string());
        self.recorder.send(vec![BrokerEvent::SecretMasked { name, host }]);
    }

    /// Runs a background task that ends with the broker.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Aborts all background tasks of the broker.
    pub(crate) fn end_tasks(&self) {
        lock(&self.tasks).abort_all();
    }

    pub(crate) fn spawner(self: &Arc<Self>) -> Spawner {
        Spawner(Arc::clone(self))
    }
}

/// The task executor for HTTP/2 streams.
#[derive(Clone)]
pub(crate) struct Spawner(Arc<Broker>);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.0.spawn(async move {
            task.await;
        });
    }
}

/// Returns the ledger events for a refused DNS name: each name once, up to a limit.
fn events_of_refused_name(
    limiter: &mut Limiter,
    name: String,
    query: String,
    rule: Option<String>,
    reason: String,
) -> Vec<BrokerEvent> {
    match limiter.refused(&name) {
        Note::First => vec![BrokerEvent::Dns { name, query, verdict: Verdict::Deny, rule, reason }],
        Note::Last => {
            let detail = "many refused names; no more are recorded".to_owned();
            vec![BrokerEvent::Alarm { alarm: "flood-of-names".to_owned(), detail }]
        }
        Note::Again | Note::Over => Vec::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
