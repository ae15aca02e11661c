//! Attacks of a hostile code-mode program on its JavaScript engine, its box, the MCP server, other
//! calls, the network, and the readers of its output. Each attack has a control that succeeds.

mod escapes;
mod limits;
mod native;
mod output;
mod secrets;
mod server;
mod skills;

use std::path::PathBuf;

use belljar_testkit::{Authority, Lab, Mcp, Received, Reply, Upstream};
use serde_json::{Value, json};

use crate::lab;

/// The value of the secret `token`, which no program may see.
const SECRET_VALUE: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

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
