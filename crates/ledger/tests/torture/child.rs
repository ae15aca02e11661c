//! Child processes that use a ledger: their actions, and how tests start, kill and read from them.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use belljar_ledger::{Digest, Draft, Ledger, LedgerPaths, Receipt, RecordError, WorkspaceChanged};

use crate::fixture::{Acknowledged, Home, below, created, created_with, event, run_id};

/// The variable with the action and the state directory of a child: `ACT HOME`.
const CHILD_ACT: &str = "BELLJAR_TEST_TORTURE";
const TEST: &str = "child::child_process_that_uses_a_ledger";
/// The number of events that a terminating action records.
pub(crate) const EVENTS: u32 = 3;

/// A child process that uses a ledger.
pub(crate) struct Process {
    child: Child,
    output: Arc<(Mutex<ChildOutput>, Condvar)>,
    reader: JoinHandle<String>,
}

#[derive(Default)]
struct ChildOutput {
    acknowledged: Acknowledged,
    lines: u64,
    has_ended: bool,
}

/// The result of a child process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) acknowledged: Acknowledged,
    /// The other output of the child: its errors.
    pub(crate) errors: String,
}

impl Ended {
    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9) || self.status.code() == Some(128 + 9)
    }
}

/// Returns the command that performs `act` on the ledger in `home`, with `before` as a prefix.
pub(crate) fn command(before: &[&str], act: &str, home: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut words = before.iter().copied().chain([own]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--exact", TEST, "--nocapture", "--test-threads=1"]);
    command.env(CHILD_ACT, format!("{act} {}", home.display()));
    command
}

impl Process {
    pub(crate) fn start(before: &[&str], act: &str, home: &Path) -> Self {
        let mut command = command(before, act, home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = Arc::new((Mutex::new(ChildOutput::default()), Condvar::new()));
        let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let shared = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut errors = String::new();
            for line in BufReader::new(out).lines() {
                let line = line.unwrap();
                let mut output = shared.0.lock().unwrap();
                parse_line(&line, &mut output.acknowledged, &mut errors);
                output.lines += 1;
                shared.1.notify_all();
            }
            shared.0.lock().unwrap().has_ended = true;
            shared.1.notify_all();
            err.read_to_string(&mut errors).unwrap();
            errors
        });
        Self { child, output, reader }
    }

    /// Waits until the child has printed this many lines or exited.
    pub(crate) fn wait_for(&self, lines: u64) {
        let output = self.output.0.lock().unwrap();
        let must_wait = |output: &mut ChildOutput| output.lines < lines && !output.has_ended;
        drop(self.output.1.wait_while(output, must_wait).unwrap());
    }

    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.end()
    }

    pub(crate) fn end(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        let errors = self.reader.join().unwrap();
        let acknowledged = self.output.0.lock().unwrap().acknowledged.clone();
        Ended { status, acknowledged, errors }
    }
}

fn parse_line(line: &str, acknowledged: &mut Acknowledged, errors: &mut String) {
    let words: Vec<&str> = line.split(' ').collect();
    // The line can start with output of the test harness.
    let start = words.iter().position(|word| ["ack", "redacted", "error"].contains(word));
    match start.map(|start| &words[start..]) {
        Some(["ack", index, hash]) => {
            acknowledged.events.insert(index.parse().unwrap(), hash.parse().unwrap());
        }
        Some(["redacted", hash]) => acknowledged.redacted.push(hash.parse().unwrap()),
        _ => {
            errors.push_str(line);
            errors.push('\n');
        }
    }
}

