//! Checks which top-level module of a crate may use which other module.
//!
//! A module cannot be read, tested or moved without the modules that it uses. The modules of both crates
//! below form no cycle, and a table fixes the order of those of `crates/engine`. Code that is compiled
//! for tests only does not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::File;
use super::scan::{Token, test_modules, tokens, without_tests};

/// The top-level modules of `crates/engine` in order. Each module uses only modules before it.
const ENGINE_ORDER: &[&str] = &[
    "error",
    "notice",
    "clock",
    "moment",
    "lockdown",
    "logging",
    "host",
    "layer_image",
    "store",
    "config",
    "scope",
    "specs",
    "screen",
    "record",
    "policy",
    "doctor",
    "secrets",
    "apis",
    "changes",
    "skills",
    "approvals",
    "network",
    "agents",
    "launch",
    "run",
    "box_store",
    "clones",
    "supervisor",
    "server",
    "tool_servers",
    "runs",
    "boxes",
    "review",
    "programs",
    "runs",
    "file_tools",
    "runs",
    "roles",
    "lib",
];

/// The crates whose modules are checked, with the order of their modules if it is fixed.
const CRATES: &[(&str, Option<&[&str]>)] = &[("engine", Some(ENGINE_ORDER)), ("belljar", None)];

/// Uses that break the rule today: the crate, the module, and the module that it may not use. tidy
/// refuses entries that are no longer needed.
const EXCEPTIONS: &[Exception] = &[];

type Exception = (&'static str, &'static str, &'static str);

/// The pairs (module, used module) of one crate, each with the first line of such a use.
type Uses = BTreeMap<(String, String), String>;

pub(super) fn check(files: &[File]) -> Vec<String> {
    check_with(files, EXCEPTIONS)
}

fn check_with(files: &[File], exceptions: &[Exception]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, order) in CRATES {
        let sources = Sources::of(name, files);
        let mut uses = sources.uses();
        let mut excepted = Uses::new();
        for &(_, from, to) in exceptions.iter().filter(|(row, ..)| row == name) {
            let module_use = (from.to_owned(), to.to_owned());
            if let Some(place) = uses.remove(&module_use) {
                excepted.insert(module_use, place);
            } else {
                complaints.push(unneeded(name, from, to));
            }
        }
        match order {
            Some(order) => {
                complaints.extend(unlisted(name, order, &sources));
                for ((from, to), place) in &uses {
                    if !follows(order, from, to) {
                        complaints.push(format!("{place}: module `{from}` may not use `{to}`"));
                    }
                }
                let fine = excepted.keys().filter(|(from, to)| follows(order, from, to));
                complaints.extend(fine.map(|(from, to)| unneeded(name, from, to)));
            }
            None => {
                complaints.extend(cycles(name, uses.clone()));
                for ((from, to), place) in excepted {
                    if path(&uses, &to, &from).is_none() {
                        complaints.push(unneeded(name, &from, &to));
                        uses.insert((from, to), place);
                    }
                }
            }
        }
    }
    complaints
}

fn unneeded(name: &str, from: &str, to: &str) -> String {
    format!("xtask/src/tidy/modules.rs: the exception {name}: {from} -> {to} is not needed")
}

/// Whether `from` comes after `to` in the order. Modules outside of the table have their own complaint.
fn follows(order: &[&str], from: &str, to: &str) -> bool {
    let position = |name: &str| order.iter().position(|row| *row == name);
    match (position(from), position(to)) {
        (Some(from), Some(to)) => to < from,
        _ => true,
    }
}

fn unlisted(name: &str, order: &[&str], sources: &Sources<'_>) -> Vec<String> {
    let unknown = sources.modules.iter().filter(|module| !order.contains(&module.as_str()));
    unknown
        .map(|module| format!("crates/{name}: module `{module}` is not in the table of xtask/src/tidy/modules.rs; add it"))
        .collect()
}

