//! One server over time: not started, there, or failed and waiting for the next attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_code::pin::{self, CheckedTool, Part, Pin, PinState, Pins, ToolDef};
use belljar_model::code::McpServer;
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

/// The first pause after a failure; each further one takes twice as long.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A server of belljar.toml.
#[derive(Debug)]
pub struct Server {
    name: String,
    identifier: String,
    launch: Launch,
    /// For its start, and for each call.
    patience: Duration,
    pins: Arc<Pins>,
    state: Mutex<State>,
}

type Verdicts = Arc<Vec<CheckedTool>>;

#[derive(Debug, Default)]
struct State {
    link: Option<Arc<ServerConnection>>,
    tools: Vec<ToolDef>,
    /// What the tools were found to be, and against which pins.
    judged: Option<(BTreeMap<String, Pin>, Verdicts)>,
    /// Since when it is there.
    since: Option<Instant>,
    failures: u32,
    trouble: Option<(String, Instant)>,
}

impl Server {
    pub(super) fn new(server: &McpServer, launch: Launch, pins: Arc<Pins>) -> Self {
        Self {
            name: server.name.to_string(),
            identifier: server.name.identifier(),
            launch,
            patience: server.timeout,
            pins,
            state: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    pub async fn report(&self) -> ServerReport {
        let (trouble, tools) = match self.judged().await {
            Ok((_, judged)) => (None, judged.to_vec()),
            Err(trouble) => (Some(trouble), Vec::new()),
        };
        ServerReport { name: self.name.clone(), trouble, tools }
    }

    /// The tools that wait for the operator, as they are now.
    pub async fn offer(&self) -> Result<Offer, EngineError> {
        let broken = |trouble: String| EngineError::message(ErrorKind::Broken, trouble);
        let (_, judged) = self.judged().await.map_err(broken)?;
        let tools = self.state.lock().await.tools.clone();
        let of_tool = |judged: &CheckedTool| {
            let tool = tools.iter().find(|tool| tool.name == judged.name)?;
            Some((judged.clone(), pin::pin(&self.launch.identity, tool)))
        };
        let waits = |judged: &&CheckedTool| {
            matches!(judged.state, PinState::New | PinState::Changed { .. })
        };
        let gone = judged.iter().filter(|judged| judged.state == PinState::Gone);
        Ok(Offer {
            server: self.name.clone(),
            tools: judged.iter().filter(waits).filter_map(of_tool).collect(),
            gone: gone.map(|judged| judged.name.clone()).collect(),
        })
    }

    pub async fn call(
        &self,
        tool: &str,
        input: &RawValue,
        cancelled: &CancellationToken,
    ) -> Result<Box<RawValue>, String> {
        let input = arguments(input)?;
        tracing::debug!(server = self.name, tool, "tool is called");
        let called = async {
            let (link, judged) = self.judged().await?;
            let name = callable(&self.name, &judged, tool)?;
            link.call(name, input).await
        };
        let answer = tokio::select! {
            answer = called => answer?,
            () = cancelled.cancelled() => return Err("cancelled".to_owned()),
            () = tokio::time::sleep(self.patience) => {
                let seconds = self.patience.as_secs();
                return Err(format!("{}.{tool} took longer than {seconds} s", self.name));
            }
        };
        serde_json::value::to_raw_value(&answer).map_err(|error| error.to_string())
    }

    pub async fn stop(&self) {
        let link = self.state.lock().await.link.take();
        // Whoever still calls holds it a little longer; then it ends with them.
        if let Some(link) = link.and_then(Arc::into_inner) {
            link.close().await;
            tracing::info!(server = self.name, "tool server stopped");
        }
    }

    /// The server, started if it is not there, and its tools held against what was agreed to.
    async fn judged(&self) -> Result<(Arc<ServerConnection>, Verdicts), String> {
        let mut state = self.state.lock().await;
        let link = self.link(&mut state).await?;
        // Read each time: the operator may have accepted something in another process.
        let accepted = self.pins.of(&self.name).map_err(|error| {
            let error = anyhow::Error::from(error);
            format!("{error:#}")
        })?;
        if let Some((before, judged)) = &state.judged
            && *before == accepted
        {
            return Ok((link, Arc::clone(judged)));
        }
        let judged = Arc::new(pin::check_tools(&accepted, &self.launch.identity, &state.tools));
        state.judged = Some((accepted, Arc::clone(&judged)));
        Ok((link, judged))
    }

    async fn link(&self, state: &mut State) -> Result<Arc<ServerConnection>, String> {
        if let Some(link) = state.link.clone().filter(|link| link.is_open()) {
            if link.is_stale() {
                state.judged = None;
                state.tools = self.in_time(link.list()).await?;
            }
            return Ok(link);
        }
        if let Some(old) = state.link.take().and_then(Arc::into_inner) {
            old.close().await;
            tracing::warn!(server = self.name, failures = state.failures, "tool server ended");
            // One that was there for long did not fail to start.
            if state.since.is_some_and(|since| since.elapsed() > LONGEST_PAUSE) {
                state.failures = 0;
            }
            state.trouble = Some((self.failed(state, "it ended"), Instant::now()));
        }
        if let Some((trouble, since)) = &state.trouble {
            let pause = PAUSE.saturating_mul(1 << state.failures.min(10)).min(LONGEST_PAUSE) / 2;
            if since.elapsed() < pause {
                return Err(trouble.clone());
            }
        }
        match self.in_time(self.open()).await {
            Ok((link, tools)) => {
                let (server, failures) = (&self.name, state.failures);
                tracing::info!(server, tools = tools.len(), failures, "tool server started");
                let link = Arc::new(link);
                let (since, failures) = (Some(Instant::now()), state.failures);
                let link_now = Some(Arc::clone(&link));
                *state = State { link: link_now, tools, since, failures, ..State::default() };
                Ok(link)
            }
            Err(trouble) => {
                let trouble = self.failed(state, &trouble);
                let (server, failures) = (&self.name, state.failures);
                tracing::warn!(server, failures, "tool server could not be started");
                state.trouble = Some((trouble.clone(), Instant::now()));
                Err(trouble)
            }
        }
    }

    fn failed(&self, state: &mut State, trouble: &str) -> String {
        state.failures = state.failures.saturating_add(1);
        format!("the server {} is not there: {trouble}", self.name)
    }

    async fn open(&self) -> Result<(ServerConnection, Vec<ToolDef>), String> {
        let link = ServerConnection::open(&self.launch).await?;
        match link.list().await {
            Ok(tools) => Ok((link, tools)),
            Err(error) => {
                link.close().await;
                Err(error)
            }
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let late = |_| format!("it did not answer within {} s", self.patience.as_secs());
        tokio::time::timeout(self.patience, work).await.map_err(late)?
    }
}

/// The tool's own name, if it may be called.
fn callable<'a>(server: &str, judged: &'a [CheckedTool], tool: &str) -> Result<&'a str, String> {
    let is_it = |judged: &&CheckedTool| judged.name == tool || judged.function == tool;
    let Some(found) = judged.iter().find(is_it) else {
        return Err(format!("the server {server} has no tool {tool:?}"));
    };
    let advice = format!("`belljar mcp accept {server}` lets the operator look at it");
    match &found.state {
        PinState::Accepted => Ok(&found.name),
        PinState::New => Err(format!("{server}.{tool} was not accepted yet; {advice}")),
        PinState::Changed { what } => {
            let what: Vec<String> = what.iter().map(Part::to_string).collect();
            let what = what.join(" and ");
            Err(format!("{server}.{tool} changed since it was accepted ({what}); {advice}"))
        }
        PinState::Gone => Err(format!("the server {server} has {tool} no more")),
        PinState::Refused { why } => Err(format!("{server}.{tool} is refused: {why}")),
    }
}

/// What a tool takes is an object, always.
fn arguments(input: &RawValue) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(input.get()) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) | Err(_) => Err("a tool takes one object: { name: value }".to_owned()),
    }
}
