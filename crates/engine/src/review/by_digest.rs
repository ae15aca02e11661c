//! Review of the changes of a named box by their digest: list them, show hunks, apply and discard them.
//!
//! A reviewer decides about the changes that were listed. So an apply names the digest of the list, and is
//! refused if the box has other changes by then. It is also refused, without any change on the host, if a
//! chosen file is marked and not named, or if the host changed it.

mod cloned;
mod overlay;

use std::collections::{BTreeMap, BTreeSet};

use belljar_model::boxes::BoxWorkspace;
use belljar_workspace::ContentHash;
pub use belljar_workspace::{FileHunk, FileHunks, HunkLine, LineKind, PathError, RelPath};

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind, invalid};
use crate::scope::Scoped;

/// The changes of a box, in the order of their paths.
#[derive(Debug)]
pub struct ChangeList {
    /// Identifies exactly these changes.
    pub digest: String,
    pub kind: WorkspaceKind,
    pub changes: Vec<ListedChange>,
    /// Sentences for people about changes that are not in the list.
    pub remarks: Vec<String>,
}

/// The kind of the workspace of a box, which decides how its changes are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceKind {
    /// The box has no workspace, and so no changes.
    Nothing,
    /// Changes of files are applied to a directory.
    Overlay,
    /// Commits are applied to a branch of a repository.
    Clone,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChange {
    pub path: RelPath,
    /// `added`, `modified`, `deleted`, `mode-changed`, `type-changed` or `renamed`.
    pub kind: &'static str,
    /// The path that a renamed file had before.
    pub from: Option<RelPath>,
    /// `file`, `directory`, `symlink` or `special`; `None` if it is not known.
    pub file: Option<&'static str>,
    /// The size in the box in bytes; `None` if the box deleted the file, or if it is not known.
    pub size: Option<u64>,
    /// Whether the file is executable in the box.
    pub executable: bool,
    /// Why a person must name the change before it is applied.
    pub marks: Vec<String>,
    /// Why the change cannot be applied.
    pub blocked: Option<String>,
}

/// The hunks of one change.
#[derive(Debug)]
pub struct ChangeHunks {
    /// The digest of all changes. The numbers of the hunks belong to it.
    pub digest: String,
    pub change: ListedChange,
    pub hunks: FileHunks,
}

/// The changes to apply. With no paths and no hunks, these are all changes.
#[derive(Clone, Debug, Default)]
pub struct ApplyRequest {
    pub digest: String,
    pub paths: Vec<RelPath>,
    /// The numbers of single hunks of files.
    pub hunks: BTreeMap<RelPath, BTreeSet<usize>>,
    /// The marked changes that are applied too.
    pub include_executable: Vec<RelPath>,
    /// The branch for the commits of a clone.
    pub branch: Option<String>,
}

/// What an apply did with each change.
#[derive(Debug, Default)]
pub struct ApplyReport {
    pub entries: Vec<AppliedChange>,
    /// The branch that has the commits of a clone.
    pub branch: Option<String>,
    /// Whether the box has changes left that are not on the host.
    pub has_more: bool,
}

/// What an apply did with one change.
#[derive(Debug)]
pub struct AppliedChange {
    pub path: RelPath,
    pub result: AppliedResult,
    /// Why the change was not applied.
    pub why: Option<String>,
}

/// The result for one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedResult {
    Applied,
    AlreadyThere,
    NotChosen,
    LeftOut,
    Conflict,
    Failed,
}

