//! `belljar net learn`: what a run tried, as rules.

use crate::scope::host;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::{Config, Net, Scope};

use super::which;
use crate::cli::Cli;
use crate::cli::net::LearnArgs;
use crate::commands::ledger::Home;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::policy::learn::past::{Past, past};
use belljar_engine::policy::learn::{self, LearnedRules, Tried};
use belljar_engine::policy::render;
use belljar_engine::record::sentences::short;
use belljar_engine::store::durable::{self, Links};

/// So much of what no rule is made of is listed.
const LISTED: usize = 20;

pub(crate) fn run(cli: &Cli, args: &LearnArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let run = which(&home, &reader, args.run.as_deref(), None)?;
    let file = operators_file(cli)?;
    let old = config::read_text(&file)?;
    let config = match &old {
        Some(text) => Config::parse(text, &file, Scope::Operator).kind(ErrorKind::Invalid)?,
        None => Config::built_in(),
    };
    let past = past(&reader, run)?;
    let learned = learn::learn(&past.attempts, &learn::policy(&config, &args.template)?);
    tell_rest(&learned, &past);
    if learned.rules.is_empty() {
        print::note(&format!("run {run} teaches no rule"));
        return Ok(0);
    }
    let day: String = moment::readable_seconds(past.time).chars().take(10).collect();
    let from = format!("run {run} of {day}");
    let text = old.as_deref().unwrap_or_default();
    let (new, net) = render::with_rules(&file, text, (&learned.rules, &args.template, &from))?;
    if net == Net::None {
        let template = &args.template;
        print::note(&format!(
            "template {template} has `net = \"none\"`, so its boxes reach nothing still"
        ));
    }
    let diff = render::diff(&file.display().to_string(), old.as_deref(), &new, print::colour());
    print::out(&diff).kind(ErrorKind::Broken)?;
    if args.write {
        not_a_projects(&file, &past)?;
        write(&file, text, &new)?;
        let count = learned.rules.len();
        print::note(&format!("rules written to {}: {count}", file.display()));
        return Ok(0);
    }
    print::out(&as_flags(&learned)).kind(ErrorKind::Broken)?;
    print::note("`belljar net learn --write` appends this to your file");
    Ok(0)
}

/// The operator's own file, which need not exist.
fn operators_file(cli: &Cli) -> Result<PathBuf, EngineError> {
    let file = cli.config.clone().or_else(|| host().config_file());
    let file =
        file.ok_or_else(|| invalid("HOME is not set, so there is no place for belljar.toml"))?;
    Ok(std::path::absolute(&file).unwrap_or(file))
}

/// Says what no rule is made of, and why.
fn tell_rest(learned: &LearnedRules, past: &Past) {
    if past.alarms > 0 {
        let alarms = past.alarms;
        print::note(&format!("ALARMS: {alarms}; nothing is learnt from what raised them"));
    }
    for (tried, why) in learned.not.iter().take(LISTED) {
        print::note(&format!("not learnt: {}: {why}", in_words(tried)));
    }
    if learned.not.len() > LISTED {
        print::note(&format!("not learnt: {} more", learned.not.len() - LISTED));
    }
    if !learned.known.is_empty() {
        let count = learned.known.len();
        print::note(&format!("allowed by now: {count} of what was tried"));
    }
}

fn in_words(tried: &Tried) -> String {
    match tried {
        Tried::Name(name) => format!("the name {}", short(name)),
        Tried::Request { method, scheme, host, port, path } => {
            let (method, scheme, host) = (short(method), short(scheme), short(host));
            format!("{method} {scheme}://{host}:{port}{}", short(path))
        }
    }
}

fn as_flags(learned: &LearnedRules) -> String {
    let flags = render::flags(&learned.rules);
    if flags.is_empty() {
        return String::new();
    }
    let mut text = "\nThe same for one run:\n  belljar run".to_owned();
    for flag in flags {
        text.push_str(&format!(" \\\n    --allow {}", render::shell(&flag)));
    }
    text.push_str(" \\\n    -- COMMAND\n");
    text
}

/// A project's file may come from a box: it gets nothing that opens anything.
fn not_a_projects(file: &Path, past: &Past) -> Result<(), EngineError> {
    let here = std::env::current_dir().ok();
    let projects = [here.as_deref(), past.workspace.as_deref()];
    let is_projects = projects
        .into_iter()
        .filter_map(config::project_file)
        .any(|project| config::same_file(&project, file));
    match is_projects {
        true => Err(invalid(format!(
            "--write: {} is a project's file, which may only tighten; name your own with --config",
            file.display()
        ))),
        false => Ok(()),
    }
}

/// Replaces the file, whole or not at all, if nobody changed it since it was read.
fn write(file: &Path, old: &str, new: &str) -> Result<(), EngineError> {
    let replaced = durable::replace(file, old, new, Links::Follow);
    replaced.with_context(|| format!("write {}", file.display())).kind(ErrorKind::Broken)
}
