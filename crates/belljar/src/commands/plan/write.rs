//! `belljar plan GOAL`: lets a model write a plan, and shows it.
//!
//! The plan is never submitted without a person: `--submit` asks on a terminal, after the plan was shown.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::runs::author::{Author, Judged, MAX_ATTEMPTS, PlanRequest, WrittenPlan};
use belljar_engine::runs::budget::Unit;
use belljar_engine::runs::grants::{self, Grant};
use belljar_engine::scope::Scoped;
use belljar_engine::store::durable;
use belljar_model::plan::{PlanFault, PlanFaults, PlanPath, RunBudget, TierName};
use belljar_model::{RunId, display};
use rustix::termios::QueueSelector;
use serde::Serialize;

use super::question::{block_signals, wait};
use super::{configuration, shown, thousands};
use crate::cli::Cli;
use crate::cli::plan::{WriteArgs, WriteLimit};
use crate::commands::submit::{self, GrantLine};
use crate::exit::{FAILED, Outcome};
use crate::print;
use crate::scope::{self, host};

/// Runs `belljar plan GOAL`.
pub(crate) fn run(cli: &Cli, args: &WriteArgs) -> Outcome {
    let goal = goal(args)?;
    if args.submit && !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let error = invalid("--submit asks you on a terminal, because a model wrote the plan");
        return Err(error.advise("use --output FILE, read the file, and then use `belljar submit`"));
    }
    let dir = scope::current_dir()?;
    let target = args.output.as_deref().map(|file| Target::new(file, &dir, args.force));
    let target = target.transpose()?;
    let state = scope::open(cli.config.as_deref())?;
    let request = PlanRequest {
        goal,
        tier: args.tier.clone(),
        template: args.template.clone(),
        attempts: args.attempts.unwrap_or(MAX_ATTEMPTS),
        budget: WriteLimit::budget(&args.budget),
    };
    let mut author = Author::open(&state, &dir, &request)?;
    let mut runs = Vec::new();
    let signals = block_signals()?;
    let written = loop {
        let run = author.start()?;
        runs.push(run);
        wait(&state, run, &author, &signals)?;
        match author.judge(run)? {
            Judged::Accepted(written) => break written,
            Judged::Refused { faults, is_last: true } => {
                return failed(&author, &runs, &faults, args.json);
            }
            Judged::Refused { faults, .. } => {
                let count = faults.list().len() + faults.more();
                let plural = if count == 1 { "" } else { "s" };
                let (number, of) = author.progress();
                print::note(&format!(
                    "plan {number} of {of} has {count} fault{plural}; asking again"
                ));
            }
        }
    };
    drop(signals);
    let grants = grants::of_plan(&written.plan, &configuration(cli)?, host())?;
    let result = Written { written: &written, grants: &grants, author: &author, runs: &runs };
    if let Some(target) = &target {
        target.write(&written.text)?;
    }
    if args.json {
        print::json(&result.line(target.as_ref())).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    if args.submit {
        return result.confirm_and_submit(&state, &dir, target.as_ref());
    }
    if target.is_none() {
        print::out(&result.text()).kind(ErrorKind::Broken)?;
    }
    print::lines(&result.summary());
    if let Some(target) = &target {
        let file = target.shown();
        print::note(&format!("wrote {file}; read it, and start it with `belljar submit {file}`"));
    }
    Ok(0)
}

/// Returns the goal. A single word is refused as a sentence: it is probably a misspelled subcommand.
fn goal(args: &WriteArgs) -> Result<String, EngineError> {
    match (&args.sentence, &args.goal) {
        (Some(sentence), _) if !sentence.trim().contains(char::is_whitespace) => {
            let word = sentence.trim();
            let error =
                invalid(format!("`{word}` is neither a subcommand of `plan` nor a sentence"));
            Err(error.advise(format!(
                "use `belljar plan check FILE`, `belljar plan show FILE`, or `belljar plan --goal {word:?}`"
            )))
        }
        (Some(goal), _) | (None, Some(goal)) => Ok(goal.clone()),
        (None, None) => Err(invalid("the goal is missing").advise(
            "write it as a sentence in quotes, for example `belljar plan \"Fix the login\"`",
        )),
    }
}

