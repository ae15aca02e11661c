//! Records the events of a broker in the ledger and confirms them to the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_broker::record::{
    Answer, BrokerEvent, EventBatch, FromBroker, MAX_MESSAGE, NOT_KEPT, Question, QuestionClosed,
    Renewed, ToBroker, not_kept,
};
use belljar_init::wire;
use belljar_ledger::{
    Actor, AlarmRaised, ApprovalAsked, ApprovalGiven, ApprovalRefused, BudgetSpent, Digest,
    DnsDecided, Draft, Event, ModelCalled, NetworkChanged, Receipt, RecordError, RequestDecided,
    RequestFinished, SecretMasked, SecretUsed,
};
use belljar_model::RunId;
use belljar_model::net::{Policy, Rule};
use belljar_sys::signal::{SUPERVISOR_SIGNALS, SignalFd};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use super::control::{BrokerControl, Command};
use super::renewals::Renewals;
use super::summary::NetworkSummary;
use crate::approvals::requests::{ClaimedAnswer, RequestVerdict as ApprovalVerdict};
use crate::approvals::{ApprovalOutcome, NewRequest, RequestId, request_digest};
use crate::clock::Clock;
use crate::record::LedgerHandle;

/// Receives and records the events of one broker until the broker exits.
#[derive(Debug)]
pub struct BrokerRecorder {
    socket: OwnedFd,
    /// The process of the broker, and whether this process killed it.
    process: (OwnedFd, Arc<AtomicBool>),
    /// Whether the broker was asked to exit.
    stopping: Arc<AtomicBool>,
    control: BrokerControl,
    /// The digest and ledger index of each question, by its number.
    questions: BTreeMap<u64, (Digest, u64)>,
    /// The numbers of questions with a file that waits for an answer.
    waiting: BTreeSet<u64>,
    /// The writer of renewed secrets; `None` if the broker has no secret.
    renewals: Option<Arc<Renewals>>,
    /// A renewed secret that was received and is not stored yet.
    renewed: Option<Renewed>,
    clock: Clock,
}

/// The maximum delay before events that the broker does not wait for are written to the ledger.
const MAX_DELAY: Duration = Duration::from_millis(20);
/// The maximum number of event batches that are written to the ledger at once.
const MAX_BATCHES: usize = 64;

impl BrokerRecorder {
    pub(super) const fn new(
        socket: OwnedFd,
        process: (OwnedFd, Arc<AtomicBool>),
        stopping: Arc<AtomicBool>,
        control: BrokerControl,
        renewals: Option<Arc<Renewals>>,
        clock: Clock,
    ) -> Self {
        Self {
            socket,
            process,
            stopping,
            control,
            questions: BTreeMap::new(),
            waiting: BTreeSet::new(),
            renewals,
            renewed: None,
            clock,
        }
    }

