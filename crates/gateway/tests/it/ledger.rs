//! The ledger over the API: events, proofs, tiles, verification and redaction.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::doctor::{self, Examination};
use belljar_engine::scope::Scoped;
use belljar_ledger::{AlarmRaised, Draft};
use belljar_model::Caller;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Login, TestGateway, problem};
use crate::verifier::{Hash, SignedSize, hash, is_consistent, is_included, leaf, node, open, root};

const CANARY: &str = "canary-7f3b9c";

/// Returns the scope of a tenant with the user of the server as caller.
fn scope(server: &TestGateway, tenant: &str) -> Scoped {
    let caller = Caller { tenant: tenant.parse().unwrap(), ..Caller::local(1000) };
    server.engine.of(&caller).unwrap()
}

/// Records events whose texts contain `text`.
fn record(server: &TestGateway, tenant: &str, text: &str, count: usize) {
    let ledger = belljar_engine::record::open(&scope(server, tenant)).unwrap();
    let draft = |number: usize| {
        Draft::new(AlarmRaised { alarm: format!("alarm-{number}"), detail: text.to_owned() })
    };
    ledger.record_all((0..count).map(draft).collect()).map(drop).unwrap();
}

/// Records an event with a body of this content.
fn record_body(server: &TestGateway, tenant: &str, content: &str) {
    let report = content.as_bytes();
    let examination = Examination { proved: false, passed: 1, failed: 0, report };
    doctor::record(&scope(server, tenant), &examination).unwrap();
}

async fn with_team(server: &TestGateway) -> Login {
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    server.login("team-7").await
}

fn indices(list: &Value) -> Vec<u64> {
    list["items"].as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect()
}

/// Reads all pages of a list.
async fn all(server: &TestGateway, login: &Login, query: &str) -> Vec<u64> {
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let page = login.get(server, &format!("/v1/ledger/events?{query}{next}")).await;
        found.extend(indices(&page));
        let Some(cursor) = page["next"].as_str() else { return found };
        next = format!("&cursor={cursor}");
    }
}

/// Sends a GET request and returns the status and the bytes of the body.
async fn bytes(server: &TestGateway, login: &Login, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nConnection: close\r\n\r\n",
        login.host, login.cookie
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let end = all.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), all[end + 4..].to_vec())
}

fn hashes(proof: &Value) -> Vec<Hash> {
    proof.as_array().unwrap().iter().map(|text| hash(text.as_str().unwrap())).collect()
}

async fn checkpoint(server: &TestGateway, login: &Login) -> SignedSize {
    let note = login.request(server, "GET", "/v1/ledger/checkpoint").await;
    assert_eq!(note.header("content-type"), Some("text/plain; charset=utf-8"));
    let keys = login.get(server, "/v1/ledger/key").await;
    open(&note.body, keys["signs"].as_str().unwrap()).expect("a valid signature")
}

