//! The budget of a tenant, which all its runs share.

use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_engine::runs::budget::Unit;
use belljar_engine::runs::driver;
use belljar_engine::runs::host;
use belljar_engine::runs::machine::{Outcome, Status};
use belljar_engine::runs::submit;
use belljar_engine::runs::tenants::{self, TenantView};
use belljar_engine::runs::view::{self, RunView};
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_model::plan::CheckedPlan;
use belljar_testkit::eventually;

use super::{Lab, answer};
use crate::plan_runs::{
    GO, checked, events, finish, kill_driver, release, start, starts, task, wait_for_program,
};
use crate::test_engine::{TestEngine, open_engine_at};

/// Returns a plan whose tasks ask a model once each, one after the other.
fn chain(tasks: usize) -> String {
    let task = |number: usize| {
        let needs = if number == 0 { String::new() } else { format!("'t{}'", number - 1) };
        format!(
            "[task.t{number}]\ndo = {{ model = 'cheap', prompt = 'x', max_tokens = 100 }}\nneeds = [{needs}]\n"
        )
    };
    (0..tasks).map(task).collect()
}

/// Replaces the budget of the tenant in the configuration.
fn limit(engine: &TestEngine, budget: &str) {
    let dir = engine.lab.home().join(".config/belljar");
    let text = fs::read_to_string(dir.join("belljar.toml")).unwrap_or_default();
    let text = text.split("[tenant.local]").next().unwrap();
    fs::create_dir_all(&dir).unwrap();
    // A rename, because a driver can read the file at any time.
    let text = format!("{text}[tenant.local]\nbudget = {{ {budget} }}\n");
    fs::write(dir.join("new"), text).unwrap();
    fs::rename(dir.join("new"), dir.join("belljar.toml")).unwrap();
}

fn budget(state: &Scoped) -> TenantView {
    let (config, _) = state.load_config(None).unwrap();
    tenants::budget(state, &config).unwrap()
}

/// Returns the tasks of a run that a used-up budget stopped.
fn stopped(view: &RunView) -> Vec<&str> {
    let reason = |task: &'_ view::TaskView| task.status == Status::Stopped;
    let tasks = view.tasks.iter().filter(|task| reason(task));
    tasks.filter_map(|task| task.reason.as_deref()).filter(|it| it.starts_with("budget")).collect()
}

/// Records a run without waking a driver.
fn accept(state: &Scoped, engine: &TestEngine, plan: &CheckedPlan) -> RunId {
    submit::accept(state, plan, &engine.lab.workspace(), None).unwrap()
}

fn delete_database(engine: &TestEngine) {
    let database = engine.lab.state().join("runs.db");
    assert!(database.exists(), "control: {database:?} is the database of runs");
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{end}", database.display())).ok();
    }
}

#[test]
fn h16_two_runs_of_a_tenant_together_never_send_more_than_its_budget() {
    let lab = Lab::new(vec![answer("x")]);
    limit(&lab.engine, "calls = 5");
    let runs = [(); 2].map(|()| start(&lab.engine, &chain(4)));
    let views = runs.map(|run| finish(&lab.engine, run));
    assert_eq!(lab.requests().len(), 5, "{views:#?}");
    let done: usize = views.iter().map(RunView::done).sum();
    assert_eq!(done, 5, "{views:#?}");
    let over = |view: &&RunView| view.outcome == Some(Outcome::OverBudget);
    for view in views.iter().filter(|view| view.outcome != Some(Outcome::Succeeded)) {
        assert!(over(&view), "{view:#?}");
        assert_eq!(stopped(view), ["budget: the budget of tenant local is used up (5 calls)"]);
    }
    assert!(views.iter().any(|view| over(&view)), "{views:#?}");
    let shown = budget(&lab.engine.state);
    assert_eq!((shown.used(Unit::Calls), shown.remaining(Unit::Calls)), (5, Some(0)));
    assert_eq!(shown.used_up().len(), 1, "{shown:#?}");
    // Control: with a higher limit, a run goes on.
    limit(&lab.engine, "calls = 9");
    let view = finish(&lab.engine, start(&lab.engine, &chain(4)));
    assert_eq!((view.outcome, lab.requests().len()), (Some(Outcome::Succeeded), 9), "{view:#?}");
}

