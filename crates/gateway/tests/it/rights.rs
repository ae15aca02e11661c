//! Every route of the API with every kind of sender: the right sender succeeds, and all others are refused.
//!
//! The expected results are made from `x-belljar-rights` of the OpenAPI document. [`steps::steps`] has a valid request
//! for each operation of the document.

#[cfg(test)]
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use belljar_gateway::{Prover, Rate};
use belljar_ledger::{Draft, RequestDecided};
use belljar_model::{Caller, RunId};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use self::steps::{Step, step, steps};
use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway};

/// A part of the names of all objects of the other tenant.
const CANARY: &str = "canary7";

/// Routes whose response does not end.
const STREAMS: [&str; 3] =
    ["GET /v1/events", "GET /v1/boxes/{box}/screen", "GET /v1/execs/{exec}/stream"];

/// The objects that requests concern, by the names of the parts of paths.
#[derive(Clone)]
struct Objects(BTreeMap<String, String>);

impl Objects {
    fn named(name: &str) -> Self {
        let known = [
            ("name", name),
            ("schedule", name),
            ("webhook", name),
            ("task", "gate"),
            ("path", "tmp/file-of-a-test"),
            ("tile", "0/000.p/1"),
        ];
        Self(known.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Replaces each `{name}` of a text by the saved value.
    fn fill(&self, text: &str) -> String {
        let known = self.0.iter();
        known.fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }

    fn fill_body(&self, body: &Value) -> Value {
        match body {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_body(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.fill_body(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => body.clone(),
        }
    }

    /// Saves the parts of a response that later requests need. Returns whether it has all of them.
    fn save(&mut self, step: &Step, body: &str) -> bool {
        if step.saves.is_empty() {
            return true;
        }
        let body: Value = serde_json::from_str(body).unwrap();
        for (name, pointer) in step.saves {
            let Some(value) = body.pointer(pointer) else { return false };
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.0.insert((*name).to_owned(), text);
        }
        true
    }
}

/// A sender of requests.
struct Sender {
    name: String,
    /// The name of the host that the requests are for, and the headers of the credential.
    host: String,
    credential: Vec<String>,
    /// The role of the person, or of the maker of the token.
    role: &'static str,
    /// The kind of the token and its scopes.
    token: Option<(&'static str, Vec<String>)>,
}

impl Sender {
    fn person(name: &str, role: &'static str, login: &Login) -> Self {
        let (host, credential) = (login.host.clone(), login.headers().to_vec());
        Self { name: name.to_owned(), host, credential, role, token: None }
    }

    async fn token(
        server: &TestGateway,
        maker: (&Login, &'static str),
        kind: &'static str,
        scopes: &[&str],
    ) -> Self {
        let (login, role) = maker;
        let name = format!("{kind}-{role}-{}", scopes.join("-").replace(':', "-"));
        let name: String = name.chars().take(60).collect();
        let new = json!({ "name": name, "kind": kind, "scopes": scopes });
        let created = login.post(server, "/v1/tokens", &new).await;
        let created: Value = serde_json::from_str(&created.body).unwrap();
        let token = created["token"].as_str().unwrap_or_else(|| panic!("{name}: {created}"));
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let credential = vec![format!("Authorization: Bearer {token}")];
        Self { name, host: server.host(), credential, role, token: Some((kind, scopes)) }
    }

    /// The token of a device that a person logged in.
    async fn device(
        server: &TestGateway,
        (login, role): (&Login, &'static str),
        scopes: &[&str],
    ) -> Self {
        let name = format!("device-{role}");
        let new = json!({ "name": name, "scopes": scopes });
        let started = server.post_to(&server.host(), "/auth/device", &new, &[]).await;
        let started: Value = serde_json::from_str(&started.body).unwrap();
        let answer = json!({ "user_code": started["user_code"], "answer": "permit" });
        assert_eq!(login.post(server, "/auth/device/answer", &answer).await.status, 204);
        let code = json!({ "device_code": started["device_code"] });
        let created = server.post_to(&server.host(), "/auth/device/token", &code, &[]).await;
        let created: Value = serde_json::from_str(&created.body).unwrap();
        let token = created["token"].as_str().unwrap_or_else(|| panic!("{name}: {created}"));
        let credential = vec![format!("Authorization: Bearer {token}")];
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        Self { name, host: server.host(), credential, role, token: Some(("cli", scopes)) }
    }

    fn nobody(server: &TestGateway) -> Self {
        let (name, host) = ("nobody".to_owned(), server.host());
        Self { name, host, credential: Vec::new(), role: "none", token: None }
    }

    async fn send(&self, server: &TestGateway, step: &Step, objects: &Objects) -> TestResponse {
        let target = objects.fill(&step.target());
        let query = if step.query.is_empty() { String::new() } else { format!("?{}", step.query) };
        let mut head =
            format!("{} {target}{query} HTTP/1.1\r\nHost: {}\r\n", step.method(), self.host);
        for line in self.credential.iter().map(String::as_str).chain(step.headers.iter().copied()) {
            head.push_str(&format!("{}\r\n", objects.fill(line)));
        }
        let is_upgrade = step.headers.iter().any(|line| line.starts_with("Upgrade"));
        head.push_str(if is_upgrade { "Connection: Upgrade\r\n" } else { "Connection: close\r\n" });
        let mut body = String::new();
        if !step.body.is_null() {
            body = objects.fill_body(&step.body).to_string();
            head.push_str("Content-Type: application/json\r\n");
        }
        if step.method() != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        if STREAMS.contains(&step.operation) {
            let mut response = TestResponse::head(&mut stream).await;
            response.body = start_of_stream(&mut stream).await;
            return response;
        }
        TestResponse::whole(stream).await
    }

    async fn get(&self, server: &TestGateway, target: &str) -> TestResponse {
        let (start, host) = (format!("GET {target} HTTP/1.1"), format!("Host: {}", self.host));
        let lines = [start.as_str(), &host].into_iter();
        let credential = self.credential.iter().map(String::as_str);
        server.lines(&lines.chain(credential).collect::<Vec<_>>()).await
    }

    /// Returns the objects that an operation can concern for this sender.
    fn extent(&self, rights: &Value) -> Extent {
        let of = |name: &str| match rights[name].as_str() {
            Some("all") => Extent::All,
            Some("own") => Extent::Own,
            _ => Extent::None,
        };
        let Some((kind, scopes)) = &self.token else { return of(self.role) };
        let known = rights["scopes"].as_array().unwrap();
        let has_scope = known.iter().any(|scope| scopes.iter().any(|own| scope == own.as_str()));
        if has_scope { of(kind).min(of(self.role)) } else { Extent::None }
    }
}

/// The objects that an operation can concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    None,
    Own,
    All,
}

/// Returns what a stream sends at once.
async fn start_of_stream(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let quiet = Duration::from_millis(100);
    while let Ok(Ok(1..)) = tokio::time::timeout(quiet, stream.read_buf(&mut bytes)).await {}
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The operations of the OpenAPI document by method and path.
fn operations(document: &Value) -> BTreeMap<String, Value> {
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, it)| (format!("{} {path}", method.to_uppercase()), it.clone()))
    });
    operations.collect()
}

async fn start() -> TestGateway {
    let prover = Prover::new(vec!["A01"], |_, _| Ok(Vec::new()));
    let server = TestGateway::with(|options| {
        let unlimited = Rate::per_second(100_000, 100_000);
        let limits = &mut options.limits;
        (limits.reads, limits.writes, limits.failed_logins) = (unlimited, unlimited, unlimited);
        options.prover = Some(prover);
    })
    .await;
    let team = json!({ "name": "team-7", "issuer": "https://id.example", "subject": CANARY });
    assert_eq!(server.local_post("/local/tenants", &team).await.status, 201);
    server
}

/// Sends the requests in their order and returns the objects that they made.
async fn succeed(
    server: &TestGateway,
    tenant: &str,
    sender: &Sender,
    name: &str,
    is_wanted: impl Fn(&Step) -> bool,
) -> Objects {
    let mut objects = Objects::named(name);
    for step in steps().iter().filter(|step| is_wanted(step)) {
        let deadline = Instant::now() + belljar_testkit::DEADLINE;
        loop {
            let response = sender.send(server, step, &objects).await;
            assert_eq!(response.status, step.status, "{} {response:?}", step.operation);
            if objects.save(step, &response.body) {
                break;
            }
            // The driver lists a gate after it was recorded.
            let is_late = Instant::now() > deadline;
            assert!(!is_late, "{} has no {:?}: {response:?}", step.operation, step.saves);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if step.operation == "POST /v1/boxes" {
            record_request(server, tenant, &objects);
        }
    }
    objects
}

/// Records a denied network request of a box.
fn record_request(server: &TestGateway, tenant: &str, objects: &Objects) {
    let caller = Caller { tenant: tenant.parse().unwrap(), ..Caller::local(1000) };
    let ledger = belljar_engine::record::open(&server.engine.of(&caller).unwrap()).unwrap();
    let request = RequestDecided {
        method: "GET".to_owned(),
        scheme: "https".to_owned(),
        host: objects.fill("{name}.example"),
        port: 443,
        path: "/".to_owned(),
        verdict: "deny".to_owned(),
        rule: None,
        reason: "no-rule: no rule allows it".to_owned(),
        secrets: Vec::new(),
        body: None,
        upgrade: None,
    };
    let run: RunId = objects.0["box_run"].parse().unwrap();
    let draft = Draft::new(request).of_run(run);
    drop(ledger.record(draft).unwrap());
}

/// Returns people of all roles in a tenant, and tokens of both kinds with one scope and with all scopes.
async fn senders(server: &TestGateway, tenant: &str, owner: &Login) -> Vec<Sender> {
    let mut senders = vec![Sender::nobody(server)];
    for role in ["owner", "admin", "operator", "member", "auditor"] {
        let who = format!("person:https://id.example#{role}");
        senders.push(Sender::person(role, role, &server.login_as(tenant, &who, role).await));
    }
    for kind in ["service", "agent"] {
        for scope in SCOPES {
            senders.push(Sender::token(server, (owner, "owner"), kind, &[scope]).await);
        }
        senders.push(Sender::token(server, (owner, "owner"), kind, &SCOPES).await);
    }
    let member = server.login_as(tenant, "person:https://id.example#maker", "member").await;
    let scopes = ["boxes:read", "boxes:write", "runs:read", "ledger:read"];
    senders.push(Sender::token(server, (&member, "member"), "service", &scopes).await);
    senders.push(Sender::device(server, (owner, "owner"), &SCOPES).await);
    senders.push(Sender::device(server, (&member, "member"), &scopes).await);
    senders
}

const SCOPES: [&str; 10] = [
    "boxes:read",
    "boxes:write",
    "runs:read",
    "runs:write",
    "changes:apply",
    "ledger:read",
    "usage:read",
    "metrics:read",
    "secrets:write",
    "mcp",
];

/// Returns whether the path has the name or id of an object. Positions in a ledger exist in every ledger.
fn has_object(step: &Step) -> bool {
    !step.is_creation()
        && step.path().contains('{')
        && !step.path().contains("{event}")
        && !step.path().contains("{tile}")
}

#[tokio::test]
async fn owner_gets_the_declared_success_from_every_operation() {
    let server = start().await;
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    let described: BTreeSet<String> = operations(&document).into_keys().collect();
    let known = steps().iter().map(|step| step.operation.to_owned()).collect();
    assert_eq!(described, known, "an operation needs a valid request in `steps`");
    // Policy and schedules of the tenant `local` are files of the operator, which no request changes.
    let owner = Sender::person("owner", "owner", &server.login("team-7").await);
    succeed(&server, "team-7", &owner, "job", |step| !step.is_of_machine()).await;
    let owner = Sender::person("owner", "owner", &server.login("local").await);
    succeed(&server, "local", &owner, "job", Step::is_of_machine).await;
}

#[tokio::test]
async fn f08_sender_of_one_tenant_gets_the_status_of_the_table_and_no_byte_of_another_tenant() {
    let server = start().await;
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    let operations = operations(&document);
    let team = Sender::person("team", "owner", &server.login("team-7").await);
    let is_wanted = |step: &Step| !step.is_last() && !step.is_of_machine();
    let foreign = succeed(&server, "team-7", &team, CANARY, is_wanted).await;
    let boxes = team.send(&server, &step("GET /v1/boxes", 200), &foreign).await;
    assert!(boxes.body.contains(CANARY), "control: {boxes:?}");
    let owner = server.login("local").await;
    for (round, sender) in senders(&server, "local", &owner).await.iter().enumerate() {
        let mut objects = foreign.clone();
        objects.0.insert("name".to_owned(), format!("own-{round}"));
        for step in steps() {
            let response = sender.send(&server, &step, &objects).await;
            let about = format!("{} by {}: {response:?}", step.operation, sender.name);
            assert!(!format!("{response:?}").contains(CANARY), "{about}");
            let operation = &operations[step.operation];
            if operation["security"].as_array().unwrap().is_empty() {
                assert_eq!(response.status, step.status, "{about}");
                continue;
            }
            if sender.credential.is_empty() {
                assert_eq!(response.status, 401, "{about}");
                continue;
            }
            let rights = &operation["x-belljar-rights"];
            if rights.is_object() && sender.extent(rights) == Extent::None {
                assert_eq!(response.status, 403, "{about}");
            } else if has_object(&step) {
                assert_eq!(response.status, 404, "{about}");
            } else {
                assert!(![401, 403, 500].contains(&response.status), "{about}");
            }
        }
    }
    let kept = team.send(&server, &step("GET /v1/boxes/{box}", 200), &foreign).await;
    assert_eq!(kept.status, 200, "control: nobody removed the box of the other tenant {kept:?}");
}

#[tokio::test]
async fn f08_cursor_of_another_tenant_is_refused_by_every_list() {
    let server = start().await;
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    let team = Sender::person("team", "owner", &server.login("team-7").await);
    let owner = Sender::person("owner", "owner", &server.login("local").await);
    let is_wanted = |step: &Step| !step.is_last() && !step.is_of_machine();
    succeed(&server, "team-7", &team, CANARY, is_wanted).await;
    let more = ["tokens", "boxes", "runs", "schedules/{schedule}", "webhooks/{webhook}"];
    let makes_more =
        |step: &Step| step.is_new() && more.contains(&step.path().trim_start_matches("/v1/"));
    let objects = succeed(&server, "team-7", &team, "second", makes_more).await;
    let has_cursor = |operation: &Value| {
        let parameters = operation["parameters"].as_array();
        parameters.into_iter().flatten().any(|parameter| parameter["name"] == "cursor")
    };
    let lists = steps().into_iter();
    let lists = lists.filter(|step| has_cursor(&operations(&document)[step.operation]));
    let mut checked = BTreeSet::new();
    for list in lists {
        let path = objects.fill(&list.target());
        let page = team.get(&server, &format!("{path}?limit=1")).await;
        let page: Value = serde_json::from_str(&page.body).unwrap();
        let Some(cursor) = page["next"].as_str() else { continue };
        let next = format!("{path}?limit=1&cursor={cursor}");
        let own = team.get(&server, &next).await;
        assert_eq!(own.status, 200, "control: {} {own:?}", list.operation);
        // A list of an object that another tenant does not have is unknown.
        let foreign = owner.get(&server, &next).await;
        let expect = if has_object(&list) { vec![400, 404] } else { vec![400] };
        assert!(expect.contains(&foreign.status), "{} {foreign:?}", list.operation);
        assert!(!foreign.body.contains(CANARY), "{} {foreign:?}", list.operation);
        checked.insert(list.operation);
    }
    assert!(checked.len() >= 8, "control: lists with several items {checked:?}");
}

#[tokio::test]
async fn f08_sender_sees_and_changes_only_own_objects_where_the_table_says_own() {
    let server = start().await;
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    let operations = operations(&document);
    let login = server.login("team-7").await;
    let owner = Sender::person("owner", "owner", &login);
    let is_wanted = |step: &Step| !step.is_last() && !step.is_of_machine();
    let objects = succeed(&server, "team-7", &owner, CANARY, is_wanted).await;
    let mut checked = BTreeMap::new();
    for sender in senders(&server, "team-7", &login).await {
        if sender.credential.is_empty() {
            continue;
        }
        for step in steps().iter().filter(|step| has_object(step)) {
            // Accounts have rights of their own: an admin manages those of others.
            let is_account =
                ["{token}", "{session}", "{user}"].iter().any(|it| step.path().contains(it));
            if is_account && ["owner", "admin"].contains(&sender.role) {
                continue;
            }
            let extent = sender.extent(&operations[step.operation]["x-belljar-rights"]);
            if extent == Extent::All
                && (step.method() != "GET" || STREAMS.contains(&step.operation))
            {
                continue;
            }
            let response = sender.send(&server, step, &objects).await;
            let about = format!("{} by {}: {response:?}", step.operation, sender.name);
            *checked.entry(extent).or_insert(0) += 1;
            match extent {
                Extent::None => assert_eq!(response.status, 403, "{about}"),
                Extent::Own => assert_eq!(response.status, 404, "{about}"),
                Extent::All => assert_eq!(response.status, step.status, "{about}"),
            }
            let is_visible = format!("{response:?}").contains(CANARY);
            assert!(extent == Extent::All || !is_visible, "{about}");
        }
    }
    for extent in [Extent::None, Extent::Own, Extent::All] {
        assert!(checked[&extent] > 5, "control: {checked:?}");
    }
}
