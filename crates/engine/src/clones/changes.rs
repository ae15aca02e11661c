//! Lists the files that the commits of a box change, and marks risky ones as `apply` does (threats C01
//! to C11).
//!
//! Every commit is compared with each of its parents, not only the last commit with the first one: a later
//! checkout, rebase or bisect on the host writes the files of any of these commits.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use belljar_model::risky;
use belljar_workspace::{RelPath, leads_out};
use serde::Serialize;

use super::git::{Git, MAX_OUTPUT};

/// One file that a commit of a box's work changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The path in the repository. A hostile box chose it: print it with `display::safe` only.
    pub path: PathBuf,
    pub kind: FileChangeKind,
    /// The newest commit that changes the file, if the last commit has the file as it was in the first one.
    pub only_in: Option<String>,
    /// Why a person should review the file, as text; `None` if the file is not risky.
    pub risky: Option<String>,
    /// Which rule of the user forbids this change, as text; `None` if no rule does.
    pub denied: Option<String>,
}

/// The way in which a file was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileChangeKind {
    Added,
    Modified,
    Deleted,
    ModeChanged,
    TypeChanged,
}

impl FileChangeKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::ModeChanged => "mode-changed",
            Self::TypeChanged => "type-changed",
        }
    }
}

const SYMLINK_MODE: &[u8] = b"120000";
const EXECUTABLE_MODE: &[u8] = b"100755";
const SUBMODULE_MODE: &[u8] = b"160000";
const ABSENT_MODE: &[u8] = b"000000";

/// The maximum length of a symbolic link target that Linux accepts, in bytes.
const MAX_TARGET_LEN: u64 = 4096;
/// The maximum number of directories that are searched for planted bare repositories. Further suspects are
/// reported by their names alone.
const MAX_INSPECTED_DIRS: usize = 64;

/// One entry of git's raw diff output.
struct RawEntry {
    /// The commit that has the new version of the file.
    commit: String,
    old_mode: Vec<u8>,
    new_mode: Vec<u8>,
    old: Vec<u8>,
    new: Vec<u8>,
    path: Vec<u8>,
}

/// Returns all files that a commit of `tip` changes that is not in `base`, ordered by path.
///
/// A file that is the same in `base` and `tip` is listed too if a commit between them changed it. If several
/// commits change a file, the newest risky change decides how the file is marked.
pub(super) fn changed_files(git: &Git, base: &str, tip: &str) -> anyhow::Result<Vec<FileChange>> {
    // A few objects can describe billions of files, and a comparison would hold all of them in memory. So
    // list the files first: the output of the list is limited.
    git.output(&["ls-tree", "-r", "-z", "--name-only", tip])
        .context("cannot list the files in the last commit of the box")?;
    let args = ["diff-tree", "-r", "-z", "--raw", "--full-index", "--no-renames", base, tip, "--"];
    let last = parse_raw(
        &git.output(&args).context("cannot compare the first and the last commit of the box")?,
        tip,
    )?;
    let between = entries_of_commits(git, base, tip)?;
    let entries: Vec<&RawEntry> = last.iter().chain(&between).collect();
    let targets = link_targets(git, &entries)?;
    let bare = bare_repositories(git, &entries)?;
    let mut changes: BTreeMap<&[u8], FileChange> = BTreeMap::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let risky = risk_of(entry, &targets, &bare);
        let is_last = index < last.len();
        let commit = entry.commit.get(..12).unwrap_or(&entry.commit);
        let change = changes.entry(&entry.path).or_insert_with(|| FileChange {
            path: PathBuf::from(OsString::from_vec(entry.path.clone())),
            kind: entry.kind(),
            only_in: (!is_last).then(|| entry.commit.clone()),
            risky: None,
            denied: None,
        });
        if change.risky.is_none() {
            change.risky =
                risky.map(|why| if is_last { why } else { format!("{why} (in commit {commit})") });
        }
    }
    Ok(changes.into_values().collect())
}

