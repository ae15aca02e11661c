//! What happened on the network, one line each, for people and for programs.
//!
//! Names, paths, methods, reasons and details are chosen by a box or by a server, so they come
//! out in a form that only draws.

use belljar_ledger::{
    AlarmRaised, BudgetSpent, DnsDecided, Entry, Event, Reader, RequestDecided, RequestFinished,
    Row,
};
use belljar_model::RunId;
use serde_json::{Value, json};

use super::reading::read;
use super::sentences::{list, short, size};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::moment;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerLine {
    /// Of the event that the line is about.
    pub index: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    pub run: Option<RunId>,
    pub about: About,
}

/// What a line is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Denied(RequestDecided),
    /// Allowed, and nobody has said yet how it went.
    Open(RequestDecided),
    Finished(RequestDecided, RequestFinished),
    Name(DnsDecided),
    Alarm(AlarmRaised),
    Budget(BudgetSpent),
}

impl LedgerLine {
    /// The line that an event begins; `None` for events that have none. A request that was allowed is
    /// open, until [`Self::finished`] says otherwise.
    pub fn of(index: u64, entry: &Entry) -> Option<Self> {
        let event = Event::read(&entry.kind, &entry.fields).ok()?;
        let about = if let Event::RequestDecided(request) = event {
            match request.verdict.as_str() {
                "allow" => About::Open(request),
                _ => About::Denied(request),
            }
        } else if let Event::DnsDecided(dns) = event {
            // Names that may be asked for show in the requests to them.
            if dns.verdict == "allow" {
                return None;
            }
            About::Name(dns)
        } else if let Event::AlarmRaised(alarm) = event {
            About::Alarm(alarm)
        } else if let Event::BudgetSpent(budget) = event {
            About::Budget(budget)
        } else {
            return None;
        };
        Some(Self { index, time: entry.moment.time, run: entry.run, about })
    }

    /// The same line, once it is known how the request went.
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

    /// Whether something was denied, or an attacker was at work.
    pub const fn is_denied(&self) -> bool {
        matches!(self.about, About::Denied(_) | About::Name(_) | About::Alarm(_))
    }

    pub fn text(&self, colour: bool) -> String {
        let time = moment::readable(self.time);
        let run = self.run.map_or_else(String::new, |run| run.to_string());
        let run = run.get(..RUN).unwrap_or("-");
        let (verdict, shade) = self.verdict();
        let what = self.what();
        if !colour {
            return format!("{time}  {run:<RUN$}  {verdict:<5}  {what}\n");
        }
        format!(
            "\x1b[2m{time}\x1b[0m  \x1b[2m{run:<RUN$}\x1b[0m  {shade}{verdict:<5}\x1b[0m  {what}\n"
        )
    }

    fn verdict(&self) -> (&'static str, &'static str) {
        match &self.about {
            About::Open(_) | About::Finished(..) => ("allow", "\x1b[32m"),
            About::Denied(_) | About::Name(_) => ("deny", "\x1b[31m"),
            About::Alarm(_) => ("ALARM", "\x1b[1;31m"),
            About::Budget(_) => ("spent", "\x1b[35m"),
        }
    }

    fn what(&self) -> String {
        match &self.about {
            About::Denied(request) => {
                format!("{}  {}{}", target(request), short(&request.reason), rule(&request.rule))
            }
            About::Open(request) => {
                format!("{}  open{}", target(request), means(request))
            }
            About::Finished(request, outcome) => {
                format!("{}  {}{}", target(request), went(outcome), means(request))
            }
            About::Name(dns) => {
                let (query, name, why) = (short(&dns.query), short(&dns.name), short(&dns.reason));
                format!("DNS {query} {name}  {why}{}", rule(&dns.rule))
            }
            About::Alarm(alarm) => format!("{}: {}", short(&alarm.alarm), short(&alarm.detail)),
            About::Budget(budget) => {
                let (name, unit) = (short(&budget.budget), short(&budget.unit));
                format!("{name}: {} {unit}, {} in all", budget.amount, budget.total)
            }
        }
    }

    pub fn json(&self) -> Value {
        let mut told = match &self.about {
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
        };
        if let Some(told) = told.as_object_mut() {
            told.insert("index".to_owned(), self.index.into());
            told.insert("time".to_owned(), moment::rfc3339(self.time).into());
            told.insert("run".to_owned(), json!(self.run));
        }
        told
    }
}

/// The line that an event begins. Only events that may have one are read.
pub fn begun(reader: &Reader, row: &Row) -> Result<Option<LedgerLine>, EngineError> {
    let kinds = ["request.decided", "dns.decided", "alarm.raised", "budget.spent"];
    if !kinds.contains(&row.kind.as_str()) {
        return Ok(None);
    }
    Ok(LedgerLine::of(row.index, &read(reader, row)?))
}

/// With how it went, if that is known.
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

/// So much of a run's id is enough on a line, and for `net log RUN`.
const RUN: usize = 10;

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

/// Method and place, the port where it is not the usual one.
pub fn target(request: &RequestDecided) -> String {
    let (method, scheme, host, path) = (
        short(&request.method),
        short(&request.scheme),
        short(&request.host),
        short(&request.path),
    );
    let usual = matches!((request.scheme.as_str(), request.port), ("https", 443) | ("http", 80));
    let port = if usual { String::new() } else { format!(":{}", request.port) };
    format!("{method} {scheme}://{host}{port}{path}")
}

fn went(outcome: &RequestFinished) -> String {
    let how = match (&outcome.error, outcome.status) {
        (Some(error), Some(status)) => format!("{status}, {}", short(error)),
        (Some(error), None) => short(error),
        (None, Some(status)) => status.to_string(),
        (None, None) => "closed".to_owned(),
    };
    let (sent, received) = (size(outcome.sent_bytes), size(outcome.received_bytes));
    format!("{how}  out {sent}, in {received}, {}", moment::duration(outcome.micros))
}

/// By which rule and with which secrets.
fn means(request: &RequestDecided) -> String {
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
