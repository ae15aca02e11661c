//! Runs of plans over the API, with real drivers and boxes.

use std::path::Path;

use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::submit::{self, SubmitKey};
use belljar_engine::runs::{control, plans};
use belljar_model::Caller;
use belljar_testkit::{Signal, eventually};
use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, open, problem, recorded};

/// A plan whose second task reads the output of the first one.
const CHAIN: &str = "[run]\nname = 'chain'\ninput.issue = { text = 'one', labels = ['untrusted'] }\n\
    [task.a]\ndo.stub = { severity = 'high' }\noutput.type = 'json'\ndata = ['input.issue']\n\
    [task.b]\ndo.command = ['cat']\ndata = ['a']\n";

/// A plan that waits for a person after its first task.
pub(crate) const GATE: &str = "[run]\nname = 'gate'\n[task.a]\ndo.stub = 'text'\n\
    [task.ask]\ndo = { approval = 'Go on?', deadline = '2h' }\ndata = ['a']\n";

/// A script that waits for a file in its inputs.
const WAIT: &str = "echo waiting >&2; until [ -e /run/task/in/go ]; do sleep 0.02; done";

/// Starts the run of a plan and returns its id.
pub(crate) async fn start(server: &TestGateway, login: &Login, plan: &str) -> String {
    let started = login.post(server, "/v1/runs", &json!({ "plan": plan })).await;
    assert_eq!(started.status, 201, "{started:?}");
    let run: Value = serde_json::from_str(&started.body).unwrap();
    let id = run["id"].as_str().unwrap().to_owned();
    assert_eq!(started.header("location"), Some(format!("/v1/runs/{id}").as_str()));
    id
}

