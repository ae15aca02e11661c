//! The clients and the reference server of `cargo xtask bench api-list api-run api-streams api-scale`.
//!
//! Each action prints one line of JSON or the word `ready`. An action that prints `ready` ends with its stdin.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tower_service::Service as _;

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "bare FILE | tokens HOME COUNT SCOPE… | create ADDRESS TOKEN COUNT | \
                     time ADDRESS TOKEN ROUNDS METHOD PATH [BODY] | \
                     events ADDRESS COUNT TOKEN… | screens ADDRESS BOX COUNT TOKEN…";

/// The number of boxes that are created at once.
const AT_ONCE: usize = 16;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match args.as_slice() {
            ["bare", file] => bare(Path::new(file)).await,
            ["tokens", home, count, scopes @ ..] => tokens(home, count.parse()?, scopes).await,
            ["create", address, token, count] => create(address, token, count.parse()?).await,
            ["time", address, token, rounds, method, path, body @ ..] => {
                let body = body.first().copied().unwrap_or_default();
                time(address, token, rounds.parse()?, (method, path, body)).await
            }
            ["events", address, count, tokens @ ..] => {
                let path = "/v1/events";
                hold(address, count.parse()?, tokens, |token| request_head(path, token, "")).await
            }
            ["screens", address, name, count, tokens @ ..] => {
                let path = format!("/v1/boxes/{name}/screen?view=true");
                hold(address, count.parse()?, tokens, |token| upgrade_head(&path, token)).await
            }
            _ => Err(USAGE.into()),
        }
    })
}

fn print(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits until the stdin of the program is closed.
async fn until_closed() -> Result<(), Failure> {
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    Ok(())
}

/// Serves the content of a file at `/v1/boxes` with nothing but axum, and prints the port.
async fn bare(file: &Path) -> Result<(), Failure> {
    let body = Bytes::from(std::fs::read(file)?);
    let answer = move || std::future::ready(([(CONTENT_TYPE, "application/json")], body.clone()));
    let router = Router::new().route("/v1/boxes", get(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    print(&listener.local_addr()?.port().to_string())?;
    let serving = async {
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let router = router.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| router.clone().call(request));
                let http = hyper::server::conn::http1::Builder::new();
                drop(http.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    };
    tokio::select! {
        ended = serving => ended,
        ended = until_closed() => ended,
    }
}

/// Opens an HTTP connection.
async fn connect<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a request and returns the body of the response. Every status above 299 is an error.
async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    host: &str,
    token: Option<&str>,
    (method, path, body): (&str, &str, &str),
) -> Result<Bytes, Failure> {
    let mut request = hyper::Request::builder().method(method).uri(path).header("Host", host);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    if !body.is_empty() {
        request = request.header("Content-Type", "application/json");
    }
    sender.ready().await?;
    let request = request.body(Full::new(Bytes::from(body.to_owned())))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(body)
}

/// Creates tokens over the local socket of a server and prints them.
async fn tokens(home: &str, count: usize, scopes: &[&str]) -> Result<(), Failure> {
    let mut sender = connect(UnixStream::connect(format!("{home}/server/socket")).await?).await?;
    let mut tokens = Vec::new();
    for number in 0..count {
        let name = format!("bench-{}-{number}", scopes.join("-").replace(':', "-"));
        let new = json!({ "name": name, "kind": "service", "scopes": scopes }).to_string();
        let made = send(&mut sender, "localhost", None, ("POST", "/v1/tokens", &new)).await?;
        let made: Value = serde_json::from_slice(&made)?;
        tokens.push(made.get("token").cloned().ok_or("the response has no token")?);
    }
    print(&Value::from(tokens).to_string())
}

/// Creates boxes that are not started.
async fn create(address: &str, token: &str, count: usize) -> Result<(), Failure> {
    let (address, token) = (Arc::<str>::from(address), Arc::<str>::from(token));
    let mut clients = JoinSet::new();
    for client in 0..AT_ONCE {
        let (address, token) = (Arc::clone(&address), Arc::clone(&token));
        clients.spawn(async move {
            let mut sender = connect(TcpStream::connect(&*address).await?).await?;
            for number in (client..count).step_by(AT_ONCE) {
                let name = format!("bench-{number:06}");
                let new = json!({ "name": name, "start": false }).to_string();
                let request = ("POST", "/v1/boxes", new.as_str());
                send(&mut sender, &address, Some(&*token), request).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    print("ready")
}

/// Sends a request several times, one after the other, and prints the milliseconds of each.
async fn time(
    address: &str,
    token: &str,
    rounds: usize,
    request: (&str, &str, &str),
) -> Result<(), Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut sender = connect(stream).await?;
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        send(&mut sender, address, Some(token), request).await?;
        samples.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    print(&json!(samples).to_string())
}

fn request_head(path: &str, token: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

fn upgrade_head(path: &str, token: &str) -> String {
    let key = STANDARD.encode([7; 16]);
    request_head(
        path,
        token,
        &format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: belljar.stream.v1\r\nSec-WebSocket-Key: {key}\r\n"
        ),
    )
}

/// Opens streams with the tokens in turn, and keeps them open until the stdin is closed.
async fn hold(
    address: &str,
    count: usize,
    tokens: &[&str],
    head: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    /// The time in which the first bytes of a stream must arrive.
    const TIME: Duration = Duration::from_secs(30);
    let mut streams = Vec::new();
    for token in tokens.iter().cycle().take(count) {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(head(token).as_bytes()).await?;
        let mut first = [0; 12];
        tokio::time::timeout(TIME, stream.read_exact(&mut first)).await??;
        if &first != b"HTTP/1.1 200" && &first != b"HTTP/1.1 101" {
            let mut rest = vec![0; 4096];
            let length = stream.read(&mut rest).await?;
            rest.truncate(length);
            return Err(String::from_utf8_lossy(&[first.as_slice(), &rest].concat()).into());
        }
        streams.push(stream);
    }
    let mut readers = JoinSet::new();
    for mut stream in streams {
        // The streams are read, so that the server keeps no bytes for them.
        readers.spawn(async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await });
    }
    print("ready")?;
    until_closed().await
}
