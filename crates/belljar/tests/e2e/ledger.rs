//! End-to-end tests of the `belljar ledger` commands.

mod proofs;
mod read;
mod traces;

use std::fs;
use std::path::Path;

use belljar_testkit::{Lab, Program};
use serde_json::Value;

/// Bytes that control a terminal, break lines or are not valid UTF-8.
const HOSTILE: &[u8] =
    b"\x1b]0;evil\x07\x1b[2J\0\xff\xfe\x9b31m\xe2\x80\xa8\xe2\x80\xae\r\n\xc2\x9d52;c;x\x07";
/// [`HOSTILE`] as an argument of `printf`.
const HOSTILE_FOR_PRINTF: &str =
    r"\033]0;evil\007\033[2J\000\377\376\23331m\342\200\250\342\200\256\r\n\302\23552;c;x\007";

/// Returns the program `belljar ledger` with these arguments.
fn ledger<S: AsRef<std::ffi::OsStr>>(lab: &Lab, args: impl IntoIterator<Item = S>) -> Program {
    lab.belljar(["ledger"]).args(args)
}

/// Runs a command that must succeed and returns the JSON objects that it writes, one per line.
#[track_caller]
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

/// Runs a command and returns the JSON object on the last line of its output.
#[track_caller]
fn object(program: Program) -> Value {
    program.run().result()
}

/// Configures boxes of the lab to record the content of their output, not only its hash.
fn record_bodies(lab: &Lab) {
    let dir = lab.home().join(".config/belljar");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("belljar.toml"), "[template.default]\nrecord = \"bodies\"\n").unwrap();
}

/// Runs a script in a box and returns the id of the run.
#[track_caller]
fn run(lab: &Lab, options: &[&str], script: &str) -> String {
    let result = lab.json(options, script).run().result();
    result["run"].as_str().expect("an id").to_owned()
}

/// Returns the event of this kind in a run, and panics unless there is exactly one.
#[track_caller]
fn event(lab: &Lab, run: &str, kind: &str) -> Value {
    let mut all = objects(ledger(lab, ["log", "--json", "--run", run, "--kind", kind]));
    assert_eq!(all.len(), 1, "{kind}");
    all.remove(0)
}

/// Returns the hash of the standard output of a run.
#[track_caller]
fn stdout_hash(lab: &Lab, run: &str) -> String {
    let ended = event(lab, run, "run.ended");
    ended["fields"]["stdout"]["hash"].as_str().expect("a hash").to_owned()
}

/// Returns the path of the file that stores the body with this hash.
fn body_file(lab: &Lab, hash: &str) -> std::path::PathBuf {
    lab.state().join("ledger/bodies").join(&hash[..2]).join(&hash[2..])
}

/// Copies a directory recursively.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Asserts that a text has no control character except newlines, and no invisible or bidirectional
/// formatting character.
#[track_caller]
fn assert_printable(text: &[u8]) {
    let text = std::str::from_utf8(text).expect("UTF-8");
    let is_unsafe = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
    };
    assert_eq!(text.chars().find(|c| is_unsafe(*c)), None, "{text:?}");
}
