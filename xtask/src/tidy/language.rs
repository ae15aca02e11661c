//! Rules for the language of tests, comments, messages and documents; see `CONTRIBUTING.md`.
//!
//! A test name must not start with a question word, because such names are riddles. Prose must not use
//! the coined words of earlier versions, because the glossary has one term for each thing.

use super::File;
use super::scan::{prose_only, tests, tokens};

/// First words of test names that are refused.
const QUESTION_WORDS: [&str; 5] = ["what", "who", "where", "whoever", "whatever"];

/// A word that prose must not use.
struct CoinedWord {
    /// All forms of the word, in lower case.
    forms: &'static [&'static str],
    /// The term to write instead.
    instead: &'static str,
    /// Words that make the coined word legitimate if they are on the same line, in lower case.
    unless: &'static [&'static str],
}

const COINED_WORDS: &[CoinedWord] = &[
    coined(&["keeper", "keepers"], "supervisor"),
    CoinedWord {
        // Screens of terminals and tables have cells.
        unless: &["screen", "screens", "terminal", "terminals", "table", "tables"],
        ..coined(&["cell", "cells"], "supervisor")
    },
    coined(&["workshop", "workshops"], "programs of a server"),
    coined(&["lever", "levers"], "broker control"),
    coined(&["tape", "tapes"], "output recorder"),
    coined(&["outlet", "outlets"], "network configuration"),
    coined(&["shelf", "shelves"], "pool of warm boxes"),
    coined(&["clerk", "clerks"], "broker recorder"),
    coined(&["farewell", "farewells"], "shutdown timeout"),
];

/// Files that may use coined words: this file, and decision records about the renaming of a thing.
const EXCEPTIONS: [&str; 4] = [
    "docs/adr/0012-programs-in-workers.md",
    "docs/adr/0014-named-boxes.md",
    "docs/adr/0018-one-supervisor.md",
    "xtask/src/tidy/language.rs",
];

const fn coined(forms: &'static [&'static str], instead: &'static str) -> CoinedWord {
    CoinedWord { forms, instead, unless: &[] }
}

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        if file.is_rust() {
            complaints.extend(test_names(file));
        }
        if !EXCEPTIONS.contains(&file.path.as_str()) {
            complaints.extend(coined_words(file));
        }
    }
    complaints
}

/// Finds tests whose name starts with a question word, after the ids of attacks.
fn test_names(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for test in tests(&tokens(&file.code)) {
        let first = test.text.split('_').find(|part| !is_attack_id(part)).unwrap_or_default();
        if QUESTION_WORDS.contains(&first) {
            complaints.push(format!(
                "{}:{}: the name of test `{}` starts with \"{first}\"; name the unit, the condition and the result",
                file.path, test.line, test.text
            ));
        }
    }
    complaints
}

/// Whether a part of a test name is the id of an attack, such as `c10`.
fn is_attack_id(part: &str) -> bool {
    let mut chars = part.chars();
    part.len() == 3
        && chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_digit())
}

/// Finds coined words in the comments and literals of Rust files, and in documents.
fn coined_words(file: &File) -> Vec<String> {
    let is_document = file.is_markdown() && file.path.starts_with("docs/")
        || ["README.md", "CONTRIBUTING.md"].contains(&file.path.as_str());
    let is_code =
        file.is_rust() && (file.path.starts_with("crates/") || file.path.starts_with("xtask/"));
    if is_document {
        complaints_about(&file.path, without_examples(&file.text))
    } else if is_code {
        let prose = prose_only(&file.text, &file.code);
        complaints_about(&file.path, prose.lines().map(str::to_owned).enumerate())
    } else {
        Vec::new()
    }
}

/// Returns the lines of a document, except rows of a table with the column `instead of`.
fn without_examples(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut is_example = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        is_example = line.starts_with('|') && (is_example || line.starts_with("| instead of |"));
        (!is_example).then(|| (index, line.to_owned()))
    })
}

fn complaints_about(path: &str, lines: impl Iterator<Item = (usize, String)>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in lines {
        // An escape sequence in a literal ends a word.
        let line = line.replace("\\n", "  ").replace("\\t", "  ");
        let words = words(&line);
        for word in &words {
            let lower = word.to_lowercase();
            let found = COINED_WORDS.iter().find(|coined| coined.forms.contains(&lower.as_str()));
            let Some(CoinedWord { instead, unless, .. }) = found else { continue };
            if !words.iter().any(|other| unless.contains(&other.to_lowercase().as_str())) {
                complaints.push(format!(
                    "{path}:{}: \"{word}\" is not a term of this project; write \"{instead}\"",
                    index + 1
                ));
            }
        }
    }
    complaints
}

