//! Reads from the ledger what a run tried on the network.

use std::path::PathBuf;

use belljar_ledger::{Event, Query, Reader, RequestDecided};
use belljar_model::RunId;

use super::{Attempt, AttemptOutcome, AttemptTarget};
use crate::error::EngineError;
use crate::record::line::{About, begun, with_outcome};
use crate::record::reading::{each, read};

/// The network attempts of a past run, as recorded in the ledger.
#[derive(Debug)]
pub struct NetworkHistory {
    pub attempts: Vec<Attempt>,
    /// When the run was created, in nanoseconds since 1970.
    pub time: u64,
    pub workspace: Option<PathBuf>,
    /// The number of alarms that the run raised.
    pub alarms: u64,
}

/// Reads the network attempts of a run from the ledger.
pub fn network_history(reader: &Reader, run: RunId) -> Result<NetworkHistory, EngineError> {
    let mut history = NetworkHistory { attempts: Vec::new(), time: 0, workspace: None, alarms: 0 };
    let query = Query { run: Some(run), before: Some(reader.size()), ..Query::default() };
    each(reader, query, &mut |row| {
        if row.kind == "run.created" {
            let entry = read(reader, row)?;
            history.time = entry.moment.time;
            if let Ok(Event::RunCreated(created)) = Event::read(&entry.kind, &entry.fields) {
                history.workspace = created.workspace.map(path_from_bytes);
            }
        }
        if let Some(line) = begun(reader, row)? {
            let line = with_outcome(reader, line)?;
            history.alarms += u64::from(matches!(line.about, About::Alarm(_)));
            history.attempts.extend(attempt(line.about));
        }
        Ok(true)
    })?;
    Ok(history)
}

/// Converts the bytes of a recorded path to a path.
fn path_from_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Converts a ledger entry to an attempt; `None` if a rule allowed it or no rule can be learned from it.
fn attempt(about: About) -> Option<Attempt> {
    let (request, outcome) = match about {
        About::Name(dns) => {
            let outcome = AttemptOutcome::Denied(code(&dns.reason));
            return Some(Attempt { target: AttemptTarget::Name(dns.name), outcome });
        }
        About::Denied(request) => {
            let outcome = AttemptOutcome::Denied(code(&request.reason));
            (request, outcome)
        }
        // A request with an error may have been stopped by an alarm.
        About::Finished(request, end) if end.error.is_none() => match &request.rule {
            Some(rule) if rule == FULL_NET_RULE => (request, AttemptOutcome::AllowedByFullNet),
            Some(_) | None => return None,
        },
        About::Finished(..)
        | About::Open(_)
        | About::Alarm(_)
        | About::Budget(_)
        | About::Masked(_) => return None,
    };
    let (method, scheme, host) = (request.method, request.scheme, request.host);
    let (port, path) = (request.port, request.path);
    let target = AttemptTarget::Request { method, scheme, host, port, path };
    Some(Attempt { target, outcome })
}

/// Returns what a recorded request teaches, if the current rules do not allow it.
///
/// A request that was allowed needs the rule that allowed it, which the current rules may no longer have.
pub fn attempt_of_request(request: RequestDecided) -> Attempt {
    let outcome = match request.verdict.as_str() {
        "allow" => AttemptOutcome::AllowedByFullNet,
        _ => AttemptOutcome::Denied(code(&request.reason)),
    };
    let RequestDecided { method, scheme, host, port, path, .. } = request;
    Attempt { target: AttemptTarget::Request { method, scheme, host, port, path }, outcome }
}

/// The name in the ledger of the rule that allows everything with `--net full`.
const FULL_NET_RULE: &str = "net full";

/// Returns the code at the start of a reason, such as `no-rule`, or an empty text if there is none.
fn code(reason: &str) -> String {
    let is_code =
        |prefix: &&str| prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let code = reason.split_once(": ").map(|(prefix, _)| prefix).filter(is_code);
    code.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn code_returns_the_code_at_the_start_of_a_reason() {
        assert_eq!(code("no-rule: GET https://a.example/: no rule allows it"), "no-rule");
        for other in ["no rule allows it", "No-rule: x", "a b: c", "", "no-rule"] {
            assert_eq!(code(other), "", "{other}");
        }
    }
}
