//! Permissions: values that only the rules can create, and that connections require.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use belljar_model::net::{ModelServer, RuleLimits, Scheme, SecretName, Target};

use crate::address::Reach;

/// The permission for one request, or for one TLS connection that is forwarded without
/// interception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub(super) rule: String,
    pub(super) index: Option<usize>,
    pub(super) scheme: Scheme,
    pub(super) target: Target,
    pub(super) port: u16,
    pub(super) connect: Option<SocketAddr>,
    pub(super) secrets: BTreeSet<SecretName>,
    pub(super) limits: RuleLimits,
    pub(super) reach: Reach,
    pub(super) opaque: bool,
    pub(super) asks: Option<String>,
    pub(super) model: Option<ModelServer>,
}

/// The permission to resolve a host name for the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePermit {
    pub(super) rule: String,
}

/// The permission for one raw TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpPermit {
    pub(super) rule: String,
    pub(super) target: Target,
    pub(super) port: u16,
    pub(super) connect: Option<SocketAddr>,
    pub(super) reach: Reach,
    pub(super) asks: Option<String>,
}

/// The rule name of permissions that `net = "full"` grants.
pub(super) const FULL: &str = "net full";

impl Permit {
    /// Returns the name of the rule that gave the permission, as shown in logs.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the number of the rule, which identifies its counters; `None` for `net = "full"` and
    /// `ask` rules.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the fixed address that the rule connects to instead of resolving the host name, if
    /// any.
    pub fn connect(&self) -> Option<SocketAddr> {
        self.connect
    }

    /// Returns the secrets that can be inserted into the request; empty for plain HTTP and
    /// forwarded TLS (B13).
    pub fn secrets(&self) -> &BTreeSet<SecretName> {
        &self.secrets
    }

    pub fn limits(&self) -> &RuleLimits {
        &self.limits
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the server of language models that the rule names, if any.
    pub fn model(&self) -> Option<ModelServer> {
        self.model
    }

    /// Returns whether the TLS connection is forwarded without interception.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// Returns the ask rule that requires an approval first, if any.
    pub fn asks(&self) -> Option<&str> {
        self.asks.as_deref()
    }
}

impl NamePermit {
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl TcpPermit {
    pub fn rule(&self) -> &str {
        &self.rule
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn connect(&self) -> Option<SocketAddr> {
        self.connect
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns whether a rule names this TCP port; otherwise the connection is inspected for HTTP
    /// and TLS.
    pub fn by_rule(&self) -> bool {
        self.rule != FULL
    }

    /// Returns the ask rule that requires an approval first, if any.
    pub fn asks(&self) -> Option<&str> {
        self.asks.as_deref()
    }
}
