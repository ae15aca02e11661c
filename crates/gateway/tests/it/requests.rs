//! Network requests of real boxes: their list, rules that are made from them, and policies that change them.

use serde_json::{Value, json};

use crate::gateway::{Login, TestGateway, problem};
use crate::policy::{body, save, team};

/// A public address. Requests to it are denied, or fail because the test has no network.
const HOST: &str = "93.184.215.14";

/// Starts a box that sends requests to these paths again and again.
async fn requesting_box(server: &TestGateway, login: &Login, name: &str, paths: &[&str]) {
    let urls: Vec<String> = paths.iter().map(|path| format!("http://{HOST}{path}")).collect();
    let script = format!(
        "while :; do for url in {}; do curl -s -m 1 -o /dev/null $url; done; sleep 0.02; done",
        urls.join(" ")
    );
    let new = json!({ "name": name, "program": ["sh", "-c", script], "terminal": false });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

/// Waits until the list has an item, and returns the newest one.
async fn newest(server: &TestGateway, login: &Login, query: &str) -> Value {
    loop {
        let list = login.get(server, &format!("/v1/requests?{query}")).await;
        if let Some(first) = items(&list).first() {
            return first.clone();
        }
        tokio::task::yield_now().await;
    }
}

async fn start() -> TestGateway {
    TestGateway::with(|options| {
        let unlimited = belljar_gateway::Rate::per_second(100_000, 100_000);
        (options.limits.reads, options.limits.writes) = (unlimited, unlimited);
    })
    .await
}

const ALLOW_A: &str = "[template.default]\nallow = ['http://93.184.215.14/a']\n";

#[tokio::test]
async fn requests_of_boxes_are_listed_with_their_verdicts_and_filtered() {
    let server = start().await;
    let login = team(&server).await;
    body(&save(&server, &login, 0, ALLOW_A).await, 200);
    requesting_box(&server, &login, "job", &["/a", "/b?token=hidden"]).await;
    let allowed = newest(&server, &login, "verdict=allow").await;
    assert_eq!((&allowed["path"], &allowed["box"]), (&json!("/a"), &json!("job")), "{allowed}");
    assert_eq!(allowed["rule"], "allow http://93.184.215.14 /a".replace(" /a", "/a"));
    let denied = newest(&server, &login, "verdict=deny").await;
    assert_eq!((&denied["path"], &denied["method"]), (&json!("/b"), &json!("GET")), "{denied}");
    assert_eq!(
        (&denied["host"], &denied["by"]),
        (&json!(HOST), &json!("person:https://id.example#ada"))
    );
    assert!(denied["reason"].as_str().unwrap().starts_with("path: "), "{denied}");
    for (query, is_found) in [
        ("box=job", true),
        ("box=other", false),
        ("host=93.184.215.14", true),
        ("host=184.215.14", true),
        ("host=4.215.14", false),
        ("method=GET", true),
        ("method=POST", false),
        ("q=PATH%20job", true),
        ("q=nothing", false),
        ("from=2026-01-01T00:00:00Z", true),
        ("to=2026-01-01T00:00:00Z", false),
    ] {
        let list = login.get(&server, &format!("/v1/requests?{query}")).await;
        assert_eq!(!items(&list).is_empty(), is_found, "{query}: {list}");
        assert!(!list.to_string().contains("hidden"), "queries are not recorded: {list}");
    }
    let first = login.get(&server, "/v1/requests?limit=1").await;
    let next = format!("/v1/requests?limit=1&cursor={}", first["next"].as_str().unwrap());
    let second = login.get(&server, &next).await;
    let index = |list: &Value| items(list)[0]["index"].as_u64().unwrap();
    assert!(index(&second) < index(&first), "{first} {second}");
    for query in ["from=yesterday", "verdict=ask", "box=A", "method=get", "limit=0", "x=1"] {
        let refused = login.request(&server, "GET", &format!("/v1/requests?{query}")).await;
        problem(&refused, 400, "invalid");
    }
}

#[tokio::test]
async fn f08_member_sees_own_requests_only_and_another_tenant_none() {
    let server = start().await;
    let login = team(&server).await;
    let member = server.login_as("team-7", "person:m", "member").await;
    let auditor = server.login_as("team-7", "person:u", "auditor").await;
    requesting_box(&server, &login, "theirs", &["/theirs"]).await;
    let foreign = newest(&server, &login, "box=theirs").await;
    assert_eq!(items(&member.get(&server, "/v1/requests").await).len(), 0);
    let path = format!("/v1/requests/{}/rule", foreign["index"]);
    problem(&member.post(&server, &path, &json!({})).await, 404, "not-found");
    problem(&auditor.post(&server, &path, &json!({})).await, 403, "forbidden");
    requesting_box(&server, &member, "mine", &["/mine"]).await;
    let own = newest(&server, &member, "").await;
    assert_eq!(own["box"], "mine");
    for item in items(&member.get(&server, "/v1/requests?limit=200").await) {
        assert_eq!(item["box"], "mine", "{item}");
    }
    let asked = json!({ "policy": "[template.default]\nallow = ['http://93.184.215.14']\n" });
    let preview = body(&member.post(&server, "/v1/policy/preview", &asked).await, 200);
    assert_eq!(preview["replayed"]["only_own"], true);
    assert!(!preview.to_string().contains("theirs"), "{preview}");
    let whole = body(&login.post(&server, "/v1/policy/preview", &asked).await, 200);
    assert!(whole.to_string().contains("theirs"), "control: {whole}");
    assert!(!items(&auditor.get(&server, "/v1/requests").await).is_empty(), "control");
    let local = server.login("local").await;
    assert_eq!(items(&local.get(&server, "/v1/requests").await).len(), 0);
    problem(&local.post(&server, &path, &json!({})).await, 404, "not-found");
}

#[tokio::test]
async fn rule_of_a_request_is_the_narrowest_one_and_its_preview_shows_the_request() {
    let server = start().await;
    let login = team(&server).await;
    body(&save(&server, &login, 0, ALLOW_A).await, 200);
    requesting_box(&server, &login, "job", &["/a", "/b", "/c"]).await;
    let denied = newest(&server, &login, "verdict=deny&q=/b").await;
    newest(&server, &login, "verdict=deny&q=/c").await;
    let path = format!("/v1/requests/{}/rule", denied["index"]);
    let made = body(&login.post(&server, &path, &json!({ "days": 1 })).await, 200);
    let policy = made["policy"].as_str().unwrap();
    assert!(policy.contains("GET http://93.184.215.14/b"), "{made}");
    assert!(made["rule"].as_str().unwrap().contains("paths = [\"/b\"]"), "{made}");
    let changes = made["preview"]["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{made}");
    assert_eq!((&changes[0]["before"], &changes[0]["after"]), (&json!("deny"), &json!("allow")));
    assert_eq!(changes[0]["request"], format!("GET http://{HOST}/b"));
    assert_eq!(changes[0]["boxes"], json!(["job"]));
    assert_eq!(login.get(&server, "/v1/policy").await["version"], 1, "nothing was saved");
    let allowed = newest(&server, &login, "verdict=allow").await;
    let path = format!("/v1/requests/{}/rule", allowed["index"]);
    problem(&login.post(&server, &path, &json!({})).await, 409, "wrong-state");
    problem(&login.post(&server, "/v1/requests/0/rule", &json!({})).await, 404, "not-found");
    let narrower = json!({ "policy": "[template.default]\nnet = 'restricted'\n" });
    let preview = body(&login.post(&server, "/v1/policy/preview", &narrower).await, 200);
    let changes = preview["changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["after"]), (1, &json!("deny")), "{preview}");
    assert!(changes[0]["count"].as_u64().unwrap() >= 1);
}

#[tokio::test]
async fn running_box_uses_a_saved_policy_at_once_and_has_no_network_without_its_template() {
    let server = start().await;
    let login = team(&server).await;
    let with_x = "[template.x]\nallow = ['http://93.184.215.14/a']\n";
    body(&save(&server, &login, 0, with_x).await, 200);
    let script = format!("while :; do curl -s -m 1 -o /dev/null http://{HOST}/a; sleep 0.02; done");
    let program = ["sh", "-c", &script];
    let new = json!({ "name": "job", "template": "x", "program": program, "terminal": false });
    assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201);
    newest(&server, &login, "verdict=allow").await;
    let narrowed = save(&server, &login, 1, "[template.x]\nnet = 'restricted'\n").await;
    let applied = json!([{ "name": "job", "is_applied": true }]);
    assert_eq!(body(&narrowed, 200)["boxes"], applied);
    let denied = newest(&server, &login, "verdict=deny").await;
    // Requests that were decided before the change can end after it, but none is allowed after a denied one.
    let after = newest(&server, &login, "verdict=allow").await;
    assert!(after["index"].as_u64() < denied["index"].as_u64(), "{after} {denied}");
    assert_eq!(body(&save(&server, &login, 2, with_x).await, 200)["boxes"], applied);
    loop {
        let widened = newest(&server, &login, "verdict=allow").await;
        if widened["index"].as_u64() > denied["index"].as_u64() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let removed = body(&save(&server, &login, 3, "").await, 200);
    assert_eq!(removed["boxes"][0]["is_applied"], false, "{removed}");
    let error = removed["boxes"][0]["error"].as_str().unwrap();
    assert!(error.contains("no network"), "{error}");
    loop {
        let newest = newest(&server, &login, "").await;
        if newest["reason"].as_str().unwrap().starts_with("no-network") {
            break;
        }
        tokio::task::yield_now().await;
    }
}
