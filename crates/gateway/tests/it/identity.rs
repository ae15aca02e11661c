//! Identity of `belljar serve`: login links, sessions, tokens, tenants, and what each may do.

use std::io::{Read as _, Write as _};

use belljar_engine::record::reading;
use belljar_engine::record::sentences::words;
use belljar_ledger::{LedgerPaths, Query, Reader};
use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem};

#[tokio::test]
async fn f17_login_link_works_once_on_its_own_host_and_sets_a_strict_cookie() {
    let server = TestGateway::start().await;
    let link = server.local_post("/local/login-links", &json!({})).await;
    assert_eq!(link.status, 201, "{link:?}");
    let link: Value = serde_json::from_str(&link.body).unwrap();
    let (url, code) = link["url"].as_str().unwrap().split_once("/login#").unwrap();
    let name = url.strip_prefix("http://").unwrap();
    assert!(name.starts_with("belljar-") && name.contains(".localhost:"), "{name}");
    let body = json!({ "code": code });
    problem(&server.post_to(&server.host(), "/auth/link", &body, &[]).await, 410, "gone");
    let used = server.post_to(name, "/auth/link", &body, &[]).await;
    assert_eq!(used.status, 204, "{used:?}");
    let cookie = used.header("set-cookie").unwrap();
    for part in ["__Host-belljar=", "; Path=/;", "Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    problem(&server.post_to(name, "/auth/link", &body, &[]).await, 410, "gone");
    for path in ["/login", "/login.js"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn me_describes_the_sender_and_needs_a_credential() {
    let server = TestGateway::start().await;
    let refused = server.get("/v1/me").await;
    problem(&refused, 401, "unauthenticated");
    assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"));
    let local = server.local(&["GET /v1/me HTTP/1.1", "Host: localhost"]).await;
    let me: Value = serde_json::from_str(&local.body).unwrap();
    let expect = json!({
        "principal": "user:1000", "tenant": "local", "role": "owner", "credential": "local-socket",
    });
    assert_eq!(me, expect);
    let login = server.login("local").await;
    let me = login.get(&server, "/v1/me").await;
    assert_eq!((me["credential"].as_str(), me["role"].as_str()), (Some("session"), Some("owner")));
    assert_eq!(me["csrf"].as_str(), Some(login.csrf.as_str()));
}

#[tokio::test]
async fn f17_session_is_refused_on_another_host_and_after_logout() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let cookie = format!("Cookie: {}", login.cookie);
    let other = server.lines(&["GET /v1/me HTTP/1.1", "Host: {host}", &cookie]).await;
    problem(&other, 401, "unauthenticated");
    let chosen = format!("Cookie: __Host-belljar={}", "a".repeat(43));
    let host = format!("Host: {}", login.host);
    let fixed = server.lines(&["GET /v1/me HTTP/1.1", &host, &chosen]).await;
    problem(&fixed, 401, "unauthenticated");
    let twice = format!("Cookie: {}; {}", login.cookie, login.cookie);
    problem(&server.lines(&["GET /v1/me HTTP/1.1", &host, &twice]).await, 400, "bad-request");
    let sessions = login.get(&server, "/v1/sessions").await;
    assert_eq!(sessions["items"][0]["current"], true, "{sessions}");
    assert_eq!(login.post(&server, "/auth/logout", &json!({})).await.status, 204);
    let ended = server.lines(&["GET /v1/me HTTP/1.1", &host, &cookie]).await;
    problem(&ended, 401, "unauthenticated");
}

#[tokio::test]
async fn f04_change_under_a_session_needs_origin_and_csrf_value_and_a_denial_is_recorded() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let new = json!({ "name": "ci", "kind": "service", "scopes": ["boxes:read"] });
    let (origin, csrf) =
        (format!("Origin: http://{}", login.host), format!("X-Belljar-Csrf: {}", login.csrf));
    let cookie = format!("Cookie: {}", login.cookie);
    let other = server.login("local").await;
    let foreign = format!("X-Belljar-Csrf: {}", other.csrf);
    for headers in [
        vec![&*cookie],
        vec![&*cookie, &origin],
        vec![&*cookie, &csrf],
        vec![&*cookie, &origin, &foreign],
        vec![&*cookie, &origin, &csrf, "Sec-Fetch-Site: cross-site"],
    ] {
        let response = server.post_to(&login.host, "/v1/tokens", &new, &headers).await;
        problem(&response, 403, "forged-request");
    }
    let headers = [&*cookie, &origin, &csrf, "Sec-Fetch-Site: same-origin"];
    let control = server.post_to(&login.host, "/v1/tokens", &new, &headers).await;
    assert_eq!(control.status, 201, "{control:?}");
    let denied = events(&server, "local", "access.denied");
    assert_eq!(denied.len(), 5, "{denied:?}");
    assert!(denied[0].contains("/v1/tokens") && denied[0].contains("user:1000"), "{denied:?}");
}

/// Returns the descriptions of the events of a kind in the ledger of a tenant.
fn events(server: &TestGateway, tenant: &str, kind: &str) -> Vec<String> {
    let home = match tenant {
        "local" => server.lab.state(),
        tenant => server.lab.state().join("tenants").join(tenant),
    };
    let reader = Reader::open(&LedgerPaths::under(&home)).unwrap();
    let rows = reader.events(&Query::default()).unwrap();
    let entries = rows.iter().map(|row| reading::read(&reader, row).unwrap());
    entries.filter(|entry| entry.kind == kind).map(|entry| words(&entry)).collect()
}

#[tokio::test]
async fn f17_token_is_shown_once_works_by_scope_and_ends_when_it_is_revoked() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let new = json!({ "name": "ci", "kind": "service", "scopes": ["metrics:read"], "days": 3 });
    let created = login.post(&server, "/v1/tokens", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    let created: Value = serde_json::from_str(&created.body).unwrap();
    let (token, id) = (created["token"].as_str().unwrap(), created["id"].as_str().unwrap());
    assert!(token.starts_with(&format!("bjt_{id}_")), "{created}");
    problem(&login.post(&server, "/v1/tokens", &new).await, 409, "exists");
    let list = login.get(&server, "/v1/tokens").await;
    assert_eq!(list["items"][0]["id"], id);
    assert!(!list.to_string().contains(token), "the list shows no secret");
    let me = server.with_token(token, "/v1/me").await;
    let me: Value = serde_json::from_str(&me.body).unwrap();
    assert_eq!(
        (me["principal"].as_str(), me["scopes"][0].as_str()),
        (Some("service:ci"), Some("metrics:read"))
    );
    assert_eq!(server.with_token(token, "/metrics").await.status, 200);
    problem(&server.with_token(token, "/v1/tokens").await, 403, "forbidden");

    let path = format!("/v1/tokens/{id}");
    problem(&login.delete(&server, &path, &[]).await, 428, "version-required");
    problem(&login.delete(&server, &path, &["If-Match: \"2\""]).await, 412, "stale");
    assert_eq!(login.delete(&server, &path, &["If-Match: \"1\""]).await.status, 204);
    problem(&login.delete(&server, &path, &["If-Match: \"1\""]).await, 404, "not-found");
    problem(&server.with_token(token, "/v1/me").await, 401, "unauthenticated");
    let changes = events(&server, "local", "access.changed");
    assert!(changes.iter().any(|it| it.contains("token.created ci by user:1000")), "{changes:?}");
    assert!(changes.iter().any(|it| it.contains(&format!("token.revoked {id}"))), "{changes:?}");
    let system = events(&server, "system", "access.changed");
    assert!(system.iter().any(|it| it.contains("login ")), "{system:?}");
    assert!(!format!("{changes:?}{system:?}").contains(token), "no secret is recorded");
}

#[tokio::test]
async fn invalid_descriptions_of_tokens_are_refused_with_the_field() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let valid = json!({ "name": "ci", "kind": "agent", "scopes": ["mcp"], "days": 7 });
    for (field, value, pointer) in [
        ("name", json!("a b"), "/name"),
        ("kind", json!("person"), "/kind"),
        ("scopes", json!([]), "/scopes"),
        ("scopes", json!(["mcp", "root"]), "/scopes/1"),
        ("days", json!(8), "/days"),
        ("days", json!(-1), "/days"),
        ("extra", json!(1), "/extra"),
    ] {
        let mut new = valid.clone();
        new[field] = value;
        let problem = problem(&login.post(&server, "/v1/tokens", &new).await, 400, "invalid");
        assert_eq!(problem["field"], pointer, "{problem}");
    }
    let deep = "[".repeat(40) + &"]".repeat(40);
    let deep: Value = json!({ "name": serde_json::from_str::<Value>(&deep).unwrap() });
    problem(&login.post(&server, "/v1/tokens", &deep).await, 400, "invalid");
    assert_eq!(login.post(&server, "/v1/tokens", &valid).await.status, 201, "control");
}

