//! The changes of boxes over the API: list, hunks, apply and discard.

use std::fs;

use serde_json::{Value, json};

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded};

const CHANGES: &str = "/v1/boxes/job/changes";

/// Returns 30 numbered lines with two replaced ones.
fn text(third: &str, twentieth: &str) -> String {
    let line = |number: usize| match number {
        3 => format!("{third}\n"),
        20 => format!("{twentieth}\n"),
        _ => format!("{number}\n"),
    };
    (1..=30).map(line).collect()
}

/// Starts a box in the workspace of the test whose script changes files, and waits until it has ended.
async fn changed(server: &TestGateway, login: &Login, script: &str) {
    let program = json!(["/bin/sh", "-c", script]);
    let workspace = json!({ "directory": server.lab.workspace() });
    let new = json!({ "name": "job", "program": program, "workspace": workspace });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    let end = tokio::time::Instant::now() + belljar_testkit::DEADLINE;
    while login.get(server, "/v1/boxes/job").await["state"] != "stopped" {
        assert!(tokio::time::Instant::now() < end, "the script does not end");
    }
}

/// The script of a box that changes two lines of a text and adds files.
fn script() -> String {
    let sed = "sed -i -e 's/^3$/three/' -e 's/^20$/twenty/' text";
    format!("{sed}; echo new > added; printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; rm old")
}

async fn start() -> (TestGateway, Login) {
    let server = TestGateway::unlimited().await;
    server.lab.write("text", text("3", "20"));
    server.lab.write("old", "old\n");
    let login = server.login("local").await;
    changed(&server, &login, &script()).await;
    (server, login)
}

async fn digest(server: &TestGateway, login: &Login) -> String {
    login.get(server, CHANGES).await["digest"].as_str().unwrap().to_owned()
}

async fn apply(server: &TestGateway, login: &Login, mut body: Value) -> TestResponse {
    if body.get("digest").is_none() {
        body["digest"] = json!(digest(server, login).await);
    }
    login.post(server, &format!("{CHANGES}/apply"), &body).await
}

fn json_of(response: &TestResponse) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    serde_json::from_str(&response.body).unwrap()
}

fn read(server: &TestGateway, name: &str) -> String {
    fs::read_to_string(server.lab.workspace().join(name)).unwrap_or_default()
}

#[tokio::test]
async fn changes_are_listed_with_marks_shown_as_hunks_and_applied() {
    let (server, login) = start().await;
    let list = login.get(&server, CHANGES).await;
    let shown: Vec<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            let marks = change["marks"].as_array().unwrap().len();
            format!("{} {} {} {marks}", change["kind"], change["path"], change["executable"])
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#""added" "added" false 0"#,
            r#""deleted" "old" false 0"#,
            r#""added" "run.sh" true 1"#,
            r#""modified" "text" false 0"#
        ]
    );
    assert_eq!((&list["workspace"], &list["next"]), (&json!("overlay"), &Value::Null));
    let marked = login.get(&server, &format!("{CHANGES}?q=marked:yes")).await;
    assert_eq!(marked["items"].as_array().unwrap().len(), 1);
    assert_eq!(marked["digest"], list["digest"], "the digest is of all changes");
    let page = login.get(&server, &format!("{CHANGES}?limit=3")).await;
    let next = page["next"].as_str().unwrap();
    let page = login.get(&server, &format!("{CHANGES}?limit=3&cursor={next}")).await;
    assert_eq!(page["items"][0]["path"], "text");
    let hunks = login.get(&server, &format!("{CHANGES}/text")).await;
    assert_eq!((&hunks["digest"], &hunks["can_choose"]), (&list["digest"], &json!(true)));
    assert_eq!(hunks["hunks"][0]["number"], 1);
    assert_eq!(hunks["hunks"][1]["old_start"], 17);
    let lines = hunks["hunks"][1]["lines"].as_array().unwrap();
    assert_eq!((&lines[3], &lines[4]), (&json!("-20"), &json!("+twenty")));
    problem(&login.request(&server, "GET", &format!("{CHANGES}/none")).await, 404, "not-found");
    let paths = json!({ "paths": ["added", "old", "text"] });
    let report = json_of(&apply(&server, &login, paths).await);
    assert_eq!((&report["applied"], &report["has_more"]), (&json!(3), &json!(true)), "{report}");
    assert_eq!(read(&server, "text"), text("three", "twenty"));
    assert_eq!(read(&server, "added"), "new\n");
    assert!(!server.lab.workspace().join("old").exists());
    assert!(!server.lab.workspace().join("run.sh").exists());
    let rest = json!({ "include_executable": ["run.sh"] });
    let report = json_of(&apply(&server, &login, rest).await);
    assert_eq!(report["has_more"], false, "{report}");
    assert!(server.lab.workspace().join("run.sh").exists());
    assert_eq!(login.get(&server, CHANGES).await["items"], json!([]));
    assert_eq!(recorded(&server, "local", "workspace.applied").len(), 2);
}

