//! Attacks on ledger files: truncation, replacement, rewriting, rollback, corruption.
//!
//! Every trial first shows that the unchanged ledger verifies, and that its files can be changed. Only the
//! verifier detects the change.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Ended, Program};
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial, fault};

/// A state directory of Belljar with its ledger, which an attack modifies.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    lab: &'a Lab,
    pub(crate) home: PathBuf,
}

/// The exit code of a run that is refused because no box starts without a ledger.
const NO_BOX: Option<i32> = Some(125);

impl<'a> Record<'a> {
    /// Creates a new ledger with one recorded run.
    pub(crate) fn new(lab: &'a Lab, checks: &mut Checks) -> Step<Self> {
        let record = Self { lab, home: lab.directory("record")? };
        record.run(checks, "true")?;
        record.sound(checks, "the untouched ledger")?;
        Ok(record)
    }

    /// Returns a `belljar` command for this state directory.
    pub(crate) fn belljar(&self, args: &[&str]) -> Program {
        self.lab.belljar(args).env("BELLJAR_HOME", &self.home)
    }

    pub(crate) fn try_run(&self, script: &str) -> Step<Ended> {
        self.belljar(&["run", "--no-workspace", "--", "/bin/sh", "-c", script]).run()
    }

    pub(crate) fn run(&self, checks: &mut Checks, script: &str) -> Step<Ended> {
        let ended = self.try_run(script)?;
        let output = ended.stderr_text();
        checks.control(ended.code == Some(0), format_args!("a run failed: {output}"))?;
        Ok(ended)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    fn log(&self) -> Step<Vec<u8>> {
        fs::read(self.file("ledger/events.log")).during("read the log")
    }

    fn write_log(&self, log: &[u8]) -> Step {
        fs::write(self.file("ledger/events.log"), log).during("write the log")
    }

    /// Returns the exit code of `belljar ledger verify` and the codes of the reported damage.
    pub(crate) fn verify(&self, args: &[&str]) -> Step<(Option<i32>, Vec<String>)> {
        let ended = self.belljar(&["ledger", "verify", "--json"]).args(args.to_vec()).run()?;
        let text = ended.stdout_text();
        let report: Value = serde_json::from_str(&text).map_err(|error| {
            fault(format_args!("`verify --json`: {error}: {text}{}", ended.stderr_text()))
        })?;
        let findings = report.get("findings").and_then(Value::as_array).into_iter().flatten();
        let field = |finding: &Value, key: &str| {
            finding.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let damage = findings.filter(|finding| field(finding, "severity") == "damage");
        Ok((ended.code, damage.map(|finding| field(finding, "code")).collect()))
    }

    /// Requires that `belljar ledger verify --deep` finds no damage.
    pub(crate) fn sound(&self, checks: &mut Checks, what: &str) -> Step {
        let (code, found) = self.verify(&["--deep"])?;
        checks.control(code == Some(0), format_args!("{what} does not verify: {found:?}"))
    }

    /// Requires that `belljar ledger verify` exits with 1 and reports the damage `name`.
    pub(crate) fn damaged(&self, checks: &mut Checks, args: &[&str], name: &str) -> Step {
        let (code, found) = self.verify(args)?;
        let is_named = code == Some(1) && found.iter().any(|code| code == name);
        checks
            .holds(is_named, format_args!("`verify` does not report `{name}`: {code:?} {found:?}"))
    }

    /// Requires that `belljar run` refuses to use this ledger and leaves its log unchanged.
    fn refused(&self, checks: &mut Checks) -> Step {
        let before = fs::read(self.file("ledger/events.log")).ok();
        let ended = self.try_run("true")?;
        let output = ended.stderr_text();
        checks.holds(
            ended.code == NO_BOX,
            format_args!("a run is not refused: {:?} {output}", ended.code),
        )?;
        let after = fs::read(self.file("ledger/events.log")).ok();
        checks.holds(before == after, "the refused run changed the log")
    }

    /// Returns the events that `belljar log --json` prints.
    pub(crate) fn events(&self, args: &[&str]) -> Step<Vec<Value>> {
        let ended = self.belljar(&["ledger", "log", "--json"]).args(args.to_vec()).run()?;
        let text = ended.stdout_text();
        let parsed = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
        parsed.map_err(|error| fault(format_args!("`log --json`: {error}: {text}")))
    }

    /// Exports the newest checkpoint and the public key, and returns the paths of both files.
    fn export(&self) -> Step<[String; 2]> {
        let work_dir = self.lab.directory("exported")?;
        let (note, key) = (work_dir.join("checkpoint"), work_dir.join("key"));
        let exported = self.belljar(&["ledger", "checkpoint"]).run()?;
        fs::write(&note, exported.stdout).during("write a checkpoint")?;
        let exported = self.belljar(&["ledger", "key", "export"]).run()?;
        fs::write(&key, exported.stdout).during("write a key")?;
        Ok([note.display().to_string(), key.display().to_string()])
    }

    /// Copies the state directory with its ledger.
    fn copy(&self) -> Step<Self> {
        let copy = Self { lab: self.lab, home: self.lab.directory("copy")? };
        for part in ["ledger", "anchor"] {
            copy_tree(&self.file(part), &copy.file(part))?;
        }
        Ok(copy)
    }

    /// Replaces the directory `part` of this ledger with that of another ledger.
    fn replace(&self, part: &str, from: &Self) -> Step {
        fs::remove_dir_all(self.file(part)).during("remove a directory")?;
        copy_tree(&from.file(part), &self.file(part))
    }
}

fn copy_tree(from: &Path, to: &Path) -> Step {
    fs::create_dir_all(to).during("create a directory")?;
    for entry in fs::read_dir(from).during("read a directory")?.flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().during("read a file type")?.is_dir() {
            true => copy_tree(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to).during("copy a file")?),
        }
    }
    Ok(())
}

