//! Limits of tokens: networks, money a day and boxes at once.

use serde_json::{Value, json};

use crate::gateway::{Login, TestGateway, problem, recorded};

async fn create(server: &TestGateway, login: &Login, change: impl FnOnce(&mut Value)) -> Value {
    let scopes = ["boxes:read", "boxes:write", "mcp"];
    let mut new = json!({ "name": "ci", "kind": "service", "scopes": scopes });
    change(&mut new);
    let created = login.post(server, "/v1/tokens", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    serde_json::from_str(&created.body).unwrap()
}

#[tokio::test]
async fn f17_token_with_networks_is_refused_outside_of_them() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let far = create(&server, &login, |new| {
        (new["name"], new["networks"]) = (json!("far"), json!(["192.0.2.0/24", "2001:db8::/32"]));
    })
    .await;
    let near = create(&server, &login, |new| {
        (new["name"], new["networks"]) = (json!("near"), json!(["192.0.2.7", "127.0.0.0/8"]));
    })
    .await;
    assert_eq!(far["networks"], json!(["192.0.2.0/24", "2001:db8::/32"]));
    let (far, near) = (far["token"].as_str().unwrap(), near["token"].as_str().unwrap());
    for path in ["/v1/me", "/v1/boxes"] {
        problem(&server.with_token(far, path).await, 403, "forbidden");
        assert_eq!(server.with_token(near, path).await.status, 200, "control");
    }
    let body = crate::client::initialize("2025-11-25");
    let mcp = async |token: &str| {
        let token = format!("Authorization: Bearer {token}");
        server.post_to(&server.host(), "/mcp", &body, &[&token]).await
    };
    problem(&mcp(far).await, 403, "forbidden");
    assert_eq!(mcp(near).await.status, 200, "control");
    let denied = recorded(&server, "local", "access.denied");
    assert_eq!(denied.len(), 3, "{denied:?}");
    assert!(denied.iter().all(|it| it["by"] == "service:far"), "{denied:?}");
    let acts = recorded(&server, "local", "access.changed");
    assert!(acts.iter().any(|it| it["details"].to_string().contains("network 192.0.2.0/24")));
}

#[tokio::test]
async fn invalid_limits_of_a_token_are_refused_with_their_field() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let many: Vec<String> = (0..33).map(|number| format!("10.0.{number}.0/24")).collect();
    for (name, value, field) in [
        ("networks", json!(["10.0.0.0/33"]), "/networks/0"),
        ("networks", json!(["10.0.0.0/8", "example.com"]), "/networks/1"),
        ("networks", json!(many), "/networks/32"),
        ("money_per_day", json!("1 USD"), "/money_per_day"),
        ("money_per_day", json!("-1"), "/money_per_day"),
        ("money_per_day", json!("0.0000001"), "/money_per_day"),
        ("money_per_day", json!(1), "/money_per_day"),
        ("boxes", json!(10_001), "/boxes"),
        ("boxes", json!(-1), "/boxes"),
        ("days", json!(367), "/days"),
    ] {
        let mut new = json!({ "name": "ci", "kind": "service", "scopes": ["mcp"] });
        new[name] = value;
        let refused = problem(&login.post(&server, "/v1/tokens", &new).await, 400, "invalid");
        assert_eq!(refused["field"], field, "{new} {refused}");
    }
}

#[tokio::test]
async fn limits_of_a_token_are_listed_and_shown_to_its_holder() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let plain = create(&server, &login, |new| new["name"] = json!("plain")).await;
    let limited = create(&server, &login, |new| {
        (new["money_per_day"], new["boxes"]) = (json!("2.5"), json!(3));
    })
    .await;
    assert_eq!((&limited["money_per_day"], &limited["boxes"]), (&json!("2.50"), &json!(3)));
    let list = login.get(&server, "/v1/tokens").await;
    let item = list["items"].as_array().unwrap().iter().find(|it| it["name"] == "ci").unwrap();
    assert_eq!((&item["money_per_day"], &item["boxes"]), (&json!("2.50"), &json!(3)));
    let me = async |created: &Value| -> Value {
        let response = server.with_token(created["token"].as_str().unwrap(), "/v1/me").await;
        serde_json::from_str(&response.body).unwrap()
    };
    let budgets = me(&limited).await["budgets"].clone();
    assert_eq!(budgets["boxes"], json!({ "used": 0, "max": 3 }));
    assert_eq!(budgets["money"]["used"], "0", "{budgets}");
    assert_eq!(budgets["money"]["max"], "2.50", "{budgets}");
    assert_eq!(me(&plain).await["budgets"], Value::Null, "control: no limits");
}

#[tokio::test]
async fn f14_token_starts_at_most_its_boxes_and_only_its_own() {
    let server = TestGateway::configured("[template.small]\nmemory = \"64MiB\"\n").await;
    let login = server.login("local").await;
    let token = create(&server, &login, |new| new["boxes"] = json!(1)).await;
    let token = format!("Authorization: Bearer {}", token["token"].as_str().unwrap());
    let new =
        |name: &str| json!({ "name": name, "template": "small", "program": ["sleep", "600"] });
    let host = server.host();
    let post = async |path: &str, body: &Value| server.post_to(&host, path, body, &[&token]).await;
    let first = post("/v1/boxes", &new("first")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let second = post("/v1/boxes", &new("second")).await;
    problem(&second, 429, "limit-reached");
    assert!(second.header("retry-after").is_some(), "{second:?}");
    problem(&login.request(&server, "GET", "/v1/boxes/second").await, 404, "not-found");
    let mut waiting = new("waiting");
    waiting["start"] = json!(false);
    assert_eq!(post("/v1/boxes", &waiting).await.status, 201, "a box that does not run");
    problem(&post("/v1/boxes/waiting/start", &json!({})).await, 429, "limit-reached");
    // A box that its maker started does not count, and the token cannot start it.
    let mut other = new("other");
    other["start"] = json!(false);
    assert_eq!(login.post(&server, "/v1/boxes", &other).await.status, 201);
    problem(&post("/v1/boxes/other/start", &json!({})).await, 403, "forbidden");
    assert_eq!(login.post(&server, "/v1/boxes/other/start", &json!({})).await.status, 200);
    let stopped = post("/v1/boxes/first/stop", &json!({ "now": true })).await;
    assert_eq!(stopped.status, 200, "{stopped:?}");
    let started = post("/v1/boxes/waiting/start", &json!({})).await;
    assert_eq!(started.status, 200, "control: the place is free {started:?}");
}
