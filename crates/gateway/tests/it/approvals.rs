//! Approvals over the API: gates of runs, and questions of boxes.

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded};
use crate::runs::{GATE, person, start, wait_for};

/// The owner of the tenant in these tests. An answer of the user of the machine counts only in files of this user,
/// and the tests can have another one.
const OWNER: &str = "person:https://id.example#owen";

/// Starts a run with a gate, and returns the run and the approval.
async fn gate(server: &TestGateway, login: &Login, plan: &str) -> (String, Value) {
    let run = start(server, login, plan).await;
    let approval = approval_of(server, login, &format!("run:{run}")).await;
    (run, approval)
}

/// Waits until an approval that matches the filter is listed, and returns it.
async fn approval_of(server: &TestGateway, login: &Login, filter: &str) -> Value {
    let deadline = std::time::Instant::now() + belljar_testkit::DEADLINE;
    loop {
        let list = login.get(server, &format!("/v1/approvals?q={filter}")).await;
        if let Some(id) = list["items"][0]["id"].as_str() {
            return login.get(server, &format!("/v1/approvals/{id}")).await;
        }
        assert!(std::time::Instant::now() < deadline, "no approval with {filter}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn path(approval: &Value) -> String {
    format!("/v1/approvals/{}/answer", approval["id"].as_str().unwrap())
}

async fn answer(
    server: &TestGateway,
    login: &Login,
    approval: &Value,
    answer: &str,
) -> TestResponse {
    let body = json!({ "answer": answer, "digest": approval["digest"] });
    login.post(server, &path(approval), &body).await
}

#[tokio::test]
async fn gate_is_shown_with_its_content_and_answered_once_with_its_digest() {
    let server = TestGateway::start().await;
    let login = person(&server, "owen", "owner").await;
    let (run, approval) = gate(&server, &login, GATE).await;
    assert_eq!((&approval["kind"], &approval["state"]), (&json!("gate"), &json!("open")));
    assert_eq!((&approval["run"], &approval["text"]), (&json!(run), &json!("Go on?")));
    assert_eq!(approval["gate"]["content"], "--- a\ntext\n", "{approval:#}");
    assert_eq!(approval["answers"]["requester"], OWNER);
    assert_eq!(
        (&approval["answers"]["refusal"], &approval["answers"]["approver"]),
        (&Value::Null, &json!("member"))
    );
    let id = approval["id"].as_str().unwrap();
    assert_eq!(id, format!("gate:{}", approval["digest"].as_str().unwrap()));
    let wrong = json!({ "answer": "approve", "digest": "0".repeat(64) });
    problem(&login.post(&server, &path(&approval), &wrong).await, 409, "conflict");
    for (body, field) in [
        (json!({ "answer": "yes", "digest": approval["digest"] }), "/answer"),
        (json!({ "answer": "approve", "digest": "x" }), "/digest"),
    ] {
        let refused = login.post(&server, &path(&approval), &body).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field);
    }
    wait_for(&server, &login, &run, "waiting").await; // nothing was answered
    let answered = answer(&server, &login, &approval, "approve").await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let answered: Value = serde_json::from_str(&answered.body).unwrap();
    assert_eq!((&answered["state"], &answered["by"]), (&json!("allowed"), &json!(OWNER)));
    wait_for(&server, &login, &run, "succeeded").await;
    let again = answer(&server, &login, &approval, "approve").await;
    assert_eq!(again.status, 200, "a repeated click is harmless {again:?}");
    problem(&answer(&server, &login, &approval, "deny").await, 410, "gone");
    let bob = person(&server, "bob", "operator").await;
    problem(&answer(&server, &bob, &approval, "approve").await, 410, "gone");
    assert_eq!(recorded(&server, "local", "approval.given").len(), 1);
    let missing = format!("/v1/approvals/gate:{}", "0".repeat(64));
    problem(&login.request(&server, "GET", &missing).await, 404, "not-found");
}

#[tokio::test]
async fn denial_of_a_gate_has_its_reason_on_record() {
    let server = TestGateway::start().await;
    let login = person(&server, "owen", "owner").await;
    let (run, approval) = gate(&server, &login, GATE).await;
    let body = json!({ "answer": "deny", "digest": approval["digest"], "reason": "not now" });
    let denied = login.post(&server, &path(&approval), &body).await;
    assert_eq!(denied.status, 200, "{denied:?}");
    wait_for(&server, &login, &run, "failed").await;
    assert_eq!(recorded(&server, "local", "approval.refused")[0]["text"], "not now");
    let acts = recorded(&server, "local", "access.changed");
    let act = acts.iter().find(|act| act["act"] == "approval.answered").unwrap();
    assert_eq!(act["details"], json!(["deny", "not now"]), "{act}");
}

#[tokio::test]
async fn list_has_open_approvals_first_and_of_these_the_first_to_expire() {
    let server = TestGateway::start().await;
    let login = person(&server, "owen", "owner").await;
    let plan = |name: &str, deadline: &str| {
        format!(
            "[run]\nname = '{name}'\n[task.ask]\ndo = {{ approval = 'Go on?', deadline = '{deadline}' }}\n"
        )
    };
    let (_, late) = gate(&server, &login, &plan("late", "3h")).await;
    let (_, soon) = gate(&server, &login, &plan("soon", "1h")).await;
    let (_, over) = gate(&server, &login, &plan("over", "2h")).await;
    assert_eq!(answer(&server, &login, &over, "deny").await.status, 200);
    let expected = [&soon, &late, &over].map(|it| it["id"].as_str().unwrap().to_owned());
    let (mut found, mut query) = (Vec::new(), String::new());
    loop {
        let page = login.get(&server, &format!("/v1/approvals?limit=1{query}")).await;
        found.push(page["items"][0]["id"].as_str().unwrap().to_owned());
        let Some(next) = page["next"].as_str() else { break };
        query = format!("&cursor={next}");
    }
    assert_eq!(found, expected);
    for (query, expect) in
        [("state:open", 2), ("state:denied", 1), ("kind:request", 0), ("late", 1)]
    {
        let list = login.get(&server, &format!("/v1/approvals?q={query}")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), expect, "{query}");
    }
}

