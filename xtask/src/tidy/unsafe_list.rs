//! `unsafe` stands only in `crates/sys`, and `docs/unsafe.md` lists every function that has it.
//!
//! The list is a table `| file | function | contract |`. A use outside any function is listed by
//! what it is: `extern`, `impl`, `trait`, `type`, `constant` or `attribute`.

use std::collections::BTreeSet;

use super::File;
use super::scan::{Token, tokens};
use super::threats::cells;

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
                complaints.push(format!("{}:{line}: `unsafe` outside {HOME}", file.path));
            }
        }
    }
    let list = files.iter().find(|file| file.path == LIST).map_or("", |file| &file.text);
    let mut listed = BTreeSet::new();
    for row in cells(list, &["file", "function", "contract"]) {
        let [file, function, contract] = row.map(|cell| cell.trim_matches('`').to_owned());
        if contract.is_empty() {
            complaints.push(format!("{LIST}: `{function}` in {file} has no contract"));
        }
        listed.insert((file, function));
    }
    for (file, function) in used.difference(&listed) {
        complaints.push(format!("{LIST}: lacks `{function}` in {file}"));
    }
    for (file, function) in listed.difference(&used) {
        complaints.push(format!("{LIST}: lists `{function}` in {file}, which has no `unsafe`"));
    }
    complaints
}

/// Every `unsafe`: the function it is in, and its line.
fn uses(tokens: &[Token<'_>]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // The functions we are inside of; `None` for braces of other kinds.
    let mut open: Vec<Option<&str>> = Vec::new();
    let mut announced = None;
    let mut brackets = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(at + n).map_or("", |token| token.text);
        match token.text {
            "fn" if next(1) != "(" => announced = Some(next(1)),
            // `fn f() -> [u8; 4];`: only the second semicolon ends the declaration.
            "[" | "(" => brackets += 1,
            "]" | ")" => brackets = brackets.saturating_sub(1),
            ";" if brackets == 0 => announced = None,
            "{" => open.push(announced.take()),
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
    fn every_use_is_named_by_its_function() {
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
    fn the_list_and_the_code_agree_both_ways() {
        let code = ("crates/sys/src/fd.rs", "fn open() { unsafe { a() } }");
        let head = "| file | function | contract |\n|---|---|---|\n";
        let row = |function: &str| {
            format!("{head}| `crates/sys/src/fd.rs` | `{function}` | takes integers |\n")
        };
        complaints(&[code, (LIST, &row("open"))], &[]);
        complaints(&[code], &["docs/unsafe.md: lacks `open` in crates/sys/src/fd.rs"]);
        complaints(
            &[code, (LIST, &(row("open") + "| `crates/sys/src/fd.rs` | `gone` | x |\n"))],
            &["docs/unsafe.md: lists `gone` in crates/sys/src/fd.rs, which has no `unsafe`"],
        );
        let empty = format!("{head}| crates/sys/src/fd.rs | open |  |\n");
        complaints(
            &[code, (LIST, &empty)],
            &["docs/unsafe.md: `open` in crates/sys/src/fd.rs has no contract"],
        );
    }

    #[test]
    fn unsafe_elsewhere_is_refused_whatever_the_list_says() {
        complaints(
            &[("crates/box/src/a.rs", "\nfn a() { unsafe { b() } }")],
            &["crates/box/src/a.rs:2: `unsafe` outside crates/sys/"],
        );
    }
}
