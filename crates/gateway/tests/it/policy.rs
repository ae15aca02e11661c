//! The policy of a tenant: versions, tests, previews, explanations and proposals.

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded};

/// Creates the tenant `team-7` and logs its owner in.
pub(crate) async fn team(server: &TestGateway) -> Login {
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    server.login("team-7").await
}

/// Sends a PUT request with a JSON body and additional headers.
pub(crate) async fn put(
    server: &TestGateway,
    login: &Login,
    path: &str,
    headers: &[&str],
    body: &Value,
) -> TestResponse {
    let body = body.to_string();
    let (start, host) = (format!("PUT {path} HTTP/1.1"), format!("Host: {}", login.host));
    let length = format!("Content-Length: {}", body.len());
    let own = login.headers();
    let mut lines = vec![&*start, &host, &length, "Content-Type: application/json"];
    lines.extend(own.iter().map(String::as_str).chain(headers.iter().copied()));
    server.lines_with(&lines, &body).await
}

/// Saves a policy on top of a version.
pub(crate) async fn save(
    server: &TestGateway,
    login: &Login,
    base: u64,
    policy: &str,
) -> TestResponse {
    let version = format!("If-Match: \"{base}\"");
    put(server, login, "/v1/policy", &[&version], &json!({ "policy": policy })).await
}

pub(crate) fn body(response: &TestResponse, status: u16) -> Value {
    assert_eq!(response.status, status, "{response:?}");
    serde_json::from_str(&response.body).unwrap()
}

const ALLOW_A: &str = "[template.default]\nallow = ['GET a.example']\n";
const ALLOW_B: &str = "[template.default]\nallow = ['GET a.example', 'b.example']\n";

#[tokio::test]
async fn saved_policy_has_a_version_and_is_the_policy_that_the_engine_reads() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let first = login.request(&server, "GET", "/v1/policy").await;
    assert_eq!(first.header("etag"), Some("\"0\""));
    assert_eq!(body(&first, 200)["policy"], "");
    let saved = save(&server, &login, 0, ALLOW_A).await;
    assert_eq!(saved.header("etag"), Some("\"1\""), "{saved:?}");
    assert_eq!(body(&saved, 200), json!({ "version": 1, "boxes": [] }));
    body(&save(&server, &login, 1, ALLOW_B).await, 200);
    let current = login.request(&server, "GET", "/v1/policy").await;
    assert_eq!(current.header("etag"), Some("\"2\""));
    let current = body(&current, 200);
    assert_eq!((&current["policy"], &current["version"]), (&json!(ALLOW_B), &json!(2)));
    assert_eq!(current["saved_by"], "person:https://id.example#ada");
    let versions: Vec<&Value> =
        current["versions"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
    assert_eq!(versions, [2, 1]);
    let page = login.get(&server, "/v1/policy/versions?limit=1").await;
    assert_eq!(page["items"][0]["version"], 2);
    let next = page["next"].as_str().unwrap();
    let next = format!("/v1/policy/versions?limit=1&cursor={next}");
    let rest = login.get(&server, &next).await;
    assert_eq!((&rest["items"][0]["version"], &rest["next"]), (&json!(1), &Value::Null));
    assert_eq!(login.get(&server, "/v1/policy?version=1").await["policy"], ALLOW_A);
    problem(&login.request(&server, "GET", "/v1/policy?version=9").await, 404, "not-found");
    let file = server.lab.state().join("tenants/team-7/policy.toml");
    assert_eq!(std::fs::read_to_string(file).unwrap(), ALLOW_B);
    let changes = recorded(&server, "team-7", "access.changed");
    let saved = changes.iter().filter(|it| it["act"] == "policy.saved").collect::<Vec<_>>();
    assert_eq!(saved.len(), 2, "{changes:?}");
    assert_eq!(saved[0]["by"], "person:https://id.example#ada");
}

