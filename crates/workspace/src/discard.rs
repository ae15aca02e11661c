//! Deletes the layers of a run.
//!
//! Each layer is first renamed, so that an interrupted discard is never mistaken for changes: a
//! partly deleted opaque directory would look like deletions. Then the tree is flattened while it
//! is deleted: every directory is moved up before it is emptied, so depth costs neither stack nor
//! path length. The user's files that `apply` replaced stay in `trash` until [`empty_trash`].

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::at;
use crate::meta::FileKind;

/// The layers of a run to delete, and their names while the deletion is in progress.
const LAYERS: [(&str, &str); 4] = [
    ("upper", "gone.upper"),
    ("upper.new", "gone.upper.new"),
    ("work", "gone.work"),
    ("base", "gone.base"),
];
const FILES: [&str; 6] = [
    "changes.json",
    "changes.json.new",
    "earlier.json",
    "earlier.json.new",
    LAYER_IMAGE,
    "layers.new",
];
/// The name of the image in a run directory that holds the layers until the end of the box.
pub const LAYER_IMAGE: &str = "layers.img";
const TRASH: (&str, &str) = ("trash", "gone.trash");

/// The number of deleted files and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Discarded {
    pub entries: u64,
}

/// The reason why a layer of a run could not be deleted. Repeating the operation continues.
#[derive(Debug, thiserror::Error)]
pub enum DiscardError {
    #[error("cannot open the directory {}", path.display())]
    Run { path: PathBuf, source: io::Error },
    #[error("cannot rename `{name}` of the run before its deletion")]
    MoveAside { name: &'static str, source: io::Error },
    #[error(
        "cannot delete `{}` from `{}`",
        belljar_model::display::safe(name),
        belljar_model::display::safe(tree)
    )]
    Delete { tree: Vec<u8>, name: Vec<u8>, source: io::Error },
    #[error("cannot sync the run directory to disk")]
    Sync { source: io::Error },
}

/// Deletes `upper`, `work` and `base` of a run and the manifests made from them.
pub fn discard(run_dir: &Path) -> Result<Discarded, DiscardError> {
    let run = open_run(run_dir)?;
    let mut count = Discarded::default();
    for name in FILES {
        if present(&run, name)? {
            at::unlink(&run, name.as_bytes())
                .map_err(|source| DiscardError::MoveAside { name, source })?;
        }
    }
    for layer in LAYERS {
        remove_layer(&run, layer, &mut count)?;
    }
    Ok(count)
}

/// Deletes the trash of a run: the user's files that an apply replaced or deleted.
pub fn empty_trash(run_dir: &Path) -> Result<Discarded, DiscardError> {
    let run = open_run(run_dir)?;
    let mut count = Discarded::default();
    remove_layer(&run, TRASH, &mut count)?;
    Ok(count)
}

/// Deletes a directory tree that a box wrote.
pub fn remove_tree(dir: &Path) -> Result<Discarded, DiscardError> {
    let fail = |source| DiscardError::Run { path: dir.to_owned(), source };
    let above = at::open_parent_of(dir).map_err(fail)?;
    let mut count = Discarded::default();
    delete(&above, at::last_name(dir).map_err(fail)?, &mut count)?;
    Ok(count)
}

fn open_run(run_dir: &Path) -> Result<OwnedFd, DiscardError> {
    at::open_root(run_dir).map_err(|source| DiscardError::Run { path: run_dir.to_owned(), source })
}

fn present(run: &OwnedFd, name: &'static str) -> Result<bool, DiscardError> {
    let meta = at::stat(run, name.as_bytes());
    Ok(meta.map_err(|source| DiscardError::MoveAside { name, source })?.is_some())
}

fn remove_layer(
    run: &OwnedFd,
    (name, aside): (&'static str, &'static str),
    count: &mut Discarded,
) -> Result<(), DiscardError> {
    // The remains of an interrupted discard are deleted first because the rename needs their name.
    delete(run, aside.as_bytes(), count)?;
    if present(run, name)? {
        unlock(run.as_fd(), name.as_bytes())
            .and_then(|_| at::rename_new(run, name.as_bytes(), run, aside.as_bytes()))
            .map_err(|source| DiscardError::MoveAside { name, source })?;
        rustix::fs::fsync(run).map_err(|errno| DiscardError::Sync { source: errno.into() })?;
    }
    delete(run, aside.as_bytes(), count)
}

/// Deletes a directory tree in `run`, if it exists.
pub(crate) fn delete_in(run: &OwnedFd, tree: &[u8]) -> io::Result<()> {
    delete(run, tree, &mut Discarded::default()).map_err(io::Error::other)
}

fn delete(run: &OwnedFd, tree: &[u8], count: &mut Discarded) -> Result<(), DiscardError> {
    let fail = |name: &[u8], source| DiscardError::Delete {
        tree: tree.to_vec(),
        name: name.to_vec(),
        source,
    };
    if at::stat(run, tree).map_err(|source| fail(b".", source))?.is_none() {
        return Ok(());
    }
    let root = unlock(run.as_fd(), tree).map_err(|source| fail(b".", source))?;
    let mut next = 0;
    let mut inside = Discarded::default();
    for_each_entry(&root, count, |name, kind| match kind {
        FileKind::Directory => flatten(&root, name, &mut next, &mut inside),
        FileKind::File
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::Device => at::unlink(&root, name),
    })
    .map_err(|(name, source)| fail(&name, source))?;
    count.entries += inside.entries;
    at::rmdir(run, tree).map_err(|source| fail(b".", source))
}

