//! What a box has done to its private clone, brought before the user without touching anything.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use belljar_model::boxes::BoxName;
use belljar_model::{RepoAt, display};

use super::branch::part;
use super::changes::{self, FileChange};
use super::git::Git;
use super::incoming::Incoming;
use super::reader::{self, Answer, Ask, LARGEST};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The work of a box: its objects are sound, and lie beside the user's until [`keep`] puts them there.
#[derive(Debug)]
pub struct Work {
    /// Where it begins: a commit, or the empty tree for a repository that had none.
    pub base: String,
    /// Where it ends; with what is not committed, as a commit of its own.
    pub tip: String,
    /// The newest first. No more than `SHOWN`; `commit_count` counts on.
    pub commits: Vec<Commit>,
    pub commit_count: u64,
    /// Whether the newest commit was made by us from what the box did not commit.
    pub uncommitted: bool,
    pub files: Vec<FileChange>,
    /// The branch of the user's that has all of it already, if one has.
    pub taken: Option<String>,
    /// Whether commits on other branches in the box would be lost with it.
    pub has_sides: bool,
    /// What is not part of it and stays in the box, one sentence each.
    pub remarks: Vec<String>,
    pub(super) incoming: Incoming,
}

/// One commit; all of it is safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub oid: String,
    pub author: String,
    pub subject: String,
}

/// How a difference is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffStyle<'a> {
    pub stat: bool,
    pub colour: bool,
    /// Only these files and directories; empty: all.
    pub paths: &'a [&'a Path],
}

/// Where work is put. Not `refs/belljar/NAME`: to git that would be another, and the first, meaning of the
/// branch `belljar/NAME`, and somebody would merge what was never looked at.
const REF: &str = "refs/belljar/work";
/// So many commits are listed.
const SHOWN: usize = 1000;
/// What a person is shown of a difference.
const LONGEST_DIFF: u64 = 32 << 20;

/// Reads what the box `name` did in its clone at `repo`. None: nothing that is not in `at` already.
/// The user's repository is only read.
pub fn has_work(
    state: &Scoped,
    name: &BoxName,
    at: &RepoAt,
    repo: &Path,
) -> Result<Option<Work>, EngineError> {
    look(state, name, at, repo).kind(ErrorKind::Broken)
}

/// Puts the objects of `work` into the user's repository, on `refs/belljar/work/NAME`.
pub fn keep(at: &RepoAt, work: &Work, name: &BoxName) -> Result<(), EngineError> {
    if work.is_empty() {
        return Ok(());
    }
    let kept = || {
        let theirs = work.incoming.git(&at.git_dir);
        let ours = work.incoming.plain(&at.git_dir).bounded().owned_by(&at.git_dir)?;
        if !has_commit(&ours, &work.tip) {
            let mut revisions = vec![work.tip.clone()];
            revisions.extend(
                at.from
                    .iter()
                    .filter(|from| has_commit(&ours, from))
                    .map(|from| format!("^{from}")),
            );
            theirs.send_pack(&revisions, &ours)?;
        }
        let to = format!("{REF}/{}", part(name));
        ours.bytes(&["update-ref", "--no-deref", "-m", "belljar: work of a box", &to, &work.tip])
    };
    kept()
        .with_context(|| format!("put the work into {}", at.path.display()))
        .kind(ErrorKind::Broken)?;
    Ok(())
}

/// The difference that the work makes, safe to show.
pub fn diff(at: &RepoAt, work: &Work, style: DiffStyle<'_>) -> Result<String, EngineError> {
    let text = || {
        let git = work.incoming.git(&at.git_dir);
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
        git.answer(&args, &[], LONGEST_DIFF).context("show the difference")
    };
    let text = display::safe_multiline(text().kind(ErrorKind::Broken)?);
    Ok(if style.colour && !style.stat { coloured(&text) } else { text })
}

impl Work {
    /// Marks what a rule of the user's keeps out.
    pub fn deny(&mut self, rule: &dyn Fn(&Path) -> Option<String>) {
        changes::deny(&mut self.files, rule);
    }

    /// What would be lost with the box, for a sentence; none if a branch of the user's has it all.
    pub fn would_lose(&self) -> Option<String> {
        if !self.is_empty() && self.taken.is_none() {
            let many = |count: u64, word: &str| match count {
                1 => format!("1 {word}"),
                count => format!("{count} {word}s"),
            };
            let (commits, files) = (many(self.commit_count, "commit"), self.files.len() as u64);
            return Some(format!("{commits} with changes to {}", many(files, "file")));
        }
        self.has_sides.then(|| "commits on branches that are not checked out".to_owned())
    }

    /// Whether there is nothing but what stays in the box anyway.
    pub fn is_empty(&self) -> bool {
        self.base == self.tip
    }
}

