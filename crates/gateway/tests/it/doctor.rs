//! The routes about the machine.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use belljar_engine::doctor::AttackResult;
use belljar_gateway::Prover;
use serde_json::{Value, json};

use crate::gateway::{TestGateway, problem};

/// Returns an attack suite with two attacks. An attack ends when the test sends a message.
fn suite() -> (Prover, Sender<()>) {
    let (sender, receiver) = channel();
    let receiver: Mutex<Receiver<()>> = Mutex::new(receiver);
    let prover = Prover::new(vec!["A01", "C10"], move |only, ended| {
        let all = ["A01", "C10"].into_iter();
        let chosen = all.filter(|id| only.is_empty() || only.iter().any(|it| it == id));
        let result = |id| {
            receiver.lock().unwrap().recv().unwrap();
            ended();
            let (title, verdict) = ("an attack", "held");
            AttackResult { id, title, kept: true, verdict, detail: "3 checks\u{1b}".to_owned() }
        };
        Ok(chosen.map(result).collect())
    });
    (prover, sender)
}

#[tokio::test]
async fn doctor_describes_the_layers_of_the_machine() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let report = login.get(&server, "/v1/doctor").await;
    let findings = report["findings"].as_array().unwrap();
    let subjects: Vec<&str> = findings.iter().map(|it| it["subject"].as_str().unwrap()).collect();
    for subject in ["user namespaces", "seccomp", "certificates"] {
        assert!(subjects.contains(&subject), "{subjects:?}");
    }
    let is_missing = findings.iter().any(|finding| finding["health"] == "missing");
    assert_eq!(report["healthy"], !is_missing);
    let refused = login.post(&server, "/v1/doctor/prove", &json!({})).await;
    problem(&refused, 409, "wrong-state");
}

#[tokio::test]
async fn attack_suite_runs_once_at_a_time_and_its_result_is_recorded() {
    let (prover, attacks) = suite();
    let server = TestGateway::with(|options| options.prover = Some(prover)).await;
    let login = server.login("local").await;
    problem(&login.request(&server, "GET", "/v1/doctor/prove").await, 404, "not-found");
    let unknown = login.post(&server, "/v1/doctor/prove", &json!({ "only": ["Z99"] })).await;
    assert_eq!(problem(&unknown, 409, "wrong-state")["field"], "/only/0");
    let invalid = login.post(&server, "/v1/doctor/prove", &json!({ "only": ["c10"] })).await;
    assert_eq!(problem(&invalid, 400, "invalid")["field"], "/only");

    let started = login.post(&server, "/v1/doctor/prove", &json!({ "wait_ms": 0 })).await;
    assert_eq!(started.status, 202, "{started:?}");
    let started: Value = serde_json::from_str(&started.body).unwrap();
    assert_eq!((&started["state"], &started["report"]), (&json!("running"), &Value::Null));
    let second = login.post(&server, "/v1/doctor/prove", &json!({})).await;
    problem(&second, 409, "busy");
    attacks.send(()).unwrap();
    let job = loop {
        let job = login.get(&server, "/v1/doctor/prove").await;
        if job["done"] == 1 {
            break job;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&job["of"], &job["state"]), (&json!(2), &json!("running")));
    attacks.send(()).unwrap();
    let job = loop {
        let job = login.get(&server, "/v1/doctor/prove").await;
        if job["state"] != "running" {
            break job;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&job["id"], &job["state"]), (&started["id"], &json!("done")), "{job}");
    let proofs = job["report"]["proofs"].as_array().unwrap();
    assert_eq!((proofs.len(), &proofs[1]["id"]), (2, &json!("C10")));
    assert!(!job.to_string().contains("\\u001b"), "{job}");
    let events = login.get(&server, "/v1/ledger/events?q=doctor&limit=2").await;
    let summary = |place: usize| events["items"][place]["summary"].as_str().unwrap().to_owned();
    assert!(summary(0).contains("attack tests included"), "{events}");
    assert!(summary(1).contains("doctor.proving"), "{events}");

    attacks.send(()).unwrap();
    let body = json!({ "only": ["C10"], "wait_ms": 60_000 });
    let done = login.post(&server, "/v1/doctor/prove", &body).await;
    assert_eq!(done.status, 200, "{done:?}");
    let done: Value = serde_json::from_str(&done.body).unwrap();
    assert_eq!(done["report"]["proofs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn attack_suite_is_for_administrators_of_the_machine() {
    let (prover, attacks) = suite();
    let server = TestGateway::with(|options| options.prover = Some(prover)).await;
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    let team = server.login("team-7").await;
    assert_eq!(team.request(&server, "GET", "/v1/doctor").await.status, 200);
    problem(&team.post(&server, "/v1/doctor/prove", &json!({})).await, 403, "forbidden");
    problem(&team.request(&server, "GET", "/v1/doctor/prove").await, 403, "forbidden");
    for (role, status) in [("auditor", 200), ("operator", 200), ("member", 403)] {
        let who = format!("person:https://id.example#{role}");
        let login = server.login_as("local", &who, role).await;
        assert_eq!(login.request(&server, "GET", "/v1/doctor").await.status, status, "{role}");
        problem(&login.post(&server, "/v1/doctor/prove", &json!({})).await, 403, "forbidden");
    }
    drop(attacks);
}
