//! A running server of `belljar serve` with a state directory of its own, and raw requests to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes;
use belljar_engine::clock::Clock;
use belljar_engine::error::EngineError;
use belljar_engine::host::{HostEnv, RoleProgram};
use belljar_engine::notice::Silent;
use belljar_engine::record::{json as record_json, reading};
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::{control, schedules, view};
use belljar_engine::scope::{Engine, EngineConfig, Scoped};
use belljar_engine::server::ServerLock;
use belljar_gateway::{Rate, ReadyServer, ServeControl, ServeLimits, ServeOptions, Token, Tokens};
use belljar_ledger::{LedgerPaths, Query, Reader};
use belljar_model::Caller;
use belljar_testkit::Lab;
use serde_json::{Value, json};
use sha2::Digest as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::client::TestResponse;
use crate::server::{DemoService, Events};

/// The time that a driver has to end its boxes and to exit.
const DRIVER_EXIT: Duration = Duration::from_secs(10);

/// A running server. Dropping it stops the server without waiting.
pub(crate) struct TestGateway {
    pub(crate) addr: SocketAddr,
    /// The directories of the test. The state directory of the server is `lab.state()`.
    pub(crate) lab: Lab,
    pub(crate) engine: Engine,
    pub(crate) token: Token,
    pub(crate) events: Events,
    pub(crate) control: ServeControl,
    task: Option<JoinHandle<()>>,
    /// The runtime of a server that a test kills.
    runtime: Option<Runtime>,
    /// Whether another server took over the directories and the boxes.
    is_replaced: bool,
    _lock: ServerLock,
}

/// Returns a program of the workspace that was built with the tests.
#[track_caller]
fn program(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = target.join("debug").join(name);
    assert!(path.is_file(), "no {}: build it with `cargo build --workspace`", path.display());
    path
}

/// Opens the engine on the directories of a test, and the scope of the user 1000.
pub(crate) fn open(lab: &Lab) -> (Engine, Scoped) {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let variables = [("PATH".into(), path.into()), ("HOME".into(), lab.home().into())];
    let roles = program("belljar-roles");
    let host =
        HostEnv { roles: RoleProgram::Path(roles.clone()), ..HostEnv::new(variables, roles) };
    let config_file = Some(lab.home().join(".config/belljar/belljar.toml"));
    let config = EngineConfig { home: lab.state(), config_file, host };
    let clock = Clock::new(belljar_testkit::wall_clock);
    let engine = Engine::open(config, clock, Arc::new(Silent)).unwrap();
    let state = engine.of(&Caller::local(1000)).unwrap();
    (engine, state)
}

/// Lifts the limits of requests.
pub(crate) fn unlimited(limits: &mut ServeLimits) {
    let unlimited = Rate::per_second(100_000, 100_000);
    (limits.reads, limits.writes, limits.failed_logins) = (unlimited, unlimited, unlimited);
}

/// Creates the directories of a test.
pub(crate) fn lab() -> Lab {
    let lab = Lab::new(program("belljar"));
    lab.configure("");
    lab
}

