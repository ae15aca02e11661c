//! Attacks of a hostile program over the network of its box, and the events that the ledger records.
//!
//! Each attack has a control: the same act succeeds where the policy allows it. The servers outside
//! of the box store the requests that they receive.

mod address;
mod broker;
mod dns;
mod echo;
mod memory;
mod requests;
mod secrets;
mod smuggling;

use std::net::SocketAddr;

use belljar_testkit::{Authority, Ended, Lab, Program};
use serde_json::Value;

use crate::lab;

/// The Python module that scripts in the box import.
const KIT: &str = include_str!("attacks/kit.py");

/// Returns the TOML of a rule that allows the default template to reach one server.
fn rule(host: &str, connect: SocketAddr, more: &str) -> String {
    format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n{more}\n")
}

/// Creates a lab whose default template has the given network rules.
fn lab_with_rules(authority: &Authority, rules: &[String]) -> Lab {
    lab_with_template(authority, "", rules)
}

/// Creates a lab whose default template has the given keys and network rules.
///
/// The last rules may be other sections of `belljar.toml`.
fn lab_with_template(authority: &Authority, keys: &str, rules: &[String]) -> Lab {
    let lab = lab();
    let rules = rules.concat();
    let template = format!("[template.default]\nnet = \"restricted\"\n{keys}\n{rules}");
    lab.configure_for(authority, &template);
    lab
}

/// Returns the command that runs a Python script in a box, with `kit.py` in its workspace.
fn python_in_box(lab: &Lab, script: &str) -> Program {
    lab.write("kit.py", KIT);
    lab.belljar(["run", "--", "/usr/bin/python3", "-c"]).arg(format!("from kit import *\n{script}"))
}

/// Runs a Python script in a box and parses the JSON that the script prints.
#[track_caller]
fn run_script(lab: &Lab, script: &str) -> Value {
    parse_output(&python_in_box(lab, script).run())
}

/// Parses the JSON that a program printed, after checking that the program succeeded.
#[track_caller]
fn parse_output(ended: &Ended) -> Value {
    let out = ended.expect(0);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{}", ended.err()))
}

/// Returns the fields of all ledger events of one kind, in the order of `ledger log`.
#[track_caller]
fn ledger_events(lab: &Lab, kind: &str) -> Vec<Value> {
    let log =
        lab.belljar(["ledger", "log", "--json", "--limit", "100000", "--kind", kind]).succeed();
    log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].take()).collect()
}

/// Asserts that the ledger has a denied request for `host` whose reason starts with `code`.
#[track_caller]
fn assert_denied(lab: &Lab, host: &str, code: &str) {
    let decided = ledger_events(lab, "request.decided");
    let is_denied = |it: &Value| {
        it["verdict"] == "deny"
            && it["host"] == host
            && it["reason"].as_str().is_some_and(|reason| reason.starts_with(&format!("{code}:")))
    };
    assert!(decided.iter().any(is_denied), "no {code} of {host} in {decided:#?}");
}

/// Asserts that the ledger has an alarm with the given name.
#[track_caller]
fn assert_alarm(lab: &Lab, alarm: &str) {
    let raised = ledger_events(lab, "alarm.raised");
    assert!(raised.iter().any(|it| it["alarm"] == alarm), "no {alarm} in {raised:#?}");
}

/// The value of the secret `token`, which no box may see.
const SECRET_VALUE: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// Returns the TOML section `[secret.token]` for the given hosts; its variable is `TOKEN`.
fn token_section(hosts: &str, more: &str) -> String {
    format!(
        "[secret.token]\nhosts = [{hosts}]\nslots = [\"header:authorization\"]\n\
         shape = \"ghp_{{36}}\"\nenv = \"TOKEN\"\n{more}\n"
    )
}

/// Creates a lab with the given network rules, where the secret `token` is declared and set.
fn lab_with_secret(authority: &Authority, rules: &[String], declared: &str) -> Lab {
    let rules = [rules, &[declared.to_owned()]].concat();
    let lab = lab_with_template(authority, "secrets = [\"token\"]", &rules);
    lab.belljar(["secret", "set", "token"]).input(SECRET_VALUE).run().expect(0);
    lab
}

/// Returns the process id of the broker that a supervisor started.
#[track_caller]
fn broker_pid(supervisor: i32) -> i32 {
    let is_broker = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|name| name.starts_with("belljar-broker"))
    };
    let processes = belljar_testkit::descendants(supervisor);
    processes.into_iter().map(|(pid, _)| pid).find(is_broker).expect("a broker")
}
