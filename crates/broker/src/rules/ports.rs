//! The TCP ports that rules name.

use std::collections::BTreeSet;

use belljar_model::Net;
use belljar_model::net::{HttpRule, Rule, RuleTarget, Target};

use super::Rules;
use super::denial::Act;

impl Rules {
    /// Returns the TCP ports on which the broker listens for the box, except the DNS port. Ports 80
    /// and 443 are always included, so that a denied request gets an explanation.
    pub fn ports(&self) -> BTreeSet<u16> {
        if self.net == Net::None {
            return BTreeSet::new();
        }
        let mut ports = BTreeSet::from([80, 443]);
        for rule in self.allow.iter().chain(&self.ask) {
            match &rule.what {
                RuleTarget::Http(http) => ports.extend(&http.ports),
                RuleTarget::Tcp(tcp) => ports.extend([tcp.port]),
                RuleTarget::HostPort(port) => ports.extend([*port]),
            }
        }
        ports.remove(&53);
        ports
    }

    /// Returns whether a rule for HTTP, or `net = "full"`, can allow requests to this port of a
    /// target.
    pub fn names_port(&self, target: &Target, port: u16) -> bool {
        let names = |http: &HttpRule| {
            let is_port = http.ports.is_empty() || http.ports.contains(&port);
            is_port && http.host.matches(target)
        };
        let mut rules = self.allow.iter().chain(&self.ask).filter_map(Rule::http);
        rules.any(names) || self.full(Act::Tcp(target, port)).is_ok()
    }
}
