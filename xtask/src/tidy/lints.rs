//! The lints of `crates/engine`: its `clippy.toml` is the one kept here, and no code turns them off.
//! One file alone takes locks, because it knows their order.
//!
//! The engine is a library for a command line and for servers. It does not print, read the
//! environment or the clock, or end the process; `xtask/engine-clippy.toml` refuses that. A program
//! below `src/bin` is a caller of the engine, so it may turn the lints off for itself.

use anyhow::{Context as _, Result};

use super::File;
use super::scan::{Token, tokens};

const DIR: &str = "crates/engine/";
/// What `crates/engine/clippy.toml` has to be.
const TEMPLATE: &str = "xtask/engine-clippy.toml";
const WORKSPACE: &str = "clippy.toml";

/// The engine may call this one, in these modules only: they start git, roles and key commands.
const STARTS_PROGRAMS: &str = "std::process::Command::new";
const STARTERS: &[&str] = &["clones", "lockdown", "secrets", "supervisor"];

/// The only file of the engine that locks files.
const LOCKS: &str = "store/lock.rs";

/// Lints that stay on, and the groups that contain them.
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
    let template = text(TEMPLATE).with_context(|| format!("read {TEMPLATE}"))?;
    let workspace = text(WORKSPACE).with_context(|| format!("read {WORKSPACE}"))?;
    let mut complaints = lacks(template, workspace)?;
    let Some(manifest) = text(&format!("{DIR}Cargo.toml")) else { return Ok(complaints) };
    if text(&format!("{DIR}clippy.toml")) != Some(template) {
        complaints.push(format!("{DIR}clippy.toml: is no copy of {TEMPLATE}"));
    }
    let manifest: toml::Table = manifest.parse().context("read the manifest of the engine")?;
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        complaints.push(format!("{DIR}Cargo.toml: lacks `lints.workspace = true`"));
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

/// Entries of the workspace that the template does not repeat.
fn lacks(template: &str, workspace: &str) -> Result<Vec<String>> {
    let template: toml::Table = template.parse().context(TEMPLATE)?;
    let workspace: toml::Table = workspace.parse().context(WORKSPACE)?;
    let paths = |entry: &toml::Value| -> Vec<String> {
        let list = entry.as_array().into_iter().flatten();
        let path =
            |entry: &toml::Value| entry.get("path").unwrap_or(entry).as_str().map(str::to_owned);
        list.filter_map(path).collect()
    };
    let mut complaints = Vec::new();
    for (key, value) in &workspace {
        let ours = template.get(key);
        if value.is_array() {
            let ours = ours.map(paths).unwrap_or_default();
            let missing = paths(value)
                .into_iter()
                .filter(|path| path != STARTS_PROGRAMS && !ours.contains(path));
            complaints.extend(missing.map(|path| format!("{TEMPLATE}: lacks `{path}` in `{key}`")));
        } else if ours != Some(value) {
            complaints.push(format!("{TEMPLATE}: `{key}` is not `{value}`"));
        }
    }
    Ok(complaints)
}

/// `allow(…)` and `expect(…)` of a lint that stays on, also inside `cfg_attr`.
fn turned_off(file: &File, tokens: &[Token<'_>]) -> Vec<String> {
    let mut complaints = Vec::new();
    for pair in tokens.windows(2).enumerate() {
        let (at, [Token { text: "allow" | "expect", .. }, Token { text: "(", .. }]) = pair else {
            continue;
        };
        let inside = tokens.iter().skip(at + 2).take_while(|token| token.text != ")");
        let named = inside.filter(|token| KEPT_ON.contains(&token.text));
        complaints.extend(named.map(|token| {
            format!("{}:{}: turns `{}` off in the engine", file.path, token.line, token.text)
        }));
    }
    complaints
}

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
            format!("{}:{}: `{module}` may not start programs", file.path, token.line)
        })
        .collect()
}

