//! Kills of the driver, of hosts, of brokers, of workers and of programs while random plans run.

mod hunt;
mod plans;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use belljar_engine::runs::control::{self, Settlement};
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::machine::{Outcome, Status, Try};
use belljar_engine::runs::submit::submit;
use belljar_engine::runs::view::{self, RunView};
use belljar_engine::runs::{self, host};
use belljar_ledger::{LedgerPaths, VerifyOptions};
use belljar_model::RunId;
use belljar_testkit::{eventually, wall_clock};
use serde_json::Value;

use self::hunt::Hunt;
use self::plans::{Kind, PlannedRun, PlannedTask, Random};
use self::upstream::HeldUpstream;
use crate::test_engine::TestEngine;

/// The number of random plans.
const PLANS: usize = 50;
/// The maximum number of plans, if the kills in one window are rare.
const MAX_PLANS: usize = 150;
/// The number of plans that run at the same time.
const OPEN: usize = 6;

fn start(engine: &TestEngine, text: &str) -> RunId {
    let (config, _) = engine.state.load_config(None).unwrap();
    let ceiling = runs::plans::ceiling(engine.state.host(), &config).unwrap();
    let plan = runs::plans::check(text, "plan.toml", &ceiling);
    let plan = plan.unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    submit(&engine.state, &plan, &engine.lab.workspace(), None).unwrap()
}

/// Returns the number of events of a kind in the chain of a run.
fn count(engine: &TestEngine, run: RunId, kind: &str) -> usize {
    let id = run.to_string();
    let events = engine.events();
    events.iter().filter(|event| event["run"] == id.as_str() && event["kind"] == kind).count()
}

/// Describes the events of a task and of its boxes. The key is `RUN/TASK`.
fn describe(engine: &TestEngine, key: &str) -> String {
    let (run, task) = key.split_once('/').unwrap();
    let events = engine.events();
    let of_task = |event: &&Value| {
        event["run"] == run && (event["fields"]["task"] == task || event["kind"] == "driver.opened")
    };
    let boxes: BTreeSet<String> = events
        .iter()
        .filter(of_task)
        .filter_map(|event| Some(event["fields"]["box_run"].as_str()?.to_owned()))
        .collect();
    let is_shown = |event: &&Value| {
        of_task(event) || event["run"].as_str().is_some_and(|run| boxes.contains(run))
    };
    let shown = events.iter().filter(is_shown);
    shown
        .map(|event| {
            format!("{} {} {} {}\n", event["index"], event["run"], event["kind"], event["fields"])
        })
        .collect()
}

/// Checks that the tasks that are done have the outputs that they have without kills.
fn check_outputs(engine: &TestEngine, plan: &PlannedRun, view: &RunView) {
    for (number, task) in view.tasks.iter().enumerate() {
        if task.status == Status::Done {
            let output = view::output(&engine.state, view.run, &task.of).unwrap();
            assert_eq!(String::from_utf8(output).unwrap(), plan.output(number), "{view:#?}");
        }
    }
}

/// Fails with the state of all open runs if the test does not end.
fn check_deadline(engine: &TestEngine, hunt: &Hunt<'_>, until: Instant, seed: u64) {
    if Instant::now() > until {
        let open: Vec<RunView> =
            hunt.open.iter().map(|run| view::run(&engine.state, *run).unwrap()).collect();
        let log = fs::read_to_string(engine.lab.state().join("plans/driver.log"));
        let boxes = hunt.open_boxes();
        panic!("seed {seed}: runs do not end\n{open:#?}\n{log:?}\n{boxes}\n{:?}", hunt.kills);
    }
}

/// Lists the kills and the outcomes.
fn counts(hunt: &Hunt<'_>, plans: usize, seed: u64) -> String {
    let mut text = format!("seed {seed}: {plans} random plans\n");
    for (name, count, minimum) in hunt.counts() {
        writeln!(text, "  {name:<40} {count:>4} (minimum {minimum})").unwrap();
    }
    writeln!(text, "  {:?}", hunt.kills).unwrap();
    text
}

