//! `belljar apply`: takes over what a box changed, after showing what that is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, anyhow};
use belljar_model::{Review, display};
use belljar_workspace::{
    ApplyOutcome as Applied, ApplySession, Choice, Draft, EntryStatus, Pattern, Pick, plan_apply,
};

use crate::cli::{ApplyArgs, Cli};
use crate::commands::clone;
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use crate::scope::host;
use belljar_engine::box_store::{self, NamedBox};
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::scope::Scoped;
use belljar_engine::store::Run;
use belljar_engine::supervisor::setup;
use belljar_engine::{changes, record, review};
use belljar_model::permission::Permissions;

pub(crate) fn run(cli: &Cli, args: &ApplyArgs) -> Outcome {
    let state = scope::open(None)?;
    if let Some(of) = box_store::find_with_clone(&state, args.which.run.as_deref())? {
        return clone::apply(&state, &of, args);
    }
    if args.branch.is_some() {
        return Err(invalid("--branch is for boxes that were made with `up --repo`"));
    }
    let here = scope::here()?;
    let mut run = review::find(&state, &here, args.which.run.as_deref())?;
    let of = box_store::box_of_run(&state, &run);
    let _lock = of.as_ref().map(|of| of.lock_while_stopped("apply")).transpose()?;
    let _lock = review::lock(&run)?;
    // Read again: another command may have reviewed it while this one waited.
    run = Run::load(&run.dir).kind(ErrorKind::Damaged)?;
    let (layers, changed) = changes::open(&state, &run)?;
    let mut choice = choice(args).kind(ErrorKind::Invalid)?;
    choice.denied = changes::denied(&permissions(&state, of.as_ref(), &run, cli)?, &changed);
    // Before anything is touched: to begin may finish what an earlier apply left.
    let ledger = record::open(&state).kind(ErrorKind::Broken)?;
    let mut session = ApplySession::begin(&layers).kind(ErrorKind::Broken)?;
    for recovered in session.recovered() {
        print::note(&format!("finished what an interrupted apply left: {recovered:?}"));
    }
    let observed = session.observe(&changed).kind(ErrorKind::Broken)?;
    let draft = plan_apply(&observed, &choice);
    if let Some(pattern) = draft.unmatched().first() {
        return Err(invalid(format!("{pattern} matches nothing that the box changed")));
    }
    let summary = summary(&draft);
    let plan = match draft.settle() {
        Ok(plan) => plan,
        Err(draft) => return Err(conflicted(&run, &draft)),
    };
    if plan.is_empty() && !args.json {
        print::note("there is nothing to take over");
    }
    if !args.yes && !plan.is_empty() {
        print::out(&summary).kind(ErrorKind::Broken)?;
        if !print::confirm("take this over?").kind(ErrorKind::Broken)? {
            return Err(invalid("nothing was applied; `--yes` answers the question"));
        }
    }
    let applied = changes::apply(&state, &ledger, &run, &mut session, plan)?;
    run.record.review = reviewed(&applied);
    run.save().kind(ErrorKind::Broken)?;
    if args.json {
        print::json(&applied).kind(ErrorKind::Broken)?;
    } else {
        report(&applied).kind(ErrorKind::Broken)?;
    }
    record::settle(&ledger, &state, run.id(), "the operator applied its changes")
        .kind(ErrorKind::Broken)?;
    if of.is_some() && run.record.review == Review::Applied {
        // All of it is on the host: from here on the box works on that.
        belljar_workspace::discard(&run.dir).context("begin anew").kind(ErrorKind::Broken)?;
    }
    Ok(if failed(&applied) { exit::FAILED } else { 0 })
}

/// The permissions in force now: of the box, or of the template that the run was started with.
fn permissions(
    state: &Scoped,
    of: Option<&NamedBox>,
    run: &Run,
    cli: &Cli,
) -> Result<Permissions, EngineError> {
    if let Some(of) = of {
        return setup::permissions(state, of);
    }
    let workspace = run.record.workspace.as_ref().map(|at| at.path.as_path());
    let (config, _) = config::load_from(host(), cli.config.as_deref(), workspace)?;
    Ok(config.permissions(&run.record.template))
}

