//! Takes what the broker says to the ledger, and gives it the proof.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_broker::record::{
    Answer, BrokerEvent, EventBatch, FromBroker, MAX_MESSAGE, NOT_KEPT, Question as Asking,
    QuestionClosed, Renewed, ToBroker, not_kept,
};
use belljar_init::wire;
use belljar_ledger::{
    Actor, AlarmRaised, ApprovalAsked, ApprovalGiven, ApprovalRefused, BudgetSpent, Digest,
    DnsDecided, Draft, Event, NetworkChanged, Receipt, RecordError, RequestDecided,
    RequestFinished, SecretUsed,
};
use belljar_model::RunId;
use belljar_model::net::{Policy, Rule};
use belljar_sys::signal::{SUPERVISOR_SIGNALS, SignalFd};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use super::control::{BrokerControl, Order};
use super::renewals::Renewals;
use super::summary::NetworkSummary;
use crate::approvals::requests::ClaimedAnswer;
use crate::approvals::{
    ApprovalOutcome, NewRequest, RequestId, Verdict as Approved, request_digest,
};
use crate::clock::Clock;
use crate::record::LedgerHandle;

/// Hears one broker until it is gone.
#[derive(Debug)]
pub struct BrokerRecorder {
    socket: OwnedFd,
    dismissed: Arc<AtomicBool>,
    control: BrokerControl,
    /// What each question was about, and where that is in the ledger.
    asked: BTreeMap<u64, (Digest, u64)>,
    /// Those whose files are open.
    waiting: BTreeSet<u64>,
    /// Where renewed secrets go; none if the broker has no secret.
    renewals: Option<Arc<Renewals>>,
    /// The one that came and is not stored yet.
    renewed: Option<Renewed>,
    clock: Clock,
}

/// So long may what nobody waits for stay off the disk.
const PATIENCE: Duration = Duration::from_millis(20);
/// So many sayings go to the disk together.
const TOGETHER: usize = 64;

impl BrokerRecorder {
    pub(super) const fn new(
        socket: OwnedFd,
        dismissed: Arc<AtomicBool>,
        control: BrokerControl,
        renewals: Option<Arc<Renewals>>,
        clock: Clock,
    ) -> Self {
        Self {
            socket,
            dismissed,
            control,
            asked: BTreeMap::new(),
            waiting: BTreeSet::new(),
            renewals,
            renewed: None,
            clock,
        }
    }

