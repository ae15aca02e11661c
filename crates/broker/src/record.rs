//! What the broker puts on record. The ledger is the supervisor's; words about what happened go there
//! over a socket, and for each that must be durable first an answer comes back.
//!
//! **Invariant:** a [`Recorded`] exists only for words that the ledger has on disk.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_model::net::{Policy, SecretName};
use serde::{Deserialize, Serialize};
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot};

use crate::ask::Questions;
use crate::events;
use crate::vault::Renewal;

/// Largest message of a broker.
pub const MAX_MESSAGE: usize = 96 * 1024;

/// Largest message to a broker, which may be its rules.
const MAX_HEARD: usize = 160 * 1024;

/// Longest text in a word; what is longer is cut and says so.
const MAX_TEXT: usize = 4096;

/// The alarm when a new refresh token could not be stored: the one in the vault is used up.
pub const NOT_KEPT: &str = "login-not-kept";

/// What its detail says.
pub fn not_kept(name: &SecretName, why: &str) -> String {
    format!(
        "the server of {name} gave a new refresh token, which is lost when this box ends ({why}); then log in again with `belljar agent login`, or store a new one with `belljar secret set {name}`"
    )
}

/// One thing that happened, as the ledger will have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// A name was asked for.
    Dns { name: String, query: String, verdict: Verdict, rule: Option<String>, reason: String },
    /// A request was decided.
    Decided(Decided),
    /// How an allowed request went; `cause` is the entry that allowed it.
    Finished(Finished),
    /// A secret goes into a request.
    SecretUsed { name: String, slot: String, host: String },
    /// Something that an attacker would do.
    Alarm { alarm: String, detail: String },
    /// Part of a budget is used up.
    Spent { budget: String, unit: String, amount: u64, total: u64 },
    /// The operator is asked about one thing, which waits.
    Asked(Box<Question>),
    /// Nobody waits for an answer any more.
    Unasked { question: Box<Question>, why: Unasked },
}

/// One thing that waits for a yes. What follows `?` is told by its length only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub number: u64,
    pub method: String,
    pub scheme: String,
    pub host: String,
    pub port: u16,
    pub path: String,
    /// How many bytes follow `?`.
    pub query: u64,
    pub is_websocket: bool,
    /// The secrets that would go along, by name.
    pub secrets: Vec<String>,
    /// The rule that asks.
    pub rule: String,
    /// How long it waits, in milliseconds.
    pub wait: u64,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, scheme, host, port, path, query, .. } = self;
        write!(f, "{method} {scheme}://{host}")?;
        let usual = [("https", 443), ("http", 80)];
        if !usual.contains(&(scheme.as_str(), *port)) {
            write!(f, ":{port}")?;
        }
        f.write_str(path)?;
        if *query > 0 {
            write!(f, "?({query} bytes)")?;
        }
        if self.is_websocket {
            f.write_str(" as a WebSocket")?;
        }
        match self.secrets.as_slice() {
            [] => Ok(()),
            [one] => write!(f, " with the secret {one}"),
            several => write!(f, " with the secrets {}", several.join(", ")),
        }
    }
}

/// Why a question is over without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unasked {
    Timeout,
    /// The program gave up.
    Gone,
    /// The rules changed.
    Rules,
}

impl Unasked {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Gone => "gone",
            Self::Rules => "rules",
        }
    }
}

/// What the supervisor says to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Yes,
    No,
    /// There is nobody who could be asked.
    Nobody,
    /// The question is not on record.
    Unrecorded,
}

/// What was decided about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub method: String,
    pub scheme: String,
    pub host: String,
    pub port: u16,
    /// Without what follows `?`.
    pub path: String,
    pub verdict: Verdict,
    pub rule: Option<String>,
    pub reason: String,
    pub secrets: Vec<String>,
}

/// How an allowed request went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub cause: u64,
    pub status: Option<u16>,
    pub sent: u64,
    pub received: u64,
    pub micros: u64,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Allow,
    Deny,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// What a broker says once it serves.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    Words(Saying),
    /// The rules of this change are in force.
    Changed(u64),
    Renewed(Renewed),
}

