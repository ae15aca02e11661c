//! Tests of the list of runs and its database, with real drivers, and with a full disk and a wrong clock.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts itself on a disk of its own, and passes its directories in a variable"
)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_engine::clock::Clock;
use belljar_engine::error::ErrorKind;
use belljar_engine::host::{HostEnv, RoleProgram};
use belljar_engine::notice::Silent;
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::machine::{Outcome, Status};
use belljar_engine::runs::rows::{self, RunStatus, RunsQuery};
use belljar_engine::runs::submit::submit;
use belljar_engine::runs::view::{self, RunView};
use belljar_engine::runs::{driver, host, plans};
use belljar_engine::scope::{Engine, EngineConfig, Scoped, local_caller};
use belljar_ledger::{Event, LedgerPaths, Query, Reader};
use belljar_model::RunId;
use belljar_testkit::{Signal, eventually};

use crate::test_engine::TestEngine;

/// A script that waits for a file in its inputs.
const GO: &str = "echo waiting >&2; until [ -e /run/task/in/go ]; do sleep 0.02; done";

/// Opens a state directory with another clock.
fn open(user_home: &Path, home: &Path, now: fn() -> SystemTime) -> Scoped {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let variables = [("PATH".into(), path.into()), ("HOME".into(), user_home.into())];
    let program = PathBuf::from(env!("CARGO_BIN_EXE_belljar-roles"));
    let roles = RoleProgram::Path(program.clone());
    let host = HostEnv { roles, ..HostEnv::new(variables, program) };
    let config = EngineConfig { home: home.to_owned(), config_file: None, host };
    let engine = Engine::open(config, Clock::new(now), Arc::new(Silent)).unwrap();
    engine.of(&local_caller()).unwrap()
}

fn try_start(
    state: &Scoped,
    dir: &Path,
    text: &str,
) -> Result<RunId, belljar_engine::error::EngineError> {
    let (config, _) = state.load_config(None).unwrap();
    let ceiling = plans::ceiling(state.host(), &config).unwrap();
    let plan =
        plans::check(text, "plan.toml", &ceiling).unwrap_or_else(|faults| panic!("{faults}"));
    submit(state, &plan, dir, None)
}

fn start(engine: &TestEngine, text: &str) -> RunId {
    try_start(&engine.state, &engine.lab.workspace(), text).unwrap()
}

fn finish(state: &Scoped, run: RunId) -> RunView {
    eventually("the run ends", || view::run(state, run).unwrap().outcome.is_some());
    eventually("the driver exits", || !DriverLock::is_held(state.store()));
    view::run(state, run).unwrap()
}

fn list(state: &Scoped) -> Vec<(RunId, RunStatus)> {
    let page = rows::runs(state, &RunsQuery::default()).unwrap();
    assert!(page.next.is_none());
    page.rows.iter().map(|row| (row.run, row.status)).collect()
}

/// Returns the events of a run as JSON.
fn events(state: &Scoped, run: RunId) -> Vec<(String, serde_json::Value)> {
    let reader = Reader::open(&LedgerPaths::under(state.home())).unwrap();
    let query = Query { run: Some(run), ..Query::default() };
    let rows = reader.events(&query).unwrap();
    let read = |row: &belljar_ledger::Row| {
        let entry = reader.read(row).unwrap();
        assert!(Event::read(&entry.kind, &entry.fields).is_ok());
        let json = belljar_engine::record::json::event(row.index, &row.leaf, &entry);
        (row.kind.clone(), json)
    };
    rows.iter().map(read).collect()
}

fn starts(state: &Scoped, run: RunId, task: &str) -> usize {
    let is_start = |(kind, json): &&(String, serde_json::Value)| {
        kind == "task.started" && json["fields"]["task"] == task
    };
    events(state, run).iter().filter(is_start).count()
}

fn wait_for_program(state: &Scoped, run: RunId) -> RunId {
    let mut found = None;
    eventually("the program of a task waits", || {
        let view = view::run(state, run).unwrap();
        found = view.tasks.iter().find_map(|task| task.box_run);
        found.is_some_and(|id| host::tail(state, id, 9).contains(&"waiting".to_owned()))
    });
    found.unwrap()
}

fn release(state: &Scoped, run: RunId, box_run: RunId) {
    let inputs = state.home().join(format!("plans/{run}/work/{box_run}"));
    fs::write(inputs.join("go"), "").unwrap();
}

fn kill_driver(state: &Scoped) {
    let lock = state.home().join("driver.lock");
    let is_driver = |pid: &i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == lock)
    };
    let own = i32::try_from(std::process::id()).unwrap();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: Vec<i32> = pids.filter(|pid| *pid != own).filter(is_driver).collect();
    let [pid] = found.as_slice() else { panic!("one driver: {found:?}") };
    let pid = rustix::process::Pid::from_raw(*pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    eventually("the lock of the driver is free", || !DriverLock::is_held(state.store()));
}

