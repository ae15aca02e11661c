//! Verifies upstreams before a request is sent to them.
//!
//! There is only one kind of verification, without options: the chain ends in a root of [`Roots`],
//! every certificate is currently valid, the name matches, the protocol is TLS 1.2 or newer, and
//! the algorithms are secure.

use std::sync::Arc;

use belljar_model::net::Target;
use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};

use super::Roots;

/// The maximum number of hosts with a cached TLS session, which makes the next handshake cheaper.
const MAX_SESSIONS: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error(
        "no root certificates found to verify upstreams: install the package `ca-certificates`, \
         or name a bundle in `[tls] roots`"
    )]
    NoRoots,
    #[error("cannot set up TLS for upstreams")]
    Tls(#[from] rustls::Error),
}

/// The TLS client configurations for connections to upstream servers.
#[derive(Clone, Debug)]
pub struct Upstream {
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl Upstream {
    pub fn new(roots: &Roots) -> Result<Self, UpstreamError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().map(CertificateDer::from));
        if store.is_empty() {
            return Err(UpstreamError::NoRoots);
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider))
                .build()
                .map_err(|_| UpstreamError::NoRoots)?;
        Ok(Self {
            any: config(&provider, &verifier, &[b"h2", b"http/1.1"])?,
            http1: config(&provider, &verifier, &[b"http/1.1"])?,
        })
    }

    /// Returns the TLS configuration for HTTP/2 with fallback to HTTP/1.1.
    pub fn any(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.any)
    }

    /// Returns the TLS configuration for HTTP/1.1 only, which upgrades need.
    pub fn http1(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.http1)
    }

    /// Returns the name that an upstream's certificate must contain.
    pub fn server_name(target: &Target) -> Result<ServerName<'static>, UpstreamError> {
        match target {
            Target::Address(address) => Ok(ServerName::IpAddress((*address).into())),
            Target::Name(name) => ServerName::try_from(name.to_string()).map_err(|_| {
                rustls::Error::General(format!("`{name}` is not a valid name for TLS")).into()
            }),
        }
    }
}

fn config(
    provider: &Arc<CryptoProvider>,
    verifier: &Arc<WebPkiServerVerifier>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, UpstreamError> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_webpki_verifier(Arc::clone(verifier))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // Not shared between the two configurations, because a resumed session keeps its protocol.
    config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(MAX_SESSIONS)));
    Ok(Arc::new(config))
}
