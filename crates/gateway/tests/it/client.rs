//! A test client that writes raw bytes, so that tests can send malformed requests.

use std::net::SocketAddr;
use std::sync::Arc;

use belljar_gateway::{HttpOptions, ServeError, Token, Tokens};
use belljar_model::Caller;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::server::{DemoService, Events};

/// A running MCP server over HTTP with two tokens.
pub(crate) struct TestServer {
    pub(crate) addr: SocketAddr,
    pub(crate) tokens: [Token; 2],
    pub(crate) demo: Arc<DemoService>,
    pub(crate) events: Events,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut HttpOptions)) -> Self {
        let tokens = [Token::generate().unwrap(), Token::generate().unwrap()];
        let mut options = HttpOptions::new(Tokens::new(&tokens), Caller::local(1000));
        change(&mut options);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (demo, events) = DemoService::new();
        let stop = CancellationToken::new();
        let server = belljar_gateway::http(Arc::clone(&demo), listener, options, stop.clone());
        Self { addr, tokens, demo, events, stop, task: tokio::spawn(server) }
    }

    /// Stops the server, waits until it has ended, and returns the events of its service.
    pub(crate) async fn stop(self) -> Events {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.events
    }

    /// Creates a valid POST request with the first token.
    pub(crate) fn post(&self, body: &Value) -> TestRequest {
        let mut ask = self.ask("POST", body.to_string());
        ask.set("Content-Type", "application/json");
        ask
    }

    pub(crate) fn ask(&self, method: &str, body: impl Into<Vec<u8>>) -> TestRequest {
        let mut ask = TestRequest {
            addr: self.addr,
            start: format!("{method} /mcp HTTP/1.1"),
            headers: Vec::new(),
            body: body.into(),
        };
        ask.set("Host", &format!("localhost:{}", self.addr.port()));
        ask.set("Authorization", &format!("Bearer {}", self.tokens[0].expose()));
        ask.set("Accept", "application/json, text/event-stream");
        ask.set("Connection", "close");
        ask
    }

    /// Opens an MCP session of revision 2025-11-25 and returns its id.
    pub(crate) async fn session(&self, token: &Token) -> String {
        let mut ask = self.post(&initialize("2025-11-25"));
        ask.token(token);
        let answer = ask.send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.rpc()["result"]["protocolVersion"], "2025-11-25");
        answer.header("mcp-session-id").unwrap().to_owned()
    }

    /// Creates an HTTP request within an MCP session.
    pub(crate) fn in_session(&self, session: &str, body: &Value) -> TestRequest {
        let mut ask = self.post(body);
        ask.set("Mcp-Session-Id", session);
        ask.set("MCP-Protocol-Version", "2025-11-25");
        ask
    }

    /// Creates a request of the newest protocol revision, which needs no session.
    pub(crate) fn stateless(&self, method: &str, params: &Value) -> TestRequest {
        let mut ask = self.post(&stateless(method, params.clone()));
        ask.set("MCP-Protocol-Version", "2026-07-28");
        ask.set("Mcp-Method", method);
        if let Some(name) = params.get("name").or(params.get("uri")).and_then(Value::as_str) {
            ask.set("Mcp-Name", name);
        }
        ask
    }
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn call(id: u64, tool: &str) -> Value {
    request(id, "tools/call", &json!({ "name": tool, "arguments": {} }))
}

pub(crate) fn initialize(version: &str) -> Value {
    let about = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": about });
    request(1, "initialize", &params)
}

pub(crate) fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(7, method, &params)
}

/// A raw HTTP request.
#[derive(Clone)]
pub(crate) struct TestRequest {
    addr: SocketAddr,
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl TestRequest {
    pub(crate) fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.unset(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn unset(&mut self, name: &str) -> &mut Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn token(&mut self, token: &Token) -> &mut Self {
        self.set("Authorization", &format!("Bearer {}", token.expose()))
    }

    pub(crate) fn head(&self) -> String {
        let mut head = format!("{}\r\n", self.start);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head().into_bytes();
        bytes.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).bytes());
        bytes.extend(&self.body);
        bytes
    }

    pub(crate) async fn send(&self) -> TestResponse {
        TestResponse::whole(self.open().await).await
    }

    /// Sends the HTTP request and returns the connection without reading the response.
    pub(crate) async fn open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        // A server that refuses early does not read the complete request.
        drop(stream.write_all(&self.bytes()).await);
        stream
    }
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl TestResponse {
    /// Reads a whole HTTP response, until the server closes the connection.
    pub(crate) async fn whole(mut stream: impl AsyncRead + Unpin) -> Self {
        let mut bytes = Vec::new();
        // A connection reset also ends the response.
        drop(stream.read_to_end(&mut bytes).await);
        // Some bodies are not text.
        // The tiles of a ledger are no text.
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Reads only the head of an HTTP response.
    pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Self {
        Self::parse(&until(stream, "\r\n\r\n").await)
    }

    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let head = head.to_owned();
        let mut answer = Self { status, head, body: body.to_owned() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunked(body);
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }

    /// Returns all MCP messages of the response, from an event stream or a single body.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if !self.header("content-type").unwrap_or_default().starts_with("text/event-stream") {
            return vec![serde_json::from_str(&self.body).unwrap()];
        }
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
    }

    /// Returns the last MCP message of the response, which answers the request.
    pub(crate) fn rpc(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("no message in {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        let answer = self.rpc();
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }
}

/// Reads from the stream until the text `end` was received.
pub(crate) async fn until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let byte = stream.read_u8().await.unwrap_or_else(|_| panic!("{end:?} is not in {text:?}"));
        text.push(char::from(byte));
    }
    text
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length, 16) else { break };
        let Some(chunk) = rest.get(..length) else { break };
        whole.push_str(chunk);
        body = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}
