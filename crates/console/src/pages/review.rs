//! The review of changes: the boxes with changes, and the changed files of one box with their hunks.

use std::collections::BTreeSet;

use askama::Template;
use serde::Deserialize;

use super::boxes::{BoxItem, BoxRow};
use super::html;
use crate::frame::Frame;
use crate::text::{bytes, path as path_of, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read, read_if_permitted};

/// The maximum number of pages of the list of boxes that are searched for changes.
const MAX_PAGES: usize = 10;
/// The number of files on a page, of files whose lines are shown, and of the bytes of these lines.
const FILES: &str = "100";
const SHOWN_FILES: usize = 20;
const SHOWN_BYTES: usize = 48 * 1024;

#[derive(Template)]
#[template(path = "review_list.html")]
struct ReviewList {
    frame: Frame,
    rows: Vec<BoxRow>,
    has_more: bool,
}

/// Returns the page of all boxes with changes that wait for review.
pub(super) async fn list_page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Review").await?;
    let mut rows = Vec::new();
    let mut cursor = String::new();
    for _ in 0..MAX_PAGES {
        let path = path_with("/v1/boxes", &[("limit", "200"), ("cursor", &cursor)]);
        let list: List<BoxItem> = read(api, &path).await?;
        let all = list.items.into_iter().map(|item| BoxRow::of(item, request.now));
        rows.extend(all.filter(|row| row.is_pending));
        cursor = list.next.unwrap_or_default();
        if cursor.is_empty() {
            break;
        }
    }
    html(&ReviewList { frame, rows, has_more: !cursor.is_empty() })
}

/// The changes of a box, as `GET /v1/boxes/{box}/changes` returns them.
#[derive(Debug, Deserialize)]
struct Changes {
    digest: String,
    workspace: String,
    items: Vec<Change>,
    next: Option<String>,
    remarks: Vec<Text>,
}

#[derive(Debug, Deserialize)]
struct Change {
    path: String,
    kind: Text,
    #[serde(default)]
    from: Option<Text>,
    file: Option<String>,
    size: Option<u64>,
    executable: bool,
    marks: Vec<Text>,
    #[serde(default)]
    blocked: Option<Text>,
}

/// The hunks of a file, as `GET /v1/boxes/{box}/changes/{path}` returns them.
#[derive(Debug, Deserialize)]
struct Hunks {
    hunks: Vec<Hunk>,
    #[serde(default)]
    note: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct Hunk {
    old_start: usize,
    old_lines: usize,
    new_start: usize,
    new_lines: usize,
    lines: Vec<String>,
}

/// A line of a diff.
struct Line {
    class: &'static str,
    old: Option<usize>,
    new: Option<usize>,
    sign: &'static str,
    text: Text,
}

struct ShownHunk {
    title: String,
    lines: Vec<Line>,
}

/// Why the lines of a file are not on the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// The lines are on a page of their own.
    Elsewhere,
    NotPermitted,
}

/// A changed file on the page.
struct FileView {
    /// The name of the part of the page with the lines.
    anchor: String,
    /// The path as the API has it, only for the value of an input.
    path: String,
    name: Text,
    about: String,
    marks: Vec<Text>,
    blocked: Option<Text>,
    added: usize,
    removed: usize,
    hunks: Vec<ShownHunk>,
    note: Option<Text>,
    rest: Rest,
    alone: String,
}

/// How the work of a box is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Directory,
    Branch,
}

#[derive(Template)]
#[template(path = "review.html")]
struct Review {
    frame: Frame,
    key: String,
    name: Text,
    ground: Text,
    digest: String,
    target: Target,
    is_running: bool,
    /// Whether the page shows one file only.
    is_alone: bool,
    marked: Vec<FileView>,
    plain: Vec<FileView>,
    remarks: Vec<Text>,
    next: Option<String>,
    /// Why nothing can be applied or discarded.
    refusal: Option<&'static str>,
    discard_refusal: Option<&'static str>,
}

impl Review {
    fn files(&self) -> impl Iterator<Item = &FileView> {
        self.marked.iter().chain(&self.plain)
    }

