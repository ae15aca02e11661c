//! `belljar policy explain`: shows what enforces each permission of belljar.toml.

use crate::scope::host;
use std::path::Path;

use belljar_model::display;
use belljar_model::permission::{Enforcement, Enforcer, Permission, Permissions, Verdict};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::agent::{ExplainArgs, PolicyArgs, PolicyCommand};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::agents::{self, settings};
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};

/// Runs `belljar policy`.
pub(crate) fn run(cli: &Cli, args: &PolicyArgs) -> Outcome {
    match &args.command {
        PolicyCommand::Explain(args) => explain(cli, args),
    }
}

/// A permission and the components that enforce it, as JSON.
#[derive(Serialize)]
struct PermissionReport<'a> {
    verdict: Verdict,
    permission: &'a Permission,
    kept: Vec<Enforcement>,
    /// The number of files of the workspace that match; only if the box enforces the permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    fits: Option<usize>,
    /// Whether the settings of the agent can express the permission; `None` without an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_is_told: Option<bool>,
}

/// Prints each permission of a template and what enforces it.
fn explain(cli: &Cli, args: &ExplainArgs) -> Outcome {
    let current_dir = std::env::current_dir().ok();
    let (config, _) = config::load_from(host(), cli.config.as_deref(), current_dir.as_deref())?;
    config::template(&config, &args.template)?;
    let agent = args.agent.as_ref().map(|name| agents::find(host(), name)).transpose()?;
    let language = agent.as_ref().map(|agent| agent.settings.as_ref().map(|it| it.language));
    let permissions = config.permissions(&args.template);
    for (verdict, permission) in permissions.iter() {
        let enforcement = permission.enforcement(verdict);
        let by_box = enforcement.iter().any(|part| part.by == Enforcer::Box);
        let workspace = current_dir.as_deref().filter(|_| by_box);
        let fits = workspace.map(|workspace| count(verdict, permission, workspace)).transpose()?;
        let is_expressible =
            |language: Option<_>| language.is_some_and(|it| settings::can_express(it, permission));
        let agent_is_told = language.map(is_expressible);
        let report =
            PermissionReport { verdict, permission, kept: enforcement, fits, agent_is_told };
        match args.json {
            true => print::json(&report).kind(ErrorKind::Broken)?,
            false => print::out(&lines(&report)).kind(ErrorKind::Broken)?,
        }
    }
    if !args.json {
        let summary = match permissions.skips_all() {
            true => "the agent never asks for permission; the box limits what it can do",
            false => {
                "the agent asks for permission as its rules say; the box limits what it can do in any case"
            }
        };
        print::out(&format!("{summary}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Returns the number of files of the workspace that match a permission.
fn count(
    verdict: Verdict,
    permission: &Permission,
    workspace: &Path,
) -> Result<usize, EngineError> {
    let deny = (verdict == Verdict::Deny).then(|| permission.clone()).into_iter().collect();
    let alone = Permissions { deny, ..Permissions::default() };
    agents::masks::find(&alone, workspace).map(|masks| masks.len())
}

/// Returns a permission and its enforcement as lines of text.
fn lines(report: &PermissionReport<'_>) -> String {
    let PermissionReport { verdict, permission, kept, fits, agent_is_told } = report;
    let mut text =
        format!("{:<5} {}\n", verdict.name(), display::safe_line(permission.to_string()));
    for Enforcement { by, means } in kept {
        text.push_str(&format!("      {:<7} {means}\n", by.name()));
    }
    if let Some(fits) = fits {
        text.push_str(&format!("      matching paths in this workspace now: {fits}\n"));
    }
    let is_advice = kept.iter().any(|part| part.by == Enforcer::Advice);
    if *agent_is_told == Some(false) && is_advice {
        text.push_str("      the settings of this agent cannot express the permission, so the agent does not know it\n");
    }
    text
}
