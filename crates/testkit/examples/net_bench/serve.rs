//! The benchmark server. `/small` returns a JSON object with the received credential, `/big/N` N MiB.

use std::convert::Infallible;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{Failure, HOST};

const MIB: u64 = 1 << 20;
/// The size of the chunks in which a response body is sent.
const PIECE: u64 = 256 * 1024;

/// Runs the benchmark server until the process is killed.
pub(crate) async fn serve(dir: &str) -> Result<(), Failure> {
    let tls = TlsAcceptor::from(Arc::new(identity(Path::new(dir))?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let pieces = Pieces::new();
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(one(tls.clone(), stream, pieces.clone()));
    }
}

/// Creates a certificate for [`HOST`] and writes the certificate of its authority to `ca.pem`.
fn identity(dir: &Path) -> Result<ServerConfig, Failure> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the authority of a bench");
    let key = KeyPair::generate()?;
    std::fs::write(dir.join("ca.pem"), params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec![HOST.to_owned()])?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

async fn one(tls: TlsAcceptor, stream: TcpStream, pieces: Pieces) {
    stream.set_nodelay(true).ok();
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let pieces = pieces.clone();
        async move { Ok::<_, Infallible>(answer(&request, pieces)) }
    });
    // A client that disconnects reports the error itself.
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

fn answer(request: &Request<Incoming>, pieces: Pieces) -> Response<BoxBody<Bytes, Infallible>> {
    let path = request.uri().path();
    if let Some(size) = path.strip_prefix("/big/").and_then(|size| size.parse::<u64>().ok()) {
        return Response::new(Repeated { pieces, left: size * MIB }.boxed());
    }
    let nothing = HeaderValue::from_static("");
    let credential = request.headers().get(AUTHORIZATION).unwrap_or(&nothing);
    let credential = credential.to_str().unwrap_or_default();
    let text = "x".repeat(1000);
    let body =
        format!("{{\"before\":\"{text}\",\"you_sent\":\"{credential}\",\"after\":\"{text}\"}}");
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    if path != "/small" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A block of incompressible pseudorandom bytes, the same in each run.
#[derive(Clone)]
struct Pieces(Bytes);

impl Pieces {
    fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        Self(words.take(usize::try_from(PIECE / 8).expect("a small number")).flatten().collect())
    }
}

/// A response body that repeats the same block of bytes.
struct Repeated {
    pieces: Pieces,
    left: u64,
}

impl hyper::body::Body for Repeated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left = self.left.saturating_sub(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.pieces.0.clone()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
