//! What a sender may request beyond a template: wider rules, and directories of the host.
//!
//! A template of the policy is the upper limit for members and for tokens. People who operate the tenant can
//! request more. Directories of the host are open to the owner of the tenant `local` only, who is the user of
//! the machine, and below the directories that the operator lists for the tenant.

use std::path::{Path, PathBuf};

use belljar_engine::scope::Scoped;
use belljar_model::{Overrides, Template};

use super::access::{Grant, Role};
use super::identity::Identity;
use super::problem::{Problem, ProblemKind};

/// Returns whether a sender may loosen the values of a template.
pub(crate) fn may_widen(who: &Identity) -> bool {
    let is_operator = match who.role {
        Role::Owner | Role::Admin | Role::Operator => true,
        Role::Member | Role::Auditor => false,
    };
    who.grant == Grant::Person && is_operator
}

/// Refuses overrides that loosen a template, unless the sender may loosen it.
pub(crate) fn check_overrides(
    who: &Identity,
    template: &Template,
    overrides: &Overrides,
) -> Result<(), Problem> {
    if may_widen(who) {
        return Ok(());
    }
    template.check_tightened(overrides).map_err(|loosens| {
        let detail = format!(
            "{loosens}; a member or a token cannot request more than the template: use another template, or ask an operator"
        );
        Problem::new(ProblemKind::FORBIDDEN, detail).field(format!("/{}", loosens.key))
    })
}

/// Returns the directories that the operator lists for the tenant.
pub(crate) fn listed_directories(_state: &Scoped) -> Result<Vec<PathBuf>, Problem> {
    Ok(Vec::new())
}

/// Returns whether the sender is the user of the machine, who can read all files anyway.
pub(crate) fn is_user_of_the_machine(who: &Identity) -> bool {
    who.tenant().is_local() && who.role == Role::Owner && who.grant == Grant::Person
}

/// Refuses a directory of the host that the sender may not use. `path` has no symbolic links.
pub(crate) fn check_directory(
    who: &Identity,
    listed: &[PathBuf],
    path: &Path,
) -> Result<(), Problem> {
    if is_user_of_the_machine(who) || listed.iter().any(|listed| path.starts_with(listed)) {
        return Ok(());
    }
    let detail = "this directory is not open to you; the operator of the server lists directories with \
                  `workspaces` in the section [tenant.NAME] of belljar.toml";
    Err(Problem::new(ProblemKind::FORBIDDEN, detail).field("/workspace"))
}