#[tokio::test]
async fn expired_gate_is_gone() {
    let server = TestGateway::start().await;
    let login = person(&server, "owen", "owner").await;
    let plan = "[task.ask]\ndo = { approval = 'Go on?', deadline = '1s' }\n";
    let (run, approval) = gate(&server, &login, plan).await;
    wait_for(&server, &login, &run, "failed").await;
    problem(&answer(&server, &login, &approval, "approve").await, 410, "gone");
    let shown = login.get(&server, &path(&approval).replace("/answer", "")).await;
    assert_eq!(shown["state"], "expired");
}

#[tokio::test]
async fn g07_no_token_answers_an_approval_whatever_its_scopes_are() {
    let server = TestGateway::start().await;
    let login = person(&server, "owen", "owner").await;
    let (run, approval) = gate(&server, &login, GATE).await;
    let all = ["boxes:read", "boxes:write", "runs:read", "runs:write", "changes:apply", "mcp"];
    for kind in ["service", "agent"] {
        let new = json!({ "name": kind, "kind": kind, "scopes": all });
        let created = login.post(&server, "/v1/tokens", &new).await;
        let created: Value = serde_json::from_str(&created.body).unwrap();
        let token = format!("Authorization: Bearer {}", created["token"].as_str().unwrap());
        let body = json!({ "answer": "approve", "digest": approval["digest"] });
        let refused = server.post_to(&server.host(), &path(&approval), &body, &[&token]).await;
        problem(&refused, 403, "forbidden");
    }
    let auditor = person(&server, "eve", "auditor").await;
    problem(&answer(&server, &auditor, &approval, "approve").await, 403, "forbidden");
    let seen = auditor.get(&server, &path(&approval).replace("/answer", "")).await;
    assert_eq!(seen["gate"]["content"], Value::Null, "an auditor sees no contents");
    assert!(seen["answers"]["refusal"].is_string(), "{seen}");
    let other = person(&server, "bob", "member").await;
    problem(&answer(&server, &other, &approval, "approve").await, 404, "not-found");
    wait_for(&server, &login, &run, "waiting").await; // nobody has answered
    assert_eq!(answer(&server, &login, &approval, "approve").await.status, 200, "control");
}

