//! Webhooks over the API, with a real server that receives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use belljar_testkit::{Authority, DEADLINE, Received, Reply, Upstream};
use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, lab, problem, recorded, unlimited};

const HOOK: &str = "/v1/webhooks/ci";

/// A server that trusts the receiver, and the receiver.
async fn start(
    handler: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (TestGateway, Login, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    lab.configure_for(&authority, "");
    let receiver = Upstream::tls(&authority, &["127.0.0.1"], handler);
    let server = TestGateway::on(lab, |options| {
        unlimited(&mut options.limits);
        options.limits.webhook_retry = Duration::from_millis(20);
    })
    .await;
    let login = server.login("local").await;
    (server, login, receiver)
}

async fn put(
    server: &TestGateway,
    login: &Login,
    path: &str,
    body: &Value,
    headers: &[&str],
) -> TestResponse {
    let body = body.to_string();
    let lines = [
        format!("PUT {path} HTTP/1.1"),
        format!("Host: {}", login.host),
        format!("Content-Length: {}", body.len()),
        "Content-Type: application/json".to_owned(),
    ];
    let own = login.headers();
    let lines = lines.iter().chain(&own).map(String::as_str).chain(headers.iter().copied());
    server.lines_with(&lines.collect::<Vec<_>>(), &body).await
}

/// Creates the webhook `ci` for the receiver and returns its secret.
async fn create(server: &TestGateway, login: &Login, to: &Upstream, kinds: &[&str]) -> String {
    let url = format!("https://{}/hook?a=b", to.address());
    let new = json!({ "url": url, "kinds": kinds, "allow_private": true });
    let created = put(server, login, HOOK, &new, &[]).await;
    assert_eq!(created.status, 201, "{created:?}");
    let created: Value = serde_json::from_str(&created.body).unwrap();
    created["secret"].as_str().unwrap().to_owned()
}

/// Waits until the newest delivery is as wanted, and returns it.
async fn delivery(
    server: &TestGateway,
    login: &Login,
    is_wanted: impl Fn(&Value) -> bool,
) -> Value {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let list = login.get(server, &format!("{HOOK}/deliveries")).await;
        if is_wanted(&list["items"][0]) {
            return list["items"][0].clone();
        }
        assert!(tokio::time::Instant::now() < end, "{list}");
    }
}

fn is_delivered(delivery: &Value) -> bool {
    delivery["state"] == "delivered"
}

/// Checks the signature of a message and returns its time.
#[track_caller]
fn check_signature(received: &Received, secret: &str) -> u64 {
    let header = received.header("x-belljar-signature").unwrap();
    let (time, signature) = header.split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    let signed = [time.as_bytes(), b".", &received.body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, &signed, &hex::decode(signature).unwrap()).unwrap();
    let other = hmac::Key::new(hmac::HMAC_SHA256, b"another secret");
    hmac::verify(&other, &signed, &hex::decode(signature).unwrap()).unwrap_err();
    time.parse().unwrap()
}

#[tokio::test]
async fn event_is_sent_with_a_signature_and_a_link_and_without_contents() {
    let (server, login, receiver) = start(|_| Reply::new(204, "")).await;
    let secret = create(&server, &login, &receiver, &["access.changed"]).await;
    let new = json!({ "name": "canary-name", "kind": "service", "scopes": ["mcp"] });
    assert_eq!(login.post(&server, "/v1/tokens", &new).await.status, 201);
    let sent = delivery(&server, &login, is_delivered).await;
    assert_eq!((&sent["kind"], &sent["status"]), (&json!("access.changed"), &json!(204)));
    assert_eq!((&sent["attempts"], &sent["error"]), (&json!(1), &Value::Null));
    let received = receiver.received().pop().unwrap();
    let target = (received.method.as_str(), received.path.as_str(), received.version.as_str());
    assert_eq!(target, ("POST", "/hook?a=b", "HTTP/1.1"));
    assert_eq!(received.header("x-belljar-delivery"), sent["id"].as_str());
    assert_eq!(received.header("x-belljar-event"), Some("access.changed"));
    let now = belljar_testkit::wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_secs().abs_diff(check_signature(&received, &secret)) < 60);
    let message: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!((&message["id"], &message["webhook"]), (&sent["id"], &json!("ci")));
    let event = login.get(&server, "/v1/ledger/events?limit=1").await;
    assert_eq!(message["event"]["index"], event["items"][0]["index"], "the newest event");
    let link = message["link"].as_str().unwrap();
    assert!(link.ends_with(&format!("/v1/ledger/events/{}", message["event"]["index"])), "{link}");
    let text = String::from_utf8_lossy(&received.body);
    assert!(!text.contains("canary-name") && !text.contains(&secret), "{text}");
}

