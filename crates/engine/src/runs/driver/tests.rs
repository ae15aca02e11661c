//! Single rounds of a driver in the process of the test.

use std::fs;
use std::os::unix::net::UnixStream;

use belljar_model::RunId;

use super::rounds::Driver;
use crate::runs::control::{self, Request};
use crate::runs::fence::{DriverLock, Epoch};
use crate::runs::{plans, submit};
use crate::scope::{Scoped, of_test};
use crate::supervisor;

/// Records a run that no driver knows yet.
fn accept(state: &Scoped, text: &str) -> RunId {
    let (config, _) = state.load_config(None).unwrap();
    let ceiling = plans::ceiling(state.host(), &config).unwrap();
    let plan = plans::check(text, "plan.toml", &ceiling).unwrap();
    submit::accept(state, &plan, state.home(), None).unwrap()
}

fn open(state: &Scoped, epoch: Epoch) -> Driver<'_> {
    Driver::open(state, epoch).unwrap()
}

/// Wakes the driver, which then does not wait.
fn connect(state: &Scoped) -> UnixStream {
    supervisor::connect_socket(&state.store().layout().plans()).unwrap()
}

#[test]
fn driver_notices_a_client_while_a_run_always_has_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let stub = "do = { stub = '' }";
    let tasks = (1..20).map(|id| format!("[task.t{id}]\n{stub}\nneeds = ['t{}']\n", id - 1));
    let chain = accept(&state, &format!("[task.t0]\n{stub}\n{}", tasks.collect::<String>()));
    let (_lock, epoch) = DriverLock::acquire(state.store(), 0).unwrap().unwrap();
    let mut driver = open(&state, epoch);
    driver.step().unwrap();
    assert!(!driver.inbox.is_empty(), "a stub of the chain has ended");
    let other = accept(&state, "[task.a]\ndo = { stub = '', delay = '1h' }");
    let _client = connect(&state);
    driver.step().unwrap();
    assert!(driver.runs.contains_key(&chain), "the chain has not ended");
    assert!(driver.runs.contains_key(&other));
}

#[test]
fn request_is_carried_out_when_it_is_announced_or_by_a_new_driver() {
    let dir = tempfile::tempdir().unwrap();
    let state = of_test(dir.path());
    let [one, other] =
        [(); 2].map(|()| accept(&state, "[task.a]\ndo = { stub = '', delay = '1h' }"));
    let (_lock, epoch) = DriverLock::acquire(state.store(), 0).unwrap().unwrap();
    let mut driver = open(&state, epoch);
    let cancel = |run: RunId| {
        let request = Request::Cancel { task: None, by: state.caller().principal.clone() };
        control::store_request(&state, run, &request).unwrap();
    };
    let step_and_round = |driver: &mut Driver<'_>| {
        let _client = connect(&state);
        driver.step().unwrap();
        for _ in 0..3 {
            driver.round().unwrap(); // the cancellation, and the end of the stub
        }
    };
    cancel(one);
    step_and_round(&mut driver);
    assert_eq!(driver.runs.keys().copied().collect::<Vec<_>>(), [other]);
    cancel(other);
    fs::remove_dir_all(state.store().layout().announced_requests()).unwrap();
    step_and_round(&mut driver);
    assert!(driver.runs.contains_key(&other), "the driver does not look at all runs");
    drop(driver);
    let mut driver = open(&state, epoch);
    for _ in 0..3 {
        driver.round().unwrap();
    }
    assert!(driver.runs.is_empty());
}
