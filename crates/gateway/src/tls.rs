//! TLS configuration from PEM files.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::ServeError;

/// The paths of a TLS certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The path of the file with the TLS certificate chain, leaf first.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TlsFiles {
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, ServeError> {
        let read = |path: &PathBuf, source| ServeError::ReadPem { path: path.clone(), source };
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|source| read(&self.certificate, source))?;
        if chain.is_empty() {
            return Err(ServeError::NoCertificate(self.certificate.clone()));
        }
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|source| read(&self.key, source))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ServeError::Tls)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(ServeError::Tls)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A certificate that can be read again while the server runs.
pub(crate) struct ReloadableTls {
    files: TlsFiles,
    current: RwLock<TlsAcceptor>,
}

impl ReloadableTls {
    pub(crate) fn read(files: TlsFiles) -> Result<Self, ServeError> {
        let current = RwLock::new(files.acceptor()?);
        Ok(Self { files, current })
    }

    /// Reads the files again. If that fails, the current certificate stays in use.
    pub(crate) fn reload(&self) -> Result<(), ServeError> {
        let new = self.files.acceptor()?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
