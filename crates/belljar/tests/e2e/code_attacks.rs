//! What a hostile program of a model tries: against its engine, its box, the server that started it,
//! other calls, the network and whoever reads what it says. Each act first works where it may.

mod escapes;
mod limits;
mod native;
mod output;
mod secrets;
mod server;

use std::path::PathBuf;

use belljar_testkit::{Authority, Lab, Mcp, Received, Reply, Upstream};
use serde_json::{Value, json};

use crate::lab;

const REAL: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// A lab whose programs reach one service, `api.example.com`, with the secret of the variable `TOKEN`.
fn site<H>(handler: H) -> (Lab, Upstream)
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
    lab.belljar(["secret", "set", "token"]).input(REAL).run().expect(0);
    (lab, upstream)
}

fn echo(received: &Received) -> Reply {
    Reply::new(200, received.to_json().to_string()).header("content-type", "application/json")
}

/// The result of a program that must come to its end.
#[track_caller]
fn result(mcp: &Mcp, code: &str) -> Value {
    finished(&mcp.run(code))
}

#[track_caller]
fn finished(account: &Value) -> Value {
    assert_eq!(account["ok"], true, "{account:#}");
    account["result"].clone()
}

/// What a command wrote, in a box of the same kind.
#[track_caller]
fn command(mcp: &Mcp, words: &[&str]) -> Value {
    mcp.call("run_command", &json!({ "command": words }))["structuredContent"].clone()
}

/// A file of the operator's that no box has anything to do with, and what is in it.
fn canary(lab: &Lab) -> (PathBuf, String) {
    let canary = belljar_testkit::Canary::new().value().to_owned();
    let file = lab.home().join("canary.txt");
    std::fs::write(&file, &canary).unwrap();
    (file, canary)
}
