//! The open directories of a run: the workspace, the upper layer and the run directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::at;
use crate::path::{PathError, RelPath};
use crate::tree::Tree;

/// The paths of a run. They come from the operator, never from a box.
#[derive(Debug, Clone, Copy)]
pub struct RunPaths<'a> {
    /// The path of the user's directory, the lower layer of the overlay.
    pub workspace: &'a Path,
    /// The path of Belljar's state directory. No change of a box is ever applied inside it.
    pub state: &'a Path,
    /// The path of the run directory with `upper`, `work`, `base` and `changes.json`.
    pub run: &'a Path,
}

/// The user's directory and the layers of one run, held open by descriptor.
#[derive(Debug)]
pub struct Layers {
    lower: OwnedFd,
    upper: Tree,
    run: OwnedFd,
    run_name: Vec<u8>,
    own: Option<RelPath>,
}

/// The reason why the layers of a run could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open the workspace {}", path.display())]
    Workspace { path: PathBuf, source: io::Error },
    #[error("cannot open the run directory {}", path.display())]
    Run { path: PathBuf, source: io::Error },
    #[error("cannot open the state directory {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("the run {} holds no changes (they were discarded, or it had no overlay)", run.display())]
    NoUpper { run: PathBuf },
    #[error("cannot open the upper layer of {}", run.display())]
    Upper { run: PathBuf, source: io::Error },
    #[error("the workspace {} is inside Belljar's state directory; choose another workspace", path.display())]
    InsideState { path: PathBuf },
    #[error("the path of the state directory within the workspace is too long")]
    StateTooDeep { source: PathError },
}

impl Layers {
    /// Opens the workspace and the layers of a run.
    pub fn open(paths: &RunPaths<'_>) -> Result<Self, OpenError> {
        let RunPaths { workspace, state, run } = *paths;
        let lower = at::open_root(workspace)
            .map_err(|source| OpenError::Workspace { path: workspace.to_owned(), source })?;
        let run_fd =
            at::open_root(run).map_err(|source| OpenError::Run { path: run.to_owned(), source })?;
        let state_fd = at::open_root(state)
            .map_err(|source| OpenError::State { path: state.to_owned(), source })?;
        let own = own_state_path(&lower, &state_fd, workspace)?;
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

    /// Returns the device and inode of the user's directory, to detect that it was replaced since
    /// the run.
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

    /// Returns the name of the run, which makes temporary names unique among runs.
    pub(crate) fn run_name(&self) -> &[u8] {
        &self.run_name
    }

    /// Returns whether `path` is in Belljar's state directory. That directory is in the workspace
    /// if the user works in the home directory.
    pub(crate) fn is_own(&self, path: &RelPath) -> bool {
        self.own.as_ref().is_some_and(|own| path.is_within(own))
    }

    /// Opens the subdirectory `name` of the run directory and creates it if it is missing.
    pub(crate) fn make_run_dir(&self, name: &[u8]) -> io::Result<OwnedFd> {
        match at::mkdir(&self.run, name, 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => at::child_dir(&self.run, name),
        }
    }
}

/// Returns the path of the state directory within the workspace, if it is inside (threat C26). Real
/// paths are compared, so links cannot hide it.
fn own_state_path(
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
