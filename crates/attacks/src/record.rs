//! Attacks of a box on the ledger, and secrets in the ledger.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::host::{contains, eventually, files_with};
use crate::lab::Lab;
use crate::ledger::Record;
use crate::secrets::canary;
use crate::trial::{Checks, During, Step, Trial};

/// A shell command whose output looks like events, a batch and JSON lines of the ledger.
const FORGED: &str = r#"printf 'BJB1\0\0\0\020{"kind":"run.ended","run":"0000000000000000"}\n{"kind":"secret.set","kind":"x"}\n\342\200\250\033[2J'"#;

/// Returns the number of ledger events of each kind.
fn kinds(events: &[Value]) -> Vec<(String, usize)> {
    let mut kinds: Vec<String> = Vec::new();
    for event in events {
        kinds.push(event.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned());
    }
    kinds.sort();
    let mut counted: Vec<(String, usize)> = Vec::new();
    for kind in kinds {
        match counted.last_mut().filter(|(last, _)| *last == kind) {
            Some((_, count)) => *count += 1,
            None => counted.push((kind, 1)),
        }
    }
    counted
}

/// Runs a script in a box and returns the number of new ledger events of each kind.
fn added(record: &Record<'_>, checks: &mut Checks, script: &str) -> Step<Vec<(String, usize)>> {
    let before = record.events(&[])?.len();
    record.run(checks, script)?;
    let events = record.events(&[])?;
    Ok(kinds(events.get(before..).unwrap_or_default()))
}

/// Tests that output and arguments of a program cannot forge ledger events.
pub(crate) fn h07(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let plain = added(&record, &mut checks, "true")?;
    let forged = added(&record, &mut checks, FORGED)?;
    checks.holds(plain == forged, format_args!("{plain:?} became {forged:?}"))?;
    // Forged arguments, larger than any event.
    let long = "x".repeat(100_000);
    let words = [FORGED, &long];
    let run = record.belljar(&["run", "--no-workspace", "--", "/bin/true"]).args(words).run()?;
    checks.holds(run.code == Some(0), format_args!("long arguments: {}", run.stderr_text()))?;
    let events = record.events(&["--kind", "run.ended"])?;
    checks.holds(events.len() == 4, format_args!("{} runs ended", events.len()))?;
    record.sound(&mut checks, "a ledger after forged output")?;
    checks.held()
}

/// Tests that names of recorded contents in the ledger cannot lead to other files.
pub(crate) fn h08(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    keep_bodies(lab)?;
    let record = Record::new(lab, &mut checks)?;
    let hash = hash_of_output(&record, &mut checks, "echo something", &[])?;
    let get = |hash: &str| record.belljar(&["ledger", "get", hash]).run();
    let given = get(&hash)?;
    checks.control(given.stdout == b"something\n", "a kept body cannot be read")?;
    let upper = hash.to_uppercase();
    for name in ["../../../anchor/key", &format!("../{hash}"), &upper, "", "%2e%2e", "0"] {
        let given = get(name)?;
        let refused = given.code == Some(2) && given.stdout.is_empty();
        checks.holds(refused, format_args!("`get {name}`: {:?}", given.code))?;
    }
    // A symbolic link in place of a body is refused.
    let (prefix, rest) = hash.split_at_checked(2).unwrap_or_default();
    let body = record.home.join("ledger/bodies").join(prefix).join(rest);
    fs::remove_file(&body).during("remove a body")?;
    std::os::unix::fs::symlink(record.file("anchor/key"), &body)
        .during("create a symbolic link")?;
    let given = get(&hash)?;
    let refused = given.code == Some(1) && given.stdout.is_empty();
    checks.holds(refused, format_args!("a link in place of a body: {:?}", given.code))?;
    record.damaged(&mut checks, &["--deep"], "body-damaged")?;
    checks.held()
}

/// Configures boxes to record the content of output, not only its hash.
fn keep_bodies(lab: &Lab) -> Step {
    let dir = lab.home.join(".config/belljar");
    fs::create_dir_all(&dir).during("create a directory")?;
    let text = "[template.default]\nrecord = \"bodies\"\n";
    fs::write(dir.join("belljar.toml"), text).during("write settings")
}

/// Runs a script in a box and returns the recorded hash of its standard output.
fn hash_of_output(
    record: &Record<'_>,
    checks: &mut Checks,
    script: &str,
    options: &[&str],
) -> Step<String> {
    let words = [&["run", "--no-workspace"], options, &["--", "/bin/sh", "-c", script]].concat();
    let ended = record.belljar(&words).run()?;
    checks.control(ended.code == Some(0), ended.stderr_text())?;
    let events = record.events(&["--kind", "run.ended", "--limit", "1"])?;
    let hash = events.first().and_then(|event| event.pointer("/fields/stdout/hash"));
    let hash = hash.and_then(Value::as_str).unwrap_or_default().to_owned();
    checks.control(hash.len() == 64, format_args!("no hash of the output: {events:?}"))?;
    Ok(hash)
}

/// Returns the files of the ledger that contain a secret.
fn traces(record: &Record<'_>, secret: &str) -> Vec<std::path::PathBuf> {
    ["ledger", "anchor"].iter().flat_map(|part| files_with(&record.file(part), secret)).collect()
}

