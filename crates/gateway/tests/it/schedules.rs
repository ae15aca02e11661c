//! Schedules over the API.

use serde_json::{Value, json};

use crate::gateway::{TestGateway, problem};
use crate::runs::{team, wait_for};

const PLAN: &str = "[task.a]\ndo.stub = 1\n";

fn new() -> Value {
    json!({ "plan": PLAN, "cron": "0 3 * * *", "zone": "Europe/Berlin", "overlap": "queue" })
}

#[tokio::test]
async fn schedule_is_stored_with_versions_paused_started_and_removed() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let path = "/v1/schedules/nightly";
    let created = login.put(&server, path, &new(), &[]).await;
    assert_eq!((created.status, created.header("etag")), (201, Some("\"1\"")), "{created:?}");
    let created: Value = serde_json::from_str(&created.body).unwrap();
    assert_eq!((&created["state"], &created["overlap"]), (&json!("enabled"), &json!("queue")));
    assert_eq!(created["maker"], "person:https://id.example#ada");
    assert!(created["next"].is_string(), "{created}");
    problem(&login.put(&server, path, &new(), &[]).await, 428, "version-required");
    let stale = ["If-Match: \"7\""];
    problem(&login.put(&server, path, &new(), &stale).await, 412, "stale");
    problem(&login.put(&server, "/v1/schedules/other", &new(), &stale).await, 412, "stale");
    let mut changed = new();
    changed["cron"] = json!("0 4 * * *");
    let stored = login.put(&server, path, &changed, &["If-Match: \"1\""]).await;
    assert_eq!((stored.status, stored.header("etag")), (200, Some("\"2\"")), "{stored:?}");
    let one = login.get(&server, path).await;
    assert_eq!((&one["cron"], &one["plan"]), (&json!("0 4 * * *"), &json!(PLAN)));
    let act = async |act: &str| login.post(&server, &format!("{path}/{act}"), &json!({})).await;
    let run = act("run").await;
    assert_eq!(run.status, 201, "{run:?}");
    let run: Value = serde_json::from_str(&run.body).unwrap();
    assert_eq!(run["maker"], "person:https://id.example#ada");
    wait_for(&server, &login, run["id"].as_str().unwrap(), "succeeded").await;
    let paused: Value = serde_json::from_str(&act("pause").await.body).unwrap();
    assert_eq!((&paused["state"], &paused["next"]), (&json!("paused"), &Value::Null));
    let list = login.get(&server, "/v1/schedules?q=state:paused").await;
    assert_eq!(list["items"][0]["name"], "nightly");
    let resumed: Value = serde_json::from_str(&act("resume").await.body).unwrap();
    assert_eq!(resumed["state"], "enabled");
    problem(&login.delete(&server, path, &[]).await, 428, "version-required");
    problem(&login.delete(&server, path, &["If-Match: \"1\""]).await, 412, "stale");
    assert_eq!(login.delete(&server, path, &["If-Match: \"2\""]).await.status, 204);
    problem(&login.request(&server, "GET", path).await, 404, "not-found");
    problem(&login.delete(&server, path, &["If-Match: \"3\""]).await, 404, "not-found");
    let again = login.put(&server, path, &new(), &[]).await;
    assert_eq!((again.status, again.header("etag")), (201, Some("\"4\"")), "{again:?}");
}

#[tokio::test]
async fn invalid_schedule_is_refused_with_its_field() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    for (key, value, field) in [
        ("cron", json!("0 25 * * *"), "/cron"),
        ("zone", json!("Mars/Base"), "/zone"),
        ("missed", json!("twice"), "/missed"),
        ("overlap", json!("both"), "/overlap"),
        ("plan", json!("[task.a]\ndo.stub = 1\nneeds = ['b']\n"), "/plan"),
        ("other", json!(1), "/other"),
    ] {
        let mut wrong = new();
        wrong[key] = value;
        let refused = login.put(&server, "/v1/schedules/nightly", &wrong, &[]).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field, "{wrong}");
    }
    problem(&login.put(&server, "/v1/schedules/A%20b", &new(), &[]).await, 404, "not-found");
    assert_eq!(login.get(&server, "/v1/schedules").await["items"], json!([]));
}

#[tokio::test]
async fn schedules_of_the_tenant_local_are_those_of_its_file() {
    let lab = crate::gateway::lab();
    let plan = lab.write("plan.toml", PLAN);
    let section = format!("[schedule.leap]\nplan = '{}'\ncron = '0 0 29 2 *'\n", plan.display());
    lab.configure(&section);
    let server = TestGateway::on(lab, |_| ()).await;
    let login = server.login("local").await;
    let found = login.get(&server, "/v1/schedules/leap").await;
    assert_eq!((&found["maker"], &found["version"]), (&json!("user:1000"), &Value::Null));
    assert_eq!(found["file"], plan.display().to_string());
    for name in ["leap", "other"] {
        let refused = login.put(&server, &format!("/v1/schedules/{name}"), &new(), &[]).await;
        let refused = problem(&refused, 409, "wrong-state");
        assert!(refused["detail"].as_str().unwrap().contains("belljar.toml"), "{refused}");
    }
    problem(&login.delete(&server, "/v1/schedules/leap", &[]).await, 409, "wrong-state");
    let member = server.login_as("local", "person:https://id.example#ada", "member").await;
    assert_eq!(member.get(&server, "/v1/schedules").await["items"], json!([]));
    // A paused schedule needs no driver.
    let paused = login.post(&server, "/v1/schedules/leap/pause", &json!({})).await;
    assert!(paused.body.contains("\"paused\""), "{paused:?}");
}

#[tokio::test]
async fn f08_schedules_of_another_tenant_or_owner_are_unknown() {
    let server = TestGateway::start().await;
    let owner = team(&server).await;
    let local = server.login("local").await;
    let member = server.login_as("team-7", "person:https://id.example#bob", "member").await;
    assert_eq!(owner.put(&server, "/v1/schedules/nightly", &new(), &[]).await.status, 201);
    let path = "/v1/schedules/nightly";
    for login in [&local, &member] {
        assert_eq!(login.get(&server, "/v1/schedules").await["items"], json!([]));
        problem(&login.request(&server, "GET", path).await, 404, "not-found");
        problem(&login.delete(&server, path, &["If-Match: \"1\""]).await, 404, "not-found");
    }
    // The name belongs to its maker, so that nobody else gets the runs of the schedule.
    problem(&member.put(&server, path, &new(), &["If-Match: \"1\""]).await, 404, "not-found");
    assert_eq!(owner.delete(&server, path, &["If-Match: \"1\""]).await.status, 204);
    problem(&member.put(&server, path, &new(), &[]).await, 404, "not-found");
    assert_eq!(member.put(&server, "/v1/schedules/own", &new(), &[]).await.status, 201, "control");
}
