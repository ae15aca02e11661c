//! All that a connection needs, together.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use belljar_model::net::{Policy, SecretName, Target};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::address::Filter;
use crate::dns::{self, Limiter, Note, Pool, Resolver};
use crate::http::Refusal;
use crate::meter::{Meter, Prices};
use crate::record::{Clerk, Decided, Verdict, Word};
use crate::rules::Rules;
use crate::setup::{Hello, Placeholder, Setup};
use crate::tls::{Authority, Roots, Scope, Upstream as Tls};
use crate::underway::Underway;
use crate::upstream::{Proxy, Upstream};
use crate::vault::sealed::{Key, Unsealed};
use crate::vault::{Vault, VaultError};

/// What a broker needs from the file system, which it will not see.
#[derive(Debug)]
pub struct Materials {
    pub roots: Roots,
    pub resolver: Resolver,
    pub values: Vec<(SecretName, Unsealed)>,
    /// What they were sealed with.
    pub key: Option<Key>,
    /// The addresses of the policy's proxy.
    pub proxy: Vec<SocketAddr>,
    /// What time it is.
    pub clock: fn() -> SystemTime,
}

/// A broker before it serves.
#[derive(Debug)]
pub struct Prepared {
    rules: Rules,
    ask_timeout: Duration,
    vault: Vault,
    meter: Meter,
    upstream: Upstream,
    authority: Authority,
    clock: fn() -> SystemTime,
}

