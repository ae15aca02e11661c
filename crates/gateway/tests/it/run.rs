//! Single runs over the API: a command in a new box, and its result.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_testkit::Lab;
use serde_json::{Value, json};

use crate::gateway::{Login, TestGateway, problem, recorded};

/// The maximum number of bytes of output in a response.
const MAX: usize = 1024 * 1024;

/// Runs a command to its end and returns the result.
async fn run(server: &TestGateway, login: &Login, new: &Value) -> Value {
    let response = login.post(server, "/v1/run", new).await;
    assert_eq!(response.status, 200, "{new}: {response:?}");
    serde_json::from_str(&response.body).unwrap()
}

fn shell(script: &str) -> Value {
    json!({ "command": ["sh", "-c", script] })
}

/// Configures a template with a directory of the host, and returns the directory with a command that runs until
/// the file `go` exists in it.
fn waiting(lab: &Lab) -> (Value, PathBuf) {
    let dir = lab.home().join("watched");
    fs::create_dir_all(&dir).unwrap();
    lab.configure(&format!("[template.watching]\nmounts = ['{}:/watched:rw']\n", dir.display()));
    let script = "echo begun; until [ -e /watched/go ]; do sleep 0.02; done; echo over; exit 5";
    (with(shell(script), "template", json!("watching")), dir)
}

fn with(mut new: Value, field: &str, value: Value) -> Value {
    new[field] = value;
    new
}

/// Starts a run without waiting for its end, and returns the path of its result.
async fn start(server: &TestGateway, login: &Login, new: Value) -> String {
    let response = login.post(server, "/v1/run", &with(new, "wait_ms", json!(0))).await;
    assert_eq!(response.status, 202, "{response:?}");
    let body: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(body, json!({ "run": body["run"], "state": "running" }));
    let path = response.header("location").unwrap();
    assert_eq!(path, format!("/v1/runs/{}/result", body["run"].as_str().unwrap()));
    path.to_owned()
}

/// Waits for the result of a run.
async fn result(server: &TestGateway, login: &Login, path: &str) -> Value {
    loop {
        let response = login.request(server, "GET", path).await;
        let body: Value = serde_json::from_str(&response.body).unwrap();
        match response.status {
            200 => return body,
            202 => assert_eq!(body["state"], "running", "{body}"),
            429 => {} // a client that asks too often is refused for a moment
            _ => panic!("{response:?}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn run_returns_how_its_program_ended_and_its_output() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    for (script, exit, signal, reason) in [
        ("true", json!(0), Value::Null, "exited"),
        ("exit 3", json!(3), Value::Null, "exited"),
        ("kill -9 $$", Value::Null, json!(9), "signaled"),
    ] {
        let ended = run(&server, &login, &shell(script)).await;
        assert_eq!(ended["state"], "ended", "{ended}");
        let end = &ended["end"];
        assert_eq!((&end["exit"], &end["signal"]), (&exit, &signal), "{ended}");
        assert_eq!(end["reason"], reason, "{ended}");
        assert!(end["duration"].is_u64(), "{ended}");
    }
    let missing = run(&server, &login, &json!({ "command": ["no-such-program"] })).await;
    assert_eq!(missing["end"]["reason"], "not_found", "{missing}");
    let new = json!({
        "command": ["sh", "-c", "cat; echo \"$A\"; printf '\\377' >&2"],
        "stdin": "hello\n", "env": { "A": "bé" },
    });
    let ended = run(&server, &login, &new).await;
    let text = "hello\nbé\n";
    let length = text.len();
    let stdout = json!({ "text": text, "length": length, "written": length, "truncated": false });
    assert_eq!(ended["stdout"], stdout);
    let stderr = json!({ "base64": "/w==", "length": 1, "written": 1, "truncated": false });
    assert_eq!(ended["stderr"], stderr);
    let path = format!("/v1/runs/{}/result", ended["run"].as_str().unwrap());
    assert_eq!(login.get(&server, &path).await, ended, "the result is kept");
    let started = recorded(&server, "local", "access.changed");
    let of_run = |it: &&Value| it["act"] == "run.started" && it["subject"] == ended["run"];
    assert_eq!(started.iter().filter(of_run).count(), 1, "{started:?}");
}

#[tokio::test]
async fn run_that_exceeds_a_limit_ends_with_the_limit_as_the_reason() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let new = with(shell("echo begun; sleep 600"), "limits", json!({ "timeout": 500 }));
    let ended = run(&server, &login, &new).await;
    assert_eq!(ended["end"]["reason"], "timeout", "{ended}");
    assert_eq!(ended["stdout"]["text"], "begun\n", "{ended}");
    let limits = json!({ "timeout": 60_000, "memory": 1 << 28 });
    let ended = run(&server, &login, &with(shell("ulimit -t"), "limits", limits)).await;
    assert_eq!(ended["end"]["reason"], "exited", "control {ended}");
}

#[tokio::test]
async fn invalid_run_is_refused_with_its_field_and_starts_nothing() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let of = |field: &str, value: Value| with(shell("true"), field, value);
    for (new, status, kind, field) in [
        (json!({}), 400, "invalid", json!("")),
        (json!({ "command": [] }), 400, "invalid", json!("/command")),
        (json!({ "command": ["a\u{0}"] }), 400, "invalid", json!("/command")),
        (of("wait_ms", json!(300_001)), 400, "invalid", json!("/wait_ms")),
        (of("wait_ms", json!(-1)), 400, "invalid", json!("/wait_ms")),
        (of("env", json!({ "A=B": "" })), 400, "invalid", json!("/env/A=B")),
        (of("limits", json!({ "memory": 0 })), 400, "invalid", json!("/limits/memory")),
        (of("network", json!({ "mode": "all" })), 400, "invalid", json!("/network/mode")),
        (of("mounts", json!([])), 400, "invalid", json!("/mounts")),
        (of("workspace", json!({ "clone": {} })), 400, "invalid", json!("/workspace")),
        (of("template", json!("none")), 409, "wrong-state", json!("/template")),
        (of("workspace", json!({ "directory": "/no/such" })), 409, "wrong-state", Value::Null),
    ] {
        let refused = login.post(&server, "/v1/run", &new).await;
        let problem = problem(&refused, status, kind);
        if field != "" {
            assert_eq!(problem["field"], field, "{new} {problem}");
        }
    }
    run(&server, &login, &shell("true")).await; // control
    assert_eq!(recorded(&server, "local", "run.created").len(), 1);
}

