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

/// Configuration of a broker. The descriptors sent with it are the key of the vault, if there are
/// secrets, and the sealed secrets in the order of `secrets`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    pub policy: Policy,
    /// Files with root certificates for upstreams, in addition to the system's.
    pub roots: Vec<PathBuf>,
    /// Name servers to use instead of the system's; empty for the system's.
    pub name_servers: Vec<SocketAddr>,
    /// Kind of the first descriptor.
    pub key: KeySource,
    pub secrets: Vec<SecretName>,
    /// Addresses of this machine.
    pub own: Vec<IpAddr>,
    /// Whether the rules can change while the box runs.
    pub changes: bool,
}

/// A broker's reply during setup.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Hello(Hello),
    Ready,
    /// Why the broker cannot serve.
    Failed(String),
}

/// Files and placeholders for the box. They contain no secret.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// CA certificate that the box must trust, in PEM.
    pub certificate: Vec<u8>,
    /// The same certificate as a Java key store.
    pub java: Vec<u8>,
    pub placeholders: Vec<Placeholder>,
    /// Notes for the operator, such as memory that could not be locked.
    pub remarks: Vec<String>,
}

/// The placeholder of a secret inside the box.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placeholder {
    pub secret: SecretName,
    /// Environment variable that contains the placeholder.
    pub env: Option<String>,
    pub text: String,
}

/// Kind of a socket that the supervisor passes to the broker; `Open` ends the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    Tcp,
    DnsDatagrams,
    DnsStreams,
    Open,
}
