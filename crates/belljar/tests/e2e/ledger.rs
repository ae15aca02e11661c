//! `belljar ledger`: the record of what happened, from outside.

mod proofs;
mod read;
mod traces;

use std::fs;
use std::path::Path;

use belljar_testkit::{Lab, Program};
use serde_json::Value;

/// Bytes that a terminal, a line reader or a text decoder could stumble over.
const HOSTILE: &[u8] =
    b"\x1b]0;evil\x07\x1b[2J\0\xff\xfe\x9b31m\xe2\x80\xa8\xe2\x80\xae\r\n\xc2\x9d52;c;x\x07";
/// The same for `printf`.
const PRINTF: &str =
    r"\033]0;evil\007\033[2J\000\377\376\23331m\342\200\250\342\200\256\r\n\302\23552;c;x\007";

fn ledger<S: AsRef<std::ffi::OsStr>>(lab: &Lab, args: impl IntoIterator<Item = S>) -> Program {
    lab.belljar(["ledger"]).args(args)
}

/// The objects of a command that writes one per line.
#[track_caller]
fn objects(program: Program) -> Vec<Value> {
    let out = program.succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

#[track_caller]
fn object(program: Program) -> Value {
    program.run().result()
}

/// Makes the lab's boxes keep what they write, not only its hash.
fn keep_bodies(lab: &Lab) {
    let dir = lab.home().join(".config/belljar");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("belljar.toml"), "[template.default]\nrecord = \"bodies\"\n").unwrap();
}

/// Runs a script in a box; the id of the run.
#[track_caller]
fn run(lab: &Lab, options: &[&str], script: &str) -> String {
    let result = lab.json(options, script).run().result();
    result["run"].as_str().expect("an id").to_owned()
}

/// The only event of this kind in a run.
#[track_caller]
fn event(lab: &Lab, run: &str, kind: &str) -> Value {
    let mut all = objects(ledger(lab, ["log", "--json", "--run", run, "--kind", kind]));
    assert_eq!(all.len(), 1, "{kind}");
    all.remove(0)
}

/// The hash of what a run wrote.
#[track_caller]
fn stdout_of(lab: &Lab, run: &str) -> String {
    let ended = event(lab, run, "run.ended");
    ended["fields"]["stdout"]["hash"].as_str().expect("a hash").to_owned()
}

/// Where a kept body is.
fn body_file(lab: &Lab, hash: &str) -> std::path::PathBuf {
    lab.state().join("ledger/bodies").join(&hash[..2]).join(&hash[2..])
}

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

/// Text that only draws: no control but line ends, nothing invisible, nothing that reverses.
#[track_caller]
fn assert_draws(text: &[u8]) {
    let text = std::str::from_utf8(text).expect("UTF-8");
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
    };
    assert_eq!(text.chars().find(|c| steers(*c)), None, "{text:?}");
}
