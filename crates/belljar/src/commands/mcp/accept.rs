//! `belljar mcp accept`: agree to tools of another server as they are now.
//!
//! What is agreed to is shown in full first, and is on record before it is in force.

use belljar_model::display;

use super::with_servers;
use crate::cli::Cli;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_engine::tool_servers::{CheckedTool, ForeignTool, Offer, PinState, declarations};

pub(super) fn run(cli: &Cli, server: &str, tool: Option<&str>, yes: bool) -> Outcome {
    with_servers(cli, async |servers, state| {
        let none = || invalid(format!("there is no [mcp.{server}] in belljar.toml"));
        let found = servers.find(server).ok_or_else(none)?;
        let mut offer = found.offer().await?;
        if let Some(tool) = tool {
            offer = offer.only(tool);
        }
        if offer.is_empty() {
            return settled(&found.report().await.tools, server, tool);
        }
        print::out(&shown(found.name(), &offer)).kind(ErrorKind::Broken)?;
        if !yes && !print::confirm("let programs call these?").kind(ErrorKind::Broken)? {
            return Err(invalid("nothing was accepted; `--yes` answers the question"));
        }
        offer.accept(state)?;
        let count = offer.tools().len();
        print::note(&format!(
            "{count} accepted; programs call them as tools.{}",
            found.identifier()
        ));
        Ok(0)
    })
}

/// Says why there is nothing to agree to.
fn settled(tools: &[CheckedTool], server: &str, tool: Option<&str>) -> Outcome {
    let asked = |judged: &&CheckedTool| tool.is_none_or(|tool| judged.name == tool);
    let of_interest: Vec<&CheckedTool> = tools.iter().filter(asked).collect();
    if let (Some(tool), []) = (tool, of_interest.as_slice()) {
        return Err(invalid(format!("the server {server} has no tool {tool:?}")));
    }
    for judged in of_interest {
        if let PinState::Refused { why } = &judged.state {
            print::note(&format!("{} is refused: {why}", judged.name));
        }
    }
    print::note("nothing waits to be accepted");
    Ok(0)
}

/// Everything that a model gets to see of the tools, and what is to be known about it.
fn shown(server: &str, offer: &Offer) -> String {
    let mut out = String::new();
    let mut tools = Vec::new();
    for judged in offer.tools() {
        let name = display::safe(&judged.name);
        let mut notes = Vec::new();
        if let PinState::Changed { what } = &judged.state {
            notes.extend(what.iter().map(|part| format!("{part} changed")));
        }
        notes.extend(judged.oddities.iter().map(|oddity| format!("it has {oddity}")));
        let notes =
            if notes.is_empty() { String::new() } else { format!(": {}", notes.join(", ")) };
        out.push_str(&format!("{} {name}{notes}\n", judged.state.name()));
        if let Some(shown) = &judged.shown {
            let description = display::safe_multiline(&shown.description);
            out.extend(description.lines().map(|line| format!("    {line}\n")));
            tools.push(ForeignTool {
                server: server.to_owned(),
                function: judged.function.clone(),
                name: judged.name.clone(),
                description: String::new(),
                input: shown.input.clone(),
                output: shown.output.clone(),
            });
        }
    }
    for name in offer.gone() {
        out.push_str(&format!("gone {}: it will be forgotten\n", display::safe(name)));
    }
    if !tools.is_empty() {
        out.push_str(&format!("\n{}", display::safe_multiline(declarations(&tools))));
    }
    out
}
