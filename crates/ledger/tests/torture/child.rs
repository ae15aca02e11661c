//! What a process of its own does to a ledger, and how it is started, killed and listened to.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use belljar_ledger::{Digest, Draft, Ledger, LedgerPaths, Receipt, RecordError, WorkspaceChanged};

use crate::fixture::{Acknowledged, Home, below, created, created_with, event, run_id};

/// `ACT HOME`.
const TOLD: &str = "BELLJAR_TEST_TORTURE";
const TEST: &str = "child::a_ledger_in_a_process_of_its_own";
/// So many events does an act that ends record.
pub(crate) const EVENTS: u32 = 3;

/// A process that uses a ledger.
pub(crate) struct Process {
    child: Child,
    heard: Arc<(Mutex<Heard>, Condvar)>,
    listening: JoinHandle<String>,
}

#[derive(Default)]
struct Heard {
    told: Acknowledged,
    lines: u64,
    is_over: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) told: Acknowledged,
    /// What it said beside that: errors.
    pub(crate) said: String,
}

impl Ended {
    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9) || self.status.code() == Some(128 + 9)
    }
}

/// The command that does `act` to the ledger in `home`, behind the words of `before`.
pub(crate) fn command(before: &[&str], act: &str, home: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut words = before.iter().copied().chain([own]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--exact", TEST, "--nocapture", "--test-threads=1"]);
    command.env(TOLD, format!("{act} {}", home.display()));
    command
}

impl Process {
    pub(crate) fn start(before: &[&str], act: &str, home: &Path) -> Self {
        let mut command = command(before, act, home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let heard = Arc::new((Mutex::new(Heard::default()), Condvar::new()));
        let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let ears = Arc::clone(&heard);
        let listening = thread::spawn(move || {
            let mut said = String::new();
            for line in BufReader::new(out).lines() {
                let line = line.unwrap();
                let mut heard = ears.0.lock().unwrap();
                hear(&line, &mut heard.told, &mut said);
                heard.lines += 1;
                ears.1.notify_all();
            }
            ears.0.lock().unwrap().is_over = true;
            ears.1.notify_all();
            err.read_to_string(&mut said).unwrap();
            said
        });
        Self { child, heard, listening }
    }

    /// Waits until it said so many lines, or ended.
    pub(crate) fn wait_for(&self, lines: u64) {
        let heard = self.heard.0.lock().unwrap();
        let goes_on = |heard: &mut Heard| heard.lines < lines && !heard.is_over;
        drop(self.heard.1.wait_while(heard, goes_on).unwrap());
    }

    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.end()
    }

    pub(crate) fn end(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        let said = self.listening.join().unwrap();
        let told = self.heard.0.lock().unwrap().told.clone();
        Ended { status, told, said }
    }
}

fn hear(line: &str, told: &mut Acknowledged, said: &mut String) {
    let words: Vec<&str> = line.split(' ').collect();
    // The test harness may have begun the line.
    let place = words.iter().position(|word| ["ack", "redacted", "error"].contains(word));
    match place.map(|place| &words[place..]) {
        Some(["ack", index, hash]) => {
            told.events.insert(index.parse().unwrap(), hash.parse().unwrap());
        }
        Some(["redacted", hash]) => told.redacted.push(hash.parse().unwrap()),
        _ => {
            said.push_str(line);
            said.push('\n');
        }
    }
}

/// Says one line in one write, past the harness.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn acknowledge(receipt: &Receipt) {
    say(&format!("ack {} {}", receipt.index(), receipt.hash()));
}

/// Alone it is a look at every act; started by the others it does as it is told.
#[test]
fn a_ledger_in_a_process_of_its_own() {
    let Ok(told) = std::env::var(TOLD) else {
        for act in ["record", "rotate", "redact", "prune"] {
            let home = Home::new();
            perform(act, &home.paths()).unwrap();
            home.check(&Acknowledged::default());
        }
        return;
    };
    let (act, home) = told.split_once(' ').unwrap();
    if let Err(error) = perform(act, &LedgerPaths::under(Path::new(home))) {
        say(&format!("error {error:?}"));
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
            let hash = keep(&ledger, b"a secret that should not have been kept")?;
            ledger.redact(&[hash], "a test")?;
            say(&format!("redacted {hash}"));
            record(&ledger)?;
        }
        "prune" => {
            keep(&ledger, b"something old")?;
            let dropped = ledger.prune(u64::MAX)?;
            say(&format!("pruned {dropped:?}"));
            record(&ledger)?;
        }
        // Goes on after an error, to see whether what is acknowledged then is true.
        "insist" => {
            for number in 0..EVENTS {
                match ledger.record(Draft::new(event(number))) {
                    Ok(receipt) => acknowledge(&receipt),
                    Err(error) => say(&format!("error {error:?}")),
                }
            }
        }
        other => panic!("no act {other}"),
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

/// Keeps a content and records events that name it.
fn keep(ledger: &Ledger, content: &[u8]) -> Result<Digest, Box<dyn Error>> {
    loop {
        let body = ledger.keep(Digest::of(&[b"policy"]), &mut { content })?;
        let run = run_id();
        let changed = WorkspaceChanged { files: 1, changes: body };
        let drafts = [Draft::new(created_with(body)), Draft::new(changed)];
        match ledger.record_all(drafts.map(|draft| draft.of_run(run)).to_vec()) {
            Ok(receipts) => {
                receipts.iter().for_each(acknowledge);
                return Ok(body.hash());
            }
            // Somebody else dropped it just now.
            Err(RecordError::BodyGone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Until it is killed: three threads, of which one does the rarer things.
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
            say(&format!("redacted {hash}"));
        }
        // Few contents, so that some are shared.
        _ => drop(keep(ledger, &[u8::try_from(below(4)).unwrap(); 5000])?),
    }
    Ok(())
}
