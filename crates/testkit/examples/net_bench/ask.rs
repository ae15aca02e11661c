//! The benchmark client: rounds of requests over persistent connections.

use std::io::{BufRead as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HOST as HOST_HEADER, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Failure, HOST};

/// The command line options of the benchmark client.
struct Options {
    path: String,
    /// IP address and port of the server; by default the address that its host name resolves to.
    connect: SocketAddr,
    ca: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Options {
    /// Parses `--path P [--ca FILE] [--connect ADDRESS] [--header NAME=VALUE]…
    /// [--header-env NAME=VARIABLE]…`
    #[expect(clippy::disallowed_methods, reason = "a box passes placeholders in variables")]
    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let (mut path, mut connect, mut ca, mut headers) = (None, None, None, Vec::new());
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err("an option has no value".into()) };
            match *name {
                "--path" => path = Some((*value).to_owned()),
                "--connect" => connect = Some(value.parse()?),
                "--ca" => ca = Some((*value).to_owned()),
                "--header" | "--header-env" => {
                    let (header, value) =
                        value.split_once('=').ok_or("a header needs the form NAME=VALUE")?;
                    let value = match *name {
                        "--header" => value.to_owned(),
                        _ => std::env::var(value)
                            .map_err(|_| format!("variable {value} is not set"))?,
                    };
                    headers.push((header.parse()?, format!("Bearer {value}").parse()?));
                }
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        let connect = match connect {
            Some(connect) => connect,
            None => (HOST, 443).to_socket_addrs()?.next().ok_or("the name has no address")?,
        };
        // In a box this variable contains the path of a bundle with the authority of the box.
        let ca = match ca {
            Some(ca) => ca,
            None => std::env::var("SSL_CERT_FILE")
                .map_err(|_| "--ca is missing and SSL_CERT_FILE is not set")?,
        };
        Ok(Self { path: path.ok_or("--path is missing")?, connect, ca, headers })
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, Failure> {
        let mut request = Request::get(&self.path).header(HOST_HEADER, HOST).body(Empty::new())?;
        request.headers_mut().extend(self.headers.iter().cloned());
        Ok(request)
    }
}

/// Runs the benchmark client: each line of standard input starts one round of requests.
pub(crate) async fn ask(words: &[&str]) -> Result<(), Failure> {
    let options = Arc::new(Options::parse(words)?);
    let tls = TlsConnector::from(Arc::new(client_config(&options.ca)?));
    let print = |line: &str| {
        let mut out = std::io::stdout();
        writeln!(out, "{line}")?;
        out.flush()
    };
    print("ready")?;
    // One round is `CONNECTIONS SECONDS`, or `CONNECTIONS 0` for a single request each.
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (connections, seconds) = line.split_once(' ').ok_or("a round needs two numbers")?;
        let (connections, seconds) = (connections.parse()?, seconds.parse()?);
        print(&round(&options, &tls, connections, Duration::from_secs(seconds)).await?)?;
    }
    Ok(())
}

fn client_config(ca: &str) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The measured requests of one connection.
#[derive(Default)]
struct Measurements {
    /// Duration of each request in microseconds.
    times: Vec<u64>,
    bytes: u64,
}

async fn round(
    options: &Arc<Options>,
    tls: &TlsConnector,
    connections: usize,
    length: Duration,
) -> Result<String, Failure> {
    // All connections are open and have carried one request before the measurement starts.
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut sender = connect(options, tls).await?;
        if !length.is_zero() {
            one(&mut sender, options).await?;
        }
        open.push(sender);
    }
    let started = Instant::now();
    let tasks: Vec<_> = open
        .into_iter()
        .map(|sender| tokio::spawn(repeat_requests(sender, Arc::clone(options), started + length)))
        .collect();
    let mut all = Measurements::default();
    for task in tasks {
        let mut seen = task.await??;
        all.times.append(&mut seen.times);
        all.bytes += seen.bytes;
    }
    let took = started.elapsed();
    all.times.sort_unstable();
    let at = |part: usize| all.times.get(all.times.len() * part / 100).copied().unwrap_or(0);
    let result = json!({
        "requests": all.times.len(), "bytes": all.bytes, "seconds": took.as_secs_f64(),
        "p50_us": at(50), "p90_us": at(90), "p99_us": at(99),
    });
    Ok(result.to_string())
}

async fn connect(
    options: &Options,
    tls: &TlsConnector,
) -> Result<SendRequest<Empty<Bytes>>, Failure> {
    let stream = TcpStream::connect(options.connect).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(ServerName::try_from(HOST)?, stream).await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn repeat_requests(
    mut sender: SendRequest<Empty<Bytes>>,
    options: Arc<Options>,
    end: Instant,
) -> Result<Measurements, Failure> {
    let mut seen = Measurements::default();
    loop {
        let started = Instant::now();
        seen.bytes += one(&mut sender, &options).await?;
        seen.times.push(u64::try_from(started.elapsed().as_micros())?);
        if Instant::now() >= end {
            return Ok(seen);
        }
    }
}

/// Sends one HTTP request and returns the length of the response body.
async fn one(sender: &mut SendRequest<Empty<Bytes>>, options: &Options) -> Result<u64, Failure> {
    sender.ready().await?;
    let response = sender.send_request(options.request()?).await?;
    let status = response.status();
    let (mut body, mut bytes, mut first) = (response.into_body(), 0, Bytes::new());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes += u64::try_from(data.len())?;
            if first.is_empty() {
                first = data;
            }
        }
    }
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&first)).into());
    }
    Ok(bytes)
}