#[tokio::test]
async fn stale_invalid_or_failing_policy_is_refused_and_changes_nothing() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    body(&save(&server, &login, 0, ALLOW_A).await, 200);
    let new = json!({ "policy": ALLOW_B });
    problem(&put(&server, &login, "/v1/policy", &[], &new).await, 428, "version-required");
    problem(&save(&server, &login, 0, ALLOW_B).await, 412, "stale");
    for (text, line, key) in [
        ("[template.x]\nmounts = ['/etc:/data']\n", 2, "mounts"),
        ("[template.x]\n\nalow = []\n", 3, "alow"),
        ("[proxy]\nurl = 'http://p:1'\n", 1, "proxy"),
    ] {
        let refused = problem(&save(&server, &login, 1, text).await, 400, "invalid");
        assert_eq!((&refused["line"], &refused["key"]), (&json!(line), &json!(key)), "{refused}");
        assert_eq!(refused["field"], "/policy");
    }
    let failing = format!(
        "{ALLOW_A}[[test]]\nrequest = 'POST https://a.example/'\nexpect = 'allow'\n[[test]]\nrequest = 'a.example'\nexpect = 'allow'\n"
    );
    let failed = problem(&save(&server, &login, 1, &failing).await, 409, "test-failed");
    let tests = failed["failed_tests"].as_array().unwrap();
    assert_eq!(tests.len(), 1, "{failed}");
    assert_eq!(tests[0]["line"], 3);
    assert_eq!((&tests[0]["expected"], &tests[0]["actual"]), (&json!("allow"), &json!("deny")));
    assert_eq!(login.get(&server, "/v1/policy").await["version"], 1, "nothing was saved");
    let passing = format!("{ALLOW_A}[[test]]\nrequest = 'a.example'\nexpect = 'allow'\n");
    body(&save(&server, &login, 1, &passing).await, 200);
}

#[tokio::test]
async fn policy_of_the_tenant_local_is_a_file_that_only_the_operator_changes() {
    let text = "[template.default]\nallow = ['GET a.example']\n[proxy]\nurl = 'http://hidden:1'\n";
    let server = TestGateway::configured(text).await;
    let login = server.login("local").await;
    let shown = login.get(&server, "/v1/policy").await;
    assert!(shown["policy"].as_str().unwrap().contains("a.example"), "{shown}");
    assert!(!shown["policy"].as_str().unwrap().contains("hidden"), "{shown}");
    assert!(shown["file"].as_str().unwrap().ends_with("belljar.toml"), "{shown}");
    let refused = problem(&save(&server, &login, 0, ALLOW_B).await, 409, "wrong-state");
    assert!(refused["detail"].as_str().unwrap().contains("belljar.toml"), "{refused}");
    let proposed = login.post(&server, "/v1/policy/proposals", &json!({ "policy": ALLOW_B })).await;
    problem(&proposed, 409, "wrong-state");
    let file = server.lab.home().join(".config/belljar/belljar.toml");
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    let preview = json!({ "policy": ALLOW_B });
    let preview = body(&login.post(&server, "/v1/policy/preview", &preview).await, 200);
    assert_eq!(preview["new_hosts"][0]["host"], "b.example", "{preview}");
}

#[tokio::test]
async fn preview_has_new_hosts_findings_and_results_of_tests() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    body(&save(&server, &login, 0, ALLOW_A).await, 200);
    let policy =
        "[template.default]\nnet = 'full'\n[[test]]\nrequest = 'a.example'\nexpect = 'deny'\n";
    let asked = json!({ "policy": policy, "days": 30 });
    let preview = body(&login.post(&server, "/v1/policy/preview", &asked).await, 200);
    assert_eq!(preview["new_hosts"][0]["host"], "every public host");
    assert_eq!(preview["findings"][0]["code"], "full-network", "{preview}");
    assert_eq!(preview["tests_pass"], false);
    assert_eq!(preview["tests"][0]["actual"], "allow");
    assert_eq!(preview["replayed"]["days"], 30);
    for (asked, field) in [
        (json!({ "policy": "x", "days": 30 }), "/policy"),
        (json!({ "policy": "", "days": 31 }), "/days"),
        (json!({ "policy": "", "days": 0 }), "/days"),
    ] {
        let refused = login.post(&server, "/v1/policy/preview", &asked).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field);
    }
    assert_eq!(login.get(&server, "/v1/policy").await["version"], 1, "nothing was saved");
}

