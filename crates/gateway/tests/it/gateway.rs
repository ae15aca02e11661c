//! A running server of `belljar serve` with a state directory of its own, and raw requests to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use belljar_engine::clock::Clock;
use belljar_engine::host::HostEnv;
use belljar_engine::notice::Silent;
use belljar_engine::scope::{Engine, EngineConfig, Scoped};
use belljar_engine::server::ServerLock;
use belljar_gateway::{ReadyServer, ServeControl, ServeLimits, ServeOptions, Token, Tokens};
use belljar_model::Caller;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::client::TestResponse;
use crate::server::{DemoService, Events};

/// A running server. Dropping it stops the server without waiting.
pub(crate) struct TestGateway {
    pub(crate) addr: SocketAddr,
    pub(crate) home: tempfile::TempDir,
    pub(crate) token: Token,
    pub(crate) events: Events,
    pub(crate) control: ServeControl,
    task: Option<JoinHandle<()>>,
    _lock: ServerLock,
}

/// Opens the engine on a directory of a test, and the scope of the user 1000.
pub(crate) fn open(home: &Path) -> (Engine, Scoped) {
    let host = HostEnv::new(belljar_testkit::environment(), "/proc/self/exe".into());
    let config = EngineConfig { home: home.to_owned(), config_file: None, host };
    let clock = Clock::new(belljar_testkit::wall_clock);
    let engine = Engine::open(config, clock, Arc::new(Silent)).unwrap();
    let state = engine.of(&Caller::local(1000)).unwrap();
    (engine, state)
}

impl TestGateway {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (engine, state) = open(home.path());
        let lock = ServerLock::acquire(&state).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, token) = (listener.local_addr().unwrap(), Token::generate().unwrap());
        let mut options = ServeOptions {
            listeners: vec![listener],
            local: lock.bind_socket(&state).unwrap(),
            tls: None,
            hosts: Vec::new(),
            mcp_tokens: Tokens::new([&token]),
            limits: ServeLimits::default(),
        };
        change(&mut options);
        let (demo, events) = DemoService::new();
        let control = ServeControl::default();
        let server = ReadyServer::new(engine, state, &demo, options, &control).unwrap();
        let task = tokio::spawn(server.run(control.clone()));
        let task = Some(task);
        Self { addr, home, token, events, control, task, _lock: lock }
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
        let path = self.home.path().join("server/socket");
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
        let mut stream = UnixStream::connect(self.home.path().join("server/socket")).await.unwrap();
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
        let used = self.post_to(&host, "/auth/link", &json!({ "code": code }), &[]).await;
        let cookie = used.header("set-cookie").unwrap_or_else(|| panic!("{used:?}"));
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let mut login = Login { host, cookie, csrf: String::new() };
        login.csrf = login.get(self, "/v1/me").await["csrf"].as_str().unwrap().to_owned();
        login
    }
}

/// A session of a person.
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Login {
    /// Sends a GET request and returns its JSON body.
    pub(crate) async fn get(&self, server: &TestGateway, path: &str) -> Value {
        let start = format!("GET {path} HTTP/1.1");
        let (host, cookie) = (format!("Host: {}", self.host), format!("Cookie: {}", self.cookie));
        let response = server.lines(&[&start, &host, &cookie]).await;
        assert_eq!(response.status, 200, "{response:?}");
        serde_json::from_str(&response.body).unwrap()
    }

    /// The headers of a change by a page of the server.
    fn headers(&self) -> [String; 3] {
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

    /// Creates a token with these scopes and returns it.
    pub(crate) async fn token(&self, server: &TestGateway, scopes: &[&str]) -> String {
        let name = format!("test-{}", scopes.join("-").replace(':', "-"));
        let new = json!({ "name": name, "kind": "service", "scopes": scopes });
        let created = self.post(server, "/v1/tokens", &new).await;
        let created: Value = serde_json::from_str(&created.body).unwrap();
        created["token"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.control.stop.cancel();
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
