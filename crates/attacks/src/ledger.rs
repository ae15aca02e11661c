//! Hands on the record: cut, exchanged, rewritten, put back, spoilt.
//!
//! Every row first shows that the untouched ledger verifies, and that nothing but the verifier stands
//! in the way: the files themselves can be changed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Ended, Program};
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial, fault};

/// A state directory with a ledger in it.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    lab: &'a Lab,
    pub(crate) home: PathBuf,
}

/// What a refused run ends with: there is no box without a record.
const NO_BOX: Option<i32> = Some(125);

impl<'a> Record<'a> {
    /// A ledger of its own, in which one run is on record.
    pub(crate) fn new(lab: &'a Lab, checks: &mut Checks) -> Step<Self> {
        let record = Self { lab, home: lab.room("record")? };
        record.run(checks, "true")?;
        record.sound(checks, "the untouched ledger")?;
        Ok(record)
    }

    pub(crate) fn belljar(&self, args: &[&str]) -> Program {
        self.lab.belljar(args).env("BELLJAR_HOME", &self.home)
    }

    pub(crate) fn try_run(&self, script: &str) -> Step<Ended> {
        self.belljar(&["run", "--no-workspace", "--", "/bin/sh", "-c", script]).run()
    }

    pub(crate) fn run(&self, checks: &mut Checks, script: &str) -> Step<Ended> {
        let ended = self.try_run(script)?;
        let said = ended.stderr_text();
        checks.control(ended.code == Some(0), format_args!("a run is recorded: {said}"))?;
        Ok(ended)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    fn log(&self) -> Step<Vec<u8>> {
        fs::read(self.file("ledger/events.log")).during("read the log")
    }

    fn lay(&self, log: &[u8]) -> Step {
        fs::write(self.file("ledger/events.log"), log).during("write the log")
    }

    /// The exit code of `verify`, and the names of what it calls damage.
    pub(crate) fn verify(&self, args: &[&str]) -> Step<(Option<i32>, Vec<String>)> {
        let ended = self.belljar(&["ledger", "verify", "--json"]).args(args.to_vec()).run()?;
        let text = ended.stdout_text();
        let report: Value = serde_json::from_str(&text).map_err(|error| {
            fault(format_args!("`verify --json`: {error}: {text}{}", ended.stderr_text()))
        })?;
        let findings = report.get("findings").and_then(Value::as_array).into_iter().flatten();
        let word = |finding: &Value, key: &str| {
            finding.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let damage = findings.filter(|finding| word(finding, "severity") == "damage");
        Ok((ended.code, damage.map(|finding| word(finding, "code")).collect()))
    }

    pub(crate) fn sound(&self, checks: &mut Checks, what: &str) -> Step {
        let (code, found) = self.verify(&["--deep"])?;
        checks.control(code == Some(0), format_args!("{what} does not verify: {found:?}"))
    }

    /// The verifier must name exactly this, or this among others, and end with 1.
    pub(crate) fn damaged(&self, checks: &mut Checks, args: &[&str], name: &str) -> Step {
        let (code, found) = self.verify(args)?;
        let is_named = code == Some(1) && found.iter().any(|code| code == name);
        checks.holds(is_named, format_args!("`{name}` is not said, but {code:?} {found:?}"))
    }

    /// Nothing may be done with a ledger like this, and nothing of it is changed.
    fn refused(&self, checks: &mut Checks) -> Step {
        let before = fs::read(self.file("ledger/events.log")).ok();
        let ended = self.try_run("true")?;
        let said = ended.stderr_text();
        checks
            .holds(ended.code == NO_BOX, format_args!("a run goes on: {:?} {said}", ended.code))?;
        let after = fs::read(self.file("ledger/events.log")).ok();
        checks.holds(before == after, "the log was continued all the same")
    }

    /// The events, as `log --json` tells them.
    pub(crate) fn events(&self, args: &[&str]) -> Step<Vec<Value>> {
        let ended = self.belljar(&["ledger", "log", "--json"]).args(args.to_vec()).run()?;
        let text = ended.stdout_text();
        let parsed = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
        parsed.map_err(|error| fault(format_args!("`log --json`: {error}: {text}")))
    }

    /// Keeps the newest checkpoint and the key elsewhere.
    fn keep_elsewhere(&self) -> Step<[String; 2]> {
        let room = self.lab.room("elsewhere")?;
        let (note, key) = (room.join("checkpoint"), room.join("key"));
        let given = self.belljar(&["ledger", "checkpoint"]).run()?;
        fs::write(&note, given.stdout).during("keep a checkpoint")?;
        let given = self.belljar(&["ledger", "key", "export"]).run()?;
        fs::write(&key, given.stdout).during("keep a key")?;
        Ok([note.display().to_string(), key.display().to_string()])
    }

    /// A second state directory that is the same so far.
    fn copy(&self) -> Step<Self> {
        let copy = Self { lab: self.lab, home: self.lab.room("copy")? };
        for part in ["ledger", "anchor"] {
            copy_tree(&self.file(part), &copy.file(part))?;
        }
        Ok(copy)
    }

    /// Puts another's directory in the place of ours.
    fn take(&self, part: &str, from: &Self) -> Step {
        fs::remove_dir_all(self.file(part)).during("remove a directory")?;
        copy_tree(&from.file(part), &self.file(part))
    }
}

fn copy_tree(from: &Path, to: &Path) -> Step {
    fs::create_dir_all(to).during("make a directory")?;
    for entry in fs::read_dir(from).during("read a directory")?.flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().during("look at a file")?.is_dir() {
            true => copy_tree(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to).during("copy a file")?),
        }
    }
    Ok(())
}

