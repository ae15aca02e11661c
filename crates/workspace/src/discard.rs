//! Throws away what a box wrote.
//!
//! The layers are first moved aside in one rename each, so that a discard that was interrupted can
//! never be mistaken for changes: half of an opaque directory would look like deletions. Then the
//! tree is flattened while it is deleted (every directory is moved up before it is emptied), so
//! depth costs neither stack nor path length. What `apply` took out of the user's directory stays
//! in `trash` until [`empty_trash`].

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::at;
use crate::meta::FileKind;

/// What is thrown away, and under which name it waits for it.
const LAYERS: [(&str, &str); 3] =
    [("upper", "gone.upper"), ("work", "gone.work"), ("base", "gone.base")];
const FILES: [&str; 4] = ["changes.json", "changes.json.new", "earlier.json", "earlier.json.new"];
const TRASH: (&str, &str) = ("trash", "gone.trash");

/// How many names were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Discarded {
    pub entries: u64,
}

/// Why something could not be thrown away. Doing it again goes on where it ended.
#[derive(Debug, thiserror::Error)]
pub enum DiscardError {
    #[error("open the run directory {}", path.display())]
    Run { path: PathBuf, source: io::Error },
    #[error("move `{name}` of the run aside")]
    Aside { name: &'static str, source: io::Error },
    #[error(
        "delete `{}` from `{}`",
        belljar_model::display::safe(name),
        belljar_model::display::safe(tree)
    )]
    Delete { tree: Vec<u8>, name: Vec<u8>, source: io::Error },
    #[error("write the run directory to disk")]
    Sync { source: io::Error },
}

/// Deletes `upper`, `work` and `base` of a run and the manifest made from them.
pub fn discard(run_dir: &Path) -> Result<Discarded, DiscardError> {
    let run = open_run(run_dir)?;
    let mut count = Discarded::default();
    for name in FILES {
        if present(&run, name)? {
            at::unlink(&run, name.as_bytes())
                .map_err(|source| DiscardError::Aside { name, source })?;
        }
    }
    for layer in LAYERS {
        throw_away(&run, layer, &mut count)?;
    }
    Ok(count)
}

/// Deletes what `apply` took out of the user's directory and kept.
pub fn empty_trash(run_dir: &Path) -> Result<Discarded, DiscardError> {
    let run = open_run(run_dir)?;
    let mut count = Discarded::default();
    throw_away(&run, TRASH, &mut count)?;
    Ok(count)
}

/// Deletes a directory that a box wrote in, with all there is in it.
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
    Ok(meta.map_err(|source| DiscardError::Aside { name, source })?.is_some())
}

fn throw_away(
    run: &OwnedFd,
    (name, aside): (&'static str, &'static str),
    count: &mut Discarded,
) -> Result<(), DiscardError> {
    // What an interrupted discard left comes first: its place is needed.
    delete(run, aside.as_bytes(), count)?;
    if present(run, name)? {
        unlock(run.as_fd(), name.as_bytes())
            .and_then(|_| at::rename_new(run, name.as_bytes(), run, aside.as_bytes()))
            .map_err(|source| DiscardError::Aside { name, source })?;
        rustix::fs::fsync(run).map_err(|errno| DiscardError::Sync { source: errno.into() })?;
    }
    delete(run, aside.as_bytes(), count)
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
    each(&root, count, |name, kind| match kind {
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

/// Empties the directory `name` of `root` by deleting its files and moving its directories up to
/// `root`, then removes it.
fn flatten(root: &OwnedFd, name: &[u8], next: &mut u64, deleted: &mut Discarded) -> io::Result<()> {
    let dir = unlock(root.as_fd(), name)?;
    let mut seen = Discarded::default();
    each(&dir, &mut seen, |child, kind| {
        if kind != FileKind::Directory {
            deleted.entries += 1;
            return at::unlink(&dir, child);
        }
        // A directory that changes its parent must itself be writable: rename(2), EACCES.
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

/// Acts on every name until none is left. Deleting while reading may hide names from one pass.
fn each(
    dir: &OwnedFd,
    count: &mut Discarded,
    mut act: impl FnMut(&[u8], FileKind) -> io::Result<()>,
) -> Result<(), (Vec<u8>, io::Error)> {
    loop {
        at::rewind(dir).map_err(|source| (b".".to_vec(), source))?;
        let before = count.entries;
        loop {
            let names = at::some_names(dir).map_err(|source| (b".".to_vec(), source))?;
            if names.is_empty() {
                break;
            }
            for name in names {
                let Some(meta) = at::stat(dir, &name).map_err(|source| (name.clone(), source))?
                else {
                    continue;
                };
                act(&name, meta.kind).map_err(|source| (name, source))?;
                count.entries += 1;
            }
        }
        if count.entries == before {
            return Ok(());
        }
    }
}

/// Opens a directory for emptying, whatever mode the box (or overlayfs: `work` is 0000) gave it.
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
    fn a_run_is_gone_after_a_discard_and_its_trash_is_not() {
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
        assert_eq!(discard(run.path()).unwrap().entries, 0, "again is fine");
        empty_trash(run.path()).unwrap();
        assert!(!at("trash").exists());
    }

    #[test]
    fn c10_a_link_out_of_the_upper_layer_is_deleted_and_not_followed() {
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
    fn c23_three_thousand_directories_deep_is_no_deeper_than_one() {
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
    fn an_interrupted_discard_goes_on() {
        let run = tempfile::tempdir().unwrap();
        for dir in ["gone.upper/a/b", "upper/c", "work/work"] {
            fs::create_dir_all(run.path().join(dir)).unwrap();
        }
        discard(run.path()).unwrap();
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }
}