    /// Records events and executes commands until the broker exits. Returns a summary of the requests.
    pub fn run(mut self, ledger: &LedgerHandle, run: RunId) -> NetworkSummary {
        let _signals = SignalFd::new(&SUPERVISOR_SIGNALS); // blocks signals, which only the main thread reads
        let mut summary = NetworkSummary::default();
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            if self.wait_for_command() {
                self.execute_commands(ledger, run, &mut summary);
            }
            let Some(batches) = self.receive_batches(&mut buffer, run) else { break };
            if !batches.is_empty() {
                summary.add_denials(&batches);
                summary.add_usage(&batches);
                self.record(ledger, run, &batches, &mut summary);
                self.control.note_usage(&summary.usage);
            }
            if let Some(renewed) = self.renewed.take() {
                self.store_renewed(ledger, run, &renewed, &mut summary);
            }
        }
        self.control.set_broker_gone();
        for number in std::mem::take(&mut self.waiting) {
            self.close_file(run, number, ApprovalOutcome::Gone);
        }
        if !self.stopping.load(Ordering::Acquire) || self.was_killed() {
            summary.broker_gone = true;
            let detail = "it ended before its box, which has no network from here on".to_owned();
            let alarm = AlarmRaised { alarm: "broker-gone".to_owned(), detail };
            let draft = Draft::new(alarm).of_run(run).by(Actor::Supervisor);
            summary.unrecorded = summary.unrecorded.or(ledger.record(draft).err());
        }
        summary
    }

    /// Waits until the broker has exited. Returns whether a signal ended it that this process did not send.
    ///
    /// A killed broker can close the connections of its box first. If the program then ends at once, the
    /// broker seems to exit because it was asked to.
    fn was_killed(&self) -> bool {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let (process, is_forced) = &self.process;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = loop {
            match waitid(WaitId::PidFd(process.as_fd()), options) {
                Err(rustix::io::Errno::INTR) => {}
                status => break status,
            }
        };
        let is_killed =
            status.is_ok_and(|status| status.is_some_and(|it| it.killed() || it.dumped()));
        is_killed && !is_forced.load(Ordering::Acquire)
    }

    /// Waits for an event of the broker or a command. Returns whether there is a command.
    fn wait_for_command(&self) -> bool {
        let mut watched = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(self.control.wake_fd(), PollFlags::IN),
        ];
        while rustix::event::poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        let [_, wake_fd] = watched;
        wake_fd.revents().contains(PollFlags::IN)
    }

    /// Receives all available event batches; `None` when the broker has exited.
    ///
    /// While the broker does not wait for a confirmation, more events are awaited for a short time, so that
    /// several of them are written to the ledger together.
    fn receive_batches(&mut self, buffer: &mut [u8], run: RunId) -> Option<Vec<EventBatch>> {
        let mut batches: Vec<EventBatch> = Vec::new();
        let deadline = Instant::now() + MAX_DELAY;
        while batches.len() < MAX_BATCHES {
            match self.receive(buffer) {
                Received::Events(batch) => {
                    self.close_questions(run, &batch);
                    batches.push(batch);
                }
                Received::Changed(number) => self.control.finish_change(number, Ok(())),
                Received::Exhausted => self.control.lease_is_exhausted(),
                Received::Renewed(renewed) => {
                    self.renewed = Some(renewed);
                    break;
                }
                Received::Closed if batches.is_empty() => return None,
                Received::Closed => break,
                Received::Nothing if batches.is_empty() => break,
                Received::Nothing => {
                    let broker_waits = batches.iter().any(|batch| batch.id != 0);
                    if broker_waits || !self.is_readable_before(deadline) {
                        break;
                    }
                }
            }
        }
        Some(batches)
    }

    /// Waits until `deadline` for a message of the broker. A closed socket counts as no message.
    fn is_readable_before(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        let ready = rustix::event::poll(&mut watched, Some(&timespec(left)));
        let [watched] = watched;
        ready.is_ok_and(|count| count > 0) && !watched.revents().contains(PollFlags::HUP)
    }

    /// Receives one message of the broker without waiting.
    fn receive(&self, buffer: &mut [u8]) -> Received {
        let length = loop {
            match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Received::Nothing,
                Ok((length, _)) if length > 0 => break length,
                Ok(_) | Err(_) => return Received::Closed,
            }
        };
        match wire::decode(buffer.get(..length).unwrap_or_default()) {
            Ok(FromBroker::Events(batch)) => Received::Events(batch),
            Ok(FromBroker::Changed(number)) => Received::Changed(number),
            Ok(FromBroker::Exhausted) => Received::Exhausted,
            Ok(FromBroker::Renewed(renewed)) => Received::Renewed(renewed),
            // A broker that sends invalid messages is treated as if it had exited.
            Err(_) => Received::Closed,
        }
    }

    /// Records the pending commands of the operator in the ledger, then executes them.
    fn execute_commands(
        &mut self,
        ledger: &LedgerHandle,
        run: RunId,
        summary: &mut NetworkSummary,
    ) {
        for command in self.control.take_commands() {
            match command {
                Command::Answer { number, id, claim } => {
                    let question = id.number;
                    let recorded = self.record_answer(ledger, run, question, &claim);
                    let answer = match (&recorded, claim.verdict) {
                        (Ok(_), ApprovalVerdict::Allow) => Answer::Yes,
                        (Ok(_), ApprovalVerdict::Deny) => Answer::No,
                        (Err(_), _) => Answer::Unrecorded,
                    };
                    let result = match &recorded {
                        Ok(_) => self.settle(id).map_err(|error| {
                            format!(
                                "the answer took effect, but its file could not be updated: {error}"
                            )
                        }),
                        Err(error) => {
                            self.close_file_if_waiting(run, question, ApprovalOutcome::Unrecorded);
                            Err(format!("cannot record the answer in the ledger: {error}"))
                        }
                    };
                    tracing::info!(question, ?answer, "approval answered");
                    summary.note_error(recorded);
                    self.send(&ToBroker::Answered { question, answer }).ok(); // fails if the broker has exited
                    self.control.finish(number, result);
                }
                Command::Change { number, policy } => {
                    let draft = Draft::new(network_changed(&policy)).of_run(run);
                    let sent = match ledger.record(draft) {
                        Ok(_) => self.send(&ToBroker::Rules { change: number, policy }).map_err(
                            |error| format!("cannot send the rules to the broker: {error}"),
                        ),
                        Err(error) => {
                            Err(format!("cannot record the change in the ledger: {error}"))
                        }
                    };
                    tracing::info!(
                        change = number,
                        accepted = sent.is_ok(),
                        "network rules change"
                    );
                    if let Err(why) = sent {
                        self.control.finish_change(number, Err(why));
                    }
                }
                // The driver has recorded the lease.
                Command::Budget { number, budget } => {
                    if let Err(error) = self.send(&ToBroker::Budget { change: number, budget }) {
                        let why = format!("cannot send the budget to the broker: {error}");
                        self.control.finish(number, Err(why));
                    }
                }
            }
        }
    }

    /// Records an answer to a question in the ledger.
    fn record_answer(
        &self,
        ledger: &LedgerHandle,
        run: RunId,
        question: u64,
        claim: &ClaimedAnswer,
    ) -> Result<Receipt, RecordError> {
        let known = self.questions.get(&question);
        let bound_to = known.map_or_else(|| Digest::of(&[]), |(bound_to, _)| *bound_to);
        let by = claim.by.to_string();
        let event: Event = match claim.verdict {
            ApprovalVerdict::Allow => ApprovalGiven::new(by, "allow".to_owned(), bound_to).into(),
            ApprovalVerdict::Deny => {
                ApprovalRefused::new("operator".to_owned(), bound_to, Some(by)).into()
            }
        };
        let cause = known.map(|(_, index)| *index);
        ledger.record(Draft::new(event).of_run(run).because_of_index(cause))
    }

    /// Opens or closes the question of a recorded event. `index` is the ledger index of the event.
    fn update_questions(
        &mut self,
        ledger: &LedgerHandle,
        run: RunId,
        event: &BrokerEvent,
        index: u64,
    ) {
        match event {
            BrokerEvent::Asked(question) => {
                let bound_to = question_digest(question, run);
                self.questions.insert(question.number, (bound_to, index));
                let refused = match self.open(run, question, index) {
                    Ok(true) => return,
                    Ok(false) => ("nobody", Answer::Nobody),
                    Err(_) => ("unrecorded", Answer::Unrecorded),
                };
                let (why, answer) = refused;
                let refused = ApprovalRefused::new(why.to_owned(), bound_to, None);
                let draft = Draft::new(refused).of_run(run).by(Actor::Supervisor);
                ledger.record(draft.because_of_index(Some(index))).ok(); // the answer is a denial in any case
                self.send(&ToBroker::Answered { question: question.number, answer }).ok();
            }
            BrokerEvent::QuestionClosed { question, why } => {
                self.control.close(question.number);
                self.close_file_if_waiting(run, question.number, outcome(*why));
            }
            BrokerEvent::Dns { .. }
            | BrokerEvent::Decided(_)
            | BrokerEvent::Finished(_)
            | BrokerEvent::SecretUsed { .. }
            | BrokerEvent::SecretMasked { .. }
            | BrokerEvent::Alarm { .. }
            | BrokerEvent::Spent { .. }
            | BrokerEvent::ModelCalled(_) => {}
        }
    }

    /// Creates the file in which a question waits for its answer; `false` if no person can answer.
    fn open(&mut self, run: RunId, question: &Question, event: u64) -> std::io::Result<bool> {
        let Some(requests) = self.control.requests() else { return Ok(false) };
        let (asked, number) = (self.clock.millis(), question.number);
        // Accept answers before the file exists, because a person may answer as soon as it exists.
        self.control.open(number, question_digest(question, run));
        let opened = requests.open(NewRequest {
            name: requests.name().clone(),
            id: RequestId { run, number },
            event,
            text: question.to_string(),
            secrets: question.secrets.clone(),
            rule: question.rule.clone(),
            asked,
            deadline: asked.saturating_add(question.wait),
        });
        match opened {
            Ok(()) => self.waiting.insert(number),
            Err(error) => {
                self.control.close(number);
                return Err(error);
            }
        };
        Ok(true)
    }

    /// Closes the questions that the broker gave up, before the ledger has the event.
    ///
    /// A person who answers such a question gets an error at once.
    fn close_questions(&mut self, run: RunId, batch: &EventBatch) {
        for event in &batch.events {
            if let BrokerEvent::QuestionClosed { question, why } = event {
                self.control.close(question.number);
                self.close_file_if_waiting(run, question.number, outcome(*why));
            }
        }
    }

    /// Marks a question as answered, after the answer was recorded.
    fn settle(&mut self, id: RequestId) -> std::io::Result<()> {
        self.waiting.remove(&id.number);
        self.control.requests().map_or(Ok(()), |requests| requests.settle(id))
    }

    /// Closes the file of a question if the question waits for an answer.
    fn close_file_if_waiting(&mut self, run: RunId, number: u64, outcome: ApprovalOutcome) {
        if self.waiting.remove(&number) {
            self.close_file(run, number, outcome);
        }
    }

    /// Writes the outcome of a question to its file.
    fn close_file(&self, run: RunId, number: u64, outcome: ApprovalOutcome) {
        if let (Some(requests), Some((digest, _))) =
            (self.control.requests(), self.questions.get(&number))
        {
            requests.close(RequestId { run, number }, *digest, outcome, self.clock.millis());
        }
    }

    /// Stores a renewed secret. A failure raises an alarm, and the broker continues.
    fn store_renewed(
        &self,
        ledger: &LedgerHandle,
        run: RunId,
        renewed: &Renewed,
        summary: &mut NetworkSummary,
    ) {
        let stored = match &self.renewals {
            Some(renewals) => renewals.store(ledger, run, renewed),
            None => Err(anyhow::anyhow!("the box has no secrets")),
        };
        let reply = match stored {
            Ok(first) => ToBroker::Recorded { id: renewed.id, first },
            Err(error) => {
                let detail = not_kept(&renewed.name, &format!("{error:#}"));
                summary.add_alarm(NOT_KEPT, &detail);
                let alarm = AlarmRaised { alarm: NOT_KEPT.to_owned(), detail };
                let draft = Draft::new(alarm).of_run(run).by(Actor::Supervisor);
                summary.note_error(ledger.record(draft));
                ToBroker::Refused { id: renewed.id }
            }
        };
        self.send(&reply).ok(); // fails if the broker has exited
    }

    /// Sends a message to the broker.
    fn send(&self, message: &ToBroker) -> std::io::Result<()> {
        wire::send(self.socket.as_fd(), message, &[])
    }

    /// Records event batches in the ledger and confirms them to the broker.
    fn record(
        &mut self,
        ledger: &LedgerHandle,
        run: RunId,
        batches: &[EventBatch],
        summary: &mut NetworkSummary,
    ) {
        let events = || batches.iter().flat_map(|batch| &batch.events);
        let drafts = events().map(|event| self.draft(event, run));
        let recorded = ledger.record_all(drafts.collect());
        tracing::trace!(
            events = events().count(),
            recorded = recorded.is_ok(),
            "broker sent events"
        );
        let receipts = recorded.as_deref().unwrap_or_default();
        summary.add_requests(batches, receipts);
        for (event, receipt) in events().zip(receipts) {
            self.update_questions(ledger, run, event, receipt.index());
        }
        let mut receipts = receipts.iter();
        for batch in batches {
            let mut batch_receipts = receipts.by_ref().take(batch.events.len());
            let first = batch_receipts.next().map(Receipt::index);
            batch_receipts.for_each(drop);
            if batch.id == 0 {
                continue;
            }
            let reply = match first {
                Some(first) => ToBroker::Recorded { id: batch.id, first },
                None => ToBroker::Refused { id: batch.id },
            };
            self.send(&reply).ok(); // fails if the broker has exited
        }
        if recorded.is_err() {
            for event in events() {
                if let BrokerEvent::Asked(question) = event {
                    let (question, answer) = (question.number, Answer::Unrecorded);
                    self.send(&ToBroker::Answered { question, answer }).ok(); // see above
                }
            }
        }
        summary.note_error(recorded);
    }
}

