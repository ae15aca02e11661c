//! Commands that read the ledger: `log`, `show`, `get` and `replay`.

use std::fs;
use std::os::unix::ffi::OsStringExt;

use belljar_testkit::{Signal, Terminal, eventually};

use super::*;
use crate::lab;

#[test]
fn ledger_commands_without_a_ledger_print_nothing_and_create_none() {
    let lab = lab();
    ledger(&lab, ["log"]).run().fails_with(0, "there is no ledger yet; `belljar run` creates it");
    assert_eq!(ledger(&lab, ["log", "--json"]).succeed(), "");
    let hash = "ab".repeat(32);
    let commands: [&[&str]; 18] = [
        &["show", "0"],
        &["get", &hash],
        &["replay", "some-run"],
        &["verify"],
        &["receipt", "some-run"],
        &["checkpoint"],
        &["prove", "0"],
        &["consistency", "0", "0"],
        &["redact", &hash, "--reason", "x", "--yes"],
        &["prune", "--before", "1d", "--yes"],
        &["usage"],
        &["key", "show"],
        &["key", "rotate", "--yes"],
        &["key", "export"],
        &["settle", "0", "--reason", "x"],
        &["mend", "--reason", "x", "--yes"],
        &["export"],
        &["import-trace", "--run", "some-run", "/dev/null"],
    ];
    for command in commands {
        let ended = ledger(&lab, command).run();
        assert_eq!((ended.code(), ended.out().as_str()), (2, ""), "{command:?}: {}", ended.err());
    }
    assert!(!lab.state().join("ledger").exists() && !lab.state().join("anchor").exists());
}

