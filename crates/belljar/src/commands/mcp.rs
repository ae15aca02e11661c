//! `belljar mcp`: serve programs to MCP clients, tell clients of us, and look after other servers.

mod install;

use crate::cli::Cli;
use crate::cli::mcp::{McpArgs, McpCommand};
use crate::failure::{Outcome, usage};
use crate::mcp;

pub(crate) fn run(cli: &Cli, args: &McpArgs) -> Outcome {
    match &args.command {
        None => mcp::serve(cli, &args.serve),
        Some(McpCommand::Install(args)) => install::run(cli, args),
        Some(McpCommand::Servers { .. } | McpCommand::Accept { .. }) => {
            Err(usage("this build knows no other servers yet"))
        }
    }
}
