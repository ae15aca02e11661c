//! What the work of a box changes, file by file, with the same marks as `apply` (threats C01 to C11).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use belljar_model::risky;
use belljar_workspace::{RelPath, leads_out};
use serde::Serialize;

use super::git::{Git, LIST};

/// One path that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// In the bytes of a stranger; `display::safe` shows it.
    pub path: PathBuf,
    pub kind: Kind,
    /// Why somebody should look twice, in plain words.
    pub risky: Option<String>,
    /// Why a rule of the user's keeps it out, in plain words.
    pub denied: Option<String>,
}

/// In what way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Added,
    Modified,
    Deleted,
    ModeChanged,
    TypeChanged,
}

impl Kind {
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

const LINK: &[u8] = b"120000";
const PROGRAM: &[u8] = b"100755";
const REPOSITORY: &[u8] = b"160000";
const NOTHING: &[u8] = b"000000";

/// No target of a link that a kernel takes is longer.
const LONGEST_TARGET: u64 = 4096;
/// So many directories are looked at for planted repositories; in more, the names alone count.
const LOOKED_AT: usize = 64;

/// One line of git's raw diff.
struct Entry {
    old_mode: Vec<u8>,
    new_mode: Vec<u8>,
    old: Vec<u8>,
    new: Vec<u8>,
    path: Vec<u8>,
}

/// All that is different between two trees.
pub(super) fn between(git: &Git, base: &str, tip: &str) -> anyhow::Result<Vec<FileChange>> {
    // A few objects can stand for billions of files, which a comparison would hold in memory first.
    git.bytes(&["ls-tree", "-r", "-z", "--name-only", tip])
        .context("list the files of the work")?;
    let args = ["diff-tree", "-r", "-z", "--raw", "--full-index", "--no-renames", base, tip, "--"];
    let entries = entries(&git.bytes(&args).context("compare the work with what it began with")?)?;
    let targets = targets(git, &entries)?;
    let bare = bare_repositories(git, tip, &entries)?;
    let change = |entry: &Entry| FileChange {
        path: PathBuf::from(OsString::from_vec(entry.path.clone())),
        kind: entry.kind(),
        risky: risk(entry, &targets, &bare),
        denied: None,
    };
    Ok(entries.iter().map(change).collect())
}

fn entries(raw: &[u8]) -> anyhow::Result<Vec<Entry>> {
    let mut fields = raw.split(|byte| *byte == 0);
    let mut entries = Vec::new();
    while let Some(meta) = fields.next().filter(|meta| !meta.is_empty()) {
        let mut words = meta.strip_prefix(b":").unwrap_or_default().split(|byte| *byte == b' ');
        let mut word = || words.next().map(<[u8]>::to_vec).context("git compares in no known way");
        let (old_mode, new_mode, old, new) = (word()?, word()?, word()?, word()?);
        let path = fields.next().context("git compares in no known way")?.to_vec();
        entries.push(Entry { old_mode, new_mode, old, new, path });
    }
    Ok(entries)
}

impl Entry {
    fn kind(&self) -> Kind {
        let type_of = |mode: &[u8]| mode.get(..2).map(<[u8]>::to_vec);
        match (self.old_mode.as_slice(), self.new_mode.as_slice()) {
            (NOTHING, _) => Kind::Added,
            (_, NOTHING) => Kind::Deleted,
            (old, new) if type_of(old) != type_of(new) => Kind::TypeChanged,
            _ if self.old == self.new => Kind::ModeChanged,
            _ => Kind::Modified,
        }
    }
}

/// The first reason to look twice.
fn risk(
    entry: &Entry,
    targets: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bare: &BTreeSet<Vec<u8>>,
) -> Option<String> {
    let path = entry.path.as_slice();
    let is_link = entry.new_mode == LINK;
    let by_name = if is_link { risky::classify_link(path) } else { risky::classify(path) };
    if let Some(rule) = by_name {
        return Some(rule.why.to_owned());
    }
    if bare.iter().any(|top| within(path, top)) {
        let planted = risky::bare_repository([&b"HEAD"[..], b"objects"]);
        return planted.map(|rule| rule.why.to_owned());
    }
    if entry.new_mode == REPOSITORY {
        return Some(
            "a repository of its own, of which only the name of a commit comes along".into(),
        );
    }
    if entry.new_mode == PROGRAM && entry.old_mode != PROGRAM {
        return Some("a new executable file".into());
    }
    if is_link {
        let target = targets.get(&entry.new).and_then(Option::as_deref);
        let out = match (RelPath::new(path), target) {
            (Ok(path), Some(target)) => leads_out(&path, target),
            _ => true,
        };
        return out.then(|| "a symbolic link that leads out of the workspace".into());
    }
    None
}

fn within(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/"))
}

/// What the new links say, by the name of the object; none for one that is too long.
fn targets(git: &Git, entries: &[Entry]) -> anyhow::Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>> {
    let links: BTreeSet<&[u8]> = entries
        .iter()
        .filter(|entry| entry.new_mode == LINK)
        .map(|entry| entry.new.as_slice())
        .collect();
    let mut targets: BTreeMap<_, _> = links.iter().map(|link| (link.to_vec(), None)).collect();
    if links.is_empty() {
        return Ok(targets);
    }
    let list = |names: &[&[u8]]| [names.join(&b'\n'), b"\n".to_vec()].concat();
    let all: Vec<&[u8]> = links.into_iter().collect();
    let sizes = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
    let sizes = git.answer(&sizes, &list(&all), LIST)?;
    let small = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        let (name, size) = line.split_once(' ')?;
        (size.parse::<u64>().ok()? <= LONGEST_TARGET).then(|| name.as_bytes().to_vec())
    };
    let small: Vec<Vec<u8>> = sizes.split(|byte| *byte == b'\n').filter_map(small).collect();
    let small: Vec<&[u8]> = small.iter().map(Vec::as_slice).collect();
    let read =
        git.answer(&["cat-file", "--batch=%(objectname) %(objectsize)"], &list(&small), LIST);
    let read = read.context("read where links lead")?;
    let mut rest = read.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (head, body) = rest.split_at(end);
        let head = std::str::from_utf8(head).unwrap_or_default();
        let Some((name, size)) = head.split_once(' ') else { bail!("git reads in no known way") };
        let size: usize = size.parse().context("git reads in no known way")?;
        let content = body.get(1..=size).context("git reads in no known way")?;
        targets.insert(name.as_bytes().to_vec(), Some(content.to_vec()));
        rest = body.get(size + 2..).unwrap_or_default();
    }
    Ok(targets)
}

