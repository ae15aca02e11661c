//! Writes the broker's events to the log, with less detail than the ledger: no header, body, query
//! string or secret value, and of a reason only its code.

use crate::record::{BrokerEvent, Decided, Finished, ModelCalled, Question, Verdict};

/// The maximum length of a text from the box in a log line.
const MAX_TEXT: usize = 256; // bytes

pub(crate) fn log(event: &BrokerEvent) {
    match event {
        BrokerEvent::Dns { name, query, verdict, rule, reason } => {
            let (name, query) = (short(name), short(query));
            let (reason, rule) = (denied(*verdict, reason), rule.as_deref());
            let verdict = verdict.name();
            tracing::info!(name, query, verdict, rule, reason, "name decided");
        }
        BrokerEvent::Decided(decided) => log_decided(decided),
        BrokerEvent::Finished(Finished { cause, status, sent, received, micros, error }) => {
            let failed = error.is_some();
            tracing::debug!(cause, status, sent, received, micros, failed, "request finished");
        }
        BrokerEvent::SecretUsed { name, slot, host } => {
            tracing::debug!(secret = name, slot, host = short(host), "secret added to a request");
        }
        BrokerEvent::SecretMasked { name, host } => {
            tracing::info!(secret = name, host = short(host), "placeholder masked in a body");
        }
        BrokerEvent::Alarm { alarm, .. } => tracing::warn!(alarm, "alarm"),
        BrokerEvent::Spent { budget, unit, amount, total } => {
            tracing::debug!(budget, unit, amount, total, "budget spent");
        }
        BrokerEvent::ModelCalled(ModelCalled { cause, model, input, output, microusd, .. }) => {
            let model = model.as_deref().map(short);
            tracing::debug!(cause, model, input, output, microusd, "model called");
        }
        BrokerEvent::Asked(question) => {
            let Question { number, method, host, path, rule, .. } = &**question;
            let (method, host, path) = (short(method), short(host), short(path));
            tracing::info!(question = number, method, host, path, rule, "approval asked");
        }
        BrokerEvent::QuestionClosed { question, why } => {
            tracing::info!(question = question.number, why = why.name(), "approval not given");
        }
    }
}

fn log_decided(decided: &Decided) {
    let Decided { method, scheme, host, port, path, verdict, rule, reason, .. } = decided;
    let (method, host, path) = (short(method), short(host), short(path));
    let (reason, rule) = (denied(*verdict, reason), rule.as_deref());
    let verdict = verdict.name();
    tracing::info!(method, scheme, host, port, path, verdict, rule, reason, "request decided");
}

/// Returns the reason code of a denial, or `None` if the request was allowed. An allowed request
/// has no reason except its rule.
fn denied(verdict: Verdict, reason: &str) -> Option<&str> {
    (verdict == Verdict::Deny).then(|| code(reason))
}

/// Returns the reason code without the explanation after it, which can quote text from the box.
fn code(reason: &str) -> &str {
    reason.split_once(": ").map_or("", |(code, _)| short(code))
}

/// Removes the query string from a text of the box and truncates it.
fn short(text: &str) -> &str {
    let path = text.split_once('?').map_or(text, |(path, _)| path);
    let end = (0..=MAX_TEXT).rev().find(|at| path.is_char_boundary(*at)).unwrap_or(0);
    path.get(..end).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_text_from_the_box_is_truncated_and_has_no_query() {
        assert_eq!(short("/user?token=x"), "/user");
        assert_eq!(short(&"a".repeat(1000)).len(), MAX_TEXT);
        assert_eq!(short(&"ä".repeat(1000)).len(), MAX_TEXT);
        let odd = format!("a{}", "ä".repeat(1000));
        assert_eq!(short(&odd).len(), MAX_TEXT - 1);
    }

    #[test]
    fn log_line_contains_only_the_reason_code() {
        assert_eq!(code("method: POST is not among GET"), "method");
        assert_eq!(code("any text from the box"), "");
    }
}
