//! `belljar init`: writes the first `belljar.toml`, with templates for the project in the current directory.
//!
//! The rules are derived from the files of the project by [`belljar_engine::policy::project`]. The operator's
//! file is written, because the file of a project can only tighten it. An existing file is never changed.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_engine::agents::{self, AgentStatus};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::policy::project::{self, ProjectChoice, ProjectFacts, Remote};
use belljar_engine::store::durable;
use belljar_model::agent::AgentName;
use belljar_model::{Config, Scope, display};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::setup::{AgentChoice, InitArgs, parse_agent};
use crate::exit::Outcome;
use crate::print;
use crate::scope::{self, host};

/// Runs `belljar init`.
pub(crate) fn run(cli: &Cli, args: &InitArgs) -> Outcome {
    let dir = scope::current_dir()?;
    let facts = ProjectFacts::read(&dir)
        .with_context(|| format!("cannot read the project {}", dir.display()))
        .kind(ErrorKind::Broken)?;
    let file = target(cli)?;
    if !args.print {
        refuse_existing(&file)?;
    }
    let installed = installed_agents(cli)?;
    let choice = match args.yes {
        true => without_questions(args, &dir, &facts, &installed)?,
        false => ask(args, &dir, &facts, &installed)?,
    };
    let text = project::render(&facts, &choice);
    check(&text, &file)?;
    if args.print {
        print::out(&text).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    write(&file, &text)?;
    report(args, &file, &facts, &choice, &installed)
}

/// An agent whose program is on this machine.
struct Installed {
    name: AgentName,
    status: AgentStatus,
}

/// Returns the path of the file to write: that of `--config`, or the operator's file at the default path.
fn target(cli: &Cli) -> Result<PathBuf, EngineError> {
    let file = cli.config.clone().or_else(|| host().config_file());
    file.ok_or_else(|| {
        invalid("cannot find your home directory; set HOME, or name the file with --config FILE")
    })
}

fn refuse_existing(file: &Path) -> Result<(), EngineError> {
    if file.symlink_metadata().is_err() {
        return Ok(());
    }
    let shown = display::safe(file.as_os_str().as_encoded_bytes());
    let error = invalid(format!("{shown} exists and is not changed"));
    Err(error
        .advise("`belljar init --print` prints the templates, so that you can add them yourself"))
}

/// Returns the agents whose programs are on this machine.
fn installed_agents(cli: &Cli) -> Result<Vec<Installed>, EngineError> {
    // The file of `--config` need not exist yet.
    let config = cli.config.as_deref().filter(|file| file.exists());
    let state = scope::open(config)?;
    let mut installed = Vec::new();
    for source in agents::all(host())?.values() {
        let status = agents::status(&state, &source.agent)?;
        if status.program.is_some() {
            installed.push(Installed { name: source.agent.name.clone(), status });
        }
    }
    Ok(installed)
}

fn template_name(args: &InitArgs, dir: &Path) -> String {
    args.template.as_ref().map_or_else(|| ProjectFacts::template_name(dir), ToString::to_string)
}

/// Returns the agent that `--agent` names, if it names one. An unknown agent is an error.
fn named_agent(args: &InitArgs) -> Result<Option<Option<AgentName>>, EngineError> {
    match &args.agent {
        None => Ok(None),
        Some(AgentChoice::None) => Ok(Some(None)),
        Some(AgentChoice::Named(name)) => {
            agents::find(host(), name).map(|agent| Some(Some(agent.name)))
        }
    }
}

/// Makes the choices of `--yes`: the network that was found, the first installed agent, and no pushes.
fn without_questions(
    args: &InitArgs,
    dir: &Path,
    facts: &ProjectFacts,
    installed: &[Installed],
) -> Result<ProjectChoice, EngineError> {
    let first = || installed.first().map(|agent| agent.name.clone());
    Ok(ProjectChoice {
        name: template_name(args, dir),
        has_network: !facts.registries.is_empty() || !facts.remotes.is_empty(),
        may_push: false,
        agent: named_agent(args)?.unwrap_or_else(first),
    })
}

/// Asks the user about network, agent and pushes.
fn ask(
    args: &InitArgs,
    dir: &Path,
    facts: &ProjectFacts,
    installed: &[Installed],
) -> Result<ProjectChoice, EngineError> {
    if !io::stdin().is_terminal() {
        let error = invalid("cannot ask questions: standard input is not a terminal");
        return Err(error.advise("use --yes to accept the suggestions"));
    }
    let mut choice = without_questions(args, dir, facts, installed)?;
    let registries = facts.registries.iter().map(|found| found.what.clone());
    let remotes = facts.remotes.iter().map(|remote| format!("fetches from {}", shown(remote)));
    let found: Vec<String> = registries.chain(remotes).collect();
    if !found.is_empty() {
        let question = format!("Allow {} in boxes of this project?", found.join(", "));
        choice.has_network = confirm(&question, true)?;
    }
    if args.agent.is_none() {
        choice.agent = ask_agent(choice.agent, installed)?;
    }
    if let Some(remote) = facts.github().filter(|_| choice.has_network) {
        let question =
            format!("May they push to {}? The token stays outside of the box.", shown(remote));
        choice.may_push = confirm(&question, false)?;
    }
    Ok(choice)
}

fn shown(remote: &Remote) -> String {
    format!("{}/{}", remote.host, remote.path)
}

/// Asks for the agent until the answer is the name of an agent or `none`.
fn ask_agent(
    suggested: Option<AgentName>,
    installed: &[Installed],
) -> Result<Option<AgentName>, EngineError> {
    let names: Vec<String> = installed.iter().map(|agent| agent.name.to_string()).collect();
    let names = if names.is_empty() { "none is installed".to_owned() } else { names.join(", ") };
    let default = suggested.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    loop {
        print::ask(&format!("Which coding agent do you use ({names})? [{default}] "));
        let answer = read_answer()?;
        if answer.is_empty() {
            return Ok(suggested);
        }
        let found = match parse_agent(&answer) {
            Ok(AgentChoice::None) => return Ok(None),
            Ok(AgentChoice::Named(name)) => {
                agents::find(host(), &name).map_err(|it| it.to_string())
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(agent) => return Ok(Some(agent.name)),
            Err(error) => print::note(&error),
        }
    }
}

/// Asks a yes-or-no question until the answer is one of both. An empty answer is the default.
fn confirm(question: &str, default: bool) -> Result<bool, EngineError> {
    let choices = if default { "[Y/n]" } else { "[y/N]" };
    loop {
        print::ask(&format!("{question} {choices} "));
        match read_answer()?.as_str() {
            "" => return Ok(default),
            "y" | "Y" | "yes" => return Ok(true),
            "n" | "N" | "no" => return Ok(false),
            _ => print::note("answer y or n"),
        }
    }
}

fn read_answer() -> Result<String, EngineError> {
    let answer = print::answer().context("cannot read the answer").kind(ErrorKind::Broken)?;
    answer.ok_or_else(|| {
        invalid("the input ended before all questions were answered; nothing was written")
    })
}

/// Checks the text with the parser that reads it later.
fn check(text: &str, file: &Path) -> Result<(), EngineError> {
    let config = Config::parse(text, file, Scope::Operator)
        .context("the templates for this project are invalid")
        .kind(ErrorKind::Broken)?;
    for template in config.names().into_iter().filter_map(|name| config.template(name)) {
        template
            .policy(&config)
            .with_context(|| format!("the template {} is invalid", template.name))
            .kind(ErrorKind::Broken)?;
    }
    Ok(())
}

/// Creates the file. Another process may have created it in the meantime.
fn write(file: &Path, text: &str) -> Result<(), EngineError> {
    let cannot_write = || format!("cannot write {}", file.display());
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = parent.unwrap_or(Path::new("."));
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| invalid("the name of the file is not valid UTF-8"))?;
    std::fs::create_dir_all(dir).with_context(cannot_write).kind(ErrorKind::Broken)?;
    let created = durable::create_new(dir, name, text.as_bytes())
        .with_context(cannot_write)
        .kind(ErrorKind::Broken)?;
    if created { Ok(()) } else { refuse_existing(file) }
}

/// The result of `belljar init --json`.
#[derive(Serialize)]
struct Report<'a> {
    file: &'a Path,
    template: &'a str,
    agent: Option<&'a AgentName>,
    facts: &'a ProjectFacts,
    next: Vec<String>,
}

