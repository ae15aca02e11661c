//! What the log has of what a broker decides: less than the ledger. No header, no body, nothing that
//! follows `?`, no value of a secret; of a reason only its code.

use crate::record::{Decided, Finished, Question, Verdict, Word};

/// Longest text of a stranger in a line.
const MAX_TEXT: usize = 256; // bytes

pub(crate) fn log(word: &Word) {
    match word {
        Word::Dns { name, query, verdict, rule, reason } => {
            let (name, query) = (short(name), short(query));
            let (reason, rule) = (denied(*verdict, reason), rule.as_deref());
            let verdict = verdict.name();
            tracing::info!(name, query, verdict, rule, reason, "name decided");
        }
        Word::Decided(decided) => log_decided(decided),
        Word::Finished(Finished { cause, status, sent, received, micros, error }) => {
            let failed = error.is_some();
            tracing::debug!(cause, status, sent, received, micros, failed, "request finished");
        }
        Word::SecretUsed { name, slot, host } => {
            tracing::debug!(secret = name, slot, host = short(host), "secret goes into a request");
        }
        Word::Alarm { alarm, .. } => tracing::warn!(alarm, "alarm"),
        Word::Spent { budget, unit, amount, total } => {
            tracing::debug!(budget, unit, amount, total, "budget spent");
        }
        Word::Asked(question) => {
            let Question { number, method, host, path, rule, .. } = &**question;
            let (method, host, path) = (short(method), short(host), short(path));
            tracing::info!(question = number, method, host, path, rule, "approval asked");
        }
        Word::Unasked { question, why } => {
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

/// The code of a refusal. What is allowed has no reason but its rule.
fn denied(verdict: Verdict, reason: &str) -> Option<&str> {
    (verdict == Verdict::Deny).then(|| code(reason))
}

/// The word before the explanation, which may quote what the box said.
fn code(reason: &str) -> &str {
    reason.split_once(": ").map_or("", |(code, _)| short(code))
}

/// The path of an address may hold anything, and be long.
fn short(text: &str) -> &str {
    let path = text.split_once('?').map_or(text, |(path, _)| path);
    let end = (0..=MAX_TEXT).rev().find(|at| path.is_char_boundary(*at)).unwrap_or(0);
    path.get(..end).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_stranger_in_a_line_is_cut_and_has_no_query() {
        assert_eq!(short("/user?token=x"), "/user");
        assert_eq!(short(&"a".repeat(1000)).len(), MAX_TEXT);
        assert_eq!(short(&"ä".repeat(1000)).len(), MAX_TEXT);
        let odd = format!("a{}", "ä".repeat(1000));
        assert_eq!(short(&odd).len(), MAX_TEXT - 1);
    }

    #[test]
    fn reason_in_a_line_is_its_code() {
        assert_eq!(code("method: POST is not among GET"), "method");
        assert_eq!(code("whatever the box said"), "");
    }
}
