//! Other MCP servers, whose tools programs call as `tools.SERVER.FUNCTION(input)`.
//!
//! Each runs in a box of its own with a broker, rules and a record. A supervisor starts it when it is first
//! needed. Its messages are untrusted: they are bounded, and a tool is called only while its definition is
//! the one that the operator accepted (`belljar_code::pin`). A server that does not start, hangs or dies is
//! reported and does not affect other servers.

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

/// A tool that programs may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTool {
    /// As belljar.toml names its server; programs write `-` as `_`.
    pub server: String,
    /// As programs call it.
    pub function: String,
    /// As its server calls it.
    pub name: String,
    pub description: String,
    pub input: Value,
    pub output: Option<Value>,
}

impl ForeignTool {
    /// As programs call its server.
    pub fn namespace(&self) -> String {
        self.server.replace('-', "_")
    }
}

/// How a server is, and what is made of its tools.
#[derive(Clone, Debug)]
pub struct ServerReport {
    pub name: String,
    /// Why it is not there.
    pub trouble: Option<String>,
    pub tools: Vec<CheckedTool>,
}

/// All servers of belljar.toml.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Arc<Server>>,
}

impl Servers {
    /// Starts no server yet. `sources` are the files of `config`; relative paths of templates begin at `here`.
    pub fn new(
        state: &Scoped,
        (config, sources): (&Config, &[Source]),
        here: &Path,
    ) -> Result<Self, EngineError> {
        let declared = config.servers();
        if declared.is_empty() {
            return Ok(Self { servers: Vec::new() });
        }
        let pins = Arc::new(Pins::open(state.home()).kind(ErrorKind::Broken)?);
        let server = |server| {
            let launch = Launch::new(state, (config, sources), server, here);
            Arc::new(Server::new(server, launch, Arc::clone(&pins)))
        };
        Ok(Self { servers: declared.values().map(server).collect() })
    }

    /// The tools that may be called, of the servers that are there.
    pub async fn tools(&self) -> Vec<ForeignTool> {
        let mut tools = Vec::new();
        for report in self.report().await {
            let accepted = |judged: &CheckedTool| judged.state == PinState::Accepted;
            tools.extend(report.tools.into_iter().filter(accepted).filter_map(|judged| {
                let shown = judged.shown?;
                Some(ForeignTool {
                    server: report.name.clone(),
                    function: judged.function,
                    name: judged.name,
                    description: shown.description,
                    input: shown.input,
                    output: shown.output,
                })
            }));
        }
        tools
    }

    /// How all servers are, starting them side by side where they are not there.
    pub async fn report(&self) -> Vec<ServerReport> {
        let mut asked = JoinSet::new();
        for (index, server) in self.servers.iter().enumerate() {
            let server = Arc::clone(server);
            asked.spawn(async move { (index, server.report().await) });
        }
        let mut reports = asked.join_all().await;
        reports.sort_by_key(|(index, _)| *index);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    /// The tools that words of a question are found in, best first.
    pub async fn search(&self, query: &str, limit: usize) -> Vec<ForeignTool> {
        ranked(self.tools().await, query, limit)
    }

    /// Calls a tool, by its own name or by the one that programs have for it.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        input: Box<RawValue>,
        cancelled: CancellationToken,
    ) -> Result<Box<RawValue>, String> {
        let found = self.find(server).ok_or_else(|| format!("there is no server {server:?}"))?;
        found.call(tool, &input, &cancelled).await
    }

    /// A server by its name, or by what programs call it.
    pub fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name() == name || server.identifier() == name)
    }

    /// Ends them all.
    pub async fn stop(&self) {
        let mut ends = JoinSet::new();
        for server in &self.servers {
            let server = Arc::clone(server);
            ends.spawn(async move { server.stop().await });
        }
        ends.join_all().await;
    }
}

/// Those in which the words are found; a word in a name counts for more than one in a description.
fn ranked(tools: Vec<ForeignTool>, query: &str, limit: usize) -> Vec<ForeignTool> {
    let query = query.to_lowercase();
    let words: Vec<&str> =
        query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let score = |tool: &ForeignTool| -> usize {
        let name = format!("{}.{} {}", tool.server, tool.function, tool.name).to_lowercase();
        let description = tool.description.to_lowercase();
        let of_word = |word: &&str| {
            4 * usize::from(name.contains(*word)) + usize::from(description.contains(*word))
        };
        words.iter().map(of_word).sum()
    };
    let mut scored: Vec<(usize, ForeignTool)> =
        tools.into_iter().map(|tool| (score(&tool), tool)).collect();
    // Without a word, everything is asked for.
    scored.retain(|(score, _)| *score > 0 || words.is_empty());
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().take(limit).map(|(_, tool)| tool).collect()
}
