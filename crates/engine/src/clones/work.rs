//! Reads the commits and uncommitted changes of a box from its private clone.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use belljar_model::boxes::BoxName;
use belljar_model::{RepoAt, display};

use super::branch::ref_component;
use super::changes::{self, FileChange};
use super::git::Git;
use super::incoming::Incoming;
use super::reader::{self, MAX_PACK, ReadHeader, ReadRequest};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;

/// The commits that a box made in its private clone, with checked objects.
///
/// The objects are in a temporary directory until [`save_work`] copies them into the user's repository.
#[derive(Debug)]
pub struct Work {
    /// The commit that the box started with, or the empty tree if the repository had no commit.
    pub base: String,
    /// The last commit. Uncommitted changes are a separate commit at the end.
    pub tip: String,
    /// The newest commits of the box, newest first, at most 1000.
    pub commits: Vec<Commit>,
    /// The number of all commits of the box.
    pub commit_count: u64,
    /// Whether Belljar made the newest commit from uncommitted changes of the box.
    pub uncommitted: bool,
    pub files: Vec<FileChange>,
    /// A branch of the user that already contains all commits of the box, if there is one.
    pub contained_in: Option<String>,
    /// Whether other branches in the box have commits that would be lost with the box.
    pub has_other_branches: bool,
    /// Sentences for the user about files and commits that stay in the box.
    pub remarks: Vec<String>,
    pub(super) incoming: Incoming,
}

/// A commit of a box. All fields are safe to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub oid: String,
    pub author: String,
    pub subject: String,
}

/// The numbers of changed files, added lines and removed lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiffStat {
    pub files: u64,
    pub added: u64,
    pub removed: u64,
}

/// The options for the text of a diff.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffStyle<'a> {
    /// Whether to show the number of changed lines per file instead of the changes.
    pub stat: bool,
    pub colour: bool,
    /// The files and directories to show; empty means all.
    pub paths: &'a [&'a Path],
}

/// The prefix of the refs that hold the commits of boxes in the user's repository.
///
/// The prefix is not `refs/belljar`: git would resolve `belljar/NAME` to that ref before the branch
/// `belljar/NAME`, and a user would merge commits without a review.
const REF_PREFIX: &str = "refs/belljar/work";
/// The maximum number of commits in [`Work::commits`].
const MAX_COMMITS: usize = 1000;
/// The maximum size of a diff, in bytes.
const MAX_DIFF: u64 = 32 << 20;

/// Reads the commits and uncommitted changes of the box `name` from its clone at `repo`.
///
/// Returns `None` if the box changed nothing. The user's repository is only read.
pub fn read_work(
    state: &Scoped,
    name: &BoxName,
    at: &RepoAt,
    repo: &Path,
) -> Result<Option<Work>, EngineError> {
    read(state, name, at, repo).kind(ErrorKind::Broken)
}

/// Copies the objects of `work` into the user's repository and points `refs/belljar/work/NAME` at them.
pub fn save_work(at: &RepoAt, work: &Work, name: &BoxName) -> Result<(), EngineError> {
    save_work_at(at, work, &format!("{REF_PREFIX}/{}", ref_component(name)))
}

/// Copies the objects of `work` into the user's repository and points `reference` at them. The reference
/// must be below `refs/belljar`, where no branch of the user is.
pub fn save_work_at(at: &RepoAt, work: &Work, reference: &str) -> Result<(), EngineError> {
    if !reference.starts_with("refs/belljar/") {
        return Err(invalid(format!("{reference:?} is not a reference of Belljar")));
    }
    if work.is_empty() {
        return Ok(());
    }
    let save = || {
        let combined = work.incoming.combined_git();
        let owner = work.incoming.owner_git()?;
        let user = owner.git.clone().limited();
        if !has_commit(&user, &work.tip) {
            let mut revisions = vec![work.tip.clone()];
            revisions.extend(
                at.from
                    .iter()
                    .filter(|from| has_commit(&user, from))
                    .map(|from| format!("^{from}")),
            );
            combined.send_pack(&revisions, &user)?;
        }
        let message = "belljar: work of a box";
        user.output(&["update-ref", "--no-deref", "-m", message, reference, &work.tip])
    };
    save()
        .with_context(|| format!("cannot copy the commits of the box into {}", at.path.display()))
        .kind(ErrorKind::Broken)?;
    Ok(())
}

/// Renames a reference of Belljar in the user's repository, if it exists. Both names are below `refs/belljar`.
pub(crate) fn move_reference(
    state: &Scoped,
    at: &RepoAt,
    from: &str,
    to: &str,
) -> Result<(), EngineError> {
    let rename = || -> anyhow::Result<()> {
        let incoming = Incoming::new(state, &at.git_dir)?;
        let owner = incoming.owner_git()?;
        let Some(old) = owner.git.query(&["rev-parse", "--verify", "-q", from]) else {
            return Ok(());
        };
        let message = "belljar: work of an earlier attempt";
        owner.git.output(&["update-ref", "--no-deref", "-m", message, to, &old])?;
        owner.git.output(&["update-ref", "--no-deref", "-d", from, &old])?;
        Ok(())
    };
    rename().with_context(|| format!("cannot rename {from}")).kind(ErrorKind::Broken)
}

