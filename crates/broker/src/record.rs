//! Records the broker's events. The supervisor owns the ledger: the broker sends batches of events
//! over a socket, and the supervisor acknowledges each batch that must be durable first.
//!
//! **Invariant:** a [`Recorded`] exists only for events that are on disk in the ledger.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_model::net::{Budget, Policy, SecretName};
use serde::{Deserialize, Serialize};
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot};

use crate::ask::Questions;
use crate::events;
use crate::vault::Renewal;

/// The maximum size of a message from a broker.
pub const MAX_MESSAGE: usize = 96 * 1024;

/// The maximum size of a message to a broker, which can contain a whole policy.
const MAX_INCOMING: usize = 160 * 1024;

/// The maximum length of a text in an event; longer texts are truncated and end in `…`.
const MAX_TEXT: usize = 4096;

/// The name of the alarm for a new refresh token that could not be stored, so that the vault's is
/// invalid.
pub const NOT_KEPT: &str = "login-not-kept";

/// Returns the detail text of the [`NOT_KEPT`] alarm.
pub fn not_kept(name: &SecretName, why: &str) -> String {
    format!(
        "the server of {name} issued a new refresh token that could not be stored and is lost when this box ends ({why}); then log in again with `belljar agent login`, or store a new token with `belljar secret set {name}`"
    )
}

/// One event of the broker, as the ledger will record it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokerEvent {
    /// The broker allowed or denied a DNS query.
    Dns { name: String, query: String, verdict: Verdict, rule: Option<String>, reason: String },
    /// The broker allowed or denied a request.
    Decided(Decided),
    /// An allowed request ended; `cause` is the ledger index of the entry that allowed it.
    Finished(Finished),
    /// A secret is inserted into a request.
    SecretUsed { name: String, slot: String, host: String },
    /// The placeholder of a secret is replaced by the name of the secret in the body of a request.
    SecretMasked { name: String, host: String },
    /// The box did something that is typical of an attack.
    Alarm { alarm: String, detail: String },
    /// Tokens or money of a budget were used.
    Spent { budget: String, unit: String, amount: u64, total: u64 },
    /// A model answered a request.
    ModelCalled(ModelCalled),
    /// A request waits for the operator's approval.
    Asked(Box<Question>),
    /// A request no longer waits for the operator's approval.
    QuestionClosed { question: Box<Question>, why: QuestionClosed },
}

/// A question to the operator: a request or connection that waits for approval. Of the query
/// string, only its length is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub number: u64,
    pub method: String,
    pub scheme: String,
    pub host: String,
    pub port: u16,
    pub path: String,
    /// The length of the URL's query string in bytes.
    pub query: u64,
    pub is_websocket: bool,
    /// Names of the secrets that the request would carry.
    pub secrets: Vec<String>,
    /// The `ask` rule that matched the request.
    pub rule: String,
    /// The time that the question waits for an answer, in milliseconds.
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

/// The reason why a question was closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuestionClosed {
    Timeout,
    /// The client closed the connection before an answer.
    Gone,
    /// The rules changed.
    Rules,
}

impl QuestionClosed {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Gone => "gone",
            Self::Rules => "rules",
        }
    }
}

/// The operator's answer to a question, sent by the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Yes,
    No,
    /// No operator can be asked for an approval.
    Nobody,
    /// The question could not be recorded in the ledger.
    Unrecorded,
}

/// The broker's decision about a request, for the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub method: String,
    pub scheme: String,
    pub host: String,
    pub port: u16,
    /// The path of the requested URL, without its query string.
    pub path: String,
    pub verdict: Verdict,
    pub rule: Option<String>,
    pub reason: String,
    pub secrets: Vec<String>,
    /// Whether the request opens a WebSocket.
    pub is_websocket: bool,
}

/// The result of an allowed request, for the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub cause: u64,
    pub status: Option<u16>,
    pub sent: u64,
    pub received: u64,
    pub micros: u64,
    pub error: Option<String>,
}

/// The answer of a model and its tokens, for the ledger. The server reported all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCalled {
    /// The ledger index of the entry that allowed the request.
    pub cause: u64,
    pub provider: String,
    /// The name of the model that answered.
    pub model: Option<String>,
    /// The number of input tokens that were not cached.
    pub input: u64,
    /// The number of input tokens read from a cache.
    pub cache_read: u64,
    /// The number of input tokens written to a cache.
    pub cache_write: u64,
    /// The number of output tokens, including reasoning.
    pub output: u64,
    /// The cost of these tokens in millionths of a US dollar.
    pub microusd: u64,
    /// Whether the response ended with its final usage.
    pub is_complete: bool,
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

/// A message that a serving broker sends to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromBroker {
    Events(EventBatch),
    /// The rule change with this number is in force.
    Changed(u64),
    /// A request waits for a larger lease. The supervisor answers with [`ToBroker::Budget`].
    Exhausted,
    Renewed(Renewed),
}

