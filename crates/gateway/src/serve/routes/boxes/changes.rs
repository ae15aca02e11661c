//! The routes of the changes of a box: list them, show their hunks, apply and discard them.
//!
//! A list and hunks have the digest of all changes. Apply and discard name it, so that nobody applies what
//! nobody has seen.

use std::collections::{BTreeMap, BTreeSet};

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::review::by_digest::{
    self, AppliedChange, AppliedResult, ApplyReport, ApplyRequest, ChangeHunks, ChangeList,
    FileHunk, HunkLine, LineKind, ListedChange, RelPath, ReviewError, WorkspaceKind,
};
use belljar_model::display;
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::with_box;
use crate::serve::access::Act;
use crate::serve::call::{Call, empty_response, json_response};
use crate::serve::filter::Filter;
use crate::serve::json;
use crate::serve::page::PageParameters;
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::routes::{Access, Operation, Routes};

/// The name of the list in its cursors.
const CHANGES: &str = "changes";
/// The keys of the filter of the list.
const KEYS: [&str; 2] = ["kind", "marked"];
/// The number of segments before the path of a change.
const PREFIX: usize = 4;
/// The maximum number of paths in a request.
const MAX_PATHS: usize = 10_000;
/// The maximum number of lines in the hunks of a response.
const MAX_LINES: usize = 20_000;
/// The maximum length of a line in a response, in bytes.
const MAX_LINE: usize = 4096;

/// The problems of routes that apply or discard changes.
const REVIEW: &[ProblemKind] = &[
    ProblemKind::CHANGED,
    ProblemKind::CONFLICT,
    ProblemKind::MARKED,
    ProblemKind::WRONG_STATE,
    ProblemKind::BUSY,
];

pub(super) fn add(routes: Routes) -> Routes {
    let apply_access = Access::For(Act::ApplyChanges);
    routes
        .add(
            Operation::get("/v1/boxes/{box}/changes", Access::For(Act::SeeBoxes))
                .about(
                    "Lists the changes of a box by path; the filter has the keys kind and marked",
                )
                .query::<PageParameters>()
                .returns::<ChangesView>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::BUSY]),
            list,
        )
        .add(
            Operation::get("/v1/boxes/{box}/changes/{*path}", Access::For(Act::UseBoxes))
                // These paths are routes of their own with another method.
                .also_at(&["/v1/boxes/{box}/changes/apply", "/v1/boxes/{box}/changes/discard"])
                .about("Shows the hunks of a changed file, whose path starts at the workspace")
                .returns::<HunksView>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::BUSY]),
            show,
        )
        .add(
            Operation::post("/v1/boxes/{box}/changes/apply", apply_access)
                .about("Applies changes of a box to its directory, or its commits to a branch")
                .body::<ApplyBody>()
                .with_language()
                .returns::<ApplyView>(StatusCode::OK)
                .problems(REVIEW),
            apply,
        )
        .add(
            Operation::post("/v1/boxes/{box}/changes/discard", apply_access)
                .about(
                    "Moves all changes of a stopped box to the trash, where they stay for 14 days",
                )
                .body::<DiscardBody>()
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(REVIEW),
            discard,
        )
}

/// A page of the changes of a box. It has no more pages if `next` is null.
#[derive(Serialize, JsonSchema)]
struct ChangesView {
    /// Identifies all changes of the box.
    digest: String,
    /// `overlay`, `clone` or `none`.
    workspace: &'static str,
    items: Vec<ChangeView>,
    next: Option<String>,
    /// Sentences for people about changes that are not in the list.
    remarks: Vec<String>,
}

/// A changed path.
#[derive(Serialize, JsonSchema)]
struct ChangeView {
    #[serde(flatten)]
    path: PathView,
    /// `added`, `modified`, `deleted`, `mode-changed`, `type-changed` or `renamed`.
    kind: &'static str,
    /// The path that a renamed file had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// `file`, `directory`, `symlink` or `special`; null if it is not known.
    file: Option<&'static str>,
    /// The size in the box in bytes; null for a deleted file, or if it is not known.
    size: Option<u64>,
    /// Whether the file is executable in the box.
    executable: bool,
    /// Why the change must be named in `include_executable`.
    marks: Vec<String>,
    /// Why the change cannot be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
}

/// The path of a change in the workspace.
#[derive(Serialize, JsonSchema)]
struct PathView {
    /// The path with `\\` for a backslash and `\xNN` for a byte that is not UTF-8.
    path: String,
    /// The path as bytes in Base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
}

impl PathView {
    fn of(path: &RelPath) -> Self {
        let bytes = path.as_bytes();
        let is_text = std::str::from_utf8(bytes).is_ok();
        Self { path: path.clone().into(), path_b64: (!is_text).then(|| STANDARD.encode(bytes)) }
    }
}