/// Returns the words of a line, without names: file names, identifiers, words in backticks and
/// arguments of format strings.
fn words(line: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let mut words = Vec::new();
    let mut end = 0;
    while let Some(length) = line.get(end..).and_then(|rest| rest.find(is_name)) {
        let start = end + length;
        let rest = line.get(start..).unwrap_or_default();
        end = start + rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        let after = line.get(end..).and_then(|text| text.chars().next());
        let is_code = matches!((before, after), (Some('`'), Some('`')))
            || matches!((before, after), (Some('{'), Some('}' | ':')));
        let word = line.get(start..end).unwrap_or_default().trim_matches(['-', '.', '/']);
        if !is_code && !word.is_empty() {
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn complaints(path: &str, text: &str, expect: &[&str]) {
        assert_eq!(check(&[File::new(path, text.to_owned())]), expect);
    }

    #[test]
    fn test_names_that_start_with_a_question_word_are_refused() {
        for name in ["what_is_lost", "a29_who_asks", "h04_h12_where_it_is", "whatever_comes"] {
            let (_, word) = name.rsplit_once("h12_").unwrap_or(("", name));
            let word = word.trim_start_matches("a29_").split('_').next().unwrap();
            let expect = format!(
                "crates/a/tests/a.rs:2: the name of test `{name}` starts with \"{word}\"; name the unit, the condition and the result"
            );
            complaints("crates/a/tests/a.rs", &format!("#[test]\nfn {name}() {{}}"), &[&expect]);
            let code = format!("#[tokio::test]\nasync fn {name}() {{}}");
            complaints("crates/a/tests/a.rs", &code, &[&expect]);
        }
    }

    #[test]
    fn other_test_names_and_other_functions_may_have_question_words() {
        for code in [
            "#[test] fn find_says_what_is_missing() {}",
            "#[test] fn whole_files_are_kept() {}",
            "#[test] fn c10_links_are_not_followed() {}",
            "fn what_is_lost() {}",
        ] {
            complaints("crates/a/src/a.rs", code, &[]);
        }
    }

    #[test]
    fn coined_words_are_refused_in_comments_and_literals_of_code() {
        let expect = |line: usize, word: &str, instead: &str| {
            format!(
                "crates/a/src/a.rs:{line}: \"{word}\" is not a term of this project; write \"{instead}\""
            )
        };
        let code = "/// Waits for the keeper.\nfn f() {}\n// Cells, too.\nconst A: &str = \"the\\nshelf's end\";";
        complaints(
            "crates/a/src/a.rs",
            code,
            &[
                &expect(1, "keeper", "supervisor"),
                &expect(3, "Cells", "supervisor"),
                &expect(4, "shelf", "pool of warm boxes"),
            ],
        );
        complaints("fuzz/src/a.rs", code, &[]);
    }

    #[test]
    fn identifiers_and_file_names_are_not_refused_as_coined_words() {
        for code in [
            "fn f(keeper: RefCell<Cell<u8>>) { std::cell::Cell::new(tape) }",
            "// The log is `boxes/NAME/keeper.log`, of a process `belljar-keeper`.",
            "// A [`Cell`] holds it. See keeper.log and docs/cells.md.",
            "fn f() { panic!(\"no box of {keeper} or {cell:?}\") }",
            "// The cells of a screen, and of a table.",
            "// see a17_a_killed_keeper_ends",
        ] {
            complaints("crates/a/src/a.rs", code, &[]);
        }
    }

    #[test]
    fn coined_words_are_refused_in_documents_except_in_the_table_of_bad_examples() {
        let expect =
            "docs/a/b.md:3: \"clerk\" is not a term of this project; write \"broker recorder\"";
        complaints("docs/a/b.md", "# Title\n\nThe clerk's log.\n", &[expect]);
        complaints("CHANGELOG.md", "The clerk's log.\n", &[]);
        complaints("docs/adr/0018-one-supervisor.md", "A box had a keeper.\n", &[]);
        let table =
            "| instead of | write |\n|---|---|\n| the keeper | the supervisor |\n\nA keeper.\n";
        complaints(
            "CONTRIBUTING.md",
            table,
            &["CONTRIBUTING.md:5: \"keeper\" is not a term of this project; write \"supervisor\""],
        );
    }

    #[test]
    fn every_form_of_a_coined_word_is_in_lower_case() {
        for CoinedWord { forms, unless, .. } in COINED_WORDS {
            for word in forms.iter().chain(*unless) {
                assert_eq!(*word, word.to_lowercase());
            }
        }
    }
}