#[tokio::test]
async fn gate_that_demands_an_operator_or_a_second_person_refuses_others() {
    let server = TestGateway::start().await;
    let login = person(&server, "owen", "owner").await;
    let ada = person(&server, "ada", "member").await;
    let operator = person(&server, "olga", "operator").await;
    let plan = |key: &str| format!("[task.ask]\ndo = {{ approval = 'Go on?', {key} }}\n");
    let (run, approval) = gate(&server, &ada, &plan("approver = 'operator'")).await;
    assert_eq!(approval["answers"]["approver"], "operator", "{approval:#}");
    assert!(approval["answers"]["refusal"].is_string(), "{approval:#}");
    problem(&answer(&server, &ada, &approval, "approve").await, 403, "forbidden");
    assert_eq!(answer(&server, &operator, &approval, "approve").await.status, 200);
    wait_for(&server, &ada, &run, "succeeded").await;
    let (run, approval) = gate(&server, &login, &plan("two_people = true")).await;
    assert_eq!(approval["answers"]["two_people"], true);
    problem(&answer(&server, &login, &approval, "approve").await, 403, "forbidden");
    wait_for(&server, &login, &run, "waiting").await;
    assert_eq!(answer(&server, &operator, &approval, "approve").await.status, 200);
    wait_for(&server, &login, &run, "succeeded").await;
    // The run of a token belongs to the person who made the token.
    let token = login.token(&server, &["runs:read", "runs:write"]).await;
    let token = format!("Authorization: Bearer {token}");
    let body = json!({ "plan": plan("two_people = true") });
    let started = server.post_to(&server.host(), "/v1/runs", &body, &[&token]).await;
    let started: Value = serde_json::from_str(&started.body).unwrap();
    let run = started["id"].as_str().unwrap();
    let approval = approval_of(&server, &login, &format!("run:{run}")).await;
    problem(&answer(&server, &login, &approval, "approve").await, 403, "forbidden");
    assert_eq!(answer(&server, &operator, &approval, "deny").await.status, 200, "control");
}

/// The template of boxes whose requests need the answer of a person.
const ASKING: &str = "[template.asking]\nnet = 'restricted'\nask = [\n\
    { name = 'plain', host = 'plain.example', scheme = 'http' },\n\
    { name = 'strict', host = 'strict.example', scheme = 'http', approver = 'operator' },\n]\n";

/// Creates a box that sends a request, and returns the approval.
async fn request(server: &TestGateway, login: &Login, name: &str, host: &str) -> Value {
    let script = format!(
        "exec 3<>/dev/tcp/{host}/80; printf 'GET /path HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n' >&3; cat <&3; sleep 600"
    );
    let new = json!({ "name": name, "template": "asking", "program": ["bash", "-c", script] });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    approval_of(server, login, &format!("box:{name}")).await
}

#[tokio::test]
async fn question_of_a_box_is_answered_by_the_person_whom_its_rule_permits() {
    let server = TestGateway::configured(ASKING).await;
    let login = server.login("local").await;
    let ada = person(&server, "ada", "member").await;
    let bob = person(&server, "bob", "member").await;
    let approval = request(&server, &ada, "plain", "plain.example").await;
    assert_eq!((&approval["kind"], &approval["box"]), (&json!("request"), &json!("plain")));
    assert_eq!(approval["text"], "GET http://plain.example/path", "{approval:#}");
    assert_eq!(approval["answers"]["requester"], "person:https://id.example#ada");
    problem(&answer(&server, &bob, &approval, "approve").await, 404, "not-found");
    let answered = answer(&server, &ada, &approval, "approve").await;
    assert_eq!(answered.status, 200, "{answered:?}");
    assert_eq!(answer(&server, &ada, &approval, "approve").await.status, 200, "a repeated click");
    assert_eq!(recorded(&server, "local", "approval.given").len(), 1);
    let strict = request(&server, &ada, "strict", "strict.example").await;
    assert_eq!(strict["answers"]["approver"], "operator", "{strict:#}");
    problem(&answer(&server, &ada, &strict, "approve").await, 403, "forbidden");
    let denied = json!({ "answer": "deny", "digest": strict["digest"], "reason": "no" });
    let denied = login.post(&server, &path(&strict), &denied).await;
    assert_eq!(denied.status, 200, "{denied:?}");
    assert!(denied.body.contains("\"denied\""), "{denied:?}");
}
