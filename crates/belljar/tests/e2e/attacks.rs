//! What a hostile program tries over the network of its box, and what it then finds in the record.
//! Each act first works where the policy allows it; the servers outside keep what they were sent.

mod address;
mod bounds;
mod echo;
mod memory;
mod names;
mod secrets;
mod smuggling;
mod ways;

use std::net::SocketAddr;

use belljar_testkit::{Authority, Ended, Lab, Program};
use serde_json::Value;

use crate::lab;

/// What scripts in the box begin with.
const KIT: &str = include_str!("attacks/kit.py");

/// A rule of the default template for one server.
fn rule(host: &str, connect: SocketAddr, more: &str) -> String {
    format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n{more}\n")
}

/// A lab whose default template has these rules.
fn site(authority: &Authority, rules: &[String]) -> Lab {
    with(authority, "", rules)
}

/// The same, with more keys of the template, and sections behind the rules.
fn with(authority: &Authority, keys: &str, rules: &[String]) -> Lab {
    let lab = lab();
    let rules = rules.concat();
    let template = format!("[template.default]\nnet = \"restricted\"\n{keys}\n{rules}");
    lab.configure_for(authority, &template);
    lab
}

/// A Python script in a box, which finds the kit in its workspace.
fn python(lab: &Lab, script: &str) -> Program {
    lab.write("kit.py", KIT);
    lab.belljar(["run", "--", "/usr/bin/python3", "-c"]).arg(format!("from kit import *\n{script}"))
}

/// Runs one and reads the JSON it prints.
#[track_caller]
fn told(lab: &Lab, script: &str) -> Value {
    read(&python(lab, script).run())
}

#[track_caller]
fn read(ended: &Ended) -> Value {
    let out = ended.expect(0);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{}", ended.err()))
}

/// What the record has of this kind, in order.
#[track_caller]
fn record(lab: &Lab, kind: &str) -> Vec<Value> {
    let log =
        lab.belljar(["ledger", "log", "--json", "--limit", "100000", "--kind", kind]).succeed();
    log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].take()).collect()
}

/// Insists that the record has a refusal of this host for a reason that begins with this word.
#[track_caller]
fn on_record(lab: &Lab, host: &str, code: &str) {
    let decided = record(lab, "request.decided");
    let fits = |it: &Value| {
        it["verdict"] == "deny"
            && it["host"] == host
            && it["reason"].as_str().is_some_and(|reason| reason.starts_with(&format!("{code}:")))
    };
    assert!(decided.iter().any(fits), "no {code} of {host} in {decided:#?}");
}

/// Insists on an alarm.
#[track_caller]
fn alarmed(lab: &Lab, alarm: &str) {
    let raised = record(lab, "alarm.raised");
    assert!(raised.iter().any(|it| it["alarm"] == alarm), "no {alarm} in {raised:#?}");
}

const REAL: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// `[secret.token]` for a host, which is in the variable `TOKEN`.
fn secret(hosts: &str, more: &str) -> String {
    format!(
        "[secret.token]\nhosts = [{hosts}]\nslots = [\"header:authorization\"]\n\
         shape = \"ghp_{{36}}\"\nenv = \"TOKEN\"\n{more}\n"
    )
}

/// A lab with the rules, the declaration and the value of `token`.
fn with_secret(authority: &Authority, rules: &[String], declared: &str) -> Lab {
    let rules = [rules, &[declared.to_owned()]].concat();
    let lab = with(authority, "secrets = [\"token\"]", &rules);
    lab.belljar(["secret", "set", "token"]).input(REAL).run().expect(0);
    lab
}

/// The broker of a running box.
#[track_caller]
fn broker_of(supervisor: i32) -> i32 {
    let is_broker = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|name| name.starts_with("belljar-broker"))
    };
    let born = belljar_testkit::descendants(supervisor);
    born.into_iter().map(|(pid, _)| pid).find(is_broker).expect("a broker")
}
