//! The errors of a server.

use std::path::PathBuf;

use crate::mcp::session::NoRandomness;

/// Why a server could not start or stopped unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot start a session")]
    Session(#[source] NoRandomness),
    #[error("the task that serves a client failed")]
    Task(#[source] tokio::task::JoinError),
    #[error("cannot listen for connections")]
    Listen(#[source] std::io::Error),
    #[error("an HTTP server needs at least one token")]
    NoToken,
    #[error(
        "{0} is reachable from other machines, so tokens would be sent unencrypted; pass a certificate and its key, or listen on 127.0.0.1"
    )]
    TlsRequired(std::net::SocketAddr),
    #[error("`{0}` is not a valid host name")]
    BadHost(String),
    #[error("`{0}` is not a valid origin; expected a scheme, a host and optionally a port")]
    BadOrigin(String),
    #[error("cannot read {} for TLS", path.display())]
    ReadPem { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("{} contains no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("cannot use this certificate with this key")]
    Tls(#[source] rustls::Error),
}
