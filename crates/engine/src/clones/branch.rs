//! Creates or moves a branch in the user's repository so that it contains the commits of a box.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::RepoAt;
use belljar_model::boxes::BoxName;

use super::git::Git;
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
pub fn branch(at: &RepoAt, work: &Work, name: &str) -> Result<(), EngineError> {
    let git =
        work.incoming.user_git(&at.git_dir).run_as_owner_of(&at.git_dir).kind(ErrorKind::Broken)?;
    let full = format!("refs/heads/{name}");
    let is_valid =
        !name.starts_with('-') && name != "HEAD" && git.succeeds(&["check-ref-format", &full]);
    if !is_valid {
        return Err(invalid(format!("--branch: {name:?} is not a valid branch name")));
    }
    let old = git.query(&["rev-parse", "--verify", "-q", &full]);
    if let Some(checkout) = checkout_of(&git, &at.git_dir, &full) {
        return Err(invalid(format!(
            "--branch: {name:?} is checked out in {}; choose another branch and merge it there",
            checkout.display()
        )));
    }
    if old.as_ref() == Some(&work.tip) {
        return Ok(());
    }
    if let Some(old) = &old
        && !git.succeeds(&["merge-base", "--is-ancestor", old, &work.tip])
    {
        return Err(invalid(format!(
            "--branch: {name:?} has commits that the work of the box is not based on; choose another branch"
        )));
    }
    // git compares with the old value, so that a concurrent update of the branch is not overwritten.
    let zero = "0".repeat(work.tip.len());
    let expected = old.unwrap_or(zero);
    let message = "belljar: work of a box";
    let args = ["update-ref", "--no-deref", "-m", message, &full, &work.tip, &expected];
    git.output(&args)
        .with_context(|| format!("cannot create or move the branch {name:?}"))
        .kind(ErrorKind::Broken)?;
    Ok(())
}

/// Returns the directory in which a branch is checked out, also during a rebase or bisect.
fn checkout_of(git: &Git, common: &Path, full: &str) -> Option<PathBuf> {
    if let Some(path) = git.query(&["for-each-ref", "--format=%(worktreepath)", full]) {
        return Some(path.into());
    }
    // git does not list a branch without a commit, so read the files of each worktree.
    let names = ["HEAD", "rebase-merge/head-name", "rebase-apply/head-name"];
    let worktrees = fs::read_dir(common.join("worktrees")).into_iter().flatten();
    let worktrees = worktrees.filter_map(|entry| Some(entry.ok()?.path()));
    let is_bare = git.query(&["rev-parse", "--is-bare-repository"]).is_some_and(|it| it == "true");
    let main = (!is_bare).then(|| common.to_owned());
    let bisected = |dir: &Path| {
        fs::read_to_string(dir.join("BISECT_START"))
            .is_ok_and(|name| format!("refs/heads/{}", name.trim_end()) == full)
    };
    main.into_iter().chain(worktrees).find(|dir| {
        let names_branch = |name: &&str| {
            let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
            text.trim_end().trim_start_matches("ref: ") == full
        };
        names.iter().any(names_branch) || bisected(dir)
    })
}
