//! One tool server over time: not started, running, or failed and waiting for the next attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_code::pin::{self, CheckedTool, Part, Pin, PinState, Pins, ToolDef};
use belljar_model::code::McpServer;
use belljar_wire::ToolRef;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ServerReport;
use super::connection::ServerConnection;
use super::launch::Launch;
use super::offer::Offer;
use crate::error::{EngineError, ErrorKind};

/// The pause before a tool server is started again after its first failure. Each further pause is twice
/// as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Twice the longest pause between two attempts to start a tool server. The failure count of a server is
/// reset if the server ran for longer than this time.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// A tool server that `belljar.toml` declares.
#[derive(Debug)]
pub struct Server {
    name: String,
    identifier: String,
    launch: Launch,
    /// The maximum duration of the server's start, and of each call.
    timeout: Duration,
    pins: Arc<Pins>,
    state: Mutex<ServerState>,
}

/// The tools of a server, compared with the tools that the operator accepted.
type CheckedTools = Arc<Vec<CheckedTool>>;

/// The connection to a tool server, its tools and its failures.
#[derive(Debug, Default)]
struct ServerState {
    connection: Option<Arc<ServerConnection>>,
    tools: Vec<ToolDef>,
    /// The checked tools, and the pins that they were compared with.
    checked: Option<(BTreeMap<String, Pin>, CheckedTools)>,
    /// The time when the server was last started.
    started: Option<Instant>,
    /// The number of failures in a row.
    failures: u32,
    /// The message and the time of the last failure.
    last_failure: Option<(String, Instant)>,
}

