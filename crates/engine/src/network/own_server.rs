//! Keeps boxes away from the server `belljar serve` of this state directory (threat A28).
//!
//! Addresses of this machine are refused anyway. Two kinds of rules lead to the machine nevertheless: a rule
//! for a port of the host, and a rule with `connect`. Both lose the port of the server.

use std::net::SocketAddr;
use std::path::Path;

use belljar_model::net::{Policy, Rule, RuleTarget};

use super::broker::host_addresses;
use crate::store::server_address::server_port;

/// Removes the access to the running server from the rules of a box. `home` is the state directory of the
/// engine.
pub(crate) fn deny(policy: &mut Policy, home: &Path) {
    if let Some(port) = server_port(home) {
        deny_port(policy, port);
    }
}

fn deny_port(policy: &mut Policy, port: u16) {
    if let Ok(rule) = Rule::deny(&format!("host-port:{port}")) {
        policy.deny.push(rule);
    }
    let leads_to_server = |rule: &Rule| {
        let connect = match &rule.what {
            RuleTarget::Http(http) => http.connect,
            RuleTarget::Tcp(tcp) => tcp.connect,
            RuleTarget::HostPort(_) => None,
        };
        connect.is_some_and(|at| at.port() == port && is_own(at))
    };
    policy.allow.retain(|rule| !leads_to_server(rule));
    policy.ask.retain(|rule| !leads_to_server(rule));
}

fn is_own(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_loopback() || ip.is_unspecified() || host_addresses::addresses().contains(&ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a28_rules_of_a_box_do_not_lead_to_the_own_server() {
        let rule = |text: &str, connect: Option<&str>| {
            let mut rule = Rule::allow(text).unwrap();
            match (&mut rule.what, connect) {
                (RuleTarget::Http(http), Some(at)) => http.connect = Some(at.parse().unwrap()),
                (RuleTarget::Tcp(tcp), Some(at)) => tcp.connect = Some(at.parse().unwrap()),
                _ => {}
            }
            rule
        };
        let mut policy = crate::policy::learn::no_rules();
        policy.allow = vec![
            rule("host-port:7070", None),
            rule("host-port:5432", None),
            rule("a.example", Some("127.0.0.1:7070")),
            rule("b.example", Some("127.0.0.1:7071")),
            rule("tcp://c.example:7070", Some("[::1]:7070")),
            rule("d.example", Some("192.0.2.1:7070")),
        ];
        deny_port(&mut policy, 7070);
        let allowed: Vec<String> = policy.allow.iter().map(|rule| rule.what.to_string()).collect();
        assert_eq!(allowed.len(), 4, "{allowed:?}");
        assert!(
            !allowed.iter().any(|text| text.contains("a.example") || text.contains("c.example"))
        );
        // A denied port overrides the rule that allows it.
        let denied: Vec<String> = policy.deny.iter().map(|rule| rule.what.to_string()).collect();
        assert_eq!(denied, ["host-port:7070"]);
    }
}
