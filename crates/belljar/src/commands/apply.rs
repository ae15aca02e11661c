//! `belljar apply`: takes over what a box changed, after showing what that is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use belljar_ledger::{Ledger, WorkspaceApplied};
use belljar_model::{Review, RunState, WorkspaceAt, display};
use belljar_workspace::{
    ApplyPlan, Caps, Changes, Choice, Draft, Layers, Outcome as Applied, Pattern, Pick, Places,
    RelPath, Taken, Takeover, plan_apply,
};

use crate::boxes::{self, NamedBox};
use crate::cli::{ApplyArgs, Cli};
use crate::commands::clone;
use crate::config;
use crate::failure::{Code, FAILED, Failure, Outcome, USAGE, usage};
use crate::keeper::setup;
use crate::print;
use crate::record::{self, Applying};
use crate::state::{Run, State};

pub(crate) fn run(cli: &Cli, args: &ApplyArgs) -> Outcome {
    let state = State::open()?;
    if let Some(of) = boxes::with_clone(&state, args.which.run.as_deref())? {
        return clone::apply(&state, &of, args);
    }
    if args.branch.is_some() {
        return Err(usage("--branch is for boxes that were made with `up --repo`"));
    }
    let mut run = state.find(args.which.run.as_deref())?;
    let of = boxes::of_run(&state, &run);
    let _turn = of.as_ref().map(|of| of.turn_while_down("apply")).transpose()?;
    if let Some(run_now) = of.as_ref().and_then(NamedBox::run) {
        run = run_now;
    }
    let (layers, changes) = open(&state, &run)?;
    let mut choice = choice(args).code(USAGE)?;
    choice.denied = denied(of.as_ref(), &run, cli.config.as_deref(), &changes)?;
    // Before anything is touched: to begin may finish what an earlier apply left.
    let ledger = record::open(&state).code(FAILED)?;
    let mut takeover = Takeover::begin(&layers).code(FAILED)?;
    for recovered in takeover.recovered() {
        print::note(&format!("finished what an interrupted apply left: {recovered:?}"));
    }
    let observed = takeover.observe(&changes).code(FAILED)?;
    let draft = plan_apply(&observed, &choice);
    if let Some(pattern) = draft.unmatched().first() {
        return Err(usage(format!("{pattern} matches nothing that the box changed")));
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
        print::out(&summary).code(FAILED)?;
        if !print::confirm("take this over?").code(FAILED)? {
            return Err(usage("nothing was applied; `--yes` answers the question"));
        }
    }
    let applied = take(&ledger, &run, &mut takeover, plan)?;
    run.record.review = review(&applied);
    run.save().code(FAILED)?;
    if args.json {
        print::json(&applied).code(FAILED)?;
    } else {
        report(&applied).code(FAILED)?;
    }
    record::settle(&ledger, &state, run.id(), "the operator applied its changes").code(FAILED)?;
    if of.is_some() && run.record.review == Review::Applied {
        // All of it is on the host: from here on the box works on that.
        belljar_workspace::discard(&run.dir).context("begin anew").code(FAILED)?;
    }
    Ok(if failed(&applied) { FAILED } else { 0 })
}

/// Takes over what was planned, once that is on record, and records what came of it.
fn take(
    ledger: &Ledger,
    run: &Run,
    takeover: &mut Takeover<'_>,
    plan: ApplyPlan<'_>,
) -> Result<Applied, Failure> {
    let applying = Applying::begin(ledger, run.id(), plan.len() as u64)?;
    let recorded = match takeover.apply(plan, &mut |_| {}).code(FAILED) {
        Ok(applied) => {
            let count = |is: fn(&Taken) -> bool| {
                applied.entries.iter().filter(|entry| is(&entry.taken)).count() as u64
            };
            let taken = count(|taken| matches!(taken, Taken::Applied | Taken::AlreadyThere));
            let held_back = applied.entries.len() as u64 - taken;
            (applying.done(WorkspaceApplied { taken, held_back, error: None }), Ok(applied))
        }
        Err(failure) => (applying.failed(&failure.error), Err(failure)),
    };
    if let (Err(error), _) = &recorded {
        print::note("what came of it is not on record; `belljar runs` will show it:");
        print::error(&error.clone().into());
    }
    recorded.1
}

/// Takes over everything that nothing on the host executes and that only the box changed. Returns
/// what that makes of the review, and what was held back and why.
pub(crate) fn take_harmless(
    state: &State,
    run: &Run,
    ledger: &Ledger,
    config: Option<&Path>,
) -> Result<(Review, Vec<String>), Failure> {
    let (layers, changes) = layers_of(state, run)?;
    let mut takeover = Takeover::begin(&layers).code(FAILED)?;
    let observed = takeover.observe(&changes).code(FAILED)?;
    let denied = denied(boxes::of_run(state, run).as_ref(), run, config, &changes)?;
    let choice = Choice { ours: Pick::All, denied, ..Choice::everything() };
    let plan = plan_apply(&observed, &choice).settle();
    let plan = plan.map_err(|_| anyhow!("both sides changed")).code(FAILED)?;
    let applied = take(ledger, run, &mut takeover, plan)?;
    let mut held_back = Vec::new();
    for entry in &applied.entries {
        let path = display::safe(entry.path.as_bytes());
        match &entry.taken {
            Taken::Applied | Taken::AlreadyThere | Taken::NotChosen => {}
            Taken::KeptOurs => held_back.push(format!("{path}: both sides changed it")),
            Taken::LeftOut(why) => held_back.push(format!("{path}: {}", why.words())),
            Taken::Conflict(why) => held_back.push(format!("{path}: {}", why.words())),
            Taken::Failed { doing, cause } => held_back.push(format!("{path}: {doing}: {cause}")),
            Taken::NotReached => held_back.push(format!("{path}: not reached")),
        }
    }
    let review = if held_back.is_empty() { Review::Applied } else { Review::PartlyApplied };
    Ok((review, held_back))
}

