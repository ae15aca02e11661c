//! Other state of version 0.1: secrets, logins, skills, accepted tools and the ledger.

use super::fixture::Fixture;

#[test]
fn skills_of_version_0_1_keep_their_versions_and_pending_approvals() {
    let fixture = Fixture::unpack();
    let skill = |args: &[&str]| fixture.belljar(["skill"]).args(args);
    assert_eq!(skill(&["run", "double", "--input", "7"]).succeed(), "21");
    let history = fixture.objects(&["skill", "history", "double", "--json"]);
    let first = history[0]["version"].as_str().expect("a hash").to_owned();
    skill(&["approve", "double", &first, "-y"]).succeed();
    assert_eq!(skill(&["run", "double", "--input", "7"]).succeed(), "14");
    skill(&["run", "waits"]).run().fails_with(2, "waits for approval");
    skill(&["approve", "waits", "-y"]).succeed();
    // The skill is approved now, but no declared API of this machine allows the host that it requests.
    skill(&["run", "waits"]).run().fails_with(2, "was not given");
    skill(&["show", "removed"]).run().fails_with(2, "there is no skill");
}

#[test]
fn tools_accepted_with_version_0_1_stay_accepted_until_they_change() {
    let fixture = Fixture::unpack();
    let listed = fixture.objects(&["mcp", "servers", "--json"]);
    let tools = listed[0]["tools"].as_array().expect("tools");
    let accepted: Vec<&str> = tools
        .iter()
        .filter(|tool| tool["standing"] == "accepted")
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(accepted, ["echo", "many"]);
    // A tool whose description changed is no longer accepted.
    let script = fixture.path("home/servers/server.py");
    let text = std::fs::read_to_string(&script).unwrap();
    assert!(text.contains("\"Says it again.\""), "{text}");
    std::fs::write(&script, text.replace("\"Says it again.\"", "\"Says it twice.\"")).unwrap();
    let listed = fixture.objects(&["mcp", "servers", "--json"]);
    let tools = listed[0]["tools"].as_array().expect("tools");
    let echo = tools.iter().find(|tool| tool["name"] == "echo").expect("the tool");
    assert_eq!(echo["standing"], "changed");
}

#[test]
fn secrets_of_version_0_1_can_be_decrypted_and_boxes_get_placeholders() {
    let fixture = Fixture::unpack();
    for name in ["token", "key", "openai"] {
        fixture.belljar(["secret", "test", name]).succeed();
    }
    let seen = fixture.belljar(["run", "--no-workspace", "--secret", "token"]);
    let seen = seen.args(["--allow", "api.example.com"]);
    let seen = seen.args(["--", "sh", "-c", "echo $TOKEN"]).succeed();
    assert!(seen.starts_with("ghp_") && !seen.contains("fakeValueOfTheFixture"), "{seen}");
    fixture.start("agent-runs");
    let login = fixture.exec("agent-runs", "cat ~/.own/token.json");
    assert!(login.contains("\"plan\": \"large\"") && !login.contains("fake-"), "{login}");
    fixture.belljar(["stop", "--now", "agent-runs"]).succeed();
    // A secret can be replaced and removed.
    fixture.belljar(["secret", "set", "token"]).input("ghp_another-fake-value").succeed();
    fixture.belljar(["secret", "rm", "key"]).succeed();
    let listed = fixture.objects(&["secret", "list", "--json"]);
    let is_set = |name: &str| listed.iter().any(|it| it["name"] == name && it["is_set"] == true);
    assert_eq!(["key", "openai", "own-login", "token"].map(is_set), [false, true, true, true]);
}

#[test]
fn ledger_of_version_0_1_accepts_new_events_and_verifies() {
    let fixture = Fixture::unpack();
    let count = |fixture: &Fixture| fixture.objects(&["ledger", "log", "--json"]).len();
    let before = count(&fixture);
    assert!(before > 300, "the ledger of the fixture has {before} events");
    fixture.belljar(["run", "--no-workspace", "--", "true"]).succeed();
    assert!(count(&fixture) > before);
    let verify = ["ledger", "verify", "--deep", "--checkpoint", "home/checkpoint.txt"];
    fixture.belljar(verify).args(["--key", "home/keys.pub"]).succeed();
    let receipt = || fixture.belljar(["ledger", "verify-receipt", "home/kept-bodies.receipt"]);
    receipt().run().fails_with(1, "--accept-format-1");
    receipt().arg("--accept-format-1").succeed();
    let events = fixture.objects(&["ledger", "log", "--json", "--run", "kept-bodies"]);
    let ended =
        events.iter().find(|event| event["kind"] == "run.ended").expect("the end of the run");
    let hash = ended["fields"]["stdout"]["hash"].as_str().expect("a hash");
    let body = fixture.belljar(["ledger", "get", hash]).succeed();
    assert_eq!(body, "this output is on record");
    // A changed byte in the part that version 0.1 wrote is found.
    let log = fixture.path("state/ledger/events.log");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let ended = fixture.belljar(["ledger", "verify"]).run();
    assert_ne!(ended.code(), 0, "{} was changed: {}", log.display(), ended.out());
}