/// Locks of files outside the module that knows their order.
fn takes_locks(file: &File, path: &str, tokens: &[Token<'_>]) -> Vec<String> {
    if path == LOCKS {
        return Vec::new();
    }
    let taken = tokens.iter().filter(|token| token.text == "flock");
    taken
        .map(|token| format!("{}:{}: locks are taken in {DIR}src/{LOCKS}", file.path, token.line))
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

    /// An engine in order, whose one module has this code.
    #[track_caller]
    fn engine(path: &str, code: &str, expect: &[&str]) {
        let manifest = ("crates/engine/Cargo.toml", "[lints]\nworkspace = true\n");
        complaints(&[manifest, ("crates/engine/clippy.toml", ENTRIES), (path, code)], expect);
    }

    #[test]
    fn a_tree_without_an_engine_is_in_order() {
        complaints(&[], &[]);
    }

    #[test]
    fn the_template_repeats_every_entry_of_the_workspace_but_command_new() {
        let workspace = "allow-x = true\ndisallowed-methods = [{ path = \"a::b\" }, \"c::d\", \
                         \"std::process::Command::new\"]\n";
        assert_eq!(
            lacks("disallowed-methods = [\"c::d\", \"e::f\"]", workspace).unwrap(),
            [
                "xtask/engine-clippy.toml: `allow-x` is not `true`",
                "xtask/engine-clippy.toml: lacks `a::b` in `disallowed-methods`"
            ]
        );
        assert!(lacks(workspace, workspace).unwrap().is_empty());
    }

    #[test]
    fn an_engine_with_other_lints_is_refused() {
        let manifest = ("crates/engine/Cargo.toml", "[lints.clippy]\nexit = \"allow\"\n");
        complaints(
            &[manifest, ("crates/engine/clippy.toml", "")],
            &[
                "crates/engine/clippy.toml: is no copy of xtask/engine-clippy.toml",
                "crates/engine/Cargo.toml: lacks `lints.workspace = true`",
            ],
        );
    }

    #[test]
    fn attributes_that_turn_a_lint_off_are_refused() {
        let path = "crates/engine/src/store.rs";
        for code in [
            "#![expect(clippy::exit, reason = \"r\")]",
            "#[allow(dead_code, clippy::exit)] fn f() {}",
            "#[cfg_attr(test, expect(clippy::exit))] fn f() {}",
        ] {
            engine(path, code, &["crates/engine/src/store.rs:1: turns `exit` off in the engine"]);
        }
        engine(
            path,
            "\n#[expect(clippy::style)] fn f() {}",
            &["crates/engine/src/store.rs:2: turns `style` off in the engine"],
        );
        engine(path, "#[expect(clippy::too_many_lines, reason = \"exit\")] fn f() {}", &[]);
        engine(path, "fn f() { all.expect(\"clippy::exit\") } // allow(clippy::exit)", &[]);
        engine("crates/engine/src/bin/roles.rs", "#![expect(clippy::exit)]", &[]);
        engine("crates/engine/tests/it.rs", "#![expect(clippy::exit)]", &[]);
    }

    #[test]
    fn only_named_modules_start_programs() {
        let code = "fn f() { std::process::Command::new(\"git\") }";
        engine("crates/engine/src/clones/git.rs", code, &[]);
        engine(
            "crates/engine/src/store.rs",
            code,
            &["crates/engine/src/store.rs:1: `store` may not start programs"],
        );
        engine("crates/engine/src/store/tests.rs", code, &[]);
    }

    #[test]
    fn only_the_module_of_locks_takes_locks() {
        let code = "fn f() { rustix::fs::flock(&file, how) } // flock";
        engine("crates/engine/src/store/lock.rs", code, &[]);
        engine(
            "crates/engine/src/review.rs",
            code,
            &["crates/engine/src/review.rs:1: locks are taken in crates/engine/src/store/lock.rs"],
        );
    }
}
