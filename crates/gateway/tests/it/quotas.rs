//! Quotas of tenants and of their principals: boxes that run at once.

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem};

const TEMPLATE: &str = "[template.small]\nmemory = \"64MiB\"\n";

fn new(name: &str) -> Value {
    json!({ "name": name, "template": "small", "program": ["sleep", "600"] })
}

async fn create(server: &TestGateway, login: &Login, name: &str) -> TestResponse {
    login.post(server, "/v1/boxes", &new(name)).await
}

#[tokio::test]
async fn f14_tenant_and_principal_start_at_most_their_quota_of_boxes() {
    let quota = format!("[serve]\nquota = {{ boxes = 2, boxes-per-principal = 1 }}\n{TEMPLATE}");
    let server = TestGateway::configured(&quota).await;
    let people = [
        server.login("local").await,
        server.login_as("local", "person:https://id.example#bob", "member").await,
        server.login_as("local", "person:https://id.example#cyd", "member").await,
    ];
    assert_eq!(create(&server, &people[0], "a").await.status, 201);
    let again = create(&server, &people[0], "a2").await;
    let refused = problem(&again, 429, "limit-reached");
    assert!(refused["detail"].as_str().unwrap().contains("1 are permitted"), "{refused}");
    assert!(again.header("retry-after").is_some(), "{again:?}");
    assert_eq!(create(&server, &people[1], "b").await.status, 201, "control: another principal");
    let third = create(&server, &people[2], "c").await;
    let refused = problem(&third, 429, "limit-reached");
    assert!(refused["detail"].as_str().unwrap().contains("the tenant has 2"), "{refused}");
    let budgets = people[1].get(&server, "/v1/me").await["budgets"].clone();
    assert_eq!(budgets["boxes"], json!({ "used": 1, "max": 1 }));
    assert_eq!(budgets["tenant_boxes"], json!({ "used": 2, "max": 2 }));
    // A paused box keeps its place, and can be resumed.
    let pause = people[1].post(&server, "/v1/boxes/b/pause", &json!({})).await;
    assert_eq!(pause.status, 200, "{pause:?}");
    problem(&create(&server, &people[2], "c").await, 429, "limit-reached");
    let start = people[1].post(&server, "/v1/boxes/b/start", &json!({})).await;
    assert_eq!(start.status, 200, "{start:?}");
    let stop = people[0].post(&server, "/v1/boxes/a/stop", &json!({ "now": true })).await;
    assert_eq!(stop.status, 200, "{stop:?}");
    assert_eq!(create(&server, &people[2], "c").await.status, 201, "control: a place is free");
}

#[tokio::test]
async fn f14_starts_at_the_same_time_use_the_last_place_once() {
    let quota = format!("[serve]\nquota = {{ boxes = 1 }}\n{TEMPLATE}");
    let server = TestGateway::configured(&quota).await;
    let login = server.login("local").await;
    let (a, b, c) = tokio::join!(
        create(&server, &login, "a"),
        create(&server, &login, "b"),
        create(&server, &login, "c")
    );
    let mut statuses = [a.status, b.status, c.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 429, 429], "{a:?} {b:?} {c:?}");
}

#[tokio::test]
async fn changed_quota_holds_at_once_and_an_invalid_file_keeps_it() {
    let server = TestGateway::configured(TEMPLATE).await;
    let login = server.login("local").await;
    assert_eq!(login.get(&server, "/v1/me").await["budgets"], Value::Null);
    server.lab.configure(&format!("[serve]\nquota = {{ boxes = 0, runs = 4 }}\n{TEMPLATE}"));
    problem(&create(&server, &login, "a").await, 429, "limit-reached");
    let budgets = json!({
        "tenant_boxes": { "used": 0, "max": 0 }, "tenant_runs": { "used": 0, "max": 4 },
    });
    assert_eq!(login.get(&server, "/v1/me").await["budgets"], budgets);
    server.lab.configure("[serve\n");
    assert_eq!(login.get(&server, "/v1/me").await["budgets"], budgets, "the last valid quota");
    server.lab.configure(TEMPLATE);
    assert_eq!(create(&server, &login, "a").await.status, 201, "control: no quota");
}