#[tokio::test]
async fn events_are_listed_in_both_orders_with_filters_and_cursors() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    assert_eq!(login.get(&server, "/v1/ledger/events").await, json!({ "items": [], "next": null }));
    record(&server, "local", "detail", 7);
    let new = json!({ "name": "fix-login", "start": false });
    assert_eq!(login.post(&server, "/v1/boxes", &new).await.status, 201);
    let newest = all(&server, &login, "limit=3").await;
    let mut oldest = all(&server, &login, "limit=3&order=oldest").await;
    assert_eq!(oldest[0], 0);
    oldest.reverse();
    assert_eq!(newest, oldest);
    assert!(newest.len() >= 9, "{newest:?}");
    assert_eq!(all(&server, &login, "q=kind:alarm.raised&limit=2").await.len(), 7);
    assert_eq!(all(&server, &login, "q=kind:alarm").await.len(), 7, "a family of kinds");
    assert_eq!(all(&server, &login, "q=alarm-4").await.len(), 1, "a text of the summary");
    assert_eq!(all(&server, &login, "q=alarm-4+kind:ledger").await.len(), 0);
    let of_box = all(&server, &login, "q=box:fix-login").await;
    assert!(!of_box.is_empty());
    assert_eq!(all(&server, &login, "q=box:fix-login+by:user:1000").await, of_box);
    assert_eq!(all(&server, &login, "q=box:fix-login+by:1001").await.len(), 0);
    for q in ["run:0", "run:0000000000000001", "run:0000000000000001+run:0000000000000002"] {
        assert_eq!(all(&server, &login, &format!("q={q}")).await.len(), 0, "{q}");
    }
    assert_eq!(all(&server, &login, "q=actor:operator").await.len(), newest.len());
    assert_eq!(all(&server, &login, "q=actor:broker").await.len(), 0);
    let page = login.get(&server, "/v1/ledger/events?limit=1").await;
    let other = format!("/v1/ledger/events?order=oldest&cursor={}", page["next"].as_str().unwrap());
    problem(&login.request(&server, "GET", &other).await, 400, "invalid");
    let item = &page["items"][0];
    let one = format!("/v1/ledger/events/{}", item["index"]);
    let detail = login.get(&server, &one).await;
    assert_eq!((&detail["leaf"], &detail["kind"]), (&item["leaf"], &item["kind"]));
    let entry = STANDARD.decode(detail["bytes"].as_str().unwrap()).unwrap();
    assert_eq!(leaf(&entry), hash(detail["leaf"].as_str().unwrap()));
    for path in
        ["/v1/ledger/events/999999", "/v1/ledger/events/x", "/v1/ledger/events/999999/proof"]
    {
        problem(&login.request(&server, "GET", path).await, 404, "not-found");
    }
}

#[tokio::test]
async fn f13_hostile_texts_of_events_are_escaped() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    record(&server, "local", "\u{1b}[31m\u{202e}<script>\u{7}", 1);
    for path in ["/v1/ledger/events", "/v1/ledger/events/1"] {
        let response = login.request(&server, "GET", path).await;
        assert!(response.body.contains("<script>"), "control: {response:?}");
        let value: Value = serde_json::from_str(&response.body).unwrap();
        let text = value.to_string();
        for hostile in ["\\u001b", "\\u0007", "\u{202e}"] {
            assert!(!text.contains(hostile), "{path} {hostile:?} {text}");
        }
    }
}

#[tokio::test]
async fn h04_proofs_over_the_api_are_valid_for_an_independent_verifier() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    record(&server, "local", "x", 5);
    let first = checkpoint(&server, &login).await;
    record(&server, "local", "x", 600);
    let second = checkpoint(&server, &login).await;
    assert_eq!(second.size, first.size + 600);
    let keys = login.get(&server, "/v1/ledger/key").await;
    let key = keys["signs"].as_str().unwrap();
    for index in [0, 1, 4, 255, 256, 511, 512, second.size - 1] {
        let signed = login.get(&server, &format!("/v1/ledger/events/{index}/proof")).await;
        let proof = &signed["proof"];
        let of = open(proof["checkpoint"].as_str().unwrap(), key).unwrap();
        assert_eq!(
            (signed["size"].as_u64(), hash(signed["root"].as_str().unwrap())),
            (Some(of.size), of.root)
        );
        let entry = STANDARD.decode(proof["entry"].as_str().unwrap()).unwrap();
        let path = hashes(&proof["proof"]);
        assert!(is_included(leaf(&entry), index, of.size, &path, of.root), "{index}");
        assert!(!is_included(leaf(b"other"), index, of.size, &path, of.root), "control");
        assert!(!is_included(leaf(&entry), index ^ 1, of.size, &path, of.root), "control");
    }
    let path = format!("/v1/ledger/consistency?from={}&to={}", first.size, second.size);
    let proof = login.get(&server, &path).await;
    let (old, new) = ((first.size, first.root), (second.size, second.root));
    let steps = hashes(&proof["proof"]);
    assert!(is_consistent(old, new, &steps));
    assert!(!is_consistent((first.size, leaf(b"x")), new, &steps), "control");
    assert_eq!(open(proof["new"]["checkpoint"].as_str().unwrap(), key), Some(second.clone()));
    let all = login.get(&server, &format!("/v1/ledger/consistency?from={}", first.size)).await;
    assert_eq!(all, proof, "the newest size is the default");
    let reversed = format!("/v1/ledger/consistency?from={}&to={}", second.size, first.size);
    problem(&login.request(&server, "GET", &reversed).await, 409, "wrong-state");
    let beyond = format!("/v1/ledger/consistency?from=1&to={}", second.size + 1000);
    problem(&login.request(&server, "GET", &beyond).await, 409, "wrong-state");
    let note = login.request(&server, "GET", "/v1/ledger/checkpoint").await.body;
    let changed = note.replacen(&second.size.to_string(), &(second.size + 1).to_string(), 1);
    assert_eq!(open(&changed, key), None, "control: a changed checkpoint is refused");
}

