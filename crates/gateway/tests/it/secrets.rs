//! Secrets over the API: their versions, their declarations, and the places where a value must never be.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded};
use crate::policy::{body, put, save, team};

/// A value that no file but the vault and no response may contain.
const VALUE: &str = "canary-value-7f3a9c51";
const NEW: &str = "If-None-Match: *";

async fn set(
    server: &TestGateway,
    login: &Login,
    name: &str,
    header: &str,
    body: &Value,
) -> TestResponse {
    put(server, login, &format!("/v1/secrets/{name}"), &[header], body).await
}

fn version(secret: &Value) -> String {
    format!("If-Match: \"{}\"", secret["version"].as_str().unwrap())
}

#[tokio::test]
async fn secret_is_set_listed_replaced_and_removed_with_its_version() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let new = json!({ "value": VALUE, "hosts": ["api.forge.example"], "slots": ["header:x-key"] });
    let created = set(&server, &login, "forge", NEW, &new).await;
    let first = body(&created, 201);
    assert_eq!(created.header("etag").unwrap(), format!("{}", json!(first["version"])));
    assert_eq!(first["hosts"], json!(["api.forge.example"]));
    assert_eq!((&first["slots"], &first["declared"]), (&json!(["header:x-key"]), &json!("api")));
    let listed = login.get(&server, "/v1/secrets").await;
    assert_eq!(listed["items"], json!([first]));
    assert_eq!(login.get(&server, "/v1/secrets?q=forge.example").await["items"], json!([first]));
    assert_eq!(login.get(&server, "/v1/secrets?q=other").await["items"], json!([]));
    problem(&set(&server, &login, "forge", NEW, &new).await, 412, "stale");
    problem(&set(&server, &login, "forge", "If-Match: \"1\"", &new).await, 412, "stale");
    problem(&set(&server, &login, "forge", "X-None: 1", &new).await, 428, "version-required");
    let other = json!({ "value": "another-value", "hosts": ["b.forge.example"] });
    let second = body(&set(&server, &login, "forge", &version(&first), &other).await, 200);
    assert_ne!(second["version"], first["version"]);
    assert_eq!(second["hosts"], json!(["b.forge.example"]));
    problem(&set(&server, &login, "forge", &version(&first), &other).await, 412, "stale");
    let stale = login.delete(&server, "/v1/secrets/forge", &[&version(&first)]).await;
    problem(&stale, 412, "stale");
    problem(&login.delete(&server, "/v1/secrets/forge", &[]).await, 428, "version-required");
    let removed = login.delete(&server, "/v1/secrets/forge", &[&version(&second)]).await;
    assert_eq!(removed.status, 204, "{removed:?}");
    assert_eq!(login.get(&server, "/v1/secrets").await["items"], json!([]));
    let gone = login.delete(&server, "/v1/secrets/forge", &[&version(&second)]).await;
    problem(&gone, 404, "not-found");
    let acts = recorded(&server, "team-7", "access.changed");
    let acts: Vec<&str> = acts.iter().map(|it| it["act"].as_str().unwrap()).collect();
    for act in ["secret.set", "secret.removed"] {
        assert!(acts.contains(&act), "{acts:?}");
    }
    assert_eq!(recorded(&server, "team-7", "secret.set").len(), 2);
}

#[tokio::test]
async fn policy_can_use_a_secret_that_was_set_with_the_api_and_its_own_declaration_wins() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let policy = "[template.default]\nallow = ['api.forge.example']\nsecrets = ['forge']\n";
    problem(&save(&server, &login, 0, policy).await, 400, "invalid");
    let new = json!({ "value": VALUE, "hosts": ["api.forge.example"] });
    body(&set(&server, &login, "forge", NEW, &new).await, 201);
    body(&save(&server, &login, 0, policy).await, 200);
    let asked = json!({ "host": "api.forge.example" });
    let shown = body(&login.post(&server, "/v1/policy/explain", &asked).await, 200);
    assert_eq!(shown["secrets"], json!(["forge"]), "{shown}");
    let own = format!("{policy}[secret.own]\nhosts = ['own.example']\n");
    body(&save(&server, &login, 1, &own).await, 200);
    let wrong = json!({ "value": VALUE, "hosts": ["evil.example"] });
    problem(&set(&server, &login, "own", NEW, &wrong).await, 409, "wrong-state");
    let right = body(&set(&server, &login, "own", NEW, &json!({ "value": VALUE })).await, 201);
    assert_eq!((&right["hosts"], &right["declared"]), (&json!(["own.example"]), &json!("policy")));
}

#[tokio::test]
async fn f11_secrets_can_be_set_by_administrators_and_by_tokens_with_the_scope_only() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let new = json!({ "value": VALUE, "hosts": ["a.example"] });
    for (role, may_see) in [("operator", true), ("member", true), ("auditor", false)] {
        let who = server.login_as("team-7", &format!("person:{role}"), role).await;
        problem(&set(&server, &who, "x", NEW, &new).await, 403, "forbidden");
        let removed = who.delete(&server, "/v1/secrets/x", &["If-Match: \"1\""]).await;
        problem(&removed, 403, "forbidden");
        let listed = who.request(&server, "GET", "/v1/secrets").await;
        assert_eq!(listed.status == 200, may_see, "{role}: {listed:?}");
    }
    let admin = server.login_as("team-7", "person:admin", "admin").await;
    body(&set(&server, &admin, "x", NEW, &new).await, 201);
    for (scope, status) in [("boxes:write", 403), ("secrets:write", 200)] {
        let token = login.token(&server, &[scope]).await;
        assert_eq!(server.with_token(&token, "/v1/secrets").await.status, status, "{scope}");
    }
}