impl TestGateway {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::on(lab(), change).await
    }

    /// Starts a server whose clients can send as many requests as they want, for tests that wait for a state.
    pub(crate) async fn unlimited() -> Self {
        Self::with(|options| unlimited(&mut options.limits)).await
    }

    /// Starts a server with this text as the operator's `belljar.toml`.
    pub(crate) async fn configured(text: &str) -> Self {
        let lab = lab();
        lab.configure(text);
        Self::on(lab, |_| ()).await
    }

    /// Starts a server on the directories of a test.
    pub(crate) async fn on(lab: Lab, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::listening(lab, listener, None, change)
    }

    /// Starts a server that [`Self::killed`] can kill.
    pub(crate) async fn mortal() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::listening(lab(), listener, Some(runtime()), |_| ())
    }

    /// Ends the server in the middle of what it does, as the kernel does when it kills a process, and starts
    /// a new one with the same address and directories. Boxes continue.
    pub(crate) async fn killed(mut self) -> Self {
        self.runtime.take().unwrap().shutdown_background();
        self.is_replaced = true;
        let (addr, lab) = (self.addr, std::mem::replace(&mut self.lab, lab()));
        drop(self);
        let mut listener = None;
        belljar_testkit::eventually("the port is free", || {
            listener = std::net::TcpListener::bind(addr).ok();
            listener.is_some()
        });
        Self::listening(lab, listener.unwrap(), Some(runtime()), |_| ())
    }

    fn listening(
        lab: Lab,
        listener: std::net::TcpListener,
        runtime: Option<Runtime>,
        change: impl FnOnce(&mut ServeOptions),
    ) -> Self {
        let (engine, state) = open(&lab);
        let lock = ServerLock::acquire(&state).unwrap();
        let (addr, token) = (listener.local_addr().unwrap(), Token::generate().unwrap());
        let mut options = ServeOptions {
            listeners: vec![listener],
            local: lock.bind_socket(&state).unwrap(),
            tls: None,
            hosts: Vec::new(),
            mcp_tokens: Tokens::new([&token]),
            limits: ServeLimits::default(),
            prover: None,
        };
        change(&mut options);
        // The sockets belong to the runtime that serves them.
        let entered = runtime.as_ref().map(Runtime::enter);
        let (demo, events) = DemoService::new();
        let control = ServeControl::default();
        let server = ReadyServer::new(engine.clone(), state, &demo, options, &control).unwrap();
        let serving = server.run(control.clone());
        let task = Some(match &runtime {
            Some(runtime) => runtime.spawn(serving),
            None => tokio::spawn(serving),
        });
        drop(entered);
        let is_replaced = false;
        Self { addr, lab, engine, token, events, control, task, runtime, is_replaced, _lock: lock }
    }

    /// Waits until the server has ended after `control.stop` was cancelled.
    pub(crate) async fn ended(mut self) {
        self.task.take().unwrap().await.unwrap();
    }

    /// The value of the header `Host` for this server.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.addr.port())
    }

    /// Sends bytes and reads everything until the server closes the connection.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        // A server that refuses early does not read everything.
        stream.write_all(bytes.as_ref()).await.ok();
        let mut all = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all).await.ok();
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Sends one request with a head of these lines. `{host}` stands for the host of the server.
    pub(crate) async fn lines(&self, lines: &[&str]) -> TestResponse {
        self.lines_with(lines, "").await
    }

    pub(crate) async fn lines_with(&self, lines: &[&str], body: &str) -> TestResponse {
        let head = lines.join("\r\n").replace("{host}", &self.host());
        let text = self.raw(format!("{head}\r\nConnection: close\r\n\r\n{body}")).await;
        TestResponse::whole(text.as_bytes()).await
    }

    /// Sends a GET request and returns the response.
    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.lines(&[&format!("GET {path} HTTP/1.1"), "Host: {host}"]).await
    }

    /// Sends a request to the local socket and returns the response.
    pub(crate) async fn local(&self, lines: &[&str]) -> TestResponse {
        let path = self.lab.state().join("server/socket");
        let mut stream = UnixStream::connect(path).await.unwrap();
        let head = lines.join("\r\n");
        let request = format!("{head}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        TestResponse::whole(stream).await
    }
}

impl TestGateway {
    /// Sends a JSON body with additional headers to a host name of the server.
    pub(crate) async fn post_to(
        &self,
        host: &str,
        path: &str,
        body: &Value,
        headers: &[&str],
    ) -> TestResponse {
        let body = body.to_string();
        let (start, host) = (format!("POST {path} HTTP/1.1"), format!("Host: {host}"));
        let length = format!("Content-Length: {}", body.len());
        let mut lines = vec![&*start, &host, &length, "Content-Type: application/json"];
        lines.extend(headers);
        self.lines_with(&lines, &body).await
    }

    /// Sends a JSON body to the local socket.
    pub(crate) async fn local_post(&self, path: &str, body: &Value) -> TestResponse {
        let body = body.to_string();
        let mut stream = UnixStream::connect(self.lab.state().join("server/socket")).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        TestResponse::whole(stream).await
    }

    /// Sends a GET request with a token.
    pub(crate) async fn with_token(&self, token: &str, path: &str) -> TestResponse {
        let (start, token) =
            (format!("GET {path} HTTP/1.1"), format!("Authorization: Bearer {token}"));
        self.lines(&[&start, "Host: {host}", &token]).await
    }

    /// Logs the owner of a tenant in.
    pub(crate) async fn login(&self, tenant: &str) -> Login {
        let link = self.local_post("/local/login-links", &json!({ "tenant": tenant })).await;
        let link: Value = serde_json::from_str(&link.body).unwrap();
        let (url, code) = link["url"].as_str().unwrap().split_once("/login#").unwrap();
        let host = url.strip_prefix("http://").unwrap().to_owned();
        self.use_code(host, code).await
    }