#[tokio::test]
async fn only_wanted_kinds_are_sent_and_a_test_message_always() {
    let (server, login, receiver) = start(|_| Reply::new(200, "")).await;
    create(&server, &login, &receiver, &["task.*"]).await;
    let new = json!({ "name": "ci", "kind": "service", "scopes": ["mcp"] });
    assert_eq!(login.post(&server, "/v1/tokens", &new).await.status, 201);
    let tested = login.post(&server, &format!("{HOOK}/test"), &json!({})).await;
    assert_eq!(tested.status, 202, "{tested:?}");
    let sent = delivery(&server, &login, is_delivered).await;
    assert_eq!(sent["kind"], "webhook.test");
    assert_eq!(receiver.received().len(), 1, "control: no other event was sent");
}

#[tokio::test]
async fn failed_message_is_sent_again_with_the_same_id_and_a_redirect_is_not_followed() {
    let count = Arc::new(AtomicU16::new(0));
    let seen = Arc::clone(&count);
    let (server, login, receiver) = start(move |_| match seen.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::new(500, "no"),
        1 => Reply::new(302, "").header("location", "/elsewhere"),
        _ => Reply::new(200, "yes"),
    })
    .await;
    let secret = create(&server, &login, &receiver, &["access.changed"]).await;
    let new = json!({ "name": "ci", "kind": "service", "scopes": ["mcp"] });
    assert_eq!(login.post(&server, "/v1/tokens", &new).await.status, 201);
    let sent = delivery(&server, &login, is_delivered).await;
    assert_eq!(sent["attempts"], 3, "{sent}");
    let received = receiver.received();
    assert_eq!(received.len(), 3);
    for message in &received {
        assert_eq!(message.header("x-belljar-delivery"), sent["id"].as_str());
        assert_eq!(message.path, "/hook?a=b", "no redirect");
        assert_eq!(message.body, received[0].body);
        check_signature(message, &secret);
    }
}

#[tokio::test]
async fn a03_webhook_reaches_no_private_address_and_no_unverified_server() {
    let (server, login, receiver) = start(|_| Reply::new(200, "")).await;
    let url = format!("https://{}/", receiver.address());
    let has_failed = |delivery: &Value| delivery["attempts"].as_u64().is_some_and(|it| it > 0);
    let stranger = Upstream::tls(&Authority::new(), &["127.0.0.1"], |_| Reply::new(200, ""));
    let new = json!({ "url": url, "kinds": ["access.changed"] });
    assert_eq!(put(&server, &login, HOOK, &new, &[]).await.status, 201);
    let token = json!({ "name": "ci", "kind": "service", "scopes": ["mcp"] });
    assert_eq!(login.post(&server, "/v1/tokens", &token).await.status, 201);
    let refused = delivery(&server, &login, has_failed).await;
    assert_eq!(refused["state"], "pending", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("127.0.0.1"), "{refused}");
    assert_eq!(receiver.received().len(), 0);
    let unverified = json!({
        "url": format!("https://{}/", stranger.address()), "kinds": ["task.*"], "allow_private": true,
    });
    assert_eq!(put(&server, &login, HOOK, &unverified, &["If-Match: \"1\""]).await.status, 200);
    let is_refused = |delivery: &Value| {
        delivery["error"].as_str().is_some_and(|error| error.contains("certificate"))
    };
    delivery(&server, &login, is_refused).await;
    assert_eq!(stranger.received().len(), 0);
    let allowed = json!({ "url": url, "kinds": ["task.*"], "allow_private": true });
    assert_eq!(put(&server, &login, HOOK, &allowed, &["If-Match: \"2\""]).await.status, 200);
    delivery(&server, &login, is_delivered).await;
    assert_eq!(receiver.received().len(), 1, "control: an admin allowed it");
}

