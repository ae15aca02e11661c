//! The files of a release: the binary, completions, manual pages, profiles and documents.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::shell::{program, read, root, run};

/// The arrangement of the files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A directory that the installer copies from.
    Tarball,
    /// The root directory of a Debian package.
    Debian,
}

impl Layout {
    const fn binary(self) -> &'static str {
        match self {
            Self::Tarball => "bin/belljar",
            Self::Debian => "usr/bin/belljar",
        }
    }

    const fn manual(self) -> &'static str {
        match self {
            Self::Tarball => "share/man/man1",
            Self::Debian => "usr/share/man/man1",
        }
    }

    /// Returns the shells with the paths of their completion scripts.
    const fn completions(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Tarball => [
                ("bash", "share/bash-completion/completions/belljar"),
                ("zsh", "share/zsh/site-functions/_belljar"),
                ("fish", "share/fish/vendor_completions.d/belljar.fish"),
            ],
            Self::Debian => [
                ("bash", "usr/share/bash-completion/completions/belljar"),
                ("zsh", "usr/share/zsh/vendor-completions/_belljar"),
                ("fish", "usr/share/fish/vendor_completions.d/belljar.fish"),
            ],
        }
    }

    /// Returns the files of the repository with their paths in the release.
    const fn copied(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tarball => &[
                ("LICENSE", "share/doc/belljar/LICENSE"),
                ("README.md", "share/doc/belljar/README.md"),
                ("CHANGELOG.md", "share/doc/belljar/CHANGELOG.md"),
                ("contrib/apparmor/belljar", "share/belljar/apparmor/belljar"),
            ],
            Self::Debian => &[
                ("LICENSE", "usr/share/doc/belljar/copyright"),
                ("README.md", "usr/share/doc/belljar/README.md"),
                ("CHANGELOG.md", "usr/share/doc/belljar/CHANGELOG.md"),
                ("contrib/apparmor/belljar", "etc/apparmor.d/belljar"),
            ],
        }
    }
}

/// Creates the directory `tree` with all files of a release.
pub(super) fn stage(binary: &Path, tree: &Path, layout: Layout) -> Result<()> {
    copy(binary, &tree.join(layout.binary()), 0o755)?;
    for (from, to) in layout.copied() {
        copy(&root().join(from), &tree.join(to), 0o644)?;
    }
    for (shell, path) in layout.completions() {
        write(&tree.join(path), &read(program(binary).args(["completions", shell]))?)?;
    }
    let manual = tree.join(layout.manual());
    make_dir(&manual)?;
    run(program(binary).arg("man").arg("--to").arg(&manual))?;
    for entry in std::fs::read_dir(&manual)? {
        let page = entry?.path();
        set_mode(&page, 0o644)?;
        run(program("gzip").args(["-n", "-9"]).arg(&page))?;
    }
    Ok(())
}

/// Creates a directory and its parents with a mode that does not depend on the umask.
fn make_dir(dir: &Path) -> Result<()> {
    let missing: Vec<PathBuf> =
        dir.ancestors().take_while(|parent| !parent.exists()).map(Path::to_owned).collect();
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    missing.iter().try_for_each(|dir| set_mode(dir, 0o755))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_dir(to.parent().context("the file has no directory")?)?;
    std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    set_mode(to, mode)
}

pub(super) fn write(to: &Path, text: &str) -> Result<()> {
    make_dir(to.parent().context("the file has no directory")?)?;
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    set_mode(to, 0o644)
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}
