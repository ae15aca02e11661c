//! Why a server could not serve, or not go on.

use std::path::PathBuf;

use crate::mcp::session::NoRandomness;

/// A server that could not begin, or that ended otherwise than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("begin a session")]
    Session(#[source] NoRandomness),
    #[error("the task that serves a client ended")]
    Task(#[source] tokio::task::JoinError),
    #[error("listen")]
    Listen(#[source] std::io::Error),
    #[error("a server over HTTP needs a token at least")]
    NoToken,
    #[error(
        "{0} is reached from other machines, so tokens would cross the network in clear: give a certificate and its key, or listen on 127.0.0.1"
    )]
    InClear(std::net::SocketAddr),
    #[error("`{0}` is no name of a host")]
    BadHost(String),
    #[error("`{0}` is no origin, which is a scheme, a host and perhaps a port")]
    BadOrigin(String),
    #[error("read {} for TLS", path.display())]
    ReadPem { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("use this certificate with this key")]
    Tls(#[source] rustls::Error),
}