/// Returns one complaint for each cycle. The last use of a found cycle is removed before the next search.
fn cycles(name: &str, mut uses: Uses) -> Vec<String> {
    let mut complaints = Vec::new();
    loop {
        let found = uses.keys().filter_map(|(from, to)| {
            let mut cycle = path(&uses, to, from)?;
            cycle.insert(0, from.clone());
            Some(cycle)
        });
        let Some(cycle) = found.min_by_key(Vec::len) else { return complaints };
        let steps: Vec<(String, String)> = cycle
            .windows(2)
            .filter_map(|pair| Some((pair.first()?.clone(), pair.last()?.clone())))
            .collect();
        let places: Vec<&str> =
            steps.iter().filter_map(|step| uses.get(step)).map(String::as_str).collect();
        let shown = cycle.join(" -> ");
        complaints.push(format!(
            "crates/{name}: the modules form a cycle: {shown} ({})",
            places.join(", ")
        ));
        if let Some(last) = steps.last() {
            uses.remove(last);
        }
    }
}

/// Returns the shortest chain of uses between two modules, including both.
fn path(uses: &Uses, from: &str, to: &str) -> Option<Vec<String>> {
    let mut chains = VecDeque::from([vec![from.to_owned()]]);
    let mut seen = BTreeSet::from([from.to_owned()]);
    while let Some(chain) = chains.pop_front() {
        let last = chain.last()?;
        if last == to {
            return Some(chain);
        }
        for (_, next) in uses.keys().filter(|(from, _)| from == last) {
            if seen.insert(next.clone()) {
                chains.push_back(chain.iter().cloned().chain([next.clone()]).collect());
            }
        }
    }
    None
}

/// The files of one crate, except files that are compiled for tests only.
struct Sources<'a> {
    /// The module path and the file. The path of the crate root is empty.
    files: Vec<(Vec<&'a str>, &'a File)>,
    /// The names of the top-level modules and of the crate root.
    modules: BTreeSet<String>,
    /// The name of the crate root: `lib` or `main`.
    root: &'static str,
}

impl<'a> Sources<'a> {
    fn of(name: &str, files: &'a [File]) -> Self {
        let dir = format!("crates/{name}/src/");
        let inside = |file: &'a File| {
            let path = file.path.strip_prefix(&dir)?.strip_suffix(".rs")?;
            // Each file in `bin/` is a separate crate.
            (!path.starts_with("bin/")).then(|| (module_path(path), file))
        };
        let mut files: Vec<_> = files.iter().filter_map(inside).collect();
        let tests: Vec<Vec<String>> =
            files.iter().flat_map(|(path, file)| test_files(path, file)).collect();
        files.retain(|(path, _)| {
            !tests
                .iter()
                .any(|test| path.len() >= test.len() && path.iter().zip(test).all(|(a, b)| a == b))
        });
        let is_library = files.iter().any(|(_, file)| file.path.ends_with("src/lib.rs"));
        let root = if is_library { "lib" } else { "main" };
        let top = |path: &Vec<&str>| path.first().copied().unwrap_or(root).to_owned();
        let modules = files.iter().map(|(path, _)| top(path)).collect();
        Self { files, modules, root }
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (path, file) in &self.files {
            // The crate root declares all modules, so it uses them.
            let Some(from) = path.first() else { continue };
            uses.entry((self.root.to_owned(), (*from).to_owned()))
                .or_insert_with(|| file.path.clone());
            for name in names(&without_tests(&tokens(&file.code)), path) {
                let to = if self.modules.contains(name.text) { name.text } else { self.root };
                if to != *from {
                    uses.entry(((*from).to_owned(), to.to_owned()))
                        .or_insert_with(|| format!("{}:{}", file.path, name.line));
                }
            }
        }
        uses
    }
}

/// Returns the module path of a file: `a/b` and `a/b/mod` are the module `a::b`.
fn module_path(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = path.split('/').collect();
    if matches!(parts.as_slice(), ["lib" | "main"] | [.., "mod"]) {
        parts.pop();
    }
    parts
}

/// Returns the paths of modules in separate files that this file declares for tests only.
fn test_files(path: &[&str], file: &File) -> Vec<Vec<String>> {
    let tokens = tokens(&file.code);
    let mut found = Vec::new();
    for (first, last) in test_modules(&tokens) {
        let mut words = tokens.iter().filter(|token| (first..=last).contains(&token.line));
        let name = words.by_ref().skip_while(|token| token.text != "mod").nth(1);
        if let (Some(name), Some(Token { text: ";", .. })) = (name, words.next()) {
            found.push(path.iter().copied().chain([name.text]).map(str::to_owned).collect());
        }
    }
    found
}

