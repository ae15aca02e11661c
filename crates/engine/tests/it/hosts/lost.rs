//! Tests of hosts that are killed: the box dies, and the ledger shows whether it had an effect.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use belljar_engine::runs::evidence::{self, Evidence};
use belljar_engine::runs::host;
use belljar_model::RunId;
use belljar_testkit::{Authority, Signal, Upstream, eventually};
use serde_json::json;

use super::{events, spec, start, wait_for_line};
use crate::test_engine::TestEngine;

/// Kills the process that holds the lock of a run.
fn kill_host(engine: &TestEngine, run: RunId) {
    let lock = engine.lab.state().join(format!("runs/{run}/lock"));
    let holds_lock = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == lock)
    };
    let own = std::process::id();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let hosts: Vec<u32> = pids.filter(|pid| *pid != own).filter(holds_lock).collect();
    let [host] = hosts.as_slice() else { panic!("one process has the lock open: {hosts:?}") };
    let pid = rustix::process::Pid::from_raw((*host).try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Returns whether a process with this argument is running.
fn is_running(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .into_iter()
        .any(|line| line.split(|byte| *byte == 0).any(|arg| arg == argument.as_bytes()))
}

/// Runs a script that waits at its end, kills its host, and returns what the ledger shows.
fn lose(engine: &TestEngine, overrides: serde_json::Value, script: &str) -> (RunId, Evidence) {
    // A number that no other test uses shows whether a process of the box is alive.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let seconds = format!("{}.{count}5", 1_000_000 + std::process::id());
    let script = format!("{script}\necho waiting >&2; sleep {seconds}");
    let task = spec(engine, overrides, &script);
    let (run, hosted) = (task.run, start(engine, task));
    wait_for_line(engine, run, "waiting");
    eventually("the program sleeps", || is_running(&seconds));
    kill_host(engine, run);
    hosted.wait();
    eventually("the box dies with its host", || !is_running(&seconds));
    assert!(!host::is_running(&engine.state, run), "the kernel released the lock");
    assert_eq!(host::result(&engine.state, run).unwrap(), None, "there is no result");
    assert!(host::adopt(&engine.state, run).unwrap().is_none());
    (run, evidence::of_run(&engine.state, run, &[]).unwrap())
}

#[test]
fn h11_box_dies_with_its_host_and_a_task_without_requests_had_no_effect() {
    let engine = TestEngine::new();
    let (run, evidence) = lose(&engine, json!({}), "echo x; touch ~/f");
    assert_eq!(evidence, Evidence::NoEffect);
    let kinds = events(&engine, run);
    assert!(kinds.iter().all(|event| event["kind"] != "run.ended"), "{kinds:?}");
}

#[test]
fn h11_lost_task_with_a_writable_mount_may_have_had_an_effect() {
    let engine = TestEngine::new();
    let shared = engine.lab.dir().join("shared");
    fs::create_dir(&shared).unwrap();
    let mount = |access: &str| json!({"mounts": [format!("{}:/mnt/x:{access}", shared.display())]});
    let (_, evidence) = lose(&engine, mount("rw"), "echo x > /mnt/x/f");
    let Evidence::MaybeEffect { first } = evidence else { panic!("no effect") };
    assert!(first.contains("/mnt/x"), "{first}");
    assert!(shared.join("f").exists(), "control: there was an effect");
    let (_, evidence) = lose(&engine, mount("ro"), "cat /mnt/x/f");
    assert_eq!(evidence, Evidence::NoEffect, "control: the mount is read-only");
}

#[test]
fn h11_lost_task_that_sent_a_post_request_may_have_had_an_effect_and_one_that_only_read_had_none() {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let connect = upstream.address();
    let rule = format!(
        "[[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n"
    );
    let text = format!("[template.default]\nnet = \"restricted\"\n{rule}");
    engine.lab.configure_for(&authority, &text);
    let get = "curl -sS https://api.example.com/v1/x > /dev/null || exit 9";
    let (_, evidence) = lose(&engine, json!({}), get);
    assert_eq!(evidence, Evidence::NoEffect);
    assert_eq!(upstream.received().len(), 1, "control: the request was sent");
    let post = "curl -sS -d x https://api.example.com/v1/releases > /dev/null || exit 9";
    let (_, evidence) = lose(&engine, json!({}), &format!("{get}\n{post}"));
    let first = "POST api.example.com/v1/releases".to_owned();
    assert_eq!(evidence, Evidence::MaybeEffect { first });
    assert_eq!(upstream.received().len(), 3, "control: there was an effect");
}

#[test]
fn h11_websocket_of_a_lost_task_may_have_had_an_effect() {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let connect = upstream.address();
    let rule = format!(
        "[[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\nwebsocket = true\n"
    );
    let text = format!("[template.default]\nnet = \"restricted\"\n{rule}");
    engine.lab.configure_for(&authority, &text);
    let upgrade = "curl -sS --http1.1 --max-time 5 -o /dev/null -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' https://api.example.com/ws; true";
    let (_, evidence) = lose(&engine, json!({}), upgrade);
    let first = "GET api.example.com/ws as websocket".to_owned();
    assert_eq!(evidence, Evidence::MaybeEffect { first });
}

#[test]
fn run_that_was_never_started_had_no_effect() {
    let engine = TestEngine::new();
    let unknown = engine.state.new_id().unwrap().0;
    assert_eq!(evidence::of_run(&engine.state, unknown, &[]).unwrap(), Evidence::NoEffect);
    assert!(host::adopt(&engine.state, unknown).unwrap().is_none());
    assert_eq!(host::result(&engine.state, unknown).unwrap(), None);
    assert!(!host::kill(&engine.state, unknown).unwrap());
}
