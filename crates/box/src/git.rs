//! Finds the git directory of a workspace that is a worktree or a submodule.
//!
//! A `.git` file contains the path of such a directory. An earlier box could have planted that file, to
//! get access to another directory. So the directory is mounted only if it points back to this
//! workspace, and only read-only.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// A git directory outside the workspace that git needs inside the box.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GitDirectory {
    /// The path of the git directory on the host.
    pub(crate) source: PathBuf,
    /// The path inside the box where git looks for the directory.
    pub(crate) target: PathBuf,
    /// The path of the workspace according to the repository, if it differs from the real one.
    pub(crate) alias: Option<PathBuf>,
}

/// The maximum size of a `.git` file or git configuration that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// Returns the git directory of the workspace at `path`, which is mounted at `inside`.
pub(crate) fn find(workspace: &OwnedFd, path: &Path, inside: &Path) -> Option<GitDirectory> {
    let named = read(workspace, ".git")?;
    let named = Path::new(OsStr::from_bytes(named.trim_ascii().strip_prefix(b"gitdir: ")?));
    let host = normal(&path.join(named));
    let (directory, real) = crate::prepare::open(&host).ok()?;
    if real != host {
        return None; // a symbolic link in the path: git would find another directory inside
    }
    let in_box = normal(&inside.join(named));
    worktree(&directory, &host, &in_box, path).or_else(|| submodule(&directory, host, in_box, path))
}

/// Returns the repository of a linked worktree, which its `commondir` file points to.
fn worktree(directory: &OwnedFd, host: &Path, in_box: &Path, path: &Path) -> Option<GitDirectory> {
    let back = read(directory, "gitdir")?;
    let back = host.join(OsStr::from_bytes(back.trim_ascii()));
    let common = read(directory, "commondir")?;
    let common = OsStr::from_bytes(common.trim_ascii());
    let source = normal(&host.join(common));
    // Only `<repository>/worktrees/<name>`: a planted file could otherwise expose more directories.
    let own = host.parent().filter(|parent| parent.ends_with("worktrees"))?.parent()?;
    let points_back = normal(&back) == path.join(".git") && source == own;
    points_back.then(|| GitDirectory { target: normal(&in_box.join(common)), source, alias: None })
}

/// Returns the repository of a submodule, whose configuration contains the path of the workspace.
fn submodule(
    directory: &OwnedFd,
    host: PathBuf,
    in_box: PathBuf,
    path: &Path,
) -> Option<GitDirectory> {
    let config = String::from_utf8(read(directory, "config")?).ok()?;
    let worktree = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "worktree").then(|| value.trim().to_owned())
    })?;
    let alias = normal(&in_box.join(&worktree));
    let is_ours = normal(&host.join(&worktree)) == path;
    is_ours.then_some(GitDirectory { source: host, target: in_box, alias: Some(alias) })
}

/// Reads a small regular file of a directory, or returns `None`. Returns `None` for a symbolic
/// link, device or empty file.
fn read(directory: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(directory.as_fd(), name, flags, Mode::empty(), resolve).ok()?;
    let file = std::fs::File::from(file);
    let mut content = Vec::new();
    if file.metadata().ok()?.is_file() {
        file.take(MAX_BYTES).read_to_end(&mut content).ok()?;
    }
    (!content.is_empty()).then_some(content)
}

/// Removes `.` and `..` from a path, without accessing the file system.
fn normal(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                clean.push(component);
            }
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &Path) -> (OwnedFd, PathBuf) {
        crate::prepare::open(path).unwrap()
    }

    fn write(path: PathBuf, content: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    #[test]
    fn c04_git_directory_is_mounted_only_if_it_points_back_to_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let (_, top) = place(dir.path());
        let tree = top.join("tree");
        let own = top.join("main/.git/worktrees/tree");
        write(tree.join(".git"), &format!("gitdir: {}\n", own.display()));
        write(own.join("commondir"), "../..\n");
        let found = || find(&place(&tree).0, &tree, Path::new("/workspace"));

        assert_eq!(found(), None, "no path back to the workspace");
        write(own.join("gitdir"), &format!("{}/other/.git\n", top.display()));
        assert_eq!(found(), None, "path back to another workspace");
        write(own.join("gitdir"), &format!("{}/.git\n", tree.display()));
        let common = top.join("main/.git");
        let expect = GitDirectory { source: common.clone(), target: common, alias: None };
        assert_eq!(found(), Some(expect));
        write(own.join("commondir"), "../../../../..\n");
        assert_eq!(found(), None, "common directory above the repository");
        write(tree.join(".git"), "gitdir: /etc\n");
        assert_eq!(found(), None, "directory without a path back");
    }

    #[test]
    fn submodule_repository_is_mounted_at_the_path_that_git_resolves() {
        let dir = tempfile::tempdir().unwrap();
        let (_, top) = place(dir.path());
        let sub = top.join("sub");
        write(sub.join(".git"), "gitdir: ../.git/modules/sub\n");
        write(top.join(".git/modules/sub/config"), "[core]\n\tworktree = ../../../sub\n");
        let found = find(&place(&sub).0, &sub, Path::new("/workspace")).unwrap();
        assert_eq!(found.source, top.join(".git/modules/sub"));
        assert_eq!(found.target, Path::new("/.git/modules/sub"));
        assert_eq!(found.alias.as_deref(), Some(Path::new("/sub")));
    }
}
