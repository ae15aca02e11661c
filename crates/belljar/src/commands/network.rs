//! `belljar network`: other rules for a box, at once and for its next starts.

use belljar_model::Net;
use belljar_model::boxes::{BoxName, NetworkChange};
use belljar_model::net::Allow;
use serde::Serialize;

use crate::cli::network::NetworkChangeArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;
use belljar_engine::boxes;
use belljar_engine::error::{ErrorKind, WithKind as _};

/// What was changed, for programs.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    name: &'a BoxName,
    net: Net,
    allow: Vec<String>,
    deny: Vec<String>,
    /// Whether it is in force already.
    running: bool,
}

pub(crate) fn run(args: &NetworkChangeArgs) -> Outcome {
    let state = scope::open(None)?;
    let (allow, deny) = (args.allow.clone(), args.deny.clone());
    let said = NetworkChange { net: args.net, allow, deny };
    let running = boxes::change_network(&state, &args.name, &said)?;
    if args.json {
        print::json(&changed(args, running)).kind(ErrorKind::Broken)?;
    } else {
        let when = if running { "now" } else { "from its next start on" };
        print::note(&format!("box {}: net {} {when}", args.name, args.net));
    }
    Ok(0)
}

fn changed(args: &NetworkChangeArgs, running: bool) -> Changed<'_> {
    let allow = args.allow.iter().map(|allow| match allow {
        Allow::Preset(name) => name.to_string(),
        Allow::Rule(rule) => rule.what.to_string(),
    });
    let deny = args.deny.iter().map(|rule| rule.what.to_string());
    let (allow, deny) = (allow.collect(), deny.collect());
    Changed { name: &args.name, net: args.net, allow, deny, running }
}