#[tokio::test]
async fn tiles_of_the_ledger_lead_to_the_root_of_the_checkpoint() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    record(&server, "local", "x", 590);
    let signed = checkpoint(&server, &login).await;
    let width = signed.size - 512;
    let (mut leaves, mut entries) = (Vec::new(), Vec::new());
    for tile in ["000".to_owned(), "001".to_owned(), format!("002.p/{width}")] {
        let (status, hashes) = bytes(&server, &login, &format!("/v1/ledger/tile/0/{tile}")).await;
        assert_eq!(status, 200);
        leaves.extend(hashes.chunks_exact(32).map(|hash| Hash::try_from(hash).unwrap()));
        let path = format!("/v1/ledger/tile/entries/{tile}");
        let (status, bundle) = bytes(&server, &login, &path).await;
        assert_eq!(status, 200);
        let mut rest = bundle.as_slice();
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let (entry, after) = after.split_at(u16::from_be_bytes(*length).into());
            entries.push(leaf(entry));
            rest = after;
        }
    }
    assert_eq!(u64::try_from(leaves.len()).unwrap(), signed.size);
    assert_eq!(leaves, entries);
    assert_eq!(root(&leaves), signed.root);
    let (_, above) = bytes(&server, &login, "/v1/ledger/tile/1/000.p/2").await;
    let halves = [root(&leaves[..256]), root(&leaves[256..512])];
    assert_eq!(above, halves.concat());
    assert_eq!(node(&halves[0], &halves[1]), root(&leaves[..512]));
    for path in ["0/001.p/0", "0/1", "0/002", "1/000", "x", "0/000/000", "entries/003", "64/000"] {
        let (status, _) = bytes(&server, &login, &format!("/v1/ledger/tile/{path}")).await;
        assert_eq!(status, 404, "{path}");
    }
}

async fn verify(server: &TestGateway, login: &Login, body: &Value) -> Value {
    let mut body = body.clone();
    body["wait_ms"] = json!(60_000);
    let done = login.post(server, "/v1/ledger/verify", &body).await;
    assert_eq!(done.status, 200, "{done:?}");
    let job: Value = serde_json::from_str(&done.body).unwrap();
    assert_eq!(job["state"], "done", "{job}");
    let again = login.get(server, "/v1/ledger/verify").await;
    assert_eq!((&again["id"], &again["report"]), (&job["id"], &job["report"]));
    job["report"].clone()
}

fn log_of_team(server: &TestGateway) -> PathBuf {
    server.lab.state().join("tenants/team-7/ledger/events.log")
}

fn change_byte(file: &Path, at: u64) {
    let mut file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
}

