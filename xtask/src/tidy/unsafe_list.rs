//! Checks that `unsafe` is only in `crates/sys`, and that `docs/unsafe.md` lists every function with it.
//!
//! The list is a table `| file | function | contract |`. A use outside of functions is listed by its
//! kind: `extern`, `impl`, `trait`, `type`, `constant` or `attribute`.

use std::collections::BTreeSet;

use super::File;
use super::scan::{Token, tokens};
use super::threats::table_rows;

const LIST: &str = "docs/unsafe.md";
const HOME: &str = "crates/sys/";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut used = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (function, line) in uses(&tokens(&file.code)) {
            if file.path.starts_with(HOME) {
                used.insert((file.path.clone(), function));
            } else {
                complaints
                    .push(format!("{}:{line}: `unsafe` is permitted only in {HOME}", file.path));
            }
        }
    }
    let list = files.iter().find(|file| file.path == LIST).map_or("", |file| &file.text);
    let mut listed = BTreeSet::new();
    for row in table_rows(list, &["file", "function", "contract"]) {
        let [file, function, contract] = row.map(|text| text.trim_matches('`').to_owned());
        if contract.is_empty() {
            complaints.push(format!("{LIST}: `{function}` in {file} has no contract"));
        }
        listed.insert((file, function));
    }
    for (file, function) in used.difference(&listed) {
        complaints.push(format!("{LIST}: `{function}` in {file} is missing"));
    }
    for (file, function) in listed.difference(&used) {
        complaints.push(format!("{LIST}: lists `{function}` in {file}, but it has no `unsafe`"));
    }
    complaints
}

/// Returns the function and the line of every `unsafe`.
fn uses(tokens: &[Token<'_>]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // The open braces: the name for braces of a function, otherwise `None`.
    let mut open: Vec<Option<&str>> = Vec::new();
    let mut declared = None;
    let mut brackets = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(at + n).map_or("", |token| token.text);
        match token.text {
            "fn" if next(1) != "(" => declared = Some(next(1)),
            // In `fn f() -> [u8; 4];` only the second semicolon ends the declaration.
            "[" | "(" => brackets += 1,
            "]" | ")" => brackets = brackets.saturating_sub(1),
            ";" if brackets == 0 => declared = None,
            "{" => open.push(declared.take()),
            "}" => drop(open.pop()),
            "unsafe" => {
                let inside = open.iter().rev().find_map(|name| *name);
                let name = match next(1) {
                    "fn" if next(2) == "(" => inside.unwrap_or("type"),
                    "fn" => next(2),
                    "extern" if next(2) == "fn" => next(3),
                    "(" => "attribute",
                    "{" => inside.unwrap_or("constant"),
                    other => inside.unwrap_or(other),
                };
                found.push((name.to_owned(), token.line));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
impl Fd {
    fn open() -> [u8; 4] { if x { unsafe { a() } } [0; 4] }
    unsafe fn raw() { unsafe { b() } }
}
unsafe extern \"C\" { safe fn c(); }
unsafe impl Send for Fd {}
const D: u8 = unsafe { d() };
type Hook = unsafe fn();
fn quiet() { let unsafe_code = \"unsafe\"; }
";

    #[test]
    fn every_unsafe_is_found_with_its_function_and_line() {
        let code = super::super::scan::code_only(CODE);
        let uses = uses(&tokens(&code));
        let uses: Vec<_> = uses.iter().map(|(name, line)| (name.as_str(), *line)).collect();
        let expect = [
            ("open", 2),
            ("raw", 3),
            ("raw", 3),
            ("extern", 5),
            ("impl", 6),
            ("constant", 7),
            ("type", 8),
        ];
        assert_eq!(uses, expect);
    }

    #[track_caller]
    fn complaints(files: &[(&str, &str)], expect: &[&str]) {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect();
        assert_eq!(check(&files), expect);
    }

    #[test]
    fn unlisted_function_and_listed_function_without_unsafe_are_refused() {
        let code = ("crates/sys/src/fd.rs", "fn open() { unsafe { a() } }");
        let head = "| file | function | contract |\n|---|---|---|\n";
        let row = |function: &str| {
            format!("{head}| `crates/sys/src/fd.rs` | `{function}` | takes integers |\n")
        };
        complaints(&[code, (LIST, &row("open"))], &[]);
        complaints(&[code], &["docs/unsafe.md: `open` in crates/sys/src/fd.rs is missing"]);
        complaints(
            &[code, (LIST, &(row("open") + "| `crates/sys/src/fd.rs` | `gone` | x |\n"))],
            &["docs/unsafe.md: lists `gone` in crates/sys/src/fd.rs, but it has no `unsafe`"],
        );
        let empty = format!("{head}| crates/sys/src/fd.rs | open |  |\n");
        complaints(
            &[code, (LIST, &empty)],
            &["docs/unsafe.md: `open` in crates/sys/src/fd.rs has no contract"],
        );
    }

    #[test]
    fn unsafe_code_outside_of_crates_sys_is_refused() {
        complaints(
            &[("crates/box/src/a.rs", "\nfn a() { unsafe { b() } }")],
            &["crates/box/src/a.rs:2: `unsafe` is permitted only in crates/sys/"],
        );
    }
}