impl ChangeView {
    fn of(change: ListedChange) -> Self {
        Self {
            path: PathView::of(&change.path),
            kind: change.kind,
            from: change.from.map(String::from),
            file: change.file,
            size: change.size,
            executable: change.executable,
            marks: change.marks,
            blocked: change.blocked,
        }
    }

    fn matches(&self, filter: &Filter) -> bool {
        let path = self.path.path.to_ascii_lowercase();
        let marked = if self.marks.is_empty() { "no" } else { "yes" };
        let value = |key: &str| match key {
            "kind" => self.kind,
            "marked" => marked,
            _ => "",
        };
        filter.texts().iter().all(|text| path.contains(text)) && filter.has_terms(value)
    }

    /// Returns a short key for cursors, because a path can be long.
    fn key(&self) -> String {
        hex::encode(Sha256::digest(&self.path.path))
    }
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(CHANGES)?;
    let read = |state: &_, found: belljar_engine::box_store::NamedBox| {
        by_digest::changes(state, &found).map_err(of_state)
    };
    let ChangeList { digest, kind, changes, remarks } = with_box(&call, read).await?;
    let filter = Filter::parse(page.q.as_deref(), &KEYS);
    let views = changes.into_iter().map(ChangeView::of).filter(|view| view.matches(&filter));
    let slice = page.slice(views, ChangeView::key);
    let next = slice.last.map(|last| call.cursor(CHANGES, &last)).transpose()?;
    let workspace = match kind {
        WorkspaceKind::Nothing => "none",
        WorkspaceKind::Overlay => "overlay",
        WorkspaceKind::Clone => "clone",
    };
    let view = ChangesView { digest, workspace, items: slice.items, next, remarks };
    json_response(StatusCode::OK, &view)
}

/// The hunks of a changed file.
#[derive(Serialize, JsonSchema)]
struct HunksView {
    /// The digest of all changes of the box. The numbers of the hunks belong to it.
    digest: String,
    change: ChangeView,
    hunks: Vec<HunkView>,
    /// Whether single hunks can be applied.
    can_choose: bool,
    /// Why there are no hunks, or that some are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A group of changed lines with their context.
#[derive(Serialize, JsonSchema)]
struct HunkView {
    number: usize,
    /// The first line in the host's version, from 1.
    old_start: usize,
    old_lines: usize,
    /// The first line in the box's version, from 1.
    new_start: usize,
    new_lines: usize,
    /// The lines, each after ` `, `-` or `+`. The line `\` marks a line without a line terminator.
    lines: Vec<String>,
}

impl HunkView {
    fn of((index, hunk): (usize, &FileHunk)) -> Self {
        let line = |line: &HunkLine| {
            let sign = match line.kind {
                LineKind::Context => ' ',
                LineKind::Removed => '-',
                LineKind::Added => '+',
            };
            let text = match line.bytes.get(..MAX_LINE) {
                Some(start) if line.bytes.len() > MAX_LINE => {
                    format!("{} … ({} bytes)", display::safe_multiline(start), line.bytes.len())
                }
                Some(_) | None => display::safe_multiline(&line.bytes),
            };
            let end = line.unterminated.then(|| "\\".to_owned());
            std::iter::once(format!("{sign}{text}")).chain(end)
        };
        Self {
            number: index + 1,
            old_start: hunk.old.0,
            old_lines: hunk.old.1,
            new_start: hunk.new.0,
            new_lines: hunk.new.1,
            lines: hunk.lines.iter().flat_map(line).collect(),
        }
    }
}

async fn show(call: Call) -> Result<Response, Problem> {
    let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the box did not change this path");
    let path = RelPath::new(call.rest_of_path(PREFIX)?).map_err(|_| unknown())?;
    let found = with_box(&call, move |state, found| {
        by_digest::hunks(state, &found, &path).map_err(of_state)
    });
    let ChangeHunks { digest, change, hunks } = found.await?.ok_or_else(unknown)?;
    let mut lines = 0;
    let fits = |(_, hunk): &(usize, &FileHunk)| {
        lines += hunk.lines.len();
        lines <= MAX_LINES
    };
    let shown = hunks.hunks.iter().enumerate().take_while(fits);
    let shown: Vec<HunkView> = shown.map(HunkView::of).collect();
    let is_cut = shown.len() < hunks.hunks.len();
    let cut = format!("only {} of {} hunks are shown", shown.len(), hunks.hunks.len());
    let view = HunksView {
        digest,
        change: ChangeView::of(change),
        can_choose: hunks.can_choose,
        note: hunks.note.map(str::to_owned).or_else(|| is_cut.then_some(cut)),
        hunks: shown,
    };
    json_response(StatusCode::OK, &view)
}

/// The changes to apply. With neither `paths` nor `hunks`, these are all changes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApplyBody {
    /// The digest of the changes that were reviewed.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    digest: String,
    /// Changed files and directories, as in the list. A directory stands for everything in it.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_paths")]
    paths: Option<Vec<String>>,
    /// Single hunks of files.
    hunks: Option<Vec<HunkChoice>>,
    /// The marked changes that are applied too.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_paths")]
    include_executable: Option<Vec<String>>,
    /// The branch for the commits of a box with a clone.
    #[schemars(regex(pattern = r"^[!-~]{1,255}$"))]
    to: Option<String>,
}

