//! Takes what the broker says to the ledger, and gives it the proof.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_broker::record::{Decided, Heard, MAX_MESSAGE, Saying, Verdict, Word};
use belljar_init::wire;
use belljar_ledger::{
    Actor, AlarmRaised, BudgetSpent, DnsDecided, Draft, Event, Ledger, Receipt, RecordError,
    RequestDecided, RequestFinished, SecretUsed,
};
use belljar_model::{RunId, display};
use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};

/// Hears one broker until it is gone.
#[derive(Debug)]
pub(crate) struct Clerk {
    socket: OwnedFd,
    dismissed: Arc<AtomicBool>,
}

/// What a person should know of the box's network once the run is over.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// What was refused and how to allow it, each once.
    pub(crate) denied: BTreeSet<String>,
    /// How many refusals are not among these.
    pub(crate) more: u64,
    pub(crate) alarms: BTreeSet<String>,
    /// The first of all requests, in order.
    pub(crate) requests: Vec<Asked>,
    /// How many are not among these.
    pub(crate) more_requests: u64,
    /// The places in the ledger of those whose answer is still to come.
    open: BTreeMap<u64, usize>,
    /// The broker ended too early.
    pub(crate) is_dark: bool,
    /// The ledger did not take something.
    pub(crate) unrecorded: Option<RecordError>,
}

/// One request that a box made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) allowed: bool,
    /// What the upstream answered, if it did.
    pub(crate) status: Option<u16>,
    /// By name only.
    pub(crate) secrets: Vec<String>,
}

/// So many requests are listed.
const REQUESTS: usize = 100;
/// So many different refusals are listed.
const LISTED: usize = 20;
/// So long may what nobody waits for stay off the disk.
const PATIENCE: Duration = Duration::from_millis(20);
/// So many sayings go to the disk together.
const TOGETHER: usize = 64;
/// Signals are the main thread's to read.
const SIGNALS: [i32; 5] = [1, 2, 3, 15, 28];

impl Clerk {
    pub(crate) const fn new(socket: OwnedFd, dismissed: Arc<AtomicBool>) -> Self {
        Self { socket, dismissed }
    }