#[tokio::test]
async fn run_with_a_workspace_reports_its_changes_which_wait_for_a_review() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let dir = server.lab.home().join("project");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("a"), "old").unwrap();
    let new = with(shell("echo new > a; echo new > b"), "workspace", json!({ "directory": dir }));
    let ended = run(&server, &login, &new).await;
    assert_eq!(ended["changed_files"], 2, "{ended}");
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "old");
}

#[tokio::test]
async fn run_that_takes_longer_than_the_request_waits_is_accepted_and_its_result_is_fetched_later()
{
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let (new, dir) = waiting(&server.lab);
    let path = start(&server, &login, new).await;
    assert_eq!(login.request(&server, "GET", &path).await.status, 202);
    let output = path.replace("/result", "/output");
    let mut begun = login.request(&server, "GET", &output).await;
    while begun.body.is_empty() || begun.status == 429 {
        begun = login.request(&server, "GET", &output).await;
    }
    assert_eq!(begun.body, "begun\n", "the output of a running program");
    fs::write(dir.join("go"), "").unwrap();
    let ended = result(&server, &login, &path).await;
    assert_eq!(
        (&ended["end"]["exit"], &ended["stdout"]["text"]),
        (&json!(5), &json!("begun\nover\n"))
    );
}

#[tokio::test]
async fn run_continues_when_the_server_is_killed_and_its_result_is_found_afterwards() {
    let server = TestGateway::mortal().await;
    let login = server.login("local").await;
    let (new, dir) = waiting(&server.lab);
    let first = start(&server, &login, new.clone()).await;
    let second = start(&server, &login, new).await;
    let server = server.killed().await;
    assert_eq!(login.request(&server, "GET", &first).await.status, 202);
    fs::write(dir.join("go"), "").unwrap();
    for path in [&first, &second] {
        let ended = result(&server, &login, path).await;
        assert_eq!(ended["end"]["exit"], 5, "{ended}");
        assert_eq!(ended["stdout"]["text"], "begun\nover\n", "{ended}");
    }
    let server = server.killed().await;
    assert_eq!(login.request(&server, "GET", &second).await.status, 200, "also after the end");
}

