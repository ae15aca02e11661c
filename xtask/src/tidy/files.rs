//! Rules for single files: length, unsafe code, unfinished code, silenced warnings, local paths.

use super::File;
use super::scan::{Token, test_modules, tokens};

/// The maximum number of lines of a Rust file without its tests.
const MAX_LINES: usize = 600;

/// Directories that exist only on the machine of one developer.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/ta", "rget")];

/// The comment of a line that needs such a path, for example in an attack.
const PATH_EXCUSE: &str = "tidy: a path of the host";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        complaints.extend(machine_paths(file));
        if file.is_rust() {
            let tokens = tokens(&file.code);
            complaints.extend(length(file, &tokens));
            complaints.extend(forbids_unsafe(file, &tokens));
            complaints.extend(banned(file, &tokens));
            complaints.extend(ignored_doctests(file));
        }
    }
    complaints
}

fn length(file: &File, tokens: &[Token<'_>]) -> Option<String> {
    let is_test = file.path.starts_with("tests/")
        || file.path.contains("/tests/")
        || file.path.ends_with("/tests.rs");
    let tests: usize = test_modules(tokens).iter().map(|(first, last)| last - first + 1).sum();
    let lines = file.text.lines().count() - tests;
    (!is_test && lines > MAX_LINES)
        .then(|| format!("{}: {lines} lines without tests; the maximum is {MAX_LINES}", file.path))
}

/// Checks that a crate root outside of `crates/sys` forbids unsafe code, so that no module can allow it.
fn forbids_unsafe(file: &File, tokens: &[Token<'_>]) -> Option<String> {
    let is_root = ["src/lib.rs", "src/main.rs"].iter().any(|root| file.path.ends_with(root))
        || file.path.contains("/src/bin/");
    if !is_root || file.path.starts_with("crates/sys/") {
        return None;
    }
    let wanted = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];
    let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    let found = texts.windows(wanted.len()).any(|window| window == wanted);
    (!found).then(|| format!("{}: `#![forbid(unsafe_code)]` is missing", file.path))
}

/// Finds macros and attributes that hide unfinished code or warnings.
fn banned(file: &File, tokens: &[Token<'_>]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).map_or("", |token| token.text);
        let before =
            index.checked_sub(1).and_then(|index| tokens.get(index)).map_or("", |token| token.text);
        let found = match (before, token.text, next) {
            (_, "todo" | "unimplemented", "!") => "unfinished code; finish or remove it",
            ("[", "ignore", "]" | "=") => "an ignored test never runs; remove `#[ignore]`",
            ("[", "allow", "(") => "`allow` is not permitted; use `expect` with a reason",
            _ => continue,
        };
        complaints.push(format!("{}:{}: {found}", file.path, token.line));
    }
    complaints
}

fn ignored_doctests(file: &File) -> Vec<String> {
    let is_fence = |line: &str| line.trim_start().starts_with("//") && line.contains("```ignore");
    let lines = file.text.lines().enumerate().filter(|(_, line)| is_fence(line));
    lines
        .map(|(number, _)| {
            format!("{}:{}: an ignored example never runs; remove `ignore`", file.path, number + 1)
        })
        .collect()
}

fn machine_paths(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for path in MACHINE_PATHS {
            // Only an absolute path counts, so `runs/ID/work/` is permitted.
            let is_absolute = line.match_indices(path).any(|(index, _)| {
                let before = line.get(..index).and_then(|text| text.chars().next_back());
                !before.is_some_and(|c| c.is_alphanumeric() || "_-./>}~$".contains(c))
            });
            if is_absolute && !line.contains(PATH_EXCUSE) {
                complaints.push(format!(
                    "{}:{}: `{path}` exists only on one machine; use a relative path",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn complaints(path: &str, text: &str, expect: &[&str]) {
        assert_eq!(check(&[File::new(path, text.to_owned())]), expect);
    }

    #[test]
    fn files_above_the_maximum_length_are_refused_and_tests_do_not_count() {
        let code = "fn a() {}\n".repeat(MAX_LINES);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        complaints("crates/a/src/a.rs", &format!("{code}{tests}"), &[]);
        complaints("crates/a/tests/a.rs", &code.repeat(2), &[]);
        let long = format!("{code}fn b() {{}}\n");
        complaints(
            "crates/a/src/a.rs",
            &long,
            &["crates/a/src/a.rs: 601 lines without tests; the maximum is 600"],
        );
    }

    #[test]
    fn crate_roots_without_forbid_unsafe_code_are_refused() {
        let missing = "crates/a/src/lib.rs: `#![forbid(unsafe_code)]` is missing";
        complaints("crates/a/src/lib.rs", "//! #![forbid(unsafe_code)]\n", &[missing]);
        complaints("crates/a/src/lib.rs", "#![forbid(unsafe_code)]\n", &[]);
        complaints("crates/a/src/other.rs", "", &[]);
        complaints("crates/sys/src/lib.rs", "", &[]);
    }

    #[test]
    fn unfinished_code_and_silenced_warnings_are_refused() {
        complaints("a.rs", "fn a() { todo!() }", &["a.rs:1: unfinished code; finish or remove it"]);
        complaints(
            "a.rs",
            "\nfn a() { unimplemented!(\"x\") }",
            &["a.rs:2: unfinished code; finish or remove it"],
        );
        complaints(
            "a.rs",
            "#[ignore = \"slow\"]",
            &["a.rs:1: an ignored test never runs; remove `#[ignore]`"],
        );
        complaints(
            "a.rs",
            "#![allow(dead_code)]",
            &["a.rs:1: `allow` is not permitted; use `expect` with a reason"],
        );
        complaints(
            "a.rs",
            "/// ```ignore\n",
            &["a.rs:1: an ignored example never runs; remove `ignore`"],
        );
        complaints("a.rs", "fn ignore(allow: u8) {} // todo!() #[allow(x)]", &[]);
    }

    #[test]
    fn paths_of_one_machine_are_refused_in_every_text_file() {
        for path in MACHINE_PATHS {
            let expect =
                format!("a.md:1: `{path}` exists only on one machine; use a relative path");
            complaints("a.md", &format!("see {path}x"), &[&expect]);
            complaints("a.md", &format!("see {path}x <!-- {PATH_EXCUSE} -->"), &[]);
            complaints("a.md", &format!("$HOME/runs/1{path}x"), &[]);
        }
    }
}
