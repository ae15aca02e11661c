//! A git directory of Belljar that shows the objects and refs of the user's repository.
//!
//! Git obeys the configuration of the git directory that it runs in, and each version of git adds settings
//! that start programs: `hook.NAME.command` of git 2.54 runs although `core.hooksPath` is set. So git never
//! runs in the user's git directory, except for `git config`, which starts nothing. It runs in a view, whose
//! configuration Belljar wrote completely.
//!
//! ```text
//! <view>/config                              written by Belljar
//!        HEAD, ORIG_HEAD, FETCH_HEAD         copies
//!        objects refs packed-refs reftable   links to the user's repository
//!        logs shallow worktrees
//! ```

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::git::{Git, GitProgram};
use super::layout::{self, RepoLayout};

/// The settings of the user's repository, as text. Reading them starts no other program.
#[derive(Debug)]
pub(super) struct RepoSettings(Git);

/// A git directory with Belljar's configuration. Dropping the value removes the directory.
#[derive(Debug)]
pub(super) struct RepoView {
    dir: PathBuf,
    /// The object format of the repository: `sha1` or `sha256`.
    format: String,
}

/// Extensions of the repository format that change nothing for a reader of objects and refs.
const HARMLESS_EXTENSIONS: [&str; 5] = [
    "extensions.noop",
    "extensions.partialclone",
    "extensions.preciousobjects",
    "extensions.relativeworktrees",
    "extensions.worktreeconfig",
];
const FORMAT: &str = "extensions.objectformat";
const REF_STORAGE: &str = "extensions.refstorage";
/// The entries of the common git directory that a view links to.
const LINKED: [&str; 7] =
    ["objects", "refs", "packed-refs", "reftable", "logs", "shallow", "worktrees"];
/// The files of the git directory of a checkout that a view copies.
const COPIED: [&str; 3] = ["HEAD", "ORIG_HEAD", "FETCH_HEAD"];

impl RepoSettings {
    /// Returns a reader of the settings in a git directory.
    pub(super) fn new(program: &GitProgram, git_dir: &Path) -> Self {
        Self(Git::at(program, git_dir))
    }

    /// Also reads the global settings of the user.
    pub(super) fn with_user_config(self) -> Self {
        Self(self.0.with_user_config())
    }

    /// Returns the value of a setting; `None` if it is not set.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.0.query(&["config", "--get", key])
    }

    /// Returns the value of a setting that is a path; `None` if it is not set.
    pub(super) fn path(&self, key: &str) -> Option<Vec<u8>> {
        self.0.output(&["config", "--type=path", "--get", key]).ok()
    }

    /// Returns whether a setting is true.
    pub(super) fn is_true(&self, key: &str) -> bool {
        self.0.query(&["config", "--type=bool", "--get", key]).is_some_and(|value| value == "true")
    }

    /// Returns the names of all settings that match a regular expression of git.
    pub(super) fn names(&self, expression: &str) -> Vec<String> {
        let names = self.0.query(&["config", "--name-only", "--get-regexp", expression]);
        names.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl RepoView {
    /// Creates a view of a repository in the new directory `dir`, which belongs to `owner` if one is given.
    pub(super) fn create(
        dir: PathBuf,
        program: &GitProgram,
        layout: &RepoLayout,
        owner: Option<(u32, u32)>,
    ) -> anyhow::Result<Self> {
        let settings = RepoSettings::new(program, layout.common());
        let format = settings.get(FORMAT).unwrap_or_else(|| "sha1".to_owned());
        let config = config(&settings, &format, layout)?;
        let cannot_create = || format!("cannot create the git directory {}", dir.display());
        DirBuilder::new().mode(0o700).create(&dir).with_context(cannot_create)?;
        let view = Self { dir, format };
        let cannot_create = || format!("cannot create the git directory {}", view.dir.display());
        fs::write(view.dir.join("config"), config).with_context(cannot_create)?;
        for name in COPIED {
            let from = layout.git_dir().join(name);
            if from.symlink_metadata().is_ok() {
                let text = layout::read_pointer(&from)?;
                fs::write(view.dir.join(name), text).with_context(cannot_create)?;
            }
        }
        for name in LINKED {
            let from = layout.common().join(name);
            if from.symlink_metadata().is_ok() {
                symlink(&from, view.dir.join(name)).with_context(cannot_create)?;
            }
        }
        if let Some((uid, gid)) = owner {
            chown(&view.dir, Some(uid), Some(gid)).with_context(cannot_create)?;
        }
        Ok(view)
    }

    /// Returns a git command for the repository.
    pub(super) fn git(&self, program: &GitProgram) -> Git {
        Git::at(program, &self.dir)
    }

    pub(super) fn format(&self) -> &str {
        &self.format
    }
}

impl Drop for RepoView {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok(); // links are removed, not followed
    }
}

/// Returns the text of the configuration of a view.
///
/// It has the format of the repository, and two settings that decide how new files are written.
fn config(settings: &RepoSettings, format: &str, layout: &RepoLayout) -> anyhow::Result<String> {
    let is_known = |name: &String| {
        HARMLESS_EXTENSIONS.contains(&name.as_str())
            || [FORMAT, REF_STORAGE].contains(&name.as_str())
    };
    if let Some(unknown) = settings.names(r"^extensions\.").into_iter().find(|name| !is_known(name))
    {
        bail!(
            "the repository {} uses the format {unknown:?}, which Belljar does not support",
            layout.common().display()
        );
    }
    let word = |text: String| {
        let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_word.then_some(text)
    };
    let storage = settings.get(REF_STORAGE).unwrap_or_else(|| "files".to_owned());
    let (Some(format), Some(storage)) = (word(format.to_owned()), word(storage)) else {
        bail!("the format of the repository {} is invalid", layout.common().display());
    };
    let mut text = "[core]\n\trepositoryFormatVersion = 1\n\tbare = false\n".to_owned();
    let has_logs = layout.common().join("logs").is_dir();
    writeln!(text, "\tlogAllRefUpdates = {has_logs}")?;
    if let Some(shared) = settings.get("core.sharedRepository").and_then(word) {
        writeln!(text, "\tsharedRepository = {shared}")?;
    }
    write!(text, "[extensions]\n\tobjectFormat = {format}\n")?;
    if storage != "files" {
        writeln!(text, "\trefStorage = {storage}")?;
    }
    Ok(text)
}