#[tokio::test]
async fn chosen_hunks_are_applied_one_after_the_other_beside_changes_of_the_host() {
    let (server, login) = start().await;
    let hunks = |numbers: &[u32]| json!({ "hunks": [{ "path": "text", "numbers": numbers }] });
    let report = json_of(&apply(&server, &login, hunks(&[2])).await);
    assert_eq!((&report["applied"], &report["has_more"]), (&json!(1), &json!(true)), "{report}");
    assert_eq!(read(&server, "text"), text("3", "twenty"));
    // The host adds a line that is in no hunk.
    server.lab.write("text", text("3", "twenty") + "of the host\n");
    json_of(&apply(&server, &login, hunks(&[1])).await);
    assert_eq!(read(&server, "text"), text("three", "twenty") + "of the host\n");
    let again = json_of(&apply(&server, &login, hunks(&[1, 2])).await);
    assert_eq!(again["items"][0]["result"], "already-there", "{again}");
    problem(&apply(&server, &login, hunks(&[3])).await, 409, "wrong-state");
    let both = json!({ "paths": ["text"], "hunks": [{ "path": "text", "numbers": [1] }] });
    assert_eq!(problem(&apply(&server, &login, both).await, 400, "invalid")["field"], "/paths/0");
    let added = json!({ "hunks": [{ "path": "added", "numbers": [1] }] });
    problem(&apply(&server, &login, added).await, 409, "wrong-state");
}

#[tokio::test]
async fn apply_is_refused_without_effect_for_another_digest_a_marked_file_or_a_conflict() {
    let (server, login) = start().await;
    let unchanged = |about: &str| {
        assert_eq!(read(&server, "added"), "", "{about}");
        assert!(server.lab.workspace().join("old").exists(), "{about}");
    };
    let other = json!({ "digest": "0".repeat(64) });
    let refused = apply(&server, &login, other.clone()).await;
    assert_eq!(problem(&refused, 409, "changed")["field"], "/digest");
    let discard = format!("{CHANGES}/discard");
    problem(&login.post(&server, &discard, &other).await, 409, "changed");
    unchanged("digest");
    let refused = problem(&apply(&server, &login, json!({})).await, 409, "marked");
    assert!(refused["detail"].as_str().unwrap().contains("run.sh"), "{refused}");
    unchanged("mark");
    server.lab.write("text", text("of the host", "20"));
    let all = json!({ "include_executable": ["run.sh"] });
    let refused = problem(&apply(&server, &login, all.clone()).await, 409, "conflict");
    assert!(refused["detail"].as_str().unwrap().contains("text"), "{refused}");
    let hunk = |number: u32| json!({ "hunks": [{ "path": "text", "numbers": [number] }] });
    problem(&apply(&server, &login, hunk(1)).await, 409, "conflict");
    unchanged("conflict");
    json_of(&apply(&server, &login, hunk(2)).await);
    assert_eq!(read(&server, "text"), text("of the host", "twenty"), "control: the other hunk");
    problem(&apply(&server, &login, json!({ "paths": ["none"] })).await, 409, "wrong-state");
    problem(&apply(&server, &login, json!({ "to": "branch" })).await, 409, "wrong-state");
    server.lab.write("text", text("3", "20"));
    json_of(&apply(&server, &login, all).await);
}

#[tokio::test]
async fn c10_name_like_a_pattern_selects_only_itself() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let script = "echo 1 > '*'; echo 2 > '**'; echo 3 > other; \
                  printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh";
    changed(&server, &login, script).await;
    let report = json_of(&apply(&server, &login, json!({ "paths": ["*", "**"] })).await);
    assert_eq!(report["applied"], 2, "{report}");
    assert!(!server.lab.workspace().join("other").exists());
    let all = json!({ "paths": ["run.sh"], "include_executable": ["*", "**"] });
    problem(&apply(&server, &login, all).await, 409, "marked");
    let named = json!({ "paths": ["run.sh"], "include_executable": ["run.sh"] });
    assert_eq!(json_of(&apply(&server, &login, named).await)["applied"], 1, "control");
}

