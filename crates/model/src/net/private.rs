//! Finds rules and secrets that lead to the machine of Belljar or to a private network.
//!
//! The policy of a tenant cannot have them, because the machine and its network belong to the operator.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::{
    HostPattern, HttpRule, Range, Rule, RuleTarget, SecretDecl, SecretKind, Target, TcpRule,
    has_private_names, is_private_name, range,
};

/// The destination of a rule or secret that is not on the public internet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateTarget {
    /// The setting `connect`, which replaces the resolved address.
    Connect(SocketAddr),
    /// A port of the machine.
    HostPort(u16),
    /// Names that can only exist in a private network.
    Name(HostPattern),
    Address(IpAddr, Range),
}

impl fmt::Display for PrivateTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(address) => write!(f, "connects to the fixed address {address}"),
            Self::HostPort(port) => write!(f, "leads to port {port} of the machine"),
            Self::Name(name) => write!(f, "leads to {name}, a name of a private network"),
            Self::Address(address, range) => {
                write!(f, "leads to {address}, which is not public: it is {range}")
            }
        }
    }
}

impl Rule {
    /// Returns the destination of an `allow` or `ask` rule, if it is not on the public internet.
    pub fn private_target(&self) -> Option<PrivateTarget> {
        match &self.what {
            RuleTarget::Http(HttpRule { connect: Some(to), .. })
            | RuleTarget::Tcp(TcpRule { connect: Some(to), .. }) => {
                Some(PrivateTarget::Connect(*to))
            }
            RuleTarget::Http(http) => http.host.private_target(),
            RuleTarget::Tcp(tcp) => tcp.target.private_target(),
            RuleTarget::HostPort(port) => Some(PrivateTarget::HostPort(*port)),
        }
    }
}

impl SecretDecl {
    /// Returns a host that can get the secret and is not on the public internet.
    pub fn private_target(&self) -> Option<PrivateTarget> {
        let token_server = match &self.kind {
            SecretKind::OAuth2 { token_url, .. } => token_url.target.private_target(),
            SecretKind::Token | SecretKind::SigV4 { .. } | SecretKind::Hmac { .. } => None,
        };
        self.hosts.iter().find_map(HostPattern::private_target).or(token_server)
    }
}

impl HostPattern {
    fn private_target(&self) -> Option<PrivateTarget> {
        match (self.target(), self.parent()) {
            (Some(target), _) => target.private_target(),
            (None, Some(parent)) if has_private_names(parent) => {
                Some(PrivateTarget::Name(self.clone()))
            }
            (None, Some(_) | None) => None,
        }
    }
}

impl Target {
    /// Returns this target, if it is not on the public internet.
    pub fn private_target(&self) -> Option<PrivateTarget> {
        match self {
            Self::Name(name) if is_private_name(name) => {
                Some(PrivateTarget::Name(HostPattern::exact(self.clone())))
            }
            Self::Name(_) => None,
            Self::Address(ip) => range(*ip).map(|range| PrivateTarget::Address(*ip, range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_target_is_found_in_every_form_of_a_rule() {
        for text in [
            "10.1.2.3",
            "[::ffff:10.0.0.1]",
            "169.254.169.254",
            "git.corp.internal",
            "GET http://printer.lan/status",
            "*.corp.internal",
            "tcp://192.168.0.1:22",
            "tcp://db:5432",
            "host-port:5432",
        ] {
            let rule = Rule::allow(text).unwrap();
            assert!(rule.private_target().is_some(), "{text}");
        }
        for text in
            ["api.github.com", "*.example.com", "93.184.215.14", "tcp://db.example.com:5432"]
        {
            assert_eq!(Rule::allow(text).unwrap().private_target(), None, "{text}");
        }
        for (text, is_private) in [("*.arpa", true), ("*.internal", true), ("*.com", false)] {
            let rule = Rule::ask(text).unwrap();
            assert_eq!(rule.private_target().is_some(), is_private, "{text}");
        }
        let mut rule = Rule::allow("api.example.com").unwrap();
        if let RuleTarget::Http(http) = &mut rule.what {
            http.connect = Some("93.184.215.14:443".parse().unwrap());
        }
        let text = rule.private_target().unwrap().to_string();
        assert_eq!(text, "connects to the fixed address 93.184.215.14:443");
    }
}