/// Where the batches of a log begin.
fn batches(log: &[u8]) -> Vec<usize> {
    let places = log.windows(4).enumerate().filter(|(_, bytes)| bytes == b"BJB1");
    places.map(|(place, _)| place).collect()
}

pub(crate) fn h01(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.log()?;
    for last in batches(&log).into_iter().skip(1) {
        record.lay(log.get(..last).unwrap_or_default())?;
        record.damaged(&mut checks, &[], "log-truncated")?;
    }
    record.refused(&mut checks)?;
    record.lay(&log)?;
    record.sound(&mut checks, "the log put back")?;
    // Ledger and anchor cut alike: only somebody else can know.
    let old = record.copy()?;
    record.run(&mut checks, "true")?;
    let [checkpoint, _] = record.keep_elsewhere()?;
    record.take("ledger", &old)?;
    record.damaged(&mut checks, &[], "log-truncated")?;
    record.take("anchor", &old)?;
    record.damaged(&mut checks, &["--checkpoint", &checkpoint], "checkpoint-ahead")?;
    checks.held()
}

pub(crate) fn h02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    record.run(&mut checks, "echo second")?;
    let (log, copy) = (record.log()?, record.copy()?);
    // One run out of the middle.
    if let [first, second, .., last] = batches(&log).as_slice() {
        let parts = [log.get(..*first), log.get(*second..)].map(Option::unwrap_or_default);
        record.lay(&parts.concat())?;
        record.damaged(&mut checks, &[], "batch-missing")?;
        let parts = [log.get(..*second), log.get(*last..)].map(Option::unwrap_or_default);
        record.lay(&parts.concat())?;
        record.damaged(&mut checks, &[], "batch-missing")?;
    }
    // All of it.
    fs::remove_dir_all(record.file("ledger")).during("remove the ledger")?;
    record.damaged(&mut checks, &[], "log-missing")?;
    record.refused(&mut checks)?;
    fs::remove_file(record.file("anchor/key")).during("remove the key")?;
    record.damaged(&mut checks, &[], "log-missing")?;
    record.refused(&mut checks)?;
    // What vouches for it.
    let record = copy;
    fs::remove_dir_all(record.file("anchor")).during("remove the anchor")?;
    record.damaged(&mut checks, &[], "head-missing")?;
    record.refused(&mut checks)?;
    checks.held()
}

pub(crate) fn h03(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let [checkpoint, key] = record.keep_elsewhere()?;
    let forged = Record::new(lab, &mut checks)?;
    record.take("ledger", &forged)?;
    record.damaged(&mut checks, &[], "log-of-another-ledger")?;
    record.refused(&mut checks)?;
    record.take("anchor", &forged)?;
    record.sound(&mut checks, "a forged ledger by itself")?;
    record.damaged(&mut checks, &["--key", &key], "key-not-of-ledger")?;
    record.damaged(&mut checks, &["--checkpoint", &checkpoint], "checkpoint-of-another-ledger")?;
    checks.residual(
        "whoever can write the state directory has the key too and can write the record anew; only a \
         checkpoint or a key that is kept on another machine shows it",
    )
}

