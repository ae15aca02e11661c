//! `belljar diff` and `belljar apply` for boxes whose workspace is a private clone of a repository.
//!
//! The work of such a box is read as git objects, never as files.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::anyhow;
use belljar_engine::box_store::NamedBox;
use belljar_engine::clones::{self, Commit, DiffStyle, FileChange, Work};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::review::cloned;
use belljar_engine::runs::{agent_work, control, view};
use belljar_engine::scope::Scoped;
use belljar_model::display;
use belljar_model::plan::Executor;
use serde::Serialize;

use crate::cli::runs::TaskTarget;
use crate::cli::{ApplyArgs, DiffArgs};
use crate::commands::apply::pick;
use crate::exit::Outcome;
use crate::print;

/// Shows the commits and changes in the clone of a box.
pub(crate) fn diff(state: &Scoped, named_box: &NamedBox, args: &DiffArgs) -> Outcome {
    if args.conflicts {
        return Err(invalid(
            "--conflicts does not work for a box with a clone: conflicts appear when you merge its branch",
        ));
    }
    let (_, work) = cloned::read(state, named_box)?;
    if args.json {
        print::json(&CloneReport::new(named_box, work.as_ref())).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    show(work, args)
}

/// Prints the commits of a clone and its uncommitted changes.
fn show(work: Option<Work>, args: &DiffArgs) -> Outcome {
    let Some(work) = work else { return Ok(0) };
    let paths: Vec<&Path> = args.paths.iter().map(Path::new).collect();
    let style = DiffStyle { stat: args.stat, colour: print::colour(), paths: &paths };
    let mut text = if paths.is_empty() { summary(&work) } else { String::new() };
    text.push_str(&clones::diff(&work, style)?);
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Shows the commits and changes so far of an agent task that is running.
pub(crate) fn diff_of_task(state: &Scoped, target: &TaskTarget, args: &DiffArgs) -> Outcome {
    if args.conflicts || args.home || args.json {
        return Err(invalid("only --stat and paths work for a task of a plan"));
    }
    let TaskTarget { run, task: of } = target;
    let run = view::find(state, run)?;
    let view = view::run(state, run)?;
    let task = view.task(of).ok_or_else(|| control::no_task(run, of))?;
    let executor = view.plan.task(&of.task).map(|task| &task.executor);
    let Some(Executor::Agent { repo, .. }) = executor else {
        let text = format!("task {of} of run {run} has no repository, because no agent does it");
        let error = EngineError::message(ErrorKind::Invalid, text);
        return Err(error.advise(format!("`belljar runs output {run}/{of}` prints its output")));
    };
    let Some(box_run) = agent_work::running_box(state, task) else {
        let text =
            format!("task {of} of run {run} is not running; its state is {}", task.status.name());
        let error = EngineError::message(ErrorKind::WrongState, text);
        let repo = view.base.join(repo);
        let advice = format!(
            "`git -C {} log --patch --glob=refs/belljar/{run}/*` shows what its attempts made",
            repo.display()
        );
        return Err(error.advise(advice));
    };
    let work = agent_work::read(state, box_run)?;
    if work.is_none() {
        print::note(&format!("task {of} has changed nothing so far"));
    }
    show(work, args)
}

/// Writes the commits of a box to a branch of the operator's repository.
pub(crate) fn apply(state: &Scoped, named_box: &NamedBox, args: &ApplyArgs) -> Outcome {
    let name = named_box.name();
    if !args.paths.is_empty() || !args.theirs.is_empty() || !args.ours.is_empty() {
        return Err(invalid(
            "paths, --theirs and --ours do not work for a box with a clone: its work becomes commits on a branch; choose files when you merge that branch",
        ));
    }
    let _lock = named_box.lock_for_change()?;
    let (at, work) = cloned::read(state, named_box)?;
    let Some(work) = work.filter(|work| !work.is_empty()) else {
        print::note("there are no changes to apply");
        return Ok(0);
    };
    refuse_unsafe_files(named_box, &work, args)?;
    let default = clones::default_branch(name);
    let branch = args.branch.as_deref().filter(|branch| !branch.is_empty()).unwrap_or(&default);
    if !args.yes {
        print::out(&summary(&work)).kind(ErrorKind::Broken)?;
        if !print::confirm(&format!("write these commits to the branch {branch}?"))
            .kind(ErrorKind::Broken)?
        {
            return Err(invalid(
                "nothing was applied, because it was not confirmed; `--yes` skips the question",
            ));
        }
    }
    cloned::apply(state, named_box, at, &work, branch)?;
    if args.json {
        print::json(&CloneReport::new(named_box, Some(&work))).kind(ErrorKind::Broken)?;
    } else {
        let commits = work.commit_count;
        let count = if commits == 1 { "1 commit".into() } else { format!("{commits} commits") };
        print::out(&format!("{count} on the branch {branch}\n")).kind(ErrorKind::Broken)?;
        work.remarks.iter().for_each(|remark| print::note(remark));
    }
    Ok(0)
}

/// Returns an error if the work has denied files, or risky files that were not named.
///
/// A branch cannot leave single files out, so one such file stops the whole apply.
fn refuse_unsafe_files(
    named_box: &NamedBox,
    work: &Work,
    args: &ApplyArgs,
) -> Result<(), EngineError> {
    let named = pick(&args.include_executable).kind(ErrorKind::Invalid)?;
    let safe = |file: &FileChange| display::safe(file.path.as_os_str().as_bytes()).to_string();
    let mut text = String::new();
    for file in &work.files {
        let path = belljar_workspace::RelPath::new(file.path.as_os_str().as_bytes());
        let is_named = path.is_ok_and(|path| named.matches(&path));
        match (&file.denied, &file.risky) {
            (Some(why), _) => write!(text, " {}: {why} (no option permits it);", safe(file)).ok(),
            (None, Some(why)) if !is_named => write!(text, " {}: {why};", safe(file)).ok(),
            (None, _) => None,
        };
    }
    if text.is_empty() {
        return Ok(());
    }
    let name = named_box.name();
    let error = anyhow!(
        "nothing was applied, because the host could execute some files or a rule denies them:{text} review them with `belljar diff {name}` and permit executable files with --include-executable PATH (`**` permits all)"
    );
    Err(EngineError::new(ErrorKind::Broken, error))
}

/// Returns the list of commits, denied and risky files and remarks that precedes a diff.
fn summary(work: &Work) -> String {
    let mut text = String::new();
    for Commit { oid, author, subject } in &work.commits {
        let oid = oid.get(..12).unwrap_or(oid);
        writeln!(text, "commit  {oid}  {author}: {subject}").ok(); // writing to a String cannot fail
    }
    for file in &work.files {
        let path = display::safe(file.path.as_os_str().as_bytes());
        for why in [&file.denied, &file.risky].into_iter().flatten() {
            writeln!(text, "review  {path}: {why}").ok(); // cannot fail
        }
    }
    for remark in &work.remarks {
        writeln!(text, "note    {remark}").ok(); // cannot fail
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The work in the clone of a box, as JSON.
#[derive(Serialize)]
struct CloneReport {
    #[serde(rename = "box")]
    name: String,
    base: Option<String>,
    tip: Option<String>,
    uncommitted: bool,
    commits: Vec<CommitReport>,
    files: Vec<FileReport>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct CommitReport {
    oid: String,
    author: String,
    subject: String,
}

#[derive(Serialize)]
struct FileReport {
    path: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    only_in: Option<String>,
    risky: Option<String>,
    denied: Option<String>,
}

impl CloneReport {
    fn new(named_box: &NamedBox, work: Option<&Work>) -> Self {
        let commit = |it: &Commit| CommitReport {
            oid: it.oid.clone(),
            author: it.author.clone(),
            subject: it.subject.clone(),
        };
        let file = |it: &FileChange| FileReport {
            path: display::safe(it.path.as_os_str().as_bytes()).to_string(),
            kind: it.kind.name(),
            only_in: it.only_in.clone(),
            risky: it.risky.clone(),
            denied: it.denied.clone(),
        };
        Self {
            name: named_box.name().to_string(),
            base: work.map(|work| work.base.clone()),
            tip: work.map(|work| work.tip.clone()),
            uncommitted: work.is_some_and(|work| work.uncommitted),
            commits: work.map(|it| it.commits.iter().map(commit).collect()).unwrap_or_default(),
            files: work.map(|it| it.files.iter().map(file).collect()).unwrap_or_default(),
            remarks: work.map(|it| it.remarks.clone()).unwrap_or_default(),
        }
    }
}
