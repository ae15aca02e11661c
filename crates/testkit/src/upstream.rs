//! HTTP servers on loopback that stand for servers on the internet. They use real TLS with a test
//! certificate authority, and record their requests.

mod websocket;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// A certificate authority that a test creates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns the certificate of the authority as PEM, for the setting `[tls] roots`.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the TLS configuration of a server with a certificate for these hosts.
    pub(crate) fn server(&self, hosts: &[&str]) -> Arc<ServerConfig> {
        let names: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a certificate with its key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// One HTTP request that a test server received.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    /// Path with the query.
    pub path: String,
    /// The HTTP version of the request: `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// The server name (SNI) that the client sent in the TLS handshake.
    pub sni: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Received {
    /// Returns the value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the request as JSON, which an echo server sends back.
    pub fn to_json(&self) -> Value {
        json!({
            "method": self.method,
            "path": self.path,
            "version": self.version,
            "headers": self.headers,
            "body": String::from_utf8_lossy(&self.body),
            "trailers": self.trailers,
        })
    }
}

/// The HTTP response that a test server sends.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// The chunks of the response body, sent one by one with `pause` after each.
    pub chunks: Vec<Vec<u8>>,
    pub pause: Duration,
    pub trailers: Vec<(String, String)>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            chunks: vec![body.into()],
            pause: Duration::ZERO,
            trailers: Vec::new(),
        }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Handler = dyn Fn(&Received) -> Reply + Send + Sync;

/// An HTTP server on loopback that records its requests. It runs until the test process ends.
#[derive(Debug, Clone)]
pub struct Upstream {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Upstream {
    /// Starts a TLS server for these hosts that returns each request as JSON.
    pub fn echo(authority: &Authority, hosts: &[&str]) -> Self {
        Self::tls(authority, hosts, |received| {
            Reply::new(200, received.to_json().to_string())
                .header("content-type", "application/json")
        })
    }

    /// Starts a TLS server for these hosts that answers requests with `handler`.
    pub fn tls<H>(authority: &Authority, hosts: &[&str], handler: H) -> Self
    where
        H: Fn(&Received) -> Reply + Send + Sync + 'static,
    {
        Self::start(Some(authority.server(hosts)), Arc::new(handler))
    }

    /// Starts a WebSocket server that first sends the received credential back, and then echoes
    /// messages.
    pub fn websocket(authority: &Authority, hosts: &[&str]) -> Self {
        let mut config = (*authority.server(hosts)).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen(move |stream, received| {
            let (acceptor, received) = (acceptor.clone(), Arc::clone(received));
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let keep = |it| received.lock().unwrap_or_else(PoisonError::into_inner).push(it);
                websocket::serve(stream, keep).await.ok(); // the test checks a client that disconnects
            }
        })
    }

    /// Starts a WebSocket server that sends and reads this number of bytes at the same time, and then
    /// sends the message `end`.
    pub fn websocket_both_ways(authority: &Authority, hosts: &[&str], length: usize) -> Self {
        let mut config = (*authority.server(hosts)).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen(move |stream, _| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                websocket::serve_both_ways(stream, length).await.ok(); // see above
            }
        })
    }

    /// Starts an HTTP server without TLS that answers requests with `handler`.
    pub fn plain<H>(handler: H) -> Self
    where
        H: Fn(&Received) -> Reply + Send + Sync + 'static,
    {
        Self::start(None, Arc::new(handler))
    }

    /// Returns the address of the server, for the setting `connect =`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests that the server received so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(tls: Option<Arc<ServerConfig>>, handler: Arc<Handler>) -> Self {
        let tls = tls.map(TlsAcceptor::from);
        Self::listen(move |stream, received| {
            let (tls, handler) = (tls.clone(), Arc::clone(&handler));
            let server = Server { tls, handler, received: Arc::clone(received) };
            server.accept(stream)
        })
    }

    fn listen<F, S>(mut serve: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: FnMut(tokio::net::TcpStream, &Arc<Mutex<Vec<Received>>>) -> F + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("the address of the socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(serve(stream, &kept));
                    }
                }
            });
        });
        Self { address, received }
    }
}

#[derive(Clone)]
struct Server {
    tls: Option<TlsAcceptor>,
    handler: Arc<Handler>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    async fn accept(self, stream: tokio::net::TcpStream) {
        stream.set_nodelay(true).ok();
        match self.tls.clone() {
            None => self.serve(stream, false, None).await,
            Some(tls) => {
                let Ok(stream) = tls.accept(stream).await else { return };
                let (_, session) = stream.get_ref();
                let is_http2 = session.alpn_protocol() == Some(b"h2");
                let sni = session.server_name().map(str::to_owned);
                self.serve(stream, is_http2, sni).await;
            }
        }
    }

    async fn serve<S>(self, stream: S, is_http2: bool, sni: Option<String>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request| {
            let (server, sni) = (self.clone(), sni.clone());
            async move { Ok::<_, Infallible>(server.answer(request, sni).await) }
        });
        let stream = TokioIo::new(stream);
        // The test checks a client that disconnects.
        if is_http2 {
            let builder = http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(stream, service).await.ok();
        } else {
            http1::Builder::new().serve_connection(stream, service).await.ok();
        }
    }

    async fn answer(self, request: Request<Incoming>, sni: Option<String>) -> Response<Chunks> {
        let (parts, body) = request.into_parts();
        let collected = body.collect().await;
        let trailers = collected.as_ref().ok().and_then(|body| body.trailers().cloned());
        let received = Received {
            method: parts.method.to_string(),
            path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            version: format!("{:?}", parts.version),
            sni,
            headers: pairs(&parts.headers),
            body: collected.map(|body| body.to_bytes().to_vec()).unwrap_or_default(),
            trailers: trailers.as_ref().map(pairs).unwrap_or_default(),
        };
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push(received.clone());
        let reply = (self.handler)(&received);
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(reply.status).expect("a status");
        *response.headers_mut() = headers(&reply.headers);
        let (sender, receiver) = tokio::sync::mpsc::channel::<Frame<Bytes>>(1);
        tokio::spawn(async move {
            for chunk in reply.chunks {
                if sender.send(Frame::data(Bytes::from(chunk))).await.is_err() {
                    return; // the client has disconnected
                }
                tokio::time::sleep(reply.pause).await;
            }
            if !reply.trailers.is_empty() {
                sender.send(Frame::trailers(headers(&reply.trailers))).await.ok(); // see above
            }
        });
        response.map(|()| Chunks(receiver))
    }
}

/// A response body whose chunks come from a channel.
struct Chunks(tokio::sync::mpsc::Receiver<Frame<Bytes>>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn headers(pairs: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("the name of a header");
        headers.append(name, HeaderValue::from_str(value).expect("the value of a header"));
    }
    headers
}