impl Server {
    pub(super) fn new(server: &McpServer, launch: Launch, pins: Arc<Pins>) -> Self {
        Self {
            name: server.name.to_string(),
            identifier: server.name.identifier(),
            launch,
            timeout: server.timeout,
            pins,
            state: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that programs use for the server.
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Returns the functions of the server that programs can call, without starting the server.
    pub(super) fn functions(&self) -> Vec<ToolRef> {
        let accepted = self.pins.of(&self.name).unwrap_or_else(|_| {
            tracing::warn!(server = self.name, "the pins of the tool server cannot be read");
            BTreeMap::new()
        });
        let reference =
            |(function, tool)| ToolRef { server: self.identifier.clone(), function, tool };
        pin::functions(accepted.keys()).into_iter().map(reference).collect()
    }

    /// Returns the state of the server and its tools. Starts the server if it is not running.
    pub async fn report(&self) -> ServerReport {
        let (trouble, tools) = match self.checked_tools().await {
            Ok((_, checked)) => (None, checked.to_vec()),
            Err(error) => (Some(error), Vec::new()),
        };
        ServerReport { name: self.name.clone(), trouble, tools }
    }

    /// Returns the current tools of the server that wait for the operator's acceptance.
    pub async fn offer(&self) -> Result<Offer, EngineError> {
        let broken = |error: String| EngineError::message(ErrorKind::Broken, error);
        let (_, checked) = self.checked_tools().await.map_err(broken)?;
        let tools = self.state.lock().await.tools.clone();
        let with_pin = |checked: &CheckedTool| {
            let tool = tools.iter().find(|tool| tool.name == checked.name)?;
            Some((checked.clone(), pin::pin(&self.launch.identity, tool)))
        };
        let is_waiting = |checked: &&CheckedTool| {
            matches!(checked.state, PinState::New | PinState::Changed { .. })
        };
        let gone = checked.iter().filter(|tool| tool.state == PinState::Gone);
        Ok(Offer {
            server: self.name.clone(),
            tools: checked.iter().filter(is_waiting).filter_map(with_pin).collect(),
            gone: gone.map(|tool| tool.name.clone()).collect(),
        })
    }

    /// Calls an accepted tool of the server and returns its result as JSON.
    pub async fn call(
        &self,
        tool: &str,
        input: &RawValue,
        cancelled: &CancellationToken,
    ) -> Result<Box<RawValue>, String> {
        let input = arguments(input)?;
        tracing::debug!(server = self.name, tool, "tool is called");
        let call = async {
            let (connection, checked) = self.checked_tools().await?;
            let name = callable_name(&self.name, &checked, tool)?;
            connection.call(name, input).await
        };
        let result = tokio::select! {
            result = call => result?,
            () = cancelled.cancelled() => return Err("cancelled".to_owned()),
            () = tokio::time::sleep(self.timeout) => {
                let seconds = self.timeout.as_secs();
                return Err(format!("the tool {}.{tool} did not return within {seconds} s", self.name));
            }
        };
        serde_json::value::to_raw_value(&result).map_err(|error| error.to_string())
    }

    /// Stops the server if it is running.
    pub async fn stop(&self) {
        let connection = self.state.lock().await.connection.take();
        // If a call still uses the connection, the server ends after that call.
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.close().await;
            tracing::info!(server = self.name, "tool server stopped");
        }
    }

    /// Returns the connection to the server and its checked tools. Starts the server if it is not running.
    async fn checked_tools(&self) -> Result<(Arc<ServerConnection>, CheckedTools), String> {
        let mut state = self.state.lock().await;
        let connection = self.connection(&mut state).await?;
        // The pins are read each time, since another process may have accepted tools.
        let accepted = self.pins.of(&self.name).map_err(|error| {
            let error = anyhow::Error::from(error);
            format!("{error:#}")
        })?;
        if let Some((pins, checked)) = &state.checked
            && *pins == accepted
        {
            return Ok((connection, Arc::clone(checked)));
        }
        let checked = Arc::new(pin::check_tools(&accepted, &self.launch.identity, &state.tools));
        state.checked = Some((accepted, Arc::clone(&checked)));
        Ok((connection, checked))
    }

    /// Returns the connection to the server. Starts the server if it is not running, unless its last
    /// failure is too recent.
    async fn connection(&self, state: &mut ServerState) -> Result<Arc<ServerConnection>, String> {
        if let Some(connection) = state.connection.clone().filter(|it| it.is_open()) {
            if connection.is_stale() {
                state.checked = None;
                state.tools = self.with_timeout(connection.list()).await?;
            }
            return Ok(connection);
        }
        if let Some(closed) = state.connection.take().and_then(Arc::into_inner) {
            closed.close().await;
            tracing::warn!(server = self.name, failures = state.failures, "tool server ended");
            // A server that ran for a long time did not fail to start.
            if state.started.is_some_and(|started| started.elapsed() > MAX_PAUSE) {
                state.failures = 0;
            }
            state.last_failure =
                Some((self.count_failure(state, "the server exited"), Instant::now()));
        }
        if let Some((error, since)) = &state.last_failure {
            let pause = FIRST_PAUSE.saturating_mul(1 << state.failures.min(10)).min(MAX_PAUSE) / 2;
            if since.elapsed() < pause {
                return Err(error.clone());
            }
        }
        match self.with_timeout(self.open()).await {
            Ok((connection, tools)) => {
                let (server, failures) = (&self.name, state.failures);
                tracing::info!(server, tools = tools.len(), failures, "tool server started");
                let connection = Arc::new(connection);
                *state = ServerState {
                    connection: Some(Arc::clone(&connection)),
                    tools,
                    started: Some(Instant::now()),
                    failures: state.failures,
                    ..ServerState::default()
                };
                Ok(connection)
            }
            Err(error) => {
                let error = self.count_failure(state, &error);
                let (server, failures) = (&self.name, state.failures);
                tracing::warn!(server, failures, "tool server could not be started");
                state.last_failure = Some((error.clone(), Instant::now()));
                Err(error)
            }
        }
    }

    /// Counts a failure of the server and returns the complete error message.
    fn count_failure(&self, state: &mut ServerState, error: &str) -> String {
        state.failures = state.failures.saturating_add(1);
        format!("the tool server {} is not available: {error}", self.name)
    }

    /// Starts the server and lists its tools.
    async fn open(&self) -> Result<(ServerConnection, Vec<ToolDef>), String> {
        let connection = ServerConnection::open(&self.launch).await?;
        match connection.list().await {
            Ok(tools) => Ok((connection, tools)),
            Err(error) => {
                connection.close().await;
                Err(error)
            }
        }
    }

    /// Waits for a response of the server, up to its timeout.
    async fn with_timeout<T>(
        &self,
        response: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let late = |_| format!("the server did not answer within {} s", self.timeout.as_secs());
        tokio::time::timeout(self.timeout, response).await.map_err(late)?
    }
}

/// Returns the name of a tool on its server, or an error if the tool may not be called.
fn callable_name<'a>(
    server: &str,
    checked: &'a [CheckedTool],
    tool: &str,
) -> Result<&'a str, String> {
    let has_name = |it: &&CheckedTool| it.name == tool || it.function == tool;
    let Some(found) = checked.iter().find(has_name) else {
        return Err(format!("the tool server {server} has no tool {tool:?}"));
    };
    let advice = format!("the operator can review it with `belljar mcp accept {server}`");
    match &found.state {
        PinState::Accepted => Ok(&found.name),
        PinState::New => Err(format!("the tool {server}.{tool} is not accepted yet; {advice}")),
        PinState::Changed { what } => {
            let what: Vec<String> = what.iter().map(Part::to_string).collect();
            let what = what.join(" and ");
            Err(format!(
                "the tool {server}.{tool} changed since it was accepted ({what}); {advice}"
            ))
        }
        PinState::Gone => Err(format!("the tool server {server} no longer has the tool {tool}")),
        PinState::Refused { why } => Err(format!("the tool {server}.{tool} is refused: {why}")),
    }
}

/// Parses the input of a tool call, which must be an object or null.
fn arguments(input: &RawValue) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(input.get()) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) | Err(_) => {
            Err("the input of a tool must be one object, such as { name: value }".to_owned())
        }
    }
}