    fn count(&self) -> usize {
        self.marked.len() + self.plain.len()
    }
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let name = request.param("box");
    let frame = Frame::read(api, request, format!("Changes of {name}")).await?;
    let key = segment(name);
    let item: BoxItem = read(api, &format!("/v1/boxes/{key}")).await?;
    let cursor = request.query("cursor");
    let path =
        path_with(&format!("/v1/boxes/{key}/changes"), &[("limit", FILES), ("cursor", cursor)]);
    let changes: Changes = read(api, &path).await?;
    let alone = Some(request.query("file")).filter(|file| !file.is_empty());
    let has_next = changes.next.is_some();
    let chosen = chosen(changes.items, has_next, alone);
    let (marked, plain): (Vec<Change>, Vec<Change>) =
        chosen.into_iter().partition(|change| !change.marks.is_empty());
    let (left, left_for_file) = match alone {
        Some(_) => (usize::MAX, usize::MAX),
        None => (SHOWN_BYTES, SHOWN_BYTES / 3),
    };
    let mut reader =
        Reader { api, key: &key, cursor, left, left_for_file, files: SHOWN_FILES, count: 0 };
    let (marked, plain) = (reader.all(marked).await?, reader.all(plain).await?);
    let target = if changes.workspace == "clone" { Target::Branch } else { Target::Directory };
    let is_running = matches!(&*item.state, "running" | "paused" | "changing");
    let refusal = refusal(&frame, is_running && target == Target::Directory);
    let discard_refusal = self::refusal(&frame, is_running);
    let next =
        changes.next.map(|next| path_with(&format!("/boxes/{key}/review"), &[("cursor", &next)]));
    html(&Review {
        frame,
        name: Text::from(name),
        ground: item.workspace.map_or_else(|| Text::from("no workspace"), |ground| ground.path),
        digest: changes.digest,
        target,
        is_running,
        is_alone: alone.is_some(),
        marked,
        plain,
        remarks: changes.remarks,
        next,
        refusal,
        discard_refusal,
        key,
    })
}

/// Returns why a person can apply or discard nothing now.
fn refusal(frame: &Frame, is_running: bool) -> Option<&'static str> {
    if !frame.me.may_use() {
        return Some("Auditors cannot apply or discard changes");
    }
    is_running.then_some("Stop the box first: its changes can only be looked at while it runs")
}

/// Returns the changes that can be chosen. A directory stands for everything in it, so it can be chosen only if
/// none of its files can.
fn chosen(items: Vec<Change>, has_next: bool, alone: Option<&str>) -> Vec<Change> {
    let parents: BTreeSet<String> = items.iter().flat_map(|item| parents(&item.path)).collect();
    let count = items.len();
    let is_file = |(index, item): &(usize, Change)| {
        let may_go_on = has_next && index + 1 == count;
        let is_directory = item.file.as_deref() == Some("directory");
        !is_directory || !(parents.contains(&item.path) || may_go_on)
    };
    let files = items.into_iter().enumerate().filter(is_file).map(|(_, item)| item);
    files.filter(|item| alone.is_none_or(|path| path == item.path)).collect()
}

/// Returns all directories above a path.
fn parents(path: &str) -> Vec<String> {
    path.match_indices('/').filter_map(|(at, _)| Some(path.get(..at)?.to_owned())).collect()
}

/// Reads the lines of files until a page has enough of them.
struct Reader<'a, A> {
    api: &'a A,
    key: &'a str,
    cursor: &'a str,
    /// The number of bytes that are left on the page, and for one file.
    left: usize,
    left_for_file: usize,
    files: usize,
    count: usize,
}

impl<A: Api> Reader<'_, A> {
    async fn all(&mut self, changes: Vec<Change>) -> Result<Vec<FileView>, Refusal> {
        let mut files = Vec::with_capacity(changes.len());
        for change in changes {
            files.push(self.one(change).await?);
        }
        Ok(files)
    }

    async fn one(&mut self, change: Change) -> Result<FileView, Refusal> {
        self.count += 1;
        let is_directory = change.file.as_deref() == Some("directory");
        let mut file = FileView::of(change, self.count);
        let page = format!("/boxes/{}/review", self.key);
        file.alone = path_with(&page, &[("cursor", self.cursor), ("file", &file.path)]);
        if is_directory {
            return Ok(file);
        }
        if self.files == 0 || self.left == 0 {
            file.rest = Rest::Elsewhere;
            return Ok(file);
        }
        self.files -= 1;
        let path = format!("/v1/boxes/{}/changes/{}", self.key, path_of(&file.path));
        let Some(found) = read_if_permitted::<Hunks>(self.api, &path).await? else {
            file.rest = Rest::NotPermitted;
            return Ok(file);
        };
        file.note = found.note;
        (file.added, file.removed) = counts(&found.hunks);
        let before = self.left.min(self.left_for_file);
        let mut left = before;
        for mut hunk in found.hunks {
            let fitting = fitting(&hunk.lines, &mut left);
            if fitting < hunk.lines.len() {
                file.rest = Rest::Elsewhere;
                hunk.lines.truncate(fitting);
            }
            if fitting > 0 {
                file.hunks.push(ShownHunk::of(&hunk));
            }
            if file.rest == Rest::Elsewhere {
                break;
            }
        }
        self.left -= before - left;
        Ok(file)
    }
}

