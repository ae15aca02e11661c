//! Tests of clients that are killed while the host of a task runs.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts itself as a client that can be killed, and passes the spec in a variable"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use belljar_engine::runs::host::{self, TaskOutcome, TaskRunSpec};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{GO, events, output, spec, start, wait_for_line, with_signal};
use crate::test_engine::{TestEngine, open_state};

/// The variable with the path of the [`Order`] for a client process.
const ORDER: &str = "BELLJAR_TEST_ORDER";

/// What a client process starts.
#[derive(Serialize, Deserialize)]
struct Order {
    user_home: PathBuf,
    state: PathBuf,
    spec: TaskRunSpec,
}

/// Starts a host, reports that, and waits until it is killed. Without an order it does nothing.
#[test]
fn client_process_that_starts_a_host() {
    let Some(path) = std::env::var_os(ORDER) else { return };
    let order: Order = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let state = open_state(&order.user_home, &order.state);
    let _hosted = host::start(&state, order.spec, None).unwrap();
    std::io::stdout().write_all(b"\nstarted\n").unwrap();
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// Starts a task in a client process, and kills the client with SIGKILL as soon as the host is started.
fn start_in_killed_client(engine: &TestEngine, spec: TaskRunSpec) {
    let path = engine.lab.dir().join(format!("order-{}", spec.run));
    let order = Order { user_home: engine.lab.home(), state: engine.lab.state(), spec };
    fs::write(&path, serde_json::to_vec(&order).unwrap()).unwrap();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hosts::client::client_process_that_starts_a_host", "--nocapture"])
        .env(ORDER, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "started"));
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn h11_task_goes_on_after_its_client_was_killed_and_another_process_gets_the_result() {
    let engine = TestEngine::new();
    let script = format!("echo before; {GO}; echo after; exit 4");
    let (task, signal) = with_signal(&engine, spec(&engine, json!({}), &script));
    let run = task.run;
    start_in_killed_client(&engine, task.clone());
    let adopted = host::adopt(&engine.state, run).unwrap().expect("a running host");
    assert_eq!(adopted.run(), run);
    wait_for_line(&engine, run, "waiting");
    assert_eq!(host::result(&engine.state, run).unwrap(), None, "the task has not ended");
    let twice = host::start(&engine.state, task.clone(), None).unwrap_err();
    assert_eq!(twice.kind(), belljar_engine::error::ErrorKind::AlreadyExists);
    fs::write(&signal, "").unwrap();
    adopted.wait();
    assert!(host::adopt(&engine.state, run).unwrap().is_none(), "the host has ended");
    let killed_client = host::result(&engine.state, run).unwrap().expect("a result");
    assert_eq!(killed_client.outcome, TaskOutcome::Exited { status: 4 });
    assert_eq!(output(&engine, &killed_client), "before\nafter\n");
    assert_eq!(events(&engine, run).last().unwrap()["kind"], "run.ended");
    // Control: the same task with a client that lives has the same result.
    let other = engine.state.new_id().unwrap().0;
    start(&engine, TaskRunSpec { run: other, ..task }).wait();
    let control = host::result(&engine.state, other).unwrap().unwrap();
    assert_eq!(control.outcome, killed_client.outcome);
    assert_eq!(output(&engine, &control), output(&engine, &killed_client));
}

#[test]
fn task_of_a_killed_client_can_be_killed_by_another_process() {
    let engine = TestEngine::new();
    let task = spec(&engine, json!({}), "echo waiting >&2; sleep 1000");
    let run = task.run;
    start_in_killed_client(&engine, task);
    wait_for_line(&engine, run, "waiting");
    let adopted = host::adopt(&engine.state, run).unwrap().expect("a running host");
    assert!(host::kill(&engine.state, run).unwrap());
    adopted.wait();
    let result = host::result(&engine.state, run).unwrap().unwrap();
    assert_eq!(result.outcome, TaskOutcome::Killed);
}