#[test]
fn h16_budget_of_a_tenant_holds_after_a_kill_of_the_driver_and_without_the_database() {
    // The third request waits until the driver is killed, and so does the next one.
    let (count, open) = (AtomicUsize::new(0), Arc::new((Mutex::new(false), Condvar::new())));
    let all_held = Arc::new(AtomicUsize::new(0));
    let (gate, held) = (Arc::clone(&open), Arc::clone(&all_held));
    let lab = Lab::answering(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) >= 2 {
            held.fetch_add(1, Ordering::SeqCst);
            let closed = gate.1.wait_while(gate.0.lock().unwrap(), |is_open| !*is_open);
            drop(closed.unwrap());
        }
        answer("x")
    });
    limit(&lab.engine, "calls = 5");
    let plan = checked(&lab.engine, &chain(4));
    let runs = [(); 2].map(|()| accept(&lab.engine.state, &lab.engine, &plan));
    driver::wake(&lab.engine.state).unwrap();
    eventually("a request is held", || all_held.load(Ordering::SeqCst) > 0);
    // The driver starts no process while the boxes of both runs wait for the model.
    let waits = |run: &RunId| {
        let view = view::run(&lab.engine.state, *run).unwrap();
        let box_run = task(&view, "t1").box_run;
        box_run.is_some_and(|box_run| host::is_running(&lab.engine.state, box_run))
    };
    eventually("both runs wait", || runs.iter().all(waits));
    kill_driver(&lab.engine);
    assert!(budget(&lab.engine.state).used(Unit::Calls) > 0, "the database is up to date");
    delete_database(&lab.engine);
    driver::wake(&lab.engine.state).unwrap();
    *open.0.lock().unwrap() = true;
    open.1.notify_all();
    let views = runs.map(|run| finish(&lab.engine, run));
    assert_eq!(lab.requests().len(), 5, "{views:#?}");
    assert!(views.iter().any(|view| view.outcome == Some(Outcome::OverBudget)), "{views:#?}");
    // A rebuild gives the same numbers.
    let before = budget(&lab.engine.state);
    delete_database(&lab.engine);
    assert_eq!(budget(&lab.engine.state), before);
    assert_eq!((before.used(Unit::Calls), before.reserved.get(Unit::Calls)), (5, 0));
    assert_eq!(before.used(Unit::Tokens), 45, "7 tokens of input and 2 of output each");
}

/// The time of the test in milliseconds. Only one test uses it.
static TIME: AtomicU64 = AtomicU64::new(0);

fn test_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(TIME.load(Ordering::SeqCst))
}

#[test]
fn h16_new_period_renews_the_budget_and_a_clock_set_back_does_not() {
    let lab = Lab::new(vec![answer("x")]);
    let state = open_engine_at(&lab.engine.lab, test_clock);
    limit(&lab.engine, "calls = 2, period = 'day'");
    // Carries out a run with a driver in this process, and returns the number of requests.
    let run_at = |time: &str| -> (RunView, usize) {
        let before = lab.requests().len();
        let millis = time.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        TIME.store(millis.try_into().unwrap(), Ordering::SeqCst);
        let plan = checked(&lab.engine, &chain(3));
        let run = accept(&state, &lab.engine, &plan);
        fs::create_dir_all(lab.engine.lab.state().join("plans")).unwrap();
        driver::run(&state).unwrap();
        (view::run(&state, run).unwrap(), lab.requests().len() - before)
    };
    let (view, sent) = run_at("2026-05-01T10:00:00Z");
    assert_eq!((view.outcome, sent), (Some(Outcome::OverBudget), 2), "{view:#?}");
    let reason = "budget: the budget of tenant local is used up (2 calls); it is renewed at 2026-05-02 00:00:00Z";
    assert_eq!(stopped(&view), [reason]);
    assert_eq!(run_at("2026-05-01T23:00:00Z").1, 0, "the same day");
    assert_eq!(run_at("2026-05-02T00:00:00Z").1, 2, "the next day");
    let (view, sent) = run_at("2026-05-01T12:00:00Z");
    assert_eq!((view.outcome, sent), (Some(Outcome::OverBudget), 0), "the clock is set back");
    let shown = budget(&state);
    let renews = moment("2026-05-03T00:00:00Z");
    assert_eq!((shown.used(Unit::Calls), shown.renews.map(|at| at.0)), (2, Some(renews)));
    // The accounts of months and of the whole history are kept too.
    for (period, used) in [("month", 4), ("total", 4)] {
        limit(&lab.engine, &format!("calls = 4, period = '{period}'"));
        assert_eq!(budget(&state).used(Unit::Calls), used, "{period}");
        assert_eq!(run_at("2026-05-02T13:00:00Z").1, 0, "{period}");
    }
    limit(&lab.engine, "calls = 4, period = 'month'");
    assert_eq!(run_at("2026-06-01T00:00:00Z").1, 3, "the next month");
}