/// Tests that secrets stay out of the ledger or can be redacted afterwards.
pub(crate) fn h09(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = canary();
    let record = Record::new(lab, &mut checks)?;
    // In a variable, files, output and arguments: the ledger contains only hashes.
    let work_dir = lab.directory("h09")?;
    fs::write(work_dir.join("notes"), &secret).during("write a secret")?;
    let script = "echo \"$TOKEN\"; cat /workspace/notes >&2; echo \"$TOKEN\" > /workspace/leaked";
    let given = record
        .belljar(&["run", "--env", "TOKEN", "--workspace"])
        .arg(&work_dir)
        .args(["--", "/bin/sh", "-c", script, &secret])
        .env("TOKEN", &secret)
        .run()?;
    checks.control(
        contains(&given.stdout, secret.as_bytes()) && contains(&given.stderr, secret.as_bytes()),
        format_args!("the program does not have the secret: {}", given.stderr_text()),
    )?;
    let found = traces(&record, &secret);
    checks.holds(found.is_empty(), format_args!("the secret is in {found:?}"))?;

    // A recorded body contains the secret; after redaction it is removed, and the ledger verifies.
    keep_bodies(lab)?;
    let hash = hash_of_output(&record, &mut checks, &format!("echo {secret}"), &[])?;
    let given = record.belljar(&["ledger", "get", &hash]).run()?;
    checks.control(contains(&given.stdout, secret.as_bytes()), "the body was not kept")?;
    let command = record.events(&["--kind", "run.created", "--limit", "1"])?;
    let command = command.first().and_then(|event| event.pointer("/fields/command/hash"));
    let command = command.and_then(Value::as_str).unwrap_or_default().to_owned();
    let reason = "a canary";
    let args = ["ledger", "redact", &hash, &command, "--reason", reason, "--yes"];
    let redacted = record.belljar(&args).run()?;
    checks.holds(redacted.code == Some(0), redacted.stderr_text())?;
    for hash in [&hash, &command] {
        let given = record.belljar(&["ledger", "get", hash]).run()?;
        let is_gone = given.code == Some(1) && given.stdout.is_empty();
        checks.holds(is_gone, format_args!("after a redaction: {:?}", given.code))?;
        let (prefix, rest) = hash.split_at_checked(2).unwrap_or_default();
        let body = record.home.join("ledger/bodies").join(prefix).join(rest);
        checks.holds(!body.exists(), "the file of a redacted body still exists")?;
    }
    let found = traces(&record, &secret);
    checks.holds(found.is_empty(), format_args!("after a redaction: {found:?}"))?;
    let events = record.events(&["--kind", "ledger.redacted"])?;
    checks.holds(events.len() == 1, "the redaction is not recorded")?;
    record.sound(&mut checks, "a redacted ledger")?;
    checks.held()
}

/// Tests that a box cannot access the ledger.
pub(crate) fn h10(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.file("ledger/events.log");
    let read = format!("read {}", log.display());
    let outside = lab.outside(&read)?;
    checks.control(!outside.starts_with("errno"), format_args!("outside: {outside}"))?;
    for user in ["1000", "0"] {
        let inside = lab.boxed().user(user).act(&read)?;
        checks.exactly(format_args!("{read} as {user}"), &inside, "errno ENOENT")?;
    }
    // Ledger files cannot be mounted.
    for part in ["ledger", "anchor", "ledger/events.log"] {
        let mount = format!("{}:/x:rw", record.file(part).display());
        let ended = record
            .belljar(&["run", "--no-workspace", "--mount", &mount, "--", "/bin/true"])
            .run()?;
        checks.holds(
            ended.code == Some(125),
            format_args!("`--mount {part}`: {:?} {}", ended.code, ended.stderr_text()),
        )?;
    }
    // No descriptor of the ledger is open in a box.
    let script = "ls -l /proc/self/fd /proc/1/fd 2>/dev/null; true";
    let ended = record.run(&mut checks, script)?;
    let shown = ended.stdout_text();
    checks.control(shown.contains("pipe:"), format_args!("no descriptors are shown: {shown}"))?;
    for name in ["ledger", "anchor", "events.log", "index.db", "salts"] {
        checks.holds(!shown.contains(name), format_args!("a descriptor of {name}: {shown}"))?;
    }
    // The actor of an event is never a box.
    let before = record.events(&[])?.len();
    record.run(&mut checks, FORGED)?;
    for event in record.events(&[])?.get(before..).unwrap_or_default() {
        let actor = event.get("actor").and_then(Value::as_str).unwrap_or_default();
        checks.one_of("the actor", actor, &["operator", "supervisor"])?;
    }
    record.sound(&mut checks, "the ledger after the attacks")?;
    checks.held()
}

