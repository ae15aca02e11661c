//! Changes the rules of a running box and delivers answers to its requests for approval.
//!
//! The recorder thread records every command in the ledger before it sends the command to the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use belljar_ledger::Digest;
use belljar_model::net::{Budget, Policy, Rule, SecretDecl, SecretName};
use rustix::event::EventfdFlags;

use super::lease::LeaseWatch;
use super::summary::NetworkUsage;
use crate::approvals::requests::{BoxRequests, ClaimedAnswer};
use crate::approvals::{DamagedFile, RequestId};

/// The maximum time that a caller waits for the result of a command to the recorder thread.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// An error that prevents an answer to a request for approval from taking effect.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(
        "nothing waits for an answer under this number; the request may be answered or expired"
    )]
    NoSuchRequest,
    #[error("there is no answer to this request for approval")]
    NoClaim,
    #[error("the answer belongs to another request for approval: the digests differ")]
    OtherDigest,
    #[error(transparent)]
    Damaged(#[from] DamagedFile),
    #[error("{0}")]
    Failed(String),
}

/// A handle to the broker of one running box: changes its rules and delivers answers.
#[derive(Debug, Clone)]
pub struct BrokerControl(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// An eventfd that wakes the recorder thread.
    wake_fd: OwnedFd,
    /// The secrets that the broker received when it started.
    secrets: BTreeSet<SecretName>,
    state: Mutex<ControlState>,
    finished: Condvar,
}

/// The state that callers share with the recorder thread.
#[derive(Debug, Default)]
struct ControlState {
    /// The store of requests for approval; `None` if no person can answer them.
    requests: Option<BoxRequests>,
    /// The lease that the usage of the box is reported to.
    lease: Option<LeaseWatch>,
    /// The digest of each open request, by its number.
    open: BTreeMap<u64, Digest>,
    /// Commands that the recorder thread has not taken yet.
    commands: Vec<Command>,
    /// The number of the last command.
    last_command: u64,
    /// The results of commands, until their callers take them.
    results: BTreeMap<u64, Result<(), String>>,
    broker_gone: bool,
}

/// A command for the recorder thread.
#[derive(Debug)]
pub(super) enum Command {
    Answer { number: u64, id: RequestId, claim: ClaimedAnswer },
    Change { number: u64, policy: Box<Policy> },
    Budget { number: u64, budget: Budget },
}