#[tokio::test]
async fn changes_of_a_running_box_are_listed_and_not_applied() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let workspace = json!({ "directory": server.lab.workspace() });
    let program = json!(["/bin/sleep", "600"]);
    let new = json!({ "name": "job", "program": program, "workspace": workspace });
    assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201);
    assert_eq!(login.get(&server, CHANGES).await["items"], json!([]));
    let before = digest(&server, &login).await;
    let lines =
        ["PUT /v1/boxes/job/files/workspace/apply HTTP/1.1", &format!("Host: {}", login.host)];
    let own = login.headers();
    let mut lines: Vec<&str> = lines.into_iter().chain(own.iter().map(String::as_str)).collect();
    lines.extend(["Content-Type: application/octet-stream", "Content-Length: 3"]);
    assert_eq!(server.lines_with(&lines, "new").await.status, 201);
    let list = login.get(&server, CHANGES).await;
    assert_eq!(list["items"][0]["path"], "apply", "{list}");
    assert_ne!(list["digest"], json!(before));
    let hunks = login.get(&server, &format!("{CHANGES}/apply")).await;
    assert_eq!(
        hunks["hunks"][0]["lines"],
        json!(["+new", "\\"]),
        "a file with the name of a route"
    );
    problem(&apply(&server, &login, json!({})).await, 409, "wrong-state");
    let stop = json!({ "now": true });
    assert_eq!(login.post(&server, "/v1/boxes/job/stop", &stop).await.status, 200);
    json_of(&apply(&server, &login, json!({})).await);
    assert_eq!(read(&server, "apply"), "new");
}

#[tokio::test]
async fn discarded_changes_are_gone_from_the_box_and_the_host_is_unchanged() {
    let (server, login) = start().await;
    let body = json!({ "digest": digest(&server, &login).await });
    let discarded = login.post(&server, &format!("{CHANGES}/discard"), &body).await;
    assert_eq!(discarded.status, 204, "{discarded:?}");
    assert_eq!(login.get(&server, CHANGES).await["items"], json!([]));
    assert_eq!(read(&server, "text"), text("3", "20"));
    let again = login.post(&server, &format!("{CHANGES}/discard"), &body).await;
    problem(&again, 409, "changed");
}

#[tokio::test]
async fn repeated_apply_with_the_same_key_is_answered_with_the_first_report() {
    let (server, login) = start().await;
    let mut headers = login.headers().to_vec();
    headers.push("Idempotency-Key: once".to_owned());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let body = json!({ "digest": digest(&server, &login).await, "paths": ["added"] });
    let path = format!("{CHANGES}/apply");
    let first = server.post_to(&login.host, &path, &body, &headers).await;
    fs::remove_file(server.lab.workspace().join("added")).unwrap();
    let second = server.post_to(&login.host, &path, &body, &headers).await;
    assert_eq!((first.status, second.status), (200, 200), "{second:?}");
    assert_eq!(first.body, second.body);
    assert!(!server.lab.workspace().join("added").exists(), "the second request has no effect");
}

#[tokio::test]
async fn f11_auditor_lists_changes_without_contents_and_applies_nothing() {
    let (server, login) = start().await;
    let list = login.get(&server, CHANGES).await;
    let who = "person:https://id.example#auditor";
    let auditor = server.login_as("local", who, "auditor").await;
    assert_eq!(auditor.get(&server, CHANGES).await, list);
    let shown = auditor.request(&server, "GET", &format!("{CHANGES}/text")).await;
    problem(&shown, 403, "forbidden");
    let body = json!({ "digest": list["digest"] });
    for act in ["apply", "discard"] {
        let refused = auditor.post(&server, &format!("{CHANGES}/{act}"), &body).await;
        problem(&refused, 403, "forbidden");
    }
    let token = login.token(&server, &["boxes:read", "boxes:write"]).await;
    let token = format!("Authorization: Bearer {token}");
    let path = format!("{CHANGES}/discard");
    let refused = server.post_to(&server.host(), &path, &body, &[&token]).await;
    problem(&refused, 403, "forbidden");
    let token = login.token(&server, &["changes:apply"]).await;
    let token = format!("Authorization: Bearer {token}");
    let allowed = server.post_to(&server.host(), &path, &body, &[&token]).await;
    assert_eq!(allowed.status, 204, "control: {allowed:?}");
}
