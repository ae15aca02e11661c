//! TLS configuration from PEM files.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use belljar_engine::clock::Clock;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
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
        let chain = self.chain()?;
        let unreadable = |source| ServeError::ReadPem { path: self.key.clone(), source };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(unreadable)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ServeError::Tls)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(ServeError::Tls)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A client with an old list of ciphers gets the strongest one that both sides know.
        config.ignore_client_order = true;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, ServeError> {
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|source| ServeError::ReadPem { path: self.certificate.clone(), source })?;
        if chain.is_empty() {
            return Err(ServeError::NoCertificate(self.certificate.clone()));
        }
        Ok(chain)
    }

    fn versions(&self) -> Versions {
        [&self.certificate, &self.key].map(|path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
        })
    }

    /// Checks that the certificate is valid at this time and for these host names. The issuer is not
    /// checked, because the clients decide whom they trust.
    fn check(&self, hosts: &[String], now: UnixTime) -> Result<(), ServeError> {
        let chain = self.chain()?;
        let Some((first, others)) = chain.split_first() else {
            return Err(ServeError::NoCertificate(self.certificate.clone()));
        };
        let leaf = ParsedCertificate::try_from(first).map_err(ServeError::Tls)?;
        let (roots, algorithms) =
            (RootCertStore::empty(), rustls::crypto::aws_lc_rs::default_provider());
        let algorithms = algorithms.signature_verification_algorithms.all;
        let verified =
            verify_server_cert_signed_by_trust_anchor(&leaf, &roots, others, now, algorithms);
        // The validity is checked before the issuer, which is unknown.
        if let Err(Error::InvalidCertificate(reason)) = verified
            && is_outside_of_validity(&reason)
        {
            let path = self.certificate.clone();
            return Err(ServeError::Validity { path, source: Error::InvalidCertificate(reason) });
        }
        for host in hosts {
            let name = ServerName::try_from(host.as_str());
            let name = name.map_err(|_| ServeError::BadHost(host.clone()))?;
            verify_server_name(&leaf, &name).map_err(|_| ServeError::WrongCertificate {
                path: self.certificate.clone(),
                host: host.clone(),
            })?;
        }
        Ok(())
    }
}

const fn is_outside_of_validity(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

/// A certificate that can be read again while the server runs.
pub(crate) struct ReloadableTls {
    files: TlsFiles,
    /// The host names that the certificate must have.
    hosts: Vec<String>,
    clock: Clock,
    current: RwLock<TlsAcceptor>,
    /// The versions of the files at the last reading.
    read: Mutex<Versions>,
}

/// The device, inode and time of the last change of both files; `None` for a missing file.
type Versions = [Option<(u64, u64, i64, i64)>; 2];

impl ReloadableTls {
    pub(crate) fn read(
        files: TlsFiles,
        hosts: Vec<String>,
        clock: Clock,
    ) -> Result<Self, ServeError> {
        let read = Mutex::new(files.versions());
        files.check(&hosts, time(clock))?;
        let current = RwLock::new(files.acceptor()?);
        Ok(Self { files, hosts, clock, current, read })
    }

    /// Returns whether a file was changed or replaced since the last reading.
    pub(crate) fn has_changed(&self) -> bool {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) != self.files.versions()
    }

    /// Reads the files again. If that fails, the current certificate stays in use.
    pub(crate) fn reload(&self) -> Result<(), ServeError> {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = self.files.versions();
        self.files.check(&self.hosts, time(self.clock))?;
        let new = self.files.acceptor()?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn time(clock: Clock) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_millis(clock.millis()))
}