/// A renewed refresh token, which replaces an older one in the vault. The broker expects an
/// acknowledgement.
#[derive(Debug, Serialize, Deserialize)]
pub struct Renewed {
    pub id: u64,
    pub name: SecretName,
    /// The content of the file that holds the encrypted secret.
    pub sealed: Vec<u8>,
    /// The time at which the replaced token was stored.
    pub replaces: u64,
}

/// A numbered list of events that the broker sends to be recorded in the ledger. The broker expects
/// an acknowledgement unless `id` is 0.
#[derive(Debug, Serialize, Deserialize)]
pub struct EventBatch {
    pub id: u64,
    pub events: Vec<BrokerEvent>,
}

/// A message from the supervisor to a broker: the acknowledgement of an [`EventBatch`], an answer
/// of the operator, or new rules.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToBroker {
    /// The whole event batch is on disk; `first` is the ledger index of its first event.
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
    /// Replaces the network rules of the box.
    Rules {
        change: u64,
        policy: Box<Policy>,
    },
    /// Replaces the budget of the whole run.
    Budget {
        change: u64,
        budget: Budget,
    },
}

/// A numbered change of the network rules or of the budget while the box runs.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) what: Changed,
}

/// The new rules or the new budget.
#[derive(Debug)]
pub(crate) enum Changed {
    Rules(Box<Policy>),
    Budget(Budget),
}

/// Proof that events are stored in the ledger on disk. Only a [`Recorder`] creates one.
#[derive(Debug)]
#[must_use]
pub struct Recorded {
    first: u64,
}

impl Recorded {
    /// Returns the ledger index of the first recorded event.
    pub const fn index(&self) -> u64 {
        self.first
    }

    #[cfg(test)]
    pub(crate) const fn for_test() -> Self {
        Self { first: 0 }
    }
}

/// The reason why events were not recorded in the ledger. An action that depends on them must not
/// happen.
#[derive(Debug, thiserror::Error)]
pub enum Unrecorded {
    #[error("the ledger refused the entry")]
    Refused,
    #[error("the supervisor has exited")]
    Gone,
}

type Answers = Mutex<HashMap<u64, oneshot::Sender<Result<u64, Unrecorded>>>>;

/// The broker's handle for recording events through the supervisor.
#[derive(Debug)]
pub struct Recorder {
    queue: mpsc::UnboundedSender<FromBroker>,
    answers: Arc<Answers>,
    questions: Arc<Questions>,
    next: AtomicU64,
}

/// The background tasks of a [`Recorder`].
#[derive(Debug)]
pub struct RecorderTasks {
    incoming: Incoming,
    queue: mpsc::UnboundedReceiver<FromBroker>,
}

/// The receiving side of the socket to the supervisor.
#[derive(Debug)]
struct Incoming {
    socket: Arc<UnixDatagram>,
    answers: Arc<Answers>,
    questions: Arc<Questions>,
    changes: mpsc::UnboundedSender<Change>,
}

impl Recorder {
    /// Creates a recorder on a non-blocking socket that preserves message boundaries.
    pub(crate) fn new(
        socket: OwnedFd,
    ) -> io::Result<(Self, RecorderTasks, mpsc::UnboundedReceiver<Change>)> {
        // The socket is a SOCK_SEQPACKET: it preserves message boundaries as datagrams do, and
        // reports the end.
        let socket = std::os::unix::net::UnixDatagram::from(socket);
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UnixDatagram::from_std(socket)?);
        let (sender, queue) = mpsc::unbounded_channel();
        let (changes, changed) = mpsc::unbounded_channel();
        let (answers, questions) = (Arc::<Answers>::default(), Arc::<Questions>::default());
        let incoming = Incoming {
            socket,
            answers: Arc::clone(&answers),
            questions: Arc::clone(&questions),
            changes,
        };
        let recorder = Self { queue: sender, answers, questions, next: AtomicU64::new(1) };
        Ok((recorder, RecorderTasks { incoming, queue }, changed))
    }

    pub(crate) const fn questions(&self) -> &Arc<Questions> {
        &self.questions
    }

    /// Reports to the supervisor that a numbered change of the rules is in force.
    pub(crate) fn changed(&self, number: u64) {
        self.queue.send(FromBroker::Changed(number)).ok(); // fails only while the broker ends
    }

    /// Asks the supervisor for a larger lease.
    pub(crate) fn exhausted(&self) {
        self.queue.send(FromBroker::Exhausted).ok(); // fails only while the broker ends
    }

    /// Records events and waits until they are on disk.
    pub async fn record(&self, events: Vec<BrokerEvent>) -> Result<Recorded, Unrecorded> {
        events.iter().for_each(events::log);
        let recorded = self.send_and_wait(|id| FromBroker::Events(EventBatch { id, events })).await;
        match &recorded {
            Ok(recorded) => tracing::trace!(index = recorded.index(), "decision recorded"),
            Err(_) => tracing::warn!("decision could not be recorded; the request is refused"),
        }
        recorded
    }

    /// Waits until a renewed secret is recorded and stored in the vault.
    pub async fn renew(&self, renewal: Renewal) -> Result<Recorded, Unrecorded> {
        let Renewal { name, sealed, replaces } = renewal;
        tracing::info!(secret = name.as_str(), "secret renewed");
        self.send_and_wait(|id| FromBroker::Renewed(Renewed { id, name, sealed, replaces })).await
    }

    async fn send_and_wait(
        &self,
        message: impl FnOnce(u64) -> FromBroker,
    ) -> Result<Recorded, Unrecorded> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        self.queue.send(message(id)).map_err(|_| Unrecorded::Gone)?;
        let first = answered.await.map_err(|_| Unrecorded::Gone)??;
        Ok(Recorded { first })
    }

    /// Sends events to be recorded without waiting, because no action depends on them.
    pub fn send(&self, events: Vec<BrokerEvent>) {
        events.iter().for_each(events::log);
        self.queue.send(FromBroker::Events(EventBatch { id: 0, events })).ok(); // fails only while the broker ends
    }
}

