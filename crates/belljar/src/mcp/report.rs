//! What is told of a program that is over: as JSON for programs, as text for models.

use belljar_model::Reason;
use belljar_wire::ProgramError;
use serde::Serialize;
use serde_json::{Map, Value, json};

use belljar_engine::network::broker::Asked;
use belljar_engine::programs::Answer;

/// The account of one program.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
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
    requests: Vec<Asked>,
    more_requests: u64,
    denied: Vec<String>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn of(answer: &Answer) -> Self {
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

    pub(crate) const fn is_ok(&self) -> bool {
        self.ok
    }

    pub(crate) const fn result(&self) -> &Value {
        &self.result
    }

    /// What it threw, or why it was ended.
    pub(crate) fn failure(&self) -> Option<String> {
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

    pub(crate) fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }

    /// The same for a reader: only what there is to say.
    pub(crate) fn text(&self) -> String {
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

/// The JSON Schema of [`Report`].
pub(super) fn schema() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let nullable = |kind: &str| json!({"type": [kind, "null"]});
    let value = json!({
        "type": "object",
        "required": ["run", "ok", "result", "stdout", "stderr", "stdout_truncated",
            "stderr_truncated", "duration_ms", "reason", "error", "exit", "requests",
            "more_requests", "denied", "notes"],
        "properties": {
            "run": text, "ok": {"type": "boolean"}, "result": {}, "stdout": text, "stderr": text,
            "stdout_truncated": {"type": "boolean"}, "stderr_truncated": {"type": "boolean"},
            "duration_ms": {"type": "number"}, "reason": text,
            "error": {
                "type": ["object", "null"],
                "required": ["name", "message"],
                "properties": {
                    "name": text, "message": text, "stack": nullable("string"),
                    "line": nullable("integer"), "column": nullable("integer"),
                },
            },
            "exit": nullable("integer"),
            "requests": {"type": "array", "items": {
                "type": "object",
                "required": ["method", "url", "allowed", "status", "secrets"],
                "properties": {
                    "method": text, "url": text, "allowed": {"type": "boolean"},
                    "status": nullable("integer"), "secrets": texts,
                },
            }},
            "more_requests": {"type": "integer"}, "denied": texts, "notes": texts,
        },
    });
    object(value)
}

/// A JSON object that is written down here.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
