//! What an upstream must prove before a byte of a request goes to it.
//!
//! There is one way to verify and no argument that changes it: the chain leads to a root of [`Roots`], every certificate is
//! valid now, the name fits, the protocol is TLS 1.2 or newer, the algorithms are not broken ones.

use std::sync::Arc;

use belljar_model::net::Target;
use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};

use super::Roots;

/// Hosts whose sessions are remembered, so that the next connection is cheaper.
const MAX_SESSIONS: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error(
        "there is no root certificate to verify upstreams with: install the package `ca-certificates`, \
         or name a bundle in `[tls] roots`"
    )]
    NoRoots,
    #[error("set up TLS toward upstreams")]
    Tls(#[from] rustls::Error),
}

/// Client settings toward the world.
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

    /// HTTP/2 if the upstream speaks it, else HTTP/1.1.
    pub fn any(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.any)
    }

    /// HTTP/1.1 only: for upgrades, which HTTP/2 does differently.
    pub fn http1(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.http1)
    }

    /// How an upstream's certificate must call it.
    pub fn server_name(target: &Target) -> Result<ServerName<'static>, UpstreamError> {
        match target {
            Target::Address(address) => Ok(ServerName::IpAddress((*address).into())),
            Target::Name(name) => ServerName::try_from(name.to_string())
                .map_err(|_| rustls::Error::General(format!("`{name}` is no name for TLS")).into()),
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
    // Not shared between the two: a resumed session keeps the protocol it was made for.
    config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(MAX_SESSIONS)));
    Ok(Arc::new(config))
}