fn moment(text: &str) -> u64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond().try_into().unwrap()
}

#[test]
fn h16_limit_that_is_lowered_below_the_usage_of_ended_runs_stops_the_next_run() {
    let lab = Lab::new(vec![answer("x")]);
    limit(&lab.engine, "calls = 10");
    let view = finish(&lab.engine, start(&lab.engine, &chain(3)));
    assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    limit(&lab.engine, "calls = 2");
    let view = finish(&lab.engine, start(&lab.engine, &chain(1)));
    assert_eq!(view.outcome, Some(Outcome::OverBudget), "{view:#?}");
    assert_eq!(stopped(&view), ["budget: the budget of tenant local is used up (2 calls)"]);
    assert_eq!(lab.requests().len(), 3);
    // Also a driver that is running follows the configuration.
    let waiting = format!("[task.a]\ndo = {{ command = ['bash', '-c', '{GO}'] }}\n");
    limit(&lab.engine, "calls = 10");
    let open = start(&lab.engine, &waiting);
    let box_run = wait_for_program(&lab.engine, open, "a");
    limit(&lab.engine, "calls = 4");
    let other = start(&lab.engine, &chain(2));
    wake_twice(&lab.engine);
    let view = view::run(&lab.engine.state, other).unwrap();
    assert_eq!(task(&view, "t0").status, Status::Ready, "the open run holds a call: {view:#?}");
    release(&lab.engine, open, box_run);
    let view = finish(&lab.engine, other);
    assert_eq!((view.outcome, lab.requests().len()), (Some(Outcome::OverBudget), 4), "{view:#?}");
    assert_eq!(finish(&lab.engine, open).outcome, Some(Outcome::Succeeded), "the lease stays");
}

/// Waits until the driver has carried out a round after this call.
fn wake_twice(engine: &TestEngine) {
    // The driver closes the connection of a client when it looks for work.
    for _ in 0..2 {
        driver::wake(&engine.state).unwrap();
    }
}

#[test]
fn run_waits_while_another_run_holds_the_rest_of_the_tenants_budget() {
    let engine = TestEngine::new();
    limit(&engine, "calls = 3, boxes = 2");
    let holds = format!(
        "[task.a]\ndo = {{ command = ['bash', '-c', '{GO}'] }}\nbudget = {{ calls = 3 }}\n"
    );
    let first = start(&engine, &holds);
    let box_run = wait_for_program(&engine, first, "a");
    let second = start(&engine, "[task.a]\ndo = { command = ['true'] }\n");
    wake_twice(&engine);
    assert_eq!(task(&view::run(&engine.state, second).unwrap(), "a").status, Status::Ready);
    let shown = budget(&engine.state);
    assert_eq!((shown.reserved.get(Unit::Calls), shown.used(Unit::Boxes)), (3, 1));
    release(&engine, first, box_run);
    for run in [first, second] {
        let view = finish(&engine, run);
        assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}");
    }
}

#[test]
fn no_box_starts_while_the_configuration_is_invalid_and_runs_go_on_after_it_is_corrected() {
    let engine = TestEngine::new();
    let plan = checked(&engine, "[task.a]\ndo = { command = ['true'] }\n");
    let run = accept(&engine.state, &engine, &plan);
    limit(&engine, "tokens = 'many'");
    let error = format!("{:#}", engine.state.load_config(None).unwrap_err());
    assert!(error.contains("belljar.toml:2: `tokens = 'many'`: must be a whole number"), "{error}");
    fs::create_dir_all(engine.lab.state().join("plans")).unwrap();
    let state = engine.state.clone();
    let thread = std::thread::spawn(move || driver::run(&state).unwrap());
    eventually("the fault is reported", || {
        let notices = engine.notices().join("\n");
        notices.contains("no box starts before the budget of the tenant is known")
            && notices.contains("`tokens = 'many'`")
    });
    wake_twice(&engine);
    assert_eq!(starts(&engine, run, "a"), 0);
    assert_eq!(events(&engine, run, "driver.opened").len(), 1, "control: the driver has the run");
    limit(&engine, "tokens = 5");
    assert_eq!(finish(&engine, run).outcome, Some(Outcome::Succeeded));
    thread.join().unwrap();
}