/// The directories that git would take for repositories, of those that something changed in.
fn bare_repositories(git: &Git, tip: &str, entries: &[Entry]) -> anyhow::Result<BTreeSet<Vec<u8>>> {
    let mut suspects = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.new_mode != NOTHING) {
        let mut top = 0;
        for part in entry.path.split(|byte| *byte == b'/') {
            // By itself it is neither; with the other beside it, it would be.
            let is_head = risky::bare_repository([part, b"objects"]).is_some();
            let is_store = risky::bare_repository([part, b"HEAD"]).is_some();
            if is_head || is_store {
                let dir = entry.path.get(..top.max(1) - 1).unwrap_or_default();
                suspects.insert(dir.to_vec());
            }
            top += part.len() + 1;
        }
    }
    let mut found = BTreeSet::new();
    for (index, dir) in suspects.into_iter().enumerate() {
        if index >= LOOKED_AT || is_bare(git, tip, &dir)? {
            found.insert(dir);
        }
    }
    Ok(found)
}

fn is_bare(git: &Git, tip: &str, dir: &[u8]) -> anyhow::Result<bool> {
    let tree = [format!("{tip}:").into_bytes(), dir.to_vec()].concat();
    let tree = OsString::from_vec(tree);
    let args = ["ls-tree", "-z", "--name-only"].map(OsString::from);
    let names = git.bytes(&[args.as_slice(), &[tree]].concat())?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(risky::bare_repository(names).is_some())
}

/// The bytes of a path, for rules that are written with `/`.
pub(super) fn deny(changes: &mut [FileChange], rule: &dyn Fn(&Path) -> Option<String>) {
    for change in changes {
        debug_assert!(!change.path.as_os_str().as_bytes().is_empty(), "git names no empty path");
        change.denied = rule(&change.path);
    }
}
