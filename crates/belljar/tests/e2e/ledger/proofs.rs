//! Verification of the ledger, receipts, proofs, keys, and removal of bodies.

use std::fs;
use std::os::unix::fs::FileExt;

use belljar_ledger::{
    Actor, AlarmRaised, Digest, DnsDecided, Draft, Ledger, LedgerPaths, RequestDecided,
    RequestFinished, SecretUsed,
};
use belljar_model::RunId;
use belljar_testkit::{Signal, Terminal, eventually};
use serde_json::json;

use super::*;
use crate::lab;

/// Runs `verify` with `--json`, checks its exit code, and returns the codes of all damage findings.
#[track_caller]
fn findings(program: Program, code: i32) -> Vec<String> {
    let ended = program.arg("--json").run();
    ended.expect(code);
    let report = ended.result();
    assert_eq!(report["sound"], code == 0, "{report}");
    let damage = |finding: &&Value| finding["severity"] == "damage";
    let found = report["findings"].as_array().expect("findings").iter().filter(damage);
    found.map(|finding| finding["code"].as_str().expect("a code").to_owned()).collect()
}

#[test]
fn ledger_verify_reports_an_intact_ledger_as_sound() {
    let lab = lab();
    record_bodies(&lab);
    run(&lab, &[], "echo x > f; echo out");
    let text = ledger(&lab, ["verify", "--deep"]).succeed();
    for part in
        ["valid: ", "of 1 runs", "root     ", "key      belljar/", "anchored no event", "bodies   "]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let report = object(ledger(&lab, ["verify", "--json"]));
    assert_eq!((&report["sound"], &report["runs"]), (&json!(true), &json!(1)));
    assert_eq!(report["events"], report["signed"]);
    assert_eq!(report["bodies"], Value::Null);
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [String; 0]);
}

#[test]
fn h12_ledger_verify_finds_a_changed_byte_and_names_the_file() {
    let lab = lab();
    run(&lab, &[], "true");
    let log = lab.state().join("ledger/events.log");
    let file = fs::File::options().read(true).write(true).open(&log).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let ended = ledger(&lab, ["verify"]).run();
    let text = ended.expect(1);
    assert!(text.contains("DAMAGED") && text.contains("events.log"), "{text}");
    assert!(!findings(ledger(&lab, ["verify"]), 1).is_empty());
    file.write_all_at(&byte, at).unwrap();
    assert_eq!(findings(ledger(&lab, ["verify"]), 0), [] as [String; 0]);
}

#[test]
fn h01_ledger_verify_rejects_an_older_copy_against_an_external_checkpoint() {
    let lab = lab();
    run(&lab, &[], "true");
    let (state, copy) = (lab.state(), lab.dir().join("copy"));
    for part in ["ledger", "anchor"] {
        copy_tree(&state.join(part), &copy.join(part));
    }
    run(&lab, &[], "true");
    let kept = lab.dir().join("checkpoint");
    let kept = kept.to_str().unwrap();
    ledger(&lab, ["checkpoint", "-o", kept]).run().fails_with(0, "another machine");
    let text = ledger(&lab, ["verify", "--checkpoint", kept]).succeed();
    assert!(text.contains("anchored events 0 to "), "{text}");
    for part in ["ledger", "anchor"] {
        fs::remove_dir_all(state.join(part)).unwrap();
        copy_tree(&copy.join(part), &state.join(part));
    }
    // Without the checkpoint, the copy is consistent in itself.
    assert_eq!(findings(ledger(&lab, ["verify"]), 0), [] as [String; 0]);
    let found = findings(ledger(&lab, ["verify", "--checkpoint", kept]), 1);
    assert_eq!(found, ["checkpoint-ahead"]);
}

