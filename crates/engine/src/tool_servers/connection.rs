//! The connection to a running tool server and its supervisor.

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

/// The maximum length of one message of a tool server, in bytes.
const MAX_MESSAGE: usize = 8 << 20;
/// The maximum number of tools of one server.
const MAX_TOOLS: usize = 1000;
/// The maximum number of pages in the list of a server's tools.
const MAX_PAGES: usize = 64;
/// The number of bytes that are kept from the end of a server's standard error.
const MAX_STDERR: usize = 2 << 10;
/// The time that a server has to exit by itself, and again after each signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which the exit of a server is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The connection to a running tool server.
#[derive(Debug)]
pub(super) struct ServerConnection {
    client: RunningService<RoleClient, McpClient>,
    process: ServerProcess,
    /// Set when the server reports that its tools have changed.
    stale: StaleFlag,
}

impl ServerConnection {
    /// Starts a tool server and connects to it. Dropping the future ends the server.
    pub(super) async fn open(launch: &Launch) -> Result<Self, String> {
        let started =
            launch.start().map_err(|error| format!("cannot start the server: {error}"))?;
        let Started { child, connection, stdin, stdout, stderr } = started;
        let mut process = ServerProcess::new(child);
        process
            .collect_stderr(stderr)
            .map_err(|error| format!("cannot read the standard error of the server: {error}"))?;
        if let Some(connection) = connection
            && let Err(error) = process.wait_until_ready(connection).await
        {
            return Err(process.fail(&error).await);
        }
        let stale = StaleFlag::default();
        let open_pipes = || -> io::Result<_> {
            let writer = pipe::Sender::from_owned_fd(stdin)?;
            let reader = pipe::Receiver::from_owned_fd(stdout)?;
            let inner = AsyncRwTransport::new_client(reader, writer);
            let inner = inner.with_max_line_length(MAX_MESSAGE);
            Ok(WatchedTransport { inner, stale: stale.clone() })
        };
        let transport = open_pipes()
            .map_err(|error| format!("cannot open the pipes of the server: {error}"))?;
        match serve_client(McpClient, transport).await {
            Ok(client) => Ok(Self { client, process, stale }),
            Err(error) => Err(process.fail(&error.to_string()).await),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.client.peer().is_transport_closed()
    }

    /// Returns whether the server reported a change of its tools since they were last listed.
    pub(super) fn is_stale(&self) -> bool {
        self.stale.is_set()
    }

    /// Requests the definitions of all tools from the server.
    pub(super) async fn list(&self) -> Result<Vec<ToolDef>, String> {
        // The flag is cleared first, so that a change during the request sets it again.
        self.stale.clear();
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.client.peer().list_tools(Some(params)).await;
            let page =
                page.map_err(|error| describe("cannot list the tools of the server", &error))?;
            tools.extend(page.tools.into_iter().map(definition));
            if tools.len() > MAX_TOOLS {
                return Err(format!("the server has more than {MAX_TOOLS} tools"));
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(tools),
            }
        }
        Err(format!("the tool list of the server has more than {MAX_PAGES} pages"))
    }

    /// Calls a tool of the server. Dropping the future cancels the call on the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Value, String> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        let response = self.client.peer().call_tool_once(params).await;
        let response = response.map_err(|error| describe("cannot call the tool", &error))?;
        let CallToolResponse::Complete(result) = response else {
            let text = "the tool requires more input from its client, which programs cannot give";
            return Err(text.to_owned());
        };
        program_result(&serde_json::to_value(result).map_err(|error| error.to_string())?)
    }

    /// Closes the connection and waits until the server has ended.
    pub(super) async fn close(mut self) {
        // This closes the input of the server, which then exits. Otherwise the next line kills the server.
        self.client.close_with_timeout(EXIT_TIMEOUT).await.ok();
        self.process.end().await;
    }
}

/// Returns an error message that contains only printable characters.
fn describe(failure: &str, error: &rmcp::ServiceError) -> String {
    format!("{failure}: {}", display::safe_line(error.to_string()))
}

