//! Summarises the network requests of a box for a person.

use std::collections::{BTreeMap, BTreeSet};

use belljar_broker::record::{BrokerEvent, Decided, EventBatch, Verdict};
use belljar_ledger::{Receipt, RecordError};
use belljar_model::display;
use belljar_model::net::MicroUsd;
use serde::{Deserialize, Serialize};

/// A summary of the network requests of one run.
#[derive(Debug, Default)]
pub struct NetworkSummary {
    /// Denied requests, each with the way to allow it, without duplicates.
    pub denied: BTreeSet<String>,
    /// The number of denied requests that are not in `denied`.
    pub more_denied: u64,
    pub alarms: BTreeSet<String>,
    /// The first requests of the run, in order.
    pub requests: Vec<RequestSummary>,
    /// The number of requests that are not in `requests`.
    pub more_requests: u64,
    /// Requests without a response yet: from the ledger index to the index in `requests`.
    unanswered: BTreeMap<u64, usize>,
    pub usage: NetworkUsage,
    /// Whether the broker exited before the box.
    pub broker_gone: bool,
    /// The last error that occurred when an event was recorded in the ledger.
    pub unrecorded: Option<RecordError>,
}

/// What a run used of the network, as its broker observed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkUsage {
    /// The number of allowed requests and connections.
    pub requests: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// The tokens of models; reservations without a reported usage count in full.
    pub tokens: u64,
    pub money: MicroUsd,
    /// The number of requests that were refused because a budget was used up.
    #[serde(default)]
    pub over_budget: u64,
}

/// One HTTP request of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSummary {
    pub method: String,
    pub url: String,
    pub allowed: bool,
    /// The HTTP status of the response; `None` without a response.
    pub status: Option<u16>,
    /// The names of the secrets that the broker inserted.
    pub secrets: Vec<String>,
}

/// The name of the budget of the whole run in the events of a broker.
const RUN_BUDGET: &str = "run";
/// The maximum number of requests in a summary.
const MAX_REQUESTS: usize = 100;
/// The maximum number of different denials, and of different alarms, in a summary.
const MAX_DENIALS: usize = 20;
impl NetworkSummary {
    /// Stores the error if an event could not be recorded.
    pub(super) fn note_error<T>(&mut self, recorded: Result<T, RecordError>) {
        if let Err(error) = recorded {
            self.unrecorded = Some(error);
        }
    }

    /// Adds the denials and alarms among these events to the summary.
    pub(super) fn add_denials(&mut self, batches: &[EventBatch]) {
        for event in batches.iter().flat_map(|batch| &batch.events) {
            match event {
                BrokerEvent::Dns { name, verdict: Verdict::Deny, reason, .. } => {
                    self.deny(denial_text(reason, name, name));
                }
                BrokerEvent::Decided(decided) if decided.verdict == Verdict::Deny => {
                    let Decided { method, scheme, host, path, reason, .. } = decided;
                    let request = format!("{method} {scheme}://{host}{path}");
                    self.deny(denial_text(reason, host, &request));
                }
                BrokerEvent::Alarm { alarm, detail } => self.add_alarm(alarm, detail),
                BrokerEvent::Dns { .. }
                | BrokerEvent::Decided(_)
                | BrokerEvent::Finished(_)
                | BrokerEvent::SecretUsed { .. }
                | BrokerEvent::SecretMasked { .. }
                | BrokerEvent::Spent { .. }
                | BrokerEvent::ModelCalled(_)
                | BrokerEvent::Asked(_)
                | BrokerEvent::QuestionClosed { .. } => {}
            }
        }
    }