#[test]
fn h01_ledger_readers_and_verify_report_a_truncated_or_missing_log() {
    let lab = lab();
    run(&lab, &[], "true");
    let log = lab.state().join("ledger/events.log");
    let complete = fs::read(&log).unwrap();
    let mut batches = complete.windows(4).enumerate().filter(|(_, four)| four == b"BJB1");
    let last = batches.next_back().unwrap().0;
    for command in [&["log"][..], &["log", "--json"], &["export"], &["show", "0"]] {
        assert_eq!(ledger(&lab, command).run().err(), "", "an intact ledger raises no alarm");
    }
    fs::write(&log, &complete[..last]).unwrap();
    for command in [&["log"][..], &["log", "--json"], &["export"], &["show", "0"]] {
        ledger(&lab, command).run().fails_with(0, "the ledger was truncated");
    }
    assert_eq!(findings(ledger(&lab, ["verify"]), 1), ["log-truncated"]);
    lab.bash("true").run().fails_with(125, "truncated");
    fs::remove_file(&log).unwrap();
    ledger(&lab, ["log"]).run().fails_with(1, "is missing, but its keys exist");
    assert_eq!(findings(ledger(&lab, ["verify"]), 1), ["log-missing"]);
    fs::write(&log, &complete).unwrap();
    fs::write(lab.state().join("anchor/head"), "").unwrap();
    ledger(&lab, ["log"]).run().fails_with(0, "the ledger has no valid signed checkpoint");
    assert_eq!(findings(ledger(&lab, ["verify"]), 1).len(), 1);
}

#[test]
fn ledger_verify_checks_the_given_keys_and_checkpoints() {
    let (lab, other) = (lab(), lab());
    run(&lab, &[], "true");
    run(&other, &[], "true");
    let foreign = ledger(&other, ["key", "export"]).succeed();
    let found = findings(ledger(&lab, ["verify", "--key", &foreign]), 1);
    assert!(found.contains(&"key-not-of-ledger".to_owned()), "{found:?}");
    let own = lab.dir().join("key.pub");
    ledger(&lab, ["key", "export", "-o", own.to_str().unwrap()]).succeed();
    assert_eq!(findings(ledger(&lab, ["verify", "--key", own.to_str().unwrap()]), 0).len(), 0);
    let invalid = lab.write("rubbish", "no key\n");
    let invalid = invalid.to_str().unwrap();
    ledger(&lab, ["verify", "--key", invalid]).run().fails_with(2, "--key");
    ledger(&lab, ["verify", "--key", "/no/such/file"]).run().fails_with(2, "--key");
    ledger(&lab, ["verify", "--checkpoint", "/no/such/file"]).run().fails_with(2, "--checkpoint");
    ledger(&lab, ["verify", "--checkpoint", "/dev/zero"]).run().fails_with(2, "--checkpoint");
    let found = findings(ledger(&lab, ["verify", "--checkpoint", invalid]), 1);
    assert_eq!(found, ["checkpoint-malformed"]);
}

#[test]
fn h09_ledger_verify_accepts_a_missing_body_only_after_a_recorded_redaction() {
    let lab = lab();
    record_bodies(&lab);
    let (kept, private) = (run(&lab, &[], "echo kept"), run(&lab, &[], "echo private"));
    let (kept, hash) = (stdout_hash(&lab, &kept), stdout_hash(&lab, &private));
    let redact = |args: &[&str]| ledger(&lab, ["redact"]).args(args);
    redact(&[&hash]).run().fails_with(2, "--reason");
    redact(&[&hash, "--reason", " "]).run().fails_with(2, "--reason");
    redact(&["--reason", "x"]).run().fails_with(2, "HASH");
    redact(&["abc", "--reason", "x"]).run().fails_with(2, "HASH");
    let unconfirmed = redact(&[&hash, "--reason", "x"]).run();
    unconfirmed.fails_with(2, "nothing was redacted");
    let out = unconfirmed.out();
    assert!(out.contains(&format!("of run {private}")), "{out}");
    assert_eq!(ledger(&lab, ["get", &hash]).succeed(), "private");
    // On a terminal, the command asks for confirmation.
    let mut terminal = Terminal::start(redact(&[&hash, "--reason", "not ours"]), 24, 200);
    terminal.wait_for("delete these bodies permanently? [y/N]");
    terminal.type_keys("y\r");
    terminal.wait_for("can still be verified");
    assert_eq!(terminal.end().0.code(), Some(0));
    assert!(!body_file(&lab, &hash).exists());
    ledger(&lab, ["get", &hash]).run().fails_with(1, "redacted by event");
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [String; 0]);
    let redacted = objects(ledger(&lab, ["log", "--json", "--kind", "ledger.redacted"]));
    assert_eq!(redacted[0]["fields"], json!({ "bodies": [hash], "reason": "not ours" }));
    let index = event(&lab, &private, "run.ended")["index"].to_string();
    assert!(ledger(&lab, ["show", &index]).succeed().contains("redacted by event"));
    // A body that is missing without a redaction is damage.
    fs::remove_file(body_file(&lab, &kept)).unwrap();
    assert_eq!(findings(ledger(&lab, ["verify"]), 0), [] as [String; 0]);
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 1), ["body-missing"]);
    let report = object(redact(&[&kept[..16], "--reason", "lost", "--yes", "--json"]));
    assert_eq!(report["redacted"], json!([kept]));
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [String; 0]);
}