#[tokio::test]
async fn output_above_1_mib_is_truncated_in_the_result_and_complete_by_its_route() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let script = "seq 1 300000; echo short >&2; head -c 20000000 /dev/zero >&2";
    let ended = run(&server, &login, &shell(script)).await;
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    let (stdout, stderr) = (&ended["stdout"], &ended["stderr"]);
    let (text, bytes) = (stdout["text"].as_str().unwrap(), stderr["base64"].as_str().unwrap());
    let bytes = STANDARD.decode(bytes).unwrap();
    assert_eq!(text.len() + bytes.len(), MAX);
    assert_eq!(text, &expected[..text.len()]);
    assert!(bytes.starts_with(b"short\n\0"));
    for (view, length, written) in
        [(stdout, text.len(), expected.len()), (stderr, bytes.len(), 20_000_006)]
    {
        assert_eq!((&view["length"], &view["written"]), (&json!(length), &json!(written)));
        assert_eq!(view["truncated"], true);
    }
    let path = format!("/v1/runs/{}/output", ended["run"].as_str().unwrap());
    let mut rest = text.to_owned();
    while rest.len() < expected.len() {
        let part = format!("{path}?stream=stdout&from={}", rest.len());
        let part = login.request(&server, "GET", &part).await;
        assert_eq!(part.header("content-type"), Some("application/octet-stream"));
        assert_eq!(part.header("content-disposition"), Some("attachment"));
        assert!((1..=MAX).contains(&part.body.len()), "{}", part.body.len());
        rest.push_str(&part.body);
        assert_eq!(part.header("x-belljar-next"), Some(rest.len().to_string().as_str()));
    }
    assert_eq!(rest, expected);
    // The first 16 MiB of a stream are kept.
    let kept = 16 << 20;
    let end =
        login.request(&server, "GET", &format!("{path}?stream=stderr&from={}", kept - 3)).await;
    assert_eq!((end.status, end.body.as_str()), (200, "\0\0\0"));
    let end =
        login.request(&server, "GET", &format!("{path}?stream=stderr&from={}", kept + 9)).await;
    assert_eq!((end.status, end.body.as_str()), (200, ""));
    assert_eq!(end.header("x-belljar-next"), Some(kept.to_string().as_str()));
    for query in ["stream=stdin", "from=-1", "from=x", "to=1"] {
        let refused = login.request(&server, "GET", &format!("{path}?{query}")).await;
        problem(&refused, 400, "invalid");
    }
}

#[tokio::test]
async fn repeated_run_with_the_same_key_runs_once() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let mut headers = login.headers().to_vec();
    headers.push("Idempotency-Key: once".to_owned());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let new = shell("head -c 1000000 /dev/zero; exit 2");
    let first = server.post_to(&login.host, "/v1/run", &new, &headers).await;
    let second = server.post_to(&login.host, "/v1/run", &new, &headers).await;
    assert_eq!((first.status, second.status), (200, 200), "{second:?}");
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(recorded(&server, "local", "run.created").len(), 1);
    let other = server.post_to(&login.host, "/v1/run", &shell("true"), &headers).await;
    problem(&other, 409, "key-reused");
}

#[tokio::test]
async fn f11_token_cannot_run_with_more_than_the_template_or_in_a_directory_of_the_host() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let token = login.token(&server, &["runs:write"]).await;
    let token = format!("Authorization: Bearer {token}");
    let dir = tempfile::tempdir().unwrap();
    let wide = json!({ "mode": "restricted", "allow": ["example.com"] });
    let directory = json!({ "directory": dir.path() });
    for (field, value, name) in [("network", wide, "/net"), ("workspace", directory, "/workspace")]
    {
        let new = with(shell("true"), field, value);
        let refused = server.post_to(&server.host(), "/v1/run", &new, &[&token]).await;
        assert_eq!(problem(&refused, 403, "forbidden")["field"], name);
        run(&server, &login, &new).await; // control
    }
    let ended = server.post_to(&server.host(), "/v1/run", &shell("exit 1"), &[&token]).await;
    assert_eq!(ended.status, 200, "control {ended:?}");
}

#[tokio::test]
async fn f08_run_of_another_tenant_or_principal_is_unknown() {
    let server = TestGateway::start().await;
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    let (local, team) = (server.login("local").await, server.login("team-7").await);
    let member = server.login_as("local", "person:https://id.example#m", "member").await;
    let auditor = server.login_as("local", "person:https://id.example#a", "auditor").await;
    let ended = run(&server, &local, &shell("echo canary")).await;
    let id = ended["run"].as_str().unwrap();
    for part in ["result", "output"] {
        let path = format!("/v1/runs/{id}/{part}");
        for login in [&team, &member] {
            problem(&login.request(&server, "GET", &path).await, 404, "not-found");
        }
        problem(&auditor.request(&server, "GET", &path).await, 403, "forbidden");
        assert_eq!(local.request(&server, "GET", &path).await.status, 200, "control");
    }
    problem(&auditor.post(&server, "/v1/run", &shell("true")).await, 403, "forbidden");
    let own = run(&server, &team, &shell("echo own")).await;
    let path = format!("/v1/runs/{}/result", own["run"].as_str().unwrap());
    assert_eq!(team.get(&server, &path).await, own, "control");
    problem(&local.request(&server, "GET", &path).await, 404, "not-found");
    for unknown in ["0000000000000000", "x"] {
        let path = format!("/v1/runs/{unknown}/result");
        problem(&local.request(&server, "GET", &path).await, 404, "not-found");
    }
}
