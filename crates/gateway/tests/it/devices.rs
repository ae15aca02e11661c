//! Logins of devices: a program gets a token that a person permits.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded, unlimited};

/// Starts a server that does not make devices wait between two requests for their tokens.
async fn server() -> TestGateway {
    TestGateway::with(|options| {
        unlimited(&mut options.limits);
        options.limits.device_poll = Duration::ZERO;
    })
    .await
}

async fn post(server: &TestGateway, path: &str, body: &Value) -> TestResponse {
    server.post_to(&server.host(), path, body, &[]).await
}

/// Starts a login and returns its device code and user code.
async fn start(server: &TestGateway, new: &Value) -> (Value, String) {
    let started = post(server, "/auth/device", new).await;
    assert_eq!(started.status, 200, "{started:?}");
    let started: Value = serde_json::from_str(&started.body).unwrap();
    let user_code = started["user_code"].as_str().unwrap().to_owned();
    let complete = started["verification_uri_complete"].as_str().unwrap();
    assert!(complete.ends_with(&format!("/device#{user_code}")), "{started}");
    assert_eq!(started["expires_in"], 600);
    (json!({ "device_code": started["device_code"] }), user_code)
}

async fn poll(server: &TestGateway, code: &Value) -> TestResponse {
    post(server, "/auth/device/token", code).await
}

async fn answer(server: &TestGateway, login: &Login, code: &str, word: &str) -> TestResponse {
    let body = json!({ "user_code": code, "answer": word });
    login.post(server, "/auth/device/answer", &body).await
}

/// Logs a device in and returns its token.
async fn log_in(server: &TestGateway, person: &Login, new: &Value) -> Value {
    let (device, user_code) = start(server, new).await;
    assert_eq!(answer(server, person, &user_code, "permit").await.status, 204);
    let created = poll(server, &device).await;
    assert_eq!(created.status, 200, "{created:?}");
    serde_json::from_str(&created.body).unwrap()
}

#[tokio::test]
async fn device_gets_a_token_once_after_a_person_permitted_it() {
    let server = server().await;
    let person = server.login_as("local", "person:https://id.example#ada", "member").await;
    let (device, user_code) = start(&server, &json!({ "name": "laptop" })).await;
    problem(&poll(&server, &device).await, 428, "authorization-pending");
    let typed = user_code.to_ascii_lowercase().replace('-', " ");
    let body = json!({ "user_code": typed });
    let found = person.post(&server, "/auth/device/find", &body).await;
    let found: Value = serde_json::from_str(&found.body).unwrap();
    assert_eq!((&found["name"], &found["from"]), (&json!("laptop"), &json!("127.0.0.1")));
    assert!(found["scopes"].to_string().contains("runs:write"), "{found}");
    assert!(!found["scopes"].to_string().contains("changes:apply"), "it needs a recent login");
    assert_eq!(answer(&server, &person, &user_code, "permit").await.status, 204);
    problem(&answer(&server, &person, &user_code, "permit").await, 404, "not-found");
    let created: Value = serde_json::from_str(&poll(&server, &device).await.body).unwrap();
    assert_eq!((&created["kind"], &created["name"]), (&json!("cli"), &json!("laptop")));
    assert_eq!(created["maker"], "person:https://id.example#ada");
    problem(&poll(&server, &device).await, 410, "gone");
    let token = created["token"].as_str().unwrap();
    let me = server.with_token(token, "/v1/me").await;
    let me: Value = serde_json::from_str(&me.body).unwrap();
    assert_eq!((&me["principal"], &me["role"]), (&json!("service:laptop"), &json!("member")));
    assert_eq!(server.with_token(token, "/v1/boxes").await.status, 200);
    problem(&server.with_token(token, "/v1/tokens").await, 403, "forbidden");
    let acts: Vec<Value> = recorded(&server, "local", "access.changed");
    let of = |act: &str| acts.iter().filter(|it| it["act"] == act).count();
    assert_eq!((of("device.permitted"), of("token.created")), (1, 1), "{acts:?}");
    assert!(!format!("{acts:?}").contains(token));
}

