//! An HTTP/1.1 server that records every received byte and sends responses that the test defines. Its
//! parser is strict: it panics on an invalid length instead of guessing.

use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use crate::Authority;

/// A connection of a client, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Answer = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

/// An HTTP/1.1 server on loopback that records raw requests. It runs until the test process ends.
#[derive(Debug, Clone)]
pub struct Wire {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// The connections and requests that the server recorded.
#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    requests: Vec<Vec<u8>>,
    /// The bytes after the last complete request of each connection.
    incomplete: Vec<Vec<u8>>,
}

impl Wire {
    /// Starts a TLS server for these host names that sends the raw responses of `answer`. `answer`
    /// returns the response to each complete request.
    pub fn tls<A>(authority: &Authority, hosts: &[&str], answer: A) -> Self
    where
        A: Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    {
        let mut config = (*authority.server(hosts)).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), Arc::new(answer))
    }

    /// Starts a server without TLS that sends the raw responses of `answer`. `answer` returns the
    /// response to each complete request.
    pub fn plain<A>(answer: A) -> Self
    where
        A: Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    {
        Self::start(None, Arc::new(answer))
    }

    /// Starts a TLS server for these host names that negotiates `protocol`, sends fixed bytes to
    /// every client, and reads until the client closes the connection.
    pub fn tls_bytes(authority: &Authority, hosts: &[&str], protocol: &str, bytes: &[u8]) -> Self {
        let mut config = (*authority.server(hosts)).clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let bytes = bytes.to_vec();
        Self::listen(Some(TlsAcceptor::from(Arc::new(config))), move |mut stream, _| {
            let bytes = bytes.clone();
            Box::pin(async move {
                stream.write_all(&bytes).await.ok(); // the test checks a client that disconnects
                stream.flush().await.ok();
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
            })
        })
    }

    /// Returns the address of the server, for the setting `connect =`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).connections
    }

    /// Returns the text of each complete HTTP request, including its body.
    pub fn requests(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.requests.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// Returns the bytes of requests that were incomplete when their connections ended.
    pub fn incomplete_requests(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.incomplete.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    fn start(tls: Option<TlsAcceptor>, answer: Arc<Answer>) -> Self {
        Self::listen(tls, move |stream, seen| {
            let answer = Arc::clone(&answer);
            Box::pin(async move { serve(stream, &*answer, &seen).await })
        })
    }

    fn listen<H>(tls: Option<TlsAcceptor>, handler: H) -> Self
    where
        H: Fn(Box<dyn Stream>, Arc<Mutex<Seen>>) -> Pin<Box<dyn Future<Output = ()> + Send>>
            + Send
            + Sync
            + 'static,
    {
        let handler = Arc::new(handler);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("the address of the socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    let (tls, handler, seen) =
                        (tls.clone(), Arc::clone(&handler), Arc::clone(&kept));
                    seen.lock().unwrap_or_else(PoisonError::into_inner).connections += 1;
                    tokio::spawn(async move {
                        match tls {
                            None => handler(Box::new(stream), seen).await,
                            Some(tls) => {
                                let Ok(stream) = tls.accept(stream).await else { return };
                                handler(Box::new(stream), seen).await;
                            }
                        }
                    });
                }
            });
        });
        Self { address, seen }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &Answer,
    seen: &Mutex<Seen>,
) {
    let keep = |request: Vec<u8>| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).requests.push(request);
    };
    let mut bytes = Vec::new();
    loop {
        while let Some(length) = request_length(&bytes) {
            let rest = bytes.split_off(length);
            let request = std::mem::replace(&mut bytes, rest);
            let answer = answer(&request);
            keep(request);
            if stream.write_all(&answer).await.is_err() {
                return;
            }
            stream.flush().await.ok(); // the client can have closed the connection
        }
        match stream.read_buf(&mut bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    if !bytes.is_empty() {
        seen.lock().unwrap_or_else(PoisonError::into_inner).incomplete.push(bytes);
    }
}

/// Returns the length of the first HTTP request, or `None` if the request is incomplete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = find(bytes, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(bytes.get(..head)?).to_ascii_lowercase();
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.map(|value| value.trim().to_owned())
    };
    if value("transfer-encoding:").is_some() {
        return chunked_end(bytes, head);
    }
    let length = value("content-length:").map_or(0, |length| length.parse().expect("a length"));
    (bytes.len() >= head + length).then_some(head + length)
}

/// Returns the offset after a chunked HTTP body that starts at `at`, or `None` if the body is
/// incomplete.
fn chunked_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let line = find(bytes.get(at..)?, b"\r\n")?;
        let size = String::from_utf8_lossy(bytes.get(at..at + line)?).into_owned();
        let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
        at += line + 2;
        if size == 0 {
            // Optional trailers, then an empty line.
            while find(bytes.get(at..)?, b"\r\n")? > 0 {
                at += find(bytes.get(at..)?, b"\r\n")? + 2;
            }
            return Some(at + 2);
        }
        at += size + 2;
    }
}

/// Returns the position of the first occurrence of `what` in `bytes`.
fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