/// Returns the offset of each batch of events in a ledger's log.
fn batches(log: &[u8]) -> Vec<usize> {
    let found = log.windows(4).enumerate().filter(|(_, bytes)| bytes == b"BJB1");
    found.map(|(offset, _)| offset).collect()
}

/// Tests that a truncated ledger is detected.
pub(crate) fn h01(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.log()?;
    for last in batches(&log).into_iter().skip(1) {
        record.write_log(log.get(..last).unwrap_or_default())?;
        record.damaged(&mut checks, &[], "log-truncated")?;
    }
    record.refused(&mut checks)?;
    record.write_log(&log)?;
    record.sound(&mut checks, "the restored log")?;
    // Ledger and anchor rolled back together: only an external checkpoint detects it.
    let old = record.copy()?;
    record.run(&mut checks, "true")?;
    let [checkpoint, _] = record.export()?;
    record.replace("ledger", &old)?;
    record.damaged(&mut checks, &[], "log-truncated")?;
    record.replace("anchor", &old)?;
    record.damaged(&mut checks, &["--checkpoint", &checkpoint], "checkpoint-ahead")?;
    checks.held()
}

/// Tests that missing parts of a ledger are detected.
pub(crate) fn h02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    record.run(&mut checks, "echo second")?;
    let (log, copy) = (record.log()?, record.copy()?);
    // A run removed from the middle.
    if let [first, second, .., last] = batches(&log).as_slice() {
        let parts = [log.get(..*first), log.get(*second..)].map(Option::unwrap_or_default);
        record.write_log(&parts.concat())?;
        record.damaged(&mut checks, &[], "batch-missing")?;
        let parts = [log.get(..*second), log.get(*last..)].map(Option::unwrap_or_default);
        record.write_log(&parts.concat())?;
        record.damaged(&mut checks, &[], "batch-missing")?;
    }
    // The whole ledger removed.
    fs::remove_dir_all(record.file("ledger")).during("remove the ledger")?;
    record.damaged(&mut checks, &[], "log-missing")?;
    record.refused(&mut checks)?;
    fs::remove_file(record.file("anchor/key")).during("remove the key")?;
    record.damaged(&mut checks, &[], "log-missing")?;
    record.refused(&mut checks)?;
    // The anchor removed.
    let record = copy;
    fs::remove_dir_all(record.file("anchor")).during("remove the anchor")?;
    record.damaged(&mut checks, &[], "head-missing")?;
    record.refused(&mut checks)?;
    checks.held()
}

/// Tests that a rewritten ledger is detected with a key or checkpoint that is stored elsewhere.
pub(crate) fn h03(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let [checkpoint, key] = record.export()?;
    let forged = Record::new(lab, &mut checks)?;
    record.replace("ledger", &forged)?;
    record.damaged(&mut checks, &[], "log-of-another-ledger")?;
    record.refused(&mut checks)?;
    record.replace("anchor", &forged)?;
    record.sound(&mut checks, "a forged ledger without external evidence")?;
    record.damaged(&mut checks, &["--key", &key], "key-not-of-ledger")?;
    record.damaged(&mut checks, &["--checkpoint", &checkpoint], "checkpoint-of-another-ledger")?;
    checks.residual(
        "a user with write access to the state directory has the key and can rewrite the ledger; only \
         a checkpoint or key on another machine reveals it",
    )
}