#[tokio::test]
async fn f08_secrets_of_a_tenant_are_unknown_to_other_tenants_and_need_public_hosts() {
    let server = TestGateway::start().await;
    let (team, local) = (team(&server).await, server.login("local").await);
    let new = json!({ "value": VALUE, "hosts": ["a.example"] });
    let secret = body(&set(&server, &team, "theirs", NEW, &new).await, 201);
    assert_eq!(local.get(&server, "/v1/secrets").await["items"], json!([]));
    let removed = local.delete(&server, "/v1/secrets/theirs", &[&version(&secret)]).await;
    problem(&removed, 404, "not-found");
    problem(&set(&server, &local, "theirs", &version(&secret), &new).await, 404, "not-found");
    for host in ["10.0.0.1", "vault.corp.internal"] {
        let private = json!({ "value": VALUE, "hosts": [host] });
        problem(&set(&server, &team, "private", NEW, &private).await, 400, "invalid");
        body(&set(&server, &local, &format!("p{}", host.len()), NEW, &private).await, 201);
    }
    assert_eq!(team.get(&server, "/v1/secrets").await["items"], json!([secret]), "control");
}

#[tokio::test]
async fn invalid_secret_is_refused_with_its_field() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    for (new, field) in [
        (json!({ "value": "short", "hosts": ["a.example"] }), Value::Null),
        (json!({ "value": VALUE }), Value::Null),
        (json!({ "value": VALUE, "hosts": [] }), json!("/hosts")),
        (json!({ "value": VALUE, "hosts": ["a.example", "*.com"] }), json!("/hosts/1")),
        (json!({ "value": VALUE, "hosts": ["a.example"], "slots": ["cookie"] }), json!("/slots/0")),
        (json!({ "value": 12_345_678, "hosts": ["a.example"] }), json!("/value")),
        (json!({ "value": VALUE, "hosts": ["a.example"], "more": 1 }), Value::Null),
    ] {
        let refused = problem(&set(&server, &login, "x", NEW, &new).await, 400, "invalid");
        assert_eq!(refused["field"], field, "{new} {refused}");
        assert!(!refused.to_string().contains(VALUE), "{refused}");
    }
    problem(
        &set(&server, &login, "UPPER", NEW, &json!({ "value": VALUE })).await,
        404,
        "not-found",
    );
    assert_eq!(login.get(&server, "/v1/secrets").await["items"], json!([]));
}

/// Returns the files below a directory whose bytes contain the value.
fn files_with_value(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with_value(&path));
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Returns the processes whose arguments or environment contain the value.
fn processes_with_value() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            if bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()) {
                found.push(entry.path().join(file).display().to_string());
            }
        }
    }
    found
}

#[tokio::test]
async fn b19_value_of_a_secret_is_in_no_response_record_file_or_process_list() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let new = json!({ "value": VALUE, "hosts": ["a.example"] });
    let created = set(&server, &login, "forge", NEW, &new).await;
    let secret = body(&created, 201);
    let mut shown = vec![created];
    // The value is also in requests that are refused for any reason.
    for (name, header, wrong) in [
        ("forge", NEW, new.clone()),
        ("forge", "If-Match: \"1\"", new.clone()),
        ("other", NEW, json!({ "value": VALUE })),
        ("other", NEW, json!(VALUE)),
        ("other", NEW, json!({ "value": [VALUE], "hosts": ["a.example"] })),
        ("other", NEW, json!({ VALUE: 1 })),
        ("other", NEW, json!({ "value": "x".repeat(8), "hosts": [VALUE], "slots": [VALUE] })),
        ("other", NEW, json!({ "value": format!("{VALUE}\u{7}"), "hosts": ["a.example"] })),
    ] {
        let refused = set(&server, &login, name, header, &wrong).await;
        assert!(refused.status >= 400, "{refused:?}");
        shown.push(refused);
    }
    for path in
        ["/v1/secrets", "/v1/policy", "/v1/ledger/events?limit=200", "/openapi.json", "/metrics"]
    {
        shown.push(login.request(&server, "GET", path).await);
    }
    let replaced = set(&server, &login, "forge", &version(&secret), &new).await;
    body(&replaced, 200);
    shown.push(replaced);
    // A host is no secret, and an error may name it.
    let is_host = |it: &TestResponse| it.body.contains("/hosts/0");
    for response in shown.iter().filter(|it| !is_host(it)) {
        assert!(!format!("{response:?}").contains(VALUE), "{response:?}");
    }
    assert_eq!(files_with_value(&server.lab.state()), [""; 0]);
    assert_eq!(files_with_value(&server.lab.home()), [""; 0]);
    assert_eq!(processes_with_value(), [""; 0]);
    let vault = server.lab.state().join("tenants/team-7/vault/forge.sealed");
    assert!(vault.is_file(), "control: the value is in the vault, encrypted");
    let canary = server.lab.state().join("control");
    std::fs::write(&canary, format!("x{VALUE}y")).unwrap();
    assert_eq!(files_with_value(&server.lab.state()), [canary.display().to_string()], "control");
}
