//! `examples/verify_ledger.py`, which follows `docs/ledger-format.md` and shares no code with us, and
//! Belljar come to the same answers about sound and about damaged ledgers and receipts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use belljar_testkit::{Lab, Program};

use crate::lab;

const SCRIPT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/verify_ledger.py"));
/// Calls it for each line of arguments, for Python is slow to start.
const MANY: &str = r#"
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

/// A ledger and its anchor: paths below `BELLJAR_HOME`, and what the files hold.
type Files = BTreeMap<String, Vec<u8>>;

const LOG: &str = "ledger/events.log";
const SALTS: &str = "ledger/salts";
const HEAD: &str = "anchor/head";
const KEYS: &str = "anchor/keys";
const SLOT: usize = 4096;

/// What both verifiers are asked, and what they must say.
struct Case {
    name: String,
    files: Files,
    args: Vec<String>,
    /// `None`: they must agree, whatever they say.
    sound: Option<bool>,
}

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

/// The script as an operator has it.
fn script(lab: &Lab) -> PathBuf {
    let path = lab.dir().join("verify_ledger.py");
    fs::write(&path, SCRIPT).unwrap();
    path
}

/// The exit codes of the script for many command lines.
fn python(lab: &Lab, lines: &[Vec<String>]) -> Vec<(i32, String)> {
    script(lab);
    let many = lab.dir().join("many.py");
    fs::write(&many, MANY).unwrap();
    let input: String =
        lines.iter().map(|line| serde_json::json!(line).to_string() + "\n").collect();
    let out = lab.program("python3").arg(many).input(input).succeed();
    let mut told = String::new();
    let mut answers = Vec::new();
    for line in out.lines() {
        match line.parse() {
            Ok(code) => answers.push((code, std::mem::take(&mut told))),
            Err(_) => told += line,
        }
    }
    assert_eq!(answers.len(), lines.len(), "{told}");
    answers
}

