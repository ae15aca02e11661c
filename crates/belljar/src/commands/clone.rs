//! `diff`, `apply` and `discard` of boxes that work on a private clone: objects, never files.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::anyhow;
use belljar_engine::box_store::NamedBox;
use belljar_engine::clones::{self, Commit, DiffStyle, FileChange, Work};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::review::cloned;
use belljar_engine::scope::Scoped;
use belljar_model::display;
use serde::Serialize;

use crate::cli::{ApplyArgs, DiffArgs};
use crate::commands::apply::pick;
use crate::exit::Outcome;
use crate::print;

pub(crate) fn diff(state: &Scoped, of: &NamedBox, args: &DiffArgs) -> Outcome {
    if args.conflicts {
        return Err(invalid("--conflicts: work of a clone meets yours when you merge its branch"));
    }
    let (at, work) = cloned::read(state, of)?;
    if args.json {
        print::json(&Report::of(of, work.as_ref())).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let Some(work) = work else { return Ok(0) };
    let paths: Vec<&Path> = args.paths.iter().map(Path::new).collect();
    let style = DiffStyle { stat: args.stat, colour: print::colour(), paths: &paths };
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
    let _lock = of.lock_for_change()?;
    let (at, work) = cloned::read(state, of)?;
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
    cloned::apply(state, of, at, &work, branch)?;
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