/// Tests that parallel runs share one ledger, and that a forked ledger is detected.
pub(crate) fn h04(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    // Parallel runs: all are recorded in one ledger.
    let before = record.events(&["--kind", "run.ended"])?.len();
    let start = |_| record.belljar(&["run", "--no-workspace", "--", "/bin/true"]).start();
    let live: Vec<_> = (0..4).map(start).collect::<Step<_>>()?;
    for live in live {
        checks.control(live.end()?.code == Some(0), "a parallel run failed")?;
    }
    let ended = record.events(&["--kind", "run.ended"])?.len();
    checks.holds(
        ended == before + 4,
        format_args!("4 runs ended, but {} are recorded", ended - before),
    )?;
    record.sound(&mut checks, "a ledger of several processes")?;
    // Two continuations of the same ledger: each verifies on its own.
    let other = record.copy()?;
    record.run(&mut checks, "true")?;
    other.run(&mut checks, "exit 0")?;
    let [checkpoint, _] = other.export()?;
    record.sound(&mut checks, "one continuation")?;
    other.sound(&mut checks, "another continuation")?;
    record.damaged(&mut checks, &["--checkpoint", &checkpoint], "checkpoint-forked")?;
    checks.held()
}

/// Tests that Belljar does not append to a truncated ledger.
pub(crate) fn h05(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.log()?;
    let head = fs::read(record.file("anchor/head")).during("read the head")?;
    for last in batches(&log) {
        record.write_log(log.get(..last).unwrap_or_default())?;
        record.refused(&mut checks)?;
        let now = fs::read(record.file("anchor/head")).during("read the head")?;
        checks.holds(now == head, "the head was changed to match the log")?;
    }
    record.write_log(&log)?;
    record.run(&mut checks, "true")?;
    let events = record.events(&[])?;
    let indexes: Vec<_> = events.iter().filter_map(|event| event.get("index")?.as_u64()).collect();
    let want: Vec<u64> = (0..events.len() as u64).collect();
    checks.holds(indexes == want, format_args!("indexes of the events: {indexes:?}"))?;
    checks.held()
}

/// Tests that `belljar ledger verify` raises no false alarm while a run writes events.
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
    let mut rounds = 0;
    while live.iter_mut().any(crate::command::Process::is_running) {
        let (code, found) = record.verify(&["--deep"])?;
        checks.holds(code == Some(0), format_args!("a false alarm: {found:?}"))?;
        rounds += 1;
    }
    for live in live {
        checks.control(live.end()?.code == Some(0), "a run during verification failed")?;
    }
    checks.note(format_args!("verified {rounds} times during two writers"));
    // Real damage is still detected.
    let mut log = record.log()?;
    if let Some(byte) = log.last_mut() {
        *byte ^= 1;
    }
    record.write_log(&log)?;
    record.damaged(&mut checks, &[], "batch-damaged")?;
    checks.held()
}

/// Tests that damage of the ledger is detected and blocks runs, and that an incomplete write is
/// repaired.
pub(crate) fn h12(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let record = Record::new(lab, &mut checks)?;
    let log = record.log()?;
    let middle = batches(&log).get(1).copied().unwrap_or(0);
    for (offset, name) in [(20, "log-header-damaged"), (middle + 40, "batch-damaged")] {
        let mut corrupted = log.clone();
        if let Some(byte) = corrupted.get_mut(offset) {
            *byte ^= 4;
        }
        record.write_log(&corrupted)?;
        record.damaged(&mut checks, &[], name)?;
    }
    // An incomplete append is not damage: it is removed, saved and reported.
    record.write_log(&[log.as_slice(), b"BJB1\0\0\x01\0half of it"].concat())?;
    record.sound(&mut checks, "an unfinished append")?;
    let ended = record.run(&mut checks, "true")?;
    let reported = ended.stderr_text().contains("incomplete entry");
    checks.holds(reported, "the repair is not reported")?;
    let repaired = record.events(&["--kind", "ledger.repaired"])?.len();
    checks.holds(repaired == 1, format_args!("{repaired} repairs are recorded"))?;
    record.sound(&mut checks, "the repaired ledger")?;
    // Without a writable ledger no run starts.
    let log = record.log()?;
    fs::remove_file(record.file("ledger/events.log")).during("remove the log")?;
    fs::create_dir(record.file("ledger/events.log")).during("create a directory")?;
    let ended = record.try_run("echo ran")?;
    let ran = ended.stdout_text().contains("ran");
    checks.holds(
        ended.code == NO_BOX && !ran,
        format_args!("a run without a ledger is not refused: {:?}", ended.code),
    )?;
    fs::remove_dir(record.file("ledger/events.log")).during("remove the directory")?;
    record.write_log(&log)?;
    record.run(&mut checks, "true")?;
    checks.held()
}
