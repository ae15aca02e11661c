//! Attacks of a hostile code-mode program on its JavaScript engine, its box, the MCP server, other
//! calls, the network, and the readers of its output. Each attack has a control that succeeds.

mod escapes;
mod limits;
mod native;
mod output;
mod secrets;
mod server;
mod skills;
mod slots;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use belljar_testkit::{Authority, Lab, Live, Mcp, Received, Reply, Upstream};
use serde_json::{Value, json};

use crate::lab;

/// The value of the secret `token`, which no program may see.
const SECRET_VALUE: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// Two tokens of different clients.
const TOKENS: [&str; 2] =
    ["client-a-0123456789-0123456789-0123", "client-b-0123456789-0123456789-0123"];

/// Starts an MCP server on HTTP that accepts both [`TOKENS`].
fn start_server_with_two_tokens(lab: &Lab) -> (Live, std::net::SocketAddr) {
    let file = lab.home().join("token");
    std::fs::write(&file, TOKENS.join("\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let args = ["mcp", "--http", "127.0.0.1:0", "--token-file"];
    let live = lab.belljar(args).arg(&file).open_input().start();
    let notes = live.wait_for_error_output("/mcp\n");
    let address = notes.split_whitespace().find_map(|word| word.strip_prefix("http://"));
    let address = address.and_then(|word| word.strip_suffix("/mcp")).expect("an address");
    (live, address.parse().unwrap())
}

/// Creates a lab whose programs may call `api.example.com` with the placeholder in `TOKEN`.
fn lab_with_api<H>(handler: H) -> (Lab, Upstream)
where
    H: Fn(&Received) -> Reply + Send + Sync + 'static,
{
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::tls(&authority, &["api.example.com"], handler);
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[api.svc]\nsecrets = [\"token\"]\n\
             [[api.svc.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n\
             [secret.token]\nhosts = [\"api.example.com\"]\nslots = [\"header:authorization\"]\n\
             shape = \"ghp_{{36}}\"\nenv = \"TOKEN\"\n"
        ),
    );
    lab.belljar(["secret", "set", "token"]).input(SECRET_VALUE).run().expect(0);
    (lab, upstream)
}

/// Responds with the received request as JSON.
fn echo(received: &Received) -> Reply {
    Reply::new(200, received.to_json().to_string()).header("content-type", "application/json")
}

/// Runs a JavaScript program and returns its result, after checking that the program succeeded.
#[track_caller]
fn result(mcp: &Mcp, code: &str) -> Value {
    result_of(&mcp.run(code))
}

/// Returns the result in a response of `execute_code`, after checking that the program succeeded.
#[track_caller]
fn result_of(response: &Value) -> Value {
    assert_eq!(response["ok"], true, "{response:#}");
    response["result"].clone()
}

/// Runs a command with the tool `run_command` and returns its structured response.
#[track_caller]
fn run_command(mcp: &Mcp, arguments: &[&str]) -> Value {
    mcp.call("run_command", &json!({ "command": arguments }))["structuredContent"].clone()
}

/// Writes a random value into a file in the operator's home and returns the path and the value.
fn host_file(lab: &Lab) -> (PathBuf, String) {
    let value = belljar_testkit::Canary::new().value().to_owned();
    let file = lab.home().join("canary.txt");
    std::fs::write(&file, &value).unwrap();
    (file, value)
}
