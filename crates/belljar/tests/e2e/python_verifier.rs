//! `examples/verify_ledger.py` and `belljar ledger verify` give the same results for intact and damaged
//! ledgers and receipts. The script implements `docs/ledger-format.md` and shares no code with Belljar.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use belljar_testkit::{Lab, Program};

use crate::lab;

/// The source of the Python verifier.
const SCRIPT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/verify_ledger.py"));
/// A Python program that calls the verifier for each line of arguments, because Python starts slowly.
const BATCH_SCRIPT: &str = r#"
import json, sys
import verify_ledger
for line in sys.stdin:
    sys.argv = ["verify_ledger.py", *json.loads(line)]
    try:
        code = verify_ledger.main()
    except SystemExit as end:
        code = end.code
    print(code, flush=True)
"#;

/// The files of a ledger and its anchor: contents by path below `BELLJAR_HOME`.
type Files = BTreeMap<String, Vec<u8>>;

/// The path of the log of events.
const LOG: &str = "ledger/events.log";
/// The path of the salts of bodies.
const SALTS: &str = "ledger/salts";
/// The path of the signed head, which has two slots.
const HEAD: &str = "anchor/head";
/// The path of the list of public keys.
const KEYS: &str = "anchor/keys";
/// The size of a slot of the head in bytes.
const SLOT: usize = 4096;

/// A ledger that both verifiers check, and the expected result.
struct Case {
    name: String,
    files: Files,
    args: Vec<String>,
    /// Whether the ledger is intact. With `None`, the verifiers must only agree.
    sound: Option<bool>,
}