/// Paths from the command line as the workspace crate wants them.
pub(crate) fn pick(paths: &[OsString]) -> anyhow::Result<Pick> {
    let patterns: anyhow::Result<Vec<Pattern>> = paths
        .iter()
        .map(|path| {
            let trimmed = path.as_bytes().strip_prefix(b"./").unwrap_or(path.as_bytes());
            Pattern::new(trimmed)
                .with_context(|| format!("path {}", display::safe(path.as_bytes())))
        })
        .collect();
    Ok(Pick::These(patterns?))
}

fn choice(args: &ApplyArgs) -> anyhow::Result<Choice> {
    let paths = if args.paths.is_empty() { Pick::All } else { pick(&args.paths)? };
    Ok(Choice {
        paths,
        include_executable: pick(&args.include_executable)?,
        theirs: pick(&args.theirs)?,
        ours: pick(&args.ours)?,
        denied: BTreeSet::new(),
    })
}

/// What is going to happen, and what is not and why.
fn summary(draft: &Draft<'_>) -> String {
    let mut text = String::new();
    for change in draft.to_do() {
        let path = display::safe(change.path.as_bytes());
        writeln!(text, "  take     {path}").ok(); // a String takes everything
    }
    for (change, why) in draft.left_out() {
        let path = display::safe(change.path.as_bytes());
        writeln!(text, "  leave    {path}: {}", display::safe_line(why.message())).ok();
    }
    text
}

fn conflicted(run: &Run, draft: &Draft<'_>) -> EngineError {
    let mut text = "both sides changed, and nothing was applied:".to_owned();
    for conflict in draft.conflicts() {
        let path = display::safe(conflict.change.path.as_bytes());
        write!(text, " {path} ({});", conflict.why.message()).ok();
    }
    write!(
        text,
        " `belljar diff {0} --conflicts` shows both; `--theirs PATH` takes the box's, `--ours PATH` keeps the host's",
        run.id()
    )
    .ok();
    EngineError::new(ErrorKind::Broken, anyhow!(text))
}

fn failed(applied: &Applied) -> bool {
    applied.entries.iter().any(|entry| {
        matches!(
            entry.status,
            EntryStatus::Failed { .. } | EntryStatus::Conflict(_) | EntryStatus::NotReached
        )
    })
}

fn reviewed(applied: &Applied) -> Review {
    let held_back = applied.entries.iter().any(|entry| {
        !matches!(
            entry.status,
            EntryStatus::Applied | EntryStatus::AlreadyThere | EntryStatus::KeptOurs
        )
    });
    if held_back { Review::PartlyApplied } else { Review::Applied }
}

fn report(applied: &Applied) -> std::io::Result<()> {
    let mut text = String::new();
    let mut taken = 0;
    for entry in &applied.entries {
        let path = display::safe(entry.path.as_bytes());
        match &entry.status {
            EntryStatus::Applied => taken += 1,
            EntryStatus::AlreadyThere | EntryStatus::NotChosen | EntryStatus::KeptOurs => {}
            EntryStatus::LeftOut(why) => {
                writeln!(text, "left out  {path}: {}", display::safe_line(why.message())).ok();
            }
            EntryStatus::Conflict(why) => {
                writeln!(text, "conflict  {path}: {}", why.message()).ok();
            }
            EntryStatus::Failed { doing, cause } => {
                writeln!(
                    text,
                    "failed    {path}: {}",
                    display::safe_line(format!("{doing}: {cause}"))
                )
                .ok();
            }
            EntryStatus::NotReached => {
                writeln!(text, "not yet   {path}: run `belljar apply` again").ok();
            }
        }
    }
    writeln!(text, "{taken} taken over").ok();
    print::out(&text)
}
