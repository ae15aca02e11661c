//! `belljar skill`: programs that were worth keeping.
//!
//! What a skill says about itself may be a model's words: nothing of it reaches the terminal but
//! through the display functions (F13, G02).

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

/// A skill in a list.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    state: &'static str,
    description: Option<&'a str>,
    version: Option<&'a str>,
    wants: Vec<String>,
    /// A version that waits, and what it wants beyond what was approved.
    waiting: Option<&'a str>,
    more: Vec<String>,
    damage: Option<&'a str>,
}

impl<'a> Listed<'a> {
    fn new(info: &'a SkillInfo) -> Self {
        let (state, skill, waiting, damage) = match &info.state {
            SkillState::Active { skill, waiting } => {
                ("active", Some(skill), waiting.as_ref(), None)
            }
            SkillState::Waiting(waiting) => ("waits", None, Some(waiting), None),
            SkillState::Damaged(what) => ("damaged", None, None, Some(what.as_str())),
        };
        let shown = skill.or(waiting.map(|waiting| &waiting.skill));
        Self {
            name: info.name.as_str(),
            state,
            description: shown.map(|skill| skill.description.as_str()),
            version: skill.map(|skill| skill.version.as_str()),
            wants: shown.map_or_else(Vec::new, |skill| skill.wants.words()),
            waiting: waiting.map(|waiting| waiting.skill.version.as_str()),
            more: waiting.map_or_else(Vec::new, |waiting| waiting.more.clone()),
            damage,
        }
    }
}

fn list(skills: &Skills, json: bool) -> Outcome {
    let all = skills.list()?;
    if all.is_empty() && !json {
        print::note("no skills; `belljar skill save NAME FILE` keeps one");
    }
    for info in &all {
        let listed = Listed::new(info);
        if json {
            print::json(&listed).kind(ErrorKind::Broken)?;
            continue;
        }
        let version =
            listed.version.or(listed.waiting).map_or("-", |it| it.get(..12).unwrap_or(it));
        let words = listed.description.or(listed.damage).unwrap_or_default();
        let words = words.lines().next().unwrap_or_default();
        let line = format!("{:<20} {version:<12}  {:<7}  {words}", listed.name, listed.state);
        print::out(&format!("{}\n", safe_line(line.trim_end()))).kind(ErrorKind::Broken)?;
        if !listed.more.is_empty() {
            let (name, more) = (listed.name, listed.more.join(", "));
            let line =
                format!("    a version waits that wants {more}: belljar skill approve {name}");
            print::out(&format!("{}\n", safe_line(line))).kind(ErrorKind::Broken)?;
        }
    }
    Ok(0)
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
    language: Dialect,
    wants: &'a Wants,
    code: &'a str,
}