/// Waits until a run has a state, and returns the run.
pub(crate) async fn wait_for(server: &TestGateway, login: &Login, run: &str, state: &str) -> Value {
    let deadline = std::time::Instant::now() + belljar_testkit::DEADLINE;
    loop {
        let found = login.get(server, &format!("/v1/runs/{run}?wait_ms=5000")).await;
        if found["state"] == state {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "the run is not {state}: {found:#}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

/// Creates the tenant `team-7`.
pub(crate) async fn team(server: &TestGateway) -> Login {
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    server.login("team-7").await
}

/// Logs a person of the tenant `local` in.
pub(crate) async fn person(server: &TestGateway, name: &str, role: &str) -> Login {
    server.login_as("local", &format!("person:https://id.example#{name}"), role).await
}

#[tokio::test]
async fn run_of_a_plan_is_started_described_listed_and_proved() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let run = start(&server, &login, CHAIN).await;
    let ended = wait_for(&server, &login, &run, "succeeded").await;
    assert_eq!((&ended["name"], &ended["kind"]), (&json!("chain"), &json!("plan")));
    assert_eq!(
        (&ended["maker"], &ended["tasks"]),
        (&json!("user:1000"), &json!({ "all": 2, "done": 2 }))
    );
    let tasks = &ended["plan"]["tasks"];
    assert_eq!((&tasks[0]["id"], &tasks[0]["executor"]), (&json!("a"), &json!("stub")));
    assert_eq!((&tasks[1]["state"], &tasks[1]["after"]), (&json!("done"), &json!(["a"])));
    assert_eq!(tasks[1]["labels"], json!(["untrusted"]), "{tasks}");
    let task = login.get(&server, &format!("/v1/runs/{run}/tasks/b")).await;
    let output: Value = serde_json::from_str(task["output"]["text"].as_str().unwrap()).unwrap();
    assert_eq!(output, json!({ "severity": "high" }));
    let path = format!("/v1/runs/{run}/tasks/c");
    problem(&login.request(&server, "GET", &path).await, 404, "not-found");
    let receipt = login.request(&server, "GET", &format!("/v1/runs/{run}/receipt")).await;
    assert_eq!((receipt.status, receipt.header("x-belljar-run-state")), (200, Some("ended")));
    let receipt: Value = serde_json::from_str(&receipt.body).unwrap();
    assert_eq!((&receipt["format"], &receipt["run"]), (&json!("belljar receipt 3"), &json!(run)));
    let other = start(&server, &login, GATE).await;
    wait_for(&server, &login, &other, "waiting").await;
    let receipt = login.request(&server, "GET", &format!("/v1/runs/{other}/receipt")).await;
    assert_eq!(receipt.header("x-belljar-run-state"), Some("open"));
    for (query, expect) in [
        ("", vec![&other, &run]),
        ("?q=state:succeeded", vec![&run]),
        ("?q=name:gate", vec![&other]),
        ("?q=by:user:1000%20kind:plan%20cha", vec![&run]),
        ("?q=schedule:nightly", vec![]),
        ("?q=kind:box", vec![]),
        (&format!("?q={}", &run), vec![&run]),
    ] {
        let list = login.get(&server, &format!("/v1/runs{query}")).await;
        assert_eq!(ids(&list), expect, "{query}");
    }
    let page = login.get(&server, "/v1/runs?limit=1").await;
    let next = format!("/v1/runs?limit=1&cursor={}", page["next"].as_str().unwrap());
    assert_eq!(ids(&login.get(&server, &next).await), [&run]);
    let acts = recorded(&server, "local", "access.changed");
    assert!(acts.iter().any(|act| act["act"] == "run.submitted"), "{acts:?}");
}

#[tokio::test]
async fn input_of_a_request_replaces_that_of_the_plan_and_keeps_its_labels() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let plan = "[run]\ninput.issue = { text = 'old', labels = ['untrusted'] }\n\
                [task.b]\ndo.command = ['cat']\ndata = ['input.issue']\n";
    let new = json!({ "plan": plan, "inputs": { "issue": "new" } });
    let started = login.post(&server, "/v1/runs", &new).await;
    let started: Value = serde_json::from_str(&started.body).unwrap();
    let run = started["id"].as_str().unwrap();
    wait_for(&server, &login, run, "succeeded").await;
    let task = login.get(&server, &format!("/v1/runs/{run}/tasks/b")).await;
    assert_eq!((&task["output"]["text"], &task["labels"]), (&json!("new"), &json!(["untrusted"])));
    let unknown = json!({ "plan": plan, "inputs": { "other": "new" } });
    let refused = login.post(&server, "/v1/runs", &unknown).await;
    assert_eq!(problem(&refused, 400, "invalid")["field"], "/inputs/other");
}

#[tokio::test]
async fn invalid_plan_is_refused_with_field_and_line_and_its_check_lists_the_findings() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let invalid = "[task.a]\ndo.stub = 1\nneeds = ['b']\n[task.c]\ndo.stub = 1\nneds = ['a']\n";
    let refused = login.post(&server, "/v1/runs", &json!({ "plan": invalid })).await;
    let refused = problem(&refused, 400, "invalid");
    assert_eq!((&refused["field"], &refused["line"]), (&json!("/plan"), &json!(6)), "{refused}");
    let unknown_task = "[task.a]\ndo.stub = 1\nneeds = ['b']\n";
    let check = |plan: &str| json!({ "plan": plan });
    let report = login.post(&server, "/v1/plans/check", &check(unknown_task)).await;
    assert_eq!(report.status, 200, "{report:?}");
    let report: Value = serde_json::from_str(&report.body).unwrap();
    assert_eq!((&report["valid"], &report["findings"][0]["line"]), (&json!(false), &json!(3)));
    let syntax = login.post(&server, "/v1/plans/check", &check("[task.a\n")).await;
    assert_eq!(problem(&syntax, 400, "invalid")["line"], 1);
    let valid = login.post(&server, "/v1/plans/check", &check(GATE)).await;
    let valid: Value = serde_json::from_str(&valid.body).unwrap();
    assert_eq!((&valid["valid"], &valid["plan"]["tasks"]), (&json!(true), &json!(2)), "{valid}");
    let json = json!({ "task": { "a": { "do": { "stub": 1 } } } }).to_string();
    let valid = login.post(&server, "/v1/plans/check", &check(&json)).await;
    assert!(valid.body.contains("\"valid\":true"), "control: a plan in JSON {valid:?}");
    assert_eq!(login.get(&server, "/v1/runs").await["items"], json!([]), "nothing was started");
}