fn report(
    args: &InitArgs,
    file: &Path,
    facts: &ProjectFacts,
    choice: &ProjectChoice,
    installed: &[Installed],
) -> Outcome {
    let next = next_commands(facts, choice, installed);
    if args.json {
        let (template, agent) = (choice.name.as_str(), choice.agent.as_ref());
        print::json(&Report { file, template, agent, facts, next }).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    for name in &facts.partly_read {
        print::note(&format!(
            "{name} is longer than 8 MiB; only its beginning was searched for hosts"
        ));
    }
    let count = facts.other_hosts.len();
    if choice.has_network && count > 0 {
        print::note(&format!(
            "hosts that only files of the project name are comments in the file: {count}"
        ));
    }
    let path = display::safe(file.as_os_str().as_encoded_bytes());
    let mut text = format!("wrote {path}\nnext:\n");
    text.extend(next.iter().map(|command| format!("  {command}\n")));
    print::out(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Returns the commands that the user runs next.
fn next_commands(
    facts: &ProjectFacts,
    choice: &ProjectChoice,
    installed: &[Installed],
) -> Vec<String> {
    let ProjectChoice { name, may_push, agent, .. } = choice;
    let mut next = Vec::new();
    if *may_push {
        next.push("belljar secret set github".to_owned());
    }
    let program = facts.command.as_deref().unwrap_or("bash");
    next.push(format!("belljar run --template {name} -- {program}"));
    let Some(agent) = agent else { return next };
    let status = installed.iter().find(|known| known.name == *agent).map(|known| &known.status);
    let needs_key = |status: &AgentStatus| {
        !status.secrets.is_empty() && status.secrets.iter().all(|secret| !secret.is_set)
    };
    if let Some(secret) =
        status.filter(|status| needs_key(status)).and_then(|it| it.secrets.first())
    {
        next.push(format!("belljar secret set {}", secret.name));
    }
    next.push(format!("belljar up {name} --agent {agent} --template {name}-agent --repo ."));
    next
}