#[tokio::test]
async fn h01_h02_truncated_and_changed_ledgers_are_reported_by_verify_over_the_api() {
    let server = TestGateway::start().await;
    let team = with_team(&server).await;
    problem(&team.request(&server, "GET", "/v1/ledger/verify").await, 404, "not-found");
    record(&server, "team-7", "x", 20);
    let note = team.request(&server, "GET", "/v1/ledger/checkpoint").await.body;
    record(&server, "team-7", "x", 20);
    let checkpoints = json!({ "checkpoints": [note], "deep": true });
    let report = verify(&server, &team, &checkpoints).await;
    assert_eq!((&report["sound"], &report["findings"]), (&json!(true), &json!([])), "control");
    let size = report["events"].as_u64().unwrap();
    assert!(
        report["anchored"].as_u64().unwrap() < size && report["bodies"].is_object(),
        "{report}"
    );

    let log = log_of_team(&server);
    let length = std::fs::metadata(&log).unwrap().len();
    let intact = std::fs::read(&log).unwrap();
    change_byte(&log, length / 2);
    let report = verify(&server, &team, &json!({})).await;
    assert_eq!(report["sound"], false, "{report}");
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["code"]),
        (&json!("damage"), &json!("batch-damaged"))
    );
    let home = server.lab.state().display().to_string();
    assert!(!report.to_string().contains(&home), "paths of the host: {report}");

    std::fs::write(&log, &intact[..intact.len() - 100]).unwrap();
    let report = verify(&server, &team, &checkpoints).await;
    let findings = report["findings"].to_string();
    assert!(report["sound"] == false && findings.contains("log-truncated"), "{report}");
    std::fs::write(&log, &intact).unwrap();
    assert_eq!(verify(&server, &team, &json!({})).await["sound"], true, "control");
    let invalid = team.post(&server, "/v1/ledger/verify", &json!({ "key": "x" })).await;
    assert_eq!(problem(&invalid, 400, "invalid")["field"], "/key");
}

#[tokio::test]
async fn h06_verify_over_the_api_raises_no_false_alarm_during_writes() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    record(&server, "local", "x", 1);
    let state = scope(&server, "local");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let ledger = belljar_engine::record::open(&state).unwrap();
        let mut count = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let event = AlarmRaised { alarm: "a".to_owned(), detail: "b".to_owned() };
            ledger.record(Draft::new(event)).map(drop).unwrap();
            count += 1;
        }
        count
    });
    for _ in 0..5 {
        let report = verify(&server, &login, &json!({ "deep": true })).await;
        assert_eq!(report["sound"], true, "{report}");
        let newest = indices(&login.get(&server, "/v1/ledger/events?limit=1").await)[0];
        let signed = login.get(&server, &format!("/v1/ledger/events/{newest}/proof")).await;
        let entry = STANDARD.decode(signed["proof"]["entry"].as_str().unwrap()).unwrap();
        let (size, root) =
            (signed["size"].as_u64().unwrap(), hash(signed["root"].as_str().unwrap()));
        let path = hashes(&signed["proof"]["proof"]);
        assert!(is_included(leaf(&entry), newest, size, &path, root));
    }
    stop.send(()).unwrap();
    assert!(writer.join().unwrap() > 0, "control: events were recorded meanwhile");
}

#[tokio::test]
async fn h09_redaction_over_the_api_is_recorded_and_removes_the_content() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    record_body(&server, "local", CANARY);
    let event = all(&server, &login, "q=kind:doctor.checked").await[0];
    let path = format!("/v1/ledger/events/{event}");
    let before = login.get(&server, &path).await;
    let body = &before["bodies"][0];
    assert_eq!(body["content"], STANDARD.encode(CANARY), "control");
    let before_size = checkpoint(&server, &login).await;

    let request = json!({ "events": [event], "bodies": [body["hash"]], "reason": "personal data" });
    let token = login.token(&server, &["ledger:read"]).await;
    let header = format!("Authorization: Bearer {token}");
    let refused = server.post_to(&server.host(), "/v1/ledger/redact", &request, &[&header]).await;
    problem(&refused, 403, "forbidden");
    let done = login.post(&server, "/v1/ledger/redact", &request).await;
    assert_eq!(done.status, 200, "{done:?}");
    let done: Value = serde_json::from_str(&done.body).unwrap();
    assert_eq!((&done["redacted"], &done["contents"]), (&json!([body["hash"]]), &json!(1)));

    let after = login.get(&server, &path).await;
    let gone = &after["bodies"][0];
    assert_eq!((&gone["state"], &gone["content"]), (&json!("redacted"), &Value::Null));
    assert_eq!(after["bytes"], before["bytes"], "the event itself does not change");
    let by = gone["removed_by"].as_u64().unwrap();
    let redaction = login.get(&server, &format!("/v1/ledger/events/{by}")).await;
    assert_eq!(redaction["kind"], "ledger.redacted");
    assert!(redaction.to_string().contains("personal data"), "{redaction}");
    let who = login.get(&server, &format!("/v1/ledger/events/{}", by - 1)).await;
    let summary = who["summary"].as_str().unwrap();
    assert!(summary.contains("ledger.redacted") && who["by"] == "user:1000", "{who}");
    let report = verify(&server, &login, &json!({ "deep": true })).await;
    assert_eq!((&report["sound"], &report["bodies"]["redacted"]), (&json!(true), &json!(1)));
    let from = format!("/v1/ledger/consistency?from={}", before_size.size);
    let proof = login.get(&server, &from).await;
    let new = checkpoint(&server, &login).await;
    let old = (before_size.size, before_size.root);
    assert!(is_consistent(old, (new.size, new.root), &hashes(&proof["proof"])));

    for (request, status, kind) in [
        (json!({ "events": [by - 1], "reason": "x" }), 409, "wrong-state"),
        (json!({ "events": [999_999], "reason": "x" }), 404, "not-found"),
        (json!({ "bodies": ["0".repeat(64)], "reason": "x" }), 404, "not-found"),
        (json!({ "bodies": ["0"], "reason": "x" }), 400, "invalid"),
        (json!({ "events": [event], "reason": "" }), 400, "invalid"),
        (json!({ "events": [event], "reason": "a\nb" }), 400, "invalid"),
        (json!({ "events": [event] }), 400, "invalid"),
    ] {
        problem(&login.post(&server, "/v1/ledger/redact", &request).await, status, kind);
    }
}