#[tokio::test]
async fn repeated_submission_with_a_key_starts_one_run_also_when_the_command_line_had_the_key() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let with_key = async |key: &str, plan: &str| -> TestResponse {
        let mut headers = login.headers().to_vec();
        headers.push(format!("Idempotency-Key: {key}"));
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        server.post_to(&login.host, "/v1/runs", &json!({ "plan": plan }), &headers).await
    };
    let first = with_key("one", GATE).await;
    let again = with_key("one", GATE).await;
    assert_eq!((first.status, &first.body), (again.status, &again.body), "{first:?}");
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    problem(&with_key("one", CHAIN).await, 409, "key-reused");
    let state = open(&server.lab).1;
    let (config, _) = state.load_config(None).unwrap();
    let ceiling = plans::ceiling(state.host(), &config).unwrap();
    let plan = plans::check(GATE, "plan", &ceiling).unwrap();
    let key = SubmitKey::new("two").unwrap();
    let typed = submit::accept(&state, &plan, Path::new("/"), Some(&key)).unwrap();
    let sent = with_key("two", GATE).await;
    assert_eq!(sent.status, 201, "{sent:?}");
    assert!(sent.body.contains(&typed.to_string()), "{sent:?}");
    assert_eq!(ids(&login.get(&server, "/v1/runs").await).len(), 2);
}

#[tokio::test]
async fn run_is_cancelled_and_a_part_of_it_is_repeated() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let run = start(&server, &login, GATE).await;
    wait_for(&server, &login, &run, "waiting").await;
    let act = |act: &str| format!("/v1/runs/{run}/{act}");
    let early = login.post(&server, &act("rerun"), &json!({ "from": "ask" })).await;
    problem(&early, 409, "wrong-state");
    let unknown = login.post(&server, &act("cancel"), &json!({ "task": "x" })).await;
    problem(&unknown, 404, "not-found");
    let resumed = login.post(&server, &act("resume"), &json!({})).await;
    assert_eq!(resumed.status, 200, "{resumed:?}");
    assert_eq!(login.post(&server, &act("cancel"), &json!({})).await.status, 200);
    wait_for(&server, &login, &run, "cancelled").await;
    problem(&login.post(&server, &act("cancel"), &json!({})).await, 409, "wrong-state");
    let repeated = login.post(&server, &act("rerun"), &json!({ "from": "ask" })).await;
    assert_eq!(repeated.status, 201, "{repeated:?}");
    let repeated: Value = serde_json::from_str(&repeated.body).unwrap();
    assert_eq!(repeated["reused"], json!(["a"]));
    let again = repeated["id"].as_str().unwrap();
    wait_for(&server, &login, again, "waiting").await;
    let unknown = login.post(&server, &act("rerun"), &json!({ "from": "x" })).await;
    problem(&unknown, 404, "not-found");
}

#[tokio::test]
async fn f08_runs_of_another_tenant_or_owner_are_unknown() {
    let server = TestGateway::start().await;
    let (local, team) = (server.login("local").await, team(&server).await);
    let (ada, bob) =
        (person(&server, "ada", "member").await, person(&server, "bob", "member").await);
    let run = start(&server, &ada, GATE).await;
    wait_for(&server, &ada, &run, "waiting").await;
    for (who, login) in [("another tenant", &team), ("another member", &bob)] {
        assert_eq!(ids(&login.get(&server, "/v1/runs").await), [""; 0], "{who}");
        assert_eq!(login.get(&server, "/v1/approvals").await["items"], json!([]), "{who}");
        for path in ["", "/tasks/ask", "/receipt"] {
            let path = format!("/v1/runs/{run}{path}");
            problem(&login.request(&server, "GET", &path).await, 404, "not-found");
        }
        for (act, body) in [
            ("cancel", json!({})),
            ("rerun", json!({ "from": "ask" })),
            ("tasks/ask/settle", json!({ "how": "failed" })),
        ] {
            let path = format!("/v1/runs/{run}/{act}");
            problem(&login.post(&server, &path, &body).await, 404, "not-found");
        }
    }
    for login in [&ada, &local] {
        assert_eq!(ids(&login.get(&server, "/v1/runs").await), [&run], "control");
    }
    let auditor = person(&server, "eve", "auditor").await;
    let task = auditor.get(&server, &format!("/v1/runs/{run}/tasks/a")).await;
    assert_eq!((&task["state"], &task["output"]), (&json!("done"), &Value::Null), "no contents");
    let own = ada.get(&server, &format!("/v1/runs/{run}/tasks/a")).await;
    assert_eq!(own["output"]["text"], "text", "control");
    let path = format!("/v1/runs/{run}/receipt?bodies=true");
    problem(&auditor.request(&server, "GET", &path).await, 403, "forbidden");
    problem(&auditor.post(&server, "/v1/runs", &json!({ "plan": GATE })).await, 403, "forbidden");
}

