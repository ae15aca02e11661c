//! What a run tried on the network, from the ledger.

use std::path::PathBuf;

use belljar_ledger::{Event, Query, Reader};
use belljar_model::RunId;

use super::{Attempt, End, Tried};
use crate::error::EngineError;
use crate::record::line::{About, begun, with_outcome};
use crate::record::reading::{each, read};

/// What is known of a run.
#[derive(Debug)]
pub struct Past {
    pub attempts: Vec<Attempt>,
    /// Nanoseconds since 1970.
    pub time: u64,
    pub workspace: Option<PathBuf>,
    pub alarms: u64,
}

/// Gathers what a run tried.
pub fn past(reader: &Reader, run: RunId) -> Result<Past, EngineError> {
    let mut past = Past { attempts: Vec::new(), time: 0, workspace: None, alarms: 0 };
    let query = Query { run: Some(run), before: Some(reader.size()), ..Query::default() };
    each(reader, query, &mut |row| {
        if row.kind == "run.created" {
            let entry = read(reader, row)?;
            past.time = entry.moment.time;
            if let Ok(Event::RunCreated(created)) = Event::read(&entry.kind, &entry.fields) {
                past.workspace = created.workspace.map(from_bytes);
            }
        }
        if let Some(line) = begun(reader, row)? {
            let line = with_outcome(reader, line)?;
            past.alarms += u64::from(matches!(line.about, About::Alarm(_)));
            past.attempts.extend(attempt(line.about));
        }
        Ok(true)
    })?;
    Ok(past)
}

fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// What somebody could learn from; nothing for what a rule allowed.
fn attempt(about: About) -> Option<Attempt> {
    let (request, end) = match about {
        About::Name(dns) => {
            let end = End::Denied(code(&dns.reason));
            return Some(Attempt { what: Tried::Name(dns.name), end });
        }
        About::Denied(request) => {
            let end = End::Denied(code(&request.reason));
            (request, end)
        }
        // One that was cut off may have been by an alarm.
        About::Finished(request, outcome) if outcome.error.is_none() => match &request.rule {
            Some(rule) if rule == FULL => (request, End::Full),
            Some(_) | None => return None,
        },
        About::Finished(..) | About::Open(_) | About::Alarm(_) | About::Budget(_) => return None,
    };
    let (method, scheme, host) = (request.method, request.scheme, request.host);
    let what = Tried::Request { method, scheme, host, port: request.port, path: request.path };
    Some(Attempt { what, end })
}

/// How the record names what allows everything.
const FULL: &str = "net full";

/// The word that a reason begins with; empty if it does not begin with one.
fn code(reason: &str) -> String {
    let is_code = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let word = reason.split_once(": ").map(|(word, _)| word).filter(is_code);
    word.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn a_reason_begins_with_its_code() {
        assert_eq!(code("no-rule: GET https://a.example/: no rule allows it"), "no-rule");
        for other in ["no rule allows it", "No-rule: x", "a b: c", "", "no-rule"] {
            assert_eq!(code(other), "", "{other}");
        }
    }
}
