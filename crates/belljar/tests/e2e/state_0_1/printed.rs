//! Read-only commands print the same about state of version 0.1 as version 0.1 did.

use super::fixture::{Fixture, fixture_kind};

/// The names of all boxes of the fixture, sorted.
const BOXES: [&str; 30] = [
    "agent",
    "agent-runs",
    "all-options",
    "asks",
    "clone",
    "clone-branch",
    "clone-dirty",
    "direct",
    "discards",
    "early-config",
    "fork-of-clone",
    "fork-of-first",
    "fork-one",
    "fork-two",
    "full",
    "killed",
    "needs-cgroup",
    "no-network",
    "not-there",
    "nothing",
    "one",
    "plain",
    "reader",
    "resets",
    "rewired",
    "rootfs",
    "shell",
    "three",
    "twice",
    "two",
];

#[test]
fn read_only_commands_print_state_of_version_0_1_as_version_0_1_did() {
    let fixture = Fixture::unpack();
    assert_eq!(fixture.boxes(), BOXES);
    let mut text = String::new();
    // These commands run first, because later commands may add events to the ledger.
    for command in [
        "ledger verify --deep",
        "ledger verify --checkpoint home/checkpoint.txt --key home/keys.pub",
        "ledger log",
        "ledger key show",
        "runs --all",
    ] {
        text.push_str(&entry(&fixture, command));
    }
    for command in [
        "runs --all --pending",
        "runs --all --json",
        "list",
        "list --json",
        "restore",
        "restore --json",
        "secret list",
        "secret list --json",
        "skill list",
        "skill list --json",
        "skill show double",
        "skill history double --json",
        "skill show wants",
        "skill show waits",
        "mcp servers",
        "api list",
        "api show shop",
        "template list",
        "template show small",
        "agent show own",
        "net log --all",
        "ledger verify-receipt --accept-format-1 home/kept-bodies.receipt",
        "ledger replay kept-bodies",
        "diff pending",
        "diff pending --stat",
        "diff pending --json",
        "diff second-pending --stat",
        "diff partly --stat",
        "diff at-once --stat",
        "gc --dry-run --older-than 36500d",
    ] {
        text.push_str(&entry(&fixture, command));
    }
    for name in ["token", "key", "openai", "own-login"] {
        text.push_str(&entry(&fixture, &format!("secret test {name}")));
    }
    for name in BOXES {
        for command in ["status", "snapshot --list", "diff", "diff --home", "logs"] {
            let (verb, options) = command.split_once(' ').unwrap_or((command, ""));
            text.push_str(&entry(&fixture, format!("{verb} {name} {options}").trim_end()));
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../fixtures/state-0.1");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("printed-as-{}", fixture_kind()), text));
}

/// Runs a command and returns it with its standard output, its standard error, and its exit code
/// unless it is 0.
fn entry(fixture: &Fixture, command: &str) -> String {
    let ended = fixture.belljar(command.split(' ')).run();
    let mut text = format!("$ belljar {command}\n");
    for stream in [&ended.stdout, &ended.stderr] {
        text.push_str(&without_makers(&without_inodes(&String::from_utf8_lossy(stream))));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if ended.code() != 0 {
        text.push_str(&format!("[exit {}]\n", ended.code()));
    }
    text.push('\n');
    text
}

/// Replaces device and inode numbers in a text by `N`, because they differ between copies.
fn without_inodes(text: &str) -> String {
    let mut out = text.to_owned();
    for key in ["\"dev\":", "\"ino\":"] {
        let mut parts = out.split(key);
        let mut cut = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            cut.push_str(key);
            cut.push('N');
            cut.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_digit()));
        }
        out = cut;
    }
    out
}

/// Removes the makers of boxes, which version 0.1 did not print.
fn without_makers(text: &str) -> String {
    let mut parts = text.split("\"maker\":\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once("\",").map_or(part, |(_, rest)| rest));
    }
    out
}
