//! Tests of schedules: real drivers, with a clock of the test or with the real clock and `SIGKILL`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_engine::error::ErrorKind;
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::machine::Outcome;
use belljar_engine::runs::schedules::{self, ScheduleState, ScheduleView};
use belljar_engine::runs::{control, driver, view};
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_testkit::eventually;
use serde_json::Value;

use crate::plan_runs::kill_driver;
use crate::test_engine::{TestEngine, open_engine_with_clock, open_engine_with_old_clock};

const STUB: &str = "[task.a]\ndo = { stub = 'x' }\n";
const GATE: &str = "[task.a]\ndo = { approval = 'Continue?' }\n";

thread_local! {
    /// The time of the test in milliseconds, shared by the test and its driver.
    static TIME: RefCell<Arc<AtomicU64>> = RefCell::default();
}

fn test_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(TIME.with_borrow(|time| time.load(Ordering::SeqCst)))
}

fn set_time(text: &str) {
    let time: jiff::Timestamp = text.parse().unwrap();
    let millis = u64::try_from(time.as_millisecond()).unwrap();
    TIME.with_borrow(|shared| shared.store(millis, Ordering::SeqCst));
}

/// An engine with the clock of the test, and a driver in a thread of this process.
struct Driven {
    engine: TestEngine,
    state: Scoped,
    thread: Option<JoinHandle<()>>,
}

impl Driven {
    /// Writes the plan and the configuration, and starts a driver at a time.
    fn new(time: &str, plan: &str, config: &str) -> Self {
        Self::with_variables(time, plan, config, &[])
    }

    fn with_variables(time: &str, plan: &str, config: &str, variables: &[(&str, &str)]) -> Self {
        set_time(time);
        let engine = TestEngine::new();
        let state = open_engine_with_clock(&engine.lab, variables, test_clock);
        let mut driven = Self { engine, state, thread: None };
        fs::write(driven.engine.lab.workspace().join("plan.toml"), plan).unwrap();
        driven.configure(config);
        driven.start();
        driven
    }

    fn configure(&self, config: &str) {
        configure(&self.engine, config);
    }

    fn start(&mut self) {
        // A client creates it before it starts a driver process.
        fs::create_dir_all(self.engine.lab.state().join("plans")).unwrap();
        let (state, time) = (self.state.clone(), TIME.with_borrow(Arc::clone));
        self.thread = Some(std::thread::spawn(move || {
            TIME.set(time);
            driver::run(&state).unwrap();
        }));
        eventually("the driver runs", || DriverLock::is_held(self.state.store()));
        self.look();
    }

    /// Waits until the driver has looked at the clock.
    fn look(&self) {
        // The driver closes the connection of a client after it has looked for work.
        for _ in 0..2 {
            eventually("the driver answers", || driver::wake(&self.state).is_ok());
        }
    }

    fn at(&self, time: &str) {
        set_time(time);
        self.look();
    }

    /// Ends the driver by an empty configuration.
    fn end(&mut self) {
        self.configure("");
        let thread = self.thread.take().unwrap();
        let is_woken = || thread.is_finished() || driver::wake(&self.state).is_ok();
        eventually("the driver answers", is_woken);
        thread.join().unwrap();
    }

    fn fired(&self) -> Vec<String> {
        slots(&self.engine, "schedule.fired")
    }

    /// Waits until as many slots are fired, and then checks that no other is.
    #[track_caller]
    fn expect(&self, slots: &[&str]) {
        eventually("the slots are fired", || self.fired().len() >= slots.len());
        self.look();
        assert_eq!(self.fired(), slots);
    }

    fn shown(&self, name: &str) -> ScheduleView {
        let list = schedules::list(&self.state).unwrap();
        list.schedules.into_iter().find(|it| it.name == name).unwrap()
    }

    fn runs(&self) -> Vec<RunId> {
        let fired = self.engine.events();
        let fired = fired.iter().filter(|event| event["kind"] == "schedule.fired");
        fired.map(|event| event["run"].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.configure("");
            driver::wake(&self.state).ok();
        }
    }
}