#[tokio::test]
async fn g09_preview_names_the_wildcard_that_a_long_policy_hides() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let hosts = |hidden: &str| {
        let named: Vec<String> = (0..50).map(|number| format!("'h{number}.example'")).collect();
        format!("[template.default]\nallow = [{}{hidden}]\n", named.join(", "))
    };
    body(&save(&server, &login, 0, &hosts("")).await, 200);
    let new_hosts = async |policy: String| {
        let asked = json!({ "policy": policy, "days": 1 });
        let preview = body(&login.post(&server, "/v1/policy/preview", &asked).await, 200);
        preview["new_hosts"].clone()
    };
    let found = new_hosts(hosts(", '*.b.example'")).await;
    let expect = json!([{ "template": "default", "host": "*.b.example", "is_asked": false }]);
    assert_eq!(found, expect);
    assert_eq!(new_hosts(hosts("")).await, json!([]), "control: the policy stays the same");
}

#[tokio::test]
async fn explanation_names_the_rule_or_the_nearest_one() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let policy = "[template.default]\nallow = ['GET a.example']\nask = ['b.example']\ndeny = ['c.example']\n";
    body(&save(&server, &login, 0, policy).await, 200);
    let new = json!({ "name": "job", "start": false });
    assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201);
    for (asked, verdict, rule, nearest, code) in [
        (
            json!({ "host": "a.example" }),
            "allow",
            json!("allow GET a.example"),
            json!(null),
            json!(null),
        ),
        (
            json!({ "host": "a.example", "method": "POST", "box": "job" }),
            "deny",
            json!(null),
            json!("allow GET a.example"),
            json!("method"),
        ),
        (
            json!({ "host": "b.example", "path": "/x" }),
            "ask",
            json!("ask b.example"),
            json!(null),
            json!(null),
        ),
        (
            json!({ "host": "c.example" }),
            "deny",
            json!("deny c.example"),
            json!(null),
            json!("denied-by-rule"),
        ),
        (
            json!({ "host": "d.example", "port": 22, "scheme": "tcp" }),
            "deny",
            json!(null),
            json!(null),
            json!("no-rule"),
        ),
    ] {
        let shown = body(&login.post(&server, "/v1/policy/explain", &asked).await, 200);
        assert_eq!(shown["verdict"], verdict, "{asked} {shown}");
        assert_eq!((&shown["rule"], &shown["nearest"]), (&rule, &nearest), "{asked} {shown}");
        assert_eq!(shown["code"], code, "{asked} {shown}");
    }
    for (asked, status, kind) in [
        (json!({ "host": "a_b" }), 400, "invalid"),
        (json!({ "host": "a.example", "scheme": "tcp" }), 400, "invalid"),
        (json!({ "host": "a.example", "box": "job", "template": "x" }), 400, "invalid"),
        (json!({ "host": "a.example", "template": "none" }), 409, "wrong-state"),
        (json!({ "host": "a.example", "box": "none" }), 404, "not-found"),
    ] {
        problem(&login.post(&server, "/v1/policy/explain", &asked).await, status, kind);
    }
}