/// Returns the items of the crate root that code in module `path` uses, through `crate::` or `super::`.
/// A glob import is returned as `*`.
fn names<'a>(tokens: &[Token<'a>], path: &[&str]) -> Vec<Token<'a>> {
    let mut found = Vec::new();
    // The open braces: `true` for braces of inline modules.
    let mut open: Vec<bool> = Vec::new();
    let mut skip_to = 0;
    for at in 0..tokens.len() {
        let behind = |word: &str, count| {
            at.checked_sub(count).is_some_and(|before| text(tokens, before) == word)
        };
        match text(tokens, at) {
            "{" => open.push(behind("mod", 2)),
            "}" => drop(open.pop()),
            _ if at < skip_to => {}
            "crate" if is_path(tokens, at) => skip_to = heads(tokens, at + 3, 0, &mut found),
            // `a::super` is not a path, `self::super` is one.
            "super" if !behind(":", 1) || behind("self", 3) => {
                let depth = path.len() + open.iter().filter(|is_module| **is_module).count();
                skip_to = heads(tokens, at, depth, &mut found);
            }
            _ => {}
        }
    }
    found
}

fn text<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

/// Whether `::` follows the token.
fn is_path(tokens: &[Token<'_>], at: usize) -> bool {
    text(tokens, at + 1) == ":" && text(tokens, at + 2) == ":"
}

/// Parses a path, or a group of paths in braces, that starts `depth` modules below the crate root, and
/// returns its end. Only items of the crate root itself are added to `found`.
fn heads<'a>(tokens: &[Token<'a>], at: usize, depth: usize, found: &mut Vec<Token<'a>>) -> usize {
    match text(tokens, at) {
        "super" if is_path(tokens, at) => heads(tokens, at + 3, depth.saturating_sub(1), found),
        "{" => {
            let mut at = at + 1;
            let mut nested = 0_usize;
            let mut starts = true;
            while at < tokens.len() {
                match text(tokens, at) {
                    "}" if nested == 0 => return at + 1,
                    "}" => nested -= 1,
                    "{" if !starts => nested += 1,
                    "," if nested == 0 => {
                        starts = true;
                        at += 1;
                        continue;
                    }
                    _ if starts => {
                        starts = false;
                        at = heads(tokens, at, depth, found);
                        continue;
                    }
                    _ => {}
                }
                at += 1;
            }
            at
        }
        "super" | "self" => at + 1,
        _ => {
            if depth == 0 {
                found.extend(tokens.get(at).copied());
            }
            at + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn complaints(files: &[(&str, &str)], exceptions: &[Exception], expect: &[&str]) {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect();
        assert_eq!(check_with(&files, exceptions), expect);
    }

    #[track_caller]
    fn named(path: &[&str], code: &str, expect: &[&str]) {
        let code = super::super::scan::code_only(code);
        let found = names(&tokens(&code), path);
        let found: Vec<&str> = found.iter().map(|token| token.text).collect();
        assert_eq!(found, expect, "{code}");
    }

    #[test]
    fn used_modules_are_found_in_crate_paths_of_imports_and_expressions() {
        named(&["a"], "use crate::b::C;", &["b"]);
        named(&["a"], "fn f() -> crate::b::C { crate::d::e() }", &["b", "d"]);
        named(
            &["a"],
            "use crate::{b, c::{self, d}, e::f as g, self}; use crate::h;",
            &["b", "c", "e", "h"],
        );
        named(&["a"], "use crate::*;", &["*"]);
        named(&["a"], "pub(crate) fn f() {} pub(in crate::a) fn g() {}", &["a"]);
        named(&["a"], "// crate::b\nlet x = \"crate::c\"; use other::d;", &[]);
    }

    #[test]
    fn used_modules_are_found_in_super_paths_that_leave_the_module() {
        named(&["a"], "use super::b::C;", &["b"]);
        named(&["a", "x"], "use super::b::C; use super::super::d;", &["d"]);
        named(
            &["a", "x"],
            "use super::super::{b, c::D}; use super::{e, super::f};",
            &["b", "c", "f"],
        );
        named(
            &["a"],
            "mod inner { use super::b; use super::super::c; } use super::d;",
            &["c", "d"],
        );
        named(&["a"], "self::super::b()", &["b"]);
        named(&["a"], "use super::*;", &["*"]);
    }

    #[test]
    fn cycle_between_modules_is_refused_with_the_lines_of_its_uses() {
        let root = ("crates/belljar/src/main.rs", "mod a; mod b; mod c;");
        let a = ("crates/belljar/src/a.rs", "use crate::b::B;");
        let c = ("crates/belljar/src/c.rs", "use crate::a::A;");
        complaints(&[root, a, c, ("crates/belljar/src/b.rs", "")], &[], &[]);
        let b = ("crates/belljar/src/b/deep.rs", "\nfn f() { crate::c::g() }");
        let cycle = "crates/belljar: the modules form a cycle: a -> b -> c -> a (crates/belljar/src/a.rs:1, \
                     crates/belljar/src/b/deep.rs:2, crates/belljar/src/c.rs:1)";
        complaints(&[root, a, b, c], &[], &[cycle]);
        complaints(&[root, a, b, c], &[("belljar", "b", "c")], &[]);
    }

    #[test]
    fn module_that_uses_the_crate_root_forms_a_cycle() {
        complaints(
            &[
                ("crates/belljar/src/main.rs", "mod a;"),
                ("crates/belljar/src/a.rs", "use crate::Thing;"),
            ],
            &[],
            &[
                "crates/belljar: the modules form a cycle: a -> main -> a (crates/belljar/src/a.rs:1, crates/belljar/src/a.rs)",
            ],
        );
    }

    #[test]
    fn test_code_may_use_any_module() {
        complaints(
            &[
                ("crates/belljar/src/main.rs", "mod a; mod b;"),
                ("crates/belljar/src/a.rs", "use crate::b::B;"),
                (
                    "crates/belljar/src/b.rs",
                    "#[cfg(test)] use crate::a::A;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more { use crate::a::A; }",
                ),
                ("crates/belljar/src/b/tests.rs", "use crate::a::A;"),
                ("crates/belljar/src/b/tests/far.rs", "use crate::a::A;"),
            ],
            &[],
            &[],
        );
    }

    #[test]
    fn engine_module_may_use_only_modules_before_it_in_the_table() {
        let root = ("crates/engine/src/lib.rs", "mod store; mod boxes; pub use boxes::Boxes;");
        let store = ("crates/engine/src/store.rs", "use crate::boxes::Boxes;");
        let boxes = ("crates/engine/src/boxes.rs", "use crate::store::Store;");
        let late = "crates/engine/src/store.rs:1: module `store` may not use `boxes`";
        complaints(&[root, ("crates/engine/src/store.rs", ""), boxes], &[], &[]);
        complaints(&[root, store, boxes], &[], &[late]);
        complaints(&[root, store, boxes], &[("engine", "store", "boxes")], &[]);
        complaints(
            &[root, boxes, ("crates/engine/src/store.rs", "use crate::Boxes;")],
            &[],
            &["crates/engine/src/store.rs:1: module `store` may not use `lib`"],
        );
    }

    #[test]
    fn engine_module_outside_of_the_table_is_refused() {
        complaints(
            &[("crates/engine/src/lib.rs", ""), ("crates/engine/src/extra/deep.rs", "")],
            &[],
            &[
                "crates/engine: module `extra` is not in the table of xtask/src/tidy/modules.rs; add it",
            ],
        );
        complaints(
            &[("crates/engine/src/lib.rs", ""), ("crates/engine/src/bin/roles.rs", "")],
            &[],
            &[],
        );
    }

    #[test]
    fn unneeded_exception_is_refused() {
        let unneeded = |module_use: &str| {
            format!("xtask/src/tidy/modules.rs: the exception {module_use} is not needed")
        };
        let engine = [
            ("crates/engine/src/store.rs", ""),
            ("crates/engine/src/boxes.rs", "use crate::store::Store;"),
        ];
        let gone = unneeded("engine: store -> boxes");
        complaints(&engine, &[("engine", "store", "boxes")], &[&gone]);
        let fine = unneeded("engine: boxes -> store");
        complaints(&engine, &[("engine", "boxes", "store")], &[&fine]);
        let belljar = [
            ("crates/belljar/src/main.rs", ""),
            ("crates/belljar/src/a.rs", "use crate::b::B;"),
            ("crates/belljar/src/b.rs", ""),
        ];
        let no_cycle = unneeded("belljar: a -> b");
        complaints(&belljar, &[("belljar", "a", "b")], &[&no_cycle]);
        complaints(&[], &[("engine", "a", "b")], &[&unneeded("engine: a -> b")]);
    }

    #[test]
    fn repository_without_an_engine_is_accepted() {
        complaints(&[("crates/belljar/src/main.rs", "")], &[], &[]);
    }
}