/// Hunks of a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HunkChoice {
    #[schemars(length(min = 1, max = 16_384))]
    path: String,
    /// The numbers of the hunks.
    #[serde(deserialize_with = "json::integers")]
    #[schemars(length(min = 1, max = 10_000), inner(range(min = 1, max = 1_000_000)))]
    numbers: Vec<u32>,
}

fn schema_of_paths(_: &mut SchemaGenerator) -> Schema {
    let path = json_schema!({ "type": "string", "minLength": 1, "maxLength": 16_384 });
    json_schema!({ "type": ["array", "null"], "maxItems": MAX_PATHS, "items": path })
}

impl ApplyBody {
    fn request(self) -> Result<ApplyRequest, Problem> {
        let mut hunks: BTreeMap<RelPath, BTreeSet<usize>> = BTreeMap::new();
        for (index, HunkChoice { path, numbers }) in
            self.hunks.unwrap_or_default().into_iter().enumerate()
        {
            let pointer = format!("/hunks/{index}");
            let is_valid = !numbers.is_empty() && numbers.iter().all(|number| *number > 0);
            if !is_valid {
                let detail = "`numbers` must have at least one number, and numbers start at 1";
                return Err(Problem::invalid(detail).field(format!("{pointer}/numbers")));
            }
            let path = parsed_path(path, &format!("{pointer}/path"))?;
            let numbers = numbers.into_iter().filter_map(|number| usize::try_from(number).ok());
            hunks.entry(path).or_default().extend(numbers);
        }
        let paths = parsed_paths(self.paths, "/paths")?;
        if let Some(index) = paths.iter().position(|path| hunks.contains_key(path)) {
            let detail = "the path is in `hunks` too; name it once";
            return Err(Problem::invalid(detail).field(format!("/paths/{index}")));
        }
        Ok(ApplyRequest {
            digest: digest(self.digest)?,
            paths,
            hunks,
            include_executable: parsed_paths(self.include_executable, "/include_executable")?,
            branch: self.to,
        })
    }
}

fn digest(text: String) -> Result<String, Problem> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == 64 && is_hex {
        return Ok(text);
    }
    Err(Problem::invalid("`digest` must have 64 characters of 0-9 and a-f").field("/digest"))
}

fn parsed_path(text: String, pointer: &str) -> Result<RelPath, Problem> {
    let invalid = |detail: String| Problem::invalid(detail).field(pointer);
    let path = RelPath::try_from(text).map_err(|error| invalid(error.to_string()))?;
    if path.is_root() { Err(invalid("the path is empty".to_owned())) } else { Ok(path) }
}

fn parsed_paths(texts: Option<Vec<String>>, field: &str) -> Result<Vec<RelPath>, Problem> {
    let texts = texts.unwrap_or_default();
    if texts.len() > MAX_PATHS {
        let detail = format!("at most {MAX_PATHS} items are permitted");
        return Err(Problem::invalid(detail).field(field));
    }
    let parse = |(index, text)| parsed_path(text, &format!("{field}/{index}"));
    texts.into_iter().enumerate().map(parse).collect()
}

/// What an apply did.
#[derive(Serialize, JsonSchema)]
struct ApplyView {
    /// The number of changes that the host has now.
    applied: usize,
    /// The chosen changes.
    items: Vec<AppliedView>,
    /// The branch that has the commits of a clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    /// Whether the box has changes left that are not on the host.
    has_more: bool,
}

/// What an apply did with one change.
#[derive(Serialize, JsonSchema)]
struct AppliedView {
    #[serde(flatten)]
    path: PathView,
    /// `applied`, `already-there`, `left-out`, `conflict` or `failed`.
    result: &'static str,
    /// Why the change was not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl ApplyView {
    fn of(report: ApplyReport) -> Self {
        let is_there = |change: &&AppliedChange| {
            matches!(change.result, AppliedResult::Applied | AppliedResult::AlreadyThere)
        };
        let applied = report.entries.iter().filter(is_there).count();
        let chosen = report.entries.into_iter().filter(|it| it.result != AppliedResult::NotChosen);
        let items = chosen.map(|change| AppliedView {
            path: PathView::of(&change.path),
            result: change.result.name(),
            why: change.why,
        });
        Self { applied, items: items.collect(), branch: report.branch, has_more: report.has_more }
    }
}