fn configure(engine: &TestEngine, config: &str) {
    let dir = engine.lab.home().join(".config/belljar");
    fs::create_dir_all(&dir).unwrap();
    let plan = engine.lab.workspace().join("plan.toml");
    let config = config.replace("PLAN", &plan.to_string_lossy());
    // A rename, because the driver can read the file at any time.
    fs::write(dir.join("new"), config).unwrap();
    fs::rename(dir.join("new"), dir.join("belljar.toml")).unwrap();
}

fn of_kind(engine: &TestEngine, kind: &str) -> Vec<Value> {
    engine.events().into_iter().filter(|event| event["kind"] == kind).collect()
}

/// Returns the slots of all events of a kind, as `month-dayThour:minute` in UTC.
fn slots(engine: &TestEngine, kind: &str) -> Vec<String> {
    let slot = |event: &Value| {
        let millis = event["fields"]["slot"].as_i64().unwrap();
        let slot = jiff::Timestamp::from_millisecond(millis).unwrap();
        slot.strftime("%m-%dT%H:%M").to_string()
    };
    of_kind(engine, kind).iter().map(slot).collect()
}

fn section(name: &str, cron: &str, more: &str) -> String {
    format!("[schedule.{name}]\nplan = 'PLAN'\ncron = '{cron}'\n{more}\n")
}

#[test]
fn driver_fires_the_slots_of_two_clock_changes_a_suspend_a_restart_and_a_clock_set_back() {
    let config = section("nightly", "30 2 * * *", "zone = 'Europe/Berlin'");
    let mut driven = Driven::new("2026-03-29T00:55:00Z", STUB, &config);
    eventually("the schedule is enabled", || {
        of_kind(&driven.engine, "schedule.enabled").len() == 1
    });
    driven.expect(&[]);
    driven.at("2026-03-29T01:00:00Z"); // the end of the gap
    driven.expect(&["03-29T01:00"]);
    driven.at("2026-03-29T00:30:00Z"); // the clock is set back
    driven.at("2026-03-29T01:00:10Z");
    driven.expect(&["03-29T01:00"]);
    driven.end();
    set_time("2026-03-30T01:10:00Z"); // a restart 40 minutes after the slot
    driven.configure(&config);
    driven.start();
    driven.expect(&["03-29T01:00", "03-30T00:30"]);
    driven.end();
    driven.configure(&config);
    driven.start(); // a restart after the slot was fired
    driven.expect(&["03-29T01:00", "03-30T00:30"]);
    driven.at("2026-03-31T12:00:00Z"); // a suspend: the slot is too old
    driven.expect(&["03-29T01:00", "03-30T00:30"]);
    driven.at("2026-10-25T00:30:20Z"); // the first 02:30 of this day
    driven.at("2026-10-25T01:30:20Z"); // the second one
    driven.expect(&["03-29T01:00", "03-30T00:30", "10-25T00:30"]);
    assert_eq!(of_kind(&driven.engine, "schedule.enabled").len(), 1, "restarts change nothing");
    for run in driven.runs() {
        let events = driven.engine.events();
        let of_run = |event: &&Value| event["run"] == run.to_string();
        let kinds: Vec<&Value> = events.iter().filter(of_run).map(|it| &it["kind"]).collect();
        assert_eq!(kinds[..3], ["run.created", "plan.accepted", "schedule.fired"]);
        let created = events.iter().find(of_run).unwrap();
        assert_eq!(created["fields"]["principal"], "schedule:nightly");
        eventually("the run ends", || {
            view::run(&driven.state, run).unwrap().outcome == Some(Outcome::Succeeded)
        });
    }
    driven.end();
}