    /// Records what comes until the broker ends.
    pub fn work(mut self, ledger: &LedgerHandle, run: RunId) -> NetworkSummary {
        let _signals = SignalFd::new(&SUPERVISOR_SIGNALS); // the main thread's to read; without, one could end the run unheard
        let mut account = NetworkSummary::default();
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            if self.is_called() {
                self.obey(ledger, run, &mut account);
            }
            let Some(sayings) = self.gather(&mut buffer, run) else { break };
            if !sayings.is_empty() {
                account.note(&sayings);
                self.record(ledger, run, &sayings, &mut account);
            }
            if let Some(renewed) = self.renewed.take() {
                self.renew(ledger, run, &renewed, &mut account);
            }
        }
        self.control.go_dark();
        for number in std::mem::take(&mut self.waiting) {
            self.close_file(run, number, ApprovalOutcome::Gone);
        }
        if !self.dismissed.load(Ordering::Acquire) {
            account.is_dark = true;
            let detail = "it ended before its box, which has no network from here on".to_owned();
            let alarm = AlarmRaised { alarm: "broker-gone".to_owned(), detail };
            let draft = Draft::new(alarm).of_run(run).by(Actor::Supervisor);
            account.unrecorded = account.unrecorded.or(ledger.record(draft).err());
        }
        account
    }

    /// Waits until there is something to hear or to do: whether there is something to do.
    fn is_called(&self) -> bool {
        let mut watched = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(self.control.bell(), PollFlags::IN),
        ];
        while rustix::event::poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        let [_, bell] = watched;
        bell.revents().contains(PollFlags::IN)
    }

    /// All that is there; none when the broker is gone. While nobody waits for an answer,
    /// a little more is waited for: how a request went goes to the disk with the next decision.
    fn gather(&mut self, buffer: &mut [u8], run: RunId) -> Option<Vec<EventBatch>> {
        let mut sayings: Vec<EventBatch> = Vec::new();
        let end = Instant::now() + PATIENCE;
        while sayings.len() < TOGETHER {
            match self.hear(buffer) {
                Spoken::Words(saying) => {
                    self.close(run, &saying);
                    sayings.push(saying);
                }
                Spoken::Changed(number) => self.control.changed(number, Ok(())),
                Spoken::Renewed(renewed) => {
                    self.renewed = Some(renewed);
                    break;
                }
                Spoken::End if sayings.is_empty() => return None,
                Spoken::End => break,
                Spoken::Nothing if sayings.is_empty() => break,
                Spoken::Nothing => {
                    let nobody_waits = sayings.iter().all(|saying| saying.id == 0);
                    if !(nobody_waits && self.comes_until(end)) {
                        break;
                    }
                }
            }
        }
        Some(sayings)
    }

    /// Whether something can be heard before `end`. An end of the socket cannot.
    fn comes_until(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        let ready = rustix::event::poll(&mut watched, Some(&timespec(left)));
        let [watched] = watched;
        ready.is_ok_and(|count| count > 0) && !watched.revents().contains(PollFlags::HUP)
    }

    fn hear(&self, buffer: &mut [u8]) -> Spoken {
        let length = loop {
            match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Spoken::Nothing,
                Ok((length, _)) if length > 0 => break length,
                Ok(_) | Err(_) => return Spoken::End,
            }
        };
        match wire::decode(buffer.get(..length).unwrap_or_default()) {
            Ok(FromBroker::Events(saying)) => Spoken::Words(saying),
            Ok(FromBroker::Changed(number)) => Spoken::Changed(number),
            Ok(FromBroker::Renewed(renewed)) => Spoken::Renewed(renewed),
            // A broker that cannot be understood is not one any more.
            Err(_) => Spoken::End,
        }
    }

    /// Does what the operator wants, once that is on record.
    fn obey(&mut self, ledger: &LedgerHandle, run: RunId, account: &mut NetworkSummary) {
        for order in self.control.orders() {
            match order {
                Order::Answer { number, id, claim } => {
                    let question = id.number;
                    let recorded = self.approve(ledger, run, question, &claim);
                    let answer = match (&recorded, claim.verdict) {
                        (Ok(_), Approved::Allow) => Answer::Yes,
                        (Ok(_), Approved::Deny) => Answer::No,
                        (Err(_), _) => Answer::Unrecorded,
                    };
                    let outcome = match &recorded {
                        Ok(_) => self.settle(id).map_err(|error| {
                            format!("it is carried out, and its file stays a claim: {error}")
                        }),
                        Err(error) => {
                            self.finish(run, question, ApprovalOutcome::Unrecorded);
                            Err(format!("put the answer on record: {error}"))
                        }
                    };
                    tracing::info!(question, ?answer, "approval answered");
                    account.keep(recorded);
                    self.tell(&ToBroker::Answered { question, answer }).ok(); // one that is gone needs none
                    self.control.done(number, outcome);
                }
                Order::Change { number, policy } => {
                    let draft = Draft::new(changed(&policy)).of_run(run);
                    let told = match ledger.record(draft) {
                        Ok(_) => self
                            .tell(&ToBroker::Rules { change: number, policy })
                            .map_err(|error| format!("tell the broker: {error}")),
                        Err(error) => Err(format!("put the change on record: {error}")),
                    };
                    tracing::info!(change = number, accepted = told.is_ok(), "network changes");
                    if let Err(why) = told {
                        self.control.changed(number, Err(why));
                    }
                }
            }
        }
    }

    fn approve(
        &self,
        ledger: &LedgerHandle,
        run: RunId,
        question: u64,
        claim: &ClaimedAnswer,
    ) -> Result<Receipt, RecordError> {
        let asked = self.asked.get(&question);
        let bound_to = asked.map_or_else(|| Digest::of(&[]), |(bound_to, _)| *bound_to);
        let by = claim.by.to_string();
        let event: Event = match claim.verdict {
            Approved::Allow => ApprovalGiven { by, verdict: "allow".to_owned(), bound_to }.into(),
            Approved::Deny => {
                ApprovalRefused { why: "operator".to_owned(), bound_to, by: Some(by) }.into()
            }
        };
        let cause = asked.map(|(_, index)| *index);
        ledger.record(Draft::new(event).of_run(run).because_of_index(cause))
    }

    /// Opens the questions among words that are on record now, and closes those that are over.
    fn attend(&mut self, ledger: &LedgerHandle, run: RunId, word: &BrokerEvent, index: u64) {
        match word {
            BrokerEvent::Asked(asking) => {
                let bound_to = bound_to(asking, run);
                self.asked.insert(asking.number, (bound_to, index));
                let refused = match self.open(run, asking, index) {
                    Ok(true) => return,
                    Ok(false) => ("nobody", Answer::Nobody),
                    Err(_) => ("unrecorded", Answer::Unrecorded),
                };
                let (why, answer) = refused;
                let refused = ApprovalRefused { why: why.to_owned(), bound_to, by: None };
                let draft = Draft::new(refused).of_run(run).by(Actor::Supervisor);
                ledger.record(draft.because_of_index(Some(index))).ok(); // a no either way
                self.tell(&ToBroker::Answered { question: asking.number, answer }).ok();
            }
            BrokerEvent::QuestionClosed { question, why } => {
                self.control.close(question.number);
                self.finish(run, question.number, outcome(*why));
            }
            BrokerEvent::Dns { .. }
            | BrokerEvent::Decided(_)
            | BrokerEvent::Finished(_)
            | BrokerEvent::SecretUsed { .. }
            | BrokerEvent::Alarm { .. }
            | BrokerEvent::Spent { .. } => {}
        }
    }

    /// Has a question wait for an answer; false if nobody can give one.
    fn open(&mut self, run: RunId, asking: &Asking, event: u64) -> std::io::Result<bool> {
        let Some(requests) = self.control.requests() else { return Ok(false) };
        let (asked, number) = (self.clock.millis(), asking.number);
        // Before the file: whoever finds it may answer at once.
        self.control.open(number, bound_to(asking, run));
        let opened = requests.open(NewRequest {
            name: requests.name().clone(),
            id: RequestId { run, number },
            event,
            text: asking.to_string(),
            secrets: asking.secrets.clone(),
            asked,
            deadline: asked.saturating_add(asking.wait),
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

    /// Whoever answers a question that is over is told so at once, not when that is on record.
    fn close(&mut self, run: RunId, saying: &EventBatch) {
        for word in &saying.events {
            if let BrokerEvent::QuestionClosed { question, why } = word {
                self.control.close(question.number);
                self.finish(run, question.number, outcome(*why));
            }
        }
    }

    /// An answer is on record.
    fn settle(&mut self, id: RequestId) -> std::io::Result<()> {
        self.waiting.remove(&id.number);
        self.control.requests().map_or(Ok(()), |requests| requests.settle(id))
    }

    /// Closes the file of a question that waits.
    fn finish(&mut self, run: RunId, number: u64, outcome: ApprovalOutcome) {
        if self.waiting.remove(&number) {
            self.close_file(run, number, outcome);
        }
    }

    fn close_file(&self, run: RunId, number: u64, outcome: ApprovalOutcome) {
        if let (Some(requests), Some((digest, _))) =
            (self.control.requests(), self.asked.get(&number))
        {
            requests.close(RequestId { run, number }, *digest, outcome, self.clock.millis());
        }
    }

    /// Has a renewed secret stored. What cannot be is an alarm, and the broker goes on without.
    fn renew(
        &self,
        ledger: &LedgerHandle,
        run: RunId,
        renewed: &Renewed,
        account: &mut NetworkSummary,
    ) {
        let stored = match &self.renewals {
            Some(renewals) => renewals.store(ledger, run, renewed),
            None => Err(anyhow::anyhow!("this box has no secret")),
        };
        let heard = match stored {
            Ok(first) => ToBroker::Recorded { id: renewed.id, first },
            Err(error) => {
                let detail = not_kept(&renewed.name, &format!("{error:#}"));
                account.alarm(NOT_KEPT, &detail);
                let alarm = AlarmRaised { alarm: NOT_KEPT.to_owned(), detail };
                let draft = Draft::new(alarm).of_run(run).by(Actor::Supervisor);
                account.keep(ledger.record(draft));
                ToBroker::Refused { id: renewed.id }
            }
        };
        self.tell(&heard).ok(); // a broker that is gone needs no answer
    }

    fn tell(&self, heard: &ToBroker) -> std::io::Result<()> {
        wire::send(self.socket.as_fd(), heard, &[])
    }

    fn record(
        &mut self,
        ledger: &LedgerHandle,
        run: RunId,
        sayings: &[EventBatch],
        account: &mut NetworkSummary,
    ) {
        let words = || sayings.iter().flat_map(|saying| &saying.events);
        let drafts = words().map(|word| self.draft(word, run));
        let recorded = ledger.record_all(drafts.collect());
        tracing::trace!(events = words().count(), recorded = recorded.is_ok(), "broker reports");
        let receipts = recorded.as_deref().unwrap_or_default();
        account.list(sayings, receipts);
        for (word, receipt) in words().zip(receipts) {
            self.attend(ledger, run, word, receipt.index());
        }
        let mut receipts = receipts.iter();
        for saying in sayings {
            let mut own = receipts.by_ref().take(saying.events.len());
            let first = own.next().map(Receipt::index);
            own.for_each(drop);
            if saying.id == 0 {
                continue;
            }
            let heard = match first {
                Some(first) => ToBroker::Recorded { id: saying.id, first },
                None => ToBroker::Refused { id: saying.id },
            };
            self.tell(&heard).ok(); // a broker that is gone needs no answer
        }
        if recorded.is_err() {
            for word in words() {
                if let BrokerEvent::Asked(asking) = word {
                    let (question, answer) = (asking.number, Answer::Unrecorded);
                    self.tell(&ToBroker::Answered { question, answer }).ok(); // see above
                }
            }
        }
        account.keep(recorded);
    }
}

/// What was heard.
enum Spoken {
    Words(EventBatch),
    /// Rules are in force.
    Changed(u64),
    /// A secret is sealed anew.
    Renewed(Renewed),
    /// Nothing is there now.
    Nothing,
    End,
}

/// Why nobody waits for an answer any more, for its file.
const fn outcome(why: QuestionClosed) -> ApprovalOutcome {
    match why {
        QuestionClosed::Timeout => ApprovalOutcome::Expired,
        QuestionClosed::Gone => ApprovalOutcome::Withdrawn,
        QuestionClosed::Rules => ApprovalOutcome::RulesChanged,
    }
}

/// Exactly what an answer is about: this question of this run, and all that it says.
fn bound_to(asking: &Asking, run: RunId) -> Digest {
    request_digest(RequestId { run, number: asking.number }, &asking.to_string())
}

/// What the record has of other rules.
fn changed(policy: &Policy) -> NetworkChanged {
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
    /// What the ledger has of a word.
    fn draft(&self, word: &BrokerEvent, run: RunId) -> Draft {
        let draft = draft(word, run);
        let BrokerEvent::QuestionClosed { question, .. } = word else { return draft };
        draft.because_of_index(self.asked.get(&question.number).map(|(_, index)| *index))
    }
}

fn draft(word: &BrokerEvent, run: RunId) -> Draft {
    let (event, cause): (Event, Option<u64>) = match word.clone() {
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
        BrokerEvent::Alarm { alarm, detail } => (AlarmRaised { alarm, detail }.into(), None),
        BrokerEvent::Spent { budget, unit, amount, total } => {
            (BudgetSpent { budget, unit, amount, total }.into(), None)
        }
        BrokerEvent::Asked(asking) => {
            let what = format!("{asking}, by the rule `{}`", asking.rule);
            let bound_to = bound_to(&asking, run);
            (ApprovalAsked { what, bound_to }.into(), None)
        }
        BrokerEvent::QuestionClosed { question, why } => {
            let bound_to = bound_to(&question, run);
            let why = why.name().to_owned();
            (ApprovalRefused { why, bound_to, by: None }.into(), None)
        }
    };
    Draft::new(event).of_run(run).by(Actor::Broker).because_of_index(cause)
}
