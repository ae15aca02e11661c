//! A minimal MCP client, over the standard streams of a server that it starts, or over HTTP.
//!
//! Several requests can be open at the same time, so a response is identified by its request id.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use crate::DEADLINE;
use crate::program::{Collected, Ended, Owned, Program};

const REVISION: &str = "2025-06-18";

/// A running MCP server process and the client that talks to it over standard input and output.
/// Drop kills it.
#[derive(Debug)]
pub struct Mcp {
    child: Owned,
    input: Mutex<Option<ChildStdin>>,
    inbox: Arc<Inbox>,
    stderr: Arc<Collected>,
    next: AtomicU64,
}

/// The messages that a thread has received from the MCP server.
#[derive(Debug, Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    responses: HashMap<u64, Value>,
    notifications: Vec<Value>,
    is_closed: bool,
}

impl Mcp {
    /// Starts an MCP server and initializes the session.
    #[track_caller]
    pub fn start(program: Program) -> Self {
        let mut command = program.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let stderr = Collected::read(child.stderr.take().expect("a pipe"));
        let input = Mutex::new(child.stdin.take());
        let inbox = Arc::new(Inbox::default());
        let filled = Arc::clone(&inbox);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                filled.add(&line);
            }
            filled.close();
        });
        let mcp = Self { child: Owned(child), input, inbox, stderr, next: AtomicU64::new(1) };
        let id = mcp.send_request("initialize", &initialize());
        mcp.wait_for_response(id);
        mcp.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        mcp
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.0.id()).expect("a pid")
    }

    /// Sends one MCP message.
    pub fn send(&self, message: &Value) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = message.to_string();
        line.push('\n');
        let input = input.as_mut().expect("the input is open");
        input.write_all(line.as_bytes()).expect("cannot write to the server");
        input.flush().expect("cannot write to the server");
    }

    /// Sends an MCP request without waiting for the response. Returns its id.
    pub fn send_request(&self, method: &str, params: &Value) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Waits for the response to the MCP request `id`.
    #[track_caller]
    pub fn wait_for_response(&self, id: u64) -> Value {
        let until = Instant::now() + DEADLINE;
        let found = self.inbox.wait(until, |state| state.responses.remove(&id));
        found.unwrap_or_else(|| {
            panic!("no response to request {id}; stderr: {}", self.stderr.text())
        })
    }

    /// Returns whether the response to the request `id` has arrived.
    pub fn has_response(&self, id: u64) -> bool {
        let state = self.inbox.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.responses.contains_key(&id)
    }

    /// Waits for an MCP notification that satisfies the condition `matches`.
    #[track_caller]
    pub fn wait_for_notification(&self, matches: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + DEADLINE;
        let found = self
            .inbox
            .wait(until, |state| state.notifications.iter().find(|it| matches(it)).cloned());
        found.unwrap_or_else(|| {
            panic!("notification did not arrive; stderr: {}", self.stderr.text())
        })
    }

    /// Sends the request to call an MCP tool, without waiting for the response. Returns the id of
    /// the request.
    pub fn start_call(&self, tool: &str, arguments: &Value) -> u64 {
        self.send_request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls an MCP tool and returns its result.
    #[track_caller]
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        result(&self.wait_for_response(self.start_call(tool, arguments)))
    }

    /// Runs a program with `execute_code` and returns its structured result.
    #[track_caller]
    pub fn run(&self, code: &str) -> Value {
        structured(&self.call("execute_code", &json!({ "code": code })))
    }

    /// Cancels a request.
    pub fn cancel(&self, id: u64) {
        self.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
        }));
    }

    /// Closes the input of the MCP server and waits until the server ends.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let until = Instant::now() + DEADLINE;
        let closed = self.inbox.wait(until, |state| state.is_closed.then_some(()));
        assert!(closed.is_some(), "server does not end; stderr: {}", self.stderr.text());
        let status = self.child.0.wait().expect("a child process");
        self.stderr.wait_until_closed(until);
        Ended { status, stdout: Vec::new(), stderr: self.stderr.take() }
    }
}

