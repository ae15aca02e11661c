//! `belljar net learn`: makes rules from the requests of a run.

use crate::scope::host;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::{Config, Net, Scope};

use super::find_run;
use crate::cli::Cli;
use crate::cli::net::LearnArgs;
use crate::commands::ledger::LedgerHome;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::policy::learn::history::{NetworkHistory, network_history};
use belljar_engine::policy::learn::{self, AttemptTarget, LearnedRules};
use belljar_engine::policy::render;
use belljar_engine::record::sentences::short;
use belljar_engine::store::durable::{self, Links};

/// The maximum number of listed requests for which no rule is made.
const MAX_LISTED: usize = 20;

/// Runs `belljar net learn`.
pub(crate) fn run(cli: &Cli, args: &LearnArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let run = find_run(&home, &reader, args.run.as_deref(), None)?;
    let file = operator_file(cli)?;
    let old = config::read_text(&file)?;
    let config = match &old {
        Some(text) => Config::parse(text, &file, Scope::Operator).kind(ErrorKind::Invalid)?,
        None => Config::built_in(),
    };
    let past = network_history(&reader, run)?;
    let learned = learn::learn(&past.attempts, &learn::policy(&config, &args.template)?);
    print_unlearned(&learned, &past);
    if learned.rules.is_empty() {
        print::note(&format!("no rules can be made from the requests of run {run}"));
        return Ok(0);
    }
    let day: String = moment::readable_seconds(past.time).chars().take(10).collect();
    let from = format!("run {run} of {day}");
    let text = old.as_deref().unwrap_or_default();
    let (new, net) = render::with_rules(&file, text, (&learned.rules, &args.template, &from))?;
    if net == Net::None {
        let template = &args.template;
        print::note(&format!(
            "template {template} has `net = \"none\"`, so its boxes have no network even with these rules; set `net = \"restricted\"`"
        ));
    }
    let diff = render::diff(&file.display().to_string(), old.as_deref(), &new, print::colour());
    print::out(&diff).kind(ErrorKind::Broken)?;
    if args.write {
        refuse_project_file(&file, &past)?;
        write(&file, text, &new)?;
        let count = learned.rules.len();
        print::note(&format!("rules written to {}: {count}", file.display()));
        return Ok(0);
    }
    print::out(&equivalent_options(&learned)).kind(ErrorKind::Broken)?;
    print::note("`belljar net learn --write` appends these rules to your belljar.toml");
    Ok(0)
}

/// Returns the path of the operator's belljar.toml, which may not exist yet.
fn operator_file(cli: &Cli) -> Result<PathBuf, EngineError> {
    let file = cli.config.clone().or_else(|| host().config_file());
    let file = file.ok_or_else(|| {
        invalid("cannot find your belljar.toml: HOME is not set; use --config FILE")
    })?;
    Ok(std::path::absolute(&file).unwrap_or(file))
}

/// Prints the requests for which no rule is made, and the reasons.
fn print_unlearned(learned: &LearnedRules, past: &NetworkHistory) {
    if past.alarms > 0 {
        let alarms = past.alarms;
        print::note(&format!(
            "alarms: {alarms}; no rules are made from requests that raised an alarm"
        ));
    }
    for (attempt, why) in learned.rejected.iter().take(MAX_LISTED) {
        print::note(&format!("no rule for {}: {why}", describe(attempt)));
    }
    if learned.rejected.len() > MAX_LISTED {
        print::note(&format!("no rule for {} more requests", learned.rejected.len() - MAX_LISTED));
    }
    if !learned.already_allowed.is_empty() {
        let count = learned.already_allowed.len();
        print::note(&format!("requests that the rules already allow: {count}"));
    }
}

/// Describes an attempted request or name lookup in one line.
fn describe(attempt: &AttemptTarget) -> String {
    match attempt {
        AttemptTarget::Name(name) => format!("the name {}", short(name)),
        AttemptTarget::Request { method, scheme, host, port, path } => {
            let (method, scheme, host) = (short(method), short(scheme), short(host));
            format!("{method} {scheme}://{host}:{port}{}", short(path))
        }
    }
}

/// Returns the `--allow` options of `belljar run` that are equivalent to the rules.
fn equivalent_options(learned: &LearnedRules) -> String {
    let flags = render::flags(&learned.rules);
    if flags.is_empty() {
        return String::new();
    }
    let mut text = "\nTo allow the same for one run only:\n  belljar run".to_owned();
    for flag in flags {
        text.push_str(&format!(" \\\n    --allow {}", render::shell_quote(&flag)));
    }
    text.push_str(" \\\n    -- COMMAND\n");
    text
}

/// Returns an error if the file is the belljar.toml of a project.
///
/// A box can write the file of a project, so that file must never allow anything.
fn refuse_project_file(file: &Path, past: &NetworkHistory) -> Result<(), EngineError> {
    let current_dir = std::env::current_dir().ok();
    let projects = [current_dir.as_deref(), past.workspace.as_deref()];
    let is_project_file = projects
        .into_iter()
        .filter_map(config::project_file)
        .any(|project| config::same_file(&project, file));
    match is_project_file {
        true => Err(invalid(format!(
            "--write: cannot add rules to {}: it belongs to a project, and the file of a project can only add restrictions; choose your own file with --config",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// Replaces the file atomically, if it has not changed since it was read.
fn write(file: &Path, old: &str, new: &str) -> Result<(), EngineError> {
    let replaced = durable::replace(file, old, new, Links::Follow);
    replaced.with_context(|| format!("cannot write {}", file.display())).kind(ErrorKind::Broken)
}