/// Counts the files and lines that differ between the first and the last commit of the box.
pub fn stat(work: &Work) -> Result<DiffStat, EngineError> {
    let git = work.incoming.combined_git();
    let args = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff"];
    let args: Vec<&str> =
        args.into_iter().chain(["--no-textconv", &work.base, &work.tip, "--"]).collect();
    let output = git.output(&args).context("cannot count the changes of the box");
    let mut stat = DiffStat::default();
    for entry in output.kind(ErrorKind::Broken)?.split(|byte| *byte == 0) {
        let mut columns = entry.splitn(3, |byte| *byte == b'\t');
        // A binary file has `-` instead of numbers.
        let mut count = || -> Option<u64> {
            Some(std::str::from_utf8(columns.next()?).ok()?.parse().unwrap_or(0))
        };
        if let (Some(added), Some(removed)) = (count(), count()) {
            stat.files += 1;
            stat.added = stat.added.saturating_add(added);
            stat.removed = stat.removed.saturating_add(removed);
        }
    }
    Ok(stat)
}

/// Returns the diff between the first and the last commit of the box, as text that is safe to print.
pub fn diff(work: &Work, style: DiffStyle<'_>) -> Result<String, EngineError> {
    let text = || {
        let git = work.incoming.combined_git();
        let mut args = vec![
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--find-renames",
            "-l1000",
        ];
        args.extend(["--src-prefix=a/", "--dst-prefix=b/", "--submodule=short"]);
        args.extend(["--ignore-submodules=none", "--no-relative", "-O/dev/null"]);
        args.extend(style.stat.then_some("--stat=100"));
        args.extend([work.base.as_str(), work.tip.as_str(), "--"]);
        let mut args: Vec<&std::ffi::OsStr> = args.into_iter().map(AsRef::as_ref).collect();
        args.extend(style.paths.iter().map(|path| path.as_os_str()));
        git.output_with_input(&args, &[], MAX_DIFF).context("cannot create the diff")
    };
    let text = display::safe_multiline(text().kind(ErrorKind::Broken)?);
    Ok(if style.colour && !style.stat { coloured(&text) } else { text })
}

impl Work {
    /// Marks every changed file for which `rule` returns a reason as denied.
    pub fn deny(&mut self, rule: &dyn Fn(&Path) -> Option<String>) {
        changes::deny(&mut self.files, rule);
    }

    /// Describes the commits that would be lost if the box were removed; `None` if none would be lost.
    pub fn would_lose(&self) -> Option<String> {
        if !self.is_empty() && self.contained_in.is_none() {
            let plural = |count: u64, noun: &str| match count {
                1 => format!("1 {noun}"),
                count => format!("{count} {noun}s"),
            };
            let (commits, files) = (plural(self.commit_count, "commit"), self.files.len() as u64);
            return Some(format!("{commits} with changes to {}", plural(files, "file")));
        }
        self.has_other_branches.then(|| "commits on branches that are not checked out".to_owned())
    }

    /// Returns whether there is no commit to import.
    pub fn is_empty(&self) -> bool {
        self.base == self.tip
    }
}

fn read(state: &Scoped, name: &BoxName, at: &RepoAt, repo: &Path) -> anyhow::Result<Option<Work>> {
    if !at.git_dir.join("HEAD").exists() {
        let path = at.path.display();
        return Err(anyhow!(
            "cannot find the repository {path} any more; the clone in the box still exists"
        ));
    }
    let incoming = Incoming::new(state, &at.git_dir)?;
    let user = incoming.user_git();
    let known = at.from.as_deref().filter(|from| has_commit(&user, from));
    let message = format!("Changes in the box {name} that were not committed");
    let also = at.base.as_deref().filter(|base| Some(*base) != known);
    let request = ReadRequest { repo, known, also, message: &message, identity: &at.identity };
    let (header, pack) = reader::read(state, &request, &incoming)?;
    import(at, &header, pack, incoming)
}

/// Checks the untrusted output of the sealed box and imports its objects into `incoming`.
pub(super) fn import(
    at: &RepoAt,
    header: &ReadHeader,
    pack: File,
    incoming: Incoming,
) -> anyhow::Result<Option<Work>> {
    let user = incoming.user_git();
    let git = incoming.combined_git();
    if header.has_pack {
        git.import_pack(pack, true, MAX_PACK).context("the git objects of the box are invalid")?;
    }
    let remarks = remarks(header);
    let unchanged = at.base == header.tip;
    let tip = match &header.tip {
        _ if unchanged && header.other_branches.is_empty() && !header.partial => return Ok(None),
        _ if unchanged => {
            let has_other_branches = !header.other_branches.is_empty();
            return Ok(Some(Work { has_other_branches, ..empty(at, &user, remarks, incoming)? }));
        }
        Some(tip) => tip.clone(),
        None => return Err(anyhow!("the repository of the box no longer has a commit")),
    };
    let known = at.from.as_deref().filter(|from| has_commit(&user, from));
    check_connected(&git, &tip, known)?;
    let start = [&at.base, &at.from].into_iter().flatten().find(|oid| has_commit(&git, oid));
    // If the box no longer has the commit that it started with, compare with the empty tree.
    let base = start.cloned().map_or_else(|| empty_tree(&user), Ok)?;
    let (commits, commit_count) = commits(&git, &base, &tip)?;
    let files = changes::changed_files(&git, &base, &tip)?;
    let uncommitted = header.head.as_ref() != Some(&tip);
    let branches = user.query(&[
        "for-each-ref",
        "--format=%(refname:lstrip=2)",
        "--contains",
        &tip,
        "refs/heads",
    ]);
    let contained_in = branches.and_then(|names| Some(names.lines().next()?.to_owned()));
    let has_other_branches = !header.other_branches.is_empty();
    Ok(Some(Work {
        base,
        tip,
        commits,
        commit_count,
        uncommitted,
        files,
        contained_in,
        has_other_branches,
        remarks,
        incoming,
    }))
}