const STUBS: &str = "[task.a]\ndo = { stub = 'x' }\n[task.b]\ndo = { stub = 'y' }\nneeds = ['a']";
const SUCCEEDED: RunStatus = RunStatus::Ended(Outcome::Succeeded);

// ---- The database

#[test]
fn list_is_complete_after_the_database_was_deleted_damaged_replaced_or_restored() {
    let engine = TestEngine::new();
    let database = engine.lab.state().join("runs.db");
    assert!(list(&engine.state).is_empty(), "without a ledger");
    let first = start(&engine, STUBS);
    finish(&engine.state, first);
    let mut expected = vec![(first, SUCCEEDED)];
    assert_eq!(list(&engine.state), expected);
    let kept = engine.lab.dir().join("old.db");
    let faults: [(&str, &dyn Fn()); 4] = [
        ("deleted", &|| fs::remove_file(&database).unwrap()),
        ("damaged", &|| fs::write(&database, [7; 5000]).unwrap()),
        ("foreign", &|| {
            let other = TestEngine::new();
            finish(&other.state, start(&other, STUBS));
            list(&other.state);
            fs::copy(other.lab.state().join("runs.db"), &database).unwrap();
        }),
        ("restored", &|| {
            fs::copy(&kept, &database).unwrap();
        }),
    ];
    fs::copy(&database, &kept).unwrap();
    for (name, fault) in faults {
        for end in ["-wal", "-shm"] {
            fs::remove_file(engine.lab.state().join(format!("runs.db{end}"))).ok();
        }
        fault();
        assert_eq!(list(&engine.state), expected, "{name}: before the next driver");
        fault();
        let run = start(&engine, STUBS);
        assert_eq!(finish(&engine.state, run).outcome, Some(Outcome::Succeeded), "{name}");
        expected.insert(0, (run, SUCCEEDED));
        assert_eq!(list(&engine.state), expected, "{name}: after the next driver");
    }
}

#[test]
fn h12_driver_completes_runs_and_repeats_nothing_when_the_database_cannot_be_written() {
    let engine = TestEngine::new();
    fs::create_dir_all(engine.lab.state().join("runs.db/occupied")).unwrap();
    let text = format!(
        "[task.a]\ndo = {{ command = ['bash', '-c', '{GO}'] }}\n[task.b]\ndo = {{ stub = 'y' }}\nneeds = ['a']"
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine.state, run);
    assert_eq!(list(&engine.state), [(run, RunStatus::Running)], "the rows are in memory");
    kill_driver(&engine.state);
    driver::wake(&engine.state).unwrap();
    release(&engine.state, run, box_run);
    assert_eq!(finish(&engine.state, run).outcome, Some(Outcome::Succeeded));
    assert_eq!((starts(&engine.state, run, "a"), starts(&engine.state, run, "b")), (1, 1));
    assert_eq!(list(&engine.state), [(run, SUCCEEDED)]);
    assert!(engine.lab.state().join("runs.db/occupied").exists());
}

#[test]
fn h15_two_drivers_and_a_list_on_one_home_start_each_task_once() {
    let engine = TestEngine::new();
    let text = format!(
        "[task.a]\ndo = {{ command = ['bash', '-c', '{GO}'] }}\n[task.b]\ndo = {{ stub = 'y' }}\nneeds = ['a']"
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine.state, run);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| driver::run(&engine.state).unwrap());
            scope.spawn(|| assert_eq!(list(&engine.state), [(run, RunStatus::Running)]));
        }
    });
    release(&engine.state, run, box_run);
    assert_eq!(finish(&engine.state, run).outcome, Some(Outcome::Succeeded));
    assert_eq!((starts(&engine.state, run, "a"), starts(&engine.state, run, "b")), (1, 1));
    assert_eq!(list(&engine.state), [(run, SUCCEEDED)]);
}

// ---- Stubs

#[test]
fn output_of_a_stub_is_read_after_its_file_was_lost_and_a_changed_plan_gives_none() {
    let engine = TestEngine::new();
    let text = "[task.a]\ndo = { stub = 'from the plan' }\n\
                [task.b]\ndo = { command = ['cat'] }\ndata = ['a']";
    let run = start(&engine, text);
    finish(&engine.state, run);
    let dir = engine.lab.state().join(format!("plans/{run}"));
    let output = |task: &str| view::output(&engine.state, run, &task.parse().unwrap());
    assert_eq!(output("b").unwrap(), b"from the plan");
    fs::remove_file(dir.join("out/a")).unwrap();
    assert_eq!(output("a").unwrap(), b"from the plan");
    fs::write(dir.join("out/a"), "forged").unwrap();
    assert_eq!(output("a").unwrap(), b"from the plan", "the plan replaces the forged file");
    fs::write(dir.join("out/b"), "forged").unwrap();
    assert_eq!(output("b").unwrap_err().kind(), ErrorKind::Damaged, "control: not a stub");
    let plan = fs::read_to_string(dir.join("plan.json")).unwrap();
    fs::write(dir.join("plan.json"), plan.replace("from the plan", "from a thief")).unwrap();
    fs::remove_file(dir.join("out/a")).unwrap();
    assert_eq!(output("a").unwrap_err().kind(), ErrorKind::Damaged);
}

