//! Boxes over the API, as far as no box is started.

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem};

async fn create(server: &TestGateway, login: &Login, name: &str) -> Value {
    let new = json!({ "name": name, "start": false });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.header("location"), Some(format!("/v1/boxes/{name}").as_str()));
    serde_json::from_str(&created.body).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn box_is_created_listed_described_and_removed() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let created = create(&server, &login, "fix-login").await;
    assert_eq!(created["state"], "new");
    assert_eq!(created["maker"], "user:1000");
    assert_eq!(created["rules"]["net"], "none");
    create(&server, &login, "other").await;
    let list = login.get(&server, "/v1/boxes").await;
    assert_eq!(names(&list), ["fix-login", "other"]);
    assert_eq!(list["next"], Value::Null);
    assert_eq!(names(&login.get(&server, "/v1/boxes?q=login").await), ["fix-login"]);
    assert_eq!(names(&login.get(&server, "/v1/boxes?q=state:running").await), [""; 0]);
    let page = login.get(&server, "/v1/boxes?limit=1").await;
    let next = format!("/v1/boxes?limit=1&cursor={}", page["next"].as_str().unwrap());
    assert_eq!(names(&login.get(&server, &next).await), ["other"]);
    let one = login.get(&server, "/v1/boxes/other").await;
    assert_eq!((&one["name"], &one["live"]), (&json!("other"), &Value::Null));
    assert_eq!(login.delete(&server, "/v1/boxes/other", &[]).await.status, 204);
    assert_eq!(names(&login.get(&server, "/v1/boxes").await), ["fix-login"]);
    problem(&login.request(&server, "GET", "/v1/boxes/other").await, 404, "not-found");
}

#[tokio::test]
async fn invalid_box_is_refused_with_its_field() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    create(&server, &login, "taken").await;
    for (new, status, kind, field) in [
        (json!({ "name": "taken" }), 409, "exists", "/name"),
        (json!({ "name": "A b" }), 400, "invalid", "/name"),
        (json!({ "name": "x", "template": "none" }), 409, "wrong-state", "/template"),
        (json!({ "name": "x", "program": [] }), 400, "invalid", "/program"),
        (json!({ "name": "x", "env": { "A=B": "" } }), 400, "invalid", "/env/A=B"),
        (json!({ "name": "x", "limits": { "memory": 0 } }), 400, "invalid", "/limits/memory"),
        (json!({ "name": "x", "limits": { "timeout": 0 } }), 400, "invalid", "/limits/timeout"),
        (json!({ "name": "x", "limits": { "pids": 1 } }), 400, "invalid", "/limits/pids"),
        (json!({ "name": "x", "limits": [0] }), 400, "invalid", "/limits"),
        (json!({ "name": "x", "health": "x".repeat(4097) }), 400, "invalid", "/health"),
        (json!({ "name": "x", "network": { "mode": "all" } }), 400, "invalid", "/network/mode"),
        (
            json!({ "name": "x", "network": { "allow": ["a.example", "b c d"] } }),
            400,
            "invalid",
            "/network/allow/1",
        ),
        (json!({ "name": "x", "mounts": ["/etc:/etc"] }), 400, "invalid", "/mounts"),
    ] {
        let refused = login.post(&server, "/v1/boxes", &new).await;
        let problem = problem(&refused, status, kind);
        assert_eq!(problem["field"], field, "{new} {problem}");
    }
    assert_eq!(names(&login.get(&server, "/v1/boxes").await), ["taken"]);
}

