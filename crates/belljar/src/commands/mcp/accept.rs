//! `belljar mcp accept`: accepts the current tools of a tool server.
//!
//! The tools are shown in full before the question. The ledger records the acceptance before programs
//! can call the tools.

use belljar_model::display;

use super::with_servers;
use crate::cli::Cli;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::tool_servers::{CheckedTool, ForeignTool, Offer, PinState, declarations};

/// Runs `belljar mcp accept`.
pub(super) fn run(cli: &Cli, server: &str, tool: Option<&str>, yes: bool) -> Outcome {
    with_servers(cli, async |servers, state| {
        let not_declared = || {
            invalid(format!(
                "unknown tool server {server}; belljar.toml has no section [mcp.{server}]"
            ))
        };
        let found = servers.find(server).ok_or_else(not_declared)?;
        let mut offer = found.offer().await?;
        if let Some(tool) = tool {
            offer = offer.only(tool);
        }
        if offer.is_empty() {
            return explain_empty_offer(&found.report().await.tools, server, tool);
        }
        print::out(&offer_text(found.name(), &offer)).kind(ErrorKind::Broken)?;
        if !yes && !print::confirm("let programs call these tools?").kind(ErrorKind::Broken)? {
            return Err(invalid(
                "nothing was accepted, because it was not confirmed; `--yes` skips the question",
            ));
        }
        offer.accept(state)?;
        let count = offer.tools().len();
        print::note(&format!(
            "accepted tools: {count}; programs can call them as tools.{}",
            found.identifier()
        ));
        Ok(0)
    })
}

/// Prints why no tool waits to be accepted.
fn explain_empty_offer(tools: &[CheckedTool], server: &str, tool: Option<&str>) -> Outcome {
    let is_chosen = |checked_tool: &&CheckedTool| tool.is_none_or(|tool| checked_tool.name == tool);
    let chosen: Vec<&CheckedTool> = tools.iter().filter(is_chosen).collect();
    if let (Some(tool), []) = (tool, chosen.as_slice()) {
        return Err(invalid(format!("the tool server {server} has no tool {tool:?}")));
    }
    for checked_tool in chosen {
        if let PinState::Refused { why } = &checked_tool.state {
            print::note(&format!("the tool {} is refused: {why}", checked_tool.name));
        }
    }
    print::note("no tools wait to be accepted");
    Ok(0)
}

/// Returns the tools as a model sees them: descriptions, declarations and warnings.
fn offer_text(server: &str, offer: &Offer) -> String {
    let mut out = String::new();
    let mut tools = Vec::new();
    for checked_tool in offer.tools() {
        let name = display::safe(&checked_tool.name);
        let mut notes = Vec::new();
        if let PinState::Changed { what } = &checked_tool.state {
            notes.extend(what.iter().map(|part| format!("{part} changed")));
        }
        notes.extend(checked_tool.oddities.iter().map(|oddity| format!("it has {oddity}")));
        let notes =
            if notes.is_empty() { String::new() } else { format!(": {}", notes.join(", ")) };
        out.push_str(&format!("{} {name}{notes}\n", checked_tool.state.name()));
        if let Some(shown) = &checked_tool.shown {
            let description = display::safe_multiline(&shown.description);
            out.extend(description.lines().map(|line| format!("    {line}\n")));
            tools.push(ForeignTool {
                server: server.to_owned(),
                function: checked_tool.function.clone(),
                name: checked_tool.name.clone(),
                description: String::new(),
                input: shown.input.clone(),
                output: shown.output.clone(),
            });
        }
    }
    for name in offer.gone() {
        out.push_str(&format!(
            "removed {}: the server no longer has this tool\n",
            display::safe(name)
        ));
    }
    if !tools.is_empty() {
        out.push_str(&format!("\n{}", display::safe_multiline(declarations(&tools))));
    }
    out
}
