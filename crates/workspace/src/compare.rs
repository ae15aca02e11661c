//! Compares two directory trees, for the home directories of boxes, which have no overlay.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use belljar_model::risky;
use serde::Serialize;

use crate::at::{self, Name};
use crate::change::{ChangeKind, LinkTarget};
use crate::content::{self, ContentHash};
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;
use crate::tree::{Tree, UpperFile};
use crate::walk::{self, Visit, WalkError};

/// One path that differs between two directory trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub path: RelPath,
    pub change: ChangeKind,
    pub kind: FileKind,
    pub size: u64,
    /// The reason why the file is risky: a program in this home directory would execute it or read
    /// it as configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risky: Option<String>,
    /// Whether the file is executable by its mode.
    pub executable: bool,
}

/// Compares the directory tree at `new` with the tree at `old`, or with an empty tree. Directories
/// are compared by mode.
pub fn compare(old: Option<&Path>, new: &Path, entries: usize) -> io::Result<Vec<Difference>> {
    let before = old.map(|path| TreeSide::read(path, entries)).transpose()?;
    let after = TreeSide::read(new, entries)?;
    let none = BTreeMap::new();
    let was = before.as_ref().map_or(&none, |side| &side.seen);
    let mut all = Vec::new();
    for (path, meta) in &after.seen {
        let change = match was.get(path) {
            None => ChangeKind::Added,
            Some(old) if old.kind != meta.kind => ChangeKind::TypeChanged,
            Some(_) if before.as_ref().is_some_and(|side| side.differs(&after, path)) => {
                ChangeKind::Modified
            }
            Some(old) if old.mode != meta.mode && meta.kind != FileKind::Symlink => {
                ChangeKind::ModeChanged
            }
            Some(_) => continue,
        };
        all.push(difference(path, change, meta));
    }
    let gone = was.iter().filter(|(path, _)| !after.seen.contains_key(path));
    all.extend(gone.map(|(path, meta)| difference(path, ChangeKind::Deleted, meta)));
    all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}

fn difference(path: &RelPath, change: ChangeKind, meta: &Meta) -> Difference {
    let is_file = meta.kind == FileKind::File;
    let rule = match meta.kind {
        FileKind::Directory => None,
        FileKind::Symlink => risky::classify_link(path.as_bytes()),
        FileKind::File | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            risky::classify(path.as_bytes())
        }
    };
    Difference {
        path: path.clone(),
        kind: meta.kind,
        size: if is_file { meta.size() } else { 0 },
        risky: rule.map(|rule| rule.why.to_owned()).filter(|_| change != ChangeKind::Deleted),
        executable: is_file && meta.mode & 0o111 != 0,
        change,
    }
}

/// One of two compared directory trees, with the metadata of all paths.
struct TreeSide {
    tree: Tree,
    seen: BTreeMap<RelPath, Meta>,
    max_entries: usize,
}

impl TreeSide {
    fn read(path: &Path, max_entries: usize) -> io::Result<Self> {
        let above = at::open_parent_of(path)?;
        let tree = Tree::open(std::os::fd::AsFd::as_fd(&above), at::last_name(path)?)?;
        let root = tree.dir(&RelPath::root())?;
        let mut side = Self { tree, seen: BTreeMap::new(), max_entries };
        walk::walk(root, b"", &mut side)?;
        Ok(side)
    }

    /// Returns whether a path that both directory trees have differs in content. Timestamps are
    /// ignored because they can be forged.
    fn differs(&self, other: &Self, path: &RelPath) -> bool {
        let (Some(one), Some(two)) = (self.seen.get(path), other.seen.get(path)) else {
            return true;
        };
        match one.kind {
            FileKind::Directory | FileKind::Fifo | FileKind::Socket | FileKind::Device => false,
            FileKind::Symlink => self.target(path) != other.target(path),
            FileKind::File => {
                one.size() != two.size()
                    || self.hash(path).is_none()
                    || self.hash(path) != other.hash(path)
            }
        }
    }

    fn target(&self, path: &RelPath) -> Option<LinkTarget> {
        let (parent, name) = path.split()?;
        at::read_link(self.tree.dir(&parent).ok()?, name).ok().map(LinkTarget)
    }

    fn hash(&self, path: &RelPath) -> Option<ContentHash> {
        let (parent, name) = path.split()?;
        let parent = self.tree.dir(&parent).ok()?;
        let mut file = UpperFile::open(std::os::fd::AsFd::as_fd(&parent), name).ok()?;
        let file: &mut File = file.file();
        content::summarize(file, u64::MAX).ok().map(|summary| summary.hash)
    }
}

impl Visit for TreeSide {
    type Error = io::Error;

    fn visit(&mut self, path: &[u8], dir: BorrowedFd<'_>) -> io::Result<Vec<Name>> {
        let Ok(path) = RelPath::new(path) else { return Ok(Vec::new()) };
        let mut below = Vec::new();
        for name in at::names(dir, self.max_entries)? {
            let Ok(child) = path.join(&name) else { continue };
            let Some(meta) = at::stat(dir, &name)? else { continue };
            if self.seen.len() >= self.max_entries {
                return Err(io::Error::other(format!(
                    "the directory tree contains more than {} names",
                    self.max_entries
                )));
            }
            if meta.kind == FileKind::Directory {
                below.push(name);
            }
            self.seen.insert(child, meta);
        }
        Ok(below)
    }

    fn open(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        _: &[u8],
    ) -> io::Result<Option<OwnedFd>> {
        let path = RelPath::new(path).map_err(io::Error::other)?;
        self.tree.child(parent, &path).map(Some)
    }
}

impl From<WalkError> for io::Error {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io { source, .. } => source,
            WalkError::Moved { .. } => {
                Self::other("a directory was moved during the comparison; try again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn c27_compare_reports_every_change_in_a_home_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        for root in [&old, &new] {
            fs::create_dir_all(root.join("d")).unwrap();
            fs::write(root.join("d/same"), "same").unwrap();
            fs::write(root.join("forged"), "good").unwrap();
            fs::write(root.join("gone"), "").unwrap();
        }
        assert_eq!(compare(Some(&old), &new, 1000).unwrap(), []);
        let time = fs::metadata(new.join("forged")).unwrap().modified().unwrap();
        fs::write(new.join("forged"), "evil").unwrap();
        File::options().write(true).open(new.join("forged")).unwrap().set_modified(time).unwrap();
        fs::write(new.join(".bashrc"), "evil").unwrap();
        fs::write(new.join("d/tool"), "evil").unwrap();
        fs::set_permissions(new.join("d/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(new.join("gone")).unwrap();
        let found = compare(Some(&old), &new, 1000).unwrap();
        let lines: Vec<_> =
            found.iter().map(|it| (it.path.as_bytes(), it.change.clone(), it.executable)).collect();
        assert_eq!(
            lines,
            [
                (&b".bashrc"[..], ChangeKind::Added, false),
                (b"d/tool", ChangeKind::Added, true),
                (b"forged", ChangeKind::Modified, false),
                (b"gone", ChangeKind::Deleted, false),
            ]
        );
        assert_eq!(compare(None, &new, 1000).unwrap().len(), 5, "every path is new");
        assert!(compare(None, &new, 3).is_err(), "the number of entries is limited");
    }
}
