//! The report on a program that has ended: JSON for programs, text for models.

use belljar_model::Reason;
use belljar_wire::ProgramError;
use serde::Serialize;
use serde_json::{Value, json};

use super::Answer;
use crate::network::broker::RequestSummary;

/// The report on one program.
#[derive(Debug, Serialize)]
pub struct ProgramReport {
    /// Its name in the ledger and as `run://ID`.
    run: String,
    /// It came to its end, threw nothing and returned 0.
    ok: bool,
    /// What it gave; null for none.
    result: Value,
    stdout: String,
    stderr: String,
    stdout_truncated: bool,
    stderr_truncated: bool,
    duration_ms: f64,
    /// Why it is over.
    reason: Reason,
    error: Option<ProgramError>,
    exit: Option<i32>,
    requests: Vec<RequestSummary>,
    more_requests: u64,
    denied: Vec<String>,
    notes: Vec<String>,
}

impl ProgramReport {
    pub fn of(answer: &Answer) -> Self {
        let ending = &answer.ending;
        let done = ending.done.as_ref();
        let error = done.and_then(|done| done.trouble.clone());
        let result = done.and_then(|done| done.value.as_ref());
        let result = result.and_then(|value| serde_json::from_str(value.get()).ok());
        let ok = ending.reason == Reason::Exited && error.is_none() && ending.exit == Some(0);
        Self {
            run: answer.run.clone(),
            ok,
            result: result.unwrap_or(Value::Null),
            stdout: answer.stdout.clone(),
            stderr: answer.stderr.clone(),
            stdout_truncated: ending.stdout_truncated,
            stderr_truncated: ending.stderr_truncated,
            duration_ms: std::time::Duration::from_micros(ending.wall_micros).as_secs_f64() * 1e3,
            reason: ending.reason,
            error,
            exit: ending.exit,
            requests: ending.requests.clone(),
            more_requests: ending.more_requests,
            denied: ending.denied.clone(),
            notes: answer.remarks.iter().chain(&ending.notes).cloned().collect(),
        }
    }

    pub const fn is_ok(&self) -> bool {
        self.ok
    }

    pub const fn result(&self) -> &Value {
        &self.result
    }

    /// What it threw, or why it was ended.
    pub fn failure(&self) -> Option<String> {
        if self.ok {
            return None;
        }
        let why = match &self.error {
            Some(ProgramError { name, message, .. }) => format!("{name}: {message}"),
            None if self.reason == Reason::Exited => {
                format!("the program returned {}", self.exit.unwrap_or(-1))
            }
            None => self.reason.sentence().to_owned(),
        };
        Some(why)
    }

    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }

    /// The same for a reader: only what there is to say.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut part = |name: &str, body: &str| {
            if !body.is_empty() {
                let gap = if body.contains('\n') { "\n" } else { " " };
                text.push_str(&format!("{name}:{gap}{}\n", body.trim_end_matches('\n')));
            }
        };
        if let Some(why) = self.failure() {
            let place = self.error.as_ref().and_then(|error| error.line);
            let place = place.map_or_else(String::new, |line| format!(" (line {line})"));
            part("error", &format!("{why}{place}"));
            let stack = self.error.as_ref().and_then(|error| error.stack.as_deref());
            part("stack", stack.unwrap_or_default());
        }
        if !self.result.is_null() {
            part("result", &self.result.to_string());
        }
        part("stdout", &self.stdout);
        part("stderr", &self.stderr);
        if self.stdout_truncated || self.stderr_truncated {
            part("note", "output was longer and is cut");
        }
        for asked in &self.requests {
            let status = asked.status.map_or_else(String::new, |status| format!(" -> {status}"));
            let denied = if asked.allowed { "" } else { " DENIED" };
            part("request", &format!("{} {}{status}{denied}", asked.method, asked.url));
        }
        if self.more_requests > 0 {
            part("request", &format!("and {} more", self.more_requests));
        }
        self.denied.iter().for_each(|line| part("denied", line));
        self.notes.iter().for_each(|line| part("note", line));
        text.push_str(&format!("({:.1} ms, run {})", self.duration_ms, self.run));
        text
    }
}
