//! `belljar agent`: lists the supported agents, shows their settings and stores their logins.

use crate::scope::host;
use std::path::Path;

use belljar_model::agent::{Agent, AgentName};
use belljar_model::display;
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::agent::{AgentArgs, AgentCommand};
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::agents::{self, AgentSecret, AgentSource, AgentStatus, login};
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};

/// Runs `belljar agent`.
pub(crate) fn run(cli: &Cli, args: &AgentArgs) -> Outcome {
    match &args.command {
        AgentCommand::List { json } => list(*json),
        AgentCommand::Show { name, json } => show(name, *json),
        AgentCommand::Login { name, from } => {
            log_in(cli, &agents::find(host(), name)?, from.as_deref())
        }
    }
}

/// Stores the login of an agent in the vault.
fn log_in(cli: &Cli, agent: &Agent, from: Option<&Path>) -> Outcome {
    let state = scope::open(cli.config.as_deref())?;
    let secret = login::import(&state, agent, from)?;
    print::note(&format!(
        "stored the login of {} in the vault as {secret}; Belljar renews it from now on, so log in again if you use {} outside of boxes",
        agent.title, agent.program
    ));
    Ok(0)
}

/// An agent and its status on this machine, as JSON.
#[derive(Serialize)]
struct AgentReport<'a> {
    #[serde(flatten)]
    agent: &'a Agent,
    /// The user's file that defines the agent; `None` for an agent that ships with Belljar.
    described_in: Option<&'a Path>,
    here: AgentStatus,
}

/// Prints all agents.
fn list(json: bool) -> Outcome {
    let state = scope::open(None)?;
    for source in agents::all(host())?.values() {
        let status = agents::status(&state, &source.agent)?;
        if json {
            print::json(&report(source, status)).kind(ErrorKind::Broken)?;
            continue;
        }
        let Agent { name, title, .. } = &source.agent;
        let program = status.program.map_or_else(
            || "not found".to_owned(),
            |path| display::safe(path.as_os_str().as_encoded_bytes()).to_string(),
        );
        let set: Vec<String> = status
            .secrets
            .into_iter()
            .filter(|it| it.is_set)
            .map(|it| it.name.to_string())
            .collect();
        let keys = if set.is_empty() { "no key".to_owned() } else { set.join(", ") };
        print::out(&format!("{name:<12} {title:<14} {keys:<24} {program}\n"))
            .kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Prints the details of one agent.
fn show(name: &AgentName, json: bool) -> Outcome {
    let mut all = agents::all(host())?;
    let names: Vec<String> = all.keys().map(ToString::to_string).collect();
    let unknown = || invalid(format!("unknown agent {name}; known agents: {}", names.join(", ")));
    let source = all.remove(name).ok_or_else(unknown)?;
    let status = agents::status(&scope::open(None)?, &source.agent)?;
    if json {
        print::json(&report(&source, status)).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    print::out(&display::safe_multiline(details(&source, &status)).to_string())
        .kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Returns an agent and its status for the JSON output.
fn report(source: &AgentSource, status: AgentStatus) -> AgentReport<'_> {
    AgentReport { agent: &source.agent, described_in: source.file.as_deref(), here: status }
}

/// Returns the details of an agent as lines of text.
fn details(source: &AgentSource, status: &AgentStatus) -> String {
    let AgentSource { agent, file, .. } = source;
    let mut lines = Vec::new();
    let mut add = |what: &str, value: String| lines.push(format!("{what:<10} {value}"));
    add("agent", format!("{} ({})", agent.title, agent.name));
    if let Some(file) = file {
        add("file", file.display().to_string());
    }
    match (&status.program, &agent.install) {
        (Some(program), _) => add("program", program.display().to_string()),
        (None, Some(install)) => add("program", format!("not found; for example: {install}")),
        (None, None) => add("program", "not found".to_owned()),
    }
    status.shown.iter().for_each(|path| add("shown", format!("{} (read-only)", path.display())));
    let allowed = |rule: &belljar_model::net::Allow| match rule {
        belljar_model::net::Allow::Preset(name) => format!("{name} (preset)"),
        belljar_model::net::Allow::Rule(rule) => rule.what.to_string(),
    };
    agent.allow.iter().for_each(|rule| add("allow", allowed(rule)));
    for AgentSecret { name, is_set } in &status.secrets {
        let login = agent.login.as_ref().is_some_and(|login| login.secret == *name);
        let how = match (is_set, login) {
            (true, _) => "set".to_owned(),
            (false, true) => format!("not set; belljar agent login {}", agent.name),
            (false, false) => format!("not set; belljar secret set {name}"),
        };
        add("secret", format!("{name}: {how}"));
    }
    if let Some(login) = &status.login {
        add("login", format!("found in {}", login.display()));
    }
    if let Some(task) = &agent.task {
        add("task", task.argv.join(" "));
    }
    agent.env.iter().for_each(|variable| add("env", variable.to_string()));
    if let Some(settings) = &agent.settings {
        add("settings", format!("{} (read-only)", settings.path.display()));
    }
    agent
        .files
        .iter()
        .for_each(|file_in_box| add("file", format!("{} (read-only)", file_in_box.path.display())));
    agent
        .home
        .iter()
        .for_each(|file_in_box| add("home", format!("~/{}", file_in_box.path.display())));
    status.copied.iter().for_each(|path| add("copied", format!("~/{}", path.display())));
    lines.join("\n") + "\n"
}
