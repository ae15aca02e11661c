//! Idempotency keys and the pages of lists of `belljar serve`.

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem};

async fn with_key(
    server: &TestGateway,
    login: &Login,
    path: &str,
    body: &Value,
    key: &str,
) -> TestResponse {
    let mut headers = login.headers().to_vec();
    headers.push(format!("Idempotency-Key: {key}"));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    server.post_to(&login.host, path, body, &headers).await
}

async fn count_of_tokens(server: &TestGateway, login: &Login) -> usize {
    login.get(server, "/v1/tokens").await["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn repeated_post_with_the_same_key_has_no_second_effect_and_shows_no_credential_again() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let new = json!({ "name": "ci", "kind": "service", "scopes": ["boxes:read"] });
    let first = with_key(&server, &login, "/v1/tokens", &new, "key-1").await;
    assert_eq!(first.status, 201, "{first:?}");
    let again = with_key(&server, &login, "/v1/tokens", &new, "key-1").await;
    problem(&again, 409, "shown-once");
    assert!(!again.body.contains("bjt_"), "{again:?}");
    assert_eq!(count_of_tokens(&server, &login).await, 1);
    let other = json!({ "name": "other", "kind": "service", "scopes": ["boxes:read"] });
    let reused = with_key(&server, &login, "/v1/tokens", &other, "key-1").await;
    problem(&reused, 409, "key-reused");
    assert_eq!(with_key(&server, &login, "/v1/tokens", &other, "key-2").await.status, 201);
    assert_eq!(count_of_tokens(&server, &login).await, 2, "control: another key has an effect");
    for key in ["", "a b", &"k".repeat(129)] {
        problem(&with_key(&server, &login, "/v1/tokens", &new, key).await, 400, "bad-request");
    }
}

#[tokio::test]
async fn key_of_a_refused_request_can_be_used_again() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let wrong = json!({ "name": "ci", "kind": "robot", "scopes": ["boxes:read"] });
    problem(&with_key(&server, &login, "/v1/tokens", &wrong, "key-1").await, 400, "invalid");
    let right = json!({ "name": "ci", "kind": "agent", "scopes": ["boxes:read"] });
    assert_eq!(with_key(&server, &login, "/v1/tokens", &right, "key-1").await.status, 201);
}

#[tokio::test]
async fn pages_of_a_list_contain_every_item_once_and_refuse_forged_cursors() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    for number in 0..5 {
        let name = format!("token-{number}");
        let new = json!({ "name": name, "kind": "service", "scopes": ["boxes:read"] });
        assert_eq!(login.post(&server, "/v1/tokens", &new).await.status, 201);
    }
    let (mut names, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = login.get(&server, &format!("/v1/tokens{query}")).await;
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=2&cursor={next}");
    }
    names.sort_unstable();
    assert_eq!(names, ["token-0", "token-1", "token-2", "token-3", "token-4"]);
    for (query, field) in
        [("limit=0", "/limit"), ("limit=201", "/limit"), ("cursor=x.y", "/cursor")]
    {
        let refused = login.request(&server, "GET", &format!("/v1/tokens?{query}")).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field, "{query}");
    }
    let unknown = login.request(&server, "GET", "/v1/tokens?lmit=1").await;
    let detail = problem(&unknown, 400, "invalid")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("lmit"), "{detail}");
}

#[tokio::test]
async fn openapi_document_is_served_and_lists_the_routes() {
    let server = TestGateway::start().await;
    let document = server.get("/openapi.json").await;
    assert_eq!(document.status, 200);
    let document: Value = serde_json::from_str(&document.body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/tokens"]["post"]["requestBody"].is_object(), "{document}");
}
