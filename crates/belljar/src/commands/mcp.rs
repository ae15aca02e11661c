//! `belljar mcp`: serve programs to MCP clients, tell clients of us, and look after other servers.

mod accept;
mod install;
mod servers;

use anyhow::Context as _;

use crate::cli::Cli;
use crate::cli::mcp::{McpArgs, McpCommand};
use crate::config;
use crate::failure::{Code, FAILED, Failure, Outcome};
use crate::mcp;
use crate::servers::Servers;
use crate::state::State;

pub(crate) fn run(cli: &Cli, args: &McpArgs) -> Outcome {
    match &args.command {
        None => mcp::serve(cli, &args.serve),
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
    work: impl AsyncFnOnce(&Servers, &State) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // What a project says about servers counts for nothing.
    let config = config::load(cli, None)?;
    let state = State::open()?;
    let servers = Servers::new(&config, &state, cli.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start").code(FAILED)?;
    runtime.block_on(async {
        let done = work(&servers, &state).await;
        servers.stop().await;
        done
    })
}