fn show(skills: &Skills, name: &SkillName, version: Option<&str>, json: bool) -> Outcome {
    let skill = match version {
        Some(beginning) => {
            let version = skills.find(name, beginning)?;
            skills.version(name, &version)
        }
        None => skills.get(name),
    };
    let skill = skill?;
    if json {
        let Skill { name, version, description, code, language, wants } = &skill;
        let (name, version) = (name.as_str(), version.as_str());
        let language = *language;
        print::json(&Shown { name, version, description, language, wants, code })
            .kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    print::page(&shown(&skill)).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// A skill as a person reads it.
fn shown(skill: &Skill) -> String {
    let wants = match skill.wants.is_empty() {
        true => "nothing".to_owned(),
        false => skill.wants.words().join(", "),
    };
    let mut text = format!("{} {}\n", skill.name, skill.version.short());
    if !skill.description.is_empty() {
        text.push_str(&format!("{}\n", safe_line(&skill.description)));
    }
    text.push_str(&format!("wants {}\n\n", safe(wants)));
    text.push_str(&safe_multiline(skill.code.trim_end()));
    text.push('\n');
    text
}

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
    told(&args.name, &saved)
}

fn edit(skills: &Skills, args: &EditArgs) -> Outcome {
    if args.search.len() != args.replace.len() {
        return Err(invalid("each --search needs its --replace"));
    }
    let pairs = args.search.iter().cloned().zip(args.replace.iter().cloned());
    let edits: Vec<Edit> = pairs.map(|(search, replace)| Edit { search, replace }).collect();
    let saved = skills.edit(&args.name, &edits, &Author::Operator)?;
    told(&args.name, &saved)
}

fn told(name: &SkillName, saved: &Saved) -> Outcome {
    let version = saved.version.short();
    match &saved.state {
        VersionState::Active => print::note(&format!("{name} {version} is in force")),
        VersionState::Waits { more } => {
            print::note(&format!("{name} {version} waits: it wants {}", more.join(", ")));
        }
    }
    Ok(0)
}

fn remove(skills: &Skills, name: &SkillName, yes: bool) -> Outcome {
    // A damaged skill can be removed as well.
    if let Err(error) = skills.history(name)
        && error.kind() == ErrorKind::NotFound
    {
        return Err(error);
    }
    if !yes
        && !print::confirm(&format!("delete {name} with all its versions?"))
            .kind(ErrorKind::Broken)?
    {
        return Err(invalid(format!("{name} was not deleted; -y deletes without asking")));
    }
    skills.forget(name)?;
    print::note(&format!("{name} is deleted, and nothing is approved for it any more"));
    Ok(0)
}

fn execute(cli: &Cli, skills: &Skills, args: &RunArgs) -> Outcome {
    let skill = skills.get(&args.name)?;
    if let Some(input) = &args.input {
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(input);
        parsed.context("--input: not JSON").kind(ErrorKind::Invalid)?;
    }
    let (config, _) = config::load_from(host(), cli.config.as_deref(), None)?;
    let ground = code::ground(args.workspace.as_deref(), None)?;
    let mut work = Work::of_skill(&skill, &config, args.input.clone());
    work.timeout = args.timeout.map(Duration::from_secs);
    let answer = code::execute(cli, ground, work, args.json)?;
    code::told(&answer, args.json)
}

#[derive(Serialize)]
struct Step<'a> {
    version: &'a str,
    step: &'static str,
    by: &'a str,
    is_active: bool,
    is_kept: bool,
}

fn history(skills: &Skills, name: &SkillName, json: bool) -> Outcome {
    for past in skills.history(name)? {
        let (version, step) = (past.version.as_str(), past.step.name());
        let step =
            Step { version, step, by: &past.by, is_active: past.is_active, is_kept: past.is_kept };
        if json {
            print::json(&step).kind(ErrorKind::Broken)?;
            continue;
        }
        let mark = if past.is_active { "  in force" } else { "" };
        let line = format!("{}  {:<8}  by {}{mark}", past.version.short(), step.step, past.by);
        print::out(&format!("{}\n", safe_line(line))).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

fn approve(skills: &Skills, name: &SkillName, version: Option<&str>, yes: bool) -> Outcome {
    let version = match version {
        Some(beginning) => skills.find(name, beginning)?,
        None => skills.waiting(name)?,
    };
    let skill = skills.version(name, &version)?;
    if !yes {
        print::page(&shown(&skill)).kind(ErrorKind::Broken)?;
        let wants = skill.wants.words().join(", ");
        let wants = if wants.is_empty() { "nothing".to_owned() } else { wants };
        let question = format!("put {name} {} in force, which wants {wants}?", version.short());
        if !print::confirm(&question).kind(ErrorKind::Broken)? {
            return Err(invalid(format!("{name} was not approved; -y approves without asking")));
        }
    }
    skills.approve(name, &version)?;
    print::note(&format!("{name} {} is in force", version.short()));
    Ok(0)
}

fn read(file: &Path) -> Result<String, EngineError> {
    let most = u64::try_from(MAX_CODE).unwrap_or(u64::MAX) + 1;
    let mut code = String::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().take(most).read_to_string(&mut code).context("read the program"),
        false => File::open(file)
            .and_then(|file| file.take(most).read_to_string(&mut code))
            .with_context(|| format!("read {}", file.display())),
    };
    read.kind(ErrorKind::Invalid)?;
    Ok(code)
}
