//! Questions to the operator: one for exactly one request or connection, which waits for the answer.
//!
//! **Invariant:** an [`Approved`] exists only after a yes that came while its question was open, and is
//! used up by what was asked about.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::broker::Broker;
use crate::http::Refusal;
use crate::record::{Answer, Question, Unasked, Word};

/// Questions that may be open at once; a person cannot look at more.
const OPEN: usize = 64;
/// Questions of one run: a box must not fill the record.
const IN_ALL: u64 = 10_000;
/// The longest thing that can be asked about: what is not seen is not agreed to.
const SHOWN: usize = 3000; // bytes

/// Proof that the operator said yes to one thing. Only a [`Broker`] makes one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Approved(());

/// The questions that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    asked: AtomicU64,
}

impl Questions {
    /// Hands an answer to whoever waits for it, once.
    pub(crate) fn answer(&self, question: u64, answer: Answer) {
        let waiting = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
        if let Some(waiting) = waiting {
            waiting.send(answer).ok(); // whoever asked may have given up
        }
    }

    /// A place among the open ones, if there is one left.
    fn open(self: &Arc<Self>) -> Option<(Open, oneshot::Receiver<Answer>)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN {
            return None;
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if number > IN_ALL {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        open.insert(number, answer);
        drop(open);
        Some((Open { questions: Arc::clone(self), number }, answered))
    }
}

/// A question that is open for as long as this is there.
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

/// Tells the supervisor that nobody waits for the answer any more, unless one came.
struct Waiting<'a> {
    broker: &'a Broker,
    question: Question,
    why: Option<Unasked>,
    _open: Open,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            let question = Box::new(self.question.clone());
            self.broker.clerk.tell(vec![Word::Unasked { question, why }]);
        }
    }
}

impl Broker {
    /// Asks, and waits for the answer: a yes, or what the program is told. No answer is a no.
    pub(crate) async fn ask(&self, question: Question) -> Result<Approved, Refusal> {
        let (what, rule) = (question.to_string(), question.rule.clone());
        let answer = if what.len() > SHOWN {
            Err(("ask-long", "too long for the operator to see all of it".to_owned()))
        } else {
            self.put(question).await
        };
        answer.map_err(|(code, why)| {
            let refusal = Refusal::new(StatusCode::FORBIDDEN, code, format!("{what}: {why}"));
            Refusal { rule: Some(rule), ..refusal }
        })
    }

    /// The same; a refusal as its word for programs, and why.
    async fn put(&self, question: Question) -> Result<Approved, (&'static str, String)> {
        let Some((open, answered)) = self.clerk.questions().open() else {
            return refuse("ask-flood", "too many questions wait for the operator already");
        };
        let wait = self.ask_timeout();
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let question = Question { number: open.number, wait: millis, ..question };
        let mut changes = self.changes();
        self.clerk.tell(vec![Word::Asked(Box::new(question.clone()))]);
        let mut waiting = Waiting { broker: self, question, why: Some(Unasked::Gone), _open: open };
        let answer = tokio::select! {
            answer = timeout(wait, answered) => answer,
            // What was asked may not be a question any more, or be carried in another way.
            _ = changes.changed() => {
                waiting.why = Some(Unasked::Rules);
                let why = "the rules of the box changed while it waited for the operator; try again";
                return refuse("ask-rules", why);
            }
        };
        let answer = answer.inspect_err(|_| waiting.why = Some(Unasked::Timeout));
        if answer.is_ok() {
            waiting.why = None;
        }
        match answer {
            Ok(Ok(Answer::Yes)) => Ok(Approved(())),
            Ok(Ok(Answer::No)) => refuse("ask-refused", "the operator said no"),
            Ok(Ok(Answer::Nobody)) => refuse("ask-nobody", NOBODY),
            Ok(Ok(Answer::Unrecorded) | Err(_)) => {
                refuse("ask-refused", "the question is not on record, so nobody was asked")
            }
            Err(_) => refuse("ask-timeout", &format!("nobody said yes within {}", seconds(wait))),
        }
    }
}

fn refuse(code: &'static str, why: &str) -> Result<Approved, (&'static str, String)> {
    Err((code, why.to_owned()))
}

const NOBODY: &str = "a rule wants the operator to be asked, and nobody can be asked here; in a box of `belljar up` it waits for `belljar approve`";

fn seconds(wait: Duration) -> String {
    match wait.as_secs() {
        0 => format!("{} ms", wait.as_millis()),
        seconds => format!("{seconds} s"),
    }
}