/// Tests that a run whose supervisor was killed is reported and not repeated.
pub(crate) fn h11(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let work_dir = lab.directory("h11")?;
    crate::sockets::make_writable(&work_dir)?;
    let marks = || fs::read_to_string(work_dir.join("marks")).unwrap_or_default().len();
    let mount = format!("{}:/work_dir:rw", work_dir.display());
    let script = "printf x >> /work_dir/marks; sleep 300";
    let words = ["run", "--no-workspace", "--mount", &mount, "--", "/bin/sh", "-c", script];
    let mut live = record.belljar(&words).start()?;
    checks.control(eventually(|| marks() == 1), "the program does not start")?;
    checks.holds(
        open_intents(&record)?.is_empty(),
        "a running run is reported as needing attention",
    )?;
    live.kill()?;
    drop(live.end()?);
    let mut open = Vec::new();
    let reported = eventually(|| {
        open = open_intents(&record).unwrap_or_default();
        !open.is_empty()
    });
    checks.holds(reported, "a killed run is not reported as needing attention")?;
    let [intent] = open.as_slice() else {
        return checks.holds(false, format_args!("{open:?}")).and(Err(crate::trial::fault("open")));
    };
    checks.exactly("the open intent", intent.1.as_str(), "run.created")?;
    // The run is not repeated automatically.
    record.run(&mut checks, "true")?;
    checks.holds(marks() == 1, format_args!("the program ran {} times", marks()))?;
    checks.holds(open_intents(&record)?.len() == 1, "the intent was settled without a command")?;
    let settle = ["ledger", "settle", &intent.0.to_string(), "--reason", "seen"];
    let settled = record.belljar(&settle).run()?;
    checks.holds(settled.code == Some(0), settled.stderr_text())?;
    checks.holds(
        open_intents(&record)?.is_empty(),
        "the intent is still open after it was settled",
    )?;
    record.sound(&mut checks, "the ledger after a kill")?;
    checks.held()
}

/// Returns the event index and kind of each unfinished operation that `belljar runs` reports.
fn open_intents(record: &Record<'_>) -> Step<Vec<(u64, String)>> {
    let ended = record.belljar(&["runs", "--all", "--json"]).run()?;
    let mut open = Vec::new();
    for line in ended.stdout_text().lines() {
        let run: Value = serde_json::from_str(line).unwrap_or_default();
        let intents = run.get("needs_attention").and_then(Value::as_array).cloned();
        for intent in intents.unwrap_or_default() {
            let place = intent.get("event").and_then(Value::as_u64).unwrap_or_default();
            let kind = intent.get("kind").and_then(Value::as_str).unwrap_or_default();
            open.push((place, kind.to_owned()));
        }
    }
    Ok(open)
}

/// Tests that the order of ledger events does not depend on clocks.
pub(crate) fn h13(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    // A box cannot set the host's clock, and the ledger does not use the clock of the box.
    let ended = record.try_run("date +%s && ! date -s @1 2>/dev/null && date +%s")?;
    let times: Vec<u64> =
        ended.stdout_text().lines().filter_map(|line| line.parse().ok()).collect();
    checks.control(times.len() == 2, format_args!("no time inside: {}", ended.stdout_text()))?;
    checks.holds(times.iter().all(|time| *time > 1_600_000_000), "the clock was set")?;
    let events = record.events(&[])?;
    let index = |event: &Value| event.get("index").and_then(Value::as_u64);
    let indexes: Vec<u64> = events.iter().filter_map(index).collect();
    let want: Vec<u64> = (0..events.len() as u64).collect();
    checks.holds(indexes == want, format_args!("order: {indexes:?}"))?;
    checks.residual(
        "the ledger contains times of the host's clock, which root can set; the order of events does \
         not depend on them",
    )
}

/// Tests that recorded contents are shared only within a policy and verified when read.
pub(crate) fn h17(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    keep_bodies(lab)?;
    let record = Record::new(lab, &mut checks)?;
    let script = "echo the same for all";
    let first = hash_of_output(&record, &mut checks, script, &[])?;
    let again = hash_of_output(&record, &mut checks, script, &[])?;
    checks.control(first == again, "equal content is not shared within one policy")?;
    let other = hash_of_output(&record, &mut checks, script, &["--pids", "77"])?;
    checks.holds(first != other, "equal content is shared across policies")?;
    // A replaced body is not returned.
    let file = |hash: &str| {
        let (prefix, rest) = hash.split_at_checked(2).unwrap_or_default();
        record.home.join("ledger/bodies").join(prefix).join(rest)
    };
    replace_body(&file(&first), &file(&other))?;
    let given = record.belljar(&["ledger", "get", &first]).run()?;
    let refused = given.code == Some(1) && given.stdout.is_empty();
    checks.holds(refused, format_args!("a replaced body: {:?}", given.code))?;
    record.damaged(&mut checks, &["--deep"], "body-damaged")?;
    // A replaced body is not shared with the next run.
    let next = hash_of_output(&record, &mut checks, script, &[])?;
    checks.holds(next != first, "a replaced body is shared")?;
    let given = record.belljar(&["ledger", "get", &next]).run()?;
    checks.holds(given.stdout == b"the same for all\n", "the next body has the wrong content")?;
    checks.held()
}

/// Replaces the content of one recorded output with that of another.
fn replace_body(body: &Path, other: &Path) -> Step {
    fs::copy(other, body).map(drop).during("replace a body")
}
