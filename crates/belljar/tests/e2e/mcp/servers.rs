//! Servers that are not ours, each in a box of its own, and programs that call their tools.

use belljar_testkit::{Lab, Mcp, descendants, eventually, is_alive, kill};
use serde_json::{Value, json};

use crate::lab;

/// A server whose tools do what the test says.
const ODD: &str = include_str!("../../../src/servers/tests/server.py");

/// Declares a server that is the script above.
fn odd(lab: &Lab) {
    odd_and(lab, "");
}

fn odd_and(lab: &Lab, mode: &str) {
    lab.write("belljar-odd/server.py", ODD);
    let dir = lab.workspace().join("belljar-odd");
    lab.configure(&format!(
        "[template.odd]\nmounts = [\"{}:/opt/odd\"]\n\n[mcp.odd]\ncommand = [\"python3\", \"/opt/odd/server.py\", \"/tmp\", \"{mode}\"]\ntemplate = \"odd\"\n",
        dir.display()
    ));
}

#[test]
fn f16_a_server_runs_in_a_box_and_never_on_the_host() {
    let lab = lab();
    odd(&lab);
    lab.belljar(["mcp", "servers", "--json"]).succeed();
    let created = lab.belljar(["ledger", "log", "--json", "--kind", "run.created"]).succeed();
    let created: Value = serde_json::from_str(created.lines().next().unwrap()).unwrap();
    assert_eq!(created["fields"]["template"], "odd");
    assert_eq!(created["fields"]["net"], "none");
    // What it left a mark with is gone with its box.
    assert!(!std::path::Path::new("/tmp/started").exists());
}

#[test]
fn d17_a_server_does_not_outlive_who_speaks_to_it() {
    let lab = lab();
    odd_and(&lab, "deaf");
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    mcp.call("search_tools", &json!({ "query": "echo" }));
    let family = descendants(mcp.pid());
    assert!(family.len() > 2, "{family:?}");
    kill(mcp.pid());
    eventually("everything is gone", || !family.iter().any(is_alive));
    // Nor when it is told to end as it should, although it does not listen.
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    mcp.call("search_tools", &json!({ "query": "echo" }));
    let family = descendants(mcp.pid());
    mcp.end().expect(0);
    eventually("everything is gone", || !family.iter().any(is_alive));
}

#[test]
fn one_server_that_does_not_come_up_hinders_no_other() {
    let lab = lab();
    odd(&lab);
    let file = lab.home().join(".config/belljar/belljar.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n[mcp.none]\ncommand = [\"no-such-program\"]\n[mcp.mute]\ncommand = [\"sleep\", \"1000\"]\ntimeout = \"1s\"\n")).unwrap();
    let ended = lab.belljar(["mcp", "servers", "--json"]).run();
    assert_eq!(ended.code(), 1);
    let listed: Vec<Value> =
        ended.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let trouble = |name: &str| {
        let server = listed.iter().find(|server| server["name"] == name).unwrap();
        server["trouble"].as_str().map(str::to_owned)
    };
    assert_eq!(trouble("odd"), None);
    assert!(trouble("none").unwrap().contains("was not found in the box"), "{listed:?}");
    assert!(trouble("mute").unwrap().contains("did not answer within 1 s"), "{listed:?}");
}
