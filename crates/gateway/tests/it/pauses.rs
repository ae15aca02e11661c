//! Boxes that are paused and resumed over the API.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::{Login, TestGateway, problem, recorded};

/// Starts a box that writes a line to its log again and again.
async fn ticking_box(server: &TestGateway, login: &Login, name: &str) {
    let program = ["sh", "-c", "while :; do echo tick; sleep 0.02; done"];
    let new = json!({ "name": name, "program": program, "terminal": false });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
}

/// Sends a request that changes a box, and returns the new state of the box.
async fn change(server: &TestGateway, login: &Login, path: &str) -> Value {
    let response = login.post(server, path, &json!({})).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    serde_json::from_str::<Value>(&response.body).unwrap()["state"].clone()
}

async fn state(server: &TestGateway, login: &Login, name: &str) -> Value {
    login.get(server, &format!("/v1/boxes/{name}")).await["state"].clone()
}

/// Returns the length of the log of a box.
async fn log_length(server: &TestGateway, login: &Login, name: &str) -> usize {
    let log = login.request(server, "GET", &format!("/v1/boxes/{name}/log")).await;
    assert_eq!(log.status, 200, "{log:?}");
    log.body.len()
}

/// Waits until a running box has written twenty lines.
async fn wait_for_ticks(server: &TestGateway, login: &Login, name: &str) {
    let before = log_length(server, login, name).await;
    while log_length(server, login, name).await < before + 100 {
        // Stay below the rate of the server.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn paused_box_stands_still_until_it_is_resumed_also_if_the_server_is_killed() {
    let server = TestGateway::mortal().await;
    let login = server.login("local").await;
    ticking_box(&server, &login, "held").await;
    ticking_box(&server, &login, "other").await;
    wait_for_ticks(&server, &login, "held").await;
    assert_eq!(change(&server, &login, "/v1/boxes/held/pause").await, "paused");
    assert_eq!(change(&server, &login, "/v1/boxes/held/pause").await, "paused");
    let before = log_length(&server, &login, "held").await;
    let server = server.killed().await;
    wait_for_ticks(&server, &login, "other").await; // control: a box that is not paused
    assert_eq!(log_length(&server, &login, "held").await, before);
    assert_eq!(state(&server, &login, "held").await, "paused");
    assert_eq!(state(&server, &login, "other").await, "running");
    let listed = login.get(&server, "/v1/boxes?q=state:paused").await;
    assert_eq!(listed["items"][0]["name"], "held", "{listed}");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(change(&server, &login, "/v1/boxes/held/resume").await, "running");
    assert_eq!(change(&server, &login, "/v1/boxes/held/resume").await, "running");
    wait_for_ticks(&server, &login, "held").await;
    let acts = recorded(&server, "local", "access.changed");
    for act in ["box.paused", "box.resumed"] {
        let is_of_box = |it: &&Value| it["act"] == act && it["subject"] == "held";
        assert_eq!(acts.iter().filter(is_of_box).count(), 2, "{acts:?}");
    }
}

#[tokio::test]
async fn paused_box_can_be_started_copied_stopped_and_removed() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    ticking_box(&server, &login, "job").await;
    change(&server, &login, "/v1/boxes/job/pause").await;
    let tag = json!({ "tag": "one" });
    let copied = login.post(&server, "/v1/boxes/job/snapshot", &tag).await;
    assert_eq!(copied.status, 200, "{copied:?}");
    assert_eq!(state(&server, &login, "job").await, "paused", "a snapshot does not resume it");
    assert_eq!(change(&server, &login, "/v1/boxes/job/start").await, "running");
    wait_for_ticks(&server, &login, "job").await;
    change(&server, &login, "/v1/boxes/job/pause").await;
    assert_eq!(change(&server, &login, "/v1/boxes/job/stop").await, "stopped");
    let stopped = login.get(&server, "/v1/boxes/job").await;
    assert_eq!(stopped["run"]["end"]["reason"], "interrupted", "{stopped}");
    for path in ["/v1/boxes/job/pause", "/v1/boxes/job/resume"] {
        let refused = login.post(&server, path, &json!({})).await;
        problem(&refused, 409, "wrong-state");
    }
    assert_eq!(change(&server, &login, "/v1/boxes/job/start").await, "running");
    change(&server, &login, "/v1/boxes/job/pause").await;
    let removed = login.delete(&server, "/v1/boxes/job?discard_work=true", &[]).await;
    assert_eq!(removed.status, 204, "{removed:?}");
    problem(&login.request(&server, "GET", "/v1/boxes/job").await, 404, "not-found");
}

#[tokio::test]
async fn paused_box_is_killed_at_its_timeout() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let new = json!({
        "name": "job", "program": ["sleep", "600"], "limits": { "timeout": 1500 },
    });
    assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201);
    change(&server, &login, "/v1/boxes/job/pause").await;
    while state(&server, &login, "job").await != "stopped" {
        tokio::task::yield_now().await;
    }
    let stopped = login.get(&server, "/v1/boxes/job").await;
    assert_eq!(stopped["run"]["end"]["reason"], "timeout", "{stopped}");
}

#[tokio::test]
async fn f08_box_of_another_tenant_cannot_be_paused_or_resumed() {
    let server = TestGateway::start().await;
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    let (local, team) = (server.login("local").await, server.login("team-7").await);
    ticking_box(&server, &local, "mine").await;
    for path in ["/v1/boxes/mine/pause", "/v1/boxes/mine/resume"] {
        problem(&team.post(&server, path, &json!({})).await, 404, "not-found");
    }
    assert_eq!(state(&server, &local, "mine").await, "running");
    assert_eq!(change(&server, &local, "/v1/boxes/mine/pause").await, "paused", "control");
}
