//! Changes of a box in its private clone, which are applied to a branch of the repository.
//!
//! A branch has all commits or none, so single files and hunks cannot be chosen, and each marked file must be
//! named.

use std::os::unix::ffi::OsStrExt as _;

use belljar_model::display;
use belljar_workspace::{FileHunk, FileHunks, HunkLine, LineKind, Pattern, Pick, RelPath};

use super::{
    AppliedChange, AppliedResult, ApplyReport, ApplyRequest, ChangeHunks, ChangeList, ListedChange,
    ReviewError, WorkspaceKind, digest, nothing, unknown_path,
};
use crate::box_store::NamedBox;
use crate::clones::{self, DiffStyle, FileChange, Work};
use crate::error::{EngineError, ErrorKind};
use crate::review::cloned;
use crate::scope::Scoped;

pub(super) fn changes(state: &Scoped, named_box: &NamedBox) -> Result<ChangeList, EngineError> {
    let (_, work) = cloned::read(state, named_box)?;
    let Some(work) = work else { return Ok(nothing(WorkspaceKind::Clone)) };
    Ok(ChangeList {
        digest: digest_of(&work),
        kind: WorkspaceKind::Clone,
        changes: work.files.iter().filter_map(listed).collect(),
        remarks: work.remarks.clone(),
    })
}

fn digest_of(work: &Work) -> String {
    if work.is_empty() {
        return digest([]);
    }
    digest([work.base.as_bytes(), work.tip.as_bytes()])
}

/// Describes a changed file. git never lists a path that leaves the repository.
fn listed(file: &FileChange) -> Option<ListedChange> {
    Some(ListedChange {
        path: RelPath::new(file.path.as_os_str().as_bytes()).ok()?,
        kind: file.kind.name(),
        from: None,
        file: None,
        size: None,
        executable: file.risky.as_deref() == Some("a new executable file"),
        marks: file.risky.iter().cloned().collect(),
        blocked: file.denied.clone(),
    })
}

pub(super) fn hunks(
    state: &Scoped,
    named_box: &NamedBox,
    path: &RelPath,
) -> Result<Option<ChangeHunks>, EngineError> {
    let (_, work) = cloned::read(state, named_box)?;
    let Some(work) = work else { return Ok(None) };
    let file = work.files.iter().find(|file| file.path.as_os_str() == path.as_os_str());
    let Some((file, change)) = file.and_then(|file| Some((file, listed(file)?))) else {
        return Ok(None);
    };
    let style = DiffStyle { stat: false, colour: false, paths: &[file.path.as_path()] };
    let hunks = parse(&clones::diff(&work, style)?);
    let note = hunks.is_empty().then_some("the file has no changed lines to show");
    let hunks = FileHunks { hunks, can_choose: false, note };
    Ok(Some(ChangeHunks { digest: digest_of(&work), change, hunks }))
}

/// Parses the hunks of a diff that git wrote.
fn parse(diff: &str) -> Vec<FileHunk> {
    let mut hunks: Vec<FileHunk> = Vec::new();
    for line in diff.lines() {
        if let Some(head) = line.strip_prefix("@@ ") {
            hunks.extend(parse_head(head));
            continue;
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        let (kind, text) = match line.split_at_checked(1) {
            Some((" ", text)) => (LineKind::Context, text),
            Some(("-", text)) => (LineKind::Removed, text),
            Some(("+", text)) => (LineKind::Added, text),
            Some(("\\", _)) => {
                if let Some(line) = hunk.lines.last_mut() {
                    line.unterminated = true;
                }
                continue;
            }
            Some(_) | None => continue,
        };
        hunk.lines.push(HunkLine { kind, bytes: text.as_bytes().to_vec(), unterminated: false });
    }
    hunks
}

/// Parses the numbers of lines in the head of a hunk, such as `-1,3 +1,4 @@`.
fn parse_head(head: &str) -> Option<FileHunk> {
    let mut parts = head.split(' ');
    let mut side = |sign: char| {
        let text = parts.next()?.strip_prefix(sign)?;
        let (start, length) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, length.parse().ok()?))
    };
    Some(FileHunk { old: side('-')?, new: side('+')?, lines: Vec::new() })
}