#[tokio::test]
async fn f11_plan_of_a_token_names_no_path_of_the_host() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let token = login.token(&server, &["runs:read", "runs:write"]).await;
    let token = format!("Authorization: Bearer {token}");
    let (dir, file) = (server.lab.workspace(), server.lab.write("secret", "text"));
    let workspace =
        format!("[task.a]\ndo = {{ command = ['true'], workspace = '{}' }}\n", dir.display());
    let input = format!(
        "[run]\ninput.x = {{ file = '{}' }}\n[task.a]\ndo.command = ['true']\ndata = ['input.x']\n",
        file.display()
    );
    for plan in [&workspace, &input] {
        let body = json!({ "plan": plan });
        let refused = server.post_to(&server.host(), "/v1/runs", &body, &[&token]).await;
        let refused = problem(&refused, 403, "forbidden");
        assert_eq!(refused["field"], "/plan", "{refused}");
        let report = server.post_to(&server.host(), "/v1/plans/check", &body, &[&token]).await;
        assert!(report.body.contains("\"valid\":false"), "{report:?}");
        let run = start(&server, &login, plan).await;
        wait_for(&server, &login, &run, "succeeded").await; // control
    }
    let relative = json!({ "plan": "[task.a]\ndo = { command = ['true'], workspace = 'x' }\n" });
    let refused = login.post(&server, "/v1/runs", &relative).await;
    assert_eq!(problem(&refused, 400, "invalid")["line"], 2);
    let plain = json!({ "plan": "[task.a]\ndo.stub = 1\n" });
    let started = server.post_to(&server.host(), "/v1/runs", &plain, &[&token]).await;
    assert_eq!(started.status, 201, "control {started:?}");
}

/// Returns the processes that have a file of the state directory open.
fn holders(server: &TestGateway, file: &str) -> Vec<i32> {
    let file = server.lab.state().join(file);
    let has_open = |pid: &i32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| path == file)
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_open).collect()
}

/// Kills the process that has a file of the state directory open, and returns its id.
fn kill_holder(server: &TestGateway, file: &str) -> i32 {
    let mut found = Vec::new();
    // A second driver exits once it has seen the first one.
    eventually("one process has the file open", || {
        found = holders(server, file);
        found.len() == 1
    });
    let [pid] = found.as_slice() else { panic!("one process has {file:?} open: {found:?}") };
    rustix::process::kill_process(rustix::process::Pid::from_raw(*pid).unwrap(), Signal::KILL)
        .unwrap();
    eventually("the killed process is gone", || !holders(server, file).contains(pid));
    *pid
}