/// The layers of a run and what is sealed in them.
pub(crate) fn open(state: &State, run: &Run) -> Result<(Layers, Changes), Failure> {
    if run.record.state == RunState::Running {
        return Err(usage(format!("run {} is still running", run.id())));
    }
    layers_of(state, run)
}

/// What a run changed; of one that is at work what it changed so far.
pub(crate) fn look(state: &State, run: &Run, is_up: bool) -> Result<(Layers, Changes), Failure> {
    if !is_up {
        return layers_of(state, run);
    }
    let (layers, at) = open_layers(state, run)?;
    let changes = belljar_workspace::look(&layers, at.clock, &Caps::default())
        .context("read what the box has changed so far")
        .code(FAILED)?;
    Ok((layers, changes))
}

fn layers_of(state: &State, run: &Run) -> Result<(Layers, Changes), Failure> {
    let (layers, at) = open_layers(state, run)?;
    let changes = belljar_workspace::seal(&layers, at.clock, &Caps::default())
        .context("read what the box changed")
        .code(FAILED)?;
    Ok((layers, changes))
}

fn open_layers<'r>(state: &State, run: &'r Run) -> Result<(Layers, &'r WorkspaceAt), Failure> {
    let none = || anyhow!("run {} had no workspace", run.id());
    let at = run.record.workspace.as_ref().ok_or_else(none).code(USAGE)?;
    let places = Places { workspace: &at.path, state: state.home(), run: &run.dir };
    let layers = Layers::open(&places).code(USAGE)?;
    let (_, inode) = layers.workspace_inode().context("look at the workspace").code(FAILED)?;
    if inode != at.ino {
        let path = display::safe(at.path.as_os_str().as_bytes());
        return Err(usage(format!(
            "{path} is another directory than the one that the box worked on"
        )));
    }
    Ok((layers, at))
}

/// What the rules that are in force now keep as it is, whether or not it was there (threat C01).
fn denied(
    of: Option<&NamedBox>,
    run: &Run,
    config: Option<&Path>,
    changes: &Changes,
) -> Result<BTreeSet<RelPath>, Failure> {
    let permissions = match of {
        Some(of) => setup::permissions(of)?,
        None => {
            let workspace = run.record.workspace.as_ref().map(|at| at.path.as_path());
            config::load_from(config, workspace)?.0.permissions(&run.record.template)
        }
    };
    let paths = changes.entries().iter().map(|change| &change.path);
    let denied = paths.filter(|path| permissions.denies_edit(path.as_bytes()).is_some());
    Ok(denied.cloned().collect())
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
        writeln!(text, "  leave    {path}: {}", display::safe_line(why.words())).ok();
    }
    text
}

fn conflicted(run: &Run, draft: &Draft<'_>) -> Failure {
    let mut text = "both sides changed, and nothing was applied:".to_owned();
    for conflict in draft.conflicts() {
        let path = display::safe(conflict.change.path.as_bytes());
        write!(text, " {path} ({});", conflict.why.words()).ok();
    }
    write!(
        text,
        " `belljar diff {0} --conflicts` shows both; `--theirs PATH` takes the box's, `--ours PATH` keeps the host's",
        run.id()
    )
    .ok();
    Failure { code: FAILED, error: anyhow!(text) }
}

fn failed(applied: &Applied) -> bool {
    applied.entries.iter().any(|entry| {
        matches!(entry.taken, Taken::Failed { .. } | Taken::Conflict(_) | Taken::NotReached)
    })
}

fn review(applied: &Applied) -> Review {
    let held_back = applied.entries.iter().any(|entry| {
        !matches!(entry.taken, Taken::Applied | Taken::AlreadyThere | Taken::KeptOurs)
    });
    if held_back { Review::PartlyApplied } else { Review::Applied }
}

fn report(applied: &Applied) -> std::io::Result<()> {
    let mut text = String::new();
    let mut taken = 0;
    for entry in &applied.entries {
        let path = display::safe(entry.path.as_bytes());
        match &entry.taken {
            Taken::Applied => taken += 1,
            Taken::AlreadyThere | Taken::NotChosen | Taken::KeptOurs => {}
            Taken::LeftOut(why) => {
                writeln!(text, "left out  {path}: {}", display::safe_line(why.words())).ok();
            }
            Taken::Conflict(why) => {
                writeln!(text, "conflict  {path}: {}", why.words()).ok();
            }
            Taken::Failed { doing, cause } => {
                writeln!(
                    text,
                    "failed    {path}: {}",
                    display::safe_line(format!("{doing}: {cause}"))
                )
                .ok();
            }
            Taken::NotReached => {
                writeln!(text, "not yet   {path}: run `belljar apply` again").ok();
            }
        }
    }
    writeln!(text, "{taken} taken over").ok();
    print::out(&text)
}