    /// Logs a principal with a role in. The principal is added to the tenant.
    pub(crate) async fn login_as(&self, tenant: &str, principal: &str, role: &str) -> Login {
        let database = rusqlite::Connection::open(self.lab.state().join("gateway.db")).unwrap();
        database.busy_timeout(belljar_testkit::DEADLINE).unwrap();
        let name: String =
            database.query_row("SELECT name FROM installation", [], |row| row.get(0)).unwrap();
        let (host, code) =
            (format!("{name}:{}", self.addr.port()), format!("{tenant} {principal}"));
        database
            .execute(
                "INSERT INTO principal (tenant, id, role, created) VALUES (?1, ?2, ?3, 1)",
                [tenant, principal, role],
            )
            .unwrap();
        let hash = sha2::Sha256::digest(code.as_bytes());
        database
            .execute(
                "INSERT INTO link (hash, tenant, principal, host, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
                rusqlite::params![hash.as_slice(), tenant, principal, host, i64::MAX],
            )
            .unwrap();
        self.use_code(host, &code).await
    }

    pub(crate) async fn use_code(&self, host: String, code: &str) -> Login {
        let used = self.post_to(&host, "/auth/link", &json!({ "code": code }), &[]).await;
        let cookie = used.header("set-cookie").unwrap_or_else(|| panic!("{used:?}"));
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Login::of_cookie(self, host, cookie).await
    }
}

/// Returns the fields of all events of a kind in the ledger of a tenant.
pub(crate) fn recorded(server: &TestGateway, tenant: &str, kind: &str) -> Vec<Value> {
    let home = match tenant {
        "local" => server.lab.state(),
        tenant => server.lab.state().join("tenants").join(tenant),
    };
    let reader = Reader::open(&LedgerPaths::under(&home)).unwrap();
    let rows = reader.events(&Query::default()).unwrap();
    let events = rows.iter().map(|row| {
        let entry = reading::read(&reader, row).unwrap();
        record_json::event(row.index, &row.leaf, &entry)
    });
    events.filter(|event| event["kind"] == kind).map(|event| event["fields"].clone()).collect()
}

