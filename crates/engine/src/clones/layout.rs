//! Finds the directories of the user's repository, without git and without following a stranger's pointers.
//!
//! The files of a project may come from a stranger: an archive, or an earlier box. Git follows a `.git` file,
//! a `commondir` file, symbolic links and alternates to any other repository of the user, whose history a box
//! would then get. So a git directory is used only if it is in the project itself, or if it points back to
//! the project, as those of worktrees and submodules do. It may not lead out of itself.
//!
//! **Invariant:** a [`RepoLayout`] exists only for directories that passed these checks.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The directories of a repository that point only to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepoLayout {
    /// The top directory of the checkout; `None` for a bare repository.
    checkout: Option<PathBuf>,
    git_dir: PathBuf,
    common: PathBuf,
    jj_store: bool,
}

/// The maximum size of a file with the name of a directory, ref or commit, in bytes.
const MAX_POINTER: u64 = 64 << 10;
/// Directories of a git directory whose files Belljar's git commands do not read.
const UNUSED: [&str; 6] = ["hooks", "modules", "worktrees", "logs", "lfs", "annex"];

impl RepoLayout {
    /// Finds the repository that contains the directory `dir`. No part of the path `dir` may be a symbolic link.
    ///
    /// Returns `None` if there is no repository. `refuse` returns an error for a git directory that is never
    /// used. `worktree_of` returns the setting `core.worktree` of a git directory, which submodules have.
    pub(super) fn find(
        dir: &Path,
        refuse: &dyn Fn(&Path) -> anyhow::Result<()>,
        worktree_of: &dyn Fn(&Path) -> Option<PathBuf>,
    ) -> anyhow::Result<Option<Self>> {
        // A bare repository is used only if `dir` itself is the repository. A bare repository in a parent
        // directory may have been planted by an attacker.
        if dir.join(".git").symlink_metadata().is_err() && is_git_directory(dir) {
            return Self::own(None, dir).map(Some);
        }
        for top in dir.ancestors() {
            let git = top.join(".git");
            match git.symlink_metadata() {
                Ok(meta) if meta.is_symlink() => bail!(
                    "{} is a symbolic link, which could lead to another repository; name the directory of that repository itself",
                    git.display()
                ),
                Ok(meta) if meta.is_file() => {
                    return Self::pointed_to(top, &git, refuse, worktree_of).map(Some);
                }
                Ok(_) if is_git_directory(&git) => return Self::own(Some(top), &git).map(Some),
                Ok(_) => {}
                Err(_) => {
                    if let Some(store) = jj_store(top)? {
                        return Ok(Some(Self { jj_store: true, ..Self::own(None, &store)? }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Checks a git directory that was accepted before.
    pub(super) fn again(common: &Path) -> anyhow::Result<Self> {
        Self::own(None, common)
    }

    /// Checks a git directory that contains all of its repository.
    fn own(checkout: Option<&Path>, git_dir: &Path) -> anyhow::Result<Self> {
        let common = git_dir.join("commondir");
        if common.symlink_metadata().is_ok() {
            bail!("{} leads to another repository; name that one", common.display());
        }
        let git_dir = git_dir.to_owned();
        let checkout = checkout.map(Path::to_owned);
        Self { checkout, common: git_dir.clone(), git_dir, jj_store: false }.checked()
    }

    /// Checks the git directory that a `.git` file names: it must point back to the checkout.
    fn pointed_to(
        top: &Path,
        file: &Path,
        refuse: &dyn Fn(&Path) -> anyhow::Result<()>,
        worktree_of: &dyn Fn(&Path) -> Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let text = read_pointer(file)?;
        let named = text.strip_prefix(b"gitdir: ").map(<[u8]>::trim_ascii);
        let named = named.with_context(|| format!("{} has no path", file.display()))?;
        let git_dir = real(&top.join(OsStr::from_bytes(named)))?;
        refuse(&git_dir)?;
        let worktree = match git_dir.join("commondir").symlink_metadata() {
            Ok(_) => worktree(&git_dir)?,
            Err(_) => worktree_of(&git_dir).map(|path| (git_dir.clone(), git_dir.join(path))),
        };
        let (common, back) = worktree.unzip();
        let back = back.and_then(|back| real(&back).ok());
        match common {
            Some(common) if back.as_deref() == Some(top) => {
                let checkout = Some(top.to_owned());
                Self { checkout, git_dir, common, jj_store: false }.checked()
            }
            _ => bail!(
                "{} leads to {}, which does not belong to this checkout; name the directory of that repository",
                file.display(),
                git_dir.display()
            ),
        }
    }

    /// Returns the layout if nothing in its git directories leads to another directory.
    fn checked(self) -> anyhow::Result<Self> {
        check_links(&self.git_dir)?;
        if self.common != self.git_dir {
            check_links(&self.common)?;
        }
        let alternates = self.common.join("objects/info/alternates");
        if alternates.symlink_metadata().is_ok_and(|meta| meta.len() > 0) {
            bail!(
                "{} takes objects from another repository; copy them with `git repack -a -d` and remove that file",
                alternates.display()
            );
        }
        Ok(self)
    }

    /// Returns the layout of a repository whose settings say that it has no checkout.
    pub(super) fn without_checkout(self) -> Self {
        Self { checkout: None, ..self }
    }

    pub(super) fn checkout(&self) -> Option<&Path> {
        self.checkout.as_deref()
    }

    /// Returns the git directory of the checkout, with `HEAD` and the index.
    pub(super) fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns the git directory that all worktrees share, with objects, branches and settings.
    pub(super) fn common(&self) -> &Path {
        &self.common
    }

    /// Returns whether this is the internal git store of a jj repository, in which `HEAD` has no meaning.
    pub(super) const fn is_jj_store(&self) -> bool {
        self.jj_store
    }
}

/// Returns whether git would use a directory as a git directory.
fn is_git_directory(dir: &Path) -> bool {
    dir.join("HEAD").symlink_metadata().is_ok()
        && dir.join("objects").symlink_metadata().is_ok()
        && dir.join("refs").symlink_metadata().is_ok()
}

/// Returns the common git directory and the checkout of the worktree with the git directory `git_dir`.
///
/// Returns `None` if `git_dir` is not one of the worktrees of that repository.
fn worktree(git_dir: &Path) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    let path = |name: &str| -> anyhow::Result<PathBuf> {
        let text = read_pointer(&git_dir.join(name))?;
        Ok(git_dir.join(OsStr::from_bytes(text.trim_ascii())))
    };
    let common = real(&path("commondir")?)?;
    let back = path("gitdir")?;
    let is_worktree = git_dir.parent() == Some(&common.join("worktrees"));
    let checkout = back.parent().filter(|_| back.file_name() == Some(OsStr::new(".git")));
    Ok(checkout.filter(|_| is_worktree).map(|checkout| (common.clone(), checkout.to_owned())))
}

/// Returns the internal git store of a jj repository that has no `.git` directory beside `.jj`.
///
/// A store outside of `.jj` is an error.
fn jj_store(top: &Path) -> anyhow::Result<Option<PathBuf>> {
    let jj = top.join(".jj");
    let Ok(meta) = jj.symlink_metadata() else { return Ok(None) };
    let elsewhere = |path: &Path| {
        anyhow::anyhow!(
            "{} leads to another repository; name the directory of that repository",
            path.display()
        )
    };
    let (repo, store) = (jj.join("repo"), jj.join("repo/store"));
    if meta.is_symlink() {
        return Err(elsewhere(&jj));
    }
    // In an additional jj workspace, `repo` is a file with the path of the repository.
    match repo.symlink_metadata() {
        Ok(meta) if !meta.is_dir() => return Err(elsewhere(&repo)),
        Ok(_) => {}
        Err(_) => return Ok(None),
    }
    let target = store.join("git_target");
    let Ok(meta) = target.symlink_metadata() else { return Ok(None) };
    if !meta.is_file() {
        return Err(elsewhere(&target));
    }
    let named = read_pointer(&target)?;
    let git = real(&store.join(OsStr::from_bytes(named.trim_ascii())))?;
    if git.starts_with(&jj) { Ok(Some(git)) } else { Err(elsewhere(&target)) }
}

/// Returns an error if a git directory has a link or a special file, where git would read it.
fn check_links(git_dir: &Path) -> anyhow::Result<()> {
    let mut dirs = vec![git_dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let cannot_list = || format!("cannot list the git directory {}", dir.display());
        for entry in fs::read_dir(&dir).with_context(cannot_list)? {
            let entry = entry.with_context(cannot_list)?;
            let name = entry.file_name();
            if dir == git_dir && UNUSED.iter().any(|unused| name == *unused) {
                continue;
            }
            let (path, kind) = (entry.path(), entry.file_type().with_context(cannot_list)?);
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_symlink() {
                bail!(
                    "{} is a symbolic link, which could lead to another repository; replace it by a copy",
                    path.display()
                );
            } else if !kind.is_file() && !is_socket(kind) {
                bail!("{} is neither a file nor a directory", path.display());
            }
        }
    }
    Ok(())
}

/// Returns whether a file is a socket, such as that of git's file system monitor. Git does not read it.
fn is_socket(kind: fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    kind.is_socket()
}

/// Reads a small file with the name of a directory, ref or commit. A symbolic link is an error.
pub(super) fn read_pointer(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot_read = || format!("cannot read {}", path.display());
    let meta = path.symlink_metadata().with_context(cannot_read)?;
    if !meta.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let mut text = Vec::new();
    let file = File::open(path).with_context(cannot_read)?;
    file.take(MAX_POINTER).read_to_end(&mut text).with_context(cannot_read)?;
    Ok(text)
}

/// Returns the path of a directory without links.
fn real(path: &Path) -> anyhow::Result<PathBuf> {
    let opened = belljar_box::open(path).map(|(_, real)| real);
    opened.with_context(|| format!("cannot find the repository {}", path.display()))
}