    /// Adds what these events used.
    pub(super) fn add_usage(&mut self, batches: &[EventBatch]) {
        let usage = &mut self.usage;
        let add = |to: &mut u64, amount: u64| *to = to.saturating_add(amount);
        for event in batches.iter().flat_map(|batch| &batch.events) {
            match event {
                BrokerEvent::Decided(decided) if decided.verdict == Verdict::Allow => {
                    add(&mut usage.requests, 1);
                }
                BrokerEvent::Decided(decided) if is_over_budget(&decided.reason) => {
                    add(&mut usage.over_budget, 1);
                }
                BrokerEvent::Finished(finished) => {
                    add(&mut usage.sent_bytes, finished.sent);
                    add(&mut usage.received_bytes, finished.received);
                }
                // Every use counts for the run; it can also count for a secret.
                BrokerEvent::Spent { budget, unit, amount, .. } if budget == RUN_BUDGET => {
                    match unit.as_str() {
                        "tokens" => add(&mut usage.tokens, *amount),
                        "microusd" => add(&mut usage.money.0, *amount),
                        _ => {}
                    }
                }
                BrokerEvent::Dns { .. }
                | BrokerEvent::Decided(_)
                | BrokerEvent::SecretUsed { .. }
                | BrokerEvent::SecretMasked { .. }
                | BrokerEvent::Alarm { .. }
                | BrokerEvent::Spent { .. }
                | BrokerEvent::ModelCalled(_)
                | BrokerEvent::Asked(_)
                | BrokerEvent::QuestionClosed { .. } => {}
            }
        }
    }

    /// Adds the requests among these events, and the responses to earlier requests.
    pub(super) fn add_requests(&mut self, batches: &[EventBatch], receipts: &[Receipt]) {
        let events = batches.iter().flat_map(|batch| &batch.events);
        for (event, receipt) in events.zip(receipts) {
            match event {
                BrokerEvent::Decided(_) if self.requests.len() >= MAX_REQUESTS => {
                    self.more_requests += 1;
                }
                BrokerEvent::Decided(decided) => {
                    let Decided { method, scheme, host, port, path, secrets, .. } = decided;
                    let default_port = if scheme == "https" { 443 } else { 80 };
                    let port =
                        if *port == default_port { String::new() } else { format!(":{port}") };
                    let url = format!("{scheme}://{host}{port}{path}");
                    self.unanswered.insert(receipt.index(), self.requests.len());
                    self.requests.push(RequestSummary {
                        method: method.clone(),
                        url: display::safe_line(url).to_string(),
                        allowed: decided.verdict != Verdict::Deny,
                        status: None,
                        secrets: secrets.clone(),
                    });
                }
                BrokerEvent::Finished(finished) => {
                    let index = self.unanswered.remove(&finished.cause);
                    if let Some(request) = index.and_then(|index| self.requests.get_mut(index)) {
                        request.status = finished.status;
                    }
                }
                BrokerEvent::Dns { .. }
                | BrokerEvent::SecretUsed { .. }
                | BrokerEvent::SecretMasked { .. }
                | BrokerEvent::Alarm { .. }
                | BrokerEvent::Spent { .. }
                | BrokerEvent::ModelCalled(_)
                | BrokerEvent::Asked(_)
                | BrokerEvent::QuestionClosed { .. } => {}
            }
        }
    }

    /// Adds an alarm to the summary.
    pub(super) fn add_alarm(&mut self, alarm: &str, detail: &str) {
        if self.alarms.len() < MAX_DENIALS {
            let line = format!("{alarm}: {detail}");
            self.alarms.insert(display::safe_line(line).to_string());
        }
    }

    /// Adds a denied request to the summary.
    fn deny(&mut self, line: String) {
        let line = display::safe_line(line).to_string();
        if self.denied.len() < MAX_DENIALS {
            self.denied.insert(line);
        } else if !self.denied.contains(&line) {
            self.more_denied += 1;
        }
    }
}

/// Returns whether a request was refused because a budget is used up or cannot be counted.
fn is_over_budget(reason: &str) -> bool {
    reason.starts_with("spent: ") || reason.starts_with("uncountable: ")
}

/// Returns a reason without its code. Prepends the request unless the reason contains `subject`.
fn denial_text(reason: &str, subject: &str, request: &str) -> String {
    let reason = reason.split_once(": ").map_or(reason, |(_, text)| text);
    if reason.contains(subject) { reason.to_owned() } else { format!("{request}: {reason}") }
}
