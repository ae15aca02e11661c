//! `belljar mcp`: serves programs to MCP clients.

use crate::cli::Cli;
use crate::cli::mcp::ServeArgs;
use crate::failure::{Outcome, usage};

pub(crate) fn serve(_cli: &Cli, _args: &ServeArgs) -> Outcome {
    Err(usage("this build does not serve MCP yet"))
}
