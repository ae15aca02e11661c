//! What the operator moves while a box runs: its rules, and the answers to its questions.
//!
//! Everything goes through the clerk, who puts it on record before the broker hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use belljar_model::net::{Policy, Rule, SecretDecl, SecretName};
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};

/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that waits for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub id: u64,
    /// Milliseconds since the epoch: when it was asked, and until when it waits.
    pub asked: u64,
    pub until: u64,
    /// What is asked for, in one line that is safe to show.
    pub text: String,
    /// The secrets that would go along, by name.
    pub secret: Option<String>,
}

/// Nobody waits for an answer of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing waits for an answer under this number; it may have been answered, or given up")]
pub struct NoSuchQuestion;

/// Moves the rules of one running box.
#[derive(Debug, Clone)]
pub struct Lever(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Wakes the clerk.
    bell: OwnedFd,
    /// The secrets whose values the broker has.
    secrets: BTreeSet<SecretName>,
    now: Mutex<Now>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    /// Somebody can answer questions.
    attended: bool,
    open: BTreeMap<u64, Question>,
    orders: Vec<Order>,
    changes: u64,
    /// How changes went, until somebody takes note.
    outcomes: BTreeMap<u64, Result<(), String>>,
    dark: bool,
}

/// Something that the clerk is to do.
#[derive(Debug)]
pub(super) enum Order {
    Answer { question: u64, yes: bool },
    Change { number: u64, policy: Box<Policy> },
}

impl Lever {
    pub(super) fn new(policy: &Policy) -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)?;
        let secrets = policy.secrets.iter().map(|secret| secret.name.clone()).collect();
        let (now, done) = (Mutex::default(), Condvar::new());
        Ok(Self(Arc::new(Shared { bell, secrets, now, done })))
    }

    /// Puts other rules into force; returns when the broker has them.
    pub fn change(&self, policy: &Policy) -> anyhow::Result<()> {
        self.check_secrets(policy)?;
        let mut now = self.now();
        now.changes += 1;
        let number = now.changes;
        now.orders.push(Order::Change { number, policy: Box::new(policy.clone()) });
        self.ring();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(outcome) = now.outcomes.remove(&number) {
                return outcome.map_err(anyhow::Error::msg);
            }
            if now.dark {
                bail!("its broker is gone, so it has no network at all");
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("its broker did not take the rules in time; they may still come into force");
            }
            let waited = self.0.done.wait_timeout(now, left);
            now = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What waits for an answer, oldest first.
    pub fn questions(&self) -> Vec<Question> {
        self.now().open.values().cloned().collect()
    }

    /// Answers one question, once.
    pub fn answer(&self, id: u64, yes: bool) -> Result<(), NoSuchQuestion> {
        let mut now = self.now();
        now.open.remove(&id).ok_or(NoSuchQuestion)?;
        now.orders.push(Order::Answer { question: id, yes });
        self.ring();
        Ok(())
    }

    /// Whether the broker is gone.
    pub fn is_dark(&self) -> bool {
        self.now().dark
    }

    /// Questions wait from now on, since somebody can answer them.
    pub(super) fn attend(&self) {
        self.now().attended = true;
    }

    /// Opens a question, if somebody can answer it.
    pub(super) fn open(&self, question: Question) -> bool {
        let mut now = self.now();
        if now.attended {
            now.open.insert(question.id, question);
        }
        now.attended
    }

    /// Nobody waits for the answer any more.
    pub(super) fn close(&self, question: u64) {
        self.now().open.remove(&question);
    }

    /// All that is to be done; the bell is silent then.
    pub(super) fn orders(&self) -> Vec<Order> {
        let mut now = self.now();
        rustix::io::read(&self.0.bell, &mut [0_u8; 8]).ok(); // nothing rang
        std::mem::take(&mut now.orders)
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        &self.0.bell
    }

    /// How a change went. One that came into force ended every question before it.
    pub(super) fn changed(&self, number: u64, outcome: Result<(), String>) {
        let mut now = self.now();
        if outcome.is_ok() {
            now.open.clear();
        }
        now.outcomes.insert(number, outcome);
        self.0.done.notify_all();
    }

    /// The broker is gone.
    pub(super) fn go_dark(&self) {
        let mut now = self.now();
        now.dark = true;
        now.open.clear();
        self.0.done.notify_all();
    }

    /// The broker got the values of secrets when it started, and no more after that.
    fn check_secrets(&self, policy: &Policy) -> anyhow::Result<()> {
        let rules = policy.allow.iter().chain(&policy.ask).filter_map(Rule::http);
        let of_rules = rules.flat_map(|http| &http.secrets);
        let declared = policy.secrets.iter().map(|SecretDecl { name, .. }| name);
        match of_rules.chain(declared).find(|name| !self.0.secrets.contains(name)) {
            Some(name) => bail!(
                "the secret {name} is not in the box, and none can be added while it runs; stop it and start it again with --secret {name}"
            ),
            None => Ok(()),
        }
    }

    fn ring(&self) {
        rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes()).ok(); // full: it rings already
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