/// Runs these programs, some at a time.
fn codes<T: Sync>(all: &[T], program: impl Fn(&T) -> Program + Sync) -> Vec<(i32, String)> {
    let share = all.len().div_ceil(4).max(1);
    let answer = |asked: &T| {
        let ended = program(asked).run();
        (ended.code(), ended.out() + &ended.err())
    };
    thread::scope(|scope| {
        let workers = all
            .chunks(share)
            .map(|some| scope.spawn(|| some.iter().map(&answer).collect::<Vec<_>>()));
        let workers: Vec<_> = workers.collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Holds the answers against each other and against what is known.
#[track_caller]
fn compare<'a>(
    cases: impl Iterator<Item = (&'a str, Option<bool>)>,
    rust: &[(i32, String)],
    python: &[(i32, String)],
) {
    let mut wrong = Vec::new();
    for (((name, sound), rust), python) in cases.zip(rust).zip(python) {
        let fits = sound.is_none_or(|sound| rust.0 == i32::from(!sound));
        if rust.0 != python.0 || rust.0 > 1 || !fits {
            wrong.push(format!("{name}: should be sound: {sound:?}\n  {rust:?}\n  {python:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[track_caller]
fn judge(lab: &Lab, cases: &[Case]) {
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
    let rust = codes(&numbered, |(number, case)| {
        let program = lab.belljar(["ledger", "verify", "--deep", "--json"]).args(&case.args);
        program.env("BELLJAR_HOME", home(*number))
    });
    let names = cases.iter().map(|case| (case.name.as_str(), case.sound));
    compare(names, &rust, &python(lab, &lines));
}

/// A ledger with everything in it, and what was kept of it on the way.
struct Made {
    lab: Lab,
    now: Files,
    early: Files,
    /// When the key had just been exchanged.
    rotated: Files,
    /// Of when it was `early`, and of `now`.
    checkpoints: [PathBuf; 2],
    keys: Vec<String>,
    runs: Vec<String>,
}

#[track_caller]
fn make() -> Made {
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
    Made { lab, now, early: early.0, rotated, checkpoints: [early.1, late], keys, runs }
}

impl Made {
    /// The ledger with one file exchanged.
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

    fn without(&self, file: &str) -> Case {
        let mut files = self.now.clone();
        files.remove(file).expect("it was there");
        Case { name: format!("without {file}"), files, args: Vec::new(), sound: Some(false) }
    }

    /// The ledger as it is, and something else asked.
    fn asked(&self, name: &str, args: &[&str], sound: bool) -> Case {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Case { name: name.to_owned(), files: self.now.clone(), args, sound: Some(sound) }
    }

    /// One bit changed.
    fn flip(&self, file: &str, at: usize, sound: Option<bool>) -> Case {
        let bytes = flipped(&self.now[file], at);
        Case { sound, ..self.with(format!("{file}, byte {at}"), file, bytes, false) }
    }

    /// The ledger of one time beside the anchor of another.
    fn mixed(name: &str, ledger: &Files, anchor: &Files, sound: bool) -> Case {
        let part = |of: &Files, part: &str| {
            let of = of.iter().filter(|(name, _)| name.starts_with(part));
            of.map(|(name, bytes)| (name.clone(), bytes.clone())).collect::<Vec<_>>()
        };
        let files = part(ledger, "ledger/").into_iter().chain(part(anchor, "anchor/")).collect();
        Case { name: name.to_owned(), files, args: Vec::new(), sound: Some(sound) }
    }

    /// The batches of the log, as they stand in it.
    fn batches(&self) -> Vec<&[u8]> {
        let mut rest = &self.now[LOG][64..];
        let mut all = Vec::new();
        while !rest.is_empty() {
            let payload = u32::from_be_bytes(rest[4..8].try_into().unwrap());
            let (batch, behind) = rest.split_at(28 + payload as usize + 32);
            all.push(batch);
            rest = behind;
        }
        all
    }

    /// The first file of a body that is there.
    fn body(&self) -> &str {
        self.now.keys().find(|name| name.starts_with("ledger/bodies/")).expect("a body was kept")
    }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << (at % 8);
    bytes
}

/// So many places, evenly spread.
fn spread(from: usize, to: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| from + (to - from) * place / count)
}

#[test]
fn python_verifier_agrees_with_belljar_on_changed_bytes_of_the_log() {
    let made = make();
    let mut cases = vec![made.asked("as it is", &[], true)];
    cases.extend([0, 14, 15, 16, 31, 32, 63].map(|at| made.flip(LOG, at, Some(false))));
    let mut start = 64;
    for (number, batch) in made.batches().into_iter().enumerate() {
        let (payload, check) = (start + 28, start + batch.len() - 32);
        // Magic, length, index, count and writer; another byte of each in every batch.
        let head = [(0, 4), (4, 4), (8, 8), (16, 4), (20, 8)];
        let head = head.map(|(at, length)| start + at + number % length);
        let places = head.into_iter().chain(spread(payload, check, 6));
        let places = places.chain([check, check + 31]);
        cases.extend(places.map(|at| made.flip(LOG, at, Some(false))));
        start += batch.len();
    }
    assert!(cases.len() > 200, "{} places of the log", cases.len());
    judge(&made.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_truncated_and_reordered_logs() {
    let made = make();
    let (log, batches) = (&made.now[LOG], made.batches());
    let (header, last) = (&log[..64], batches[batches.len() - 1]);
    let of = |parts: &[&[u8]]| [&[header], parts].concat().concat();
    let behind = |bytes: &[u8]| [log.as_slice(), bytes].concat();
    // The beginning of an append by this writer, which holds a whole batch; a box may have chosen it.
    let holding = |writer: u64, rest: &[u8]| {
        let (index, writer) = (1000_u64.to_be_bytes(), writer.to_be_bytes());
        let head = [b"BJB1\0\x10\0\0", &index[..], b"\0\0\0\x01", &writer, b"\xff\xff"].concat();
        [&head, last, rest].concat()
    };
    let writer = u64::from_be_bytes(last[20..28].try_into().unwrap());
    let mut cases = vec![
        made.with("junk behind", LOG, behind(b"junk"), true),
        made.with("zeros behind", LOG, behind(&[0; 100]), true),
        made.with("half a batch behind", LOG, behind(&last[..last.len() - 1]), true),
        made.with("the last batch again", LOG, behind(last), false),
        made.with("the first batch behind", LOG, behind(batches[0]), false),
        made.with("a batch behind junk", LOG, behind(&[b"junk", last].concat()), false),
        made.with("half a batch with one in it", LOG, behind(&holding(9, b"rest")), true),
        made.with("half a batch with its writer's", LOG, behind(&holding(writer, b"rest")), false),
        made.with("half a batch, then a whole one", LOG, behind(&holding(9, b"")), false),
        made.without(LOG),
    ];
    let mut at = 64;
    for (number, batch) in batches.iter().enumerate() {
        cases.push(made.with(format!("cut at byte {at}"), LOG, &log[..at], false));
        let cut = at + batch.len() * (number + 1) / (batches.len() + 1);
        cases.push(made.with(format!("cut at byte {cut}"), LOG, &log[..cut], false));
        let (before, after) = batches.split_at(number);
        let without = [before, &after[1..]].concat();
        cases.push(made.with(format!("without batch {number}"), LOG, of(&without), false));
        if number > 0 {
            let mut swapped = batches.clone();
            swapped.swap(number - 1, number);
            cases.push(made.with(format!("batch {number} first"), LOG, of(&swapped), false));
        }
        at += batch.len();
    }
    cases.push(made.with("empty", LOG, "", false));
    cases.push(made.with("cut in the header", LOG, &log[..40], false));
    cases.push(Made::mixed("an older copy of the ledger", &made.early, &made.now, false));
    // It would do, but the redaction since then is not signed by it, and so excuses nothing.
    cases.push(Made::mixed("an older copy of the anchor", &made.now, &made.early, false));
    cases.push(Made::mixed("an older copy of both", &made.early, &made.early, true));
    judge(&made.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_damaged_or_foreign_anchors_and_checkpoints() {
    let made = make();
    let stranger = lab();
    stranger.bash("true").run().expect(0);
    let foreign = read(&stranger.state());
    let foreign_key = String::from_utf8(foreign[KEYS].clone()).unwrap().trim().to_owned();
    let (head, keys) = (&made.now[HEAD], &made.now[KEYS]);
    let [old, new] = [&made.keys[0], &made.keys[1]];
    let list = |keys: &[&String]| keys.iter().map(|key| format!("{key}\n")).collect::<String>();

    let mut cases = vec![
        made.without(HEAD),
        made.without(KEYS),
        made.with("no head", HEAD, "", false),
        made.with("no keys", KEYS, "", false),
        made.with("one slot", HEAD, &head[..SLOT], true),
        made.with("the other slot", HEAD, [&[0; SLOT], &head[SLOT..]].concat(), true),
        made.with("slots exchanged", HEAD, [&head[SLOT..], &head[..SLOT]].concat(), true),
        made.with("both slots damaged", HEAD, flipped(&flipped(head, 9), SLOT + 9), false),
        made.with("a head of another ledger", HEAD, foreign[HEAD].clone(), false),
        made.with("keys of another ledger", KEYS, foreign[KEYS].clone(), false),
        made.with("a key too many", KEYS, list(&[old, new, &foreign_key]), false),
        made.with("only the old key", KEYS, list(&[old]), false),
        made.with("only the new key", KEYS, list(&[new]), false),
        made.with("keys exchanged", KEYS, list(&[new, old]), false),
        made.with("a key twice", KEYS, list(&[old, old, new]), false),
        made.with("a line that does not end", KEYS, &keys[..keys.len() - 1], false),
        made.with("an empty line", KEYS, [keys.as_slice(), b"\n"].concat(), false),
        Made::mixed("the anchor of another ledger", &made.now, &foreign, false),
        Made::mixed("the log of another ledger", &foreign, &made.now, false),
        made.asked("the old key", &["--key", old], true),
        made.asked("the new key", &["--key", new], true),
        made.asked("a foreign key", &["--key", &foreign_key], false),
    ];
    // Without its signing key a ledger is a copy, and such a list only an exchange that was cut short.
    for case in cases.iter_mut().filter(|case| case.name == "only the old key") {
        case.files.remove("anchor/key");
        case.sound = Some(true);
    }
    let just = Made::mixed("the new key at once", &made.rotated, &made.rotated, true);
    cases.push(Case { args: vec!["--key".to_owned(), new.clone()], ..just });
    // A slot that is damaged may be one that is being written: the other one counts.
    cases.extend(spread(0, 2 * SLOT, 24).map(|at| made.flip(HEAD, at, Some(true))));
    let used = |at: usize| [at, SLOT + at];
    let figures = [0, 4, 8, 16, 24, 32, 33, 41, 73, 74, 110, 300].into_iter().flat_map(used);
    cases.extend(figures.map(|at| made.flip(HEAD, at, Some(true))));
    cases.extend(spread(0, keys.len(), 30).map(|at| made.flip(KEYS, at, Some(false))));

    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let checkpoint = |name: &str, bytes: Vec<u8>| {
        let path = made.lab.dir().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [early, late] = [path(&made.checkpoints[0]), path(&made.checkpoints[1])];
    let elsewhere = stranger.belljar(["ledger", "checkpoint"]).succeed() + "\n";
    let elsewhere = checkpoint("elsewhere", elsewhere.into_bytes());
    cases.push(made.asked("checkpoints", &["--checkpoint", &early, "--checkpoint", &late], true));
    cases.push(made.asked("another's checkpoint", &["--checkpoint", &elsewhere], false));
    let later_key = ["--checkpoint", &early, "--key", new];
    cases.push(made.asked("a checkpoint from before the key", &later_key, false));
    for (name, ledger) in [("lost events", &made.early), ("all events", &made.now)] {
        let sound = name == "all events";
        let case = Made::mixed(name, ledger, if sound { &made.now } else { &made.early }, sound);
        cases.push(Case { args: vec!["--checkpoint".to_owned(), late.clone()], ..case });
    }
    let note = fs::read(&made.checkpoints[0]).unwrap();
    for (number, at) in spread(0, note.len(), 24).enumerate() {
        // Only whole characters: what is not text is no checkpoint to begin with.
        if note[at].is_ascii() && note[at] ^ (1 << (at % 7)) < 0x80 {
            let mut bytes = note.clone();
            bytes[at] ^= 1 << (at % 7);
            let file = checkpoint(&format!("flipped-{number}"), bytes);
            cases.push(made.asked(
                &format!("checkpoint, byte {at}"),
                &["--checkpoint", &file],
                false,
            ));
        }
    }
    let cut = checkpoint("cut", note[..note.len() - 1].to_vec());
    cases.push(made.asked("a checkpoint that is cut", &["--checkpoint", &cut], false));
    let witness = checkpoint("more", [&note, "— someone AAAAAAA=\n".as_bytes()].concat());
    cases.push(made.asked("a signature more", &["--checkpoint", &witness], true));
    judge(&made.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_damaged_bodies_and_salts() {
    let made = make();
    let salts = &made.now[SALTS];
    let body = made.body();
    let bytes = &made.now[body];
    let mut cases = vec![
        made.without(SALTS),
        made.without(body),
        made.with("an empty body", body, "", false),
        made.with("a body that is cut", body, &bytes[..bytes.len() - 1], false),
        made.with("a longer body", body, [bytes.as_slice(), b"x"].concat(), false),
        made.with("a body of nobody", &format!("ledger/bodies/aa/{:062}", 0), "x", true),
        made.with("half a salt", SALTS, [salts.as_slice(), b"x"].concat(), true),
        made.with("a salt twice", SALTS, [salts.as_slice(), &salts[64..136]].concat(), true),
        made.with("a salt of nobody", SALTS, [salts.as_slice(), &[7; 72]].concat(), true),
        made.with("salts moved", SALTS, [&salts[..64], b"x", &salts[64..]].concat(), false),
        made.with("no salts", SALTS, &salts[..64], false),
        made.with("the last salt is gone", SALTS, &salts[..salts.len() - 72], false),
    ];
    let other = made.now.keys().rfind(|name| name.starts_with("ledger/bodies/"));
    let other = other.filter(|other| *other != body).expect("two bodies were kept");
    cases.push(made.with("another body", body, made.now[other].clone(), false));
    cases.extend(spread(0, bytes.len(), 40).map(|at| made.flip(body, at, Some(false))));
    cases.extend(spread(0, 64, 16).map(|at| made.flip(SALTS, at, Some(false))));
    // The salts of what was redacted or pruned are not needed any more.
    cases.extend(spread(64, salts.len(), 60).map(|at| made.flip(SALTS, at, None)));
    judge(&made.lab, &cases);
}

#[test]
fn python_verifier_agrees_with_belljar_on_intact_and_changed_receipts() {
    let made = make();
    let lab = &made.lab;
    let receipt = |run: &str, options: &[&str]| {
        let made = lab.belljar(["ledger", "receipt", run]).args(options).run();
        made.expect(0);
        made.stdout
    };
    let [old, new] = [&made.keys[0], &made.keys[1]];
    let full = receipt(&made.runs[3], &["--with-bodies"]);
    let mut cases =
        vec![("bodies", full.clone(), old, Some(true)), ("key", full.clone(), new, Some(true))];
    for run in &made.runs {
        cases.push(("plain", receipt(run, &[]), old, Some(true)));
    }
    cases.push((
        "of which a part is redacted",
        receipt(&made.runs[2], &["--with-bodies"]),
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
    let plain = receipt(&made.runs[0], &[]);
    cases.extend(
        spread(0, plain.len(), 60).map(|at| ("a bit", flipped(&plain, at), old, Some(false))),
    );

    let mut asked = Vec::new();
    for (number, (_, bytes, key, _)) in cases.iter().enumerate() {
        let path = lab.dir().join(format!("receipt-{number}"));
        fs::write(&path, bytes).unwrap();
        asked.push((path.to_str().unwrap().to_owned(), (*key).clone()));
    }
    let rust =
        codes(&asked, |(path, key)| lab.belljar(["ledger", "verify-receipt", path, "--key", key]));
    let lines: Vec<_> = asked
        .iter()
        .map(|(path, key)| ["--json", "--receipt", path, "--key", key].map(str::to_owned).to_vec())
        .collect();
    let names = cases.iter().map(|(name, _, _, sound)| (*name, *sound));
    compare(names, &rust, &python(lab, &lines));
}

#[test]
fn python_verifier_reports_the_damage_and_its_position() {
    let made = make();
    let home = made.lab.dir().join("copy");
    let mut files = made.now.clone();
    files.insert(LOG.to_owned(), flipped(&made.now[LOG], 70));
    write(&home, &files);
    let verify = |home: &Path| {
        let dirs = [home.join("ledger"), home.join("anchor")];
        made.lab.program("python3").arg(script(&made.lab)).args(dirs)
    };
    let sound = verify(&made.lab.state()).arg("--deep").run().expect(0);
    assert!(sound.starts_with("sound: events "), "{sound}");
    let damaged = verify(&home).run().expect(1);
    assert!(damaged.starts_with("damage: events.log byte 64: "), "{damaged}");
    assert!(damaged.contains("\ndamaged: "), "{damaged}");
    verify(&made.lab.dir().join("nowhere")).run().complains(2, "there is no ledger to verify");
    verify(&home).args(["--key", "none"]).run().complains(2, "--key: ");
    let help = made.lab.program("python3").arg(script(&made.lab)).arg("--help").succeed();
    assert!(help.contains("exit status: 0 sound, 1 damage, 2 wrong usage"), "{help}");
}