#[test]
fn ledger_log_lists_all_events_and_applies_its_filters() {
    let lab = lab();
    let first = run(&lab, &["--name", "first"], "exit 3");
    let second = run(&lab, &[], "true");
    let all = objects(ledger(&lab, ["log", "--json"]));
    let indices: Vec<u64> = all.iter().map(|event| event["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(all[0]["kind"], "ledger.created");
    let text = ledger(&lab, ["log"]).succeed();
    assert_eq!(text.lines().count(), all.len());
    assert!(text.contains("exited with 3 after"), "{text}");
    assert!(text.contains(&first) && text.contains("run.created"), "{text}");
    let filtered = |args: &[&str]| objects(ledger(&lab, ["log", "--json"]).args(args));
    let of_first = filtered(&["--run", &first]);
    assert!(of_first.iter().all(|event| event["run"] == first.as_str()));
    assert_eq!(of_first[0]["fields"]["name"], "first");
    assert_eq!(filtered(&["--run", "first"]), of_first);
    assert_eq!(filtered(&["--run", &first[..15]]), of_first);
    assert_eq!(filtered(&["--run", &first, "--kind", "run.ended"]).len(), 1);
    assert_eq!(filtered(&["--kind", "run.ended"]).len(), 2);
    assert!(filtered(&["--kind", "run"]).len() > 4);
    assert_eq!(filtered(&["--since", "1h"]), all);
    assert_eq!(filtered(&["--since", "2100-01-01"]), [] as [Value; 0]);
    assert_eq!(filtered(&["--until", "1h"]), [] as [Value; 0]);
    assert_eq!(filtered(&["--limit", "2"]), all[all.len() - 2..]);
    assert_eq!(filtered(&["--limit", "0"]), [] as [Value; 0]);
    let mut reversed = all.clone();
    reversed.reverse();
    assert_eq!(filtered(&["--reverse"]), reversed);
    assert_eq!(filtered(&["--reverse", "--limit", "2"]), reversed[..2]);
    // A run whose directory was removed is still found in the ledger, by its id and its name.
    fs::remove_dir_all(lab.state().join("runs").join(&first)).unwrap();
    assert_eq!(filtered(&["--run", &first]), of_first);
    assert_eq!(filtered(&["--run", "first"]), of_first);
    let shared_prefix: String =
        first.chars().zip(second.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let invalid: [(&[&str], &str); 8] = [
        (&["--run", "no-such-run"], "--run"),
        (&["--run", &shared_prefix], "is ambiguous"),
        (&["--kind", "run.walked"], "--kind"),
        (&["--since", "yesterday"], "--since"),
        (&["--until", "2026-13-01"], "--until"),
        (&["--limit=-1"], "--limit"),
        (&["--limit", "many"], "--limit"),
        (&["--follow", "--reverse"], "--reverse"),
    ];
    for (args, about) in invalid {
        ledger(&lab, ["log"]).args(args).run().fails_with(2, about);
    }
}

#[test]
fn ledger_log_follow_prints_new_events_until_interrupted() {
    let lab = lab();
    // `--follow` also works before the first event.
    let live = ledger(&lab, ["log", "--follow", "--json"]).start();
    let id = run(&lab, &[], "true");
    live.wait_for_output("\"run.ended\"");
    live.wait_for_output(&id);
    let second = run(&lab, &[], "exit 5");
    live.wait_for_output(&second);
    live.signal(Signal::INT);
    let ended = live.wait();
    assert_eq!(ended.code(), 130);
    let filtered = ledger(&lab, ["log", "--follow", "--kind", "run.ended", "--limit", "0"]).start();
    // The command prints no events from before its start, so runs go on until it prints one.
    eventually("the end of a new run is printed", || {
        run(&lab, &[], "true");
        filtered.output().contains("run.ended")
    });
    filtered.signal(Signal::TERM);
    let seen = filtered.wait().out();
    assert!(!seen.contains(&second) && !seen.contains("run.created"), "{seen}");
    // `--follow` ends when its reader closes the pipe.
    let script = "\"$BELLJAR\" ledger log --follow | head -n 1";
    assert_eq!(lab.program("bash").args(["-c", script]).succeed().lines().count(), 1);
}

#[test]
fn ledger_show_prints_an_event_with_causes_effects_and_bodies() {
    let lab = lab();
    record_bodies(&lab);
    let id = run(&lab, &[], "printf 'hello\\n'");
    let (created, ended) = (event(&lab, &id, "run.created"), event(&lab, &id, "run.ended"));
    let index = ended["index"].to_string();
    let shown = object(ledger(&lab, ["show", "--json", &index]));
    assert_eq!(shown["fields"], ended["fields"]);
    assert_eq!(shown["hash"], ended["hash"]);
    assert_eq!(shown["causes"][0], created["index"]);
    let by_sequence = format!("{id}/{}", ended["sequence"]);
    assert_eq!(object(ledger(&lab, ["show", "--json", &by_sequence])), shown);
    let cause = object(ledger(&lab, ["show", "--json", &format!("{id}/0")]));
    assert!(cause["effects"].as_array().unwrap().contains(&ended["index"]), "{cause}");
    let states: Vec<&Value> =
        shown["bodies"].as_array().unwrap().iter().map(|body| &body["state"]).collect();
    assert!(states.contains(&&"kept".into()), "{shown}");
    let text = ledger(&lab, ["show", &index]).succeed();
    for part in
        ["run.ended", "caused by", "run.created", &stdout_hash(&lab, &id), "6 B, kept", r"hello\n"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    for wrong in ["999999", "", "x", "-1", "1/x", "no-such-run/0", &format!("{id}/999")] {
        ledger(&lab, ["show", "--", wrong]).run().fails_with(2, "");
    }
}

#[test]
fn ledger_get_returns_the_exact_bytes_of_a_body() {
    let lab = lab();
    record_bodies(&lab);
    let id = run(&lab, &[], &format!("printf '{HOSTILE_FOR_PRINTF}'"));
    let hash = stdout_hash(&lab, &id);
    let get = |args: &[&str]| ledger(&lab, ["get"]).args(args).run();
    let ended = get(&[&hash]);
    assert_eq!((ended.code(), ended.stdout.as_slice()), (0, HOSTILE));
    assert_eq!(get(&[&hash[..12]]).stdout, HOSTILE);
    let file = lab.dir().join("body");
    get(&[&hash, "-o", file.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read(&file).unwrap(), HOSTILE);
    let empty = stdout_hash(&lab, &run(&lab, &[], "true"));
    assert_eq!(get(&[&empty]).stdout, b"");
    get(&[&empty, "-o", file.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read(&file).unwrap(), b"");
    let large = run(&lab, &[], "head -c 100000000 /dev/zero");
    let ended = get(&[&stdout_hash(&lab, &large)]);
    assert!(ended.stdout.len() == 100_000_000 && ended.stdout.iter().all(|byte| *byte == 0));
    for wrong in ["xyz", "AB", "abcdefg", &"0".repeat(64), &"0".repeat(65), "../../../etc/passwd"] {
        get(&[wrong]).fails_with(2, "HASH");
    }
    // No output file is created for a damaged body, not even an empty one.
    fs::remove_file(&file).unwrap();
    fs::write(body_file(&lab, &hash), "rubbish").unwrap();
    let ended = get(&[&hash, "-o", file.to_str().unwrap()]);
    ended.fails_with(1, "damaged");
    assert!(!file.exists());
    assert_eq!(get(&[&hash]).stdout, b"");
}

#[test]
fn ledger_get_and_show_report_that_only_the_hash_was_kept() {
    let lab = lab();
    let id = run(&lab, &[], "echo x");
    let hash = stdout_hash(&lab, &id);
    ledger(&lab, ["get", &hash]).run().fails_with(1, "only the hash was recorded");
    let index = event(&lab, &id, "run.ended")["index"].to_string();
    assert!(ledger(&lab, ["show", &index]).succeed().contains("only the hash was recorded"));
}

#[test]
fn f13_ledger_get_and_log_escape_control_characters_on_a_terminal() {
    let lab = lab();
    record_bodies(&lab);
    let text = run(&lab, &[], r"printf 'a\033]0;evil\007\302\23331m\342\200\256b\n\tc'");
    let binary = run(&lab, &[], &format!("printf '{HOSTILE_FOR_PRINTF}'"));
    let on_screen = |args: &[&str]| {
        let program = ledger(&lab, args).env("NO_COLOR", "1").env("BELLJAR_PAGER", "cat");
        let (status, screen) = Terminal::start(program, 24, 200).end();
        assert_eq!(status.code(), Some(0));
        String::from_utf8(screen).expect("UTF-8").replace('\r', "")
    };
    let shown = on_screen(&["get", &stdout_hash(&lab, &text)]);
    assert_eq!(shown, "a\\x1b]0;evil\\x07\\u{9b}31m\\u{202e}b\n\tc\n");
    let shown = on_screen(&["get", &stdout_hash(&lab, &binary)]);
    assert!(shown.contains("not text") && !shown.contains('\u{1b}'), "{shown:?}");
    assert_printable(on_screen(&["log"]).as_bytes());
}

#[test]
fn f13_ledger_commands_escape_control_characters_chosen_by_a_box() {
    let lab = lab();
    record_bodies(&lab);
    // A NUL byte cannot be part of a path or an argument, and a slash cannot be part of a file name.
    let name: Vec<u8> = HOSTILE.iter().copied().filter(|byte| !matches!(byte, 0 | b'/')).collect();
    let hostile_dir = lab.dir().join(std::ffi::OsString::from_vec(name.clone()));
    fs::create_dir(&hostile_dir).unwrap();
    let argument = std::ffi::OsString::from_vec(name);
    let program = lab.belljar(["run", "--json", "--", "echo"]).arg(argument).cwd(&hostile_dir);
    let id = program.run().result()["run"].as_str().unwrap().to_owned();
    let created = event(&lab, &id, "run.created");
    assert!(created["fields"]["workspace"]["base64"].is_string(), "{created}");
    let receipt = lab.dir().join("receipt");
    let receipt = receipt.to_str().unwrap();
    ledger(&lab, ["receipt", &id, "--with-bodies", "-o", receipt]).run().expect(0);
    let index = created["index"].to_string();
    let commands: [&[&str]; 11] = [
        &["log"],
        &["log", "--json"],
        &["show", &index],
        &["show", &index, "--json"],
        &["replay", &id],
        &["replay", &id, "--json"],
        &["export"],
        &["export", "--otel"],
        &["verify-receipt", receipt],
        &["verify-receipt", receipt, "--json"],
        &["verify", "--deep"],
    ];
    for command in commands {
        let ended = ledger(&lab, command).run();
        ended.expect(0);
        assert_printable(&ended.stdout);
        if command.contains(&"--json") || command[0] == "export" {
            assert!(ended.stdout.is_ascii(), "{command:?}");
        }
    }
    assert!(ledger(&lab, ["log"]).succeed().contains(r"\x1b]0;evil\x07"));
    for command in ["show", "get", "replay", "receipt", "prove"] {
        let ended = ledger(&lab, [command, "\u{1b}]0;evil\u{7}\u{202e}"]).run();
        ended.expect(2);
        assert_printable(&ended.stderr);
    }
}

#[test]
fn ledger_replay_prints_the_events_of_a_run_in_order() {
    let lab = lab();
    let id = run(&lab, &["--name", "again"], "exit 4");
    let text = ledger(&lab, ["replay", "again"]).succeed();
    let first = text.lines().next().unwrap();
    assert!(first.contains("+0 µs") && first.contains("run.created"), "{text}");
    assert!(text.lines().last().unwrap().contains("exited with 4"), "{text}");
    let steps = objects(ledger(&lab, ["replay", &id, "--json"]));
    let offsets: Vec<u64> =
        steps.iter().map(|step| step["offset_nano"].as_str().unwrap().parse().unwrap()).collect();
    assert!(offsets.is_sorted() && offsets[0] == 0, "{offsets:?}");
    assert_eq!(steps.len(), text.lines().count());
    assert_eq!(ledger(&lab, ["replay", &id, "--speed", "1000"]).succeed(), text);
    ledger(&lab, ["replay", &id, "--step"]).run().fails_with(2, "--step");
    for speed in ["0", "-1", "inf", "NaN", "fast"] {
        ledger(&lab, ["replay", &id, &format!("--speed={speed}")]).run().fails_with(2, "--speed");
    }
    ledger(&lab, ["replay", "no-such-run"]).run().fails_with(2, "no such run");
    let program = ledger(&lab, ["replay", &id, "--step"]);
    let mut terminal = Terminal::start(program, 24, 200);
    terminal.wait_for("run.created");
    for _ in &steps {
        terminal.type_keys("\r");
    }
    terminal.wait_for("exited with 4");
    assert_eq!(terminal.end().0.code(), Some(0));
}

#[test]
fn ledger_log_on_a_terminal_uses_colours_and_pages_long_output() {
    let lab = lab();
    run(&lab, &[], "true");
    let screen = |program: Program| {
        let (_, screen) = Terminal::start(program.env("BELLJAR_PAGER", "cat"), 50, 250).end();
        String::from_utf8_lossy(&screen).into_owned()
    };
    assert!(screen(ledger(&lab, ["log"])).contains("\u{1b}[32m"));
    assert!(!screen(ledger(&lab, ["log"]).env("NO_COLOR", "1")).contains('\u{1b}'));
    // Only output that is longer than the screen goes to the pager.
    let paged = |rows| {
        let program = ledger(&lab, ["log"]).env("BELLJAR_PAGER", "sed s/^/PAGED:/");
        let (_, screen) = Terminal::start(program, rows, 250).end();
        String::from_utf8_lossy(&screen).contains("PAGED:")
    };
    assert!(paged(3) && !paged(200));
}