#[tokio::test]
async fn f08_events_proofs_and_tiles_of_another_tenant_are_unknown() {
    let server = TestGateway::start().await;
    let (local, team) = (server.login("local").await, with_team(&server).await);
    record(&server, "local", CANARY, 300);
    record_body(&server, "local", CANARY);
    record(&server, "team-7", "theirs", 2);
    let known = local.get(&server, "/v1/ledger/events?limit=200").await;
    assert!(known.to_string().contains(CANARY), "control");
    let size = checkpoint(&server, &local).await.size;
    let own = checkpoint(&server, &team).await.size;
    assert!(own < 10 && size > 300, "{own} {size}");
    let last = size - 1;
    for path in [
        format!("/v1/ledger/events/{last}"),
        format!("/v1/ledger/events/{last}/proof"),
        "/v1/ledger/tile/0/000".to_owned(),
        "/v1/ledger/tile/entries/000".to_owned(),
        "/v1/ledger/events?ledger=system".to_owned(),
        "/v1/ledger/checkpoint?ledger=system".to_owned(),
        "/v1/ledger/verify?ledger=system".to_owned(),
    ] {
        assert_eq!(bytes(&server, &team, &path).await.0, 404, "{path}");
    }
    let cursor = local.get(&server, "/v1/ledger/events?limit=1").await;
    let with_cursor = format!("/v1/ledger/events?cursor={}", cursor["next"].as_str().unwrap());
    problem(&team.request(&server, "GET", &with_cursor).await, 400, "invalid");
    let beyond = format!("/v1/ledger/consistency?from=1&to={last}");
    problem(&team.request(&server, "GET", &beyond).await, 409, "wrong-state");
    let body = local.get(&server, &format!("/v1/ledger/events/{last}")).await;
    let request = json!({ "bodies": [body["bodies"][0]["hash"]], "reason": "x" });
    problem(&team.post(&server, "/v1/ledger/redact", &request).await, 404, "not-found");
    for path in [
        "/v1/ledger/events?limit=200".to_owned(),
        "/v1/ledger/events/0".to_owned(),
        "/v1/ledger/checkpoint".to_owned(),
        "/v1/ledger/key".to_owned(),
        "/v1/ledger/consistency".to_owned(),
        format!("/v1/ledger/tile/entries/000.p/{own}"),
        format!("/v1/ledger/tile/0/000.p/{own}"),
    ] {
        let (status, body) = bytes(&server, &team, &path).await;
        assert_eq!(status, 200, "{path}");
        let text = String::from_utf8_lossy(&body);
        assert!(!text.contains(CANARY) && !text.contains("local"), "{path} {text}");
    }
}