#[tokio::test]
async fn f05_token_in_an_address_is_refused_and_revoked() {
    let server = TestGateway::start().await;
    let token = server.login("local").await.token(&server, &["boxes:read"]).await;
    assert_eq!(server.with_token(&token, "/v1/me").await.status, 200, "control");
    let response = server.get(&format!("/v1/me?token={token}")).await;
    problem(&response, 400, "token-in-url");
    problem(&server.with_token(&token, "/v1/me").await, 401, "unauthenticated");
}

#[tokio::test]
async fn f08_tokens_and_sessions_of_another_tenant_are_unknown() {
    let server = TestGateway::start().await;
    let team = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &team).await.status, 201);
    problem(&server.local_post("/local/tenants", &team).await, 409, "exists");
    let reserved = json!({ "name": "system", "issuer": "https://id.example", "subject": "ada" });
    problem(&server.local_post("/local/tenants", &reserved).await, 400, "invalid");
    let unknown = server.local_post("/local/login-links", &json!({ "tenant": "team-8" })).await;
    problem(&unknown, 404, "not-found");

    let (ours, theirs) = (server.login("local").await, server.login("team-7").await);
    let me = theirs.get(&server, "/v1/me").await;
    assert_eq!((me["tenant"].as_str(), me["role"].as_str()), (Some("team-7"), Some("owner")));
    let token = theirs.token(&server, &["boxes:read"]).await;
    let list = theirs.get(&server, "/v1/tokens").await;
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let session =
        theirs.get(&server, "/v1/sessions").await["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ours.get(&server, "/v1/tokens").await["items"], json!([]));
    let sessions = ours.get(&server, "/v1/sessions").await.to_string();
    assert!(!sessions.contains(&session) && !sessions.contains("id.example"), "{sessions}");
    let foreign = ours.delete(&server, &format!("/v1/tokens/{id}"), &["If-Match: \"1\""]).await;
    problem(&foreign, 404, "not-found");
    problem(&ours.delete(&server, &format!("/v1/sessions/{session}"), &[]).await, 404, "not-found");
    assert_eq!(server.with_token(&token, "/v1/me").await.status, 200, "control: it still works");
    let ended = theirs.delete(&server, &format!("/v1/sessions/{session}"), &[]).await;
    assert_eq!(ended.status, 204, "control: {ended:?}");
}