async fn apply(call: Call) -> Result<Response, Problem> {
    let request = call.json::<ApplyBody>()?.request()?;
    let mut record = call.change("changes.applied", call.param("box")?)?;
    record.details = vec![format!("digest {}", request.digest)];
    let app = call.app.clone();
    let applied = with_box(&call, move |state, found| {
        record.record(&app)?;
        by_digest::apply(state, &found, &request).map_err(refused)
    })
    .await;
    call.tenant()?.boxes.expire();
    json_response(StatusCode::OK, &ApplyView::of(applied?))
}

/// The changes to discard: all of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiscardBody {
    /// The digest of the changes that were reviewed.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    digest: String,
}

async fn discard(call: Call) -> Result<Response, Problem> {
    let digest = digest(call.json::<DiscardBody>()?.digest)?;
    let mut record = call.change("changes.discarded", call.param("box")?)?;
    record.details = vec![format!("digest {digest}")];
    let app = call.app.clone();
    let discarded = with_box(&call, move |state, found| {
        record.record(&app)?;
        by_digest::discard(state, &found, &digest).map_err(refused)
    })
    .await;
    call.tenant()?.boxes.expire();
    discarded.map(|_| empty_response())
}

fn refused(error: ReviewError) -> Problem {
    let detail = error.to_string();
    match error {
        ReviewError::Changed => Problem::new(ProblemKind::CHANGED, detail).field("/digest"),
        ReviewError::Conflict(_) => Problem::new(ProblemKind::CONFLICT, detail),
        ReviewError::Marked(_) => {
            Problem::new(ProblemKind::MARKED, detail).field("/include_executable")
        }
        ReviewError::Engine(error) => of_state(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Result<ApplyRequest, Problem> {
        json::parse::<ApplyBody>(body.as_bytes()).and_then(ApplyBody::request)
    }

    #[test]
    fn apply_request_takes_escaped_paths_and_hunks_and_refuses_a_path_in_both() {
        let digest = "ab".repeat(32);
        let parsed = request(&format!(
            r#"{{"digest":"{digest}","paths":["a\\xff","b"],"hunks":[{{"path":"c","numbers":[2,1.0]}}]}}"#
        ));
        let parsed = parsed.unwrap();
        assert_eq!(parsed.paths, [RelPath::new(b"a\xff").unwrap(), RelPath::new("b").unwrap()]);
        assert_eq!(parsed.hunks[&RelPath::new("c").unwrap()], BTreeSet::from([1, 2]));
        for (rest, field) in [
            (r#","paths":["../x"]"#, "/paths/0"),
            (r#","paths":["a","/etc"]"#, "/paths/1"),
            (r#","paths":["."]"#, "/paths/0"),
            (r#","include_executable":["\\q"]"#, "/include_executable/0"),
            (r#","hunks":[{"path":"a","numbers":[]}]"#, "/hunks/0/numbers"),
            (r#","hunks":[{"path":"a","numbers":[0]}]"#, "/hunks/0/numbers"),
            (r#","paths":["a"],"hunks":[{"path":"a","numbers":[1]}]"#, "/paths/0"),
        ] {
            let problem = request(&format!(r#"{{"digest":"{digest}"{rest}}}"#)).unwrap_err();
            let shown = format!("{problem:?}");
            assert!(problem.kind == ProblemKind::INVALID && shown.contains(field), "{shown}");
        }
        for digest in ["", "AB", &"AB".repeat(32), &"g".repeat(64)] {
            let problem = request(&format!(r#"{{"digest":"{digest}"}}"#)).unwrap_err();
            assert!(format!("{problem:?}").contains("/digest"), "{problem:?}");
        }
    }

    #[test]
    fn f12_lines_of_a_hunk_are_shown_without_control_characters_and_with_a_maximum_length() {
        let line = |kind, bytes: &[u8], unterminated| HunkLine {
            kind,
            bytes: bytes.to_vec(),
            unterminated,
        };
        let hunk = FileHunk {
            old: (1, 1),
            new: (1, 2),
            lines: vec![
                line(LineKind::Removed, b"\x1b[31mred", false),
                line(LineKind::Added, "a\u{202e}b".as_bytes(), false),
                line(LineKind::Added, &[b'x'; MAX_LINE + 1], true),
            ],
        };
        let view = HunkView::of((0, &hunk));
        let is_hidden = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!view.lines.iter().any(|line| line.contains(is_hidden)), "{:?}", view.lines);
        assert!(view.lines[2].ends_with("… (4097 bytes)"), "{}", view.lines[2]);
        assert_eq!(view.lines[3], "\\");
    }
}
