//! The report on a program that has ended, as JSON for clients and as text for models.
//!
//! A program chooses its result, and as a tree in memory a result can need a hundred times as many bytes as
//! its JSON text. So a report has the text, and a tree is made only of a result with few values.

use belljar_model::Reason;
use belljar_wire::ProgramError;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ProgramOutcome;
use crate::network::broker::RequestSummary;

/// The maximum nesting of a result. Many JSON parsers refuse a message with 128 levels, and the response
/// to a client has some levels around the result.
const MAX_DEPTH: usize = 100;
/// The maximum number of values of a result in a tree. As text, a result can have more.
const MAX_VALUES: usize = 100_000;

/// The report on one program that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramReport {
    /// The id of the run in the ledger and in the resource `run://ID`.
    run: String,
    /// Whether the program ended by itself with exit status 0 and without an exception.
    ok: bool,
    /// The result of the program as the text of its JSON, with the order of its keys.
    result: Option<Box<RawValue>>,
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
        let result = done.and_then(|done| done.value.clone());
        let result = result.filter(|value| value.get() != "null");
        let depth = result.as_ref().map_or(0, |value| Extent::of(value.get()).depth);
        let is_too_deep = depth > MAX_DEPTH;
        let too_deep = is_too_deep.then(|| too_deep(depth));
        let error = done.and_then(|done| done.trouble.clone()).or(too_deep);
        let ok = ending.reason == Reason::Exited && error.is_none() && ending.exit == Some(0);
        Self {
            run: outcome.run.clone(),
            ok,
            result: result.filter(|_| !is_too_deep),
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

    /// Returns the JSON text of the result; `null` if there is none.
    pub fn result(&self) -> &str {
        self.result.as_ref().map_or("null", |result| result.get())
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

    /// Returns the report as a tree. A result with too many values is left out, with a note.
    pub fn json(&self) -> Value {
        if Extent::of(self.result()).values <= MAX_VALUES {
            return serde_json::to_value(self).unwrap_or_else(|_| json!({}));
        }
        let mut report = Self { result: None, ..self.clone() };
        report.notes.push(format!(
            "the result has more than {MAX_VALUES} values, so it is only in the text of this answer"
        ));
        serde_json::to_value(report).unwrap_or_else(|_| json!({}))
    }

    /// Returns the report as JSON text, with the complete result.
    pub fn json_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
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
        if let Some(result) = &self.result {
            add("result", result.get());
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

/// How deeply the values in a JSON text are nested, and how many there are.
#[derive(Debug, Default, PartialEq, Eq)]
struct Extent {
    depth: usize,
    /// At least the number of values, and at most one more for each array or object.
    values: usize,
}

impl Extent {
    /// Reads a valid JSON text. Uses no memory that depends on the text.
    fn of(json: &str) -> Self {
        let mut extent = Self { depth: 0, values: 1 };
        let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
        for byte in json.bytes() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'[' | b'{' => {
                    depth += 1;
                    extent.values += 1;
                    extent.depth = extent.depth.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b',' => extent.values += 1,
                _ => {}
            }
        }
        extent
    }
}

/// Returns the error of a program whose result is nested too deeply.
fn too_deep(depth: usize) -> ProgramError {
    ProgramError {
        name: "RangeError".to_owned(),
        message: format!(
            "the result is nested {depth} levels deep; the limit is {MAX_DEPTH}: return a flatter value, or write it to a file in /workspace"
        ),
        stack: None,
        line: None,
        column: None,
    }
}

#[cfg(test)]
mod tests {
    use belljar_wire::ProgramResult;

    use super::*;
    use crate::supervisor::spec::Ending;

    /// Returns the report on a program with this result.
    fn report_on(json: &str) -> ProgramReport {
        let value = Some(RawValue::from_string(json.to_owned()).unwrap());
        let ending = Ending {
            reason: Reason::Exited,
            exit: Some(0),
            signal: None,
            wall_micros: 1,
            cpu_micros: 1,
            peak_memory: None,
            done: Some(ProgramResult { value, trouble: None }),
            stdout_truncated: false,
            stderr_truncated: false,
            requests: Vec::new(),
            more_requests: 0,
            denied: Vec::new(),
            notes: Vec::new(),
            is_unrecorded: false,
        };
        let (run, text) = ("run".to_owned(), String::new());
        let (stdout, stderr, remarks) = (text.clone(), text, Vec::new());
        ProgramReport::of(&ProgramOutcome { run, ending, stdout, stderr, remarks })
    }

    #[test]
    fn extent_counts_levels_and_values_outside_of_strings() {
        for (json, depth, values) in [
            ("1", 0, 1),
            ("[]", 1, 2),
            ("[1,2,3]", 1, 4),
            (r#"{"a":[{"b,[":"\\\"]"}]}"#, 3, 4),
            (r#"["[[[[\\","]"]"#, 1, 3),
        ] {
            assert_eq!(Extent::of(json), Extent { depth, values }, "{json}");
        }
    }

    #[test]
    fn report_keeps_the_order_of_keys_in_the_result() {
        let ranking = r#"{"zebra":1,"ant":{"y":2,"b":3},"monkey":[]}"#;
        let report = report_on(ranking);
        assert!(report.text().contains(ranking), "{}", report.text());
        assert!(report.json_text().contains(ranking), "{}", report.json_text());
        assert_eq!(report.json()["result"].to_string(), ranking);
    }

    #[test]
    fn f14_result_that_is_nested_too_deeply_is_an_error_and_not_null() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for depth in [MAX_DEPTH + 1, 128, 100_000] {
            let report = report_on(&nested(depth));
            assert!(!report.is_ok());
            let failure = report.failure().unwrap();
            assert!(failure.contains(&format!("nested {depth} levels deep")), "{failure}");
            assert!(report.json()["error"]["message"].as_str().unwrap().contains("nested"));
        }
        let control = report_on(&nested(MAX_DEPTH));
        assert!(control.is_ok() && control.json()["result"].is_array());
    }

    #[test]
    fn f14_result_with_very_many_values_does_not_become_a_tree() {
        let many = format!("[{}0]", "[],".repeat(MAX_VALUES));
        let report = report_on(&many);
        assert!(report.is_ok() && report.text().contains(&many));
        let tree = report.json();
        assert!(tree["result"].is_null() && tree["notes"].to_string().contains("values"), "{tree}");
        let few = format!("[{}0]", "[],".repeat(1000));
        assert_eq!(report_on(&few).json()["result"].as_array().unwrap().len(), 1001);
    }
}
