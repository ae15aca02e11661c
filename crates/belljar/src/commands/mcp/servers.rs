//! `belljar mcp servers`: other servers, their tools, and which of them programs may call.

use belljar_model::display;
use serde::Serialize;

use super::with_servers;
use crate::cli::Cli;
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::tool_servers::{CheckedTool, PinState, ServerReport};

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    is_there: bool,
    trouble: Option<&'a str>,
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    function: &'a str,
    standing: &'static str,
    /// What changed, or why it is refused.
    why: Vec<String>,
    oddities: Vec<&'static str>,
    description: Option<&'a str>,
}

pub(super) fn run(cli: &Cli, json: bool) -> Outcome {
    let reports = with_servers(cli, async |servers, _| Ok(servers.report().await))?;
    if reports.is_empty() && !json {
        print::note("no other servers; `[mcp.NAME]` in belljar.toml declares one");
    }
    for report in &reports {
        if json {
            print::json(&listed(report)).kind(ErrorKind::Broken)?;
        } else {
            print::out(&in_words(report)).kind(ErrorKind::Broken)?;
        }
    }
    let all_there = reports.iter().all(|report| report.trouble.is_none());
    Ok(if all_there { 0 } else { exit::FAILED })
}

fn listed<'a>(report: &'a ServerReport) -> Listed<'a> {
    let tool = |judged: &'a CheckedTool| Tool {
        name: &judged.name,
        function: &judged.function,
        standing: judged.state.name(),
        why: why(&judged.state),
        oddities: judged.oddities.iter().map(|oddity| oddity.doc()).collect(),
        description: judged.shown.as_ref().map(|shown| shown.description.as_str()),
    };
    Listed {
        name: &report.name,
        is_there: report.trouble.is_none(),
        trouble: report.trouble.as_deref(),
        tools: report.tools.iter().map(tool).collect(),
    }
}

fn why(state: &PinState) -> Vec<String> {
    match state {
        PinState::Changed { what } => what.iter().map(ToString::to_string).collect(),
        PinState::Refused { why } => vec![why.clone()],
        PinState::Accepted | PinState::New | PinState::Gone => Vec::new(),
    }
}

fn in_words(report: &ServerReport) -> String {
    let mut out = match &report.trouble {
        Some(trouble) => format!("{}: {}\n", report.name, display::safe_line(trouble)),
        None => format!("{}: {} tools\n", report.name, report.tools.len()),
    };
    for judged in &report.tools {
        let name = display::safe(&judged.name);
        out.push_str(&format!("  {:<9} {name}", judged.state.name()));
        let notes: Vec<String> = why(&judged.state)
            .into_iter()
            .chain(judged.oddities.iter().map(|oddity| format!("has {oddity}")))
            .collect();
        if !notes.is_empty() {
            out.push_str(&format!("  ({})", display::safe_line(notes.join("; "))));
        }
        out.push('\n');
    }
    if report.tools.iter().any(|judged| !matches!(judged.state, PinState::Accepted)) {
        out.push_str(&format!("  `belljar mcp accept {}` lets you look and agree\n", report.name));
    }
    out
}