impl BrokerControl {
    pub(super) fn new(policy: &Policy) -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake_fd = rustix::event::eventfd(0, flags)?;
        let secrets = policy.secrets.iter().map(|secret| secret.name.clone()).collect();
        let (state, finished) = (Mutex::default(), Condvar::new());
        Ok(Self(Arc::new(Shared { wake_fd, secrets, state, finished })))
    }

    /// Replaces the rules of the box. Returns when the broker applies them.
    pub fn change_rules(&self, policy: &Policy) -> anyhow::Result<()> {
        self.check_secrets(policy)?;
        let mut state = self.state();
        state.last_command += 1;
        let number = state.last_command;
        state.commands.push(Command::Change { number, policy: Box::new(policy.clone()) });
        self.wait_for_result(
            state,
            number,
            "the broker of the box did not confirm the new rules in time; they may still take effect",
        )
        .map_err(anyhow::Error::msg)
    }

    /// Replaces the budget of the box. Returns when the broker applies it.
    pub(super) fn change_budget(&self, budget: Budget) -> Result<(), String> {
        let mut state = self.state();
        state.last_command += 1;
        let number = state.last_command;
        state.commands.push(Command::Budget { number, budget });
        let late = "the broker of the box did not confirm the new budget in time";
        self.wait_for_result(state, number, late)
    }

    pub(super) fn follow(&self, lease: LeaseWatch) {
        self.state().lease = Some(lease);
    }

    /// Reports what the box has used so far to its lease.
    pub(super) fn note_usage(&self, usage: &NetworkUsage) {
        let lease = self.state().lease.clone();
        if let Some(lease) = lease {
            lease.note(usage);
        }
    }

    /// Asks for a larger lease, because a request waits for it.
    pub(super) fn lease_is_exhausted(&self) {
        let lease = self.state().lease.clone();
        if let Some(lease) = lease {
            lease.ask();
        }
    }

    /// Wakes the recorder thread and waits for the result of a command. `late` is the error of a timeout.
    fn wait_for_result(
        &self,
        mut state: MutexGuard<'_, ControlState>,
        number: u64,
        late: &str,
    ) -> Result<(), String> {
        self.wake();
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        loop {
            if let Some(result) = state.results.remove(&number) {
                return result;
            }
            if state.broker_gone {
                return Err("the broker of the box exited, so the box has no network".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late.to_owned());
            }
            let waited = self.0.finished.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the number of requests for approval that wait for an answer.
    pub fn open_requests(&self) -> usize {
        self.state().open.len()
    }

    /// Delivers the answer to a request for approval, once. Returns when the answer is in the ledger.
    pub fn apply_answer(&self, id: RequestId) -> Result<(), AnswerError> {
        let requests = self.state().requests.clone().ok_or(AnswerError::NoSuchRequest)?;
        let claim = requests.claim(id)?;
        let mut state = self.state();
        let digest = *state.open.get(&id.number).ok_or(AnswerError::NoSuchRequest)?;
        let claim = claim.ok_or(AnswerError::NoClaim)?;
        if claim.digest != digest {
            requests.refuse_claim(id);
            return Err(AnswerError::OtherDigest);
        }
        state.open.remove(&id.number);
        state.last_command += 1;
        let number = state.last_command;
        state.commands.push(Command::Answer { number, id, claim });
        let late = "the answer was not recorded in time; it may still take effect";
        self.wait_for_result(state, number, late).map_err(AnswerError::Failed)
    }

    /// Returns whether the broker process has exited.
    pub fn is_broker_gone(&self) -> bool {
        self.state().broker_gone
    }

    /// Sets the store in which requests for approval wait for a person's answer.
    pub(super) fn accept_requests(&self, requests: BoxRequests) {
        self.state().requests = Some(requests);
    }

    /// Returns the store of requests for approval; `None` if no person can answer them.
    pub(super) fn requests(&self) -> Option<BoxRequests> {
        self.state().requests.clone()
    }

    /// Accepts answers to a request for approval from now on.
    pub(super) fn open(&self, number: u64, digest: Digest) {
        self.state().open.insert(number, digest);
    }

    /// Stops accepting answers to a request for approval.
    pub(super) fn close(&self, number: u64) {
        self.state().open.remove(&number);
    }

    /// Takes all pending commands and resets the eventfd.
    pub(super) fn take_commands(&self) -> Vec<Command> {
        let mut state = self.state();
        rustix::io::read(&self.0.wake_fd, &mut [0_u8; 8]).ok(); // fails if the counter is zero
        std::mem::take(&mut state.commands)
    }

    /// Returns the eventfd that becomes readable when there are commands.
    pub(super) fn wake_fd(&self) -> &OwnedFd {
        &self.0.wake_fd
    }

    /// Reports the result of a change of rules. A successful change closes all open requests.
    pub(super) fn finish_change(&self, number: u64, result: Result<(), String>) {
        if result.is_ok() {
            self.state().open.clear();
        }
        self.finish(number, result);
    }

    /// Reports the result of a command to its waiting caller.
    pub(super) fn finish(&self, number: u64, result: Result<(), String>) {
        self.state().results.insert(number, result);
        self.0.finished.notify_all();
    }

    /// Notes that the broker exited, and wakes all waiting callers.
    pub(super) fn set_broker_gone(&self) {
        let mut state = self.state();
        state.broker_gone = true;
        state.open.clear();
        self.0.finished.notify_all();
    }

    /// Returns whether the broker received a secret when it started.
    pub(crate) fn has_secret(&self, name: &SecretName) -> bool {
        self.0.secrets.contains(name)
    }

    /// Checks that the broker has every secret that a policy names. A broker gets secrets only at its start.
    fn check_secrets(&self, policy: &Policy) -> anyhow::Result<()> {
        let rules = policy.allow.iter().chain(&policy.ask).filter_map(Rule::http);
        let used = rules.flat_map(|http| &http.secrets);
        let declared = policy.secrets.iter().map(|SecretDecl { name, .. }| name);
        match used.chain(declared).find(|name| !self.0.secrets.contains(name)) {
            Some(name) => bail!(
                "the box has no secret {name}, and secrets cannot be added while it runs; stop the box and start it again with --secret {name}"
            ),
            None => Ok(()),
        }
    }

    /// Wakes the recorder thread.
    fn wake(&self) {
        // Fails only if the counter is full, and then the eventfd is already readable.
        rustix::io::write(&self.0.wake_fd, &1_u64.to_ne_bytes()).ok();
    }

    fn state(&self) -> MutexGuard<'_, ControlState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
