//! The measured part of `cargo xtask bench append verify reopen`: runs one action and prints its
//! cost as JSON.
//!
//! Only the action is timed, not the start of this program. The files it creates are not removed.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the program prints its result on standard output")]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use belljar_ledger::{
    Actor, Body, Digest, DnsDecided, Draft, Ledger, LedgerPaths, Reader, RunCreated, VerifyOptions,
    WorkspaceChanged, verify,
};
use belljar_model::RunId;
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

type Answer = Result<Value, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "append DIR SECONDS THREADS | batches DIR SECONDS | fsync DIR SECONDS | \
                     sqlite DIR SECONDS | make DIR EVENTS | make-runs DIR RUNS | verify DIR | deep DIR | index DIR | sha256 FILE | reopen DIR | resume DIR";
/// The length of the recorded events, and of the rows and lines of the other writers.
const LENGTH: usize = 256;
/// The number of events per sync for a single writer.
const TOGETHER: u64 = 64;
/// For generated ledgers: the events per call, and how often an event has a hashed or a stored
/// body.
const AT_ONCE: u64 = 1000;
const NAMES_BODY: u64 = 100;
const KEEPS_BODY: u64 = 1000;
const CONTENT: usize = 4096;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = match args.as_slice() {
        ["append", dir, seconds, threads] => {
            append(Path::new(dir), Duration::from_secs(seconds.parse()?), threads.parse()?)
        }
        ["batches", dir, seconds] => batches(Path::new(dir), Duration::from_secs(seconds.parse()?)),
        ["fsync", dir, seconds] => fsync(Path::new(dir), Duration::from_secs(seconds.parse()?)),
        ["sqlite", dir, seconds] => sqlite(Path::new(dir), Duration::from_secs(seconds.parse()?)),
        ["make", dir, events] => make(Path::new(dir), events.parse()?),
        ["make-runs", dir, runs] => make_runs(Path::new(dir), runs.parse()?),
        ["index", dir] => indexed(Path::new(dir)),
        ["verify", dir] => verified(Path::new(dir), false),
        ["deep", dir] => verified(Path::new(dir), true),
        ["sha256", file] => sha256(Path::new(file)),
        ["reopen", dir] => reopen(Path::new(dir), true),
        ["resume", dir] => reopen(Path::new(dir), false),
        _ => Err(USAGE.into()),
    }?;
    println!("{answer}");
    Ok(())
}

/// Measures threads that record events one after the other, each for its own run.
fn append(dir: &Path, time: Duration, threads: usize) -> Answer {
    let paths = LedgerPaths::under(dir);
    let ledger = Ledger::open(&paths)?;
    let before = std::fs::metadata(paths.log())?.len();
    let (all_ready, over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let (count, took) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| append_until(&ledger, &all_ready, &over)))
            .collect();
        all_ready.wait();
        let started = Instant::now();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let mut count = 0;
        for writer in writers {
            count += writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok::<_, Box<dyn Error + Send + Sync>>((count, started.elapsed()))
    })?;
    let grown = std::fs::metadata(paths.log())?.len() - before;
    Ok(json!({
        "appends": count, "per_second": count as f64 / took.as_secs_f64(), "bytes": grown,
    }))
}

fn append_until(
    ledger: &Ledger,
    all_ready: &Barrier,
    over: &AtomicBool,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    // Every thread must reach the barrier, even after a failure.
    let begun = begin_run(ledger, fresh_run());
    all_ready.wait();
    let run = begun?;
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let _receipt = ledger.record(event(run))?;
        count += 1;
    }
    Ok(count)
}

/// Measures one writer that records as many events at once as a transaction of [`sqlite`] has rows.
fn batches(dir: &Path, time: Duration) -> Answer {
    let ledger = Ledger::open(&LedgerPaths::under(dir))?;
    let run = begin_run(&ledger, fresh_run())?;
    let (mut count, started) = (0_u64, Instant::now());
    while started.elapsed() < time {
        drop(ledger.record_all((0..TOGETHER).map(|_| event(run)).collect())?);
        count += TOGETHER;
    }
    let took = started.elapsed();
    Ok(json!({ "appends": count, "per_second": count as f64 / took.as_secs_f64() }))
}