#[tokio::test]
async fn member_proposes_and_an_administrator_accepts_or_rejects() {
    let server = TestGateway::start().await;
    let owner = team(&server).await;
    let member = server.login_as("team-7", "person:m", "member").await;
    let admin = server.login_as("team-7", "person:a", "admin").await;
    problem(&save(&server, &member, 0, ALLOW_A).await, 403, "forbidden");
    let propose = async |policy: &str| {
        let new = json!({ "policy": policy, "base": 0, "reason": "for the build" });
        body(&member.post(&server, "/v1/policy/proposals", &new).await, 201)
    };
    let (first, second) = (propose(ALLOW_A).await, propose(ALLOW_B).await);
    let path =
        |of: &Value, act: &str| format!("/v1/policy/proposals/{}{act}", of["id"].as_str().unwrap());
    let none = json!({});
    let by_member = member.post(&server, &path(&first, "/accept"), &none).await;
    problem(&by_member, 403, "forbidden");
    let accepted = body(&admin.post(&server, &path(&first, "/accept"), &none).await, 200);
    assert_eq!(accepted["version"], 1);
    let current = owner.get(&server, "/v1/policy").await;
    assert_eq!((&current["policy"], &current["saved_by"]), (&json!(ALLOW_A), &json!("person:a")));
    assert_eq!(current["proposal"], first["id"]);
    // The second proposal changes version 0.
    problem(&admin.post(&server, &path(&second, "/accept"), &none).await, 409, "conflict");
    let again = admin.post(&server, &path(&first, "/accept"), &none).await;
    problem(&again, 409, "wrong-state");
    let rejected = body(&admin.post(&server, &path(&second, "/reject"), &none).await, 200);
    assert_eq!(
        (&rejected["state"], &rejected["decided_by"]),
        (&json!("rejected"), &json!("person:a"))
    );
    let listed = member.get(&server, "/v1/policy/proposals?q=accepted").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["maker"], "person:m");
    let stale = json!({ "policy": ALLOW_B, "base": 0 });
    problem(&member.post(&server, "/v1/policy/proposals", &stale).await, 409, "conflict");
    let invalid = json!({ "policy": "[template.x]\nrootfs = '/'\n" });
    let invalid =
        problem(&member.post(&server, "/v1/policy/proposals", &invalid).await, 400, "invalid");
    assert_eq!(invalid["key"], "rootfs");
    let local = server.login("local").await;
    problem(&local.request(&server, "GET", &path(&first, "")).await, 404, "not-found");
}

#[tokio::test]
async fn proposal_whose_tests_fail_stays_open() {
    let server = TestGateway::start().await;
    let login = team(&server).await;
    let text = format!("{ALLOW_A}[[test]]\nrequest = 'b.example'\nexpect = 'allow'\n");
    let mut headers = login.headers().to_vec();
    headers.push("Idempotency-Key: once".to_owned());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let new = json!({ "policy": text });
    let first = server.post_to(&login.host, "/v1/policy/proposals", &new, &headers).await;
    let second = server.post_to(&login.host, "/v1/policy/proposals", &new, &headers).await;
    assert_eq!((first.status, &first.body), (201, &second.body), "{first:?}");
    let id = body(&first, 201)["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/policy/proposals/{id}");
    let failed = login.post(&server, &format!("{path}/accept"), &json!({})).await;
    assert_eq!(problem(&failed, 409, "test-failed")["failed_tests"][0]["actual"], "deny");
    assert_eq!(login.get(&server, &path).await["state"], "open");
    assert_eq!(login.get(&server, "/v1/policy").await["version"], 0);
}

#[tokio::test]
async fn saved_policy_is_written_at_the_start_after_a_kill_before_it_was_written() {
    let server = TestGateway::mortal().await;
    let login = team(&server).await;
    body(&save(&server, &login, 0, ALLOW_A).await, 200);
    let file = server.lab.state().join("tenants/team-7/policy.toml");
    // The state of a server that was killed between the database and the file.
    let database = rusqlite::Connection::open(server.lab.state().join("gateway.db")).unwrap();
    let changed =
        database.execute("UPDATE policy_version SET text = ?1, written = 0", [ALLOW_B]).unwrap();
    assert_eq!(changed, 1);
    drop(database);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), ALLOW_A, "control");
    let server = server.killed().await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), ALLOW_B);
    assert_eq!(login.get(&server, "/v1/policy").await["policy"], ALLOW_B);
}