fn look(state: &Scoped, name: &BoxName, at: &RepoAt, repo: &Path) -> anyhow::Result<Option<Work>> {
    let incoming = Incoming::new(state)?;
    let user = incoming.plain(&at.git_dir);
    if !user.agrees(&["rev-parse", "--git-dir"]) {
        let path = at.path.display();
        return Err(anyhow!("the repository {path} is not there any more; the box's own clone is"));
    }
    let known = at.from.as_deref().filter(|from| has_commit(&user, from));
    let message = format!("Changes in the box {name} that were not committed");
    let also = at.base.as_deref().filter(|base| Some(*base) != known);
    let ask = Ask { repo, known, also, message: &message, identity: &at.identity };
    let (answer, pack) = reader::read(state, &ask, &incoming)?;
    judge(at, &answer, pack, incoming)
}

/// Takes what the sealed box says for what it is: the word of a stranger.
pub(super) fn judge(
    at: &RepoAt,
    answer: &Answer,
    pack: File,
    incoming: Incoming,
) -> anyhow::Result<Option<Work>> {
    let user = incoming.plain(&at.git_dir);
    let git = incoming.git(&at.git_dir);
    if answer.has_pack {
        git.take_pack(pack, true, LARGEST).context("what the box made is not sound")?;
    }
    let remarks = remarks(answer);
    let nothing = at.base == answer.tip;
    let tip = match &answer.tip {
        _ if nothing && answer.sides.is_empty() && !answer.partial => return Ok(None),
        _ if nothing => {
            let has_sides = !answer.sides.is_empty();
            return Ok(Some(Work { has_sides, ..empty(at, &user, remarks, incoming)? }));
        }
        Some(tip) => tip.clone(),
        None => return Err(anyhow!("the box's repository has no commit any more")),
    };
    let known = at.from.as_deref().filter(|from| has_commit(&user, from));
    check(&git, &tip, known)?;
    let began = [&at.base, &at.from].into_iter().flatten().find(|oid| has_commit(&git, oid));
    // Without either the box has another history than the user by now.
    let base = began.cloned().map_or_else(|| empty_tree(&user), Ok)?;
    let (commits, commit_count) = commits(&git, &base, &tip)?;
    let files = changes::between(&git, &base, &tip)?;
    let uncommitted = answer.head.as_ref() != Some(&tip);
    let taken = user.ask(&[
        "for-each-ref",
        "--format=%(refname:lstrip=2)",
        "--contains",
        &tip,
        "refs/heads",
    ]);
    let taken = taken.and_then(|names| Some(names.lines().next()?.to_owned()));
    let has_sides = !answer.sides.is_empty();
    Ok(Some(Work {
        base,
        tip,
        commits,
        commit_count,
        uncommitted,
        files,
        taken,
        has_sides,
        remarks,
        incoming,
    }))
}

/// Nothing but remarks.
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
        taken: None,
        has_sides: false,
        remarks,
        incoming,
    })
}

/// That it is a commit, and that everything it leads to is there.
fn check(git: &Git, tip: &str, known: Option<&str>) -> anyhow::Result<()> {
    if !has_commit(git, tip) {
        return Err(anyhow!("the box names a commit that did not come with its objects"));
    }
    let mut args = vec!["rev-list", "--objects", "--quiet", tip];
    let not = known.map(|known| format!("^{known}"));
    args.extend(not.as_deref());
    git.bytes(&args).context("objects of the box's work are missing")?;
    Ok(())
}

fn has_commit(git: &Git, oid: &str) -> bool {
    git.ask(&["cat-file", "-t", oid]).is_some_and(|kind| kind == "commit")
}

fn empty_tree(git: &Git) -> anyhow::Result<String> {
    git.line(&["hash-object", "-t", "tree", "/dev/null"])
}

fn commits(git: &Git, base: &str, tip: &str) -> anyhow::Result<(Vec<Commit>, u64)> {
    let range: Vec<String> = match has_commit(git, base) {
        true => vec![tip.to_owned(), format!("^{base}")],
        false => vec![tip.to_owned()],
    };
    let run = |args: &[&str]| {
        let all: Vec<&str> = args.iter().copied().chain(range.iter().map(String::as_str)).collect();
        git.bytes(&all).context("list the commits of the work")
    };
    let count = run(&["rev-list", "--count"])?;
    let count = String::from_utf8_lossy(&count).trim().parse().context("count the commits")?;
    let most = format!("--max-count={SHOWN}");
    let format = "--format=%an <%ae>%n%s";
    let said = run(&["rev-list", "--encoding=UTF-8", &most, format])?;
    let mut lines = said.split(|byte| *byte == b'\n');
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

/// What stays in the box, in plain words.
fn remarks(answer: &Answer) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    for (count, name) in &answer.sides {
        let short = name.strip_prefix(b"refs/heads/").unwrap_or(name);
        let more = if *count == 1 { "a commit" } else { "commits" };
        remarks.push(format!(
            "{} in the box has {more} that what is checked out there has not; only what is checked out comes along",
            display::safe(short)
        ));
    }
    if answer.partial {
        remarks.push("some files of the box could not be read, and stay there".into());
    }
    if answer.ignored > 0 {
        remarks.push(format!(
            "{} that git ignores stay in the box",
            match answer.ignored {
                1 => "1 file or directory".to_owned(),
                many => format!("{many} files or directories"),
            }
        ));
    }
    remarks
}

/// Lines that come and go in their colours.
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