/// The result of one attempt to receive a message from a broker.
enum Received {
    Events(EventBatch),
    /// The broker applies the rules of the command with this number.
    Changed(u64),
    /// A request waits for a larger lease.
    Exhausted,
    /// The broker encrypted a renewed secret.
    Renewed(Renewed),
    /// No message is available at present.
    Nothing,
    /// The broker exited or sent an invalid message.
    Closed,
}

/// Converts the reason for closing a question to the outcome in its file.
const fn outcome(why: QuestionClosed) -> ApprovalOutcome {
    match why {
        QuestionClosed::Timeout => ApprovalOutcome::Expired,
        QuestionClosed::Gone => ApprovalOutcome::Withdrawn,
        QuestionClosed::Rules => ApprovalOutcome::RulesChanged,
    }
}

/// Returns the digest of a question, which covers the run, the number and the text of the question.
fn question_digest(question: &Question, run: RunId) -> Digest {
    request_digest(RequestId { run, number: question.number }, &question.to_string())
}

/// Returns the ledger event for a change of the network rules.
fn network_changed(policy: &Policy) -> NetworkChanged {
    let ids = |rules: &[Rule]| rules.iter().map(|rule| rule.id.clone()).collect();
    NetworkChanged {
        net: policy.net.to_string(),
        policy: Digest::of(&[&serde_json::to_vec(policy).unwrap_or_default()]),
        allow: ids(&policy.allow),
        deny: ids(&policy.deny),
        ask: ids(&policy.ask),
    }
}

