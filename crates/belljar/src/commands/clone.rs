//! `diff`, `apply` and `discard` of boxes that work on a private clone: objects, never files.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::anyhow;
use belljar_ledger::{BoxDiscarded, WorkspaceApplied};
use belljar_model::boxes::{BoxRecord, Ground};
use belljar_model::{RepoAt, RunId, display};
use serde::Serialize;

use crate::cli::{ApplyArgs, DiffArgs, DiscardArgs};
use crate::commands::apply::pick;
use crate::commands::up;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::boxes::trash::{Note, What};
use belljar_engine::boxes::{self, NamedBox, parts, work};
use belljar_engine::clones::{self, Commit, FileChange, Style, Work};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::keeper::setup;
use belljar_engine::record::{self, Applying};
use belljar_engine::scope::Scoped;

pub(crate) fn diff(state: &Scoped, of: &NamedBox, args: &DiffArgs) -> Outcome {
    if args.conflicts {
        return Err(invalid("--conflicts: work of a clone meets yours when you merge its branch"));
    }
    let (at, work) = read(state, of)?;
    if args.json {
        print::json(&Report::of(of, work.as_ref())).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let Some(work) = work else { return Ok(0) };
    let paths: Vec<&Path> = args.paths.iter().map(Path::new).collect();
    let style = Style { stat: args.stat, colour: print::colour(), paths: &paths };
    let mut text = if paths.is_empty() { summary(&work) } else { String::new() };
    text.push_str(&clones::diff(at, &work, style)?);
    print::page(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

pub(crate) fn apply(state: &Scoped, of: &NamedBox, args: &ApplyArgs) -> Outcome {
    let name = of.name();
    if !args.paths.is_empty() || !args.theirs.is_empty() || !args.ours.is_empty() {
        return Err(invalid(
            "a box with a clone gives its work as commits on a branch: paths, --theirs and --ours are for you to choose when you merge it",
        ));
    }
    let _turn = of.turn()?;
    let (at, work) = read(state, of)?;
    let Some(work) = work.filter(|work| !work.is_empty()) else {
        print::note("there is nothing to take over");
        return Ok(0);
    };
    refuse_marked(of, &work, args)?;
    let default = clones::default_branch(name);
    let branch = args.branch.as_deref().filter(|branch| !branch.is_empty()).unwrap_or(&default);
    if !args.yes {
        print::out(&summary(&work)).kind(ErrorKind::Broken)?;
        if !print::confirm(&format!("put this on the branch {branch}?")).kind(ErrorKind::Broken)? {
            return Err(invalid("nothing was applied; `--yes` answers the question"));
        }
    }
    take(state, of, at, &work, branch)?;
    if args.json {
        print::json(&Report::of(of, Some(&work))).kind(ErrorKind::Broken)?;
    } else {
        let commits = work.commit_count;
        let count = if commits == 1 { "1 commit".into() } else { format!("{commits} commits") };
        print::out(&format!("{count} on the branch {branch}\n")).kind(ErrorKind::Broken)?;
        work.remarks.iter().for_each(|remark| print::note(remark));
    }
    Ok(0)
}

/// Puts the work into the user's repository, once that is on record.
fn take(
    state: &Scoped,
    of: &NamedBox,
    at: &RepoAt,
    work: &Work,
    branch: &str,
) -> Result<(), EngineError> {
    let run = of.run().map(|run| run.id());
    let run = run.ok_or_else(|| invalid(format!("box {} was never started", of.name())))?;
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    let files = work.files.len() as u64;
    let applying = Applying::begin(&ledger, run, files)?;
    let taken = clones::keep(at, work, of.name()).and_then(|()| clones::branch(at, work, branch));
    let recorded = match &taken {
        Ok(()) => applying.done(WorkspaceApplied { taken: files, held_back: 0, error: None }),
        Err(failure) => applying.failed(&anyhow!("{failure:#}")),
    };
    if let Err(error) = recorded {
        print::note("what came of it is not on record; `belljar runs` will show it:");
        print::error(&EngineError::new(ErrorKind::Broken, error));
    }
    taken?;
    settle(state, run, "the operator applied its work")
}

fn settle(state: &Scoped, run: RunId, why: &str) -> Result<(), EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    record::settle(&ledger, state, run, why).kind(ErrorKind::Broken)
}

/// A branch cannot leave a file out, so what must not come, or only if it is named, stops all of it.
fn refuse_marked(of: &NamedBox, work: &Work, args: &ApplyArgs) -> Result<(), EngineError> {
    let named = pick(&args.include_executable).kind(ErrorKind::Invalid)?;
    let safe = |file: &FileChange| display::safe(file.path.as_os_str().as_bytes()).to_string();
    let mut text = String::new();
    for file in &work.files {
        let path = belljar_workspace::RelPath::new(file.path.as_os_str().as_bytes());
        let is_named = path.is_ok_and(|path| named.matches(&path));
        match (&file.denied, &file.risky) {
            (Some(why), _) => write!(text, " {}: {why}, which no flag lifts;", safe(file)).ok(),
            (None, Some(why)) if !is_named => write!(text, " {}: {why};", safe(file)).ok(),
            (None, _) => None,
        };
    }
    if text.is_empty() {
        return Ok(());
    }
    let name = of.name();
    let error = anyhow!(
        "nothing was applied, since something on the host would execute part of it or a rule keeps it out:{text} look with `belljar diff {name}`, and name what is meant with --include-executable PATH (`**` means all)"
    );
    Err(EngineError::new(ErrorKind::Broken, error))
}

/// The clone goes to the trash, and the box works on from the user's repository as it is.
pub(crate) fn discard(state: &Scoped, of: &NamedBox, args: &DiscardArgs) -> Outcome {
    let name = of.name();
    let _turn = of.turn_while_down("discard")?;
    let Ground::Repo(at) = &of.record.ground else { return Ok(0) };
    let unapplied = work::guard(state, of, "discard", args.discard_work)?;
    if unapplied.is_none() {
        print::note(&format!("box {name} holds nothing back"));
        return Ok(0);
    }
    let note = Note::new(state, name, What::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let next = parts::prepare(of)?;
    clone_again(state, of, at, &next)?;
    parts::exchange(of, &["repo"], note)?;
    if let Some(run) = of.run() {
        settle(state, run.id(), "the operator discarded its work")?;
    }
    print::note(&format!(
        "discarded the work of box {name}; `belljar restore {name}` brings it back for 14 days"
    ));
    Ok(0)
}

/// A private clone of the user's repository as it is now.
pub(crate) fn clone_again(
    state: &Scoped,
    of: &NamedBox,
    at: &RepoAt,
    next: &Path,
) -> Result<(), EngineError> {
    let owner = boxes::owner_of(&of.dir.join("repo"));
    let source = clones::look(state, &at.path)?;
    let ground = up::clone(&source, &of.record.spec, of.name(), (&next.join("repo"), owner))?;
    let record = BoxRecord { ground, ..of.record.clone() };
    let text = serde_json::to_vec_pretty(&record).kind(ErrorKind::Broken)?;
    boxes::write_whole(next, "box.json", &text).kind(ErrorKind::Broken)
}

/// What the box did in its clone, with the marks of the rules in force now.
fn read<'b>(state: &Scoped, of: &'b NamedBox) -> Result<(&'b RepoAt, Option<Work>), EngineError> {
    let Ground::Repo(at) = &of.record.ground else {
        return Err(invalid(format!("box {} has no clone", of.name())));
    };
    let mut work = clones::has_work(state, of.name(), at, &of.dir.join("repo"))?;
    let permissions = setup::permissions(state, of)?;
    if let Some(work) = &mut work {
        work.deny(&|path| {
            let rule = permissions.denies_edit(path.as_os_str().as_bytes())?;
            Some(format!("the rule {rule} keeps it as it is"))
        });
    }
    Ok((at, work))
}

/// Commits and marked files, before the difference itself.
fn summary(work: &Work) -> String {
    let mut text = String::new();
    for Commit { oid, author, subject } in &work.commits {
        let oid = oid.get(..12).unwrap_or(oid);
        writeln!(text, "commit  {oid}  {author}: {subject}").ok(); // a String takes everything
    }
    for file in &work.files {
        let path = display::safe(file.path.as_os_str().as_bytes());
        for why in [&file.denied, &file.risky].into_iter().flatten() {
            writeln!(text, "look    {path}: {why}").ok(); // see above
        }
    }
    for remark in &work.remarks {
        writeln!(text, "note    {remark}").ok(); // see above
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The work of a clone for programs.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "box")]
    name: String,
    base: Option<String>,
    tip: Option<String>,
    uncommitted: bool,
    commits: Vec<ReportCommit>,
    files: Vec<ReportFile>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct ReportCommit {
    oid: String,
    author: String,
    subject: String,
}

#[derive(Serialize)]
struct ReportFile {
    path: String,
    kind: &'static str,
    risky: Option<String>,
    denied: Option<String>,
}

impl Report {
    fn of(of: &NamedBox, work: Option<&Work>) -> Self {
        let commit = |it: &Commit| ReportCommit {
            oid: it.oid.clone(),
            author: it.author.clone(),
            subject: it.subject.clone(),
        };
        let file = |it: &FileChange| ReportFile {
            path: display::safe(it.path.as_os_str().as_bytes()).to_string(),
            kind: it.kind.name(),
            risky: it.risky.clone(),
            denied: it.denied.clone(),
        };
        Self {
            name: of.name().to_string(),
            base: work.map(|work| work.base.clone()),
            tip: work.map(|work| work.tip.clone()),
            uncommitted: work.is_some_and(|work| work.uncommitted),
            commits: work.map(|it| it.commits.iter().map(commit).collect()).unwrap_or_default(),
            files: work.map(|it| it.files.iter().map(file).collect()).unwrap_or_default(),
            remarks: work.map(|it| it.remarks.clone()).unwrap_or_default(),
        }
    }
}