/// The file of `--output`.
struct Target {
    dir: PathBuf,
    name: String,
    replaces: bool,
}

impl Target {
    /// Checks the file before a model is asked.
    fn new(file: &Path, dir: &Path, replaces: bool) -> Result<Self, EngineError> {
        let shown = display::safe(file.as_os_str().as_encoded_bytes());
        let name = file.file_name().and_then(|name| name.to_str());
        let name =
            name.ok_or_else(|| invalid(format!("--output {shown}: not the name of a file")))?;
        if file.extension().is_some_and(|extension| extension == "json") {
            return Err(invalid(format!(
                "--output {shown}: the plan is TOML; use another extension"
            )));
        }
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.map_or_else(|| dir.to_owned(), |parent| dir.join(parent));
        let is_here = match (parent.canonicalize(), dir.canonicalize()) {
            (Ok(parent), Ok(dir)) => parent == dir,
            (Err(_), _) | (_, Err(_)) => false,
        };
        if !is_here {
            let error =
                invalid(format!("--output {shown}: the file must be in the current directory"));
            return Err(error.advise(
                "paths in a plan refer to the directory of its file, and those of this plan to the current directory",
            ));
        }
        let target = Self { dir: dir.to_owned(), name: name.to_owned(), replaces };
        match target.dir.join(name).symlink_metadata() {
            Ok(_) if !replaces => Err(target.exists()),
            Ok(metadata) if !metadata.is_file() => {
                Err(invalid(format!("--output {shown}: not a regular file")))
            }
            Ok(_) | Err(_) => Ok(target),
        }
    }

    fn exists(&self) -> EngineError {
        let text = format!("{} exists and is not changed", self.shown());
        EngineError::message(ErrorKind::AlreadyExists, text)
            .advise("use another file, or --force to replace it")
    }

    fn shown(&self) -> String {
        display::safe(&self.name)
    }

    fn write(&self, text: &str) -> Result<(), EngineError> {
        let written = match self.replaces {
            true => durable::write(&self.dir, &self.name, text.as_bytes()).map(|()| true),
            false => durable::create_new(&self.dir, &self.name, text.as_bytes()),
        };
        let written = written.with_context(|| format!("cannot write {}", self.shown()));
        if written.kind(ErrorKind::Broken)? { Ok(()) } else { Err(self.exists()) }
    }
}

/// Reports that the last plan has faults too. Its text stays in the output of its run.
fn failed(author: &Author<'_>, runs: &[RunId], faults: &PlanFaults, json: bool) -> Outcome {
    if json {
        let (list, more) = (faults.list(), faults.more());
        let line = FailedLine { valid: false, faults: list, more, runs };
        print::json(&line).kind(ErrorKind::Broken)?;
        return Ok(FAILED);
    }
    for fault in faults.list() {
        print::note(&fault.to_string());
    }
    if faults.more() > 0 {
        print::note(&format!("and {} more", faults.more()));
    }
    let (asked, _) = author.progress();
    let plural = if asked == 1 { "" } else { "s" };
    let kept = runs.last().map_or_else(String::new, |run| {
        format!("; `belljar runs output {run}/write` prints the last one")
    });
    print::note(&format!("the model wrote {asked} plan{plural} with faults{kept}"));
    Ok(FAILED)
}

/// A plan that passed all checks, with everything that a person sees of it.
struct Written<'a> {
    written: &'a WrittenPlan,
    grants: &'a [Grant],
    author: &'a Author<'a>,
    runs: &'a [RunId],
}

