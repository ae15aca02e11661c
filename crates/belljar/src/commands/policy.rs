//! `belljar policy explain`: who keeps each rule, and what that means.

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

pub(crate) fn run(cli: &Cli, args: &PolicyArgs) -> Outcome {
    match &args.command {
        PolicyCommand::Explain(args) => explain(cli, args),
    }
}

/// One rule, and who keeps it.
#[derive(Serialize)]
struct Explained<'a> {
    verdict: Verdict,
    permission: &'a Permission,
    kept: Vec<Enforcement>,
    /// What of the workspace it is about now; only where the box keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fits: Option<usize>,
    /// Whether the agent's settings have words for it; none without an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_is_told: Option<bool>,
}

fn explain(cli: &Cli, args: &ExplainArgs) -> Outcome {
    let here = std::env::current_dir().ok();
    let (config, _) = config::load_from(host(), cli.config.as_deref(), here.as_deref())?;
    config::template(&config, &args.template)?;
    let agent = args.agent.as_ref().map(|name| agents::find(host(), name)).transpose()?;
    let language = agent.as_ref().map(|agent| agent.settings.as_ref().map(|it| it.language));
    let permissions = config.permissions(&args.template);
    for (verdict, permission) in permissions.iter() {
        let kept = permission.enforcement(verdict);
        let of_box = kept.iter().any(|kept| kept.by == Enforcer::Box);
        let here = here.as_deref().filter(|_| of_box);
        let fits = here.map(|here| count(verdict, permission, here)).transpose()?;
        let told =
            |language: Option<_>| language.is_some_and(|it| settings::can_express(it, permission));
        let agent_is_told = language.map(told);
        let explained = Explained { verdict, permission, kept, fits, agent_is_told };
        match args.json {
            true => print::json(&explained).kind(ErrorKind::Broken)?,
            false => print::out(&lines(&explained)).kind(ErrorKind::Broken)?,
        }
    }
    if !args.json {
        let asks = match permissions.skips_all() {
            true => "the agent works without asking: the box is the boundary",
            false => "the agent asks as its rules say; the box is the boundary either way",
        };
        print::out(&format!("{asks}\n")).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// How much of the workspace fits one rule now.
fn count(
    verdict: Verdict,
    permission: &Permission,
    workspace: &Path,
) -> Result<usize, EngineError> {
    let deny = (verdict == Verdict::Deny).then(|| permission.clone()).into_iter().collect();
    let alone = Permissions { deny, ..Permissions::default() };
    agents::masks::find(&alone, workspace).map(|masks| masks.len())
}

fn lines(explained: &Explained<'_>) -> String {
    let Explained { verdict, permission, kept, fits, agent_is_told } = explained;
    let mut text =
        format!("{:<5} {}\n", verdict.name(), display::safe_line(permission.to_string()));
    for Enforcement { by, means } in kept {
        text.push_str(&format!("      {:<7} {means}\n", by.name()));
    }
    if let Some(fits) = fits {
        text.push_str(&format!("      fits {fits} of this workspace now\n"));
    }
    let is_advice = kept.iter().any(|kept| kept.by == Enforcer::Advice);
    if *agent_is_told == Some(false) && is_advice {
        text.push_str("      this agent's settings have no words for it: it is not told\n");
    }
    text
}