#[test]
fn ledger_prune_drops_old_bodies_and_keeps_their_events() {
    let lab = lab();
    record_bodies(&lab);
    let id = run(&lab, &[], "head -c 100000 /dev/urandom");
    let hash = stdout_hash(&lab, &id);
    let usage = || object(ledger(&lab, ["usage", "--json"]));
    let before = usage();
    assert!(before["bodies"]["disk_bytes"].as_u64().unwrap() >= 100_000, "{before}");
    assert!(ledger(&lab, ["usage"]).succeed().contains("bodies"));
    let prune = |args: &[&str]| ledger(&lab, ["prune"]).args(args);
    prune(&["--before", "1d", "--yes"]).run().fails_with(0, "0 bodies");
    prune(&["--before", "2100-01-01", "--dry-run"]).run().fails_with(0, "nothing was deleted");
    let dry = object(prune(&["--before", "0s", "--dry-run", "--json"]));
    assert!(dry["would_drop"].as_u64().unwrap() >= 1, "{dry}");
    assert_eq!(usage()["bodies"], before["bodies"]);
    prune(&[]).run().fails_with(2, "--before");
    prune(&["--before", "soon"]).run().fails_with(2, "--before");
    prune(&["--before", "0s"]).run().fails_with(2, "--yes");
    let report = object(prune(&["--before", "0s", "--yes", "--json"]));
    assert_eq!(report["usage_before"]["bodies"], before["bodies"]);
    assert_eq!(report["usage"]["bodies"]["count"], 0);
    assert_eq!(usage()["bodies"]["count"], 0);
    ledger(&lab, ["get", &hash]).run().fails_with(1, "pruned because of its age by event");
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [String; 0]);
    assert_eq!(event(&lab, &id, "run.ended")["fields"]["stdout"]["hash"], hash.as_str());
}