#[tokio::test]
async fn person_owns_the_objects_of_the_device_and_the_other_way_round() {
    let server = server().await;
    let person = server.login_as("local", "person:https://id.example#ada", "member").await;
    let other = server.login_as("local", "person:https://id.example#eve", "member").await;
    let created = log_in(&server, &person, &json!({ "name": "laptop" })).await;
    let token = created["token"].as_str().unwrap();
    let new = json!({ "name": "of-ada", "start": false });
    assert_eq!(person.post(&server, "/v1/boxes", &new).await.status, 201);
    let seen = server.with_token(token, "/v1/boxes").await;
    assert!(seen.body.contains("of-ada"), "{seen:?}");
    assert_eq!(other.get(&server, "/v1/boxes").await["items"], json!([]), "control");
}

#[tokio::test]
async fn f17_new_login_of_a_device_replaces_its_token_and_a_taken_name_is_refused() {
    let server = server().await;
    let ada = server.login_as("local", "person:https://id.example#ada", "member").await;
    let eve = server.login_as("local", "person:https://id.example#eve", "member").await;
    let new = json!({ "name": "laptop", "scopes": ["boxes:read"] });
    let first = log_in(&server, &ada, &new).await;
    let first = first["token"].as_str().unwrap();
    assert_eq!(server.with_token(first, "/v1/boxes").await.status, 200);
    let second = log_in(&server, &ada, &new).await;
    problem(&server.with_token(first, "/v1/boxes").await, 401, "unauthenticated");
    let second = second["token"].as_str().unwrap();
    assert_eq!(server.with_token(second, "/v1/boxes").await.status, 200, "control");
    let (device, user_code) = start(&server, &new).await;
    assert_eq!(answer(&server, &eve, &user_code, "permit").await.status, 204);
    problem(&poll(&server, &device).await, 409, "exists");
    assert_eq!(server.with_token(second, "/v1/boxes").await.status, 200);
}

#[tokio::test]
async fn f11_denied_login_and_a_wider_scope_than_the_role_give_no_token() {
    let server = server().await;
    let auditor = server.login_as("local", "person:https://id.example#al", "auditor").await;
    let wide = json!({ "name": "laptop", "scopes": ["boxes:write"] });
    let (device, user_code) = start(&server, &wide).await;
    problem(&answer(&server, &auditor, &user_code, "permit").await, 403, "forbidden");
    problem(&poll(&server, &device).await, 428, "authorization-pending");
    assert_eq!(answer(&server, &auditor, &user_code, "deny").await.status, 204);
    problem(&poll(&server, &device).await, 403, "login-refused");
    problem(&poll(&server, &device).await, 410, "gone");
}

#[tokio::test]
async fn g07_token_permits_no_device() {
    let server = server().await;
    let owner = server.login("local").await;
    let created = log_in(&server, &owner, &json!({ "name": "laptop" })).await;
    let token = format!("Authorization: Bearer {}", created["token"].as_str().unwrap());
    let (device, user_code) = start(&server, &json!({ "name": "other" })).await;
    let body = json!({ "user_code": user_code, "answer": "permit" });
    let refused = server.post_to(&server.host(), "/auth/device/answer", &body, &[&token]).await;
    problem(&refused, 403, "forbidden");
    problem(&poll(&server, &device).await, 428, "authorization-pending");
    assert_eq!(answer(&server, &owner, &user_code, "permit").await.status, 204, "control");
}

#[tokio::test]
async fn invalid_login_of_a_device_is_refused_with_its_field() {
    let server = server().await;
    for (body, field) in [
        (json!({ "name": "" }), "/name"),
        (json!({ "name": "a b" }), "/name"),
        (json!({ "name": "a", "scopes": ["boxes:read", "root"] }), "/scopes/1"),
    ] {
        let refused = post(&server, "/auth/device", &body).await;
        let fault = problem(&refused, 400, "invalid");
        assert_eq!(fault["field"], field, "{body}");
    }
    let owner = server.login("local").await;
    problem(&answer(&server, &owner, "BCDF-BCDF", "permit").await, 404, "not-found");
}

#[tokio::test]
async fn f14_device_that_asks_too_often_or_guesses_codes_is_refused() {
    let server = TestGateway::start().await;
    let (device, _) = start(&server, &json!({ "name": "laptop" })).await;
    problem(&poll(&server, &device).await, 428, "authorization-pending");
    let refused = poll(&server, &device).await;
    problem(&refused, 429, "too-many-requests");
    assert_eq!(refused.header("retry-after"), Some("5"));
    for _ in 0..5 {
        problem(&poll(&server, &json!({ "device_code": "wrong" })).await, 410, "gone");
    }
    problem(&poll(&server, &json!({ "device_code": "wrong" })).await, 429, "too-many-requests");
}
