//! Failures of connections to upstream servers, in the words of the broker.
//!
//! **Invariant:** no text of this module contains a byte that a server sent. Errors of libraries
//! do: the debug data of an HTTP/2 `GOAWAY` frame, or the names of a certificate. A server can put
//! a secret there, and the texts reach the box and the ledger (B04).

use std::io;

use rustls::CertificateError;

/// Why an HTTP exchange with an upstream server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpFault {
    #[error("the head of the upstream's response is too large")]
    HeadTooLarge,
    #[error("the upstream sent a malformed HTTP response")]
    Malformed,
    #[error("the upstream closed the connection before its response was complete")]
    Incomplete,
    #[error("the upstream used a transfer coding that the broker did not ask for")]
    TransferCoding,
    #[error("the upstream did not answer in time")]
    Late,
    #[error("the request could not be sent completely")]
    Unsent,
    #[error("the upstream closed the connection")]
    Closed,
}

impl From<hyper::Error> for HttpFault {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            Self::HeadTooLarge
        } else if error.is_parse() {
            Self::Malformed
        } else if error.is_incomplete_message() {
            Self::Incomplete
        } else if error.is_timeout() {
            Self::Late
        } else if error.is_user() || error.is_body_write_aborted() {
            Self::Unsent
        } else {
            Self::Closed
        }
    }
}

/// Why a TLS handshake with an upstream server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TlsFault {
    #[error("the certificate has expired")]
    Expired,
    #[error("the certificate is not valid yet")]
    NotValidYet,
    #[error("the certificate is signed by an unknown authority")]
    UnknownIssuer,
    #[error("the certificate is for another host name")]
    OtherName,
    #[error("the certificate is invalid")]
    Certificate,
    #[error("the server supports no secure version or algorithm of TLS")]
    Incompatible,
    #[error("the server refused the TLS handshake")]
    Refused,
    #[error("the server closed the connection during the TLS handshake")]
    Closed,
    #[error("the TLS handshake failed")]
    Failed,
}

impl From<io::Error> for TlsFault {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => Self::from(error),
            None => Self::Closed,
        }
    }
}

impl From<&rustls::Error> for TlsFault {
    fn from(error: &rustls::Error) -> Self {
        use rustls::Error;
        if let Error::InvalidCertificate(error) = error {
            Self::from(error)
        } else if matches!(error, Error::NoCertificatesPresented) {
            Self::Certificate
        } else if matches!(error, Error::PeerIncompatible(_) | Error::NoApplicationProtocol) {
            Self::Incompatible
        } else if matches!(error, Error::AlertReceived(_)) {
            Self::Refused
        } else {
            Self::Failed
        }
    }
}

impl From<&CertificateError> for TlsFault {
    fn from(error: &CertificateError) -> Self {
        use CertificateError::{
            Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
            NotValidYetContext, UnknownIssuer,
        };
        if matches!(error, Expired | ExpiredContext { .. }) {
            Self::Expired
        } else if matches!(error, NotValidYet | NotValidYetContext { .. }) {
            Self::NotValidYet
        } else if matches!(error, NotValidForName | NotValidForNameContext { .. }) {
            Self::OtherName
        } else if matches!(error, UnknownIssuer) {
            Self::UnknownIssuer
        } else {
            Self::Certificate
        }
    }
}
