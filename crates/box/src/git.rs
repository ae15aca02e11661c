//! The git directory of a workspace that is a worktree or a submodule, which lies elsewhere.
//!
//! A `.git` file names it, and such a file may have been planted by an earlier box to be shown
//! something else. So the directory is shown only if it names this workspace in turn, and only for
//! reading.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// What git needs besides the workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GitDirectory {
    /// Where it is on the host.
    pub(crate) source: PathBuf,
    /// Where git will look for it inside.
    pub(crate) target: PathBuf,
    /// Where the repository believes its workspace to be, when that is another place.
    pub(crate) alias: Option<PathBuf>,
}

/// No honest one of these files is longer.
const MAX_BYTES: u64 = 64 * 1024;

/// Looks for the git directory of the workspace at `path`, which is shown at `inside`.
pub(crate) fn find(workspace: &OwnedFd, path: &Path, inside: &Path) -> Option<GitDirectory> {
    let named = read(workspace, ".git")?;
    let named = Path::new(OsStr::from_bytes(named.trim_ascii().strip_prefix(b"gitdir: ")?));
    let host = normal(&path.join(named));
    let (directory, real) = crate::prepare::open(&host).ok()?;
    if real != host {
        return None; // a link on the way: what git would find inside is not this
    }
    let in_box = normal(&inside.join(named));
    worktree(&directory, &host, &in_box, path).or_else(|| submodule(&directory, host, in_box, path))
}

/// A worktree of its own: shares the repository that `commondir` leads to.
fn worktree(directory: &OwnedFd, host: &Path, in_box: &Path, path: &Path) -> Option<GitDirectory> {
    let back = read(directory, "gitdir")?;
    let back = host.join(OsStr::from_bytes(back.trim_ascii()));
    let common = read(directory, "commondir")?;
    let common = OsStr::from_bytes(common.trim_ascii());
    let source = normal(&host.join(common));
    // Exactly `<repository>/worktrees/<name>`, or a planted file could widen what is shown.
    let own = host.parent().filter(|parent| parent.ends_with("worktrees"))?.parent()?;
    let whole = normal(&back) == path.join(".git") && source == own;
    whole.then(|| GitDirectory { target: normal(&in_box.join(common)), source, alias: None })
}

/// A submodule: its repository names the workspace in its configuration.
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

/// A small regular file right in a directory; no link, no device, nothing that waits.
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

/// The same path without `.` and `..`, as text: nothing is looked up.
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
    fn c04_a_git_directory_is_shown_only_if_it_names_the_workspace_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (_, top) = place(dir.path());
        let tree = top.join("tree");
        let own = top.join("main/.git/worktrees/tree");
        write(tree.join(".git"), &format!("gitdir: {}\n", own.display()));
        write(own.join("commondir"), "../..\n");
        let look = || find(&place(&tree).0, &tree, Path::new("/workspace"));

        assert_eq!(look(), None, "without the way back");
        write(own.join("gitdir"), &format!("{}/other/.git\n", top.display()));
        assert_eq!(look(), None, "with a way back to somebody else");
        write(own.join("gitdir"), &format!("{}/.git\n", tree.display()));
        let common = top.join("main/.git");
        let expect = GitDirectory { source: common.clone(), target: common, alias: None };
        assert_eq!(look(), Some(expect));
        write(own.join("commondir"), "../../../../..\n");
        assert_eq!(look(), None, "with more than its repository");
        write(tree.join(".git"), "gitdir: /etc\n");
        assert_eq!(look(), None, "a directory that knows nothing of us");
    }

    #[test]
    fn a_submodule_is_found_where_git_will_look_for_it() {
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
