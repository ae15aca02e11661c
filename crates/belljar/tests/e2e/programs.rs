//! Programs as models write them, all through one server: `tests/programs`.
//!
//! A program begins with what it must give, one thing a line, and is sent whole, so that lines are
//! those of the file:
//!
//! ```text
//! // oracle: deno             what worked it out, if not Node; `hand` for what only a box does
//! // input: {"n":1}           what it is given
//! // expect: [1,2]            its result; none if there is no such line
//! // stdout: one line         what it writes, line by line; `stderr` likewise
//! // error: TypeError at 7    what it ends with, and where
//! // message: "no such id"    what that says
//! ```
//!
//! None of it is from anybody's head. `oracle.mjs` beside the programs runs them in Node and in Deno,
//! under the same rules of results and against the same web service, and says how it is started.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use belljar_testkit::{Authority, Lab, Mcp, SHOP_TOKEN, Upstream, shop};
use serde_json::{Value, json};

use crate::lab;

/// So many are under way at once.
const AT_ONCE: usize = 8;

#[derive(Debug, Default)]
struct Program {
    name: String,
    text: String,
    wants: HashMap<String, Vec<String>>,
}

impl Program {
    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("a program");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let mut wants: HashMap<String, Vec<String>> = HashMap::new();
        for line in text.lines() {
            let said = line.strip_prefix("// ").and_then(|line| line.split_once(':'));
            let Some((key, value)) = said.filter(|(key, _)| KEYS.contains(key)) else { break };
            let value = value.strip_prefix(' ').unwrap_or(value);
            wants.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        Self { name, text, wants }
    }

    fn first(&self, key: &str) -> Option<&str> {
        self.wants.get(key)?.first().map(String::as_str)
    }

    fn json(&self, key: &str) -> Option<Value> {
        self.first(key).map(|text| serde_json::from_str(text).expect("JSON"))
    }

    fn arguments(&self) -> Value {
        let language = self.name.rsplit('.').next();
        let mut arguments = json!({ "code": self.text, "language": language });
        if let Some(input) = self.json("input") {
            arguments["input"] = input;
        }
        arguments
    }

    /// Everything that is not as it should be.
    fn deviations(&self, account: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let expect = self.json("expect").unwrap_or_default();
        if !same(&expect, &account["result"]) {
            found.push(format!("result\n    want {expect}\n    have {}", account["result"]));
        }
        for stream in ["stdout", "stderr"] {
            let want = self.wants.get(stream).map_or_else(String::new, |lines| lines.join("\n"));
            let have = plain(account[stream].as_str().unwrap_or_default());
            if want.trim_end_matches('\n') != have {
                found.push(format!("{stream}\n--- want\n{want}\n--- have\n{have}\n---"));
            }
        }
        let (name, line) =
            match self.first("error").map(|it| it.split_once(" at ").unwrap_or((it, ""))) {
                Some((name, line)) => (Some(name), line.parse::<u64>().ok()),
                None => (None, None),
            };
        let error = &account["error"];
        if error["name"].as_str() != name {
            found.push(format!("error: want {name:?}, have {error}; ended: {}", account["reason"]));
        } else if line.is_some() && error["line"].as_u64() != line {
            found.push(format!("line: want {line:?}, have {error}"));
        } else if self.json("message").is_some_and(|message| message != error["message"]) {
            found.push(format!("message: {error}"));
        }
        if name.is_none() && account["ok"] != true {
            found.push(format!("not ok: {}", account["reason"]));
        }
        found
    }
}

const KEYS: [&str; 7] = ["oracle", "input", "expect", "stdout", "stderr", "error", "message"];

/// Numbers by value: engines write the same one in different ways.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let fits = |(key, value)| other.get(key).is_some_and(|other| same(value, other));
            one.len() == other.len() && one.iter().all(fits)
        }
        _ => one == other,
    }
}

/// Without what no editor would keep at the end of a line.
fn plain(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').map(str::trim_end).collect();
    lines.join("\n").trim_end_matches('\n').to_owned()
}

/// A lab whose programs reach the shop, which gets its token on the way out.
pub(crate) fn with_shop() -> (Lab, Upstream) {
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
    let (lab, _shop) = with_shop();
    let server = Mcp::start(lab.belljar(["mcp"]));
    let mut report = String::new();
    let mut wrong = 0;
    for some in programs.chunks(AT_ONCE) {
        let asked: Vec<u64> =
            some.iter().map(|it| server.begin("execute_code", &it.arguments())).collect();
        for (program, id) in some.iter().zip(asked) {
            let answer = server.answer(id);
            let account = &answer["result"]["structuredContent"];
            let found = if account.is_object() {
                program.deviations(account)
            } else {
                vec![format!("no account: {answer}")]
            };
            if !found.is_empty() {
                wrong += 1;
                writeln!(report, "** {}\n  {}", program.name, found.join("\n  ")).expect("a text");
            }
        }
    }
    assert!(wrong == 0, "{wrong} of {} programs deviate:\n{report}", programs.len());
    server.end().expect(0);
}
