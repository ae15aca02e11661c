//! Creates or moves a branch in the user's repository so that it contains the commits of a box.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::boxes::BoxName;

use super::git::Git;
use super::incoming::Incoming;
use super::view::RepoSettings;
use super::work::Work;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// Returns the name of a box in a form that is valid as the last component of a git ref.
///
/// Dots that git does not allow there become `%2e`. Box names never contain `%`.
pub(super) fn ref_component(name: &BoxName) -> String {
    let name = name.as_str();
    let is_lock = std::path::Path::new(name).extension().is_some_and(|end| end == "lock");
    match name.contains("..") || name.ends_with('.') || is_lock {
        true => name.replace('.', "%2e"),
        false => name.to_owned(),
    }
}

/// Returns the branch that receives the commits of a box when the caller names no branch.
pub fn default_branch(name: &BoxName) -> String {
    format!("belljar/{}", ref_component(name))
}

/// Creates the branch `name` in the user's repository at the last commit of `work`, or fast-forwards it.
///
/// Call [`super::save_work`] first. A branch that is checked out, or that would lose a commit, is refused.
pub fn branch(work: &Work, name: &str) -> Result<(), EngineError> {
    put(&work.incoming, &work.tip, name, "belljar: work of a box").map_err(|error| {
        let is_invalid = error.kind() == ErrorKind::Invalid;
        if is_invalid { invalid(format!("--branch: {error:#}")) } else { error }
    })
}

/// Creates or fast-forwards a branch to a commit of the user's repository.
pub(super) fn put(
    incoming: &Incoming,
    tip: &str,
    name: &str,
    message: &str,
) -> Result<(), EngineError> {
    let old = check(incoming, tip, name)?;
    if old.as_deref() == Some(tip) {
        return Ok(());
    }
    let owner = incoming.owner_git().kind(ErrorKind::Broken)?;
    // git compares with the old value, so that a concurrent update of the branch is not overwritten.
    let zero = "0".repeat(tip.len());
    let expected = old.unwrap_or(zero);
    let full = format!("refs/heads/{name}");
    let args = ["update-ref", "--no-deref", "-m", message, &full, tip, &expected];
    owner
        .git
        .output(&args)
        .with_context(|| format!("cannot create or move the branch {name:?}"))
        .kind(ErrorKind::Broken)?;
    Ok(())
}

/// Refuses an invalid branch, one that is checked out, and one that would lose a commit. Returns the
/// commit of the branch, if it exists.
pub(super) fn check(
    incoming: &Incoming,
    tip: &str,
    name: &str,
) -> Result<Option<String>, EngineError> {
    let owner = incoming.owner_git().kind(ErrorKind::Broken)?;
    let git = &owner.git;
    let full = format!("refs/heads/{name}");
    let is_valid =
        !name.starts_with('-') && name != "HEAD" && git.succeeds(&["check-ref-format", &full]);
    if !is_valid {
        return Err(invalid(format!("{name:?} is not a valid branch name")));
    }
    let old = git.query(&["rev-parse", "--verify", "-q", &full]);
    if let Some(checkout) = checkout_of(git, incoming, &full) {
        return Err(invalid(format!(
            "{name:?} is checked out in {}; choose another branch and merge it there",
            checkout.display()
        )));
    }
    if let Some(old) = &old
        && old != tip
        && !git.succeeds(&["merge-base", "--is-ancestor", old, tip])
    {
        return Err(invalid(format!(
            "{name:?} has commits that the work of the box is not based on; choose another branch"
        )));
    }
    Ok(old)
}

/// Returns the directory in which a branch is checked out, also during a rebase or bisect.
fn checkout_of(git: &Git, incoming: &Incoming, full: &str) -> Option<PathBuf> {
    let common = incoming.common();
    let names = ["HEAD", "rebase-merge/head-name", "rebase-apply/head-name"];
    let worktrees = fs::read_dir(common.join("worktrees")).into_iter().flatten();
    let worktrees = worktrees.filter_map(|entry| Some(entry.ok()?.path()));
    let is_bare = RepoSettings::new(incoming.program(), common).is_true("core.bare");
    let main = (!is_bare).then(|| common.to_owned());
    let bisected = |dir: &Path| {
        fs::read_to_string(dir.join("BISECT_START"))
            .is_ok_and(|name| format!("refs/heads/{}", name.trim_end()) == full)
    };
    let dir = main.into_iter().chain(worktrees).find(|dir| {
        let names_branch = |name: &&str| {
            let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
            text.trim_end().trim_start_matches("ref: ") == full
        };
        names.iter().any(names_branch) || bisected(dir)
    });
    if let Some(dir) = dir {
        // The file `gitdir` of a worktree has the path of the `.git` file of its checkout.
        let file = fs::read_to_string(dir.join("gitdir")).map(|path| dir.join(path.trim_end()));
        let file = file.unwrap_or_else(|_| dir.clone());
        return Some(file.parent().map_or(dir, Path::to_owned));
    }
    // With the ref storage `reftable`, only git can read the branch of a checkout.
    git.query(&["for-each-ref", "--format=%(worktreepath)", full]).map(PathBuf::from)
}