#[tokio::test]
async fn box_is_started_and_stopped() {
    let server = TestGateway::configured("[template.small]\nmemory = \"64MiB\"\n").await;
    let login = server.login("local").await;
    let new = json!({ "name": "job", "template": "small", "program": ["sleep", "600"] });
    let created = login.post(&server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    let created: Value = serde_json::from_str(&created.body).unwrap();
    assert_eq!(
        (&created["state"], &created["rules"]["memory"]),
        (&json!("running"), &json!(1 << 26))
    );
    assert_eq!(names(&login.get(&server, "/v1/boxes?q=state:running").await), ["job"]);
    let stopped = login.post(&server, "/v1/boxes/job/stop", &json!({ "now": true })).await;
    let stopped: Value = serde_json::from_str(&stopped.body).unwrap();
    assert_eq!((&stopped["state"], &stopped["live"]), (&json!("stopped"), &Value::Null));
    assert_eq!(stopped["run"]["end"]["reason"], "interrupted", "{stopped}");
}

async fn with_token(server: &TestGateway, token: &str, path: &str, body: &Value) -> TestResponse {
    let token = format!("Authorization: Bearer {token}");
    server.post_to(&server.host(), path, body, &[&token]).await
}

#[tokio::test]
async fn f11_token_cannot_request_more_than_the_template_or_a_directory_of_the_host() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let token = login.token(&server, &["boxes:read", "boxes:write"]).await;
    let dir = tempfile::tempdir().unwrap();
    let wide = json!({ "mode": "restricted", "allow": ["example.com"] });
    let directory = json!({ "directory": dir.path() });
    for (field, value, name) in
        [("network", &wide, "/net"), ("workspace", &directory, "/workspace")]
    {
        let mut new = json!({ "name": format!("token-{field}"), "start": false });
        new[field] = value.clone();
        let refused = with_token(&server, &token, "/v1/boxes", &new).await;
        assert_eq!(problem(&refused, 403, "forbidden")["field"], name);
        new["name"] = json!(format!("person-{field}"));
        assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201, "control {field}");
    }
    let narrow = json!({ "name": "narrow", "start": false, "limits": { "memory": 1 << 26 } });
    let created = with_token(&server, &token, "/v1/boxes", &narrow).await;
    assert_eq!(created.status, 201, "control {created:?}");
}

#[tokio::test]
async fn f08_boxes_of_another_tenant_or_owner_are_unknown() {
    let server = TestGateway::start().await;
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    let (local, team) = (server.login("local").await, server.login("team-7").await);
    create(&server, &local, "mine").await;
    create(&server, &team, "theirs").await;
    assert_eq!(names(&local.get(&server, "/v1/boxes").await), ["mine"], "control");
    assert_eq!(names(&team.get(&server, "/v1/boxes").await), ["theirs"]);
    for (method, path) in [("GET", "/v1/boxes/mine"), ("GET", "/v1/boxes/MINE")] {
        problem(&team.request(&server, method, path).await, 404, "not-found");
    }
    problem(&team.delete(&server, "/v1/boxes/mine", &[]).await, 404, "not-found");
    problem(&team.post(&server, "/v1/boxes/mine/start", &json!({})).await, 404, "not-found");
    // An agent sees only its own boxes.
    let new = json!({ "name": "robot", "kind": "agent", "scopes": ["boxes:read"] });
    let created = local.post(&server, "/v1/tokens", &new).await;
    let created: Value = serde_json::from_str(&created.body).unwrap();
    let token = created["token"].as_str().unwrap();
    let listed = server.with_token(token, "/v1/boxes").await;
    assert_eq!(names(&serde_json::from_str(&listed.body).unwrap()), [""; 0]);
    problem(&server.with_token(token, "/v1/boxes/mine").await, 404, "not-found");
}

#[tokio::test]
async fn repeated_creation_with_the_same_key_creates_one_box() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let mut headers = login.headers().to_vec();
    headers.push("Idempotency-Key: once".to_owned());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let new = json!({ "name": "x", "start": false });
    let first = server.post_to(&login.host, "/v1/boxes", &new, &headers).await;
    let second = server.post_to(&login.host, "/v1/boxes", &new, &headers).await;
    assert_eq!((first.status, second.status), (201, 201), "{second:?}");
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn log_of_a_terminal_is_rendered_as_text_and_returned_in_parts() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let script = "printf '\\033[1mfirst\\033[0m\\nsecond\\nthird\\n'";
    let new = json!({ "name": "job", "program": ["/bin/sh", "-c", script] });
    assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201);
    let log = |query: &'static str| {
        let (server, login, path) = (&server, &login, format!("/v1/boxes/job/log{query}"));
        async move { login.request(server, "GET", &path).await }
    };
    let deadline = std::time::Instant::now() + belljar_testkit::DEADLINE;
    while !log("").await.body.contains("third") {
        assert!(std::time::Instant::now() < deadline, "{:?}", log("").await);
    }
    let whole = log("").await;
    let lines: Vec<&str> = whole.body.lines().map(str::trim_end).collect();
    assert_eq!(lines, ["first", "second", "third"], "{whole:?}");
    assert_eq!(whole.header("x-belljar-next"), Some(whole.body.len().to_string().as_str()));
    assert_eq!(log("?tail=1").await.body.trim_end(), "third");
    let rest = log("?from=6").await.body;
    assert_eq!(whole.body.get(6..), Some(rest.as_str()));
    for (query, field) in
        [("?tail=0", "/tail"), ("?tail=100001", "/tail"), ("?from=9007199254740992", "/from")]
    {
        assert_eq!(problem(&log(query).await, 400, "invalid")["field"], field);
    }
}