/// Deletes the files in the directory `name` of `root`, moves its subdirectories up to `root` and
/// removes the empty directory.
fn flatten(root: &OwnedFd, name: &[u8], next: &mut u64, deleted: &mut Discarded) -> io::Result<()> {
    let dir = unlock(root.as_fd(), name)?;
    let mut seen = Discarded::default();
    for_each_entry(&dir, &mut seen, |child, kind| {
        if kind != FileKind::Directory {
            deleted.entries += 1;
            return at::unlink(&dir, child);
        }
        // rename(2), EACCES: a directory that gets a new parent must itself be writable.
        drop(unlock(dir.as_fd(), child)?);
        loop {
            *next += 1;
            match at::rename_new(&dir, child, root, format!("{next}.up").as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done,
            }
        }
    })
    .map_err(|(_, source)| source)?;
    at::rmdir(root, name)
}

/// Calls `action` for every entry of a directory until the directory is empty. One pass can miss
/// names because entries are deleted while the directory is read.
fn for_each_entry(
    dir: &OwnedFd,
    count: &mut Discarded,
    mut action: impl FnMut(&[u8], FileKind) -> io::Result<()>,
) -> Result<(), (Vec<u8>, io::Error)> {
    loop {
        at::rewind(dir).map_err(|source| (b".".to_vec(), source))?;
        let before = count.entries;
        loop {
            let names = at::next_names(dir).map_err(|source| (b".".to_vec(), source))?;
            if names.is_empty() {
                break;
            }
            for name in names {
                let Some(meta) = at::stat(dir, &name).map_err(|source| (name.clone(), source))?
                else {
                    continue;
                };
                action(&name, meta.kind).map_err(|source| (name, source))?;
                count.entries += 1;
            }
        }
        if count.entries == before {
            return Ok(());
        }
    }
}

/// Opens a directory for deletion and makes it accessible first (the box or overlayfs can have set
/// mode 0000).
fn unlock(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let (handle, meta) = at::handle(parent, name)?;
    if meta.kind == FileKind::Directory && meta.mode & 0o700 != 0o700 {
        at::chmod(&handle, 0o700)?;
    }
    at::child_dir(&handle, b".")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn lock(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
    }

    #[test]
    fn discard_removes_the_layers_and_keeps_the_trash() {
        let run = tempfile::tempdir().unwrap();
        let at = |path: &str| run.path().join(path);
        for dir in ["upper/a/b/c", "work/work", "base", "trash"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        for file in ["upper/f", "upper/a/1.up", "upper/a/b/c/g", "base/x", "trash/1", "run.json"] {
            fs::write(at(file), "x").unwrap();
        }
        fs::write(at("changes.json"), "{}").unwrap();
        lock(&at("work/work"));
        lock(&at("upper/a/b"));
        lock(&at("upper"));
        // upper: a, a/b, a/b/c and three files; work: work; base: one file.
        assert_eq!(discard(run.path()).unwrap().entries, 8);
        let mut left: Vec<_> =
            fs::read_dir(run.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["run.json", "trash"]);
        assert_eq!(discard(run.path()).unwrap().entries, 0, "a second discard succeeds");
        empty_trash(run.path()).unwrap();
        assert!(!at("trash").exists());
    }

    #[test]
    fn c10_discard_deletes_links_out_of_the_upper_layer_without_following_them() {
        let run = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        fs::create_dir_all(run.path().join("upper/d")).unwrap();
        symlink(outside.path(), run.path().join("upper/d/link")).unwrap();
        symlink(outside.path(), run.path().join("upper/link")).unwrap();
        discard(run.path()).unwrap();
        assert!(outside.path().join("precious").exists());
        assert!(!run.path().join("upper").exists());
    }

    #[test]
    fn c23_discard_and_usage_handle_three_thousand_nested_directories() {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join("upper")).unwrap();
        let mut dir = at::open_root(&run.path().join("upper")).unwrap();
        for _ in 0..3000 {
            at::mkdir(&dir, b"deep", 0o755).unwrap();
            dir = at::child_dir(&dir, b"deep").unwrap();
        }
        let seen = crate::usage(
            at::open_root(&run.path().join("upper")).unwrap().as_fd(),
            crate::UsageCap { bytes: u64::MAX, inodes: u64::MAX },
        );
        assert_eq!((seen.as_ref().unwrap().inodes, seen.unwrap().unseen), (3000, 0));
        drop(dir);
        discard(run.path()).unwrap();
        assert!(!run.path().join("upper").exists());
    }

    #[test]
    fn discard_continues_after_an_interruption() {
        let run = tempfile::tempdir().unwrap();
        for dir in ["gone.upper/a/b", "upper/c", "work/work"] {
            fs::create_dir_all(run.path().join(dir)).unwrap();
        }
        discard(run.path()).unwrap();
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }
}
