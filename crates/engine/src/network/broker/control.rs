//! What the operator moves while a box runs: its rules, and the answers to its questions.
//!
//! Everything goes through the clerk, who puts it on record before the broker hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use belljar_ledger::Digest;
use belljar_model::net::{Policy, Rule, SecretDecl, SecretName};
use rustix::event::EventfdFlags;

use crate::approvals::requests::{BoxRequests, ClaimedAnswer};
use crate::approvals::{DamagedFile, RequestId};

/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why an answer is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(
        "nothing waits for an answer under this number; it may have been answered, or given up"
    )]
    NoSuchQuestion,
    #[error("there is no answer to this question")]
    NoClaim,
    #[error("the answer is about something else than what is asked")]
    OtherDigest,
    #[error(transparent)]
    Damaged(#[from] DamagedFile),
    #[error("{0}")]
    Failed(String),
}

/// Moves the rules of one running box.
#[derive(Debug, Clone)]
pub struct BrokerControl(Arc<Shared>);

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
    /// Where questions wait; none if nobody can answer them.
    requests: Option<BoxRequests>,
    /// What each open question is about.
    open: BTreeMap<u64, Digest>,
    orders: Vec<Order>,
    changes: u64,
    /// How changes went, until somebody takes note.
    outcomes: BTreeMap<u64, Result<(), String>>,
    dark: bool,
}

/// Something that the clerk is to do.
#[derive(Debug)]
pub(super) enum Order {
    Answer { number: u64, id: RequestId, claim: ClaimedAnswer },
    Change { number: u64, policy: Box<Policy> },
}

impl BrokerControl {
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
        self.outcome(
            now,
            number,
            "its broker did not take the rules in time; they may still come into force",
        )
        .map_err(anyhow::Error::msg)
    }

    /// Waits until the clerk has done something.
    fn outcome(&self, mut now: MutexGuard<'_, Now>, number: u64, late: &str) -> Result<(), String> {
        self.ring();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(outcome) = now.outcomes.remove(&number) {
                return outcome;
            }
            if now.dark {
                return Err("its broker is gone, so it has no network at all".to_owned());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late.to_owned());
            }
            let waited = self.0.done.wait_timeout(now, left);
            now = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many questions wait for an answer.
    pub fn questions(&self) -> usize {
        self.now().open.len()
    }

    /// Carries out the answer that was given to a question, once; returns when it is on record.
    pub fn answered(&self, id: RequestId) -> Result<(), AnswerError> {
        let requests = self.now().requests.clone().ok_or(AnswerError::NoSuchQuestion)?;
        let claim = requests.claim(id)?;
        let mut now = self.now();
        let asked = *now.open.get(&id.number).ok_or(AnswerError::NoSuchQuestion)?;
        let claim = claim.ok_or(AnswerError::NoClaim)?;
        if claim.digest != asked {
            requests.refuse_claim(id);
            return Err(AnswerError::OtherDigest);
        }
        now.open.remove(&id.number);
        now.changes += 1;
        let number = now.changes;
        now.orders.push(Order::Answer { number, id, claim });
        let late = "the answer could not be recorded in time; it may still be carried out";
        self.outcome(now, number, late).map_err(AnswerError::Failed)
    }

    /// Whether the broker is gone.
    pub fn is_dark(&self) -> bool {
        self.now().dark
    }

    /// Questions wait here from now on, since somebody can answer them.
    pub(super) fn attend(&self, requests: BoxRequests) {
        self.now().requests = Some(requests);
    }

    /// Where questions wait; none if nobody can answer them.
    pub(super) fn requests(&self) -> Option<BoxRequests> {
        self.now().requests.clone()
    }

    /// Takes answers to a question from now on.
    pub(super) fn open(&self, question: u64, digest: Digest) {
        self.now().open.insert(question, digest);
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
        if outcome.is_ok() {
            self.now().open.clear();
        }
        self.done(number, outcome);
    }

    /// How something went that somebody waits for.
    pub(super) fn done(&self, number: u64, outcome: Result<(), String>) {
        self.now().outcomes.insert(number, outcome);
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
