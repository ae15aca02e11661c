//! Dials addresses, directly or through an HTTP proxy.

use std::net::SocketAddr;

use belljar_model::net::Target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{DIAL_TIMEOUT, UpstreamError};

/// Connects to the first of the addresses that accepts the connection.
pub(super) async fn first(addresses: &[SocketAddr]) -> Result<TcpStream, UpstreamError> {
    let mut last = UpstreamError::Late;
    for address in addresses {
        match timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).ok(); // only slower without
                tracing::trace!(%address, "upstream connected");
                return Ok(stream);
            }
            Ok(Err(source)) => {
                tracing::debug!(%address, "upstream refused the connection");
                last = UpstreamError::Connect { address: *address, source };
            }
            Err(_) => {
                tracing::debug!(%address, "upstream did not answer in time");
                last = UpstreamError::Late;
            }
        }
    }
    Err(last)
}

/// The HTTP proxy through which the broker makes all connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Maximum size of the proxy's response to CONNECT.
const MAX_RESPONSE: usize = 8 * 1024;

impl Proxy {
    /// Opens a tunnel to a target through the HTTP proxy. The proxy resolves the name and decides
    /// which addresses are reachable.
    pub(super) async fn tunnel(
        &self,
        target: &Target,
        port: u16,
    ) -> Result<TcpStream, UpstreamError> {
        let mut stream = first(&self.addresses).await?;
        let host = match target {
            Target::Name(name) => format!("{name}:{port}"),
            Target::Address(address) => SocketAddr::new(*address, port).to_string(),
        };
        let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let failed = |source: std::io::Error| UpstreamError::ProxyFailed(source.kind());
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let answer =
            timeout(DIAL_TIMEOUT, head(&mut stream)).await.map_err(|_| UpstreamError::Late)?;
        let answer = answer.map_err(failed)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        match status.filter(|_| answer.starts_with("HTTP/1.")) {
            Some(200) => Ok(stream),
            Some(status) => Err(UpstreamError::ProxyRefused(status)),
            None => Err(UpstreamError::ProxyFailed(std::io::ErrorKind::InvalidData)),
        }
    }
}

/// Reads the head of the proxy's response and leaves the bytes after the empty line unread.
async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_RESPONSE {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(std::io::Error::other)
}