#[test]
fn schedules_over_two_clock_changes_a_suspend_of_a_day_and_a_restart_fire_exactly_their_slots() {
    // The hours of the first schedule are given; the second one follows the elapsed time.
    let more = "zone = 'Europe/Berlin'\noverlap = 'allow'";
    let config = section("daily", "30 2 * * *", more) + &section("hourly", "30 * * * *", more);
    let mut driven = Driven::new("2026-03-28T23:45:00Z", STUB, &config);
    driven.at("2026-03-29T00:30:10Z"); // 01:30 in Berlin
    driven.at("2026-03-29T01:00:10Z"); // 03:00, the end of the gap
    driven.at("2026-03-29T01:30:10Z"); // 03:30
    driven.at("2026-03-30T01:20:00Z"); // 03:20, after a suspend of a day
    driven.end();
    set_time("2026-03-30T03:40:00Z"); // 05:40, a restart
    driven.configure(&config);
    driven.start();
    driven.at("2026-10-25T00:30:10Z"); // the first 02:30 of this day
    driven.at("2026-10-25T01:30:10Z"); // the second one
    driven.at("2026-10-25T02:30:10Z"); // 03:30
    let expect = [
        "hourly 03-29T00:30",
        "daily 03-29T01:00",
        "hourly 03-29T01:30",
        // Of each schedule, the newest slot during the suspend; it is 50 minutes late.
        "daily 03-30T00:30",
        "hourly 03-30T00:30",
        // The newest slot before the restart.
        "hourly 03-30T03:30",
        "daily 10-25T00:30",
        "hourly 10-25T00:30",
        "hourly 10-25T01:30",
        "hourly 10-25T02:30",
    ];
    eventually("the slots are fired", || driven.fired().len() >= expect.len());
    driven.look();
    let names = of_kind(&driven.engine, "schedule.fired");
    let names = names.iter().map(|event| event["fields"]["schedule"].as_str().unwrap());
    let fired: Vec<String> =
        names.zip(driven.fired()).map(|(name, slot)| format!("{name} {slot}")).collect();
    assert_eq!(fired, expect);
    assert!(of_kind(&driven.engine, "schedule.skipped").is_empty());
    driven.end();
}

#[test]
fn queued_slot_is_fired_once_by_the_next_driver() {
    let config = section("a", "0 * * * *", "overlap = 'queue'");
    let mut driven = Driven::new("2026-05-01T09:30:00Z", GATE, &config);
    driven.at("2026-05-01T10:00:00Z");
    driven.expect(&["05-01T10:00"]);
    driven.at("2026-05-01T11:00:00Z");
    eventually("the slot waits", || slots(&driven.engine, "schedule.queued") == ["05-01T11:00"]);
    // The open run ends while no driver watches the schedule.
    driven.configure("");
    driven.look();
    driven.cancel_all();
    driven.thread.take().unwrap().join().unwrap();
    assert_eq!(driven.fired(), ["05-01T10:00"], "control: the slot still waits");
    set_time("2026-05-01T11:20:00Z");
    driven.configure(&config);
    driven.start();
    driven.expect(&["05-01T10:00", "05-01T11:00"]);
    driven.cancel_all();
    driven.end();
    driven.configure(&config);
    driven.start(); // the slot is on record
    driven.expect(&["05-01T10:00", "05-01T11:00"]);
    driven.end();
}

#[test]
fn slot_during_an_open_run_is_skipped_queued_or_fired_as_the_schedule_says() {
    let sections = [
        section("skip", "0 * * * *", ""),
        section("queue", "0 * * * *", "overlap = 'queue'"),
        section("allow", "0 * * * *", "overlap = 'allow'"),
    ];
    let mut driven = Driven::new("2026-05-01T09:30:00Z", GATE, &sections.concat());
    driven.at("2026-05-01T10:00:00Z");
    driven.expect(&["05-01T10:00"; 3]);
    let first = driven.runs();
    driven.at("2026-05-01T11:00:00Z");
    driven.expect(&["05-01T10:00", "05-01T10:00", "05-01T10:00", "05-01T11:00"]);
    driven.at("2026-05-01T12:00:00Z");
    let all = ["05-01T10:00", "05-01T10:00", "05-01T10:00", "05-01T11:00", "05-01T12:00"];
    driven.expect(&all);
    assert_eq!(slots(&driven.engine, "schedule.queued"), ["05-01T11:00"]);
    let skipped: Vec<(String, Value)> = slots(&driven.engine, "schedule.skipped")
        .into_iter()
        .zip(of_kind(&driven.engine, "schedule.skipped"))
        .map(|(slot, event)| (slot, event["fields"]["schedule"].clone()))
        .collect();
    let expect = [("11:00", "skip"), ("12:00", "queue"), ("12:00", "skip")];
    let expect = expect.map(|(slot, name)| (format!("05-01T{slot}"), Value::from(name)));
    assert_eq!(skipped, expect);
    // The queued slot is fired when the open run has ended.
    set_time("2026-05-01T12:30:00Z");
    for run in first {
        control::cancel(&driven.state, run, None).unwrap();
    }
    driven.expect(&[&all[..], &["05-01T11:00"]].concat());
    let last = of_kind(&driven.engine, "schedule.fired").pop().unwrap();
    assert_eq!(last["fields"]["schedule"], "queue");
    driven.cancel_all();
    driven.end();
}

