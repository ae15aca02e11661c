//! `belljar agent`: what is known of each agent, what is on this machine, and its logins.

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

pub(crate) fn run(cli: &Cli, args: &AgentArgs) -> Outcome {
    match &args.command {
        AgentCommand::List { json } => list(*json),
        AgentCommand::Show { name, json } => show(name, *json),
        AgentCommand::Login { name, from } => {
            log_in(cli, &agents::find(host(), name)?, from.as_deref())
        }
    }
}

/// `belljar agent login`.
fn log_in(cli: &Cli, agent: &Agent, from: Option<&Path>) -> Outcome {
    let state = scope::open(cli.config.as_deref())?;
    let secret = login::import(&state, agent, from)?;
    print::note(&format!(
        "the login of {} is in the vault as {secret}; from now on it is renewed here, so log in again on this machine for your own use of {}",
        agent.title, agent.program
    ));
    Ok(0)
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    agent: &'a Agent,
    /// The user's file that describes it; none for those that come with Belljar.
    described_in: Option<&'a Path>,
    here: AgentStatus,
}

fn list(json: bool) -> Outcome {
    let state = scope::open(None)?;
    for known in agents::all(host())?.values() {
        let here = agents::status(&state, &known.agent)?;
        if json {
            print::json(&shown(known, here)).kind(ErrorKind::Broken)?;
            continue;
        }
        let Agent { name, title, .. } = &known.agent;
        let program = here.program.map_or_else(
            || "not found".to_owned(),
            |path| display::safe(path.as_os_str().as_encoded_bytes()).to_string(),
        );
        let set: Vec<String> =
            here.secrets.into_iter().filter(|it| it.is_set).map(|it| it.name.to_string()).collect();
        let keys = if set.is_empty() { "no key".to_owned() } else { set.join(", ") };
        print::out(&format!("{name:<12} {title:<14} {keys:<24} {program}\n"))
            .kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

fn show(name: &AgentName, json: bool) -> Outcome {
    let mut all = agents::all(host())?;
    let names: Vec<String> = all.keys().map(ToString::to_string).collect();
    let unknown = || invalid(format!("there is no agent {name}; there are {}", names.join(", ")));
    let known = all.remove(name).ok_or_else(unknown)?;
    let here = agents::status(&scope::open(None)?, &known.agent)?;
    if json {
        print::json(&shown(&known, here)).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    print::out(&display::safe_multiline(text(&known, &here)).to_string())
        .kind(ErrorKind::Broken)?;
    Ok(0)
}

fn shown(known: &AgentSource, here: AgentStatus) -> Shown<'_> {
    Shown { agent: &known.agent, described_in: known.file.as_deref(), here }
}

fn text(known: &AgentSource, here: &AgentStatus) -> String {
    let AgentSource { agent, file } = known;
    let mut lines = Vec::new();
    let mut say = |what: &str, value: String| lines.push(format!("{what:<10} {value}"));
    say("agent", format!("{} ({})", agent.title, agent.name));
    if let Some(file) = file {
        say("file", file.display().to_string());
    }
    match (&here.program, &agent.install) {
        (Some(program), _) => say("program", program.display().to_string()),
        (None, Some(install)) => say("program", format!("not found; for example: {install}")),
        (None, None) => say("program", "not found".to_owned()),
    }
    here.shown.iter().for_each(|path| say("shown", format!("{} (read-only)", path.display())));
    let allowed = |rule: &belljar_model::net::Allow| match rule {
        belljar_model::net::Allow::Preset(name) => format!("{name} (preset)"),
        belljar_model::net::Allow::Rule(rule) => rule.what.to_string(),
    };
    agent.allow.iter().for_each(|rule| say("allow", allowed(rule)));
    for AgentSecret { name, is_set } in &here.secrets {
        let login = agent.login.as_ref().is_some_and(|login| login.secret == *name);
        let how = match (is_set, login) {
            (true, _) => "set".to_owned(),
            (false, true) => format!("not set; belljar agent login {}", agent.name),
            (false, false) => format!("not set; belljar secret set {name}"),
        };
        say("secret", format!("{name}: {how}"));
    }
    if let Some(login) = &here.login {
        say("login", format!("{} is there", login.display()));
    }
    agent.env.iter().for_each(|variable| say("env", variable.to_string()));
    if let Some(settings) = &agent.settings {
        say("settings", format!("{} (read-only)", settings.path.display()));
    }
    agent
        .files
        .iter()
        .for_each(|given| say("file", format!("{} (read-only)", given.path.display())));
    agent.home.iter().for_each(|given| say("home", format!("~/{}", given.path.display())));
    here.copied.iter().for_each(|path| say("copied", format!("~/{}", path.display())));
    lines.join("\n") + "\n"
}