pub(super) fn apply(
    state: &Scoped,
    named_box: &NamedBox,
    request: &ApplyRequest,
) -> Result<ApplyReport, ReviewError> {
    if !request.paths.is_empty() || !request.hunks.is_empty() {
        let text = "the work of a box with a clone becomes commits on a branch; choose files when you merge that branch";
        return Err(EngineError::message(ErrorKind::WrongState, text).into());
    }
    let _lock = named_box.lock_for_change()?;
    let (at, work) = cloned::read(state, named_box)?;
    let found = work.as_ref().map_or_else(|| digest([]), digest_of);
    if found != request.digest {
        return Err(ReviewError::Changed);
    }
    let Some(work) = work.filter(|work| !work.is_empty()) else {
        return Ok(ApplyReport::default());
    };
    check_marks(&work, request)?;
    let default = clones::default_branch(named_box.name());
    let branch = request.branch.clone().unwrap_or(default);
    cloned::apply(state, named_box, at, &work, &branch)?;
    let applied = |change: ListedChange| AppliedChange {
        path: change.path,
        result: AppliedResult::Applied,
        why: None,
    };
    let entries = work.files.iter().filter_map(listed).map(applied).collect();
    Ok(ApplyReport { entries, branch: Some(branch), has_more: work.has_other_branches })
}

/// Refuses denied files, and marked files that are not named: a branch cannot leave a file out.
fn check_marks(work: &Work, request: &ApplyRequest) -> Result<(), ReviewError> {
    let all: Vec<ListedChange> = work.files.iter().filter_map(listed).collect();
    let is_known =
        |path: &&RelPath| all.iter().any(|change: &ListedChange| change.path.is_within(path));
    if let Some(path) = request.include_executable.iter().find(|path| !is_known(path)) {
        return Err(unknown_path(path).into());
    }
    let denied = all.iter().find_map(|change| Some((change, change.blocked.as_ref()?)));
    if let Some((change, why)) = denied {
        let text = format!("{}: {why}", display::safe(change.path.as_bytes()));
        return Err(EngineError::message(ErrorKind::Refused, text).into());
    }
    let named = request.include_executable.iter().map(Pattern::literal);
    let named = Pick::These(named.collect());
    let marked =
        all.iter().filter(|change| !change.marks.is_empty() && !named.matches(&change.path));
    let marked: Vec<String> = marked
        .map(|change| {
            format!("{} ({})", display::safe(change.path.as_bytes()), change.marks.join(", "))
        })
        .collect();
    if marked.is_empty() { Ok(()) } else { Err(ReviewError::Marked(marked)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_of_a_diff_of_git_are_parsed() {
        let diff = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ fn a\n \
                    one\n-two\n+@@ 2\n+three\n@@ -9 +10 @@\n-x\n+x\n\\ No newline at end of file\n";
        let hunks = parse(diff);
        assert_eq!(hunks.len(), 2);
        assert_eq!((hunks[0].old, hunks[0].new), ((1, 2), (1, 3)));
        let lines: Vec<(LineKind, &[u8])> =
            hunks[0].lines.iter().map(|line| (line.kind, line.bytes.as_slice())).collect();
        let expected: [(LineKind, &[u8]); 4] = [
            (LineKind::Context, b"one"),
            (LineKind::Removed, b"two"),
            (LineKind::Added, b"@@ 2"),
            (LineKind::Added, b"three"),
        ];
        assert_eq!(lines, expected);
        assert_eq!((hunks[1].old, hunks[1].new), ((9, 1), (10, 1)));
        assert!(hunks[1].lines[1].unterminated && !hunks[1].lines[0].unterminated);
        assert!(parse("Binary files a/x and b/x differ\n").is_empty());
    }
}
