//! What the network of a box was used for, for a person.

use std::collections::{BTreeMap, BTreeSet};

use belljar_broker::record::{BrokerEvent, Decided, EventBatch, Verdict};
use belljar_ledger::{Receipt, RecordError};
use belljar_model::display;
use serde::{Deserialize, Serialize};

/// What a person should know of the box's network once the run is over.
#[derive(Debug, Default)]
pub struct NetworkSummary {
    /// What was refused and how to allow it, each once.
    pub denied: BTreeSet<String>,
    /// How many refusals are not among these.
    pub more: u64,
    pub alarms: BTreeSet<String>,
    /// The first of all requests, in order.
    pub requests: Vec<RequestSummary>,
    /// How many are not among these.
    pub more_requests: u64,
    /// The places in the ledger of those whose answer is still to come.
    open: BTreeMap<u64, usize>,
    /// The broker ended too early.
    pub is_dark: bool,
    /// The ledger did not take something.
    pub unrecorded: Option<RecordError>,
}

/// One request that a box made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSummary {
    pub method: String,
    pub url: String,
    pub allowed: bool,
    /// What the upstream answered, if it did.
    pub status: Option<u16>,
    /// By name only.
    pub secrets: Vec<String>,
}

/// So many requests are listed.
const REQUESTS: usize = 100;
/// So many different refusals are listed.
const LISTED: usize = 20;
impl NetworkSummary {
    /// Remembers that something is not on record.
    pub(super) fn keep<T>(&mut self, recorded: Result<T, RecordError>) {
        if let Err(error) = recorded {
            self.unrecorded = Some(error);
        }
    }

    pub(super) fn note(&mut self, sayings: &[EventBatch]) {
        for word in sayings.iter().flat_map(|saying| &saying.events) {
            match word {
                BrokerEvent::Dns { name, verdict: Verdict::Deny, reason, .. } => {
                    self.deny(told(reason, name, name));
                }
                BrokerEvent::Decided(decided) if decided.verdict == Verdict::Deny => {
                    let Decided { method, scheme, host, path, reason, .. } = decided;
                    let request = format!("{method} {scheme}://{host}{path}");
                    self.deny(told(reason, host, &request));
                }
                BrokerEvent::Alarm { alarm, detail } => self.alarm(alarm, detail),
                BrokerEvent::Dns { .. }
                | BrokerEvent::Decided(_)
                | BrokerEvent::Finished(_)
                | BrokerEvent::SecretUsed { .. }
                | BrokerEvent::Spent { .. }
                | BrokerEvent::Asked(_)
                | BrokerEvent::QuestionClosed { .. } => {}
            }
        }
    }

    /// Lists requests, and what came of those that were listed before.
    pub(super) fn list(&mut self, sayings: &[EventBatch], receipts: &[Receipt]) {
        let words = sayings.iter().flat_map(|saying| &saying.events);
        for (word, receipt) in words.zip(receipts) {
            match word {
                BrokerEvent::Decided(_) if self.requests.len() >= REQUESTS => {
                    self.more_requests += 1;
                }
                BrokerEvent::Decided(decided) => {
                    let Decided { method, scheme, host, port, path, secrets, .. } = decided;
                    let usual = if scheme == "https" { 443 } else { 80 };
                    let port = if *port == usual { String::new() } else { format!(":{port}") };
                    let url = format!("{scheme}://{host}{port}{path}");
                    self.open.insert(receipt.index(), self.requests.len());
                    self.requests.push(RequestSummary {
                        method: method.clone(),
                        url: display::safe_line(url).to_string(),
                        allowed: decided.verdict != Verdict::Deny,
                        status: None,
                        secrets: secrets.clone(),
                    });
                }
                BrokerEvent::Finished(finished) => {
                    let at = self.open.remove(&finished.cause);
                    if let Some(asked) = at.and_then(|at| self.requests.get_mut(at)) {
                        asked.status = finished.status;
                    }
                }
                BrokerEvent::Dns { .. }
                | BrokerEvent::SecretUsed { .. }
                | BrokerEvent::Alarm { .. }
                | BrokerEvent::Spent { .. }
                | BrokerEvent::Asked(_)
                | BrokerEvent::QuestionClosed { .. } => {}
            }
        }
    }

    pub(super) fn alarm(&mut self, alarm: &str, detail: &str) {
        if self.alarms.len() < LISTED {
            let line = format!("{alarm}: {detail}");
            self.alarms.insert(display::safe_line(line).to_string());
        }
    }

    fn deny(&mut self, line: String) {
        let line = display::safe_line(line).to_string();
        if self.denied.len() < LISTED {
            self.denied.insert(line);
        } else if !self.denied.contains(&line) {
            self.more += 1;
        }
    }
}

/// A reason without the word for programs, and with what it is about if it does not say that itself.
fn told(reason: &str, about: &str, what: &str) -> String {
    let reason = reason.split_once(": ").map_or(reason, |(_, told)| told);
    if reason.contains(about) { reason.to_owned() } else { format!("{what}: {reason}") }
}