/// Returns a [`Work`] without commits, which only carries remarks.
fn empty(
    at: &RepoAt,
    user: &Git,
    remarks: Vec<String>,
    incoming: Incoming,
) -> anyhow::Result<Work> {
    let base = at.base.clone().map_or_else(|| empty_tree(user), Ok)?;
    Ok(Work {
        tip: base.clone(),
        base,
        commits: Vec::new(),
        commit_count: 0,
        uncommitted: false,
        files: Vec::new(),
        contained_in: None,
        has_other_branches: false,
        remarks,
        incoming,
    })
}

/// Checks that `tip` is a commit and that every object it refers to exists.
fn check_connected(git: &Git, tip: &str, known: Option<&str>) -> anyhow::Result<()> {
    if !has_commit(git, tip) {
        return Err(anyhow!("the sealed box named a commit that is not in its pack"));
    }
    let mut args = vec!["rev-list", "--objects", "--quiet", tip];
    let exclude = known.map(|known| format!("^{known}"));
    args.extend(exclude.as_deref());
    git.output(&args).context("git objects of the box are missing")?;
    Ok(())
}

/// Checks whether the repository has a commit with this object id.
fn has_commit(git: &Git, oid: &str) -> bool {
    git.query(&["cat-file", "-t", oid]).is_some_and(|kind| kind == "commit")
}

/// Returns the object id of the empty tree.
fn empty_tree(git: &Git) -> anyhow::Result<String> {
    git.line(&["hash-object", "-t", "tree", "/dev/null"])
}

/// Lists the newest commits from `base` to `tip`, and counts all of them.
fn commits(git: &Git, base: &str, tip: &str) -> anyhow::Result<(Vec<Commit>, u64)> {
    let range: Vec<String> = match has_commit(git, base) {
        true => vec![tip.to_owned(), format!("^{base}")],
        false => vec![tip.to_owned()],
    };
    let run = |args: &[&str]| {
        let all: Vec<&str> = args.iter().copied().chain(range.iter().map(String::as_str)).collect();
        git.output(&all).context("cannot list the commits of the box")
    };
    let count = run(&["rev-list", "--count"])?;
    let count = String::from_utf8_lossy(&count)
        .trim()
        .parse()
        .context("cannot parse the number of commits")?;
    let max_count = format!("--max-count={MAX_COMMITS}");
    let format = "--format=%an <%ae>%n%s";
    let output = run(&["rev-list", "--encoding=UTF-8", &max_count, format])?;
    let mut lines = output.split(|byte| *byte == b'\n');
    let mut commits = Vec::new();
    while let Some(oid) = lines.next().and_then(|line| line.strip_prefix(b"commit ")) {
        let (author, subject) =
            (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        commits.push(Commit {
            oid: display::safe(oid),
            author: display::safe_line(author),
            subject: display::safe_line(subject),
        });
    }
    Ok((commits, count))
}

/// Returns sentences for the user about commits and files that are not imported.
fn remarks(header: &ReadHeader) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    for (count, name) in &header.other_branches {
        let short = name.strip_prefix(b"refs/heads/").unwrap_or(name);
        let more = if *count == 1 { "a commit" } else { "commits" };
        remarks.push(format!(
            "the ref {} in the box has {more} that the checked-out branch lacks; only the checked-out branch is imported",
            display::safe(short)
        ));
    }
    if header.partial {
        remarks.push("some files of the box could not be read and are not imported".into());
    }
    if header.ignored > 0 {
        remarks.push(format!(
            "{} that git ignores stay in the box",
            match header.ignored {
                1 => "1 file or directory".to_owned(),
                count => format!("{count} files or directories"),
            }
        ));
    }
    remarks
}

/// Adds terminal colours to the lines of a diff.
fn coloured(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let colour = match body.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', ..] => {
                "\x1b[1m"
            }
            [b'+', ..] => "\x1b[32m",
            [b'-', ..] => "\x1b[31m",
            [b'@', ..] => "\x1b[36m",
            _ => "",
        };
        out.push_str(colour);
        out.push_str(body);
        if !colour.is_empty() {
            out.push_str("\x1b[m");
        }
        out.push_str(end);
    }
    out
}
