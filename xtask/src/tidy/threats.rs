//! Checks that the table of `docs/threat-model.md` and the attack tests agree.
//!
//! Every test in the table exists, and every test named `c10_…` is in the row of C10. A row can have
//! several tests, or none and an explanation in its last column.

use std::collections::{BTreeMap, BTreeSet};

use super::File;
use super::scan::{tests, tokens};

const MODEL: &str = "docs/threat-model.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut existing = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for test in tests(&tokens(&file.code)) {
            existing.insert(test.text.to_owned(), format!("{}:{}", file.path, test.line));
        }
    }
    let model = files.iter().find(|file| file.path == MODEL).map_or("", |file| &file.text);
    // A test of several threats is in the row of each.
    let mut listed = BTreeSet::new();
    for [id, test] in table_rows(model, &["id", "test"]) {
        for name in names(&test) {
            if !existing.contains_key(name) {
                complaints.push(format!(
                    "{MODEL}: row {id} names the test `{name}`, which does not exist"
                ));
            }
            listed.insert((name.to_owned(), id.to_lowercase()));
        }
    }
    for (name, location) in &existing {
        let Some(id) = threat_id(name) else { continue };
        if !listed.contains(&(name.clone(), id.to_owned())) {
            complaints.push(format!(
                "{location}: test `{name}` is not in row {} of {MODEL}; add it there",
                id.to_uppercase()
            ));
        }
    }
    complaints
}

/// Returns the threat id of a test name: `c10` for `c10_a_symlink_is_not_followed`.
fn threat_id(test: &str) -> Option<&str> {
    let (id, _) = test.split_once('_')?;
    let (group, number) = id.split_at_checked(1)?;
    let is_id = group.chars().all(|c| ('a'..='h').contains(&c))
        && number.len() == 2
        && number.chars().all(|c| c.is_ascii_digit());
    is_id.then_some(id)
}

/// Returns the test names in a column: the texts in backticks, without module paths.
fn names(column: &str) -> impl Iterator<Item = &str> {
    column.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap_or(name))
}

/// Returns the rows of all markdown tables that have these columns, reduced to these columns.
pub(super) fn table_rows<const N: usize>(text: &str, columns: &[&str; N]) -> Vec<[String; N]> {
    let mut rows = Vec::new();
    let mut positions: Option<[usize; N]> = None;
    for line in text.lines() {
        // An escaped bar does not separate columns.
        let line = line.replace("\\|", "¦");
        let Some(inner) = line.trim().strip_prefix('|') else {
            positions = None;
            continue;
        };
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let row: Vec<&str> = inner.split('|').map(str::trim).collect();
        let Some(positions) = positions else {
            positions = column_positions(&row, columns);
            continue;
        };
        if !row.iter().all(|text| text.chars().all(|c| c == '-' || c == ':')) {
            rows.push(
                positions.map(|index| row.get(index).copied().unwrap_or_default().to_owned()),
            );
        }
    }
    rows
}

/// Returns the positions of the columns, if the row is the header of a table with all of them.
fn column_positions<const N: usize>(row: &[&str], columns: &[&str; N]) -> Option<[usize; N]> {
    let mut positions = [0; N];
    for (position, column) in positions.iter_mut().zip(columns) {
        *position = row.iter().position(|text| text == column)?;
    }
    Some(positions)
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
    fn row_without_its_test_and_test_without_its_row_are_refused() {
        let test = "#[test]\nfn c10_links() {}\n";
        complaints("| C10 | links | openat2 | `a::c10_links` | none |\n", test, &[]);
        complaints("| C10 | `a\\|b` | openat2 | `c10_links` | none |\n", test, &[]);
        complaints("| C10 | links | openat2 | – | all of it |\n", "#[test] fn other() {}", &[]);
        complaints(
            "| C10 | links | openat2 | `c10_links`, `c10_races` | none |\n",
            test,
            &["docs/threat-model.md: row C10 names the test `c10_races`, which does not exist"],
        );
        complaints(
            "",
            test,
            &[
                "tests/a.rs:2: test `c10_links` is not in row C10 of docs/threat-model.md; add it there",
            ],
        );
        complaints(
            "| C11 | races | fds | `c10_links` | none |\n",
            test,
            &[
                "tests/a.rs:2: test `c10_links` is not in row C10 of docs/threat-model.md; add it there",
            ],
        );
    }

    #[test]
    fn test_may_be_in_several_rows() {
        let rows = "| C02 | hooks | – | `c02_c03_hooks_of_the_box_do_not_run` | – |\n| C03 | config | – | `c02_c03_hooks_of_the_box_do_not_run` | – |\n";
        complaints(rows, "#[test] fn c02_c03_hooks_of_the_box_do_not_run() {}", &[]);
    }

    #[test]
    fn function_without_a_test_attribute_does_not_count_as_test() {
        complaints(
            "| C10 | links | openat2 | `c10_links` | none |\n",
            "fn c10_links() {}",
            &["docs/threat-model.md: row C10 names the test `c10_links`, which does not exist"],
        );
    }

    #[test]
    fn threat_id_is_a_letter_from_a_to_h_and_two_digits() {
        assert_eq!(threat_id("a02_empty_list"), Some("a02"));
        for name in ["i01_x", "a2_x", "a023_x", "abc_x", "a02", "é02_x"] {
            assert_eq!(threat_id(name), None, "{name}");
        }
    }
}
