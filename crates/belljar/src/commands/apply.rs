//! `belljar apply`: copies the changes of a run into the workspace, after a summary and a question.

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

/// Runs `belljar apply`.
pub(crate) fn run(cli: &Cli, args: &ApplyArgs) -> Outcome {
    let state = scope::open(None)?;
    if let Some(named_box) = box_store::find_with_clone(&state, args.which.run.as_deref())? {
        return clone::apply(&state, &named_box, args);
    }
    if args.branch.is_some() {
        return Err(invalid(
            "--branch works only for boxes that were created with `belljar up --repo`",
        ));
    }
    let current_dir = scope::current_dir()?;
    let mut run = review::find(&state, &current_dir, args.which.run.as_deref())?;
    let named_box = box_store::box_of_run(&state, &run);
    let _lock =
        named_box.as_ref().map(|named_box| named_box.lock_while_stopped("apply")).transpose()?;
    let _lock = review::lock(&run)?;
    run = review::reload(&state, &run)?;
    if named_box.is_none() {
        review::check_not_discarded(&run)?;
    }
    let (layers, changed) = changes::open(&state, &run)?;
    let mut choice = choice(args).kind(ErrorKind::Invalid)?;
    choice.denied = changes::denied(&permissions(&state, named_box.as_ref(), &run, cli)?, &changed);
    // Opened before any change: `begin` can complete an interrupted earlier apply.
    let ledger = record::open(&state).kind(ErrorKind::Broken)?;
    let mut session = ApplySession::begin(&layers).kind(ErrorKind::Broken)?;
    for recovered in session.recovered() {
        print::note(&format!("completed an interrupted apply: {recovered:?}"));
    }
    let observed = session.observe(&changed).kind(ErrorKind::Broken)?;
    let draft = plan_apply(&observed, &choice);
    if let Some(pattern) = draft.unmatched().first() {
        return Err(invalid(format!("the path {pattern} matches no change of the box")));
    }
    let summary = summary(&draft);
    let plan = match draft.settle() {
        Ok(plan) => plan,
        Err(draft) => return Err(conflict_error(&run, &draft)),
    };
    if plan.is_empty() && !args.json {
        print::note("there are no changes to apply");
    }
    if !args.yes && !plan.is_empty() {
        print::out(&summary).kind(ErrorKind::Broken)?;
        if !print::confirm("apply these changes?").kind(ErrorKind::Broken)? {
            return Err(invalid(
                "nothing was applied, because it was not confirmed; `--yes` skips the question",
            ));
        }
    }
    let applied = changes::apply(&state, &ledger, &run, &mut session, plan)?;
    run.record.review = review_state(&applied);
    run.save().kind(ErrorKind::Broken)?;
    if args.json {
        print::json(&applied).kind(ErrorKind::Broken)?;
    } else {
        report(&applied).kind(ErrorKind::Broken)?;
    }
    record::settle(&ledger, &state, run.id(), "the operator applied its changes")
        .kind(ErrorKind::Broken)?;
    if named_box.is_some() && run.record.review == Review::Applied {
        // All changes are on the host now, so the box continues with an empty layer.
        belljar_workspace::discard(&run.dir)
            .context("cannot empty the layer of the box after all its changes were applied")
            .kind(ErrorKind::Broken)?;
    }
    Ok(if has_failures(&applied) { exit::FAILED } else { 0 })
}

/// Returns the current permissions of the box, or of the template of the run.
fn permissions(
    state: &Scoped,
    named_box: Option<&NamedBox>,
    run: &Run,
    cli: &Cli,
) -> Result<Permissions, EngineError> {
    if let Some(named_box) = named_box {
        return setup::permissions(state, named_box);
    }
    let workspace = run.record.workspace.as_ref().map(|at| at.path.as_path());
    let (config, _) = config::load_from(host(), cli.config.as_deref(), workspace)?;
    Ok(config.permissions(&run.record.template))
}

/// Converts paths of the command line into patterns.
pub(crate) fn pick(paths: &[OsString]) -> anyhow::Result<Pick> {
    let patterns: anyhow::Result<Vec<Pattern>> = paths
        .iter()
        .map(|path| {
            let trimmed = path.as_bytes().strip_prefix(b"./").unwrap_or(path.as_bytes());
            Pattern::new(trimmed)
                .with_context(|| format!("invalid path {}", display::safe(path.as_bytes())))
        })
        .collect();
    Ok(Pick::These(patterns?))
}

/// Converts the options into the choice of changes to apply.
fn choice(args: &ApplyArgs) -> anyhow::Result<Choice> {
    let paths = if args.paths.is_empty() { Pick::All } else { pick(&args.paths)? };
    Ok(Choice {
        paths,
        include_executable: pick(&args.include_executable)?,
        theirs: pick(&args.theirs)?,
        ours: pick(&args.ours)?,
        denied: BTreeSet::new(),
        only_inert: false,
    })
}

/// Returns the list of changes that will be applied, and of those that will not, with reasons.
fn summary(draft: &Draft<'_>) -> String {
    let mut text = String::new();
    for change in draft.to_do() {
        let path = display::safe(change.path.as_bytes());
        writeln!(text, "  apply    {path}").ok(); // writing to a String cannot fail
    }
    for (change, why) in draft.left_out() {
        let path = display::safe(change.path.as_bytes());
        writeln!(text, "  skip     {path}: {}", display::safe_line(why.message())).ok();
    }
    text
}

/// Returns the error for paths that changed both on the host and in the box.
fn conflict_error(run: &Run, draft: &Draft<'_>) -> EngineError {
    let mut text =
        "nothing was applied, because these paths changed both on the host and in the box:"
            .to_owned();
    for conflict in draft.conflicts() {
        let path = display::safe(conflict.change.path.as_bytes());
        write!(text, " {path} ({});", conflict.why.message()).ok();
    }
    write!(
        text,
        " `belljar diff {0} --conflicts` shows both versions; `--theirs PATH` applies the version of the box, `--ours PATH` keeps the version of the host",
        run.id()
    )
    .ok();
    EngineError::new(ErrorKind::Broken, anyhow!(text))
}

/// Returns whether any change failed, conflicted or was not reached.
fn has_failures(applied: &Applied) -> bool {
    applied.entries.iter().any(|entry| {
        matches!(
            entry.status,
            EntryStatus::Failed { .. } | EntryStatus::Conflict(_) | EntryStatus::NotReached
        )
    })
}

/// Returns the new review state of the run.
fn review_state(applied: &Applied) -> Review {
    let held_back = applied.entries.iter().any(|entry| {
        !matches!(
            entry.status,
            EntryStatus::Applied | EntryStatus::AlreadyThere | EntryStatus::KeptOurs
        )
    });
    if held_back { Review::PartlyApplied } else { Review::Applied }
}

/// Prints the result of an apply.
fn report(applied: &Applied) -> std::io::Result<()> {
    let mut text = String::new();
    let mut applied_count = 0;
    for entry in &applied.entries {
        let path = display::safe(entry.path.as_bytes());
        match &entry.status {
            EntryStatus::Applied => applied_count += 1,
            EntryStatus::AlreadyThere | EntryStatus::NotChosen | EntryStatus::KeptOurs => {}
            EntryStatus::LeftOut(why) => {
                writeln!(text, "skipped   {path}: {}", display::safe_line(why.message())).ok();
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
                writeln!(text, "not done  {path}: run `belljar apply` again").ok();
            }
        }
    }
    writeln!(text, "applied changes: {applied_count}").ok();
    print::out(&text)
}
