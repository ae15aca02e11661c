//! `belljar init` and `belljar demo` with the real binary.

use std::fs;

use belljar_testkit::{Lab, Terminal};
use serde_json::Value;

use crate::lab;

/// Creates a project with a Rust lock file, a remote on GitHub, and a lock file that names another host.
fn project() -> Lab {
    let lab = lab();
    lab.write("Cargo.toml", "[package]\n");
    lab.write("yarn.lock", "resolved \"https://cdn.stranger.example/a.tgz\"\n");
    lab.write(".git/config", "[remote \"origin\"]\n\turl = git@github.com:acme/shop.git\n");
    lab
}

fn config(lab: &Lab) -> String {
    fs::read_to_string(lab.home().join(".config/belljar/belljar.toml")).unwrap()
}

#[test]
fn init_with_yes_writes_a_valid_file_whose_template_runs_and_never_replaces_it() {
    let lab = project();
    let text = lab.belljar(["init", "--yes", "--template", "shop", "--json"]).succeed();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["template"], "shop");
    assert_eq!(report["next"][0], "belljar run --template shop -- cargo test");
    lab.belljar(["template", "check"]).succeed();
    assert_eq!(lab.belljar(["run", "--template", "shop", "--", "echo", "hi"]).succeed(), "hi");
    for (url, verdict) in [
        ("https://static.crates.io/crates/a", "allow"),
        ("https://github.com/acme/shop.git/info/refs", "allow"),
        ("https://github.com/other/shop/info/refs", "deny"),
        ("https://cdn.stranger.example/a.tgz", "deny"),
    ] {
        let text = lab.belljar(["net", "explain", url, "--template", "shop", "--json"]).succeed();
        let explained: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(explained["verdict"], verdict, "{url}");
    }
    let before = config(&lab);
    let second = lab.belljar(["init", "--yes"]).run();
    second.fails_with(2, "belljar.toml exists and is not changed; `belljar init --print` prints");
    assert_eq!(config(&lab), before);
    let printed = lab.belljar(["init", "--yes", "--print", "--template", "shop"]).succeed();
    assert_eq!(printed.trim_end(), before.trim_end());
}

#[test]
fn init_asks_three_questions_on_a_terminal_and_obeys_the_answers() {
    let lab = project();
    let mut terminal = Terminal::start(lab.belljar(["init", "--template", "shop"]), 30, 120);
    terminal.wait_for("in boxes of this project? [Y/n]");
    terminal.type_keys("maybe\n");
    terminal.wait_for("answer y or n");
    terminal.type_keys("\n");
    terminal.wait_for("Which coding agent do you use");
    terminal.type_keys("no-such-agent\n");
    terminal.wait_for("no-such-agent");
    terminal.type_keys("claude\n");
    terminal.wait_for("May they push to github.com/acme/shop?");
    terminal.type_keys("y\n");
    let shown = terminal.wait_for("--repo .");
    assert!(shown.contains("belljar secret set github"), "{shown}");
    assert!(terminal.end().0.success());
    let text = config(&lab);
    assert!(text.contains("[template.shop-agent]"), "{text}");
    assert!(text.contains("git-receive-pack"), "{text}");
    lab.belljar(["template", "check"]).succeed();
}

#[test]
fn init_writes_nothing_without_a_terminal_or_for_an_unknown_agent() {
    let lab = project();
    let refused = lab.belljar(["init"]).run();
    refused.fails_with(2, "standard input is not a terminal; use --yes to accept the suggestions");
    let unknown = lab.belljar(["init", "--yes", "--agent", "no-such-agent"]).run();
    unknown.fails_with(2, "no-such-agent");
    assert!(!lab.home().join(".config/belljar/belljar.toml").exists());
}

#[test]
fn demo_shows_that_three_attacks_are_stopped_and_leaves_nothing_behind() {
    let lab = lab();
    let temporary = lab.home().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let demo = |args: &[&str]| {
        lab.belljar(std::iter::once("demo").chain(args.iter().copied()))
            .env("TMPDIR", &temporary)
            .succeed()
    };
    let shown = demo(&[]);
    for part in [
        "Your files are still there:\n  notes.txt  src  steal.ts",
        "key: bj_",
        "GET https://attacker.example/: no rule allows it",
        "ALARM  placeholder-elsewhere",
        "valid: ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let left = || fs::read_dir(&temporary).unwrap().count();
    assert_eq!(left(), 0);
    assert!(!lab.state().join("runs").exists(), "the state of the user is not used");
    demo(&["--keep"]);
    assert_eq!(left(), 1, "control: --keep keeps the directory");
}
