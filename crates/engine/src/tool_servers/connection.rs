//! A running tool server: its supervisor, and the conversation with it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_code::pin::ToolDef;
use belljar_model::display;
use rmcp::model::{CallToolRequestParams, CallToolResponse, PaginatedRequestParams};
use rmcp::service::{RoleClient, RunningService, serve_client};
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal};
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{McpClient, StaleFlag, WatchedTransport};
use super::launch::{Launch, Started};
use crate::supervisor::asynchronous::Connection;
use crate::supervisor::protocol::FromSupervisor;

/// No message of a server is longer.
const MAX_MESSAGE: usize = 8 << 20;
/// So many tools are looked at, on so many pages.
const MAX_TOOLS: usize = 1000;
const MAX_PAGES: usize = 64;
/// What is kept of what a server writes to its standard error.
const KEPT: usize = 2 << 10;
/// What a server gets to end by itself, and then after a signal.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often is looked whether it did.
const GLANCE: Duration = Duration::from_millis(10);

/// A running server.
#[derive(Debug)]
pub(super) struct ServerConnection {
    client: RunningService<RoleClient, McpClient>,
    process: Process,
    /// The server said that its tools are not what they were.
    stale: StaleFlag,
}

impl ServerConnection {
    /// Starts a server and begins the conversation. Dropping this future ends the server.
    pub(super) async fn open(launch: &Launch) -> Result<Self, String> {
        let started = launch.start().map_err(|error| format!("cannot start it: {error}"))?;
        let Started { child, connection, stdin, stdout, stderr } = started;
        let mut process = Process::new(child);
        process.hear(stderr).map_err(|error| format!("cannot read its messages: {error}"))?;
        if let Some(connection) = connection
            && let Err(error) = process.ready(connection).await
        {
            return Err(process.last_words(&error).await);
        }
        let stale = StaleFlag::default();
        let pipes = || -> io::Result<_> {
            let to = pipe::Sender::from_owned_fd(stdin)?;
            let from = pipe::Receiver::from_owned_fd(stdout)?;
            let inner = AsyncRwTransport::new_client(from, to).with_max_line_length(MAX_MESSAGE);
            Ok(WatchedTransport { inner, stale: stale.clone() })
        };
        let transport = pipes().map_err(|error| format!("cannot write to it: {error}"))?;
        match serve_client(McpClient, transport).await {
            Ok(client) => Ok(Self { client, process, stale }),
            Err(error) => Err(process.last_words(&error.to_string()).await),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.client.peer().is_transport_closed()
    }

    /// Whether the tools have to be listed anew before anything else.
    pub(super) fn is_stale(&self) -> bool {
        self.stale.is_set()
    }

    /// All tools as the server tells of them.
    pub(super) async fn list(&self) -> Result<Vec<ToolDef>, String> {
        // Before asking: what changes from here on makes the answer stale again.
        self.stale.clear();
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.client.peer().list_tools(Some(params)).await;
            let page = page.map_err(|error| self.said("list its tools", &error))?;
            tools.extend(page.tools.into_iter().map(definition));
            if tools.len() > MAX_TOOLS {
                return Err(format!("it has more than {MAX_TOOLS} tools"));
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(tools),
            }
        }
        Err(format!("its list of tools has more than {MAX_PAGES} pages"))
    }

    /// Calls a tool. Dropping this tells the server that nobody waits any more.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Value, String> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        let answer = self.client.peer().call_tool_once(params).await;
        let answer = answer.map_err(|error| self.said("call it", &error))?;
        let CallToolResponse::Complete(result) = answer else {
            return Err("it asks for something in return, which programs cannot give".to_owned());
        };
        outcome(&serde_json::to_value(result).map_err(|error| error.to_string())?)
    }

    /// Ends the conversation and the process.
    pub(super) async fn close(mut self) {
        // Closes its input, by which a server knows that it is not needed any more.
        self.client.close_with_timeout(PATIENCE).await.ok(); // then by force, below
        self.process.end().await;
    }

    fn said(&self, doing: &str, error: &rmcp::ServiceError) -> String {
        format!("{doing}: {}", display::safe_line(error.to_string()))
    }
}