pub(crate) fn h04(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    // Several at once: one ledger, and everything is in it.
    let before = record.events(&["--kind", "run.ended"])?.len();
    let start = |_| record.belljar(&["run", "--no-workspace", "--", "/bin/true"]).start();
    let live: Vec<_> = (0..4).map(start).collect::<Step<_>>()?;
    for live in live {
        checks.control(live.end()?.code == Some(0), "a run beside others does not end well")?;
    }
    let ended = record.events(&["--kind", "run.ended"])?.len();
    checks.holds(
        ended == before + 4,
        format_args!("4 runs ended, {} are on record", ended - before),
    )?;
    record.sound(&mut checks, "a ledger of several processes")?;
    // Two of it: each is sound alone.
    let other = record.copy()?;
    record.run(&mut checks, "true")?;
    other.run(&mut checks, "exit 0")?;
    let [checkpoint, _] = other.keep_elsewhere()?;
    record.sound(&mut checks, "one continuation")?;
    other.sound(&mut checks, "another continuation")?;
    record.damaged(&mut checks, &["--checkpoint", &checkpoint], "checkpoint-forked")?;
    checks.held()
}

pub(crate) fn h05(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.log()?;
    let head = fs::read(record.file("anchor/head")).during("read the head")?;
    for last in batches(&log) {
        record.lay(log.get(..last).unwrap_or_default())?;
        record.refused(&mut checks)?;
        let now = fs::read(record.file("anchor/head")).during("read the head")?;
        checks.holds(now == head, "the head was made to fit the log")?;
    }
    record.lay(&log)?;
    record.run(&mut checks, "true")?;
    let events = record.events(&[])?;
    let places: Vec<_> = events.iter().filter_map(|event| event.get("index")?.as_u64()).collect();
    let want: Vec<u64> = (0..events.len() as u64).collect();
    checks.holds(places == want, format_args!("the places of the events: {places:?}"))?;
    checks.held()
}

pub(crate) fn h06(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let script = "for i in 1 2 3 4 5 6; do \"$0\" run --no-workspace -- /bin/true || exit 1; done";
    let program = |script| {
        let words = ["-c", script];
        Program::new(Path::new("/bin/sh"))
            .args(words)
            .arg(lab.belljar.clone())
            .env("HOME", &lab.home)
            .env("BELLJAR_HOME", &record.home)
            .env("PATH", "/usr/bin:/bin")
            .start()
    };
    let mut live = [program(script)?, program(script)?];
    let mut looks = 0;
    while live.iter_mut().any(crate::command::Live::is_running) {
        let (code, found) = record.verify(&["--deep"])?;
        checks.holds(code == Some(0), format_args!("a false alarm: {found:?}"))?;
        looks += 1;
    }
    for live in live {
        checks.control(live.end()?.code == Some(0), "the runs beside the verifier failed")?;
    }
    checks.note(format_args!("looked {looks} times beside two writers"));
    // And a real alarm is still one.
    let mut log = record.log()?;
    if let Some(byte) = log.last_mut() {
        *byte ^= 1;
    }
    record.lay(&log)?;
    record.damaged(&mut checks, &[], "batch-damaged")?;
    checks.held()
}

pub(crate) fn h12(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.log()?;
    let middle = batches(&log).get(1).copied().unwrap_or(0);
    for (place, name) in [(20, "log-header-damaged"), (middle + 40, "batch-damaged")] {
        let mut spoilt = log.clone();
        if let Some(byte) = spoilt.get_mut(place) {
            *byte ^= 4;
        }
        record.lay(&spoilt)?;
        record.damaged(&mut checks, &[], name)?;
    }
    // An append that was cut short is no damage: it is taken away, kept and told.
    record.lay(&[log.as_slice(), b"BJB1\0\0\x01\0half of it"].concat())?;
    record.sound(&mut checks, "an unfinished append")?;
    let ended = record.run(&mut checks, "true")?;
    let told = ended.stderr_text().contains("cut short");
    checks.holds(told, "the repair is not said")?;
    let repaired = record.events(&["--kind", "ledger.repaired"])?.len();
    checks.holds(repaired == 1, format_args!("{repaired} repairs are on record"))?;
    record.sound(&mut checks, "the repaired ledger")?;
    // Without a place to record there is no run.
    let log = record.log()?;
    fs::remove_file(record.file("ledger/events.log")).during("remove the log")?;
    fs::create_dir(record.file("ledger/events.log")).during("put a directory there")?;
    let ended = record.try_run("echo ran")?;
    let ran = ended.stdout_text().contains("ran");
    checks.holds(ended.code == NO_BOX && !ran, format_args!("it ran: {:?}", ended.code))?;
    fs::remove_dir(record.file("ledger/events.log")).during("remove the directory")?;
    record.lay(&log)?;
    record.run(&mut checks, "true")?;
    checks.held()
}
