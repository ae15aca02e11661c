//! Messages between the supervisor and a new broker before the box starts.
//!
//! ```text
//! supervisor ── Setup + key + sealed secrets ──▶ broker
//!            ◀── Hello: certificate, placeholders ──
//!            ── SocketKind + socket, for each socket; then Open ──▶
//!            ◀── Ready ──
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use belljar_model::net::{Policy, SecretName};
use serde::{Deserialize, Serialize};

use crate::vault::sealed::KeySource;

/// The configuration of a broker, which the supervisor sends. The descriptors sent with it are the
/// key of the vault, if there are secrets, and the sealed secrets in the order of `secrets`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    pub policy: Policy,
    /// The files with root certificates for upstream servers, in addition to the system's.
    pub roots: Vec<PathBuf>,
    /// The DNS servers to use instead of the system's; empty for the system's.
    pub name_servers: Vec<SocketAddr>,
    /// The kind of vault key that the first passed descriptor contains.
    pub key: KeySource,
    pub secrets: Vec<SecretName>,
    /// The IP addresses of the machine that the broker runs on.
    pub own: Vec<IpAddr>,
    /// Whether the network rules can change while the box runs.
    pub changes: bool,
    /// Whether the budget is a lease, which the supervisor can extend when it is used up.
    pub leased: bool,
}

/// A broker's reply to its configuration.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Hello(Hello),
    Ready,
    /// The reason why the broker cannot serve.
    Failed(String),
}

/// The certificates and placeholders that a broker made for its box. They contain no secret.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The CA certificate that the box must trust, in PEM.
    pub certificate: Vec<u8>,
    /// The CA certificate of the box as a Java key store.
    pub java: Vec<u8>,
    pub placeholders: Vec<Placeholder>,
    /// Notes for the operator, such as that memory could not be locked.
    pub remarks: Vec<String>,
}

/// The placeholder of a secret inside the box.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placeholder {
    pub secret: SecretName,
    /// The environment variable of the box that contains the placeholder.
    pub env: Option<String>,
    pub text: String,
}

/// The kind of a socket that the supervisor passes to the broker; `Open` ends the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    Tcp,
    DnsDatagrams,
    DnsStreams,
    Open,
}