/// A refresh token that its server gave in the place of another. An answer is expected.
#[derive(Debug, Serialize, Deserialize)]
pub struct Renewed {
    pub id: u64,
    pub name: SecretName,
    /// The bytes of its file.
    pub sealed: Vec<u8>,
    /// When the one was set that it takes the place of.
    pub replaces: u64,
}

/// Words on their way to the ledger. An answer is expected unless `id` is 0.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saying {
    pub id: u64,
    pub words: Vec<Word>,
}

/// What a broker hears: what the ledger says to a [`Saying`], and what the operator says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Heard {
    /// All of it is on disk; the first word has this index.
    Recorded {
        id: u64,
        first: u64,
    },
    Refused {
        id: u64,
    },
    Answered {
        question: u64,
        answer: Answer,
    },
    /// Other rules, from now on.
    Rules {
        change: u64,
        policy: Box<Policy>,
    },
}

/// Rules that are to take the place of others.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) policy: Policy,
}

/// Proof that words are on disk. Only a [`Clerk`] makes one.
#[derive(Debug)]
#[must_use]
pub struct Recorded {
    first: u64,
}

impl Recorded {
    /// Where the ledger has the first word.
    pub const fn index(&self) -> u64 {
        self.first
    }

    #[cfg(test)]
    pub(crate) const fn for_test() -> Self {
        Self { first: 0 }
    }
}

/// Why words are not on record. Nothing that depends on them may be done.
#[derive(Debug, thiserror::Error)]
pub enum Unrecorded {
    #[error("the ledger did not take it")]
    Refused,
    #[error("the supervisor is gone")]
    Gone,
}

type Answers = Mutex<HashMap<u64, oneshot::Sender<Result<u64, Unrecorded>>>>;

/// The broker's side of the record.
#[derive(Debug)]
pub struct Clerk {
    queue: mpsc::UnboundedSender<Said>,
    answers: Arc<Answers>,
    questions: Arc<Questions>,
    next: AtomicU64,
}

/// The tasks behind a [`Clerk`].
#[derive(Debug)]
pub struct Desk {
    hearing: Hearing,
    queue: mpsc::UnboundedReceiver<Said>,
}

/// Where what is heard goes to.
#[derive(Debug)]
struct Hearing {
    socket: Arc<UnixDatagram>,
    answers: Arc<Answers>,
    questions: Arc<Questions>,
    changes: mpsc::UnboundedSender<Change>,
}

impl Clerk {
    /// Speaks over a socket that keeps messages apart, and does not block.
    pub(crate) fn new(
        socket: OwnedFd,
    ) -> io::Result<(Self, Desk, mpsc::UnboundedReceiver<Change>)> {
        // A SOCK_SEQPACKET in truth: messages stay whole as datagrams do, and the end shows.
        let socket = std::os::unix::net::UnixDatagram::from(socket);
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UnixDatagram::from_std(socket)?);
        let (sender, queue) = mpsc::unbounded_channel();
        let (changes, changed) = mpsc::unbounded_channel();
        let (answers, questions) = (Arc::<Answers>::default(), Arc::<Questions>::default());
        let hearing = Hearing {
            socket,
            answers: Arc::clone(&answers),
            questions: Arc::clone(&questions),
            changes,
        };
        let clerk = Self { queue: sender, answers, questions, next: AtomicU64::new(1) };
        Ok((clerk, Desk { hearing, queue }, changed))
    }

    pub(crate) const fn questions(&self) -> &Arc<Questions> {
        &self.questions
    }

    /// Tells that other rules are in force.
    pub(crate) fn changed(&self, number: u64) {
        self.queue.send(Said::Changed(number)).ok(); // the broker ends with its supervisor
    }

    /// Waits until the words are on disk.
    pub async fn record(&self, words: Vec<Word>) -> Result<Recorded, Unrecorded> {
        words.iter().for_each(events::log);
        let recorded = self.say(|id| Said::Words(Saying { id, words })).await;
        match &recorded {
            Ok(recorded) => tracing::trace!(index = recorded.index(), "decision is on record"),
            Err(_) => tracing::warn!("decision is not on record, so nothing is done"),
        }
        recorded
    }

    /// Waits until a renewed secret is on record and in the vault.
    pub async fn renew(&self, renewal: Renewal) -> Result<Recorded, Unrecorded> {
        let Renewal { name, sealed, replaces } = renewal;
        tracing::info!(secret = name.as_str(), "secret is renewed");
        self.say(|id| Said::Renewed(Renewed { id, name, sealed, replaces })).await
    }

    async fn say(&self, said: impl FnOnce(u64) -> Said) -> Result<Recorded, Unrecorded> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        self.queue.send(said(id)).map_err(|_| Unrecorded::Gone)?;
        let first = answered.await.map_err(|_| Unrecorded::Gone)??;
        Ok(Recorded { first })
    }

    /// Has the words recorded without waiting: nothing depends on them.
    pub fn tell(&self, words: Vec<Word>) {
        words.iter().for_each(events::log);
        self.queue.send(Said::Words(Saying { id: 0, words })).ok(); // the broker ends with its supervisor
    }
}