#[test]
fn h11_kills_of_all_processes_repeat_no_effect_and_change_no_result() {
    let time = wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = u64::from(time.subsec_nanos());
    let (engine, upstream) = (TestEngine::new(), HeldUpstream::start());
    engine.lab.configure(&upstream.template());
    let mut hunt = Hunt::new(&engine, &upstream, seed);
    let mut planned: BTreeMap<RunId, PlannedRun> = BTreeMap::new();
    let until = Instant::now() + Duration::from_secs(540);
    loop {
        let is_enough = planned.len() >= PLANS && hunt.is_complete();
        if hunt.open.is_empty() && is_enough || planned.len() == MAX_PLANS {
            break;
        }
        if hunt.open.len() < OPEN && !is_enough {
            let plan = PlannedRun::random(&mut hunt.random);
            let run = start(&engine, &plan.text("evidence"));
            hunt.add(run, plan.clone());
            planned.insert(run, plan);
        }
        hunt.step();
        check_deadline(&engine, &hunt, until, seed);
    }
    let counts = counts(&hunt, planned.len(), seed);
    for (name, count, minimum) in hunt.counts() {
        assert!(count >= minimum, "{name}: {count}, minimum {minimum}\n{counts}");
    }

    let effects = upstream.effects();
    let twice: Vec<_> = effects.iter().filter(|(_, count)| **count > 1).collect();
    let events: String = twice.iter().map(|(key, _)| describe(&engine, key)).collect();
    assert!(twice.is_empty(), "effects that happened twice: {twice:?}\n{counts}\n{events}");
    let lost: BTreeSet<RunId> = hunt.lost.iter().map(|(run, _)| *run).collect();
    for (run, plan) in &planned {
        let view = view::run(&engine.state, *run).unwrap();
        check_outputs(&engine, plan, &view);
        if lost.contains(run) {
            assert_eq!(view.outcome, None, "the run waits for a person: {view:#?}\n{counts}");
            for (number, task) in
                view.tasks.iter().enumerate().filter(|(_, task)| task.lost.is_some())
            {
                // A killed driver also loses attempts of other tasks. A person decides after three.
                let is_lost_often = task.attempt > 3;
                let may_have_effect = plan.tasks[number].kind == Kind::Write;
                assert!(may_have_effect || is_lost_often, "{task:?}\n{counts}");
            }
        } else {
            assert_eq!(view.outcome, Some(Outcome::Succeeded), "{view:#?}\n{counts}");
            for (number, _) in
                plan.tasks.iter().enumerate().filter(|(_, task)| task.kind == Kind::Write)
            {
                assert_eq!(
                    effects.get(&format!("{run}/t{number}")),
                    Some(&1),
                    "{view:#?}\n{counts}"
                );
            }
        }
    }
    settle_all(&engine, &lost);
    let report = belljar_ledger::verify(
        &LedgerPaths::under(engine.state.home()),
        VerifyOptions { deep: true, ..VerifyOptions::default() },
    );
    let report = report.unwrap();
    assert!(report.is_sound(), "{:#?}\n{counts}", report.findings);
    std::io::Write::write_all(&mut std::io::stdout(), counts.as_bytes()).unwrap();
}

/// Decides that the lost tasks failed, so that their runs end and the driver exits.
fn settle_all(engine: &TestEngine, lost: &BTreeSet<RunId>) {
    for run in lost {
        for task in view::run(&engine.state, *run).unwrap().tasks {
            let Some(attempt) = task.lost else { continue };
            let of = Try { task: task.of.task.clone(), item: None, attempt };
            control::settle(&engine.state, *run, &of, Settlement::Failed).unwrap();
        }
    }
    for run in lost {
        eventually("the settled run ends", || {
            view::run(&engine.state, *run).unwrap().outcome == Some(Outcome::Failed)
        });
    }
    eventually("the driver exits", || !DriverLock::is_held(engine.state.store()));
}

/// The end of a plan with one task, of which a process was killed while its request waited for the answer.
#[derive(Debug, PartialEq, Eq)]
struct AfterKill {
    effects: u32,
    needs_attention: bool,
    outcome: Outcome,
}

