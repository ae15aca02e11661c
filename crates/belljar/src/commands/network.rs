//! `belljar network`: changes the network mode and rules of a box, now and for its next starts.

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

/// The changed network settings of a box, as JSON.
#[derive(Debug, Serialize)]
struct NetworkChangeReport<'a> {
    name: &'a BoxName,
    net: Net,
    allow: Vec<String>,
    deny: Vec<String>,
    /// Whether the box is running, so that the change is already in effect.
    running: bool,
}

/// Runs `belljar network`.
pub(crate) fn run(args: &NetworkChangeArgs) -> Outcome {
    let state = scope::open(None)?;
    let (allow, deny) = (args.allow.clone(), args.deny.clone());
    let change = NetworkChange { net: args.net, allow, deny };
    let running = boxes::change_network(&state, &args.name, &change)?;
    if args.json {
        print::json(&report(args, running)).kind(ErrorKind::Broken)?;
    } else {
        let when = if running { "now" } else { "from the next start on" };
        print::note(&format!("box {}: the network mode is {} {when}", args.name, args.net));
    }
    Ok(0)
}

/// Returns the changed settings for the JSON output.
fn report(args: &NetworkChangeArgs, running: bool) -> NetworkChangeReport<'_> {
    let allow = args.allow.iter().map(|allow| match allow {
        Allow::Preset(name) => name.to_string(),
        Allow::Rule(rule) => rule.what.to_string(),
    });
    let deny = args.deny.iter().map(|rule| rule.what.to_string());
    let (allow, deny) = (allow.collect(), deny.collect());
    NetworkChangeReport { name: &args.name, net: args.net, allow, deny, running }
}