impl Driven {
    fn cancel_all(&self) {
        for run in self.runs() {
            if view::run(&self.state, run).unwrap().outcome.is_none() {
                control::cancel(&self.state, run, None).unwrap();
            }
        }
    }
}

#[test]
fn schedule_whose_zone_disappears_stops_with_a_reason_and_the_other_one_goes_on() {
    let zones = tempfile::tempdir().unwrap();
    fs::create_dir(zones.path().join("Europe")).unwrap();
    let berlin = zones.path().join("Europe/Berlin");
    fs::copy("/usr/share/zoneinfo/Europe/Berlin", &berlin).unwrap();
    let config =
        section("a", "0 * * * *", "zone = 'Europe/Berlin'") + &section("b", "0 * * * *", "");
    let variables = [("TZDIR", zones.path().to_str().unwrap())];
    let mut driven = Driven::with_variables("2026-05-01T09:30:00Z", STUB, &config, &variables);
    driven.at("2026-05-01T10:00:00Z");
    driven.expect(&["05-01T10:00", "05-01T10:00"]);
    assert_eq!(driven.shown("a").state, ScheduleState::Enabled, "control");
    fs::remove_file(&berlin).unwrap();
    driven.at("2026-05-01T11:00:00Z");
    driven.expect(&["05-01T10:00", "05-01T10:00", "05-01T11:00"]);
    let stopped = driven.shown("a");
    assert_eq!((stopped.state, stopped.next), (ScheduleState::Stopped, None));
    let fault = stopped.fault.unwrap();
    let expect = "belljar.toml:4: `zone = \"Europe/Berlin\"`: unknown time zone";
    assert!(fault.contains(expect), "{fault}");
    assert_eq!(driven.shown("b").state, ScheduleState::Enabled);
    // The zone returns: the schedule continues without a restart.
    fs::copy("/usr/share/zoneinfo/Europe/Berlin", &berlin).unwrap();
    driven.at("2026-05-01T12:00:00Z");
    eventually("both are fired", || driven.fired().len() == 5);
    driven.end();
}

#[test]
fn paused_schedule_fires_nothing_and_a_resumed_one_only_later_slots() {
    let config = section("a", "0 * * * *", "missed = 'once'") + &section("far", "0 0 1 1 *", "");
    let mut driven = Driven::new("2026-05-01T09:30:00Z", STUB, &config);
    schedules::pause(&driven.state, "a").unwrap();
    assert_eq!(driven.shown("a").state, ScheduleState::Paused);
    driven.at("2026-05-01T10:00:00Z");
    driven.at("2026-05-01T10:10:00Z");
    schedules::resume(&driven.state, "a").unwrap();
    driven.expect(&[]);
    driven.at("2026-05-01T11:00:00Z");
    driven.expect(&["05-01T11:00"]);
    let shown = driven.shown("a");
    assert_eq!(shown.state, ScheduleState::Enabled);
    assert_eq!(shown.next.unwrap().1, "2026-05-01 12:00");
    assert_eq!(shown.last.unwrap().1, driven.runs()[0]);
    // Without an enabled schedule, the driver exits.
    schedules::pause(&driven.state, "a").unwrap();
    schedules::pause(&driven.state, "far").unwrap();
    driven.thread.take().unwrap().join().unwrap();
}

#[test]
fn slot_with_a_missing_plan_is_recorded_as_skipped_and_the_next_one_fires() {
    let mut driven = Driven::new("2026-05-01T09:30:00Z", STUB, &section("a", "0 * * * *", ""));
    let plan = driven.engine.lab.workspace().join("plan.toml");
    fs::remove_file(&plan).unwrap();
    driven.at("2026-05-01T10:00:00Z");
    eventually("the slot is skipped", || {
        slots(&driven.engine, "schedule.skipped") == ["05-01T10:00"]
    });
    let skipped = of_kind(&driven.engine, "schedule.skipped").pop().unwrap();
    assert_eq!(skipped["fields"]["why"], "plan");
    let text = skipped["fields"]["text"].as_str().unwrap();
    assert!(text.contains("belljar.toml:2: `plan = "), "{text}");
    fs::write(&plan, STUB).unwrap();
    driven.at("2026-05-01T11:00:00Z");
    driven.expect(&["05-01T11:00"]);
    driven.end();
}