#[tokio::test]
async fn f14_failed_logins_of_one_source_are_limited() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    for _ in 0..5 {
        problem(&server.with_token("bjt_none", "/v1/me").await, 401, "unauthenticated");
    }
    let refused = server.with_token("bjt_none", "/v1/me").await;
    problem(&refused, 429, "too-many-requests");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() <= 12, "{refused:?}");
    assert_eq!(login.get(&server, "/v1/me").await["role"], "owner", "control: valid credentials");
}

#[tokio::test]
async fn mcp_is_available_to_tokens_with_its_scope() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let with = login.token(&server, &["mcp"]).await;
    let without = login.token(&server, &["boxes:read"]).await;
    let body = crate::client::initialize("2025-11-25");
    let post = async |token: &str| {
        let token = format!("Authorization: Bearer {token}");
        server.post_to(&server.host(), "/mcp", &body, &[&token]).await
    };
    assert_eq!(post(&with).await.rpc()["result"]["protocolVersion"], "2025-11-25");
    problem(&post(&without).await, 403, "forbidden");
    problem(&post("bjt_none").await, 401, "unauthenticated");
}

#[tokio::test]
async fn f07_connection_of_another_user_over_loopback_is_refused() {
    let server = TestGateway::start().await;
    assert_eq!(server.get("/healthz").await.status, 200, "control");
    if !rustix::process::geteuid().is_root() {
        return belljar_testkit::skip("only root can connect as another user");
    }
    let (addr, host) = (server.addr, server.host());
    let connect = move || -> std::io::Result<String> {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534))?;
        let mut stream = std::net::TcpStream::connect(addr)?;
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let thread = std::thread::spawn(connect);
    let text = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap().unwrap();
    problem(&TestResponse::whole(text.as_bytes()).await, 403, "forbidden");
}

#[tokio::test]
async fn f17_no_credential_is_stored_in_the_database_of_the_server() {
    let server = TestGateway::start().await;
    let login: Login = server.login("local").await;
    let token = login.token(&server, &["boxes:read"]).await;
    let secret = login.cookie.split_once('=').unwrap().1.to_owned();
    let mut stored = Vec::new();
    for file in ["gateway.db", "gateway.db-wal"] {
        stored.extend(std::fs::read(server.lab.state().join(file)).unwrap_or_default());
    }
    let contains = |text: &str| stored.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(contains("belljar-") && contains(&token[4..12]), "control");
    assert!(!contains(&secret) && !contains(&token[13..]), "a secret is in the database");
}
