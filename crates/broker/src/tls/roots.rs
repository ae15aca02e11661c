//! The root certificates for upstreams: the system's, and those that the operator adds.
//!
//! They are read before the broker locks itself down and loses access to the file system.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

/// The paths of root certificate bundles in common distributions; the first one that is not empty
/// is used.
const BUNDLES: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora before 42, Amazon Linux
    "/var/lib/ca-certificates/ca-bundle.pem", // openSUSE
    "/etc/ssl/ca-bundle.pem",             // openSUSE before 15
    "/etc/ssl/cert.pem",                  // Alpine
    "/etc/ssl/certs/ca-bundle.crt",       // NixOS
];

#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("`{name}` contains no certificate in PEM format (`-----BEGIN CERTIFICATE-----`)")]
    Empty { name: String },
    #[error("cannot parse certificate {number} in `{name}`")]
    Malformed { name: String, number: usize },
}

/// A set of root certificates (DER) that upstream servers are verified with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roots(Vec<Vec<u8>>);

impl Roots {
    /// Returns an empty set of root certificates, with which no upstream is trusted.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the root certificates of this system; empty if no bundle is found.
    pub fn system() -> Self {
        BUNDLES
            .iter()
            .map(|path| Self::bundle(Path::new(path)))
            .find(|roots| !roots.is_empty())
            .unwrap_or_default()
    }

    /// Reads all valid root certificates of a bundle file and ignores the rest.
    fn bundle(path: &Path) -> Self {
        let pem = std::fs::read(path).unwrap_or_default();
        Self(certificates(&pem).flatten().collect())
    }

    /// Adds the root certificates of a file that the operator named; fails if one of them is
    /// invalid.
    pub fn add_pem(&mut self, pem: &[u8], name: &str) -> Result<(), RootsError> {
        let mut added = Vec::new();
        for (index, certificate) in certificates(pem).enumerate() {
            let readable = certificate.filter(|der| webpki_reads(der));
            let malformed = || RootsError::Malformed { name: name.to_owned(), number: index + 1 };
            added.push(readable.ok_or_else(malformed)?);
        }
        if added.is_empty() {
            return Err(RootsError::Empty { name: name.to_owned() });
        }
        self.0.append(&mut added);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Returns the root certificates in PEM, for clients in a box whose TLS is not intercepted.
    pub fn pem(&self) -> String {
        self.iter().map(to_pem).collect()
    }
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = Option<Vec<u8>>> {
    CertificateDer::pem_slice_iter(pem).map(|found| found.ok().map(|der| der.to_vec()))
}

fn webpki_reads(der: &[u8]) -> bool {
    rustls::RootCertStore::empty().add(CertificateDer::from(der)).is_ok()
}

pub(super) fn to_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::with_capacity(text.len() * 65 / 64 + 64);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(64).unwrap_or((rest, ""));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
