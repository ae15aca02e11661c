//! Checks that `crates/engine` has the lints of `xtask/engine-clippy.toml`, and that no code turns them
//! off. Only one file of the engine may take locks, because it defines their order.
//!
//! The engine is a library for a command line and for servers. It does not print, read the environment
//! or the clock, or exit the process; `xtask/engine-clippy.toml` forbids that. A program below
//! `src/bin` is a caller of the engine, so it may turn the lints off.

use anyhow::{Context as _, Result};

use super::File;
use super::scan::{Token, tokens};

const DIR: &str = "crates/engine/";
/// The file that `crates/engine/clippy.toml` must be a copy of.
const TEMPLATE: &str = "xtask/engine-clippy.toml";
const WORKSPACE: &str = "clippy.toml";

/// A function that the workspace forbids and the engine needs in some modules.
const STARTS_PROGRAMS: &str = "std::process::Command::new";
/// The modules of the engine that may start programs: git, roles and commands that print keys.
const STARTERS: &[&str] = &["clones", "lockdown", "secrets", "supervisor"];

/// The only file of the engine that takes locks.
const LOCKS: &str = "store/lock.rs";

/// Lints that code must not turn off, and the groups that contain them.
const KEPT_ON: &[&str] = &[
    "disallowed_methods",
    "disallowed_macros",
    "disallowed_types",
    "print_stdout",
    "print_stderr",
    "exit",
    "all",
    "restriction",
    "style",
    "warnings",
];

pub(super) fn check(files: &[File]) -> Result<Vec<String>> {
    let text =
        |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let template = text(TEMPLATE).with_context(|| format!("{TEMPLATE} is missing"))?;
    let workspace = text(WORKSPACE).with_context(|| format!("{WORKSPACE} is missing"))?;
    let mut complaints = missing_entries(template, workspace)?;
    let Some(manifest) = text(&format!("{DIR}Cargo.toml")) else { return Ok(complaints) };
    if text(&format!("{DIR}clippy.toml")) != Some(template) {
        complaints.push(format!("{DIR}clippy.toml: differs from {TEMPLATE}; copy that file"));
    }
    let manifest: toml::Table =
        manifest.parse().context("cannot parse the manifest of the engine")?;
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        complaints.push(format!("{DIR}Cargo.toml: `lints.workspace = true` is missing"));
    }
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(path) = file.path.strip_prefix(DIR).and_then(|path| path.strip_prefix("src/"))
        else {
            continue;
        };
        let tokens = tokens(&file.code);
        if !path.starts_with("bin/") {
            complaints.extend(turned_off(file, &tokens));
            complaints.extend(starts_programs(file, path, &tokens));
            complaints.extend(takes_locks(file, path, &tokens));
        }
    }
    Ok(complaints)
}

/// Finds entries of the workspace's `clippy.toml` that are missing in the template.
fn missing_entries(template: &str, workspace: &str) -> Result<Vec<String>> {
    let template: toml::Table =
        template.parse().with_context(|| format!("cannot parse {TEMPLATE}"))?;
    let workspace: toml::Table =
        workspace.parse().with_context(|| format!("cannot parse {WORKSPACE}"))?;
    let paths = |entry: &toml::Value| -> Vec<String> {
        let list = entry.as_array().into_iter().flatten();
        let path =
            |entry: &toml::Value| entry.get("path").unwrap_or(entry).as_str().map(str::to_owned);
        list.filter_map(path).collect()
    };
    let mut complaints = Vec::new();
    for (key, value) in &workspace {
        let own = template.get(key);
        if value.is_array() {
            let own = own.map(paths).unwrap_or_default();
            let missing = paths(value)
                .into_iter()
                .filter(|path| path != STARTS_PROGRAMS && !own.contains(path));
            complaints
                .extend(missing.map(|path| format!("{TEMPLATE}: `{path}` is missing in `{key}`")));
        } else if own != Some(value) {
            complaints.push(format!("{TEMPLATE}: `{key}` must be `{value}`, as in {WORKSPACE}"));
        }
    }
    Ok(complaints)
}

