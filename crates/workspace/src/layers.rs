//! The directories that a review works on, held open.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::at;
use crate::path::{PathError, RelPath};
use crate::tree::Tree;

/// Where things are. All three are the operator's words, never a box's.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The user's directory, over which the box's changes lie.
    pub workspace: &'a Path,
    /// All that Belljar keeps. Nothing from a box is ever put inside it.
    pub state: &'a Path,
    /// What this run left: `upper`, `work`, `base`, `changes.json`.
    pub run: &'a Path,
}

/// The user's directory and what one run left, by descriptor.
#[derive(Debug)]
pub struct Layers {
    lower: OwnedFd,
    upper: Tree,
    run: OwnedFd,
    run_name: Vec<u8>,
    own: Option<RelPath>,
}

/// Why there is nothing to review.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("open the workspace {}", path.display())]
    Workspace { path: PathBuf, source: io::Error },
    #[error("open the run directory {}", path.display())]
    Run { path: PathBuf, source: io::Error },
    #[error("open the state directory {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("the run {} holds no changes (they were discarded, or it had no overlay)", run.display())]
    NoUpper { run: PathBuf },
    #[error("open what the box wrote in {}", run.display())]
    Upper { run: PathBuf, source: io::Error },
    #[error("the workspace {} lies inside Belljar's own state directory", path.display())]
    InsideState { path: PathBuf },
    #[error("the state directory lies too deep in the workspace")]
    StateTooDeep { source: PathError },
}

impl Layers {
    pub fn open(places: &Places<'_>) -> Result<Self, OpenError> {
        let Places { workspace, state, run } = *places;
        let lower = at::open_root(workspace)
            .map_err(|source| OpenError::Workspace { path: workspace.to_owned(), source })?;
        let run_fd =
            at::open_root(run).map_err(|source| OpenError::Run { path: run.to_owned(), source })?;
        let state_fd = at::open_root(state)
            .map_err(|source| OpenError::State { path: state.to_owned(), source })?;
        let own = own_place(&lower, &state_fd, workspace)?;
        let upper = Tree::open(run_fd.as_fd(), b"upper").map_err(|source| {
            let run = run.to_owned();
            if source.kind() == io::ErrorKind::NotFound {
                OpenError::NoUpper { run }
            } else {
                OpenError::Upper { run, source }
            }
        })?;
        let run_name = run.file_name().unwrap_or(OsStr::new("run")).as_bytes().to_vec();
        Ok(Self { lower, upper, run: run_fd, run_name, own })
    }

    /// Device and inode of the user's directory, to compare with what the run started on.
    pub fn workspace_inode(&self) -> io::Result<(u64, u64)> {
        Ok(at::meta(&self.lower)?.inode())
    }

    pub(crate) fn lower(&self) -> BorrowedFd<'_> {
        self.lower.as_fd()
    }

    pub(crate) const fn upper(&self) -> &Tree {
        &self.upper
    }

    pub(crate) fn run(&self) -> BorrowedFd<'_> {
        self.run.as_fd()
    }

    /// The name of the run, for temporary files that must not meet those of another.
    pub(crate) fn run_name(&self) -> &[u8] {
        &self.run_name
    }

    /// Whether `path` is our own state directory (which a user who works in the home directory
    /// shows to the box) or lies in it.
    pub(crate) fn is_own(&self, path: &RelPath) -> bool {
        self.own.as_ref().is_some_and(|own| path.is_within(own))
    }

    /// A directory of the run, made if it is not there.
    pub(crate) fn make_run_dir(&self, name: &[u8]) -> io::Result<OwnedFd> {
        match at::mkdir(&self.run, name, 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => at::child_dir(&self.run, name),
        }
    }
}

/// Where the state directory lies in the workspace, if it does (threat C26). By the real paths of
/// what was opened, so a link in either does not hide it.
fn own_place(
    lower: &OwnedFd,
    state: &OwnedFd,
    workspace: &Path,
) -> Result<Option<RelPath>, OpenError> {
    let real = |fd: &OwnedFd, path: &Path| {
        rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())
            .map(|link| PathBuf::from(std::ffi::OsString::from_vec(link.into_bytes())))
            .map_err(|errno| OpenError::State { path: path.to_owned(), source: errno.into() })
    };
    let (lower, state) = (real(lower, workspace)?, real(state, workspace)?);
    if lower.starts_with(&state) {
        return Err(OpenError::InsideState { path: workspace.to_owned() });
    }
    match state.strip_prefix(&lower) {
        Ok(inside) => RelPath::new(inside.as_os_str().as_bytes())
            .map(Some)
            .map_err(|source| OpenError::StateTooDeep { source }),
        Err(_) => Ok(None),
    }
}
