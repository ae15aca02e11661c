//! Boxes of version 0.1: they start with their files, variables, limits and rules.

use belljar_testkit::eventually;
use serde_json::Value;

use super::fixture::Fixture;

/// The boxes that keep running after a start, each with a script to run in the box and its output.
const STARTED: [(&str, &str, &str); 27] = [
    (
        "plain",
        "cat changed.txt added.txt gone/*; cat ~/deep/note; ls",
        "the user's own\nbox\nnew\nother\nkept\nadded.txt\nbin\nchanged.txt\ndir\ngone\nlink\nnew\nnumbers.txt\nzeros.bin",
    ),
    (
        "all-options",
        "echo $LONG $SHORT $GLUED $EQUALS $INHERITED \"$SPACE\" $FROM; id -u; ulimit -n; \
         cat all.txt /extra/file; touch /extra/x 2> /dev/null || echo refused; cat /extra-rw/file",
        "1 2 3 4=5 from-the-caller a b template\n1000\n200\nall\nread-only from the host\nrefused\nbefore\nhost\nhost",
    ),
    ("one", "echo $FROM $FROM_UP; cat from.txt", "second-file yes\nsecond-file"),
    ("two", "echo $FROM $FROM_UP; cat from.txt", "second-file yes\nsecond-file"),
    ("three", "echo $FROM $FROM_UP; cat from.txt", "second-file yes\nsecond-file"),
    ("early-config", "echo $FROM; cat from.txt", "second-file\nsecond-file"),
    ("nothing", "cat ~/note", "kept\nkept"),
    ("direct", "cat direct-box.txt GNUmakefile", "box\nall:"),
    (
        "reader",
        "cat changed.txt; touch x 2> /dev/null || echo refused",
        "the user's own\nmore\nrefused",
    ),
    ("full", "echo here", "here"),
    ("no-network", "echo here", "here"),
    ("rewired", "echo here", "here"),
    ("shell", "cat by-exec.txt", "by exec"),
    ("asks", "echo ${#TOKEN}", "40"),
    (
        "agent",
        "cat ~/.own/config ~/.own/notes.md from-agent; echo; echo $OWN",
        "made by the agent's descriptionbe kind\nwritten by the agent\n\n1",
    ),
    ("agent-runs", "cat ~/.own/config; echo; echo $OWN", "made by the agent's description\n1"),
    ("clone", "git log --format=%s; cat added", "second\nfirst commit\nnew"),
    (
        "clone-branch",
        "git log --format='%s by %an'; git branch --show-current",
        "more on the topic by Box\non the topic branch by Ada\nfirst commit by Ada\ntopic",
    ),
    ("clone-dirty", "cat dirty.txt file", "not committed\none\nchanged and not committed"),
    ("twice", "cat count.txt", "3"),
    ("fork-one", "cat changed.txt added.txt; cat ~/deep/note", "the user's own\nbox\nnew\nkept"),
    ("fork-two", "cat changed.txt added.txt; cat ~/deep/note", "the user's own\nbox\nnew\nkept"),
    ("fork-of-first", "cat count.txt", "2"),
    ("fork-of-clone", "git log --format=%s; cat added", "second\nfirst commit\nnew"),
    ("discards", "cat lost.txt", "lost"),
    ("resets", "cat ~/note work.txt", "kept\nwork"),
    ("killed", "cat killed.txt", "before the end"),
];

/// The fields of a `run.created` event that describe the restrictions of a box.
const RESTRICTIONS: [&str; 7] =
    ["template", "mode", "net", "limits", "environment", "record", "policy"];

/// The boxes whose restrictions cannot be compared with an earlier start. Forks were never started, and
/// the network of `rewired` was changed after its only start.
const WITHOUT_EARLIER_START: [&str; 5] =
    ["fork-one", "fork-two", "fork-of-first", "fork-of-clone", "rewired"];

#[test]
fn each_stopped_box_of_version_0_1_starts_with_its_files_and_variables() {
    let fixture = Fixture::unpack();
    let mut differences = Vec::new();
    for (name, script, expected) in STARTED {
        start(&fixture, name);
        let written = fixture.exec(name, script);
        if written != expected {
            differences.push(format!("{name}: {written:?}"));
        }
        fixture.belljar(["stop", "--now", name]).succeed();
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    fixture.belljar(["ledger", "verify", "--deep"]).succeed();
}

#[test]
fn each_box_of_version_0_1_starts_with_its_recorded_limits_and_rules() {
    let fixture = Fixture::unpack();
    let names = STARTED.map(|(name, _, _)| name);
    let before = created(&fixture);
    for name in names {
        start(&fixture, name);
    }
    fixture.belljar(["stop", "--now"]).args(names).succeed();
    let after = created(&fixture);
    assert_eq!(after.len(), before.len() + names.len(), "each start is a run");
    for name in names {
        let last = |events: &[Value]| -> Option<Value> {
            events.iter().rev().find(|event| event["fields"]["name"] == name).cloned()
        };
        let now = last(&after[before.len()..]).unwrap_or_else(|| panic!("{name} was started"));
        if WITHOUT_EARLIER_START.contains(&name) {
            continue;
        }
        let then = last(&before).unwrap_or_else(|| panic!("version 0.1 started {name}"));
        for field in RESTRICTIONS {
            assert_eq!(now["fields"][field], then["fields"][field], "{field} of {name}");
        }
    }
}

#[test]
fn box_of_version_0_1_keeps_network_rules_that_were_changed_after_its_creation() {
    let fixture = Fixture::unpack();
    start(&fixture, "rewired");
    // On a machine without a network both requests fail, but only one of them is denied.
    fixture.exec("rewired", "curl -sS https://b.example.com/ https://c.example.com/ || true");
    // All events are recorded once the box is stopped.
    fixture.belljar(["stop", "--now", "rewired"]).succeed();
    let denied = fixture.belljar(["net", "log", "--all", "--denied"]).succeed();
    assert!(denied.contains("c.example.com") && !denied.contains("b.example.com"), "{denied}");
}

#[test]
fn box_of_version_0_1_without_its_program_stops_with_reason_not_found() {
    let fixture = Fixture::unpack();
    for name in ["rootfs", "not-there"] {
        fixture.belljar(["start", name]).run();
        eventually(&format!("{name} has ended"), || {
            fixture.objects(&["status", name, "--json"])[0]["state"] == "stopped"
        });
        let status = &fixture.objects(&["status", name, "--json"])[0];
        assert_eq!(status["run"]["result"]["reason"], "not_found", "{status}");
    }
}

/// Returns the `run.created` events of all runs, oldest first.
fn created(fixture: &Fixture) -> Vec<Value> {
    fixture.objects(&["ledger", "log", "--kind", "run.created", "--json"])
}

/// Starts a box and waits until it is ready. The box `shell` prints nothing, so it is not waited for.
#[track_caller]
fn start(fixture: &Fixture, name: &str) {
    if name == "shell" {
        fixture.belljar(["start", name]).succeed();
    } else {
        fixture.start(name);
    }
}
