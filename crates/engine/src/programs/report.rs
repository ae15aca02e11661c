//! The report on a program that has ended, as JSON for clients and as text for models.

use belljar_model::Reason;
use belljar_wire::ProgramError;
use serde::Serialize;
use serde_json::{Value, json};

use super::ProgramOutcome;
use crate::network::broker::RequestSummary;

/// The report on one program that has ended.
#[derive(Debug, Serialize)]
pub struct ProgramReport {
    /// The id of the run in the ledger and in the resource `run://ID`.
    run: String,
    /// Whether the program ended by itself with exit status 0 and without an exception.
    ok: bool,
    /// The result of the program, or null.
    result: Value,
    stdout: String,
    stderr: String,
    stdout_truncated: bool,
    stderr_truncated: bool,
    duration_ms: f64,
    /// The reason why the program ended.
    reason: Reason,
    error: Option<ProgramError>,
    exit: Option<i32>,
    requests: Vec<RequestSummary>,
    more_requests: u64,
    denied: Vec<String>,
    notes: Vec<String>,
}

impl ProgramReport {
    /// Creates the report on the outcome of a program.
    pub fn of(outcome: &ProgramOutcome) -> Self {
        let ending = &outcome.ending;
        let done = ending.done.as_ref();
        let error = done.and_then(|done| done.trouble.clone());
        let result = done.and_then(|done| done.value.as_ref());
        let result = result.and_then(|value| serde_json::from_str(value.get()).ok());
        let ok = ending.reason == Reason::Exited && error.is_none() && ending.exit == Some(0);
        Self {
            run: outcome.run.clone(),
            ok,
            result: result.unwrap_or(Value::Null),
            stdout: outcome.stdout.clone(),
            stderr: outcome.stderr.clone(),
            stdout_truncated: ending.stdout_truncated,
            stderr_truncated: ending.stderr_truncated,
            duration_ms: std::time::Duration::from_micros(ending.wall_micros).as_secs_f64() * 1e3,
            reason: ending.reason,
            error,
            exit: ending.exit,
            requests: ending.requests.clone(),
            more_requests: ending.more_requests,
            denied: ending.denied.clone(),
            notes: outcome.remarks.iter().chain(&ending.notes).cloned().collect(),
        }
    }

    pub const fn is_ok(&self) -> bool {
        self.ok
    }

    pub const fn result(&self) -> &Value {
        &self.result
    }

    /// Returns the exception of the program or the reason why it was killed, or `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        if self.ok {
            return None;
        }
        let why = match &self.error {
            Some(ProgramError { name, message, .. }) => format!("{name}: {message}"),
            None if self.reason == Reason::Exited => {
                format!("the program exited with status {}", self.exit.unwrap_or(-1))
            }
            None => self.reason.sentence().to_owned(),
        };
        Some(why)
    }

    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }

    /// Returns the report as text for a model, without empty parts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut add = |name: &str, body: &str| {
            if !body.is_empty() {
                let gap = if body.contains('\n') { "\n" } else { " " };
                text.push_str(&format!("{name}:{gap}{}\n", body.trim_end_matches('\n')));
            }
        };
        if let Some(failure) = self.failure() {
            let line = self.error.as_ref().and_then(|error| error.line);
            let line = line.map_or_else(String::new, |line| format!(" (line {line})"));
            add("error", &format!("{failure}{line}"));
            let stack = self.error.as_ref().and_then(|error| error.stack.as_deref());
            add("stack", stack.unwrap_or_default());
        }
        if !self.result.is_null() {
            add("result", &self.result.to_string());
        }
        add("stdout", &self.stdout);
        add("stderr", &self.stderr);
        if self.stdout_truncated || self.stderr_truncated {
            add("note", "the output is truncated");
        }
        for request in &self.requests {
            let status = request.status.map_or_else(String::new, |status| format!(" -> {status}"));
            let denied = if request.allowed { "" } else { " DENIED" };
            add("request", &format!("{} {}{status}{denied}", request.method, request.url));
        }
        if self.more_requests > 0 {
            add("request", &format!("and {} more", self.more_requests));
        }
        self.denied.iter().for_each(|line| add("denied", line));
        self.notes.iter().for_each(|line| add("note", line));
        text.push_str(&format!("({:.1} ms, run {})", self.duration_ms, self.run));
        text
    }
}