fn definition(tool: rmcp::model::Tool) -> ToolDef {
    ToolDef {
        name: tool.name.into_owned(),
        description: tool.description.map(std::borrow::Cow::into_owned),
        input: Value::Object(Map::clone(&tool.input_schema)),
        output: tool.output_schema.map(|schema| Value::Object(Map::clone(&schema))),
    }
}

/// What a program gets of a result: what is structured, else the text, else the blocks as they are.
fn outcome(result: &Value) -> Result<Value, String> {
    let none = Vec::new();
    let blocks = result.get("content").and_then(Value::as_array).unwrap_or(&none);
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    if result.get("isError") == Some(&Value::Bool(true)) {
        return Err(texts.join("\n"));
    }
    if let Some(structured) = result.get("structuredContent") {
        return Ok(structured.clone());
    }
    match blocks.len() {
        0 => Ok(Value::Null),
        _ if texts.len() == blocks.len() => Ok(Value::String(texts.join("\n"))),
        _ => Ok(Value::Array(blocks.clone())),
    }
}

/// The supervisor of a server's box. It ends the box when this is dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    /// To the supervisor, which ends when this is closed.
    connection: Option<Connection>,
    has_ended: bool,
    heard: Arc<Mutex<VecDeque<u8>>>,
    hearing: Mutex<Option<JoinHandle<()>>>,
}

impl Process {
    fn new(child: Child) -> Self {
        Self {
            child,
            connection: None,
            has_ended: false,
            heard: Arc::default(),
            hearing: Mutex::default(),
        }
    }

    /// Waits until the box is built.
    async fn ready(&mut self, connection: UnixStream) -> Result<(), String> {
        let mut connection =
            Connection::new(connection).map_err(|error| format!("cannot reach it: {error}"))?;
        let answer = connection.next().await;
        self.connection = Some(connection);
        match answer.map_err(|error| format!("{error:#}"))? {
            Some(FromSupervisor::Ready { .. }) => Ok(()),
            Some(FromSupervisor::Failed { message, .. }) => Err(message),
            Some(_) => Err("its supervisor sent an unexpected message".to_owned()),
            None => Err("its supervisor exited without a report".to_owned()),
        }
    }

    /// Keeps the end of what it writes to its standard error.
    fn hear(&self, stderr: OwnedFd) -> io::Result<()> {
        let mut from = pipe::Receiver::from_owned_fd(stderr)?;
        let heard = Arc::clone(&self.heard);
        let hearing = tokio::spawn(async move {
            let mut buffer = vec![0; 4 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.extend(buffer.get(..count).unwrap_or_default());
                let surplus = heard.len().saturating_sub(KEPT);
                heard.drain(..surplus);
            }
        });
        *self.hearing.lock().unwrap_or_else(PoisonError::into_inner) = Some(hearing);
        Ok(())
    }

    /// What went wrong, with what it wrote about it.
    async fn last_words(mut self, error: &str) -> String {
        self.end().await;
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard: Vec<u8> = heard.iter().copied().collect();
        let heard = String::from_utf8_lossy(&heard);
        match heard.trim() {
            "" => display::safe_line(error),
            heard => format!("{}: {}", display::safe_line(error), display::safe_line(heard)),
        }
    }

    fn signal(&self, signal: Signal) {
        // Not reaped before `has_ended`, so the number cannot mean another process.
        if !self.has_ended {
            rustix::process::kill_process(Pid::from_child(&self.child), signal).ok(); // it just ended
        }
    }

    /// Waits until it ended; tells it to if it does not do so by itself.
    async fn end(&mut self) {
        for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
            if let Some(signal) = signal {
                self.connection = None; // its supervisor ends the box then
                self.signal(signal);
            }
            let until = Instant::now() + PATIENCE;
            while !self.has_ended && Instant::now() < until {
                self.has_ended = !matches!(self.child.try_wait(), Ok(None));
                tokio::time::sleep(GLANCE).await;
            }
        }
        let hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut hearing) = hearing
            && tokio::time::timeout(PATIENCE, &mut hearing).await.is_err()
        {
            hearing.abort();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hearing) = hearing {
            hearing.abort();
        }
        // By the signal that lets it take its box down and record how it ended; who reaps it then is
        // whoever reaps us.
        self.signal(Signal::TERM);
        self.child.try_wait().ok(); // as a rule it is still at it
    }
}