/// Runs a plan with one task, and kills a process of its first attempt while its request waits.
fn kill_once(
    (kind, is_code): (Kind, bool),
    on_crash: &str,
    kill: fn(&TestEngine, RunId),
) -> AfterKill {
    let (engine, upstream) = (TestEngine::new(), HeldUpstream::start());
    engine.lab.configure(&upstream.template());
    let plan = PlannedRun { tasks: vec![PlannedTask { kind, is_code, inputs: Vec::new() }] };
    let run = start(&engine, &plan.text(on_crash));
    let mut held = None;
    eventually("the request arrives", || {
        held = upstream.next();
        held.is_some()
    });
    let box_run = view::run(&engine.state, run).unwrap().tasks[0].box_run.unwrap();
    kill(&engine, box_run);
    eventually("the host has ended", || !host::is_running(&engine.state, box_run));
    upstream.release(held.unwrap().number);
    eventually("the attempt ended", || {
        count(&engine, run, "task.lost") + count(&engine, run, "task.ended") > 0
    });
    let needs_attention = count(&engine, run, "task.lost") == 1;
    if needs_attention {
        settle_all(&engine, &[run].into());
    }
    eventually("the run ends", || {
        // A repeated attempt sends the request again.
        if let Some(again) = upstream.next() {
            upstream.release(again.number);
        }
        view::run(&engine.state, run).unwrap().outcome.is_some()
    });
    eventually("the driver exits", || !DriverLock::is_held(engine.state.store()));
    let effects = upstream.effects().get(&format!("{run}/t0")).copied().unwrap_or(0);
    let outcome = view::run(&engine.state, run).unwrap().outcome.unwrap();
    AfterKill { effects, needs_attention, outcome }
}

#[test]
fn h11_lost_effect_waits_for_a_person_and_is_repeated_only_if_the_plan_says_rerun() {
    let waited = AfterKill { effects: 1, needs_attention: true, outcome: Outcome::Failed };
    assert_eq!(kill_once((Kind::Write, false), "evidence", hunt::kill_host), waited);
    assert_eq!(kill_once((Kind::Write, false), "ask", hunt::kill_host), waited);
    let twice = AfterKill { effects: 2, needs_attention: false, outcome: Outcome::Succeeded };
    let control = kill_once((Kind::Write, false), "rerun", hunt::kill_host);
    assert_eq!(control, twice, "control: the effect happens twice");
}

#[test]
fn h11_task_whose_broker_was_killed_is_lost_and_not_retried() {
    // The plan allows three attempts, and the program fails without its network.
    let waited = AfterKill { effects: 1, needs_attention: true, outcome: Outcome::Failed };
    assert_eq!(kill_once((Kind::Write, false), "evidence", hunt::kill_broker), waited);
    let repeated = AfterKill { effects: 0, needs_attention: false, outcome: Outcome::Succeeded };
    let control = kill_once((Kind::Read, false), "evidence", hunt::kill_broker);
    assert_eq!(control, repeated, "control: a request that only reads is repeated");
}

#[test]
fn h11_code_task_whose_worker_was_killed_is_lost_and_not_retried() {
    // The plan allows three attempts. A script cannot kill its worker.
    let waited = AfterKill { effects: 1, needs_attention: true, outcome: Outcome::Failed };
    assert_eq!(kill_once((Kind::Write, true), "evidence", hunt::kill_worker), waited);
    let repeated = AfterKill { effects: 0, needs_attention: false, outcome: Outcome::Succeeded };
    let control = kill_once((Kind::Read, true), "evidence", hunt::kill_worker);
    assert_eq!(control, repeated, "control: a request that only reads is repeated");
    let twice = AfterKill { effects: 2, needs_attention: false, outcome: Outcome::Succeeded };
    let control = kill_once((Kind::Write, true), "rerun", hunt::kill_worker);
    assert_eq!(control, twice, "control: the effect happens twice");
}

#[test]
fn random_plans_have_all_kinds_of_tasks_and_dependents() {
    let mut random = Random(1);
    let plans: Vec<PlannedRun> = (0..PLANS).map(|_| PlannedRun::random(&mut random)).collect();
    let tasks = || plans.iter().flat_map(|plan| &plan.tasks);
    for kind in [Kind::Pure, Kind::Read, Kind::Write] {
        assert!(tasks().filter(|task| task.kind == kind).count() > 10, "{kind:?}");
    }
    assert!(tasks().filter(|task| task.is_code && task.kind == Kind::Write).count() > 10);
    assert!(plans.iter().any(|plan| plan.has_dependents(0)));
}
