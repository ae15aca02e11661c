//! The table of `docs/threat-model.md` and the tests named by threat id say the same.
//!
//! A row that claims a test has one, and a test named `c10_…` stands in the row of C10. A row may
//! name several tests, or none and explain itself in its last column.

use std::collections::{BTreeMap, BTreeSet};

use super::File;
use super::scan::{tests, tokens};

const MODEL: &str = "docs/threat-model.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut written = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for test in tests(&tokens(&file.code)) {
            written.insert(test.text.to_owned(), format!("{}:{}", file.path, test.line));
        }
    }
    let model = files.iter().find(|file| file.path == MODEL).map_or("", |file| &file.text);
    // One test may answer several threats, and then stands in the row of each.
    let mut listed = BTreeSet::new();
    for [id, test] in cells(model, &["id", "test"]) {
        for name in names(&test) {
            if !written.contains_key(name) {
                complaints.push(format!("{MODEL}: {id} names `{name}`, and there is no such test"));
            }
            listed.insert((name.to_owned(), id.to_lowercase()));
        }
    }
    for (name, place) in &written {
        let Some(id) = threat_id(name) else { continue };
        if !listed.contains(&(name.clone(), id.to_owned())) {
            complaints
                .push(format!("{place}: `{name}` is not in row {} of {MODEL}", id.to_uppercase()));
        }
    }
    complaints
}

/// `c10` of `c10_a_symlink_is_not_followed`.
fn threat_id(test: &str) -> Option<&str> {
    let (id, _) = test.split_once('_')?;
    let (group, number) = id.split_at_checked(1)?;
    let right = group.chars().all(|c| ('a'..='h').contains(&c))
        && number.len() == 2
        && number.chars().all(|c| c.is_ascii_digit());
    right.then_some(id)
}

/// The test names in a cell: what stands in backticks, without its module path.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap_or(name))
}

/// The named columns of every markdown table that has them all, row by row.
pub(super) fn cells<const N: usize>(text: &str, columns: &[&str; N]) -> Vec<[String; N]> {
    let mut rows = Vec::new();
    let mut places: Option<[usize; N]> = None;
    for line in text.lines() {
        // An escaped bar is part of its cell.
        let line = line.replace("\\|", "¦");
        let Some(inner) = line.trim().strip_prefix('|') else {
            places = None;
            continue;
        };
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let row: Vec<&str> = inner.split('|').map(str::trim).collect();
        let Some(places) = places else {
            places = head(&row, columns);
            continue;
        };
        if !row.iter().all(|cell| cell.chars().all(|c| c == '-' || c == ':')) {
            rows.push(places.map(|at| row.get(at).copied().unwrap_or_default().to_owned()));
        }
    }
    rows
}

/// Where the wanted columns stand, if this is the head of such a table.
fn head<const N: usize>(row: &[&str], columns: &[&str; N]) -> Option<[usize; N]> {
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = row.iter().position(|cell| cell == column)?;
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn complaints(rows: &str, code: &str, expect: &[&str]) {
        let model = format!(
            "Some text.\n\n| id | threat | defence | test | residual risk |\n|---|:-:|---|---|---|\n{rows}"
        );
        let files = [File::new(MODEL, model), File::new("tests/a.rs", code.to_owned())];
        assert_eq!(check(&files), expect);
    }

    #[test]
    fn rows_and_tests_agree_both_ways() {
        let test = "#[test]\nfn c10_links() {}\n";
        complaints("| C10 | links | openat2 | `a::c10_links` | none |\n", test, &[]);
        complaints("| C10 | `a\\|b` | openat2 | `c10_links` | none |\n", test, &[]);
        complaints("| C10 | links | openat2 | – | all of it |\n", "#[test] fn other() {}", &[]);
        complaints(
            "| C10 | links | openat2 | `c10_links`, `c10_races` | none |\n",
            test,
            &["docs/threat-model.md: C10 names `c10_races`, and there is no such test"],
        );
        complaints(
            "",
            test,
            &["tests/a.rs:2: `c10_links` is not in row C10 of docs/threat-model.md"],
        );
        complaints(
            "| C11 | races | fds | `c10_links` | none |\n",
            test,
            &["tests/a.rs:2: `c10_links` is not in row C10 of docs/threat-model.md"],
        );
    }

    #[test]
    fn a_test_may_stand_in_several_rows() {
        let rows =
            "| C02 | hooks | – | `c02_c03_git` | – |\n| C03 | config | – | `c02_c03_git` | – |\n";
        complaints(rows, "#[test] fn c02_c03_git() {}", &[]);
    }

    #[test]
    fn a_function_that_is_no_test_does_not_count() {
        complaints(
            "| C10 | links | openat2 | `c10_links` | none |\n",
            "fn c10_links() {}",
            &["docs/threat-model.md: C10 names `c10_links`, and there is no such test"],
        );
    }

    #[test]
    fn ids_are_a_letter_and_two_digits() {
        assert_eq!(threat_id("a02_empty_list"), Some("a02"));
        for name in ["i01_x", "a2_x", "a023_x", "abc_x", "a02", "é02_x"] {
            assert_eq!(threat_id(name), None, "{name}");
        }
    }
}