impl Inbox {
    fn add(&self, line: &str) {
        let message: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("invalid MCP message: {error}: {line}"));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match message.get("id").and_then(Value::as_u64) {
            Some(id) => drop(state.responses.insert(id, message)),
            None => state.notifications.push(message),
        }
        self.changed.notify_all();
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.changed.notify_all();
    }

    fn wait<T>(&self, until: Instant, mut found: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = found(&mut state) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_closed {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The client side of an MCP session over HTTP.
#[derive(Debug)]
pub struct McpHttp {
    address: SocketAddr,
    token: String,
    session: Option<String>,
    next: AtomicU64,
}

impl McpHttp {
    /// Initializes an MCP session with the server at this address.
    #[track_caller]
    pub fn start(address: SocketAddr, token: &str) -> Self {
        let mut session =
            Self { address, token: token.to_owned(), session: None, next: AtomicU64::new(1) };
        let (head, answer) = session.post(&message(0, "initialize", &initialize()));
        let named = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        assert!(answer.get("result").is_some(), "{head}\n{answer}");
        session.session = named;
        session.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        session
    }

    /// Returns the id that the server gave this MCP session.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    #[track_caller]
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let params = json!({ "name": tool, "arguments": arguments });
        result(&self.post(&message(id, "tools/call", &params)).1)
    }

    #[track_caller]
    pub fn run(&self, code: &str) -> Value {
        structured(&self.call("execute_code", &json!({ "code": code })))
    }

    /// Ends the session.
    #[track_caller]
    pub fn end(self) {
        let (head, _) = self.send("DELETE", "");
        assert!(head.contains(" 20"), "{head}");
    }

    #[track_caller]
    fn post(&self, message: &Value) -> (String, Value) {
        let (head, body) = self.send("POST", &message.to_string());
        let is_stream = head.to_ascii_lowercase().contains("text/event-stream");
        let lines = body.lines().filter_map(|line| line.strip_prefix("data:"));
        let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
        let is_response = |it: &Value| it.get("id").is_some_and(|id| Some(id) == message.get("id"));
        let found =
            if is_stream { lines.filter_map(parse).find(is_response) } else { parse(&body) };
        (head, found.unwrap_or_default())
    }

    /// Sends a call of a tool and returns the connection without waiting for the response. The
    /// end of the session cancels the call.
    #[track_caller]
    pub fn begin_call(&self, tool: &str, arguments: &Value) -> TcpStream {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let params = json!({ "name": tool, "arguments": arguments });
        self.write("POST", &message(id, "tools/call", &params).to_string())
    }

    /// Sends an HTTP/1.0 request and reads the response until the server closes the connection.
    /// Returns head and body.
    #[track_caller]
    fn send(&self, method: &str, body: &str) -> (String, String) {
        let mut bytes = Vec::new();
        let mut stream = self.write(method, body);
        stream.read_to_end(&mut bytes).expect("cannot read the response");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        (head.to_owned(), body.to_owned())
    }

    /// Opens a connection and writes an HTTP/1.0 request.
    #[track_caller]
    fn write(&self, method: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("cannot connect to the server");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        let session = self.session.as_ref();
        let session = session.map_or_else(String::new, |it| format!("mcp-session-id: {it}\r\n"));
        let request = format!(
            "{method} /mcp HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\n{session}\
             mcp-protocol-version: {REVISION}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("cannot write to the server");
        stream
    }
}

/// Returns the parameters of the MCP request `initialize`.
fn initialize() -> Value {
    json!({
        "protocolVersion": REVISION, "capabilities": {},
        "clientInfo": { "name": "a test", "version": "1" },
    })
}

fn message(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[track_caller]
fn result(answer: &Value) -> Value {
    answer.get("result").cloned().unwrap_or_else(|| panic!("response without result: {answer}"))
}

#[track_caller]
fn structured(result: &Value) -> Value {
    let structured = result.get("structuredContent").cloned();
    structured.unwrap_or_else(|| panic!("result without structuredContent: {result}"))
}