/// Compares each commit of `tip` that is not in `base` with each of its parents, newest commits first.
fn entries_of_commits(git: &Git, base: &str, tip: &str) -> anyhow::Result<Vec<RawEntry>> {
    let mut list = vec!["rev-list".to_owned(), tip.to_owned()];
    if git.query(&["cat-file", "-t", base]).is_some_and(|kind| kind == "commit") {
        list.push(format!("^{base}"));
    }
    let commits = git.output(&list).context("cannot list the commits of the box")?;
    let mut args = vec!["diff-tree", "--stdin", "-r", "-z", "--raw", "--full-index"];
    args.extend(["--no-renames", "-m", "--root"]);
    let raw = git.clone().limited_more().output_with_input(&args, &commits, MAX_OUTPUT);
    let raw = raw.context("cannot compare the commits of the box with their parents")?;
    parse_raw(&raw, tip)
}

/// Parses the output of `git diff-tree --raw -z`. With `--stdin`, the id of a commit precedes its entries.
fn parse_raw(raw: &[u8], tip: &str) -> anyhow::Result<Vec<RawEntry>> {
    const BAD_DIFF: &str = "cannot parse the output of `git diff-tree`";
    let mut commit = tip.to_owned();
    let mut fields = raw.split(|byte| *byte == 0);
    let mut entries = Vec::new();
    while let Some(field) = fields.next().filter(|field| !field.is_empty()) {
        let Some(meta) = field.strip_prefix(b":") else {
            commit = String::from_utf8(field.to_vec()).ok().context(BAD_DIFF)?;
            continue;
        };
        let mut values = meta.split(|byte| *byte == b' ');
        let mut value = || values.next().map(<[u8]>::to_vec).context(BAD_DIFF);
        let (old_mode, new_mode, old, new) = (value()?, value()?, value()?, value()?);
        let path = fields.next().context(BAD_DIFF)?.to_vec();
        entries.push(RawEntry { commit: commit.clone(), old_mode, new_mode, old, new, path });
    }
    Ok(entries)
}

impl RawEntry {
    fn kind(&self) -> FileChangeKind {
        let type_of = |mode: &[u8]| mode.get(..2).map(<[u8]>::to_vec);
        match (self.old_mode.as_slice(), self.new_mode.as_slice()) {
            (ABSENT_MODE, _) => FileChangeKind::Added,
            (_, ABSENT_MODE) => FileChangeKind::Deleted,
            (old, new) if type_of(old) != type_of(new) => FileChangeKind::TypeChanged,
            _ if self.old == self.new => FileChangeKind::ModeChanged,
            _ => FileChangeKind::Modified,
        }
    }
}

/// Returns the first reason why a person should review a change; `None` if there is none.
fn risk_of(
    entry: &RawEntry,
    targets: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bare: &BTreeSet<(String, Vec<u8>)>,
) -> Option<String> {
    let path = entry.path.as_slice();
    let is_link = entry.new_mode == SYMLINK_MODE;
    let by_name = if is_link { risky::classify_link(path) } else { risky::classify(path) };
    if let Some(rule) = by_name {
        return Some(rule.why.to_owned());
    }
    if bare.iter().any(|(commit, top)| *commit == entry.commit && is_below(path, top)) {
        let rule = risky::bare_repository([&b"HEAD"[..], b"objects"]);
        return rule.map(|rule| rule.why.to_owned());
    }
    if entry.new_mode == SUBMODULE_MODE {
        return Some("a submodule, of which only the commit id is copied".into());
    }
    if entry.new_mode == EXECUTABLE_MODE && entry.old_mode != EXECUTABLE_MODE {
        return Some("a new executable file".into());
    }
    if is_link {
        let target = targets.get(&entry.new).and_then(Option::as_deref);
        let leaves = match (RelPath::new(path), target) {
            (Ok(path), Some(target)) => leads_out(&path, target),
            _ => true,
        };
        return leaves.then(|| "a symbolic link that leads out of the workspace".into());
    }
    None
}

