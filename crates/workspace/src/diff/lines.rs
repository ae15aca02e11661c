//! Compares two texts line by line. Pure except for a timeout.

use std::time::{Duration, Instant};

use similar::{Algorithm, ChangeTag, DiffOp, capture_diff_slices_deadline, group_diff_ops};

/// The timeout of comparing two texts; after it the diff becomes coarser. A hostile text can be
/// slow to compare.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);
/// The timeout for a comparison that must have the same result as one within [`DIFF_TIMEOUT`].
const LONGER_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of unchanged lines that are shown around a change, as in git.
const CONTEXT: usize = 3;

/// The difference between two texts.
#[derive(Debug)]
pub(super) struct Lines {
    pub hunks: Vec<Hunk>,
    pub added: usize,
    pub removed: usize,
    /// Whether the comparison ended before its timeout, so that it has the same result every time.
    pub is_exact: bool,
}

/// A group of changed lines with their context.
#[derive(Debug)]
pub(super) struct Hunk {
    pub old_start: usize,
    pub old_len: usize,
    pub new_start: usize,
    pub new_len: usize,
    pub lines: Vec<Line>,
}

/// One line of a hunk.
#[derive(Debug)]
pub(super) struct Line {
    pub tag: ChangeTag,
    /// The content of the line without the line terminator.
    pub bytes: Vec<u8>,
    /// Whether the line is the last one and has no line terminator.
    pub unterminated: bool,
}

/// Compares two texts.
pub(super) fn compare(old: &[u8], new: &[u8]) -> Lines {
    compare_within(old, new, DIFF_TIMEOUT)
}

/// Compares two texts again whose comparison was exact.
pub(super) fn compare_longer(old: &[u8], new: &[u8]) -> Lines {
    compare_within(old, new, LONGER_TIMEOUT)
}

/// Returns the lines of a text with their terminators.
pub(super) fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').collect()
}

/// Returns the operations that make `new` from `old`. After the timeout, they become coarser.
pub(super) fn ops(old: &[u8], new: &[u8]) -> Vec<DiffOp> {
    let deadline = Instant::now().checked_add(DIFF_TIMEOUT);
    capture_diff_slices_deadline(Algorithm::Myers, &split(old), &split(new), deadline)
}

fn compare_within(old: &[u8], new: &[u8], timeout: Duration) -> Lines {
    let (old, new) = (split(old), split(new));
    let start = Instant::now();
    let deadline = start.checked_add(timeout);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let is_exact = start.elapsed() < timeout;
    let count = |tag: fn(&DiffOp) -> usize| ops.iter().map(tag).sum();
    let added = count(|op| if is_equal(op) { 0 } else { op.new_range().len() });
    let removed = count(|op| if is_equal(op) { 0 } else { op.old_range().len() });
    let hunks = group_diff_ops(ops, CONTEXT).iter().map(|group| hunk(group, &old, &new)).collect();
    Lines { hunks, added, removed, is_exact }
}

fn is_equal(op: &DiffOp) -> bool {
    matches!(op, DiffOp::Equal { .. })
}

fn hunk(group: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) -> Hunk {
    let span = |range: fn(&DiffOp) -> std::ops::Range<usize>| {
        let start = group.first().map_or(0, |op| range(op).start);
        let end = group.last().map_or(0, |op| range(op).end);
        // An empty side is written as the line before it: `-0,0`.
        (if start == end { start } else { start + 1 }, end - start)
    };
    let (old_start, old_len) = span(DiffOp::old_range);
    let (new_start, new_len) = span(DiffOp::new_range);
    let mut lines = Vec::new();
    for op in group {
        if is_equal(op) {
            push_lines(&mut lines, ChangeTag::Equal, old, op.old_range());
        } else {
            push_lines(&mut lines, ChangeTag::Delete, old, op.old_range());
            push_lines(&mut lines, ChangeTag::Insert, new, op.new_range());
        }
    }
    Hunk { old_start, old_len, new_start, new_len, lines }
}

fn push_lines(
    lines: &mut Vec<Line>,
    tag: ChangeTag,
    from: &[&[u8]],
    range: std::ops::Range<usize>,
) {
    for line in from.get(range).unwrap_or_default() {
        let (bytes, unterminated) = match line.strip_suffix(b"\n") {
            Some(bytes) => (bytes, false),
            None => (*line, true),
        };
        lines.push(Line { tag, bytes: bytes.to_vec(), unterminated });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(old: &str, new: &str) -> (usize, usize, usize) {
        let lines = compare(old.as_bytes(), new.as_bytes());
        (lines.added, lines.removed, lines.hunks.len())
    }

    #[test]
    fn line_diff_counts_added_and_removed_lines() {
        assert_eq!(counts("a\nb\n", "a\nb\n"), (0, 0, 0));
        assert_eq!(counts("", "a\nb"), (2, 0, 1));
        assert_eq!(counts("a\nb\n", "a\nc\n"), (1, 1, 1));
        assert_eq!(counts("a", "a\n"), (1, 1, 1));
    }

    #[test]
    fn line_diff_ends_in_time_on_texts_that_are_slow_to_compare() {
        let text = |step: usize| -> String {
            (0..300_000).map(|n| format!("{}\n", (n * step) % 7919)).collect()
        };
        let lines = compare(text(3).as_bytes(), text(5).as_bytes());
        assert!(!lines.hunks.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn lengths_in_hunk_headers_match_the_lines_of_the_hunks(old in "[ab\n]{0,40}", new in "[ab\n]{0,40}") {
            let lines = compare(old.as_bytes(), new.as_bytes());
            let came = |tag| lines.hunks.iter().flat_map(|hunk| &hunk.lines).filter(|l| l.tag == tag).count();
            proptest::prop_assert_eq!(came(ChangeTag::Insert), lines.added);
            proptest::prop_assert_eq!(came(ChangeTag::Delete), lines.removed);
            for hunk in &lines.hunks {
                let old = hunk.lines.iter().filter(|line| line.tag != ChangeTag::Insert).count();
                let new = hunk.lines.iter().filter(|line| line.tag != ChangeTag::Delete).count();
                proptest::prop_assert_eq!((old, new), (hunk.old_len, hunk.new_len));
            }
            proptest::prop_assert_eq!(lines.hunks.is_empty(), old == new);
        }
    }
}
