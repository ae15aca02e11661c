//! `belljar skill`: saves, shows, runs and approves skills.
//!
//! The name, description and code of a skill can come from a model. They reach the terminal only
//! through the escaping functions of `display` (F13, G02).

use crate::scope::host;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use belljar_model::code::SkillName;
use belljar_model::display::{safe, safe_line, safe_multiline};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::skill::{EditArgs, Lang, RunArgs, SaveArgs, SkillArgs, SkillCommand};
use crate::commands::code;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::programs::Work;
use belljar_engine::skills::{
    Author, Dialect, Draft, Edit, MAX_CODE, Saved, Skill, SkillInfo, SkillState, Skills,
    VersionState, Wants,
};

/// Runs `belljar skill`.
pub(crate) fn run(cli: &Cli, args: &SkillArgs) -> Outcome {
    let skills = Skills::open(&scope::open(None)?)?;
    match &args.command {
        SkillCommand::List { json } => list(&skills, *json),
        SkillCommand::Show { name, hash, json } => show(&skills, name, hash.as_deref(), *json),
        SkillCommand::Save(args) => save(&skills, args),
        SkillCommand::Edit(args) => edit(&skills, args),
        SkillCommand::Rm { name, yes } => remove(&skills, name, *yes),
        SkillCommand::Run(args) => execute(cli, &skills, args),
        SkillCommand::History { name, json } => history(&skills, name, *json),
        SkillCommand::Approve { name, hash, yes } => approve(&skills, name, hash.as_deref(), *yes),
    }
}

/// A skill in the list, as JSON.
#[derive(Serialize)]
struct SkillLine<'a> {
    name: &'a str,
    state: &'static str,
    description: Option<&'a str>,
    version: Option<&'a str>,
    wants: Vec<String>,
    /// The version that waits for approval.
    waiting: Option<&'a str>,
    /// The permissions of the waiting version that are not approved yet.
    more: Vec<String>,
    damage: Option<&'a str>,
}

impl<'a> SkillLine<'a> {
    fn new(info: &'a SkillInfo) -> Self {
        let (state, skill, waiting, damage) = match &info.state {
            SkillState::Active { skill, waiting } => {
                ("active", Some(skill), waiting.as_ref(), None)
            }
            SkillState::Waiting(waiting) => ("waits", None, Some(waiting), None),
            SkillState::Damaged(what) => ("damaged", None, None, Some(what.as_str())),
        };
        let described = skill.or(waiting.map(|waiting| &waiting.skill));
        Self {
            name: info.name.as_str(),
            state,
            description: described.map(|skill| skill.description.as_str()),
            version: skill.map(|skill| skill.version.as_str()),
            wants: described.map_or_else(Vec::new, |skill| skill.wants.words()),
            waiting: waiting.map(|waiting| waiting.skill.version.as_str()),
            more: waiting.map_or_else(Vec::new, |waiting| waiting.more.clone()),
            damage,
        }
    }
}

/// Prints all skills.
fn list(skills: &Skills, json: bool) -> Outcome {
    let all = skills.list()?;
    if all.is_empty() && !json {
        print::note("there are no skills; `belljar skill save NAME FILE` saves a skill");
    }
    for info in &all {
        let skill = SkillLine::new(info);
        if json {
            print::json(&skill).kind(ErrorKind::Broken)?;
            continue;
        }
        let version = skill.version.or(skill.waiting).map_or("-", |it| it.get(..12).unwrap_or(it));
        let words = skill.description.or(skill.damage).unwrap_or_default();
        let words = words.lines().next().unwrap_or_default();
        let line = format!("{:<20} {version:<12}  {:<7}  {words}", skill.name, skill.state);
        print::out(&format!("{}\n", safe_line(line.trim_end()))).kind(ErrorKind::Broken)?;
        if !skill.more.is_empty() {
            let (name, more) = (skill.name, skill.more.join(", "));
            let line = format!(
                "    a version that needs {more} waits for approval: belljar skill approve {name}"
            );
            print::out(&format!("{}\n", safe_line(line))).kind(ErrorKind::Broken)?;
        }
    }
    Ok(0)
}

/// A version of a skill with its code, as JSON.
#[derive(Serialize)]
struct SkillReport<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
    language: Dialect,
    wants: &'a Wants,
    code: &'a str,
}

