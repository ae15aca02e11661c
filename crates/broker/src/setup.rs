//! What the supervisor and a new broker tell each other before the box starts.
//!
//! ```text
//! supervisor ── Setup + key + sealed secrets ──▶ broker
//!            ◀── Hello: certificate, placeholders ──
//!            ── Door + socket, for each of them; then Open ──▶
//!            ◀── Ready ──
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use belljar_model::net::{Policy, SecretName};
use serde::{Deserialize, Serialize};

use crate::vault::sealed::KeySource;

/// What a broker is to be. The descriptors beside it are the key of the vault, if there are secrets,
/// and the sealed secrets in the order in which they are named.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    pub policy: Policy,
    /// Files with roots that upstreams may be signed by, beside the system's.
    pub roots: Vec<PathBuf>,
    /// The name servers to ask instead of the system's; none for those.
    pub name_servers: Vec<SocketAddr>,
    /// What the first descriptor is.
    pub key: KeySource,
    pub secrets: Vec<SecretName>,
    /// The addresses of this machine.
    pub own: Vec<IpAddr>,
    /// Whether the rules may change while the box is there.
    pub changes: bool,
}

/// What a broker says once it can serve.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Hello(Hello),
    Ready,
    /// Why it cannot.
    Failed(String),
}

/// What goes into the box. Nothing of it is a secret.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The certificate by which the box will know all servers.
    pub certificate: Vec<u8>,
    /// The same for Java.
    pub java: Vec<u8>,
    pub placeholders: Vec<Placeholder>,
    /// What the operator should know, such as memory that could not be locked.
    pub remarks: Vec<String>,
}

/// What stands for a secret inside the box.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placeholder {
    pub secret: SecretName,
    /// The variable that holds it.
    pub env: Option<String>,
    pub text: String,
}

/// A socket of the box that is handed over, or the word that there are no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    Tcp,
    DnsDatagrams,
    DnsStreams,
    Open,
}
