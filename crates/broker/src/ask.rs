//! Asks the operator for approval. Each question concerns exactly one request or connection, which
//! waits for the answer.
//!
//! **Invariant:** an [`Approved`] exists only after a positive answer that arrived while its
//! question was open, and the approved request consumes it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::broker::Broker;
use crate::http::Refusal;
use crate::record::{Answer, BrokerEvent, Question, QuestionClosed};

/// The maximum number of questions that wait for the operator; a person cannot review more at once.
const MAX_OPEN: usize = 20;
/// The maximum number of questions to the operator in one run, so that a box cannot fill the
/// ledger.
const MAX_TOTAL: u64 = 10_000;
/// The maximum length of a question to the operator. The operator must see all of it to approve it.
const MAX_TEXT: usize = 3000; // bytes

/// Proof that the operator approved one request or connection. Only a [`Broker`] creates one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Approved(());

/// The questions that wait for an answer of the operator.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    asked: AtomicU64,
}

impl Questions {
    /// Passes the operator's answer to the waiting request, once.
    pub(crate) fn answer(&self, question: u64, answer: Answer) {
        let waiting = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
        if let Some(waiting) = waiting {
            waiting.send(answer).ok(); // the client can have stopped waiting
        }
    }

    /// Opens a question to the operator, or returns `None` if a limit is reached.
    fn open(self: &Arc<Self>) -> Option<(Open, oneshot::Receiver<Answer>)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN {
            return None;
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if number > MAX_TOTAL {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        open.insert(number, answer);
        drop(open);
        Some((Open { questions: Arc::clone(self), number }, answered))
    }
}

/// A question to the operator that is open; dropping this value closes the question.
struct Open {
    questions: Arc<Questions>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.questions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.number);
    }
}

/// A waiting request. Dropping it reports the question as closed, unless an answer arrived.
struct Waiting<'a> {
    broker: &'a Broker,
    question: Question,
    why: Option<QuestionClosed>,
    _open: Open,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            let question = Box::new(self.question.clone());
            self.broker.recorder.send(vec![BrokerEvent::QuestionClosed { question, why }]);
        }
    }
}

impl Broker {
    /// Asks the operator to approve a request and waits for the answer. Returns the approval, or
    /// the refusal for the client; a timeout is a refusal.
    pub(crate) async fn ask(&self, question: Question) -> Result<Approved, Refusal> {
        let (what, rule) = (question.to_string(), question.rule.clone());
        let answer = if what.len() > MAX_TEXT {
            Err(("ask-long", "the request is too long to show to the operator in full".to_owned()))
        } else {
            self.wait_for_answer(question).await
        };
        answer.map_err(|(code, why)| {
            let refusal = Refusal::new(StatusCode::FORBIDDEN, code, format!("{what}: {why}"));
            Refusal { rule: Some(rule), ..refusal }
        })
    }

    /// Asks the operator as [`Broker::ask`] does, but returns a refusal as reason code and
    /// explanation.
    async fn wait_for_answer(
        &self,
        question: Question,
    ) -> Result<Approved, (&'static str, String)> {
        let Some((open, answered)) = self.recorder.questions().open() else {
            return refuse(
                "ask-flood",
                "too many requests already wait for the operator's approval",
            );
        };
        let wait = self.ask_timeout();
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let question = Question { number: open.number, wait: millis, ..question };
        let mut changes = self.changes();
        self.recorder.send(vec![BrokerEvent::Asked(Box::new(question.clone()))]);
        let mut waiting =
            Waiting { broker: self, question, why: Some(QuestionClosed::Gone), _open: open };
        let answer = tokio::select! {
            answer = timeout(wait, answered) => answer,
            // With other rules, the request can need no approval, or take another route.
            _ = changes.changed() => {
                waiting.why = Some(QuestionClosed::Rules);
                let why = "the rules of the box changed while the request waited for approval; try again";
                return refuse("ask-rules", why);
            }
        };
        let answer = answer.inspect_err(|_| waiting.why = Some(QuestionClosed::Timeout));
        if answer.is_ok() {
            waiting.why = None;
        }
        match answer {
            Ok(Ok(Answer::Yes)) => Ok(Approved(())),
            Ok(Ok(Answer::No)) => refuse("ask-refused", "the operator refused the request"),
            Ok(Ok(Answer::Nobody)) => refuse("ask-nobody", NOBODY),
            Ok(Ok(Answer::Unrecorded) | Err(_)) => refuse(
                "ask-refused",
                "the question could not be recorded, so the operator was not asked",
            ),
            Err(_) => refuse(
                "ask-timeout",
                &format!("the operator did not approve it within {}", seconds(wait)),
            ),
        }
    }
}

fn refuse(code: &'static str, why: &str) -> Result<Approved, (&'static str, String)> {
    Err((code, why.to_owned()))
}

const NOBODY: &str = "a rule requires the operator's approval, which this command cannot ask for; in a box of `belljar up`, the request waits for `belljar approve`";

fn seconds(wait: Duration) -> String {
    match wait.as_secs() {
        0 => format!("{} ms", wait.as_millis()),
        seconds => format!("{seconds} s"),
    }
}
