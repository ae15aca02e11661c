//! A client of MCP, as small as one can be: over the streams of a server it starts, or over HTTP.
//!
//! Several calls may be under way at once, so what was asked is answered by its number.

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

/// A server on standard streams. Killed when dropped.
#[derive(Debug)]
pub struct Mcp {
    child: Owned,
    input: Mutex<Option<ChildStdin>>,
    heard: Arc<Heard>,
    stderr: Arc<Collected>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answers: HashMap<u64, Value>,
    notifications: Vec<Value>,
    is_over: bool,
}

impl Mcp {
    /// Starts a server and says hello.
    #[track_caller]
    pub fn start(program: Program) -> Self {
        let mut command = program.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let stderr = Collected::read(child.stderr.take().expect("a pipe"));
        let input = Mutex::new(child.stdin.take());
        let heard = Arc::new(Heard::default());
        let ours = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                ours.take(&line);
            }
            ours.over();
        });
        let mcp = Self { child: Owned(child), input, heard, stderr, next: AtomicU64::new(1) };
        let hello = mcp.ask("initialize", &hello());
        mcp.answer(hello);
        mcp.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        mcp
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.0.id()).expect("a pid")
    }

    /// Writes one message.
    pub fn say(&self, message: &Value) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = message.to_string();
        line.push('\n');
        let input = input.as_mut().expect("open until the end");
        input.write_all(line.as_bytes()).expect("a server that listens");
        input.flush().expect("a server that listens");
    }

    /// Asks and does not wait; the number of the answer.
    pub fn ask(&self, method: &str, params: &Value) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Waits for what was asked.
    #[track_caller]
    pub fn answer(&self, id: u64) -> Value {
        let until = Instant::now() + DEADLINE;
        let found = self.heard.wait(until, |state| state.answers.remove(&id));
        found.unwrap_or_else(|| panic!("no answer to {id}; the server said {}", self.stderr.text()))
    }

    /// Whether there is an answer yet.
    pub fn is_answered(&self, id: u64) -> bool {
        let state = self.heard.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answers.contains_key(&id)
    }

    /// Waits for a notification that fits.
    #[track_caller]
    pub fn notified(&self, fits: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + DEADLINE;
        let found =
            self.heard.wait(until, |state| state.notifications.iter().find(|it| fits(it)).cloned());
        found.unwrap_or_else(|| panic!("no such notification; {}", self.stderr.text()))
    }

    /// Calls a tool and does not wait.
    pub fn begin(&self, tool: &str, arguments: &Value) -> u64 {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool; the result of the call.
    #[track_caller]
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        result(&self.answer(self.begin(tool, arguments)))
    }

    /// Runs a program; the account of it.
    #[track_caller]
    pub fn run(&self, code: &str) -> Value {
        account(&self.call("execute_code", &json!({ "code": code })))
    }

    /// Takes a call back.
    pub fn cancel(&self, id: u64) {
        self.say(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
        }));
    }

    /// Closes the server's input and waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let until = Instant::now() + DEADLINE;
        let over = self.heard.wait(until, |state| state.is_over.then_some(()));
        assert!(over.is_some(), "it hangs; it said {}", self.stderr.text());
        let status = self.child.0.wait().expect("a child of ours");
        self.stderr.wait(until, |_| false);
        Ended { status, stdout: Vec::new(), stderr: self.stderr.take() }
    }
}

impl Heard {
    fn take(&self, line: &str) {
        let message: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("no message of MCP: {error}: {line}"));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match message.get("id").and_then(Value::as_u64) {
            Some(id) => drop(state.answers.insert(id, message)),
            None => state.notifications.push(message),
        }
        self.changed.notify_all();
    }

    fn over(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_all();
    }

    fn wait<T>(&self, until: Instant, mut found: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = found(&mut state) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_over {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A session over HTTP.
#[derive(Debug)]
pub struct McpHttp {
    address: SocketAddr,
    token: String,
    session: Option<String>,
    next: AtomicU64,
}

impl McpHttp {
    /// Says hello to a server that listens there.
    #[track_caller]
    pub fn start(address: SocketAddr, token: &str) -> Self {
        let mut session =
            Self { address, token: token.to_owned(), session: None, next: AtomicU64::new(1) };
        let (head, answer) = session.post(&message(0, "initialize", &hello()));
        let named = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        assert!(answer.get("result").is_some(), "{head}\n{answer}");
        session.session = named;
        session.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        session
    }

    /// The id that the server gave this session.
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
        account(&self.call("execute_code", &json!({ "code": code })))
    }

    /// Says goodbye.
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
        let told = |text: &str| serde_json::from_str::<Value>(text).ok();
        let ours = |it: &Value| it.get("id").is_some_and(|id| Some(id) == message.get("id"));
        let found = if is_stream { lines.filter_map(told).find(ours) } else { told(&body) };
        (head, found.unwrap_or_default())
    }

    /// As HTTP/1.0, whose answers end where the connection does.
    #[track_caller]
    fn send(&self, method: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).expect("a server");
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
        stream.write_all(request.as_bytes()).expect("a server that listens");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        (head.to_owned(), body.to_owned())
    }
}

fn hello() -> Value {
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
    answer.get("result").cloned().unwrap_or_else(|| panic!("no result: {answer}"))
}

#[track_caller]
fn account(result: &Value) -> Value {
    let account = result.get("structuredContent").cloned();
    account.unwrap_or_else(|| panic!("no account of a program: {result}"))
}