#[tokio::test]
async fn auditors_see_all_events_without_contents_and_members_only_their_own() {
    let server = TestGateway::start().await;
    let owner = server.login("local").await;
    let auditor = server.login_as("local", "person:https://id.example#eve", "auditor").await;
    let member = server.login_as("local", "person:https://id.example#bob", "member").await;
    record_body(&server, "local", CANARY);
    let event = all(&server, &owner, "q=kind:doctor.checked").await[0];
    let path = format!("/v1/ledger/events/{event}");
    let encoded = STANDARD.encode(CANARY);
    let text = owner.get(&server, &path).await.to_string();
    assert!(text.contains(&encoded), "control");
    let text = auditor.get(&server, &path).await.to_string();
    assert!(!text.contains(&encoded) && text.contains("kept"), "{text}");
    assert_eq!(all(&server, &auditor, "").await, all(&server, &owner, "").await);
    assert_eq!(bytes(&server, &auditor, "/v1/ledger/tile/0/000.p/1").await.0, 200);
    assert_eq!(verify(&server, &auditor, &json!({})).await["sound"], true);
    let token = auditor.token(&server, &["ledger:read"]).await;
    let text = server.with_token(&token, &path).await.body;
    assert!(!text.contains(&encoded) && text.contains("kept"), "{text}");

    problem(&member.request(&server, "GET", &path).await, 404, "not-found");
    problem(&member.request(&server, "GET", &format!("{path}/proof")).await, 404, "not-found");
    for denied in ["/v1/ledger/tile/0/000.p/1", "/v1/ledger/verify"] {
        problem(&member.request(&server, "GET", denied).await, 403, "forbidden");
    }
    let own = all(&server, &member, "").await;
    assert_eq!(own.len(), 2, "the two denials");
    for index in &own {
        let event = member.get(&server, &format!("/v1/ledger/events/{index}")).await;
        assert_eq!(event["by"], "person:https://id.example#bob");
        let signed = member.get(&server, &format!("/v1/ledger/events/{index}/proof")).await;
        let entry = STANDARD.decode(signed["proof"]["entry"].as_str().unwrap()).unwrap();
        let (size, root) =
            (signed["size"].as_u64().unwrap(), hash(signed["root"].as_str().unwrap()));
        let path = hashes(&signed["proof"]["proof"]);
        assert!(is_included(leaf(&entry), *index, size, &path, root));
    }
    assert_eq!(member.request(&server, "GET", "/v1/ledger/checkpoint").await.status, 200);
    for login in [&auditor, &member] {
        let request = json!({ "events": [event], "reason": "x" });
        problem(&login.post(&server, "/v1/ledger/redact", &request).await, 403, "forbidden");
    }
    assert!(owner.get(&server, &path).await.to_string().contains(&encoded), "control");
}

#[tokio::test]
async fn ledger_of_logins_is_readable_by_auditors_of_the_tenant_local_only() {
    let server = TestGateway::start().await;
    let team = with_team(&server).await;
    record(&server, "local", "x", 1);
    for role in ["owner", "admin", "auditor"] {
        let who = format!("person:https://id.example#{role}");
        let login = server.login_as("local", &who, role).await;
        let events = login.get(&server, "/v1/ledger/events?ledger=system&q=login").await;
        assert!(!indices(&events).is_empty(), "{role} {events}");
        let index = indices(&events)[0];
        let one = format!("/v1/ledger/events/{index}/proof?ledger=system");
        assert_eq!(login.request(&server, "GET", &one).await.status, 200);
        let report = verify(&server, &login, &json!({ "ledger": "tenant" })).await;
        assert_eq!(report["sound"], true);
        let body = json!({ "ledger": "system", "wait_ms": 60_000 });
        assert_eq!(login.post(&server, "/v1/ledger/verify", &body).await.status, 200);
    }
    for role in ["operator", "member"] {
        let who = format!("person:https://id.example#{role}");
        let login = server.login_as("local", &who, role).await;
        let refused = login.request(&server, "GET", "/v1/ledger/events?ledger=system").await;
        problem(&refused, 404, "not-found");
    }
    let refused = team.request(&server, "GET", "/v1/ledger/key?ledger=system").await;
    problem(&refused, 404, "not-found");
}