/// Why there will be no broker.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("make the certificate of the box")]
    Authority(#[from] crate::tls::AuthorityError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("trust the roots of the system")]
    Tls(#[from] crate::tls::UpstreamError),
}

/// Makes everything that a box will be given, and all that serves it.
pub fn prepare(setup: Setup, materials: Materials) -> Result<(Prepared, Hello), PrepareError> {
    let Setup { policy, own, changes, .. } = setup;
    // What the box trusts cannot change once it stands.
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
    Ok((Prepared { rules, ask_timeout, vault, meter, upstream, authority, clock }, hello))
}

/// A broker that serves one box.
#[derive(Debug)]
pub(crate) struct Broker {
    rules: Mutex<Arc<Rules>>,
    ask_timeout: Mutex<Duration>,
    /// Counts how often the rules changed.
    changes: watch::Sender<u64>,
    pub(crate) underway: Arc<Underway>,
    pub(crate) vault: Vault,
    meter: Mutex<Meter>,
    pub(crate) upstream: Upstream,
    pub(crate) authority: Authority,
    pub(crate) clock: fn() -> SystemTime,
    pub(crate) clerk: Clerk,
    names: Mutex<Names>,
    denied: Mutex<Denied>,
    tasks: Mutex<JoinSet<()>>,
    held: Arc<Semaphore>,
}

/// What is known of the names that the box asked for.
#[derive(Debug)]
struct Names {
    pool: Pool,
    limiter: Limiter,
}

/// How many refusals are on record one by one.
#[derive(Debug, Default)]
struct Denied {
    recorded: u32,
}

/// After so many refusals only the count goes on: a box must not fill the record.
const DENIALS: u32 = 10_000;

/// Of bodies that are held in memory, so many pieces may be there at once: a box has thousands of
/// requests to its broker's one memory.
const HELD: usize = 64;
const HELD_PIECE: usize = 1 << 20;

impl Broker {
    pub(crate) fn new(prepared: Prepared, clerk: Clerk) -> Self {
        let Prepared { rules, ask_timeout, vault, meter, upstream, authority, clock } = prepared;
        let names = Names { pool: Pool::new(true), limiter: Limiter::new(Instant::now()) };
        Self {
            rules: Mutex::new(Arc::new(rules)),
            ask_timeout: Mutex::new(ask_timeout),
            changes: watch::Sender::new(0),
            underway: Arc::default(),
            vault,
            meter: Mutex::new(meter),
            upstream,
            authority,
            clock,
            clerk,
            names: Mutex::new(names),
            denied: Mutex::default(),
            tasks: Mutex::default(),
            held: Arc::new(Semaphore::new(HELD)),
        }
    }

    /// The rules that are in force now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.rules))
    }

    /// How long a question stays open.
    pub(crate) fn ask_timeout(&self) -> Duration {
        *lock(&self.ask_timeout)
    }

    /// Tells of each change of the rules from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Puts other rules into force, and cuts off what they do not allow. Secrets stay those that there
    /// are, each for its own hosts; which rules carry them may change.
    pub(crate) fn change(&self, policy: &Policy) {
        let rules = Arc::new(self.rules().followed_by(policy));
        *lock(&self.rules) = Arc::clone(&rules);
        *lock(&self.ask_timeout) = policy.ask_timeout.duration();
        self.underway.cut(&rules);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Answers a DNS query, or not.
    pub(crate) fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let now = Instant::now();
        let mut names = lock(&self.names);
        let Names { pool, limiter } = &mut *names;
        if !limiter.query(now) {
            return None;
        }
        let answer = dns::answer(query, &self.rules(), pool, now);
        let words = match answer.decided {
            dns::Decided::Allowed { name, kind, rule } => {
                let (name, query) = (name.to_string(), kind.to_string());
                let reason = "a rule allows it".to_owned();
                match limiter.refused(&format!("allowed {name}")) {
                    Note::First => {
                        vec![Word::Dns {
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
                unknown(limiter, name.to_string(), kind.to_string(), rule, reason)
            }
            dns::Decided::NoHostName { asked, kind } => {
                let reason = "no-host-name: nothing can be called so".to_owned();
                unknown(limiter, asked, kind.to_string(), None, reason)
            }
            dns::Decided::Local | dns::Decided::Malformed => Vec::new(),
        };
        if !words.is_empty() {
            self.clerk.tell(words);
        }
        answer.reply
    }

    /// What a program meant by the address that it dialled.
    pub(crate) fn meant(&self, address: IpAddr) -> Target {
        match lock(&self.names).pool.name(address, Instant::now()) {
            Some(name) => Target::Name(name.clone()),
            None => Target::Address(address),
        }
    }

    pub(crate) fn meter(&self) -> MutexGuard<'_, Meter> {
        lock(&self.meter)
    }

    /// Waits until there is room for a body that is read as a whole before it is sent.
    pub(crate) async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes.div_ceil(HELD_PIECE).clamp(1, HELD)).ok()?;
        Arc::clone(&self.held).acquire_many_owned(pieces).await.ok()
    }

    /// Puts a refusal on record, up to a number.
    pub(crate) fn deny(&self, decided: Decided) {
        let mut denied = lock(&self.denied);
        denied.recorded = denied.recorded.saturating_add(1);
        match denied.recorded {
            ..DENIALS => self.clerk.tell(vec![Word::Decided(decided)]),
            DENIALS => {
                let detail = format!("{DENIALS} refused requests; no more are recorded");
                self.alarm("flood", detail);
            }
            _ => {}
        }
    }

    /// Puts on record what an attacker would do.
    pub(crate) fn alarm(&self, alarm: &'static str, detail: String) {
        self.clerk.tell(vec![Word::Alarm { alarm: alarm.to_owned(), detail }]);
    }

    /// Runs something beside the connections that ends with the broker.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends all that was spawned.
    pub(crate) fn end_tasks(&self) {
        lock(&self.tasks).abort_all();
    }

    pub(crate) fn spawner(self: &Arc<Self>) -> Spawner {
        Spawner(Arc::clone(self))
    }
}

/// Where HTTP/2 runs its streams.
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

/// What goes on record about a name that is refused: each once, and not too many.
fn unknown(
    limiter: &mut Limiter,
    name: String,
    query: String,
    rule: Option<String>,
    reason: String,
) -> Vec<Word> {
    match limiter.refused(&name) {
        Note::First => vec![Word::Dns { name, query, verdict: Verdict::Deny, rule, reason }],
        Note::Last => {
            let detail = "many refused names; no more are recorded".to_owned();
            vec![Word::Alarm { alarm: "flood-of-names".to_owned(), detail }]
        }
        Note::Again | Note::Over => Vec::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