#[tokio::test]
async fn webhook_is_created_changed_with_its_version_and_removed_and_never_shows_its_secret() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let secret = "a-secret-of-the-client-0123456789";
    let new = json!({ "url": "https://hooks.invalid/x", "secret": secret, "enabled": false });
    let created = put(&server, &login, HOOK, &new, &[]).await;
    assert_eq!((created.status, created.header("etag")), (201, Some("\"1\"")), "{created:?}");
    assert!(!created.body.contains("secret"), "{created:?}");
    problem(&put(&server, &login, HOOK, &new, &[]).await, 428, "version-required");
    problem(&put(&server, &login, HOOK, &new, &["If-Match: \"9\""]).await, 412, "stale");
    let changed = json!({ "url": "https://hooks.invalid/y", "enabled": false });
    let changed = put(&server, &login, HOOK, &changed, &["If-Match: \"1\""]).await;
    assert_eq!((changed.status, changed.header("etag")), (200, Some("\"2\"")));
    let got = login.get(&server, HOOK).await;
    assert_eq!((&got["url"], &got["version"]), (&json!("https://hooks.invalid/y"), &json!("2")));
    assert_eq!(login.get(&server, "/v1/webhooks").await["items"], json!([got]));
    let stored: String = rusqlite::Connection::open(server.lab.state().join("gateway.db"))
        .unwrap()
        .query_row("SELECT secret FROM webhook", [], |row| row.get(0))
        .unwrap();
    assert_eq!(stored, secret, "a change without a secret keeps it");
    assert!(!got.to_string().contains(secret));
    let other = put(&server, &login, "/v1/webhooks/new", &new, &["If-Match: \"1\""]).await;
    problem(&other, 412, "stale");
    problem(&login.delete(&server, HOOK, &[]).await, 428, "version-required");
    problem(&login.delete(&server, HOOK, &["If-Match: \"1\""]).await, 412, "stale");
    assert_eq!(login.delete(&server, HOOK, &["If-Match: \"2\""]).await.status, 204);
    problem(&login.request(&server, "GET", HOOK).await, 404, "not-found");
    let acts: Vec<String> = recorded(&server, "local", "access.changed")
        .iter()
        .map(|event| event["act"].as_str().unwrap().to_owned())
        .filter(|act| act.starts_with("webhook."))
        .collect();
    assert_eq!(acts, ["webhook.changed", "webhook.changed", "webhook.removed"]);
}

#[tokio::test]
async fn invalid_webhook_is_refused_with_its_field() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let ok = "https://hooks.invalid/";
    for (body, field) in [
        (json!({ "url": "http://hooks.invalid/" }), "/url"),
        (json!({ "url": "https://u:p@hooks.invalid/" }), "/url"),
        (json!({ "url": "https://hooks.invalid/#x" }), "/url"),
        (json!({ "url": "https://0x7f.1/" }), "/url"),
        (json!({ "url": ok, "kinds": ["task.done", "*"] }), "/kinds/1"),
        (json!({ "url": ok, "secret": "short" }), "/secret"),
        (json!({ "url": ok, "secret": "é".repeat(20) }), "/secret"),
        (json!({ "url": ok, "headers": {} }), "/headers"),
    ] {
        let refused = put(&server, &login, HOOK, &body, &[]).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field, "{body}");
    }
    let long = "x".repeat(64);
    for name in ["A", "a.b", "_a", &long] {
        let path = format!("/v1/webhooks/{name}");
        problem(&put(&server, &login, &path, &json!({ "url": ok }), &[]).await, 400, "invalid");
    }
    assert_eq!(put(&server, &login, HOOK, &json!({ "url": ok }), &[]).await.status, 201, "control");
}

#[tokio::test]
async fn f11_only_owner_and_admin_manage_webhooks_and_other_tenants_do_not_see_them() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let team = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &team).await.status, 201);
    let new = json!({ "url": "https://hooks.invalid/canary", "enabled": false });
    assert_eq!(put(&server, &login, HOOK, &new, &[]).await.status, 201);
    for role in ["operator", "member", "auditor"] {
        let who =
            server.login_as("local", &format!("person:https://id.example#{role}"), role).await;
        problem(&who.request(&server, "GET", HOOK).await, 403, "forbidden");
        problem(&put(&server, &who, HOOK, &new, &["If-Match: \"1\""]).await, 403, "forbidden");
    }
    let other = server.login("team-7").await;
    problem(&other.request(&server, "GET", HOOK).await, 404, "not-found");
    problem(&other.request(&server, "GET", &format!("{HOOK}/deliveries")).await, 404, "not-found");
    assert_eq!(other.get(&server, "/v1/webhooks").await["items"], json!([]));
    let admin = server.login_as("local", "person:https://id.example#admin", "admin").await;
    assert_eq!(admin.get(&server, HOOK).await["url"], new["url"], "control");
}