impl Desk {
    /// Hears answers until the supervisor has no more to say.
    async fn hear(hearing: Hearing) -> io::Result<()> {
        let mut buffer = vec![0; MAX_HEARD];
        loop {
            let length = match hearing.socket.recv(&mut buffer).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(length) => length,
            };
            let bytes = buffer.get(..length).unwrap_or_default();
            let heard: Heard = postcard::from_bytes(bytes).map_err(io::Error::other)?;
            let (id, answer) = match heard {
                Heard::Recorded { id, first } => (id, Ok(first)),
                Heard::Refused { id } => (id, Err(Unrecorded::Refused)),
                Heard::Answered { question, answer } => {
                    tracing::info!(question, ?answer, "approval answered");
                    hearing.questions.answer(question, answer);
                    continue;
                }
                Heard::Rules { change, policy } => {
                    tracing::info!(change, "rules change");
                    let change = Change { number: change, policy: *policy };
                    hearing.changes.send(change).ok(); // a broker that ends needs no rules
                    continue;
                }
            };
            let waiting =
                hearing.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(waiting) = waiting {
                waiting.send(answer).ok(); // whoever asked may have given up
            }
        }
    }

    /// The two halves: hearing, and speaking until every clerk is gone.
    pub fn split(
        self,
    ) -> (impl Future<Output = io::Result<()>> + Send, impl Future<Output = io::Result<()>> + Send)
    {
        let Self { hearing, queue } = self;
        let socket = Arc::clone(&hearing.socket);
        (Self::hear(hearing), Self::speak(socket, queue))
    }

    async fn speak(
        socket: Arc<UnixDatagram>,
        mut queue: mpsc::UnboundedReceiver<Said>,
    ) -> io::Result<()> {
        while let Some(mut said) = queue.recv().await {
            if let Said::Words(saying) = &mut said {
                saying.words.iter_mut().for_each(shorten);
            }
            let bytes = postcard::to_allocvec(&said).map_err(io::Error::other)?;
            socket.send(&bytes).await?;
        }
        Ok(())
    }
}

/// Cuts what a stranger made long.
fn shorten(word: &mut Word) {
    let cut = |text: &mut String| {
        if text.len() > MAX_TEXT {
            let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
    };
    match word {
        Word::Dns { name, query, rule, reason, .. } => {
            [name, query, reason].into_iter().chain(rule).for_each(cut);
        }
        Word::Decided(Decided { method, scheme, host, path, rule, reason, secrets, .. }) => {
            [method, scheme, host, path, reason].into_iter().chain(rule).for_each(cut);
            secrets.iter_mut().for_each(cut);
        }
        Word::Finished(finished) => finished.error.iter_mut().for_each(cut),
        Word::SecretUsed { name, slot, host } => [name, slot, host].into_iter().for_each(cut),
        Word::Alarm { alarm, detail } => [alarm, detail].into_iter().for_each(cut),
        Word::Spent { budget, unit, .. } => [budget, unit].into_iter().for_each(cut),
        Word::Asked(question) | Word::Unasked { question, .. } => {
            let Question { method, scheme, host, path, secrets, rule, .. } = &mut **question;
            [method, scheme, host, path, rule].into_iter().for_each(cut);
            secrets.iter_mut().for_each(cut);
        }
    }
}