/// Returns a runtime for a server that a test kills.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A session of a person.
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Login {
    /// Returns the session of a cookie, written `NAME=VALUE`.
    pub(crate) async fn of_cookie(server: &TestGateway, host: String, cookie: String) -> Self {
        let mut login = Self { host, cookie, csrf: String::new() };
        login.csrf = login.get(server, "/v1/me").await["csrf"].as_str().unwrap().to_owned();
        login
    }

    /// Makes the login of the session older, as if so many minutes had passed.
    pub(crate) fn age(&self, server: &TestGateway, minutes: i64) {
        let (_, secret) = self.cookie.split_once('=').unwrap();
        let hash = sha2::Sha256::digest(secret.as_bytes());
        let database = rusqlite::Connection::open(server.lab.state().join("gateway.db")).unwrap();
        database.busy_timeout(belljar_testkit::DEADLINE).unwrap();
        let changed = database.execute(
            "UPDATE session SET created = created - ?2 WHERE hash = ?1",
            rusqlite::params![hash.as_slice(), minutes * 60_000],
        );
        assert_eq!(changed.unwrap(), 1);
    }

    /// Sends a PATCH request with a version of the object.
    pub(crate) async fn patch(
        &self,
        server: &TestGateway,
        path: &str,
        body: &Value,
        headers: &[&str],
    ) -> TestResponse {
        let body = body.to_string();
        let (start, host) = (format!("PATCH {path} HTTP/1.1"), format!("Host: {}", self.host));
        let length = format!("Content-Length: {}", body.len());
        let own = self.headers();
        let mut lines = vec![&*start, &host, &length, "Content-Type: application/json"];
        lines.extend(own.iter().map(String::as_str).chain(headers.iter().copied()));
        server.lines_with(&lines, &body).await
    }

    /// Sends a GET request and returns its JSON body.
    pub(crate) async fn get(&self, server: &TestGateway, path: &str) -> Value {
        let response = self.request(server, "GET", path).await;
        assert_eq!(response.status, 200, "{response:?}");
        serde_json::from_str(&response.body).unwrap()
    }

    /// Sends a request without a body and returns the response.
    pub(crate) async fn request(
        &self,
        server: &TestGateway,
        method: &str,
        path: &str,
    ) -> TestResponse {
        let start = format!("{method} {path} HTTP/1.1");
        let (host, cookie) = (format!("Host: {}", self.host), format!("Cookie: {}", self.cookie));
        server.lines(&[&start, &host, &cookie]).await
    }

    /// The headers of a change by a page of the server.
    pub(crate) fn headers(&self) -> [String; 3] {
        [
            format!("Cookie: {}", self.cookie),
            format!("Origin: http://{}", self.host),
            format!("X-Belljar-Csrf: {}", self.csrf),
        ]
    }

    pub(crate) async fn post(
        &self,
        server: &TestGateway,
        path: &str,
        body: &Value,
    ) -> TestResponse {
        let headers = self.headers();
        server.post_to(&self.host, path, body, &headers.each_ref().map(String::as_str)).await
    }

    pub(crate) async fn delete(
        &self,
        server: &TestGateway,
        path: &str,
        headers: &[&str],
    ) -> TestResponse {
        let (start, host) = (format!("DELETE {path} HTTP/1.1"), format!("Host: {}", self.host));
        let own = self.headers();
        let mut lines = vec![&*start, &host];
        lines.extend(own.iter().map(String::as_str).chain(headers.iter().copied()));
        server.lines(&lines).await
    }

    /// Sends a PUT request with additional headers.
    pub(crate) async fn put(
        &self,
        server: &TestGateway,
        path: &str,
        body: &Value,
        headers: &[&str],
    ) -> TestResponse {
        let body = body.to_string();
        let (start, host) = (format!("PUT {path} HTTP/1.1"), format!("Host: {}", self.host));
        let length = format!("Content-Length: {}", body.len());
        let own = self.headers();
        let mut lines = vec![&*start, &host, &length, "Content-Type: application/json"];
        lines.extend(own.iter().map(String::as_str).chain(headers.iter().copied()));
        server.lines_with(&lines, &body).await
    }

    /// Creates a token with these scopes and returns it.
    pub(crate) async fn token(&self, server: &TestGateway, scopes: &[&str]) -> String {
        let name = format!("test-{}", scopes.join("-").replace(':', "-"));
        let name: String = name.chars().take(60).collect();
        let new = json!({ "name": name, "kind": "service", "scopes": scopes });
        let created = self.post(server, "/v1/tokens", &new).await;
        let created: Value = serde_json::from_str(&created.body).unwrap();
        created["token"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.control.stop.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if self.is_replaced {
            return;
        }
        // Boxes live on in their supervisors.
        let tenants = std::fs::read_dir(self.lab.state().join("tenants"));
        let names = tenants.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        for tenant in names.chain(["local".to_owned()]).filter_map(|name| name.parse().ok()) {
            let scope = self.engine.of(&Caller { tenant, ..Caller::local(1000) });
            let Ok(scope) = scope else { continue };
            end_runs(&scope);
            let entries = std::fs::read_dir(belljar_engine::box_store::boxes_dir(&scope));
            for entry in entries.into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().parse();
                let Some(found) = name.ok().and_then(|name| NamedBox::find(&scope, &name).ok())
                else {
                    continue;
                };
                drop(boxes::stop(&scope, &found, true)); // most boxes do not run
            }
        }
    }
}

/// Cancels the runs of plans and removes the schedules of a tenant, so that its driver exits.
fn end_runs(scope: &Scoped) {
    // The tests of a server that was stopped have no more use for its runs, so failures do not matter.
    for schedule in schedules::stored::all(scope).unwrap_or_default() {
        drop(schedules::remove(scope, &schedule.name, |_| Ok::<(), EngineError>(())));
    }
    for run in view::open(scope).unwrap_or_default() {
        drop(control::cancel(scope, run, None));
    }
    let deadline = Instant::now() + DRIVER_EXIT;
    while DriverLock::is_held(scope.store()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the problem of an error response, after checks that hold for every problem.
#[track_caller]
pub(crate) fn problem(response: &TestResponse, status: u16, kind: &str) -> Value {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{response:?}");
    let problem: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem}");
    assert_eq!(problem["status"], status);
    assert_eq!(problem["request_id"].as_str(), response.header("x-request-id"), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|it| !it.is_empty()), "{problem}");
    problem
}
