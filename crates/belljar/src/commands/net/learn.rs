//! `belljar net learn`: what a run tried, as rules.

use crate::scope::host;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_ledger::{Event, Query, Reader};
use belljar_model::net::Policy;
use belljar_model::{Config, Net, RunId, Scope};

use super::{log, which};
use crate::cli::Cli;
use crate::cli::net::LearnArgs;
use crate::commands::ledger::{Home, each, read};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::policy::learn::{self, Attempt, End, LearnedRules, Tried};
use belljar_engine::policy::render;
use belljar_engine::record::line::About;
use belljar_engine::record::sentences::short;
use belljar_engine::store::durable::{self, Links};

/// So much of what no rule is made of is listed.
const LISTED: usize = 20;

pub(crate) fn run(cli: &Cli, args: &LearnArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let run = which(&home, &reader, args.run.as_deref())?;
    let file = operators_file(cli)?;
    let old = config::read_text(&file)?;
    let config = match &old {
        Some(text) => Config::parse(text, &file, Scope::Operator).kind(ErrorKind::Invalid)?,
        None => Config::built_in(),
    };
    let past = past(&reader, run)?;
    let learned = learn::learn(&past.attempts, &policy(&config, &args.template)?);
    tell_rest(&learned, &past);
    if learned.rules.is_empty() {
        print::note(&format!("run {run} teaches no rule"));
        return Ok(0);
    }
    let day: String = moment::to_the_second(past.time).chars().take(10).collect();
    let from = format!("run {run} of {day}");
    let text = old.as_deref().unwrap_or_default();
    let new = with_rules(&file, text, (&learned, &args.template, &from))?;
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

/// What is known of a run.
struct Past {
    attempts: Vec<Attempt>,
    /// Nanoseconds since 1970.
    time: u64,
    workspace: Option<PathBuf>,
    alarms: u64,
}

/// Gathers what a run tried.
fn past(reader: &Reader, run: RunId) -> Result<Past, EngineError> {
    let mut past = Past { attempts: Vec::new(), time: 0, workspace: None, alarms: 0 };
    let query = Query { run: Some(run), before: Some(reader.size()), ..Query::default() };
    each(reader, query, &mut |row| {
        if row.kind == "run.created" {
            let entry = read(reader, row)?;
            past.time = entry.moment.time;
            if let Ok(Event::RunCreated(created)) = Event::read(&entry.kind, &entry.fields) {
                past.workspace = created.workspace.map(from_bytes);
            }
        }
        if let Some(line) = log::begun(reader, row)? {
            let line = log::with_outcome(reader, line)?;
            past.alarms += u64::from(matches!(line.about, About::Alarm(_)));
            past.attempts.extend(attempt(line.about));
        }
        Ok(true)
    })?;
    Ok(past)
}

fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// What somebody could learn from; nothing for what a rule allowed.
fn attempt(about: About) -> Option<Attempt> {
    let (request, end) = match about {
        About::Name(dns) => {
            let end = End::Denied(code(&dns.reason));
            return Some(Attempt { what: Tried::Name(dns.name), end });
        }
        About::Denied(request) => {
            let end = End::Denied(code(&request.reason));
            (request, end)
        }
        // One that was cut off may have been by an alarm.
        About::Finished(request, outcome) if outcome.error.is_none() => match &request.rule {
            Some(rule) if rule == FULL => (request, End::Full),
            Some(_) | None => return None,
        },
        About::Finished(..) | About::Open(_) | About::Alarm(_) | About::Budget(_) => return None,
    };
    let (method, scheme, host) = (request.method, request.scheme, request.host);
    let what = Tried::Request { method, scheme, host, port: request.port, path: request.path };
    Some(Attempt { what, end })
}

/// How the record names what allows everything.
const FULL: &str = "net full";

/// The word that a reason begins with; empty if it does not begin with one.
fn code(reason: &str) -> String {
    let is_code = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let word = reason.split_once(": ").map(|(word, _)| word).filter(is_code);
    word.unwrap_or_default().to_owned()
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

/// What the template says by now about the network; nothing if it is not there yet.
fn policy(config: &Config, template: &str) -> Result<Policy, EngineError> {
    match config.template(template) {
        Some(template) => template.policy(config).kind(ErrorKind::Invalid),
        None => Ok(learn::no_rules()),
    }
}

/// The file's text with the rules in it: as sections, or in the list that the template has. What is
/// shown can be used, so it is read once more.
fn with_rules(
    file: &Path,
    old: &str,
    (learned, template, from): (&LearnedRules, &str, &str),
) -> Result<String, EngineError> {
    let new = match Config::allow_list(old, template) {
        Some(list) => render::listed(old, &learned.rules, list, from).ok_or_else(|| {
            invalid(format!(
                "`allow` of template {template} is a list, which has no words for `websocket`; \
                 write it as [[template.{template}.allow]] tables"
            ))
        })?,
        None => render::appended(old, &render::sections(&learned.rules, template, from)),
    };
    let with = "with the rules in it, the file would be wrong; write them in yourself";
    let config =
        Config::parse(&new, file, Scope::Operator).context(with).kind(ErrorKind::Broken)?;
    let policy = policy(&config, template)?;
    if policy.net == Net::None {
        print::note(&format!(
            "template {template} has `net = \"none\"`, so its boxes reach nothing still"
        ));
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn a_reason_begins_with_its_code() {
        assert_eq!(code("no-rule: GET https://a.example/: no rule allows it"), "no-rule");
        for other in ["no rule allows it", "No-rule: x", "a b: c", "", "no-rule"] {
            assert_eq!(code(other), "", "{other}");
        }
    }
}