    /// Records what comes until the broker ends.
    pub(crate) fn work(self, ledger: &Ledger, run: RunId) -> Account {
        let _signals = SignalFd::new(&SIGNALS); // without, one could end the run unheard
        let mut account = Account::default();
        let mut buffer = vec![0; MAX_MESSAGE];
        while let Some(sayings) = self.gather(&mut buffer) {
            account.note(&sayings);
            self.record(ledger, run, &sayings, &mut account);
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

    /// All that is there, at least one; none when the broker is gone. While nobody waits for an answer,
    /// a little more is waited for: how a request went goes to the disk with the next decision.
    fn gather(&self, buffer: &mut [u8]) -> Option<Vec<Saying>> {
        let mut sayings = vec![self.hear(buffer, RecvFlags::empty())?];
        let end = Instant::now() + PATIENCE;
        while sayings.len() < TOGETHER {
            match self.hear(buffer, RecvFlags::DONTWAIT) {
                Some(saying) => sayings.push(saying),
                None if sayings.iter().all(|saying| saying.id == 0) && self.comes_until(end) => {}
                None => break,
            }
        }
        Some(sayings)
    }

    /// Whether something can be heard before `end`. An end of the socket cannot.
    fn comes_until(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        let ready = rustix::event::poll(&mut watched, Some(&left));
        let [watched] = watched;
        ready.is_ok_and(|count| count > 0) && !watched.revents().contains(PollFlags::HUP)
    }

    fn hear(&self, buffer: &mut [u8], flags: RecvFlags) -> Option<Saying> {
        let length = loop {
            match rustix::net::recv(&self.socket, &mut *buffer, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Ok((length, _)) if length > 0 => break length,
                Ok(_) | Err(_) => return None,
            }
        };
        // A broker that cannot be understood is not one any more.
        wire::decode(buffer.get(..length)?).ok()
    }

    fn record(&self, ledger: &Ledger, run: RunId, sayings: &[Saying], account: &mut Account) {
        let drafts = sayings.iter().flat_map(|saying| &saying.words).map(|word| draft(word, run));
        let recorded = ledger.record_all(drafts.collect());
        let receipts = recorded.as_deref().unwrap_or_default();
        account.list(sayings, receipts);
        let mut receipts = receipts.iter();
        for saying in sayings {
            let mut own = receipts.by_ref().take(saying.words.len());
            let first = own.next().map(Receipt::index);
            own.for_each(drop);
            if saying.id == 0 {
                continue;
            }
            let heard = match first {
                Some(first) => Heard::Recorded { id: saying.id, first },
                None => Heard::Refused { id: saying.id },
            };
            wire::send(self.socket.as_fd(), &heard, &[]).ok(); // a broker that is gone needs no answer
        }
        if let Err(error) = recorded {
            account.unrecorded = Some(error);
        }
    }
}

impl Account {
    fn note(&mut self, sayings: &[Saying]) {
        for word in sayings.iter().flat_map(|saying| &saying.words) {
            match word {
                Word::Dns { name, verdict: Verdict::Deny, reason, .. } => {
                    self.deny(told(reason, name, name));
                }
                Word::Decided(decided) if decided.verdict == Verdict::Deny => {
                    let Decided { method, scheme, host, path, reason, .. } = decided;
                    let request = format!("{method} {scheme}://{host}{path}");
                    self.deny(told(reason, host, &request));
                }
                Word::Alarm { alarm, detail } if self.alarms.len() < LISTED => {
                    let line = format!("{alarm}: {detail}");
                    self.alarms.insert(display::safe_line(line).to_string());
                }
                Word::Dns { .. }
                | Word::Decided(_)
                | Word::Alarm { .. }
                | Word::Finished(_)
                | Word::SecretUsed { .. }
                | Word::Spent { .. } => {}
            }
        }
    }

    /// Lists requests, and what came of those that were listed before.
    fn list(&mut self, sayings: &[Saying], receipts: &[Receipt]) {
        let words = sayings.iter().flat_map(|saying| &saying.words);
        for (word, receipt) in words.zip(receipts) {
            match word {
                Word::Decided(_) if self.requests.len() >= REQUESTS => self.more_requests += 1,
                Word::Decided(decided) => {
                    let Decided { method, scheme, host, port, path, secrets, .. } = decided;
                    let usual = if scheme == "https" { 443 } else { 80 };
                    let port = if *port == usual { String::new() } else { format!(":{port}") };
                    let url = format!("{scheme}://{host}{port}{path}");
                    self.open.insert(receipt.index(), self.requests.len());
                    self.requests.push(Asked {
                        method: method.clone(),
                        url: display::safe_line(url).to_string(),
                        allowed: decided.verdict != Verdict::Deny,
                        status: None,
                        secrets: secrets.clone(),
                    });
                }
                Word::Finished(finished) => {
                    let at = self.open.remove(&finished.cause);
                    if let Some(asked) = at.and_then(|at| self.requests.get_mut(at)) {
                        asked.status = finished.status;
                    }
                }
                Word::Dns { .. }
                | Word::SecretUsed { .. }
                | Word::Alarm { .. }
                | Word::Spent { .. } => {}
            }
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

/// What the ledger has of a word.
fn draft(word: &Word, run: RunId) -> Draft {
    let (event, cause): (Event, Option<u64>) = match word.clone() {
        Word::Dns { name, query, verdict, rule, reason } => {
            let verdict = verdict.name().to_owned();
            (DnsDecided { name, query, verdict, rule, reason }.into(), None)
        }
        Word::Decided(decided) => {
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
        Word::Finished(finished) => {
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
        Word::SecretUsed { name, slot, host } => (SecretUsed { name, slot, host }.into(), None),
        Word::Alarm { alarm, detail } => (AlarmRaised { alarm, detail }.into(), None),
        Word::Spent { budget, unit, amount, total } => {
            (BudgetSpent { budget, unit, amount, total }.into(), None)
        }
    };
    Draft::new(event).of_run(run).by(Actor::Broker).because_of_index(cause)
}