impl AppliedResult {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::AlreadyThere => "already-there",
            Self::NotChosen => "not-chosen",
            Self::LeftOut => "left-out",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// The reason why a review was refused. Nothing was applied or discarded.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("the box has other changes than the digest; list them again")]
    Changed,
    #[error("the host changed these files too: {}", list(.0))]
    Conflict(Vec<String>),
    #[error("these changes are marked: {}; name each of them in `include_executable`", list(.0))]
    Marked(Vec<String>),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The maximum number of paths in a message.
const MAX_SHOWN: usize = 10;

fn list(items: &[String]) -> String {
    let shown = items.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    match items.len().saturating_sub(MAX_SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// Lists the changes of a box. Those of a running box are the changes so far.
pub fn changes(state: &Scoped, named_box: &NamedBox) -> Result<ChangeList, EngineError> {
    match named_box.record.ground {
        BoxWorkspace::Nothing => Ok(nothing(WorkspaceKind::Nothing)),
        BoxWorkspace::Directory { .. } => overlay::changes(state, named_box),
        BoxWorkspace::Repo(_) => cloned::changes(state, named_box),
    }
}

/// Returns the hunks of one change. `None` if the box did not change the path.
pub fn hunks(
    state: &Scoped,
    named_box: &NamedBox,
    path: &RelPath,
) -> Result<Option<ChangeHunks>, EngineError> {
    match named_box.record.ground {
        BoxWorkspace::Nothing => Ok(None),
        BoxWorkspace::Directory { .. } => overlay::hunks(state, named_box, path),
        BoxWorkspace::Repo(_) => cloned::hunks(state, named_box, path),
    }
}

/// Applies chosen changes of a box. The changes of a directory need a stopped box.
pub fn apply(
    state: &Scoped,
    named_box: &NamedBox,
    request: &ApplyRequest,
) -> Result<ApplyReport, ReviewError> {
    match named_box.record.ground {
        BoxWorkspace::Nothing => nothing_to_apply(request),
        BoxWorkspace::Directory { .. } if request.branch.is_some() => {
            let text = "only the commits of a private clone are applied to a branch";
            Err(EngineError::message(ErrorKind::WrongState, text).into())
        }
        BoxWorkspace::Directory { .. } => overlay::apply(state, named_box, request),
        BoxWorkspace::Repo(_) => cloned::apply(state, named_box, request),
    }
}

/// Moves all changes of a stopped box to the trash. Returns false if the box has none.
pub fn discard(state: &Scoped, named_box: &NamedBox, digest: &str) -> Result<bool, ReviewError> {
    let found = changes(state, named_box)?;
    if found.digest != digest {
        return Err(ReviewError::Changed);
    }
    Ok(match found.kind {
        WorkspaceKind::Nothing => false,
        WorkspaceKind::Overlay => super::discard_of_box(state, named_box, true)?,
        WorkspaceKind::Clone => super::cloned::discard(state, named_box, true)?,
    })
}

/// Returns the report of an apply for a box without changes.
fn nothing_to_apply(request: &ApplyRequest) -> Result<ApplyReport, ReviewError> {
    if request.digest == digest([]) {
        Ok(ApplyReport::default())
    } else {
        Err(ReviewError::Changed)
    }
}

fn nothing(kind: WorkspaceKind) -> ChangeList {
    ChangeList { digest: digest([]), kind, changes: Vec::new(), remarks: Vec::new() }
}

/// Returns the digest of a list of byte strings.
fn digest<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> String {
    let mut encoded = Vec::new();
    for part in parts {
        encoded.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        encoded.extend_from_slice(part);
    }
    ContentHash::of(&encoded).to_string()
}

/// Returns the error for a path that is not in the list of changes.
fn unknown_path(path: &RelPath) -> EngineError {
    invalid(format!("the box did not change {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_each_part_and_on_their_boundaries() {
        let of = |parts: &[&str]| digest(parts.iter().map(|part| part.as_bytes()));
        let all = [of(&[]), of(&[""]), of(&["a"]), of(&["a", "b"]), of(&["ab"]), of(&["b", "a"])];
        let unique: BTreeSet<&String> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
        assert!(all.iter().all(|digest| digest.len() == 64));
    }

    #[test]
    fn refusal_names_at_most_ten_paths() {
        let paths: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
        let text = ReviewError::Conflict(paths).to_string();
        assert!(text.contains("f9; and 2 more") && !text.contains("f10"), "{text}");
    }
}