#[test]
fn receipt_verifies_on_another_machine_and_fails_after_any_change() {
    let (lab, elsewhere) = (lab(), lab());
    record_bodies(&lab);
    let id = run(&lab, &["--name", "proved"], "echo x > f; echo out; exit 3");
    run(&lab, &[], "true");
    let plain = ledger(&lab, ["receipt", "proved"]).run();
    let plain = plain.stdout;
    let file = elsewhere.dir().join("receipt");
    let name = file.to_str().unwrap();
    ledger(&lab, ["receipt", &id, "--with-bodies", "-o", name]).run().fails_with(0, &id);
    let key = ledger(&lab, ["key", "export"]).succeed();
    let verify = |args: &[&str]| ledger(&elsewhere, ["verify-receipt"]).args(args);
    let text = verify(&[name, "--key", &key]).succeed();
    for part in [
        "proved",
        "bash -c echo x > f",
        "policy ",
        "layers ",
        "secrets    none",
        "1 file changed",
        "stdout     4 B",
        "exited with 3",
        "valid ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let report = object(verify(&[name, "--key", &key, "--json"]));
    assert_eq!(
        (&report["holds"], &report["run"], &report["ended"]),
        (&json!(true), &json!(id), &json!(true))
    );
    let piped = verify(&["-", "--key", &key]).input(plain.clone()).run();
    assert!(piped.expect(0).contains("arguments not disclosed"));
    // The machine that made the receipt trusts it. Another machine refuses it without the right key.
    ledger(&lab, ["verify-receipt", name]).succeed();
    verify(&[name]).run().fails_with(1, "--key");
    assert!(!elsewhere.state().join("ledger").exists());
    let foreign = {
        run(&elsewhere, &[], "true");
        ledger(&elsewhere, ["key", "export"]).succeed()
    };
    verify(&[name]).run().fails_with(1, "--key");
    verify(&[name, "--key", &foreign]).run().fails_with(1, "the receipt is invalid");
    assert_eq!(object(verify(&[name, "--key", &foreign, "--json"]))["holds"], false);
    let step = plain.len() / 24 + 1;
    for at in (0..plain.len()).step_by(step).chain([plain.len() - 1]) {
        let mut changed = plain.clone();
        changed[at] ^= 1;
        verify(&["-", "--key", &key]).input(changed).run().fails_with(1, "the receipt is invalid");
    }
    for cut in [0, 1, plain.len() / 2, plain.len() - 1] {
        let short = &plain[..cut];
        verify(&["-", "--key", &key]).input(short).run().fails_with(1, "the receipt is invalid");
    }
    // Events at the end cannot be left out either: the rest is in the tree, and the chain has no gap.
    let whole = String::from_utf8(plain.clone()).unwrap();
    let last = whole.rfind(",{\"index\":").expect("several events");
    let end = whole.find("],\"bodies\"").expect("the end of the events");
    let cut = format!("{}{}", &whole[..last], &whole[end..]);
    verify(&["-", "--key", &key]).input(cut).run().fails_with(1, "cut off");
    verify(&["/no/such/file", "--key", &key]).run().fails_with(2, "FILE");
    verify(&[name, "--key", "rubbish"]).run().fails_with(2, "--key");
    ledger(&lab, ["receipt", "no-such-run"]).run().fails_with(2, "no such run");
    ledger(&lab, ["receipt", &id, "-o", "/no/such/dir/x"]).run().fails_with(1, "-o");
}

/// Records DNS lookups, a request with a secret, and an alarm, through the API that the broker uses.
fn record_egress(lab: &Lab, run: &str, hostile: &str) {
    let ledger = Ledger::open(&LedgerPaths::under(&lab.state())).unwrap();
    let run: RunId = run.parse().unwrap();
    let body = |content: &[u8]| ledger.keep(Digest::of(&[b"policy"]), &mut &*content).unwrap();
    let text = str::to_owned;
    let record = |draft: Draft| ledger.record(draft.of_run(run).by(Actor::Broker)).unwrap();
    let lookup = DnsDecided {
        name: text("api.example.com"),
        query: text("A"),
        verdict: text("allow"),
        rule: Some(text("api")),
        reason: text("named"),
    };
    let denied =
        DnsDecided { name: text(hostile), verdict: text("deny"), rule: None, ..lookup.clone() };
    for lookup in [lookup, denied] {
        let _index = record(Draft::new(lookup)).index();
    }
    let decided = record(Draft::new(RequestDecided {
        method: text("POST"),
        scheme: text("https"),
        host: text("api.example.com"),
        port: 443,
        path: format!("/v1/{hostile}"),
        verdict: text("allow"),
        rule: Some(text("api")),
        reason: text("named"),
        secrets: vec![text("token")],
        body: Some(body(hostile.as_bytes())),
        upgrade: None,
    }));
    let used =
        SecretUsed { name: text("token"), slot: text("bearer"), host: text("api.example.com") };
    let _index = record(Draft::new(used).because_of(&decided)).index();
    let finished = RequestFinished {
        status: Some(200),
        sent_bytes: 1,
        received_bytes: 2,
        micros: 3,
        body: Some(body(b"")),
        error: None,
    };
    let _index = record(Draft::new(finished).because_of(&decided)).index();
    let alarm = AlarmRaised { alarm: text("canary"), detail: text(hostile) };
    let _index = record(Draft::new(alarm)).index();
}

#[test]
fn receipt_lists_network_requests_secrets_alarms_and_changes() {
    let (lab, elsewhere) = (lab(), lab());
    record_bodies(&lab);
    let id = run(&lab, &[], "echo x > f; echo out");
    let hostile = "\u{1b}]0;evil\u{7}\u{202e}\u{2028}\0";
    record_egress(&lab, &id, hostile);
    let key = ledger(&lab, ["key", "export"]).succeed();
    let receipt = ledger(&lab, ["receipt", &id, "--with-bodies"]).run().stdout;
    let verify = |args: &[&str]| {
        let verify = ledger(&elsewhere, ["verify-receipt", "-", "--key", &key]).args(args);
        verify.input(receipt.clone()).run()
    };
    let text = verify(&[]).expect(0);
    for part in [
        "name       allow A api.example.com",
        r"name       deny A \x1b]0;evil\x07\u{202e}\u{2028}\x00",
        "request    allow POST https://api.example.com:443/v1/",
        "with secret token",
        "secrets    token",
        "ALARM      canary: ",
        "1 file changed",
        "exited with 0",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_printable(text.as_bytes());
    assert_eq!(verify(&["--json"]).result()["secrets"], json!(["token"]));
    for command in ["log", "replay", "export"] {
        let args: &[&str] = if command == "replay" { &[command, &id] } else { &[command] };
        assert_printable(&ledger(&lab, args).run().stdout);
    }
    let trace = object(ledger(&lab, ["export", "--otel", "--run", &id]));
    let spans = &trace["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans[1]["name"], "POST api.example.com");
    assert_eq!(spans[1]["events"][0]["name"], "secret.used");
    let decided = event(&lab, &id, "request.decided");
    let hash = decided["fields"]["body"]["hash"].as_str().unwrap();
    assert_eq!(ledger(&lab, ["get", hash]).run().stdout, hostile.as_bytes());
    // The receipt still verifies after the body of the request was redacted.
    ledger(&lab, ["redact", hash, "--reason", "private", "--yes"]).run().expect(0);
    let redacted = ledger(&lab, ["receipt", &id, "--with-bodies"]).run().stdout;
    ledger(&elsewhere, ["verify-receipt", "-", "--key", &key]).input(redacted).succeed();
}

#[test]
fn ledger_verifies_with_each_key_after_a_key_rotation() {
    let (lab, elsewhere) = (lab(), lab());
    let id = run(&lab, &[], "true");
    let old = ledger(&lab, ["key", "export"]).succeed();
    ledger(&lab, ["key", "rotate"]).run().fails_with(2, "--yes");
    let new = ledger(&lab, ["key", "rotate", "--yes"]).succeed();
    assert_ne!(old, new);
    assert_eq!(ledger(&lab, ["key", "export"]).succeed(), format!("{old}\n{new}"));
    let shown = ledger(&lab, ["key", "show"]).succeed();
    assert_eq!(shown, format!("former  {old}\nsigns   {new}"));
    assert_eq!(object(ledger(&lab, ["key", "show", "--json"]))["signs"], new.as_str());
    let third = object(ledger(&lab, ["key", "rotate", "--yes", "--json"]))["key"].clone();
    assert_ne!(third, new.as_str());
    assert_eq!(findings(ledger(&lab, ["verify", "--key", &old]), 0), [] as [String; 0]);
    let receipt = ledger(&lab, ["receipt", &id]).run().stdout;
    for key in [&old, &new, third.as_str().unwrap()] {
        ledger(&elsewhere, ["verify-receipt", "-", "--key", key]).input(receipt.clone()).succeed();
    }
}

#[test]
fn ledger_proofs_verify_and_changed_or_foreign_proofs_fail() {
    let (lab, elsewhere) = (lab(), lab());
    let id = run(&lab, &[], "true");
    let dir = elsewhere.dir().to_owned();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let key = ledger(&lab, ["key", "export"]).succeed();
    let note = ledger(&lab, ["checkpoint"]).succeed();
    assert!(note.starts_with("belljar/") && note.contains("\n\n\u{2014} belljar/"), "{note}");
    let recorded = objects(ledger(&lab, ["log", "--json", "--kind", "ledger.checkpoint"]));
    assert_eq!(recorded[0]["fields"]["size"].to_string(), note.lines().nth(1).unwrap());
    let report = object(ledger(&lab, ["checkpoint", "--json"]));
    assert_eq!(report["checkpoint"].as_str().unwrap().lines().next(), note.lines().next());
    let verify = |file: &str| ledger(&elsewhere, ["verify-proof", file, "--key", &key]);
    let last = format!("{id}/0");
    ledger(&lab, ["prove", &last, "-o", &path("proof")]).succeed();
    let text = verify(&path("proof")).succeed();
    assert!(text.contains("run.created") && text.contains("valid: "), "{text}");
    assert_eq!(object(verify(&path("proof")).arg("--json"))["holds"], true);
    assert!(ledger(&lab, ["prove", "0"]).succeed().contains("checkpoint\nbelljar/"));
    ledger(&lab, ["prove", "99999"]).run().fails_with(2, "no event");
    // Consistency proofs, between checkpoints and between sizes.
    fs::write(path("old"), format!("{note}\n")).unwrap();
    run(&lab, &[], "true");
    ledger(&lab, ["checkpoint", "-o", &path("new")]).succeed();
    ledger(&lab, ["consistency", &path("old"), &path("new"), "-o", &path("grown")]).succeed();
    assert!(verify(&path("grown")).succeed().contains("starts with the ledger of"));
    let text = ledger(&lab, ["consistency", "0", "3"]).succeed();
    assert!(text.contains("from 0 events") && text.contains("to   3 events"), "{text}");
    ledger(&lab, ["consistency", "1", "3", "-o", &path("sizes")]).succeed();
    verify(&path("sizes")).run().fails_with(1, "no signed checkpoint");
    ledger(&lab, ["consistency", "3", "1"]).run().fails_with(2, "the smaller size comes first");
    ledger(&lab, ["consistency", "1", "99999"]).run().fails_with(2, "B: the size 99999");
    ledger(&lab, ["consistency", "x", "1"]).run().fails_with(2, "A: cannot read x");
    ledger(&elsewhere, ["consistency", "0", "0"]).run().fails_with(2, "no ledger yet");
    // A foreign key, a changed proof, and files that are not proofs.
    let other = crate::lab();
    run(&other, &[], "true");
    ledger(&other, ["verify-proof", &path("proof")]).run().fails_with(1, "");
    ledger(&elsewhere, ["verify-proof", &path("proof")]).run().fails_with(1, "--key");
    for name in ["proof", "grown"] {
        let text = fs::read_to_string(path(name)).unwrap();
        let mut proof: Value = serde_json::from_str(&text).unwrap();
        proof["proof"][0] = json!("00".repeat(32));
        fs::write(path("changed"), proof.to_string()).unwrap();
        verify(&path("changed")).run().fails_with(1, "");
        proof["more"] = json!(1);
        fs::write(path("changed"), proof.to_string()).unwrap();
        verify(&path("changed")).run().fails_with(2, "not a proof");
    }
    verify("/dev/null").run().fails_with(2, "not a proof");
    verify("/dev/zero").run().fails_with(2, "larger than");
}

#[test]
fn h11_ledger_settle_closes_an_intent_without_outcome_after_its_run_ended() {
    let lab = lab();
    let live = lab.bash("echo rea''dy; sleep 1000").start();
    live.wait_for_output("ready");
    let id = lab.run_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let intent = event(&lab, &id, "run.created")["index"].to_string();
    let settle = |id: &str| ledger(&lab, ["settle", id, "--reason", "looked at it"]);
    settle(&intent).run().fails_with(2, "still running");
    live.signal(Signal::KILL);
    live.wait();
    eventually("the run has ended", || settle(&intent).run().code() == 0);
    let settled = event(&lab, &id, "attention.settled");
    assert_eq!(settled["cause"].to_string(), intent);
    assert_eq!(settled["fields"]["reason"], "looked at it");
    settle(&intent).run().fails_with(2, "is not an intent with an unknown result");
    settle("0").run().fails_with(2, "is not an intent with an unknown result");
    ledger(&lab, ["settle", &intent]).run().fails_with(2, "--reason");
    assert_eq!(findings(ledger(&lab, ["verify"]), 0), [] as [String; 0]);
}

#[test]
fn h11_ledger_settle_closes_several_intents_at_once_or_none_of_them() {
    let lab = lab();
    let mut intents = Vec::new();
    for _ in 0..4 {
        let live = lab.bash("echo rea''dy; sleep 1000").start();
        live.wait_for_output("ready");
        let id = newest_run(&lab);
        intents.push((event(&lab, &id, "run.created")["index"].to_string(), id));
        live.signal(Signal::KILL);
        live.wait();
    }
    let settle =
        |args: &[&str]| ledger(&lab, ["settle", "--reason", "power failure", "--json"]).args(args);
    let [(first, _), (second, _), (_, third), _] = intents.as_slice() else { panic!() };
    settle(&[first, "0"]).run().fails_with(2, "is not an intent with an unknown result");
    settle(&[first, "--all"]).run().fails_with(2, "cannot be used with");
    settle(&[]).run().fails_with(2, "--all");
    let count = |args: &[&str]| {
        let settled = settle(args).run();
        if settled.code() == 0 { settled.out().lines().count() } else { 0 }
    };
    eventually("the first two runs have ended", || count(&[first, second, first]) == 2);
    eventually("the third run has ended", || count(&["--run", third]) == 1);
    eventually("the fourth run has ended", || count(&["--all"]) == 1);
    let nothing = settle(&["--all"]).run();
    assert_eq!(nothing.expect(0), "");
    assert!(nothing.err().contains("nothing was recorded"), "{}", nothing.err());
    for (intent, id) in &intents {
        assert_eq!(event(&lab, id, "attention.settled")["cause"].to_string(), *intent);
    }
    assert_eq!(findings(ledger(&lab, ["verify"]), 0), [] as [String; 0]);
}

/// Returns the id of the run that was started last.
fn newest_run(lab: &Lab) -> String {
    let runs = lab.runs();
    let names = runs.iter().map(|dir| dir.file_name().unwrap().to_str().unwrap());
    names.max().unwrap().to_owned()
}

#[test]
fn damaged_ledger_refuses_runs_until_ledger_mend_is_confirmed() {
    let lab = lab();
    run(&lab, &[], "true");
    let mend = |args: &[&str]| ledger(&lab, ["mend", "--reason", "the disk lost it"]).args(args);
    assert_eq!(object(mend(&["--yes", "--json"]))["outcome"], "sound");
    // The log is cut after its first batch. It is consistent in itself, but events are missing.
    let log = lab.state().join("ledger/events.log");
    let complete = fs::read(&log).unwrap();
    let batch = b"BJB1";
    let second =
        complete.windows(4).enumerate().filter(|(_, four)| four == batch).nth(1).unwrap().0;
    fs::write(&log, &complete[..second]).unwrap();
    lab.bash("true").run().fails_with(125, "belljar ledger mend");
    mend(&[]).run().fails_with(2, "--yes");
    ledger(&lab, ["mend", "--yes"]).run().fails_with(2, "--reason");
    let report = object(mend(&["--yes", "--json"]));
    assert_eq!(report["outcome"], "continued", "{report}");
    run(&lab, &[], "true");
    let repaired = objects(ledger(&lab, ["log", "--json", "--kind", "ledger.repaired"]));
    assert_eq!(repaired[0]["fields"]["reason"], "the disk lost it");
    // A log that cannot be read at all is set aside.
    fs::write(&log, "rubbish").unwrap();
    assert_eq!(object(mend(&["--yes", "--json"]))["outcome"], "set_aside");
    assert_eq!(findings(ledger(&lab, ["verify"]), 0), [] as [String; 0]);
}

#[test]
fn h12_apply_works_again_after_ledger_mend_when_the_log_is_damaged_before_its_end() {
    let lab = lab();
    run(&lab, &[], "echo x > f");
    let log = lab.state().join("ledger/events.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[140] ^= 1;
    fs::write(&log, bytes).unwrap();
    run(&lab, &["--no-workspace"], "true"); // commands read only the end of the log
    assert!(findings(ledger(&lab, ["verify"]), 1).contains(&"batch-damaged".to_owned()));
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(lab.state().join("ledger").join(name)).ok();
    }
    let apply = || lab.belljar(["apply", "--yes"]);
    apply().run().fails_with(1, "belljar ledger mend");
    assert!(!lab.workspace().join("f").exists());
    let mend = ledger(&lab, ["mend", "--reason", "the disk lost it", "--yes", "--json"]);
    assert_eq!(object(mend)["outcome"], "set_aside");
    apply().succeed();
    assert!(lab.workspace().join("f").exists(), "the change was kept");
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [String; 0]);
}

#[test]
fn h04_concurrent_processes_write_one_valid_ledger() {
    let lab = lab();
    let runs: Vec<_> = (0..4).map(|_| lab.bash("echo x").start()).collect();
    let readers: Vec<_> = (0..4).map(|_| ledger(&lab, ["log"]).start()).collect();
    runs.into_iter().for_each(|live| drop(live.wait().expect(0)));
    readers.into_iter().for_each(|live| drop(live.wait().expect(0)));
    let mixed: Vec<_> = (0..3)
        .flat_map(|_| [ledger(&lab, ["checkpoint"]), lab.bash("true"), ledger(&lab, ["verify"])])
        .map(Program::start)
        .collect();
    mixed.into_iter().for_each(|live| drop(live.wait().expect(0)));
    assert_eq!(objects(ledger(&lab, ["log", "--json", "--kind", "run.ended"])).len(), 7);
    assert_eq!(objects(ledger(&lab, ["log", "--json", "--kind", "ledger.checkpoint"])).len(), 3);
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [String; 0]);
}

/// The ledger becomes unwritable while the program runs.
#[test]
fn run_exits_with_1_when_its_end_cannot_be_recorded() {
    let lab = lab();
    let lock = lab.state().join("ledger/lock");
    let run = |is_writable: bool| {
        let live = lab.json(&[], "echo started; read line; echo x > f").open_input().start();
        live.wait_for_output("started");
        if !is_writable {
            fs::remove_file(&lock).unwrap();
            fs::create_dir(&lock).unwrap();
        }
        live.wait()
    };
    run(true).expect(0);
    let ended = run(false);
    let result = ended.result();
    assert_eq!((&result["exit"], &result["changed_files"]), (&json!(0), &json!(1)));
    ended.fails_with(1, "its end is not recorded in the ledger");
    fs::remove_dir(&lock).unwrap();
    let id = result["run"].as_str().unwrap();
    assert!(lab.belljar(["runs"]).succeed().contains("needs attention"));
    lab.belljar(["apply", id, "--yes"]).succeed();
    assert!(lab.workspace().join("f").exists(), "the changes wait for review");
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [&str; 0]);
}

#[test]
fn h12_run_apply_and_discard_are_refused_when_the_ledger_cannot_be_written() {
    let lab = lab();
    let mark_dir = lab.dir().join("marks");
    fs::create_dir(&mark_dir).unwrap();
    let mount = format!("{}:/marks:rw", mark_dir.display());
    let mark = |name: &str| {
        let script = format!("touch /marks/{name}; echo x > f");
        lab.belljar(["run", "--mount", &mount, "--", "sh", "-c", &script]).run()
    };
    mark("control").expect(0);
    assert!(mark_dir.join("control").exists());
    let lock = lab.state().join("ledger/lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    mark("unrecorded").fails_with(125, "ledger");
    assert!(!mark_dir.join("unrecorded").exists());
    lab.belljar(["apply", "--yes"]).run().fails_with(1, "ledger");
    assert!(!lab.workspace().join("f").exists());
    lab.belljar(["discard", "--yes"]).run().fails_with(1, "ledger");
    fs::remove_dir(&lock).unwrap();
    lab.belljar(["apply", "--yes"]).succeed();
    assert!(lab.workspace().join("f").exists(), "the change was kept");
    assert_eq!(findings(ledger(&lab, ["verify", "--deep"]), 0), [] as [&str; 0]);
}