impl Written<'_> {
    /// Returns the text of the plan. A plan with hidden characters is never accepted; they are escaped anyway.
    fn text(&self) -> String {
        display::safe_multiline(&self.written.text)
    }

    /// Returns the size, the tree, the destinations and the files of the plan, and what its writing used.
    fn summary(&self) -> String {
        let mut text = shown(&self.written.plan);
        text.push_str(&submit::reaches(self.grants));
        for PlanPath { path, purpose, of, .. } in &self.written.paths {
            let path = display::safe(path.as_os_str().as_encoded_bytes());
            text.push_str(&format!("  reads    {path} ({} of {of})\n", purpose.name()));
        }
        let (asked, _) = self.author.progress();
        let plural = if asked == 1 { "" } else { "s" };
        let used = used(self.author);
        let tier = self.author.tier();
        text.push_str(&format!("  written  by tier {tier} in {asked} attempt{plural}, {used}\n"));
        text
    }

    /// Shows the plan, asks the person, and submits exactly this plan.
    fn confirm_and_submit(&self, state: &Scoped, dir: &Path, target: Option<&Target>) -> Outcome {
        print::lines(&format!("{}\n{}", self.text(), self.summary()));
        // Keys that were typed before the plan was shown are no answer.
        rustix::termios::tcflush(io::stdin(), QueueSelector::IFlush)
            .context("cannot discard earlier keys")
            .kind(ErrorKind::Broken)?;
        if !print::confirm("submit this plan?").kind(ErrorKind::Broken)? {
            let error = invalid("the plan was not submitted, because it was not confirmed");
            return Err(match target {
                Some(target) => error.advise(format!("it is in {}", target.shown())),
                None => error,
            });
        }
        self.written.check_paths()?;
        submit::start(state, &self.written.plan, self.grants, dir, None, false).map(|_| 0)
    }

    fn line<'l>(&'l self, target: Option<&'l Target>) -> WrittenLine<'l> {
        let plan = &self.written.plan;
        let path = |path: &PlanPath| PathLine {
            path: path.path.display().to_string(),
            purpose: path.purpose.name(),
            of: path.of.clone(),
        };
        WrittenLine {
            valid: true,
            plan: &self.written.text,
            file: target.map(|target| target.name.as_str()),
            name: plan.name(),
            template: plan.template(),
            tasks: plan.tasks().len(),
            max_instances: plan.max_instances(),
            budget: plan.budget(),
            reaches: submit::grant_lines(self.grants),
            paths: self.written.paths.iter().map(path).collect(),
            tier: self.author.tier(),
            runs: self.runs,
            tokens: self.author.used().get(Unit::Tokens),
            microusd: self.author.cost().map(|cost| cost.0),
        }
    }
}

/// Returns the usage of all questions in a few words.
fn used(author: &Author<'_>) -> String {
    let tokens = format!("{} tokens", thousands(author.used().get(Unit::Tokens)));
    author.cost().map_or_else(|| tokens.clone(), |cost| format!("{tokens}, {cost}"))
}

/// A plan of a model, as JSON.
#[derive(Serialize)]
struct WrittenLine<'a> {
    valid: bool,
    /// The text of the plan in TOML.
    plan: &'a str,
    /// The file of `--output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    name: &'a str,
    template: &'a str,
    tasks: usize,
    max_instances: usize,
    budget: &'a RunBudget,
    reaches: Vec<GrantLine<'a>>,
    paths: Vec<PathLine>,
    tier: &'a TierName,
    /// The runs in which the model was asked.
    runs: &'a [RunId],
    tokens: u64,
    /// The cost in millionths of a US dollar, if the price of the tier is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    microusd: Option<u64>,
}

/// A file or directory that a plan names, as JSON.
#[derive(Serialize)]
struct PathLine {
    path: String,
    purpose: &'static str,
    of: String,
}

/// The faults of the last plan, as JSON.
#[derive(Serialize)]
struct FailedLine<'a> {
    valid: bool,
    faults: &'a [PlanFault],
    more: usize,
    runs: &'a [RunId],
}