/// Measures one write and one sync per event, with the system call that the ledger uses.
fn fsync(dir: &Path, time: Duration) -> Answer {
    std::fs::create_dir_all(dir)?;
    let mut file = OpenOptions::new().append(true).create(true).open(dir.join("plain"))?;
    let (mut count, started) = (0_u64, Instant::now());
    while started.elapsed() < time {
        file.write_all(&[b'x'; LENGTH])?;
        file.sync_data()?;
        count += 1;
    }
    let took = started.elapsed();
    Ok(json!({ "appends": count, "per_second": count as f64 / took.as_secs_f64() }))
}

/// Measures the alternative to the log: an SQLite table with one commit per group of rows.
fn sqlite(dir: &Path, time: Duration) -> Answer {
    std::fs::create_dir_all(dir)?;
    let mut database = Connection::open(dir.join("log.db"))?;
    database.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute_batch("CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, event)")?;
    let (mut count, started) = (0_u64, Instant::now());
    while started.elapsed() < time {
        let transaction = database.transaction()?;
        for _ in 0..TOGETHER {
            let mut insert =
                transaction.prepare_cached("INSERT INTO events (event) VALUES (?1)")?;
            insert.execute([[b'x'; LENGTH].as_slice()])?;
        }
        transaction.commit()?;
        count += TOGETHER;
    }
    let took = started.elapsed();
    Ok(json!({ "appends": count, "per_second": count as f64 / took.as_secs_f64() }))
}

/// Creates a ledger of exactly this many events, with the events of its runs interleaved.
fn make(dir: &Path, events: u64) -> Answer {
    let started = Instant::now();
    let paths = LedgerPaths::under(dir);
    let ledger = Ledger::open(&paths)?;
    let runs: Vec<RunId> = (0..(events / 100).clamp(1, AT_ONCE)).map(|_| fresh_run()).collect();
    let mut drafts = Vec::new();
    for run in &runs {
        drafts.push(created(*run)?);
    }
    // The first event belongs to the ledger itself.
    for (number, run) in (drafts.len() as u64 + 1..events).zip(runs.iter().cycle()) {
        drafts.push(if number % KEEPS_BODY == 0 {
            let mut content = number.to_string().into_bytes();
            content.resize(CONTENT, b'x');
            changed(*run, ledger.keep(Digest::of(&[b"bench"]), &mut content.as_slice())?)
        } else if number % NAMES_BODY == 0 {
            changed(*run, Body::hash_of(&number.to_be_bytes())?)
        } else {
            event(*run)
        });
        if drafts.len() as u64 >= AT_ONCE {
            drop(ledger.record_all(std::mem::take(&mut drafts))?);
        }
    }
    drop(ledger.record_all(drafts)?);
    Ok(json!({
        "seconds": started.elapsed().as_secs_f64(),
        "bytes": std::fs::metadata(paths.log())?.len(), "runs": runs.len(), "log": paths.log(),
    }))
}

/// Creates a ledger of runs that have one event each, which is the worst case for the verifier.
fn make_runs(dir: &Path, runs: u64) -> Answer {
    let started = Instant::now();
    let paths = LedgerPaths::under(dir);
    let ledger = Ledger::open(&paths)?;
    let mut left = runs;
    while left > 0 {
        let count = left.min(AT_ONCE);
        let drafts: Result<Vec<Draft>, _> = (0..count).map(|_| created(fresh_run())).collect();
        drop(ledger.record_all(drafts?)?);
        left -= count;
    }
    Ok(json!({
        "seconds": started.elapsed().as_secs_f64(),
        "bytes": std::fs::metadata(paths.log())?.len(), "runs": runs, "log": paths.log(),
    }))
}

/// Measures the rebuild of the index.
fn indexed(dir: &Path) -> Answer {
    let paths = LedgerPaths::under(dir);
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        std::fs::remove_file(paths.ledger().join(name)).ok(); // it can be missing
    }
    let started = Clocks::now();
    let events = Reader::open(&paths)?.size();
    let took = started.elapsed();
    Ok(json!({
        "seconds": took.wall, "cpu": took.cpu, "events": events, "peak_kib": peak_kib()?,
    }))
}

