//! The difference of two texts, line by line.

use belljar_model::display::safe_line;
use similar::TextDiff;

/// The number of equal lines that are shown around a change.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// `add`, `del`, `c` for the position, or empty.
    pub(crate) class: &'static str,
    /// The line with its sign. Control characters are escapes.
    pub(crate) text: String,
}

/// Returns the changed lines of a text with some lines around them.
pub(crate) fn lines(old: &str, new: &str) -> Vec<Line> {
    let diff = TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(CONTEXT).missing_newline_hint(false).to_string();
    let line = |text: &str| {
        let class = match text.get(..1) {
            Some("+") => "add",
            Some("-") => "del",
            Some("@") => "c",
            _ => "",
        };
        Line { class, text: safe_line(text.replace('\t', "    ")) }
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_has_signs_and_shows_hidden_characters_as_escapes() {
        let found = lines("a\nb\n", "a\n\u{202e}c\n");
        let found: Vec<(&str, &str)> = found.iter().map(|it| (it.class, &*it.text)).collect();
        let expect = [("c", "@@ -1,2 +1,2 @@"), ("", " a"), ("del", "-b"), ("add", "+\\u{202e}c")];
        assert_eq!(found, expect);
        assert_eq!(lines("a", "a"), []);
    }
}
