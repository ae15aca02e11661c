//! `belljar mcp`: serve programs to MCP clients, tell clients of us, and look after other servers.

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

/// The other servers of the operator's file, for as long as `work` takes.
fn with_servers<T>(
    cli: &Cli,
    work: impl AsyncFnOnce(&Servers, &Scoped) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    // What a project says about servers counts for nothing.
    let (config, sources) = config::load_from(host(), cli.config.as_deref(), None)?;
    let state = scope::open(None)?;
    let servers = Servers::new(&state, (&config, &sources), &scope::here()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start").kind(ErrorKind::Broken)?;
    runtime.block_on(async {
        let done = work(&servers, &state).await;
        servers.stop().await;
        done
    })
}