/// Returns the maximum of the resident memory of this process.
fn peak_kib() -> Result<u64, Box<dyn Error + Send + Sync>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    Ok(peak.ok_or("the kernel does not report the peak of the memory")?.parse()?)
}

fn verified(dir: &Path, deep: bool) -> Answer {
    let started = Clocks::now();
    let report =
        verify(&LedgerPaths::under(dir), VerifyOptions { deep, ..VerifyOptions::default() })?;
    let took = started.elapsed();
    if let Some(finding) = report.findings.first() {
        return Err(format!("the generated ledger has a finding: {finding:?}").into());
    }
    let kept = report.bodies.map(|bodies| bodies.kept);
    Ok(json!({
        "seconds": took.wall, "cpu": took.cpu, "events": report.events, "bytes": report.bytes,
        "kept_bodies": kept, "peak_kib": peak_kib()?,
    }))
}

/// Measures one SHA-256 pass over a file.
fn sha256(path: &Path) -> Answer {
    let started = Clocks::now();
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        hash.update(piece.get(..count).unwrap_or_default());
        bytes += count;
    }
    let hash = Digest::new(hash.finalize().into());
    let took = started.elapsed();
    Ok(json!({
        "seconds": took.wall, "cpu": took.cpu, "bytes": bytes, "hash": hash.to_string(),
    }))
}

/// Measures opening a ledger and recording one event of a new run or of the newest run.
fn reopen(dir: &Path, is_new: bool) -> Answer {
    let paths = LedgerPaths::under(dir);
    let newest = dir.join("newest-run");
    let run = if is_new { fresh_run() } else { std::fs::read_to_string(&newest)?.parse()? };
    let draft = if is_new { created(run)? } else { event(run) };
    let started = Instant::now();
    let ledger = Ledger::open(&paths)?;
    let opened = started.elapsed();
    let receipt = ledger.record(draft)?;
    let took = started.elapsed();
    std::fs::write(newest, run.to_string())?;
    Ok(json!({
        "seconds": took.as_secs_f64(), "seconds_to_open": opened.as_secs_f64(),
        "events": receipt.index() + 1,
    }))
}

fn begin_run(ledger: &Ledger, run: RunId) -> Result<RunId, Box<dyn Error + Send + Sync>> {
    let _receipt = ledger.record(created(run)?)?;
    Ok(run)
}

/// Returns the first event of a run.
fn created(run: RunId) -> Result<Draft, Box<dyn Error + Send + Sync>> {
    let event = RunCreated {
        name: None,
        template: "bench".to_owned(),
        mode: "overlay".to_owned(),
        net: "none".to_owned(),
        policy: Digest::of(&[b"bench"]),
        workspace: None,
        record: "hashes".to_owned(),
        command: Body::hash_of(b"true")?,
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: None,
        principal: None,
        tenant: None,
        session: None,
        writable: None,
    };
    Ok(Draft::new(event).of_run(run))
}

/// Returns an event of [`LENGTH`] bytes.
fn event(run: RunId) -> Draft {
    let event = DnsDecided {
        name: format!("{}.example.com", "x".repeat(41)),
        query: "A".to_owned(),
        verdict: "allow".to_owned(),
        rule: None,
        reason: "a rule of the template allows this one".to_owned(),
    };
    Draft::new(event).of_run(run).by(Actor::Broker)
}

/// Returns an event that references a body.
fn changed(run: RunId, changes: Body) -> Draft {
    Draft::new(WorkspaceChanged { files: 1, changes }).of_run(run).by(Actor::Supervisor)
}

/// Returns a new unique run id.
fn fresh_run() -> RunId {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let time = clock_gettime(ClockId::Realtime);
    let millis = u64::try_from(time.tv_sec).unwrap_or(0) * 1000;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    RunId::new(millis, (std::process::id() << 16).wrapping_add(number))
}

/// Elapsed time and CPU time.
#[derive(Clone, Copy)]
struct Clocks {
    wall: f64,
    cpu: f64,
}

impl Clocks {
    fn now() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        Self { wall: read(ClockId::Monotonic), cpu: read(ClockId::ProcessCPUTime) }
    }

    fn elapsed(self) -> Self {
        let now = Self::now();
        Self { wall: now.wall - self.wall, cpu: now.cpu - self.cpu }
    }
}