/// Finds `allow(…)` and `expect(…)` of a lint that must stay on, also inside of `cfg_attr`.
fn turned_off(file: &File, tokens: &[Token<'_>]) -> Vec<String> {
    let mut complaints = Vec::new();
    for pair in tokens.windows(2).enumerate() {
        let (index, [Token { text: "allow" | "expect", .. }, Token { text: "(", .. }]) = pair
        else {
            continue;
        };
        let inside = tokens.iter().skip(index + 2).take_while(|token| token.text != ")");
        let named = inside.filter(|token| KEPT_ON.contains(&token.text));
        complaints.extend(named.map(|token| {
            format!(
                "{}:{}: turns off the lint `{}`, which must stay on in the engine",
                file.path, token.line, token.text
            )
        }));
    }
    complaints
}

/// Finds code that starts programs, in modules that may not do so.
fn starts_programs(file: &File, path: &str, tokens: &[Token<'_>]) -> Vec<String> {
    let module = path.split(['/', '.']).next().unwrap_or_default();
    let is_test = path.ends_with("/tests.rs");
    if STARTERS.contains(&module) || is_test {
        return Vec::new();
    }
    let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    let starts = texts.windows(4).zip(tokens);
    starts
        .filter(|(window, _)| *window == ["Command", ":", ":", "new"])
        .map(|(_, token)| {
            format!("{}:{}: module `{module}` may not start programs", file.path, token.line)
        })
        .collect()
}

/// Finds code that takes locks outside of the file that defines their order.
fn takes_locks(file: &File, path: &str, tokens: &[Token<'_>]) -> Vec<String> {
    if path == LOCKS {
        return Vec::new();
    }
    let taken = tokens.iter().filter(|token| token.text == "flock");
    taken
        .map(|token| {
            format!("{}:{}: takes a lock; only {DIR}src/{LOCKS} may do that", file.path, token.line)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: &str = "disallowed-methods = [{ path = \"std::env::var\", reason = \"r\" }]\n";

    #[track_caller]
    fn complaints(files: &[(&str, &str)], expect: &[&str]) {
        let common = [(TEMPLATE, ENTRIES), (WORKSPACE, ENTRIES)];
        let all = common.iter().chain(files);
        let files: Vec<File> =
            all.map(|(path, text)| File::new(path, (*text).to_owned())).collect();
        assert_eq!(check(&files).unwrap(), expect);
    }

    /// Checks an engine with valid settings and one module with this code.
    #[track_caller]
    fn engine(path: &str, code: &str, expect: &[&str]) {
        let manifest = ("crates/engine/Cargo.toml", "[lints]\nworkspace = true\n");
        complaints(&[manifest, ("crates/engine/clippy.toml", ENTRIES), (path, code)], expect);
    }

    #[test]
    fn repository_without_an_engine_is_accepted() {
        complaints(&[], &[]);
    }

    #[test]
    fn template_must_have_every_entry_of_the_workspace_except_command_new() {
        let workspace = "allow-x = true\ndisallowed-methods = [{ path = \"a::b\" }, \"c::d\", \
                         \"std::process::Command::new\"]\n";
        assert_eq!(
            missing_entries("disallowed-methods = [\"c::d\", \"e::f\"]", workspace).unwrap(),
            [
                "xtask/engine-clippy.toml: `allow-x` must be `true`, as in clippy.toml",
                "xtask/engine-clippy.toml: `a::b` is missing in `disallowed-methods`"
            ]
        );
        assert!(missing_entries(workspace, workspace).unwrap().is_empty());
    }

    #[test]
    fn engine_with_other_lints_than_the_template_is_refused() {
        let manifest = ("crates/engine/Cargo.toml", "[lints.clippy]\nexit = \"allow\"\n");
        complaints(
            &[manifest, ("crates/engine/clippy.toml", "")],
            &[
                "crates/engine/clippy.toml: differs from xtask/engine-clippy.toml; copy that file",
                "crates/engine/Cargo.toml: `lints.workspace = true` is missing",
            ],
        );
    }

    #[test]
    fn attributes_that_turn_off_a_lint_of_the_engine_are_refused() {
        let path = "crates/engine/src/store.rs";
        for code in [
            "#![expect(clippy::exit, reason = \"r\")]",
            "#[allow(dead_code, clippy::exit)] fn f() {}",
            "#[cfg_attr(test, expect(clippy::exit))] fn f() {}",
        ] {
            let expect = "crates/engine/src/store.rs:1: turns off the lint `exit`, which must stay on in the engine";
            engine(path, code, &[expect]);
        }
        engine(
            path,
            "\n#[expect(clippy::style)] fn f() {}",
            &[
                "crates/engine/src/store.rs:2: turns off the lint `style`, which must stay on in the engine",
            ],
        );
        engine(path, "#[expect(clippy::too_many_lines, reason = \"exit\")] fn f() {}", &[]);
        engine(path, "fn f() { all.expect(\"clippy::exit\") } // allow(clippy::exit)", &[]);
        engine("crates/engine/src/bin/roles.rs", "#![expect(clippy::exit)]", &[]);
        engine("crates/engine/tests/it.rs", "#![expect(clippy::exit)]", &[]);
    }

    #[test]
    fn module_outside_the_list_may_not_start_programs() {
        let code = "fn f() { std::process::Command::new(\"git\") }";
        engine("crates/engine/src/clones/git.rs", code, &[]);
        engine(
            "crates/engine/src/store.rs",
            code,
            &["crates/engine/src/store.rs:1: module `store` may not start programs"],
        );
        engine("crates/engine/src/store/tests.rs", code, &[]);
    }

    #[test]
    fn only_the_file_that_defines_the_order_of_locks_may_take_locks() {
        let code = "fn f() { rustix::fs::flock(&file, how) } // flock";
        engine("crates/engine/src/store/lock.rs", code, &[]);
        engine(
            "crates/engine/src/review.rs",
            code,
            &[
                "crates/engine/src/review.rs:1: takes a lock; only crates/engine/src/store/lock.rs may do that",
            ],
        );
    }
}