/// Reads the files of a ledger and its anchor, except for the index.
fn read(home: &Path) -> Files {
    let mut files = Files::new();
    let mut dirs = vec![home.join("ledger"), home.join("anchor")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let name = entry.path().strip_prefix(home).unwrap().to_str().unwrap().to_owned();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else if !name.contains("index.db") {
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

/// Writes the files of a ledger and its anchor.
fn write(home: &Path, files: &Files) {
    for part in ["ledger", "anchor"] {
        fs::create_dir_all(home.join(part)).unwrap();
    }
    for (name, bytes) in files {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Writes the Python verifier to a file and returns its path.
fn write_script(lab: &Lab) -> PathBuf {
    let path = lab.dir().join("verify_ledger.py");
    fs::write(&path, SCRIPT).unwrap();
    path
}

/// Runs the Python verifier with each list of arguments and returns exit codes and output.
fn run_python(lab: &Lab, lines: &[Vec<String>]) -> Vec<(i32, String)> {
    write_script(lab);
    let batch = lab.dir().join("many.py");
    fs::write(&batch, BATCH_SCRIPT).unwrap();
    let input: String =
        lines.iter().map(|line| serde_json::json!(line).to_string() + "\n").collect();
    let out = lab.program("python3").arg(batch).input(input).succeed();
    let mut output = String::new();
    let mut results = Vec::new();
    for line in out.lines() {
        match line.parse() {
            Ok(code) => results.push((code, std::mem::take(&mut output))),
            Err(_) => output += line,
        }
    }
    assert_eq!(results.len(), lines.len(), "{output}");
    results
}

/// Runs one program per item on four threads, and returns exit codes and output.
fn run_all<T: Sync>(all: &[T], program: impl Fn(&T) -> Program + Sync) -> Vec<(i32, String)> {
    let share = all.len().div_ceil(4).max(1);
    let run = |item: &T| {
        let ended = program(item).run();
        (ended.code(), ended.out() + &ended.err())
    };
    thread::scope(|scope| {
        let workers =
            all.chunks(share).map(|some| scope.spawn(|| some.iter().map(&run).collect::<Vec<_>>()));
        let workers: Vec<_> = workers.collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Asserts that the results of both verifiers are equal and as expected.
#[track_caller]
fn assert_same_results<'a>(
    cases: impl Iterator<Item = (&'a str, Option<bool>)>,
    rust: &[(i32, String)],
    python: &[(i32, String)],
) {
    let mut differences = Vec::new();
    for (((name, sound), rust), python) in cases.zip(rust).zip(python) {
        let is_expected = sound.is_none_or(|sound| rust.0 == i32::from(!sound));
        if rust.0 != python.0 || rust.0 > 1 || !is_expected {
            differences
                .push(format!("{name}: should be sound: {sound:?}\n  {rust:?}\n  {python:?}"));
        }
    }
    let count = differences.len();
    assert!(count == 0, "{count} results are wrong:\n{}", differences.join("\n"));
}

/// Verifies each case with Belljar and with the Python verifier and compares the results.
#[track_caller]
fn verify_with_both(lab: &Lab, cases: &[Case]) {
    let home = |number: usize| lab.dir().join(format!("case-{number}"));
    let mut lines = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        write(&home(number), &case.files);
        let path = |part: &str| home(number).join(part).to_str().unwrap().to_owned();
        let mut line =
            vec![path("ledger"), path("anchor"), "--deep".to_owned(), "--json".to_owned()];
        line.extend(case.args.iter().cloned());
        lines.push(line);
    }
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    let rust = run_all(&numbered, |(number, case)| {
        let program = lab.belljar(["ledger", "verify", "--deep", "--json"]).args(&case.args);
        program.env("BELLJAR_HOME", home(*number))
    });
    let names = cases.iter().map(|case| (case.name.as_str(), case.sound));
    assert_same_results(names, &rust, &run_python(lab, &lines));
}

/// A ledger with events of many kinds, and copies from earlier times.
struct TestLedger {
    lab: Lab,
    now: Files,
    early: Files,
    /// The files directly after the rotation of the key.
    rotated: Files,
    /// Checkpoints from the times of `early` and of `now`.
    checkpoints: [PathBuf; 2],
    keys: Vec<String>,
    runs: Vec<String>,
}

/// Creates a ledger with runs, a prune, a rotation of the key, a redaction and checkpoints.
#[track_caller]
fn make_ledger() -> TestLedger {
    let lab = lab();
    let run = |options: &[&str], script: &str| {
        let result = lab.json(options, script).run().result();
        result["run"].as_str().expect("an id").to_owned()
    };
    let ledger = |args: &[&str]| lab.belljar(["ledger"]).args(args).succeed();
    let checkpoint = |name: &str| {
        let path = lab.dir().join(name);
        ledger(&["checkpoint", "-o", path.to_str().unwrap()]);
        path
    };
    let kept = ["--record", "bodies"];
    let first = run(&[], "echo plain; echo x > f");
    let second = run(&kept, "seq 99; echo said >&2; seq 999 > g");
    ledger(&["prune", "--before", "0s", "--yes"]);
    let early = (read(&lab.state()), checkpoint("early"));
    lab.belljar(["apply", "--yes", &second]).succeed();
    ledger(&["key", "rotate", "--yes"]);
    let rotated = read(&lab.state());
    let third = run(&kept, "echo secret; rm g");
    let log = ledger(&["log", "--json", "--run", &third, "--kind", "run.ended"]);
    let ended: serde_json::Value = serde_json::from_str(&log).unwrap();
    let secret = ended["fields"]["stdout"]["hash"].as_str().expect("a hash").to_owned();
    ledger(&["redact", &secret, "--reason", "a test", "--yes"]);
    let fourth = run(&kept, "echo shown; exit 3");
    let late = checkpoint("late");
    let now = read(&lab.state());
    let keys: Vec<String> =
        String::from_utf8(now[KEYS].clone()).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(keys.len(), 2, "one rotation");
    let runs = vec![first, second, third, fourth];
    TestLedger { lab, now, early: early.0, rotated, checkpoints: [early.1, late], keys, runs }
}

impl TestLedger {
    /// Returns a case in which one file has other content.
    fn with(
        &self,
        name: impl Into<String>,
        file: &str,
        bytes: impl Into<Vec<u8>>,
        sound: bool,
    ) -> Case {
        let mut files = self.now.clone();
        files.insert(file.to_owned(), bytes.into());
        Case { name: name.into(), files, args: Vec::new(), sound: Some(sound) }
    }

    /// Returns a case in which one file is missing.
    fn without(&self, file: &str) -> Case {
        let mut files = self.now.clone();
        files.remove(file).expect("the file exists");
        Case { name: format!("without {file}"), files, args: Vec::new(), sound: Some(false) }
    }

    /// Returns a case with the intact ledger and these arguments.
    fn with_args(&self, name: &str, args: &[&str], sound: bool) -> Case {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Case { name: name.to_owned(), files: self.now.clone(), args, sound: Some(sound) }
    }

    /// Returns a case in which one bit of a file is changed.
    fn flip(&self, file: &str, at: usize, sound: Option<bool>) -> Case {
        let bytes = flipped(&self.now[file], at);
        Case { sound, ..self.with(format!("{file}, byte {at}"), file, bytes, false) }
    }

    /// Returns a case with the ledger of one copy and the anchor of another.
    fn mixed(name: &str, ledger: &Files, anchor: &Files, sound: bool) -> Case {
        let part = |of: &Files, part: &str| {
            let of = of.iter().filter(|(name, _)| name.starts_with(part));
            of.map(|(name, bytes)| (name.clone(), bytes.clone())).collect::<Vec<_>>()
        };
        let files = part(ledger, "ledger/").into_iter().chain(part(anchor, "anchor/")).collect();
        Case { name: name.to_owned(), files, args: Vec::new(), sound: Some(sound) }
    }

    /// Returns the batches of the log, in order.
    fn batches(&self) -> Vec<&[u8]> {
        let mut rest = &self.now[LOG][64..];
        let mut all = Vec::new();
        while !rest.is_empty() {
            let payload = u32::from_be_bytes(rest[4..8].try_into().unwrap());
            let (batch, after) = rest.split_at(28 + payload as usize + 32);
            all.push(batch);
            rest = after;
        }
        all
    }

    /// Returns the path of the first stored body.
    fn body(&self) -> &str {
        self.now.keys().find(|name| name.starts_with("ledger/bodies/")).expect("a body was kept")
    }
}

/// Returns the bytes with one bit of the byte at an offset changed.
fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << (at % 8);
    bytes
}

/// Returns `count` evenly spaced offsets from `from` to `to`.
fn spread(from: usize, to: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| from + (to - from) * step / count)
}

#[test]
fn python_verifier_agrees_with_belljar_on_changed_bytes_of_the_log() {
    let ledger = make_ledger();
    let mut cases = vec![ledger.with_args("as it is", &[], true)];
    cases.extend([0, 14, 15, 16, 31, 32, 63].map(|at| ledger.flip(LOG, at, Some(false))));
    let mut start = 64;
    for (number, batch) in ledger.batches().into_iter().enumerate() {
        let (payload, check) = (start + 28, start + batch.len() - 32);
        // Magic, length, index, count and writer. Each batch has another byte of each field changed.
        let head = [(0, 4), (4, 4), (8, 8), (16, 4), (20, 8)];
        let head = head.map(|(at, length)| start + at + number % length);
        let offsets = head.into_iter().chain(spread(payload, check, 6));
        let offsets = offsets.chain([check, check + 31]);
        cases.extend(offsets.map(|at| ledger.flip(LOG, at, Some(false))));
        start += batch.len();
    }
    assert!(cases.len() > 200, "only {} offsets of the log are tested", cases.len());
    verify_with_both(&ledger.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_truncated_and_reordered_logs() {
    let ledger = make_ledger();
    let (log, batches) = (&ledger.now[LOG], ledger.batches());
    let (header, last) = (&log[..64], batches[batches.len() - 1]);
    let log_of = |parts: &[&[u8]]| [&[header], parts].concat().concat();
    let appended = |bytes: &[u8]| [log.as_slice(), bytes].concat();
    // An incomplete append by this writer that contains a complete batch. A box may have chosen its bytes.
    let incomplete = |writer: u64, rest: &[u8]| {
        let (index, writer) = (1000_u64.to_be_bytes(), writer.to_be_bytes());
        let head = [b"BJB1\0\x10\0\0", &index[..], b"\0\0\0\x01", &writer, b"\xff\xff"].concat();
        [&head, last, rest].concat()
    };
    let writer = u64::from_be_bytes(last[20..28].try_into().unwrap());
    let mut cases = vec![
        ledger.with("junk at the end", LOG, appended(b"junk"), true),
        ledger.with("zeros at the end", LOG, appended(&[0; 100]), true),
        ledger.with("an incomplete batch at the end", LOG, appended(&last[..last.len() - 1]), true),
        ledger.with("the last batch twice", LOG, appended(last), false),
        ledger.with("the first batch again at the end", LOG, appended(batches[0]), false),
        ledger.with("junk and a batch at the end", LOG, appended(&[b"junk", last].concat()), false),
        ledger.with(
            "an incomplete batch that contains a batch of another writer",
            LOG,
            appended(&incomplete(9, b"rest")),
            true,
        ),
        ledger.with(
            "an incomplete batch that contains a batch of its writer",
            LOG,
            appended(&incomplete(writer, b"rest")),
            false,
        ),
        ledger.with(
            "an incomplete batch, then a complete one",
            LOG,
            appended(&incomplete(9, b"")),
            false,
        ),
        ledger.without(LOG),
    ];
    let mut at = 64;
    for (number, batch) in batches.iter().enumerate() {
        cases.push(ledger.with(format!("cut at byte {at}"), LOG, &log[..at], false));
        let cut = at + batch.len() * (number + 1) / (batches.len() + 1);
        cases.push(ledger.with(format!("cut at byte {cut}"), LOG, &log[..cut], false));
        let (before, after) = batches.split_at(number);
        let without = [before, &after[1..]].concat();
        cases.push(ledger.with(format!("without batch {number}"), LOG, log_of(&without), false));
        if number > 0 {
            let mut swapped = batches.clone();
            swapped.swap(number - 1, number);
            cases.push(ledger.with(format!("batch {number} first"), LOG, log_of(&swapped), false));
        }
        at += batch.len();
    }
    cases.push(ledger.with("empty", LOG, "", false));
    cases.push(ledger.with("cut in the header", LOG, &log[..40], false));
    cases.push(TestLedger::mixed("an older copy of the ledger", &ledger.early, &ledger.now, false));
    // The older anchor does not sign the later redaction, so the redacted body counts as missing.
    cases.push(TestLedger::mixed("an older copy of the anchor", &ledger.now, &ledger.early, false));
    cases.push(TestLedger::mixed("an older copy of both", &ledger.early, &ledger.early, true));
    verify_with_both(&ledger.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_damaged_or_foreign_anchors_and_checkpoints() {
    let ledger = make_ledger();
    let stranger = lab();
    stranger.bash("true").run().expect(0);
    let foreign = read(&stranger.state());
    let foreign_key = String::from_utf8(foreign[KEYS].clone()).unwrap().trim().to_owned();
    let (head, keys) = (&ledger.now[HEAD], &ledger.now[KEYS]);
    let [old, new] = [&ledger.keys[0], &ledger.keys[1]];
    let list = |keys: &[&String]| keys.iter().map(|key| format!("{key}\n")).collect::<String>();

    let mut cases = vec![
        ledger.without(HEAD),
        ledger.without(KEYS),
        ledger.with("no head", HEAD, "", false),
        ledger.with("no keys", KEYS, "", false),
        ledger.with("one slot", HEAD, &head[..SLOT], true),
        ledger.with("the other slot", HEAD, [&[0; SLOT], &head[SLOT..]].concat(), true),
        ledger.with("slots exchanged", HEAD, [&head[SLOT..], &head[..SLOT]].concat(), true),
        ledger.with("both slots damaged", HEAD, flipped(&flipped(head, 9), SLOT + 9), false),
        ledger.with("a head of another ledger", HEAD, foreign[HEAD].clone(), false),
        ledger.with("keys of another ledger", KEYS, foreign[KEYS].clone(), false),
        ledger.with("a key too many", KEYS, list(&[old, new, &foreign_key]), false),
        ledger.with("only the old key", KEYS, list(&[old]), false),
        ledger.with("only the new key", KEYS, list(&[new]), false),
        ledger.with("keys exchanged", KEYS, list(&[new, old]), false),
        ledger.with("a key twice", KEYS, list(&[old, old, new]), false),
        ledger.with("a line that does not end", KEYS, &keys[..keys.len() - 1], false),
        ledger.with("an empty line", KEYS, [keys.as_slice(), b"\n"].concat(), false),
        TestLedger::mixed("the anchor of another ledger", &ledger.now, &foreign, false),
        TestLedger::mixed("the log of another ledger", &foreign, &ledger.now, false),
        ledger.with_args("the old key", &["--key", old], true),
        ledger.with_args("the new key", &["--key", new], true),
        ledger.with_args("a foreign key", &["--key", &foreign_key], false),
    ];
    // Without its signing key a ledger is a copy, and this list is that of an interrupted key rotation.
    for case in cases.iter_mut().filter(|case| case.name == "only the old key") {
        case.files.remove("anchor/key");
        case.sound = Some(true);
    }
    let rotated = TestLedger::mixed("the new key at once", &ledger.rotated, &ledger.rotated, true);
    cases.push(Case { args: vec!["--key".to_owned(), new.clone()], ..rotated });
    // A damaged slot may be a slot that is being written, so the other slot is valid.
    cases.extend(spread(0, 2 * SLOT, 24).map(|at| ledger.flip(HEAD, at, Some(true))));
    let in_both_slots = |at: usize| [at, SLOT + at];
    let field_offsets =
        [0, 4, 8, 16, 24, 32, 33, 41, 73, 74, 110, 300].into_iter().flat_map(in_both_slots);
    cases.extend(field_offsets.map(|at| ledger.flip(HEAD, at, Some(true))));
    cases.extend(spread(0, keys.len(), 30).map(|at| ledger.flip(KEYS, at, Some(false))));

    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let checkpoint = |name: &str, bytes: Vec<u8>| {
        let path = ledger.lab.dir().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [early, late] = [path(&ledger.checkpoints[0]), path(&ledger.checkpoints[1])];
    let elsewhere = stranger.belljar(["ledger", "checkpoint"]).succeed() + "\n";
    let elsewhere = checkpoint("elsewhere", elsewhere.into_bytes());
    cases.push(ledger.with_args(
        "checkpoints",
        &["--checkpoint", &early, "--checkpoint", &late],
        true,
    ));
    cases.push(ledger.with_args(
        "a checkpoint of another ledger",
        &["--checkpoint", &elsewhere],
        false,
    ));
    let later_key = ["--checkpoint", &early, "--key", new];
    cases.push(ledger.with_args("a checkpoint from before the key", &later_key, false));
    for (name, files) in [("lost events", &ledger.early), ("all events", &ledger.now)] {
        let sound = name == "all events";
        let case =
            TestLedger::mixed(name, files, if sound { &ledger.now } else { &ledger.early }, sound);
        cases.push(Case { args: vec!["--checkpoint".to_owned(), late.clone()], ..case });
    }
    let note = fs::read(&ledger.checkpoints[0]).unwrap();
    for (number, at) in spread(0, note.len(), 24).enumerate() {
        // Only changes that keep the text valid UTF-8.
        if note[at].is_ascii() && note[at] ^ (1 << (at % 7)) < 0x80 {
            let mut bytes = note.clone();
            bytes[at] ^= 1 << (at % 7);
            let file = checkpoint(&format!("flipped-{number}"), bytes);
            cases.push(ledger.with_args(
                &format!("checkpoint, byte {at}"),
                &["--checkpoint", &file],
                false,
            ));
        }
    }
    let cut = checkpoint("cut", note[..note.len() - 1].to_vec());
    cases.push(ledger.with_args("a checkpoint that is cut", &["--checkpoint", &cut], false));
    let witness = checkpoint("more", [&note, "— someone AAAAAAA=\n".as_bytes()].concat());
    cases.push(ledger.with_args("an additional signature", &["--checkpoint", &witness], true));
    verify_with_both(&ledger.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_damaged_bodies_and_salts() {
    let ledger = make_ledger();
    let salts = &ledger.now[SALTS];
    let body = ledger.body();
    let bytes = &ledger.now[body];
    let mut cases = vec![
        ledger.without(SALTS),
        ledger.without(body),
        ledger.with("an empty body", body, "", false),
        ledger.with("a body that is cut", body, &bytes[..bytes.len() - 1], false),
        ledger.with("a longer body", body, [bytes.as_slice(), b"x"].concat(), false),
        ledger.with(
            "a body that no event names",
            &format!("ledger/bodies/aa/{:062}", 0),
            "x",
            true,
        ),
        ledger.with("half a salt", SALTS, [salts.as_slice(), b"x"].concat(), true),
        ledger.with("a salt twice", SALTS, [salts.as_slice(), &salts[64..136]].concat(), true),
        ledger.with("a salt of no body", SALTS, [salts.as_slice(), &[7; 72]].concat(), true),
        ledger.with("salts moved", SALTS, [&salts[..64], b"x", &salts[64..]].concat(), false),
        ledger.with("no salts", SALTS, &salts[..64], false),
        ledger.with("the last salt is gone", SALTS, &salts[..salts.len() - 72], false),
    ];
    let other = ledger.now.keys().rfind(|name| name.starts_with("ledger/bodies/"));
    let other = other.filter(|other| *other != body).expect("two bodies were kept");
    cases.push(ledger.with("another body", body, ledger.now[other].clone(), false));
    cases.extend(spread(0, bytes.len(), 40).map(|at| ledger.flip(body, at, Some(false))));
    cases.extend(spread(0, 64, 16).map(|at| ledger.flip(SALTS, at, Some(false))));
    // Salts of redacted or pruned bodies are no longer needed, so either result is right.
    cases.extend(spread(64, salts.len(), 60).map(|at| ledger.flip(SALTS, at, None)));
    verify_with_both(&ledger.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_intact_and_changed_receipts() {
    let ledger = make_ledger();
    let lab = &ledger.lab;
    let receipt = |run: &str, options: &[&str]| {
        let ended = lab.belljar(["ledger", "receipt", run]).args(options).run();
        ended.expect(0);
        ended.stdout
    };
    let [old, new] = [&ledger.keys[0], &ledger.keys[1]];
    let full = receipt(&ledger.runs[3], &["--with-bodies"]);
    let mut cases =
        vec![("bodies", full.clone(), old, Some(true)), ("key", full.clone(), new, Some(true))];
    for run in &ledger.runs {
        cases.push(("plain", receipt(run, &[]), old, Some(true)));
    }
    cases.push((
        "of which a part is redacted",
        receipt(&ledger.runs[2], &["--with-bodies"]),
        new,
        Some(true),
    ));
    cases.push(("two lines", [full.as_slice(), b"\n"].concat(), old, Some(false)));
    cases.push(("no line", full[..full.len() - 1].to_vec(), old, Some(false)));
    cases.push(("a space", [b" ", full.as_slice()].concat(), old, Some(false)));
    cases.push(("empty", Vec::new(), old, Some(false)));
    let text = String::from_utf8(full.clone()).unwrap();
    cases.push(("an escape", text.replacen("belljar/", "belljar\\/", 1).into(), old, Some(false)));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let proof = value["events"][1]["proof"][0].as_str().expect("a proof");
    cases.push(("another proof", text.replacen(proof, "", 1).into(), old, Some(false)));
    let last = text.rfind(",{\"index\":").expect("several events");
    let end = text.find("],\"bodies\"").expect("the end of the events");
    let shorter = format!("{}{}", &text[..last], &text[end..]);
    cases.push(("without the last event", shorter.into(), old, Some(false)));
    let older = text.replacen("receipt 2", "receipt 1", 1);
    cases.push(("format 1", older.into(), old, Some(false)));
    cases.extend(
        spread(0, full.len(), 160).map(|at| ("a bit", flipped(&full, at), old, Some(false))),
    );
    let plain = receipt(&ledger.runs[0], &[]);
    cases.extend(
        spread(0, plain.len(), 60).map(|at| ("a bit", flipped(&plain, at), old, Some(false))),
    );

    let mut receipts = Vec::new();
    for (number, (_, bytes, key, _)) in cases.iter().enumerate() {
        let path = lab.dir().join(format!("receipt-{number}"));
        fs::write(&path, bytes).unwrap();
        receipts.push((path.to_str().unwrap().to_owned(), (*key).clone()));
    }
    let rust = run_all(&receipts, |(path, key)| {
        lab.belljar(["ledger", "verify-receipt", path, "--key", key])
    });
    let lines: Vec<_> = receipts
        .iter()
        .map(|(path, key)| ["--json", "--receipt", path, "--key", key].map(str::to_owned).to_vec())
        .collect();
    let names = cases.iter().map(|(name, _, _, sound)| (*name, *sound));
    assert_same_results(names, &rust, &run_python(lab, &lines));
}

/// The receipt of a plan, and that of another plan in the same ledger. `crates/ledger` checks that they are
/// what it writes.
const PLAN_RECEIPTS: [&str; 2] = [
    include_str!("../../../ledger/src/receipt/plan/golden.receipt"),
    include_str!("../../../ledger/src/receipt/plan/golden_other.receipt"),
];

/// The parts of the receipt of a plan, in their order.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct PlanReceipt {
    format: String,
    run: String,
    key: String,
    rotations: Vec<Rotation>,
    checkpoint: String,
    chains: Vec<Chain>,
    bodies: Vec<Disclosed>,
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Rotation {
    old: String,
    new: String,
    endorsement: String,
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Chain {
    run: String,
    index: u64,
    proof: Vec<String>,
    events: Vec<String>,
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Disclosed {
    hash: String,
    salt: String,
    content: String,
}

/// Returns a receipt with its parts changed, in canonical form.
fn changed(receipt: &PlanReceipt, change: impl FnOnce(&mut PlanReceipt)) -> Vec<u8> {
    let mut receipt = receipt.clone();
    change(&mut receipt);
    (serde_json::to_string(&receipt).unwrap() + "\n").into_bytes()
}

#[test]
fn h02_python_verifier_requires_the_boxes_of_the_checks_of_a_plan() {
    let lab = lab();
    lab.write(
        "checked.toml",
        "[task.a]\ndo.command = ['echo', 'good']\ncheck = [{ command = ['grep', '-q', 'good'] }]\n",
    );
    lab.belljar(["submit", "checked.toml", "--watch"]).succeed();
    let text = lab.belljar(["ledger", "receipt", "checked"]).run().out();
    let receipt: PlanReceipt = serde_json::from_str(&text).unwrap();
    assert_eq!(receipt.chains.len(), 3, "the plan, the task and its check");
    let intact = changed(&receipt, |_| ());
    let without = changed(&receipt, |it| drop(it.chains.pop()));
    let lines = [("intact", intact), ("without", without)].map(|(name, content)| {
        let path = lab.dir().join(name);
        fs::write(&path, content).unwrap();
        let (path, key) = (path.to_str().unwrap().to_owned(), receipt.key.clone());
        let rust = lab.belljar(["ledger", "verify-receipt", &path, "--key", &key]).run().code();
        (rust, vec!["--json".to_owned(), "--receipt".to_owned(), path, "--key".to_owned(), key])
    });
    let python = run_python(&lab, &lines.clone().map(|(_, line)| line));
    assert_eq!((lines[0].0, python[0].0), (0, 0), "{python:?}");
    assert!(lines[1].0 != 0 && python[1].1.contains("are missing"), "{python:?}");
}

#[test]
fn h02_python_verifier_agrees_with_belljar_on_intact_and_changed_receipts_of_plans() {
    let lab = lab();
    let [plan, other]: [PlanReceipt; 2] =
        PLAN_RECEIPTS.map(|text| serde_json::from_str(text).unwrap());
    let key = plan.rotations[0].old.clone();
    let text = PLAN_RECEIPTS[0].as_bytes();
    let intact = |name, receipt| (name, receipt, Some(true));
    let mut cases: Vec<(&str, Vec<u8>, Option<bool>)> = vec![
        intact("intact", text.to_vec()),
        intact("other plan", PLAN_RECEIPTS[1].into()),
        intact("written again", changed(&plan, |_| ())),
        intact("without a body", changed(&plan, |it| drop(it.bodies.remove(0)))),
    ];
    let mut refuse = |name, change: &dyn Fn(&mut PlanReceipt)| {
        cases.push((name, changed(&plan, change), Some(false)));
    };
    for box_run in 0..plan.chains.len() {
        refuse("missing chain", &|it| drop(it.chains.remove(box_run)));
        for event in 0..plan.chains[box_run].events.len() {
            refuse("missing event", &|it| drop(it.chains[box_run].events.remove(event)));
        }
        if !plan.chains[box_run].events.is_empty() {
            refuse("no events", &|it| it.chains[box_run].events.clear());
        }
        refuse("chain twice", &|it| it.chains.push(it.chains[box_run].clone()));
        refuse("another index", &|it| it.chains[box_run].index += 1);
    }
    refuse("never started", &|it| {
        it.chains[1] =
            Chain { index: 0, proof: Vec::new(), events: Vec::new(), ..it.chains[1].clone() };
    });
    refuse("box of another plan instead", &|it| it.chains[1] = other.chains[1].clone());
    refuse("box of another plan too", &|it| it.chains.push(other.chains[1].clone()));
    refuse("another plan", &|it| it.chains[0] = other.chains[0].clone());
    refuse("another run", &|it| it.run.clone_from(&other.run));
    refuse("another checkpoint", &|it| it.checkpoint.clone_from(&other.checkpoint));
    refuse("boxes in another order", &|it| it.chains.swap(1, 3));
    refuse("events in another order", &|it| it.chains[1].events.swap(1, 2));
    refuse("shorter proof", &|it| drop(it.chains[1].proof.pop()));
    refuse("format 2", &|it| it.format = "belljar receipt 2".to_owned());
    refuse("format 4", &|it| it.format = "belljar receipt 4".to_owned());
    refuse("body twice", &|it| it.bodies.push(it.bodies[0].clone()));
    refuse("content of another body", &|it| it.bodies[0].content = it.bodies[1].content.clone());
    refuse("no rotation", &|it| it.rotations.clear());
    cases.extend(spread(0, text.len(), 150).map(|at| ("a bit", flipped(text, at), Some(false))));
    cases.extend(spread(0, text.len(), 30).map(|at| ("cut", text[..at].to_vec(), Some(false))));

    let mut paths = Vec::new();
    for (number, (_, bytes, _)) in cases.iter().enumerate() {
        let path = lab.dir().join(format!("receipt-{number}"));
        fs::write(&path, bytes).unwrap();
        paths.push(path.to_str().unwrap().to_owned());
    }
    let verify = |path: &String| lab.belljar(["ledger", "verify-receipt", path, "--key", &key]);
    let rust = run_all(&paths, verify);
    let lines: Vec<_> = paths
        .iter()
        .map(|path| ["--json", "--receipt", path, "--key", &key].map(str::to_owned).to_vec())
        .collect();
    let names = cases.iter().map(|(name, _, sound)| (*name, *sound));
    assert_same_results(names, &rust, &run_python(&lab, &lines));
    let shown = verify(&paths[0]).succeed();
    let valid = "valid: plan, 3 tasks, 2 boxes, 16 events, 1 approval, 2 credential uses";
    assert_eq!(shown.lines().last(), Some(valid), "{shown}");
    assert!(shown.contains("a: done, 1 attempt, output 11 B"), "{shown}");
    let missing = cases.iter().position(|(name, ..)| *name == "missing chain").unwrap() + 1;
    let missing =
        paths.iter().zip(&cases).skip(missing).find(|(_, case)| case.0 == "missing chain");
    let refused = verify(missing.unwrap().0).run();
    refused.fails_with(1, "the receipt lacks the events of box run");
    let json = verify(&paths[0]).arg("--json").succeed();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["credential_uses"]["anthropic"], 2, "{json}");
    assert_eq!(json["events"].as_array().map(Vec::len), Some(16));
}

#[test]
fn python_verifier_reports_the_damage_and_its_position() {
    let ledger = make_ledger();
    let home = ledger.lab.dir().join("copy");
    let mut files = ledger.now.clone();
    files.insert(LOG.to_owned(), flipped(&ledger.now[LOG], 70));
    write(&home, &files);
    let verify = |home: &Path| {
        let dirs = [home.join("ledger"), home.join("anchor")];
        ledger.lab.program("python3").arg(write_script(&ledger.lab)).args(dirs)
    };
    let intact = verify(&ledger.lab.state()).arg("--deep").run().expect(0);
    assert!(intact.starts_with("intact: events "), "{intact}");
    let damaged = verify(&home).run().expect(1);
    assert!(damaged.starts_with("damage: events.log byte 64: "), "{damaged}");
    assert!(damaged.contains("\ndamaged: "), "{damaged}");
    verify(&ledger.lab.dir().join("nowhere")).run().fails_with(2, "no ledger to verify");
    verify(&home).args(["--key", "none"]).run().fails_with(2, "--key: ");
    let help = ledger.lab.program("python3").arg(write_script(&ledger.lab)).arg("--help").succeed();
    assert!(help.contains("exit status: 0 intact, 1 damaged, 2 wrong usage"), "{help}");
}
