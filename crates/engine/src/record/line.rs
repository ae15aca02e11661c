//! Formats network events of the ledger as log lines, for people and as JSON.
//!
//! A box or a server chooses names, paths, methods, reasons and details. Lines for people therefore
//! have control characters in these texts escaped.

use belljar_ledger::{
    AlarmRaised, BudgetSpent, DnsDecided, Entry, Event, Reader, RequestDecided, RequestFinished,
    Row, SecretMasked,
};
use belljar_model::RunId;
use serde_json::{Value, json};

use super::reading::read;
use super::sentences::{list, short, size};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::moment;

/// One line of `belljar net log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLine {
    /// The index of the event that the line shows.
    pub index: u64,
    /// The time of the event, in nanoseconds since 1970.
    pub time: u64,
    pub run: Option<RunId>,
    pub about: About,
}

/// The network event that a log line shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Denied(RequestDecided),
    /// A request that was allowed and has no recorded outcome yet.
    Open(RequestDecided),
    Finished(RequestDecided, RequestFinished),
    /// A DNS query that was denied.
    Name(DnsDecided),
    Alarm(AlarmRaised),
    Budget(BudgetSpent),
    /// A placeholder in a request body that was replaced by the name of its secret.
    Masked(SecretMasked),
}

impl LedgerLine {
    /// Returns the log line of an event, or `None` for an event that is not shown. An allowed request
    /// is open until [`Self::finished`] adds its outcome.
    pub fn of(index: u64, entry: &Entry) -> Option<Self> {
        let event = Event::read(&entry.kind, &entry.fields).ok()?;
        let about = if let Event::RequestDecided(request) = event {
            match request.verdict.as_str() {
                "allow" => About::Open(request),
                _ => About::Denied(request),
            }
        } else if let Event::DnsDecided(dns) = event {
            // Allowed names are visible in the requests to them.
            if dns.verdict == "allow" {
                return None;
            }
            About::Name(dns)
        } else if let Event::AlarmRaised(alarm) = event {
            About::Alarm(alarm)
        } else if let Event::BudgetSpent(budget) = event {
            About::Budget(budget)
        } else if let Event::SecretMasked(masked) = event {
            About::Masked(masked)
        } else {
            return None;
        };
        Some(Self { index, time: entry.moment.time, run: entry.run, about })
    }

    /// Adds the outcome of the request to its log line.
    pub fn finished(self, outcome: &Entry) -> Self {
        match (self.about, Event::read(&outcome.kind, &outcome.fields)) {
            (About::Open(request), Ok(Event::RequestFinished(outcome))) => {
                Self { about: About::Finished(request, outcome), ..self }
            }
            (about, _) => Self { about, ..self },
        }
    }

    pub const fn is_open(&self) -> bool {
        matches!(self.about, About::Open(_))
    }

    /// Whether the line shows a denied request, a denied DNS query or an alarm.
    pub const fn is_denied(&self) -> bool {
        matches!(self.about, About::Denied(_) | About::Name(_) | About::Alarm(_))
    }

    pub fn text(&self, colour: bool) -> String {
        let time = moment::readable(self.time);
        let run = self.run.map_or_else(String::new, |run| run.to_string());
        let run = run.get(..RUN_WIDTH).unwrap_or("-");
        let (verdict, shade) = self.verdict();
        let description = self.description();
        if !colour {
            return format!("{time}  {run:<RUN_WIDTH$}  {verdict:<5}  {description}\n");
        }
        format!(
            "\x1b[2m{time}\x1b[0m  \x1b[2m{run:<RUN_WIDTH$}\x1b[0m  {shade}{verdict:<5}\x1b[0m  {description}\n"
        )
    }

    /// Returns the verdict of the line and the escape sequence of its color.
    fn verdict(&self) -> (&'static str, &'static str) {
        match &self.about {
            About::Open(_) | About::Finished(..) => ("allow", "\x1b[32m"),
            About::Denied(_) | About::Name(_) => ("deny", "\x1b[31m"),
            About::Alarm(_) => ("ALARM", "\x1b[1;31m"),
            About::Budget(_) => ("spent", "\x1b[35m"),
            About::Masked(_) => ("mask", "\x1b[33m"),
        }
    }

    fn description(&self) -> String {
        match &self.about {
            About::Denied(request) => {
                format!("{}  {}{}", target(request), short(&request.reason), rule(&request.rule))
            }
            About::Open(request) => {
                format!("{}  open{}", target(request), rule_and_secrets(request))
            }
            About::Finished(request, outcome) => {
                format!(
                    "{}  {}{}",
                    target(request),
                    outcome_text(outcome),
                    rule_and_secrets(request)
                )
            }
            About::Name(dns) => {
                let (query, name, reason) =
                    (short(&dns.query), short(&dns.name), short(&dns.reason));
                format!("DNS {query} {name}  {reason}{}", rule(&dns.rule))
            }
            About::Alarm(alarm) => format!("{}: {}", short(&alarm.alarm), short(&alarm.detail)),
            About::Budget(budget) => {
                let (name, unit) = (short(&budget.budget), short(&budget.unit));
                format!("{name}: {} {unit}, {} in total", budget.amount, budget.total)
            }
            About::Masked(masked) => {
                let (name, host) = (short(&masked.name), short(&masked.host));
                format!("placeholder of {name} in a body to {host}")
            }
        }
    }