/// Checks whether a path is below the directory `top`; an empty `top` is the root of the repository.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Reads the targets of new symbolic links, by object id; `None` for a target that is too long.
fn link_targets(
    git: &Git,
    entries: &[&RawEntry],
) -> anyhow::Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>> {
    const BAD_OBJECT: &str = "cannot parse the output of `git cat-file`";
    let links: BTreeSet<&[u8]> = entries
        .iter()
        .filter(|entry| entry.new_mode == SYMLINK_MODE)
        .map(|entry| entry.new.as_slice())
        .collect();
    let mut targets: BTreeMap<_, _> = links.iter().map(|link| (link.to_vec(), None)).collect();
    if links.is_empty() {
        return Ok(targets);
    }
    let list = |names: &[&[u8]]| [names.join(&b'\n'), b"\n".to_vec()].concat();
    let all: Vec<&[u8]> = links.into_iter().collect();
    let sizes = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
    let sizes = git.output_with_input(&sizes, &list(&all), MAX_OUTPUT)?;
    let small = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        let (name, size) = line.split_once(' ')?;
        (size.parse::<u64>().ok()? <= MAX_TARGET_LEN).then(|| name.as_bytes().to_vec())
    };
    let small: Vec<Vec<u8>> = sizes.split(|byte| *byte == b'\n').filter_map(small).collect();
    let small: Vec<&[u8]> = small.iter().map(Vec::as_slice).collect();
    let read = git.output_with_input(
        &["cat-file", "--batch=%(objectname) %(objectsize)"],
        &list(&small),
        MAX_OUTPUT,
    );
    let read = read.context("cannot read the targets of symbolic links")?;
    let mut rest = read.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (head, body) = rest.split_at(end);
        let head = std::str::from_utf8(head).unwrap_or_default();
        let Some((name, size)) = head.split_once(' ') else { bail!(BAD_OBJECT) };
        let size: usize = size.parse().context(BAD_OBJECT)?;
        let content = body.get(1..=size).context(BAD_OBJECT)?;
        targets.insert(name.as_bytes().to_vec(), Some(content.to_vec()));
        rest = body.get(size + 2..).unwrap_or_default();
    }
    Ok(targets)
}

/// Returns the directories with changes that git would treat as bare repositories, with their commits.
fn bare_repositories(
    git: &Git,
    entries: &[&RawEntry],
) -> anyhow::Result<BTreeSet<(String, Vec<u8>)>> {
    let mut suspects = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.new_mode != ABSENT_MODE) {
        let mut top = 0;
        for part in entry.path.split(|byte| *byte == b'/') {
            // A directory is a bare repository only with both names: complete the pair to test one name.
            let is_head = risky::bare_repository([part, b"objects"]).is_some();
            let is_store = risky::bare_repository([part, b"HEAD"]).is_some();
            if is_head || is_store {
                let dir = entry.path.get(..top.max(1) - 1).unwrap_or_default();
                suspects.insert((entry.commit.clone(), dir.to_vec()));
            }
            top += part.len() + 1;
        }
    }
    let mut found = BTreeSet::new();
    for (index, (commit, dir)) in suspects.into_iter().enumerate() {
        if index >= MAX_INSPECTED_DIRS || is_bare(git, &commit, &dir)? {
            found.insert((commit, dir));
        }
    }
    Ok(found)
}

/// Checks whether git would treat a directory of a commit as a bare repository.
fn is_bare(git: &Git, commit: &str, dir: &[u8]) -> anyhow::Result<bool> {
    let tree = [format!("{commit}:").into_bytes(), dir.to_vec()].concat();
    let tree = OsString::from_vec(tree);
    let args = ["ls-tree", "-z", "--name-only"].map(OsString::from);
    let names = git.output(&[args.as_slice(), &[tree]].concat())?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(risky::bare_repository(names).is_some())
}

/// Sets [`FileChange::denied`] of every change to the result of `rule` for its path.
pub(super) fn deny(changes: &mut [FileChange], rule: &dyn Fn(&Path) -> Option<String>) {
    for change in changes {
        debug_assert!(
            !change.path.as_os_str().as_bytes().is_empty(),
            "git never lists an empty path"
        );
        change.denied = rule(&change.path).map(|why| match &change.only_in {
            Some(commit) => format!("{why} (in commit {})", commit.get(..12).unwrap_or(commit)),
            None => why,
        });
    }
}