fn definition(tool: rmcp::model::Tool) -> ToolDef {
    ToolDef {
        name: tool.name.into_owned(),
        description: tool.description.map(std::borrow::Cow::into_owned),
        input: Value::Object(Map::clone(&tool.input_schema)),
        output: tool.output_schema.map(|schema| Value::Object(Map::clone(&schema))),
    }
}

/// Returns the part of a tool's result that a program gets: the structured content, or the text, or all
/// content blocks.
fn program_result(result: &Value) -> Result<Value, String> {
    let no_blocks = Vec::new();
    let blocks = result.get("content").and_then(Value::as_array).unwrap_or(&no_blocks);
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

/// The supervisor process of a tool server. Dropping this value ends the supervisor and its box.
#[derive(Debug)]
struct ServerProcess {
    child: Child,
    /// The connection to the supervisor, which ends the box when the connection is closed.
    connection: Option<Connection>,
    has_ended: bool,
    /// The last bytes that the server wrote to its standard error.
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
    /// The task that reads the standard error.
    stderr_task: Mutex<Option<JoinHandle<()>>>,
}

impl ServerProcess {
    fn new(child: Child) -> Self {
        Self {
            child,
            connection: None,
            has_ended: false,
            stderr_tail: Arc::default(),
            stderr_task: Mutex::default(),
        }
    }

    /// Waits until the supervisor reports that the server has started in its box.
    async fn wait_until_ready(&mut self, connection: UnixStream) -> Result<(), String> {
        let mut connection = Connection::new(connection)
            .map_err(|error| format!("cannot connect to the supervisor of the server: {error}"))?;
        let message = connection.next().await;
        self.connection = Some(connection);
        match message.map_err(|error| format!("{error:#}"))? {
            Some(FromSupervisor::Ready { .. }) => Ok(()),
            Some(FromSupervisor::Failed { message, .. }) => Err(message),
            Some(_) => {
                Err("the supervisor of the tool server sent an unexpected message".to_owned())
            }
            None => Err("the supervisor of the tool server exited before it was ready".to_owned()),
        }
    }

    /// Starts a task that keeps the last bytes of the server's standard error.
    fn collect_stderr(&self, stderr: OwnedFd) -> io::Result<()> {
        let mut reader = pipe::Receiver::from_owned_fd(stderr)?;
        let tail = Arc::clone(&self.stderr_tail);
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 4 << 10];
            while let Ok(count @ 1..) = reader.read(&mut buffer).await {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend(buffer.get(..count).unwrap_or_default());
                let surplus = tail.len().saturating_sub(MAX_STDERR);
                tail.drain(..surplus);
            }
        });
        *self.stderr_task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(())
    }

    /// Ends the server after an error. Returns the error with the end of the server's standard error.
    async fn fail(mut self, error: &str) -> String {
        self.end().await;
        let tail = self.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
        let tail: Vec<u8> = tail.iter().copied().collect();
        let tail = String::from_utf8_lossy(&tail);
        match tail.trim() {
            "" => display::safe_line(error),
            tail => format!("{}: {}", display::safe_line(error), display::safe_line(tail)),
        }
    }

    fn signal(&self, signal: Signal) {
        // The process is not reaped before `has_ended` is set, so its id cannot belong to another process.
        if !self.has_ended {
            // An error means that the process has just exited.
            rustix::process::kill_process(Pid::from_child(&self.child), signal).ok();
        }
    }

    /// Waits until the supervisor exits. Sends signals if it does not exit by itself.
    async fn end(&mut self) {
        for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
            if let Some(signal) = signal {
                self.connection = None; // the supervisor ends the box when the connection is closed
                self.signal(signal);
            }
            let deadline = Instant::now() + EXIT_TIMEOUT;
            while !self.has_ended && Instant::now() < deadline {
                self.has_ended = !matches!(self.child.try_wait(), Ok(None));
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        let task = self.stderr_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(EXIT_TIMEOUT, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let task = self.stderr_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
        // SIGTERM lets the supervisor remove its box and record the end. The parent of this process reaps
        // it.
        self.signal(Signal::TERM);
        self.child.try_wait().ok(); // usually the supervisor has not exited yet
    }
}
