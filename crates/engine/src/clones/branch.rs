//! A branch of the user's that shows the work of a box.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::RepoAt;
use belljar_model::boxes::BoxName;

use super::git::Git;
use super::work::Work;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// The name of a box as the last part of a ref. Some names of boxes cannot be one; `%` is in none.
pub(super) fn part(name: &BoxName) -> String {
    let name = name.as_str();
    let has_lock = std::path::Path::new(name).extension().is_some_and(|end| end == "lock");
    match name.contains("..") || name.ends_with('.') || has_lock {
        true => name.replace('.', "%2e"),
        false => name.to_owned(),
    }
}

/// The branch that the work of a box is put on when no other is named.
pub fn default_branch(name: &BoxName) -> String {
    format!("belljar/{}", part(name))
}

/// Makes the branch `name`, or moves it forward, to where `work` ends. The work must have been kept
/// before. Never moves a branch that somebody has checked out, nor one that would lose a commit.
pub fn branch(at: &RepoAt, work: &Work, name: &str) -> Result<(), EngineError> {
    let git = work.incoming.plain(&at.git_dir).owned_by(&at.git_dir).kind(ErrorKind::Broken)?;
    let full = format!("refs/heads/{name}");
    let is_name =
        !name.starts_with('-') && name != "HEAD" && git.agrees(&["check-ref-format", &full]);
    if !is_name {
        return Err(invalid(format!("--branch: {name:?} cannot be the name of a branch")));
    }
    let old = git.ask(&["rev-parse", "--verify", "-q", &full]);
    if let Some(place) = in_use(&git, &at.git_dir, &full) {
        return Err(invalid(format!(
            "--branch: {name:?} is checked out in {}; name another, and merge it there",
            place.display()
        )));
    }
    if old.as_ref() == Some(&work.tip) {
        return Ok(());
    }
    if let Some(old) = &old
        && !git.agrees(&["merge-base", "--is-ancestor", old, &work.tip])
    {
        return Err(invalid(format!(
            "--branch: {name:?} has commits that this work is not based on; name another branch"
        )));
    }
    // The value that it has now, or none: whoever was faster is not overruled.
    let zero = "0".repeat(work.tip.len());
    let expected = old.unwrap_or(zero);
    let message = "belljar: work of a box";
    let args = ["update-ref", "--no-deref", "-m", message, &full, &work.tip, &expected];
    git.bytes(&args)
        .with_context(|| format!("make the branch {name:?}"))
        .kind(ErrorKind::Broken)?;
    Ok(())
}

/// The checkout that a branch belongs to at present, also in the middle of a rebase.
fn in_use(git: &Git, common: &Path, full: &str) -> Option<PathBuf> {
    if let Some(place) = git.ask(&["for-each-ref", "--format=%(worktreepath)", full]) {
        return Some(place.into());
    }
    // One without a commit is not listed.
    let names = ["HEAD", "rebase-merge/head-name", "rebase-apply/head-name"];
    let others = fs::read_dir(common.join("worktrees")).into_iter().flatten();
    let others = others.filter_map(|entry| Some(entry.ok()?.path()));
    let is_bare = git.ask(&["rev-parse", "--is-bare-repository"]).is_some_and(|it| it == "true");
    let own = (!is_bare).then(|| common.to_owned());
    let bisected = |dir: &Path| {
        fs::read_to_string(dir.join("BISECT_START"))
            .is_ok_and(|name| format!("refs/heads/{}", name.trim_end()) == full)
    };
    own.into_iter().chain(others).find(|dir| {
        let says = |name: &&str| {
            let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
            text.trim_end().trim_start_matches("ref: ") == full
        };
        names.iter().any(says) || bisected(dir)
    })
}
