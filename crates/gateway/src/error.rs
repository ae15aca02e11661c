//! The errors of a server.

use std::path::PathBuf;

use belljar_engine::error::EngineError;

use crate::mcp::session::NoRandomness;
use crate::serve::oidc::OidcError;
use crate::serve::store::StoreError;

/// The reason why an MCP server could not start or stopped unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot start an MCP session")]
    Session(#[source] NoRandomness),
    #[error("the server task for a client failed")]
    Task(#[source] tokio::task::JoinError),
    #[error("cannot listen for connections")]
    Listen(#[source] std::io::Error),
    #[error("an HTTP server needs at least one token")]
    NoToken,
    #[error(
        "{0} is reachable from other machines, so tokens would be sent unencrypted; pass a certificate and its key, or listen on 127.0.0.1"
    )]
    TlsRequired(std::net::SocketAddr),
    #[error("invalid host name `{0}` of the server")]
    BadHost(String),
    #[error("invalid origin `{0}`; write a scheme, a host and optionally a port")]
    BadOrigin(String),
    #[error("cannot read the TLS file {file}", file = path.display())]
    ReadPem { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("the TLS file {file} contains no certificate", file = .0.display())]
    NoCertificate(PathBuf),
    #[error(
        "the certificate {file} is not valid now; replace it, or correct the clock of this machine",
        file = path.display()
    )]
    Validity { path: PathBuf, source: rustls::Error },
    #[error(
        "the certificate {file} is for another host than {host}; use a certificate for {host}, or change `host` in the section [serve]",
        file = path.display()
    )]
    WrongCertificate { path: PathBuf, host: String },
    #[error(transparent)]
    Database(#[from] StoreError),
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error("cannot read the configuration of the server")]
    Configuration(#[from] EngineError),
    #[error("cannot use the TLS certificate with the TLS key")]
    Tls(#[source] rustls::Error),
}
