//! `belljar mcp`: serves code mode to MCP clients, installs Belljar in clients and manages tool servers.

mod accept;
mod install;
mod serve;
mod servers;

use crate::scope::host;
use anyhow::Context as _;

use crate::cli::Cli;
use crate::cli::mcp::{McpArgs, McpCommand};
use crate::exit::Outcome;
use crate::scope;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::scope::Scoped;
use belljar_engine::tool_servers::Servers;

/// Runs `belljar mcp`.
pub(crate) fn run(cli: &Cli, args: &McpArgs) -> Outcome {
    match &args.command {
        None => serve::run(cli, &args.serve),
        Some(McpCommand::Install(args)) => install::run(cli, args),
        Some(McpCommand::Servers { json }) => servers::run(cli, *json),
        Some(McpCommand::Accept { server, tool, yes }) => {
            accept::run(cli, server, tool.as_deref(), *yes)
        }
    }
}

/// Starts the tool servers of the operator's belljar.toml, calls `work`, and stops the servers.
fn with_servers<T>(
    cli: &Cli,
    work: impl AsyncFnOnce(&Servers, &Scoped) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    // Tool servers in the file of a project are ignored.
    let (config, sources) = config::load_from(host(), cli.config.as_deref(), None)?;
    let state = scope::open(None)?;
    let servers = Servers::new(&state, (&config, &sources), &scope::current_dir()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime").kind(ErrorKind::Broken)?;
    runtime.block_on(async {
        let result = work(&servers, &state).await;
        servers.stop().await;
        result
    })
}