    pub fn json(&self) -> Value {
        let mut line = match &self.about {
            About::Denied(request) => request_json(request, "denied", None),
            About::Open(request) => request_json(request, "open", None),
            About::Finished(request, outcome) => request_json(request, "finished", Some(outcome)),
            About::Name(DnsDecided { name, query, verdict, rule, reason }) => json!({
                "type": "name", "verdict": verdict, "name": name, "query": query, "rule": rule,
                "reason": reason,
            }),
            About::Alarm(AlarmRaised { alarm, detail }) => {
                json!({ "type": "alarm", "alarm": alarm, "detail": detail })
            }
            About::Budget(BudgetSpent { budget, unit, amount, total }) => json!({
                "type": "budget", "budget": budget, "unit": unit, "amount": amount, "total": total,
            }),
            About::Masked(SecretMasked { name, host }) => {
                json!({ "type": "masked", "secret": name, "host": host })
            }
        };
        if let Some(line) = line.as_object_mut() {
            line.insert("index".to_owned(), self.index.into());
            line.insert("time".to_owned(), moment::rfc3339(self.time).into());
            line.insert("run".to_owned(), json!(self.run));
        }
        line
    }
}

/// Reads an event and returns its log line, or `None` if events of this kind are not shown.
pub fn begun(reader: &Reader, row: &Row) -> Result<Option<LedgerLine>, EngineError> {
    let kinds = ["request.decided", "dns.decided", "alarm.raised", "budget.spent", "secret.masked"];
    if !kinds.contains(&row.kind.as_str()) {
        return Ok(None);
    }
    Ok(LedgerLine::of(row.index, &read(reader, row)?))
}

/// Adds the outcome of an open request to its log line, if the ledger has the outcome.
pub fn with_outcome(reader: &Reader, line: LedgerLine) -> Result<LedgerLine, EngineError> {
    if !line.is_open() {
        return Ok(line);
    }
    let effects = reader.effects_of(line.index).kind(ErrorKind::Broken)?;
    match effects.iter().find(|row| row.kind == "request.finished") {
        Some(row) => Ok(line.finished(&read(reader, row)?)),
        None => Ok(line),
    }
}

/// The number of characters of a run id on a log line. `net log RUN` accepts an id of this length.
const RUN_WIDTH: usize = 10;

fn request_json(request: &RequestDecided, state: &str, outcome: Option<&RequestFinished>) -> Value {
    let RequestDecided {
        method,
        scheme,
        host,
        port,
        path,
        verdict,
        rule,
        reason,
        secrets,
        body: _,
        upgrade: _,
    } = request;
    json!({
        "type": "request",
        "verdict": verdict,
        "method": method,
        "scheme": scheme,
        "host": host,
        "port": port,
        "path": path,
        "rule": rule,
        "reason": reason,
        "secrets": secrets,
        "state": state,
        "status": outcome.and_then(|outcome| outcome.status),
        "sent_bytes": outcome.map(|outcome| outcome.sent_bytes),
        "received_bytes": outcome.map(|outcome| outcome.received_bytes),
        "micros": outcome.map(|outcome| outcome.micros),
        "error": outcome.and_then(|outcome| outcome.error.as_deref()),
    })
}

/// Returns the method and URL of a request. The port is left out if it is the default of the scheme.
pub fn target(request: &RequestDecided) -> String {
    let (method, scheme, host, path) = (
        short(&request.method),
        short(&request.scheme),
        short(&request.host),
        short(&request.path),
    );
    let is_default =
        matches!((request.scheme.as_str(), request.port), ("https", 443) | ("http", 80));
    let port = if is_default { String::new() } else { format!(":{}", request.port) };
    format!("{method} {scheme}://{host}{port}{path}")
}

fn outcome_text(outcome: &RequestFinished) -> String {
    let how = match (&outcome.error, outcome.status) {
        (Some(error), Some(status)) => format!("{status}, {}", short(error)),
        (Some(error), None) => short(error),
        (None, Some(status)) => status.to_string(),
        (None, None) => "closed".to_owned(),
    };
    let (sent, received) = (size(outcome.sent_bytes), size(outcome.received_bytes));
    format!("{how}  out {sent}, in {received}, {}", moment::duration(outcome.micros))
}

/// Returns the rule that allowed a request and the secrets that were sent with it, as text.
fn rule_and_secrets(request: &RequestDecided) -> String {
    let secrets = match request.secrets.as_slice() {
        [] => String::new(),
        secrets => format!("  secret {}", list(secrets)),
    };
    format!("{}{secrets}", rule(&request.rule))
}

fn rule(rule: &Option<String>) -> String {
    rule.as_ref().map_or_else(String::new, |rule| format!("  rule \"{}\"", short(rule)))
}

#[cfg(test)]
mod tests;