impl RecorderTasks {
    /// Receives messages of the supervisor until the supervisor closes the socket.
    async fn receive(incoming: Incoming) -> io::Result<()> {
        let mut buffer = vec![0; MAX_INCOMING];
        loop {
            let length = match incoming.socket.recv(&mut buffer).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(length) => length,
            };
            let bytes = buffer.get(..length).unwrap_or_default();
            let message: ToBroker = postcard::from_bytes(bytes).map_err(io::Error::other)?;
            let (id, answer) = match message {
                ToBroker::Recorded { id, first } => (id, Ok(first)),
                ToBroker::Refused { id } => (id, Err(Unrecorded::Refused)),
                ToBroker::Answered { question, answer } => {
                    tracing::info!(question, ?answer, "approval answered");
                    incoming.questions.answer(question, answer);
                    continue;
                }
                ToBroker::Rules { change, policy } => {
                    tracing::info!(change, "rules change received");
                    let change = Change { number: change, what: Changed::Rules(policy) };
                    incoming.changes.send(change).ok(); // fails only while the broker ends
                    continue;
                }
                ToBroker::Budget { change, budget } => {
                    tracing::info!(change, "budget change received");
                    let change = Change { number: change, what: Changed::Budget(budget) };
                    incoming.changes.send(change).ok(); // fails only while the broker ends
                    continue;
                }
            };
            let waiting =
                incoming.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(waiting) = waiting {
                waiting.send(answer).ok(); // the caller can have stopped waiting
            }
        }
    }

    /// Splits the tasks of a recorder into one that receives and one that sends until every
    /// recorder is dropped.
    pub fn split(
        self,
    ) -> (impl Future<Output = io::Result<()>> + Send, impl Future<Output = io::Result<()>> + Send)
    {
        let Self { incoming, queue } = self;
        let socket = Arc::clone(&incoming.socket);
        (Self::receive(incoming), Self::send_queued(socket, queue))
    }

    async fn send_queued(
        socket: Arc<UnixDatagram>,
        mut queue: mpsc::UnboundedReceiver<FromBroker>,
    ) -> io::Result<()> {
        while let Some(mut message) = queue.recv().await {
            if let FromBroker::Events(batch) = &mut message {
                batch.events.iter_mut().for_each(shorten);
            }
            let bytes = postcard::to_allocvec(&message).map_err(io::Error::other)?;
            socket.send(&bytes).await?;
        }
        Ok(())
    }
}

/// Truncates texts of an event that the box or a server could make long.
fn shorten(event: &mut BrokerEvent) {
    let cut = |text: &mut String| {
        if text.len() > MAX_TEXT {
            let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
    };
    match event {
        BrokerEvent::Dns { name, query, rule, reason, .. } => {
            [name, query, reason].into_iter().chain(rule).for_each(cut);
        }
        BrokerEvent::Decided(Decided {
            method, scheme, host, path, rule, reason, secrets, ..
        }) => {
            [method, scheme, host, path, reason].into_iter().chain(rule).for_each(cut);
            secrets.iter_mut().for_each(cut);
        }
        BrokerEvent::Finished(finished) => finished.error.iter_mut().for_each(cut),
        BrokerEvent::SecretUsed { name, slot, host } => {
            [name, slot, host].into_iter().for_each(cut);
        }
        BrokerEvent::SecretMasked { name, host } => [name, host].into_iter().for_each(cut),
        BrokerEvent::Alarm { alarm, detail } => [alarm, detail].into_iter().for_each(cut),
        BrokerEvent::Spent { budget, unit, .. } => [budget, unit].into_iter().for_each(cut),
        BrokerEvent::ModelCalled(called) => called.model.iter_mut().for_each(cut),
        BrokerEvent::Asked(question) | BrokerEvent::QuestionClosed { question, .. } => {
            let Question { method, scheme, host, path, secrets, rule, .. } = &mut **question;
            [method, scheme, host, path, rule].into_iter().for_each(cut);
            secrets.iter_mut().for_each(cut);
        }
    }
}