impl BrokerRecorder {
    /// Converts an event of the broker to a ledger entry, with the index of its cause.
    fn draft(&self, event: &BrokerEvent, run: RunId) -> Draft {
        let draft = draft(event, run);
        let BrokerEvent::QuestionClosed { question, .. } = event else { return draft };
        draft.because_of_index(self.questions.get(&question.number).map(|(_, index)| *index))
    }
}

/// Converts an event of the broker to a ledger entry.
fn draft(event: &BrokerEvent, run: RunId) -> Draft {
    let (event, cause): (Event, Option<u64>) = match event.clone() {
        BrokerEvent::Dns { name, query, verdict, rule, reason } => {
            let verdict = verdict.name().to_owned();
            (DnsDecided { name, query, verdict, rule, reason }.into(), None)
        }
        BrokerEvent::Decided(decided) => {
            let event = RequestDecided {
                method: decided.method,
                scheme: decided.scheme,
                host: decided.host,
                port: decided.port.into(),
                path: decided.path,
                verdict: decided.verdict.name().to_owned(),
                rule: decided.rule,
                reason: decided.reason,
                secrets: decided.secrets,
                body: None,
                upgrade: decided.is_websocket.then(|| "websocket".to_owned()),
            };
            (event.into(), None)
        }
        BrokerEvent::Finished(finished) => {
            let event = RequestFinished {
                status: finished.status.map(u64::from),
                sent_bytes: finished.sent,
                received_bytes: finished.received,
                micros: finished.micros,
                body: None,
                error: finished.error,
            };
            (event.into(), Some(finished.cause))
        }
        BrokerEvent::SecretUsed { name, slot, host } => {
            (SecretUsed { name, slot, host }.into(), None)
        }
        BrokerEvent::SecretMasked { name, host } => (SecretMasked { name, host }.into(), None),
        BrokerEvent::Alarm { alarm, detail } => (AlarmRaised { alarm, detail }.into(), None),
        BrokerEvent::Spent { budget, unit, amount, total } => {
            (BudgetSpent { budget, unit, amount, total }.into(), None)
        }
        BrokerEvent::ModelCalled(called) => {
            let cause = called.cause;
            let called = ModelCalled {
                provider: called.provider,
                model: called.model,
                input: called.input,
                cache_read: called.cache_read,
                cache_write: called.cache_write,
                output: called.output,
                microusd: called.microusd,
                complete: called.is_complete,
            };
            (called.into(), Some(cause))
        }
        BrokerEvent::Asked(question) => {
            let what = format!("{question}, by the rule `{}`", question.rule);
            let bound_to = question_digest(&question, run);
            (ApprovalAsked::new(what, bound_to).into(), None)
        }
        BrokerEvent::QuestionClosed { question, why } => {
            let bound_to = question_digest(&question, run);
            let why = why.name().to_owned();
            (ApprovalRefused::new(why, bound_to, None).into(), None)
        }
    };
    Draft::new(event).of_run(run).by(Actor::Broker).because_of_index(cause)
}