// ---- Clock

fn yesterday() -> SystemTime {
    belljar_testkit::wall_clock() - Duration::from_secs(24 * 60 * 60)
}

#[test]
fn driver_after_a_clock_was_set_back_waits_no_longer_and_records_no_earlier_times() {
    let engine = TestEngine::new();
    let text = format!(
        "[task.a]\ndo = {{ command = ['bash', '-c', '{GO}'] }}\n\
         [task.b]\ndo = {{ stub = 'y', delay = '100ms' }}\nneeds = ['a']"
    );
    let run = start(&engine, &text);
    let box_run = wait_for_program(&engine.state, run);
    kill_driver(&engine.state);
    release(&engine.state, run, box_run);
    let late = open(&engine.lab.home(), &engine.lab.state(), yesterday);
    driver::run(&late).unwrap();
    assert_eq!(finish(&engine.state, run).outcome, Some(Outcome::Succeeded));
    let times: Vec<u64> = events(&engine.state, run)
        .iter()
        .filter_map(|(_, json)| json["fields"]["at"].as_u64())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    // A run of yesterday's clock is the newest of the list: it was recorded last.
    let last = try_start(&late, &engine.lab.workspace(), STUBS).unwrap();
    finish(&engine.state, last);
    assert_eq!(list(&engine.state), [(last, SUCCEEDED), (run, SUCCEEDED)]);
}

// ---- Full disk

/// The variable with the directories of a test process on its own disk.
const ON_OWN_DISK: &str = "BELLJAR_TEST_OWN_DISK";

#[test]
fn h12_nothing_starts_on_a_full_disk_and_the_host_holds_its_result_until_there_is_room() {
    let engine = TestEngine::new();
    let (state, home) = (engine.lab.state(), engine.lab.home());
    let mount = "mount -t tmpfs -o size=16m,mode=700 none \"$0\" && exec \"$@\"";
    if !belljar_testkit::root_or_skip("a plain user cannot build a box in this mount namespace") {
        return;
    }
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", mount])
        .arg(&state)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "run_rows::process_on_a_disk_that_becomes_full", "--nocapture"])
        .env(ON_OWN_DISK, format!("{}\n{}", state.display(), home.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(text.contains("the disk was full"), "{text}");
}

/// Fills the disk of a run, frees it and checks the run. Without the variable it does nothing.
#[test]
fn process_on_a_disk_that_becomes_full() {
    let Ok(dirs) = std::env::var(ON_OWN_DISK) else { return };
    let (home, user_home) = dirs.split_once('\n').unwrap();
    let (home, user_home) = (Path::new(home), Path::new(user_home));
    let state = open(user_home, home, belljar_testkit::wall_clock);
    let marker = format!("marker-{}", std::process::id());
    // The output is larger than the space that the end of the box frees.
    let text = format!(
        "[task.a]\ndo = {{ command = ['bash', '-c', ': {marker}; {GO}; head -c 1000000 /dev/zero'] }}\n\
         output = {{ type = 'bytes' }}\n\
         [task.b]\ndo = {{ command = ['wc', '-c'] }}\ndata = ['a']"
    );
    let run = try_start(&state, user_home, &text).unwrap();
    let box_run = wait_for_program(&state, run);
    let ballast = home.join("ballast");
    fill(&ballast);
    release(&state, run, box_run);
    eventually("the program has ended", || !has_process(&marker));
    fill(&ballast);
    assert!(host::is_running(&state, box_run), "the host holds the result");
    try_start(&state, user_home, STUBS).unwrap_err();
    kill_driver(&state);
    driver::wake(&state).ok(); // a driver that cannot record its start may exit
    assert_eq!(starts(&state, run, "b"), 0);
    assert_eq!(list(&state), [(run, RunStatus::Running)]);
    assert!(host::is_running(&state, box_run), "the host still holds the result");
    std::io::stdout().write_all(b"\nthe disk was full\n").unwrap();
    fs::remove_file(&ballast).unwrap();
    driver::wake(&state).unwrap();
    let view = finish(&state, run);
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    assert!(view.tasks.iter().all(|task| task.status == Status::Done && task.attempt == 1));
    assert_eq!(view::output(&state, run, &"b".parse().unwrap()).unwrap(), b"1000000\n");
    assert_eq!(list(&state), [(run, SUCCEEDED)]);
}

/// Appends to a file until the disk is full.
fn fill(ballast: &Path) {
    let mut file = fs::File::options().create(true).append(true).open(ballast).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[1; 4096])).find_map(Result::err).unwrap();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
}

/// Returns whether a process other than this one has a text in its arguments.
fn has_process(text: &str) -> bool {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    pids.filter(|pid| *pid != own).any(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}