/// Prints a line with one write, bypassing the capture of the test harness.
fn print_line(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn acknowledge(receipt: &Receipt) {
    print_line(&format!("ack {} {}", receipt.index(), receipt.hash()));
}

/// Performs every action when run as a test; started as a child, performs the given action.
#[test]
fn child_process_that_uses_a_ledger() {
    let Ok(given) = std::env::var(CHILD_ACT) else {
        for act in ["record", "rotate", "redact", "prune"] {
            let home = Home::new();
            perform(act, &home.paths()).unwrap();
            home.check(&Acknowledged::default());
        }
        return;
    };
    let (act, home) = given.split_once(' ').unwrap();
    if let Err(error) = perform(act, &LedgerPaths::under(Path::new(home))) {
        print_line(&format!("error {error:?}"));
    }
}

fn perform(act: &str, paths: &LedgerPaths) -> Result<(), Box<dyn Error>> {
    match act {
        "mixed" => return mixed(&Ledger::open(paths)?),
        "full" => return crate::mounts::on_a_full_disk(paths),
        "read-only" => return crate::mounts::on_a_read_only_disk(paths),
        _ => {}
    }
    let ledger = Ledger::open(paths)?;
    match act {
        "open" => {}
        "record" => record(&ledger)?,
        "rotate" => {
            record(&ledger)?;
            ledger.rotate_key()?;
            record(&ledger)?;
        }
        "redact" => {
            let hash = keep(&ledger, b"a secret that should not be stored")?;
            ledger.redact(&[hash], "a test")?;
            print_line(&format!("redacted {hash}"));
            record(&ledger)?;
        }
        "prune" => {
            keep(&ledger, b"something old")?;
            let dropped = ledger.prune(u64::MAX)?;
            print_line(&format!("pruned {dropped:?}"));
            record(&ledger)?;
        }
        // Continues after an error, to check that later acknowledgements are true.
        "insist" => {
            for number in 0..EVENTS {
                match ledger.record(Draft::new(event(number))) {
                    Ok(receipt) => acknowledge(&receipt),
                    Err(error) => print_line(&format!("error {error:?}")),
                }
            }
        }
        other => panic!("unknown action {other}"),
    }
    Ok(())
}

fn record(ledger: &Ledger) -> Result<(), Box<dyn Error>> {
    let run = run_id();
    let first = ledger.record(Draft::new(created()).of_run(run))?;
    acknowledge(&first);
    for number in 1..EVENTS {
        let draft = Draft::new(event(number)).of_run(run).because_of(&first);
        acknowledge(&ledger.record(draft)?);
    }
    Ok(())
}

/// Stores a content and records events that reference it.
fn keep(ledger: &Ledger, content: &[u8]) -> Result<Digest, Box<dyn Error>> {
    loop {
        let body = ledger.keep(Digest::of(&[b"policy"]), &mut { content })?;
        let run = run_id();
        let changed = WorkspaceChanged { files: 1, changes: body.clone() };
        let drafts = [Draft::new(created_with(body.clone())), Draft::new(changed)];
        match ledger.record_all(drafts.map(|draft| draft.of_run(run)).to_vec()) {
            Ok(receipts) => {
                receipts.iter().for_each(acknowledge);
                return Ok(body.hash());
            }
            // Another process has just dropped the content.
            Err(RecordError::BodyGone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs three threads until it is killed; one of them performs the less frequent actions.
fn mixed(ledger: &Ledger) -> Result<(), Box<dyn Error>> {
    let failed = Mutex::new(None);
    let note = |result: Result<(), Box<dyn Error>>| match result {
        Ok(()) => true,
        Err(error) => {
            failed.lock().unwrap().get_or_insert(format!("{error:?}"));
            false
        }
    };
    let go_on = || failed.lock().unwrap().is_none();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| while go_on() && note(record(ledger)) {});
        }
        while go_on() && note(rarer(ledger)) {}
    });
    failed.into_inner().unwrap().map_or(Ok(()), |error| Err(error.into()))
}

fn rarer(ledger: &Ledger) -> Result<(), Box<dyn Error>> {
    match below(8) {
        0 => drop(ledger.rotate_key()?),
        1 => drop(ledger.prune(below(u64::MAX))?),
        2 | 3 => {
            let hash = keep(ledger, &below(u64::MAX).to_be_bytes())?;
            ledger.redact(&[hash], "a test")?;
            print_line(&format!("redacted {hash}"));
        }
        // There are few contents, so that some are shared.
        _ => drop(keep(ledger, &[u8::try_from(below(4)).unwrap(); 5000])?),
    }
    Ok(())
}
