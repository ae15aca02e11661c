//! Tool servers: other MCP servers, whose tools programs call as `tools.SERVER.FUNCTION(input)`.
//!
//! Each tool server runs in its own box, with a broker, rules and a record. A supervisor starts the
//! server when it is first needed. The messages of the server are untrusted: their size is limited, and a
//! tool is called only while its definition is the one that the operator accepted (`belljar_code::pin`).
//! A server that does not start, hangs or exits is reported and does not affect other servers.

mod client;
mod connection;
mod declare;
mod launch;
mod offer;
mod server;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use belljar_code::pin::Pins;
use belljar_model::Config;
use belljar_wire::ToolRef;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Source;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
pub use belljar_code::pin::{CheckedTool, PinState};
pub use declare::declarations;
use launch::Launch;
pub use offer::Offer;
pub use server::Server;

/// A tool of a tool server that programs may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTool {
    /// The name of the tool's server in `belljar.toml`.
    pub server: String,
    /// The name of the function that programs call.
    pub function: String,
    /// The name of the tool on its server.
    pub name: String,
    pub description: String,
    pub input: Value,
    pub output: Option<Value>,
}

/// The state of a tool server and of its tools.
#[derive(Clone, Debug)]
pub struct ServerReport {
    pub name: String,
    /// The reason why the server is not available, or `None` if it is running.
    pub trouble: Option<String>,
    pub tools: Vec<CheckedTool>,
}

/// All tool servers that `belljar.toml` declares.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Arc<Server>>,
}

impl Servers {
    /// Creates the tool servers of a configuration, without starting them. Relative paths in templates
    /// refer to `base_dir`.
    pub fn new(
        state: &Scoped,
        (config, sources): (&Config, &[Source]),
        base_dir: &Path,
    ) -> Result<Self, EngineError> {
        let declared = config.servers();
        if declared.is_empty() {
            return Ok(Self { servers: Vec::new() });
        }
        let pins = Arc::new(Pins::open(state.home()).kind(ErrorKind::Broken)?);
        let server = |server| {
            let launch = Launch::new(state, (config, sources), server, base_dir);
            Arc::new(Server::new(server, launch, Arc::clone(&pins)))
        };
        Ok(Self { servers: declared.values().map(server).collect() })
    }

    /// Returns the functions that programs can call, from the pins of accepted tools. Starts no server and
    /// waits for none: a call starts the server, and checks that the tool has not changed.
    ///
    /// The tools of a server whose pins cannot be read are left out.
    pub fn functions(&self) -> Vec<ToolRef> {
        self.servers.iter().flat_map(|server| server.functions()).collect()
    }

    /// Returns the accepted tools of all servers that are running or can be started.
    pub async fn tools(&self) -> Vec<ForeignTool> {
        let mut tools = Vec::new();
        for report in self.report().await {
            let is_accepted = |tool: &CheckedTool| tool.state == PinState::Accepted;
            tools.extend(report.tools.into_iter().filter(is_accepted).filter_map(|tool| {
                let shown = tool.shown?;
                Some(ForeignTool {
                    server: report.name.clone(),
                    function: tool.function,
                    name: tool.name,
                    description: shown.description,
                    input: shown.input,
                    output: shown.output,
                })
            }));
        }
        tools
    }

    /// Returns the state of every server. Servers that are not running are started in parallel.
    pub async fn report(&self) -> Vec<ServerReport> {
        let mut tasks = JoinSet::new();
        for (index, server) in self.servers.iter().enumerate() {
            let server = Arc::clone(server);
            tasks.spawn(async move { (index, server.report().await) });
        }
        let mut reports = tasks.join_all().await;
        reports.sort_by_key(|(index, _)| *index);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    /// Returns at most `limit` accepted tools whose names or descriptions match the query, best matches
    /// first.
    pub async fn search(&self, query: &str, limit: usize) -> Vec<ForeignTool> {
        rank(self.tools().await, query, limit)
    }

    /// Calls a tool of a tool server. `tool` is the tool's name or the name of its function.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        input: Box<RawValue>,
        cancelled: CancellationToken,
    ) -> Result<Box<RawValue>, String> {
        let found = self.find(server).ok_or_else(|| format!("unknown tool server {server:?}"))?;
        found.call(tool, &input, &cancelled).await
    }

    /// Finds a tool server by its name, or by the name that programs use for it.
    pub fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name() == name || server.identifier() == name)
    }

    /// Stops all tool servers and waits until they have ended.
    pub async fn stop(&self) {
        let mut tasks = JoinSet::new();
        for server in &self.servers {
            let server = Arc::clone(server);
            tasks.spawn(async move { server.stop().await });
        }
        tasks.join_all().await;
    }
}

/// Returns the tools that contain words of the query, best matches first. A word in a name counts more
/// than a word in a description.
fn rank(tools: Vec<ForeignTool>, query: &str, limit: usize) -> Vec<ForeignTool> {
    let query = query.to_lowercase();
    let words: Vec<&str> =
        query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let score = |tool: &ForeignTool| -> usize {
        let name = format!("{}.{} {}", tool.server, tool.function, tool.name).to_lowercase();
        let description = tool.description.to_lowercase();
        let word_score = |word: &&str| {
            4 * usize::from(name.contains(*word)) + usize::from(description.contains(*word))
        };
        words.iter().map(word_score).sum()
    };
    let mut scored: Vec<(usize, ForeignTool)> =
        tools.into_iter().map(|tool| (score(&tool), tool)).collect();
    // An empty query matches all tools.
    scored.retain(|(score, _)| *score > 0 || words.is_empty());
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().take(limit).map(|(_, tool)| tool).collect()
}