#[test]
fn commands_refuse_invalid_schedules_with_file_and_line_and_run_starts_the_plan_as_the_caller() {
    let engine = TestEngine::new();
    let state = &engine.state;
    fs::write(engine.lab.workspace().join("plan.toml"), STUB).unwrap();
    let resume = |config: &str| {
        configure(&engine, config);
        let error = schedules::resume(state, "a").unwrap_err();
        (error.kind(), format!("{error:#}"))
    };
    for (config, kind, expect) in [
        (
            section("a", "61 * * * *", ""),
            ErrorKind::Invalid,
            "belljar.toml:3: `cron = \"61 * * * *\"`",
        ),
        (
            section("a", "* * * * *", "zone = 'Mars/Base'"),
            ErrorKind::Invalid,
            "belljar.toml:4: `zone =",
        ),
        (
            section("a", "* * * * *", "zone = '../etc'"),
            ErrorKind::Invalid,
            "belljar.toml:4: `zone =",
        ),
        (
            "[schedule.a]\nplan = '/missing.toml'\ncron = '* * * * *'\n".to_owned(),
            ErrorKind::Invalid,
            "belljar.toml:2: `plan = \"/missing.toml\"`: cannot read the plan",
        ),
        (section("b", "* * * * *", ""), ErrorKind::NotFound, "there is no schedule `a`"),
    ] {
        let (found, text) = resume(&config);
        assert_eq!(found, kind, "{text}");
        assert!(text.contains(expect), "{text}");
    }
    // The far slot keeps the driver, but does not fire.
    configure(&engine, &section("a", "0 0 1 1 *", ""));
    let run = schedules::run(state, "a").unwrap();
    eventually("the run ends", || view::run(state, run).unwrap().outcome.is_some());
    let created = engine.events().into_iter().find(|event| event["run"] == run.to_string());
    let principal = state.caller().principal.to_string();
    assert_eq!(created.unwrap()["fields"]["principal"], principal);
    assert!(DriverLock::is_held(state.store()), "an enabled schedule keeps the driver");
    end(&engine);
}

fn end(engine: &TestEngine) {
    configure(engine, "");
    driver::wake(&engine.state).unwrap();
    eventually("the driver exits", || !DriverLock::is_held(engine.state.store()));
}

#[test]
fn h11_slot_is_fired_once_when_drivers_are_killed_at_any_moment() {
    let engine = TestEngine::new();
    fs::write(engine.lab.workspace().join("plan.toml"), STUB).unwrap();
    configure(&engine, &section("a", "* * * * *", "overlap = 'allow'"));
    // Enabled an hour ago, so that a driver has a missed slot at once.
    schedules::resume(&open_engine_with_old_clock(&engine.lab), "a").unwrap();
    for round in 0..12 {
        eventually("a driver runs", || DriverLock::is_held(engine.state.store()));
        // Chooses the moment of the kill, from the first steps of a driver to its wait.
        std::thread::sleep(Duration::from_millis(round * 8));
        kill_driver(&engine);
        driver::wake(&engine.state).unwrap();
    }
    eventually("a slot is fired", || !of_kind(&engine, "schedule.fired").is_empty());
    let mut fired: BTreeMap<String, u32> = BTreeMap::new();
    for event in of_kind(&engine, "schedule.fired") {
        *fired.entry(event["fields"]["slot"].to_string()).or_default() += 1;
        let run: RunId = event["run"].as_str().unwrap().parse().unwrap();
        eventually("the run ends", || view::run(&engine.state, run).unwrap().outcome.is_some());
        let view = view::run(&engine.state, run).unwrap();
        assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    }
    assert!(fired.values().all(|count| *count == 1), "{fired:?}");
    assert!(of_kind(&engine, "schedule.skipped").is_empty());
    end(&engine);
}
