//! Runs the programs of `tests/programs`, which are typical for models, through one MCP server.
//!
//! A program starts with comments that state its expected results, one per line. The complete file is
//! sent, so that line numbers are those of the file:
//!
//! ```text
//! // oracle: deno             the engine that gave the results, if not Node; `hand` if none can
//! // input: {"n":1}           the input of the program
//! // expect: [1,2]            its result; without this line it has no result
//! // stdout: one line         one line of its standard output; `stderr` likewise
//! // error: TypeError at 7    the uncaught error and its line
//! // message: "no such id"    the message of the error
//! ```
//!
//! Except for `oracle: hand`, `oracle.mjs` in the directory of the programs checks the expected results. It
//! runs the programs in Node and Deno, with the same definition of a result and the same web service. Its first lines tell
//! how to start it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use belljar_testkit::{Authority, Lab, Mcp, SHOP_TOKEN, Upstream, shop};
use serde_json::{Value, json};

use crate::lab;

/// The number of programs that run at the same time.
const CONCURRENCY: usize = 8;

/// A program and its expected results.
#[derive(Debug, Default)]
struct Program {
    name: String,
    text: String,
    /// The values of the comment lines, by their key.
    expectations: HashMap<String, Vec<String>>,
}

impl Program {
    /// Reads a program and its expected results from a file.
    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("a program");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let mut expectations: HashMap<String, Vec<String>> = HashMap::new();
        for line in text.lines() {
            let comment = line.strip_prefix("// ").and_then(|line| line.split_once(':'));
            let Some((key, value)) = comment.filter(|(key, _)| KEYS.contains(key)) else { break };
            let value = value.strip_prefix(' ').unwrap_or(value);
            expectations.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        Self { name, text, expectations }
    }

    /// Returns the first value of a key.
    fn first(&self, key: &str) -> Option<&str> {
        self.expectations.get(key)?.first().map(String::as_str)
    }

    /// Returns the first value of a key, parsed as JSON.
    fn json(&self, key: &str) -> Option<Value> {
        self.first(key).map(|text| serde_json::from_str(text).expect("JSON"))
    }

    /// Returns the arguments of the `execute_code` call for this program.
    fn arguments(&self) -> Value {
        let language = self.name.rsplit('.').next();
        let mut arguments = json!({ "code": self.text, "language": language });
        if let Some(input) = self.json("input") {
            arguments["input"] = input;
        }
        arguments
    }

    /// Compares the report of a call with the expected results and describes each difference.
    fn differences(&self, report: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let expect = self.json("expect").unwrap_or_default();
        if !is_same_json(&expect, &report["result"]) {
            found.push(format!("result\n    want {expect}\n    have {}", report["result"]));
        }
        for stream in ["stdout", "stderr"] {
            let want =
                self.expectations.get(stream).map_or_else(String::new, |lines| lines.join("\n"));
            let have = trim_lines(report[stream].as_str().unwrap_or_default());
            if want.trim_end_matches('\n') != have {
                found.push(format!("{stream}\n--- want\n{want}\n--- have\n{have}\n---"));
            }
        }
        let (name, line) =
            match self.first("error").map(|it| it.split_once(" at ").unwrap_or((it, ""))) {
                Some((name, line)) => (Some(name), line.parse::<u64>().ok()),
                None => (None, None),
            };
        let error = &report["error"];
        if error["name"].as_str() != name {
            found.push(format!("error: want {name:?}, have {error}; ended: {}", report["reason"]));
        } else if line.is_some() && error["line"].as_u64() != line {
            found.push(format!("line: want {line:?}, have {error}"));
        } else if self.json("message").is_some_and(|message| message != error["message"]) {
            found.push(format!("message: {error}"));
        }
        if name.is_none() && report["ok"] != true {
            found.push(format!("not ok: {}", report["reason"]));
        }
        found
    }
}

/// The keys of the comment lines.
const KEYS: [&str; 7] = ["oracle", "input", "expect", "stdout", "stderr", "error", "message"];

/// Compares JSON values. Numbers are equal by value, because engines format them differently.
fn is_same_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same_json(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let fits =
                |(key, value)| other.get(key).is_some_and(|other| is_same_json(value, other));
            one.len() == other.len() && one.iter().all(fits)
        }
        _ => one == other,
    }
}

/// Removes trailing whitespace of each line and trailing empty lines.
fn trim_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').map(str::trim_end).collect();
    lines.join("\n").trim_end_matches('\n').to_owned()
}

/// Creates a lab whose programs may call the web service `shop`. The broker adds its token.
pub(crate) fn lab_with_shop() -> (Lab, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::tls(&authority, &["api.shop.test", "cdn.shop.test"], shop());
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[api.shop]\nsecrets = [\"shop\"]\n\
             [[api.shop.allow]]\nhost = \"api.shop.test\"\nconnect = \"{connect}\"\n\
             [[api.cdn.allow]]\nhost = \"cdn.shop.test\"\nconnect = \"{connect}\"\n\
             [secret.shop]\nhosts = [\"api.shop.test\"]\nslots = [\"header:authorization\"]\n\
             shape = \"shop_live_{{20}}\"\nenv = \"SHOP_TOKEN\"\n"
        ),
    );
    lab.belljar(["secret", "set", "shop"]).input(SHOP_TOKEN).run().expect(0);
    (lab, upstream)
}

#[test]
fn code_mode_runs_200_typical_programs_with_the_results_of_node_or_deno() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut programs: Vec<Program> = std::fs::read_dir(dir)
        .expect("the programs")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "ts" || kind == "js"))
        .map(|path| Program::read(&path))
        .collect();
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(programs.len() >= 200, "only {} programs", programs.len());
    let (lab, _shop) = lab_with_shop();
    let server = Mcp::start(lab.belljar(["mcp"]));
    let mut failures = String::new();
    let mut failed = 0;
    for some in programs.chunks(CONCURRENCY) {
        let ids: Vec<u64> =
            some.iter().map(|it| server.start_call("execute_code", &it.arguments())).collect();
        for (program, id) in some.iter().zip(ids) {
            let answer = server.wait_for_response(id);
            let report = &answer["result"]["structuredContent"];
            let found = if report.is_object() {
                program.differences(report)
            } else {
                vec![format!("no report: {answer}")]
            };
            if !found.is_empty() {
                failed += 1;
                writeln!(failures, "** {}\n  {}", program.name, found.join("\n  "))
                    .expect("a text");
            }
        }
    }
    assert!(failed == 0, "{failed} of {} programs differ:\n{failures}", programs.len());
    server.end().expect(0);
}