/// Prints a version of a skill.
fn show(skills: &Skills, name: &SkillName, version: Option<&str>, json: bool) -> Outcome {
    let skill = match version {
        Some(prefix) => {
            let version = skills.find(name, prefix)?;
            skills.version(name, &version)
        }
        None => skills.get(name),
    };
    let skill = skill?;
    if json {
        let Skill { name, version, description, code, language, wants } = &skill;
        let (name, version) = (name.as_str(), version.as_str());
        let language = *language;
        print::json(&SkillReport { name, version, description, language, wants, code })
            .kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    print::page(&details(&skill)).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Returns a skill as text: name, version, description, permissions and code.
fn details(skill: &Skill) -> String {
    let wants = match skill.wants.is_empty() {
        true => "nothing".to_owned(),
        false => skill.wants.words().join(", "),
    };
    let mut text = format!("{} {}\n", skill.name, skill.version.short());
    if !skill.description.is_empty() {
        text.push_str(&format!("{}\n", safe_line(&skill.description)));
    }
    text.push_str(&format!("needs {}\n\n", safe(wants)));
    text.push_str(&safe_multiline(skill.code.trim_end()));
    text.push('\n');
    text
}

/// Saves a program as a skill.
fn save(skills: &Skills, args: &SaveArgs) -> Outcome {
    let code = read(&args.file)?;
    let language = match (args.lang, args.file.extension().and_then(|it| it.to_str())) {
        (Some(Lang::Js), _) | (None, Some("js" | "mjs")) => Dialect::Js,
        (Some(Lang::Ts) | None, _) => Dialect::Ts,
    };
    let wants = Wants {
        hosts: args.hosts.iter().cloned().collect(),
        secrets: args.secrets.iter().cloned().collect(),
        paths: args.paths.iter().cloned().collect(),
    };
    let draft = Draft { description: args.description.clone(), code, language, wants };
    let saved = skills.save(&args.name, draft, &Author::Operator)?;
    print_saved(&args.name, &saved)
}

/// Replaces parts of the code of a skill.
fn edit(skills: &Skills, args: &EditArgs) -> Outcome {
    if args.search.len() != args.replace.len() {
        return Err(invalid(
            "the number of --search options differs from the number of --replace options; each --search needs one --replace",
        ));
    }
    let pairs = args.search.iter().cloned().zip(args.replace.iter().cloned());
    let edits: Vec<Edit> = pairs.map(|(search, replace)| Edit { search, replace }).collect();
    let saved = skills.edit(&args.name, &edits, &Author::Operator)?;
    print_saved(&args.name, &saved)
}

/// Prints whether a saved version is active or waits for approval.
fn print_saved(name: &SkillName, saved: &Saved) -> Outcome {
    let version = saved.version.short();
    match &saved.state {
        VersionState::Active => print::note(&format!("skill {name} {version} is active")),
        VersionState::Waits { more } => {
            print::note(&format!(
                "skill {name} {version} waits for approval, because it needs {}",
                more.join(", ")
            ));
        }
    }
    Ok(0)
}

/// Deletes a skill after a question.
fn remove(skills: &Skills, name: &SkillName, yes: bool) -> Outcome {
    // A damaged skill can be removed as well.
    if let Err(error) = skills.history(name)
        && error.kind() == ErrorKind::NotFound
    {
        return Err(error);
    }
    if !yes
        && !print::confirm(&format!("delete the skill {name} with all its versions?"))
            .kind(ErrorKind::Broken)?
    {
        return Err(invalid(format!(
            "the skill {name} was not deleted, because it was not confirmed; `--yes` skips the question"
        )));
    }
    skills.forget(name)?;
    print::note(&format!("deleted the skill {name} with all its approvals"));
    Ok(0)
}

/// Runs a skill in a box.
fn execute(cli: &Cli, skills: &Skills, args: &RunArgs) -> Outcome {
    let skill = skills.get(&args.name)?;
    if let Some(input) = &args.input {
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(input);
        parsed.context("--input is not valid JSON").kind(ErrorKind::Invalid)?;
    }
    let (config, _) = config::load_from(host(), cli.config.as_deref(), None)?;
    let workspace = code::workspace(args.workspace.as_deref(), None)?;
    let mut work = Work::of_skill(&skill, &config, args.input.clone());
    work.timeout = args.timeout.map(Duration::from_secs);
    let answer = code::execute(cli, workspace, work, args.json)?;
    code::report(&answer, args.json)
}

/// An entry of the history of a skill, as JSON.
#[derive(Serialize)]
struct HistoryLine<'a> {
    version: &'a str,
    step: &'static str,
    by: &'a str,
    is_active: bool,
    is_kept: bool,
}

/// Prints the history of a skill.
fn history(skills: &Skills, name: &SkillName, json: bool) -> Outcome {
    for entry in skills.history(name)? {
        let (version, step) = (entry.version.as_str(), entry.step.name());
        let step = HistoryLine {
            version,
            step,
            by: &entry.by,
            is_active: entry.is_active,
            is_kept: entry.is_kept,
        };
        if json {
            print::json(&step).kind(ErrorKind::Broken)?;
            continue;
        }
        let mark = if entry.is_active { "  active" } else { "" };
        let line = format!("{}  {:<8}  by {}{mark}", entry.version.short(), step.step, entry.by);
        print::out(&format!("{}\n", safe_line(line))).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Approves a version of a skill after a question.
fn approve(skills: &Skills, name: &SkillName, version: Option<&str>, yes: bool) -> Outcome {
    let version = match version {
        Some(prefix) => skills.find(name, prefix)?,
        None => skills.waiting(name)?,
    };
    let skill = skills.version(name, &version)?;
    if !yes {
        print::page(&details(&skill)).kind(ErrorKind::Broken)?;
        let wants = skill.wants.words().join(", ");
        let wants = if wants.is_empty() { "nothing".to_owned() } else { wants };
        let question =
            format!("approve the skill {name} {}, which needs {wants}?", version.short());
        if !print::confirm(&question).kind(ErrorKind::Broken)? {
            return Err(invalid(format!(
                "the skill {name} was not approved, because it was not confirmed; `--yes` skips the question"
            )));
        }
    }
    skills.approve(name, &version)?;
    print::note(&format!("skill {name} {} is active", version.short()));
    Ok(0)
}

/// Reads the code of a skill from a file or, for `-`, from standard input.
fn read(file: &Path) -> Result<String, EngineError> {
    let limit = u64::try_from(MAX_CODE).unwrap_or(u64::MAX) + 1;
    let mut code = String::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin()
            .take(limit)
            .read_to_string(&mut code)
            .context("cannot read the code from standard input"),
        false => File::open(file)
            .and_then(|file| file.take(limit).read_to_string(&mut code))
            .with_context(|| format!("cannot read {}", file.display())),
    };
    read.kind(ErrorKind::Invalid)?;
    Ok(code)
}
