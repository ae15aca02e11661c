//! Requests to the identity provider: one connection each, with limits of time and size, and no redirects.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// The maximum length of a response in bytes.
const MAX_BODY: usize = 256 * 1024;

/// Why a request to the provider failed. The texts continue the name of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot be reached; try again later")]
    Unreachable,
    #[error("did not answer in time; try again later")]
    Slow,
    #[error(
        "has a certificate that is not valid; add its authority to `roots` in the section [tls]"
    )]
    Certificate,
    #[error("closed the connection or sent no valid response; try again later")]
    Broken,
    #[error(
        "answered with a redirect, which is not followed; check `issuer` in the section [oidc]"
    )]
    Redirect,
    #[error("sent more than 256 KiB")]
    TooLarge,
    #[error("has an invalid address")]
    Address,
}

/// A client for requests to the provider.
pub(super) struct Client {
    tls: Arc<ClientConfig>,
    /// The time that a request has, from the resolution of the name to the end of the response.
    time: Duration,
}

impl Client {
    /// Makes a client that trusts these certificates, in DER. Certificates that cannot be read are skipped, as
    /// some of the system are.
    pub(super) fn new(roots: Vec<Vec<u8>>, time: Duration) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.into_iter().map(CertificateDer::from));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(config), time })
    }

    /// Sends a request to its absolute address, and returns the status and the body of the response.
    pub(super) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<(StatusCode, Bytes), FetchError> {
        let work = self.connect_and_send(request);
        tokio::time::timeout(self.time, work).await.unwrap_or(Err(FetchError::Slow))
    }

    async fn connect_and_send(
        &self,
        request: Request<Bytes>,
    ) -> Result<(StatusCode, Bytes), FetchError> {
        let uri = request.uri().clone();
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(FetchError::Address);
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        let request = on_connection(request, &uri)?;
        let stream = TcpStream::connect((host.as_str(), port)).await;
        let stream = stream.map_err(|_| FetchError::Unreachable)?;
        if scheme != "https" {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(|_| FetchError::Address)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        let stream = stream.map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(rustls::Error::InvalidCertificate(_)) => FetchError::Certificate,
                _ => FetchError::Broken,
            }
        })?;
        exchange(stream, request).await
    }
}

/// Converts a request for an absolute address to one for the connection to its host.
fn on_connection(request: Request<Bytes>, uri: &Uri) -> Result<Request<Full<Bytes>>, FetchError> {
    let authority = uri.authority().ok_or(FetchError::Address)?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| FetchError::Address)?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = request.map(Full::new);
    *request.uri_mut() = target.parse().map_err(|_| FetchError::Address)?;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(USER_AGENT, HeaderValue::from_static("belljar"));
    Ok(request)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), FetchError> {
    let broken = |_| FetchError::Broken;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let response = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(FetchError::Redirect);
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<hyper::Error>() {
            Some(_) => FetchError::Broken,
            None => FetchError::TooLarge,
        })?;
        Ok((status, body.to_bytes()))
    };
    let mut response = std::pin::pin!(response);
    tokio::select! {
        answered = &mut response => answered,
        // The rest of the response can be in memory already.
        _ = connection => response.await,
    }
}

/// Returns fields as `application/x-www-form-urlencoded`.
pub(super) fn form(fields: &[(&str, &str)]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::new());
    for (name, value) in fields {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        text.push_str(&encoded(value));
    }
    text
}

/// Escapes all characters that have a meaning in an address.
pub(super) fn encoded(text: &str) -> Zeroizing<String> {
    let mut encoded = Zeroizing::new(String::with_capacity(text.len()));
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_form_are_escaped() {
        let text = form(&[("a", "x y&z=1"), ("b", "é%~-._")]);
        assert_eq!(text.as_str(), "a=x%20y%26z%3D1&b=%C3%A9%25~-._");
    }

    #[test]
    fn request_on_a_connection_has_the_path_and_the_host_of_its_address() {
        let request = Request::get("https://[::1]:9000/a?b=c").body(Bytes::new()).unwrap();
        let uri = request.uri().clone();
        let request = on_connection(request, &uri).unwrap();
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(request.headers()[HOST], "[::1]:9000");
    }
}
