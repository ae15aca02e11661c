//! Attacks on the program slots that all clients of an MCP server share.

use belljar_testkit::{McpHttp, eventually_shows};
use serde_json::json;

use super::*;

/// The number of programs that a server runs at once. One of them is kept for the other token.
const SLOTS: usize = 32;

/// Returns the number of programs that have started, from the files that they created.
fn started(lab: &Lab) -> usize {
    let find = lab.program("find").arg(lab.state()).args(["-name", "started-*", "-type", "f"]);
    find.run().out().lines().count()
}

#[test]
fn f14_programs_of_one_token_in_all_slots_do_not_delay_another_token() {
    let lab = lab();
    let (_live, address) = start_server_with_two_tokens(&lab);
    let session = |token: usize| McpHttp::start(address, TOKENS[token]);
    // A session runs fewer calls at once than the server.
    let (sessions, other) = ([session(0), session(0)], session(1));
    let waiting = |number: usize| {
        let command = format!("touch /workspace/started-{number}; sleep 1000");
        let arguments = json!({ "command": command, "timeout": 300 });
        sessions[number % 2].begin_call("run_command", &arguments)
    };
    let calls: Vec<_> = (0..SLOTS + 3).map(waiting).collect();
    let all = (SLOTS - 1).to_string();
    eventually_shows("slots are used", || started(&lab).to_string(), |count| count == all);
    for number in 0..3 {
        assert_eq!(other.run("6 * 7")["result"], 42, "call {number} of the other token");
    }
    // Control: further calls of the first token wait, because its slots are used up.
    assert_eq!(started(&lab), SLOTS - 1);
    drop(calls);
    sessions.into_iter().for_each(McpHttp::end);
    let first = session(0).run("6 * 7");
    assert_eq!(first["result"], 42, "the first token continues when its calls have ended");
}