/// Waits until the program of a task has written a line. Returns the run of its box.
async fn wait_for_program(server: &TestGateway, login: &Login, run: &str, task: &str) -> String {
    let deadline = std::time::Instant::now() + belljar_testkit::DEADLINE;
    loop {
        let found = login.get(server, &format!("/v1/runs/{run}/tasks/{task}")).await;
        if found["lines"] == json!(["waiting"]) {
            return found["box_run"].as_str().unwrap().to_owned();
        }
        assert!(std::time::Instant::now() < deadline, "the program does not wait: {found:#}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn lost_attempt_is_settled_once_and_by_people_only() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let token = login.token(&server, &["runs:read", "runs:write"]).await;
    let plan = format!("[task.push]\ndo.command = ['sh', '-c', '{WAIT}']\non_crash = 'ask'\n");
    let run = start(&server, &login, &plan).await;
    let box_run = wait_for_program(&server, &login, &run, "push").await;
    kill_holder(&server, &format!("runs/{box_run}/lock"));
    let lost = wait_for(&server, &login, &run, "attention").await;
    assert_eq!(lost["plan"]["tasks"][0]["lost"], 1, "{lost:#}");
    let path = format!("/v1/runs/{run}/tasks/push/settle");
    let done = json!({ "how": "done", "output": "given", "reason": "it was pushed" });
    let token = format!("Authorization: Bearer {token}");
    let refused = server.post_to(&server.host(), &path, &done, &[&token]).await;
    problem(&refused, 403, "forbidden");
    for (body, field) in
        [(json!({ "how": "maybe" }), "/how"), (json!({ "how": "done" }), "/output")]
    {
        let refused = login.post(&server, &path, &body).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field);
    }
    let settled = login.post(&server, &path, &done).await;
    assert_eq!(settled.status, 200, "{settled:?}");
    wait_for(&server, &login, &run, "succeeded").await;
    let task = login.get(&server, &format!("/v1/runs/{run}/tasks/push")).await;
    assert_eq!((&task["output"]["text"], &task["by"]), (&json!("given"), &json!("user:1000")));
    problem(&login.post(&server, &path, &done).await, 409, "wrong-state");
}

#[tokio::test]
async fn killed_driver_is_started_again_by_the_server() {
    let server = TestGateway::with(|options| {
        options.limits.drivers = std::time::Duration::from_millis(20);
    })
    .await;
    let login = server.login("local").await;
    let run = start(&server, &login, GATE).await;
    wait_for(&server, &login, &run, "waiting").await;
    let killed = kill_holder(&server, "driver.lock");
    until("another driver runs", || {
        holders(&server, "driver.lock").iter().any(|pid| *pid != killed)
    })
    .await;
    // A driver without work exits, and the server starts no other one.
    let state = open(&server.lab).1;
    control::cancel(&state, run.parse().unwrap(), None).unwrap();
    wait_for(&server, &login, &run, "cancelled").await;
    until("the driver exits", || !DriverLock::is_held(state.store())).await;
}

/// Waits for a condition while the server runs on the same thread.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + belljar_testkit::DEADLINE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "condition does not hold: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn run_continues_when_the_server_is_killed_and_the_next_server_drives_it() {
    let server = TestGateway::mortal().await;
    let login = server.login("local").await;
    let plan = format!("[task.a]\ndo.command = ['sh', '-c', '{WAIT}; echo done']\n");
    let run = start(&server, &login, &plan).await;
    let box_run = wait_for_program(&server, &login, &run, "a").await;
    let server = server.killed().await;
    kill_holder(&server, "driver.lock");
    let go = server.lab.state().join(format!("plans/{run}/work/{box_run}/go"));
    std::fs::write(&go, "").unwrap();
    let ended = wait_for(&server, &login, &run, "succeeded").await;
    assert_eq!(ended["plan"]["tasks"][0]["attempt"], 1, "the box was adopted: {ended:#}");
}

#[tokio::test]
async fn run_of_a_schedule_belongs_to_the_maker_of_the_schedule() {
    let server = TestGateway::start().await;
    team(&server).await;
    let of = |name: &str| format!("person:https://id.example#{name}");
    let ada = server.login_as("team-7", &of("ada-7"), "member").await;
    let bob = server.login_as("team-7", &of("bob-7"), "member").await;
    let new = json!({ "plan": GATE, "cron": "0 0 29 2 *" });
    assert_eq!(ada.put(&server, "/v1/schedules/leap", &new, &[]).await.status, 201);
    // As the driver does at a slot.
    let principal = "schedule:leap".parse().unwrap();
    let caller = Caller { principal, tenant: "team-7".parse().unwrap(), ..Caller::local(1000) };
    let state = server.engine.of(&caller).unwrap();
    let (config, _) = state.load_config(None).unwrap();
    let ceiling = plans::ceiling_of(state.host(), &config, &caller.tenant).unwrap();
    let plan = plans::check(GATE, "plan", &ceiling).unwrap();
    let run = submit::submit(&state, &plan, Path::new("/"), None).unwrap().to_string();
    wait_for(&server, &ada, &run, "waiting").await;
    assert_eq!(ids(&ada.get(&server, "/v1/runs?q=schedule:leap").await), [&run]);
    let approvals = ada.get(&server, "/v1/approvals").await;
    assert_eq!(approvals["items"][0]["run"], json!(run));
    assert_eq!(ids(&bob.get(&server, "/v1/runs").await), [""; 0], "control");
    assert_eq!(bob.get(&server, "/v1/approvals").await["items"], json!([]), "control");
}
