//! `belljar mcp servers`: lists the tool servers, their tools, and which tools are accepted.

use belljar_model::display;
use serde::Serialize;

use super::with_servers;
use crate::cli::Cli;
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::tool_servers::{CheckedTool, PinState, ServerReport};

/// A tool server, as JSON.
#[derive(Serialize)]
struct ServerLine<'a> {
    name: &'a str,
    is_there: bool,
    trouble: Option<&'a str>,
    tools: Vec<ToolLine<'a>>,
}

/// A tool of a tool server, as JSON.
#[derive(Serialize)]
struct ToolLine<'a> {
    name: &'a str,
    function: &'a str,
    standing: &'static str,
    /// The changed parts of the tool, or the reason why it is refused.
    why: Vec<String>,
    oddities: Vec<&'static str>,
    description: Option<&'a str>,
}

/// Runs `belljar mcp servers`.
pub(super) fn run(cli: &Cli, json: bool) -> Outcome {
    let reports = with_servers(cli, async |servers, _| Ok(servers.report().await))?;
    if reports.is_empty() && !json {
        print::note(
            "there are no tool servers; a section `[mcp.NAME]` in belljar.toml declares a server",
        );
    }
    for report in &reports {
        if json {
            print::json(&server_line(report)).kind(ErrorKind::Broken)?;
        } else {
            print::out(&server_text(report)).kind(ErrorKind::Broken)?;
        }
    }
    let all_started = reports.iter().all(|report| report.trouble.is_none());
    Ok(if all_started { 0 } else { exit::FAILED })
}

/// Converts a report into its JSON form.
fn server_line<'a>(report: &'a ServerReport) -> ServerLine<'a> {
    let tool = |checked_tool: &'a CheckedTool| ToolLine {
        name: &checked_tool.name,
        function: &checked_tool.function,
        standing: checked_tool.state.name(),
        why: why(&checked_tool.state),
        oddities: checked_tool.oddities.iter().map(|oddity| oddity.doc()).collect(),
        description: checked_tool.shown.as_ref().map(|shown| shown.description.as_str()),
    };
    ServerLine {
        name: &report.name,
        is_there: report.trouble.is_none(),
        trouble: report.trouble.as_deref(),
        tools: report.tools.iter().map(tool).collect(),
    }
}

/// Returns the changed parts of a tool, or the reason why it is refused.
fn why(state: &PinState) -> Vec<String> {
    match state {
        PinState::Changed { what } => what.iter().map(ToString::to_string).collect(),
        PinState::Refused { why } => vec![why.clone()],
        PinState::Accepted | PinState::New | PinState::Gone => Vec::new(),
    }
}

/// Returns a server and its tools as lines of text.
fn server_text(report: &ServerReport) -> String {
    let mut out = match &report.trouble {
        Some(trouble) => format!("{}: {}\n", report.name, display::safe_line(trouble)),
        None => format!("{}: {} tools\n", report.name, report.tools.len()),
    };
    for checked_tool in &report.tools {
        let name = display::safe(&checked_tool.name);
        out.push_str(&format!("  {:<9} {name}", checked_tool.state.name()));
        let notes: Vec<String> = why(&checked_tool.state)
            .into_iter()
            .chain(checked_tool.oddities.iter().map(|oddity| format!("has {oddity}")))
            .collect();
        if !notes.is_empty() {
            out.push_str(&format!("  ({})", display::safe_line(notes.join("; "))));
        }
        out.push('\n');
    }
    if report.tools.iter().any(|checked_tool| !matches!(checked_tool.state, PinState::Accepted)) {
        out.push_str(&format!(
            "  `belljar mcp accept {}` shows the tools and asks whether to accept them\n",
            report.name
        ));
    }
    out
}