/// Returns how many lines fit into a number of bytes, and takes their bytes from it.
fn fitting(lines: &[String], left: &mut usize) -> usize {
    let fits = |line: &&String| match left.checked_sub(line.len() + 16) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    };
    lines.iter().take_while(fits).count()
}

/// Counts the added and the removed lines.
fn counts(hunks: &[Hunk]) -> (usize, usize) {
    let lines = || hunks.iter().flat_map(|hunk| &hunk.lines);
    let with = |sign| lines().filter(|line| line.starts_with(sign)).count();
    (with('+'), with('-'))
}

impl FileView {
    fn of(change: Change, number: usize) -> Self {
        let mut about = vec![change.kind.to_string()];
        about.extend(change.from.map(|from| format!("from {from}")));
        about.extend(change.file.filter(|file| file != "file"));
        about.extend(change.size.map(bytes));
        if change.executable {
            about.push("executable".to_owned());
        }
        Self {
            anchor: format!("file-{number}"),
            alone: String::new(),
            name: Text::from(change.path.as_str()),
            path: change.path,
            about: about.join(" · "),
            marks: change.marks,
            blocked: change.blocked,
            added: 0,
            removed: 0,
            hunks: Vec::new(),
            note: None,
            rest: Rest::Nothing,
        }
    }
}

impl ShownHunk {
    fn of(hunk: &Hunk) -> Self {
        let Hunk { old_start, old_lines, new_start, new_lines, .. } = hunk;
        let title = format!("@@ −{old_start},{old_lines} +{new_start},{new_lines} @@");
        let (mut old, mut new) = (*old_start, *new_start);
        let lines = hunk.lines.iter().map(|line| Line::of(line, &mut old, &mut new));
        Self { title, lines: lines.collect() }
    }
}

impl Line {
    /// Reads a line with its sign, and counts the lines of both versions.
    fn of(line: &str, old: &mut usize, new: &mut usize) -> Self {
        let take = |number: &mut usize| {
            *number += 1;
            Some(*number - 1)
        };
        let text = Text::content(line.get(1..).unwrap_or_default());
        match line.get(..1) {
            Some("+") => Self { class: "add", old: None, new: take(new), sign: "+", text },
            Some("-") => Self { class: "del", old: take(old), new: None, sign: "−", text },
            Some("\\") => {
                let text = Text::from("no line end");
                Self { class: "hunk", old: None, new: None, sign: "", text }
            }
            _ => Self { class: "", old: take(old), new: take(new), sign: "", text },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, file: &str) -> Change {
        Change {
            path: path.to_owned(),
            kind: Text::from("added"),
            from: None,
            file: Some(file.to_owned()),
            size: None,
            executable: false,
            marks: Vec::new(),
            blocked: None,
        }
    }

    #[test]
    fn directory_is_chosen_only_if_no_file_in_it_can_be_chosen() {
        let items = || {
            let all = [("a", "directory"), ("a/b", "file"), ("c", "directory")];
            all.map(|(path, file)| change(path, file)).into()
        };
        let paths = |has_next, alone| -> Vec<String> {
            chosen(items(), has_next, alone).into_iter().map(|it| it.path).collect()
        };
        assert_eq!(paths(false, None), ["a/b", "c"]);
        assert_eq!(paths(true, None), ["a/b"], "its files may be on the next page");
        assert_eq!(paths(false, Some("c")), ["c"]);
    }

    #[test]
    fn f12_lines_have_the_numbers_of_both_versions_and_no_hidden_characters() {
        let hunk = Hunk {
            old_start: 4,
            old_lines: 2,
            new_start: 7,
            new_lines: 2,
            lines: [" a", "-b", "+c\u{202e}", "\\"].map(str::to_owned).into(),
        };
        let shown = ShownHunk::of(&hunk);
        let numbers: Vec<_> = shown.lines.iter().map(|line| (line.old, line.new)).collect();
        assert_eq!(numbers, [(Some(4), Some(7)), (Some(5), None), (None, Some(8)), (None, None)]);
        assert_eq!(shown.lines[2].text.as_str(), "c\\u{202e}");
        assert_eq!(counts(&[hunk]), (1, 1));
        let lines = ["+a", "+b", "+c"].map(str::to_owned);
        let mut left = 40;
        assert_eq!((fitting(&lines, &mut left), left), (2, 4));
    }
}
