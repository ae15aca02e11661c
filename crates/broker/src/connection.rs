//! Handles one connection of the box: detects its protocol, decides about its target, and forwards
//! it.
//!
//! The dialled address only identifies the name that the broker's DNS assigned to it. The broker
//! never connects to that address.

mod first_line;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_model::net::{Scheme, Target};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use self::first_line::{FirstLine, PROXY_ADDRESS, parse};
use crate::broker::Broker;
use crate::http::{self, ConnectionTarget, Refusal};
use crate::record::{Decided, Verdict};
use crate::rules::{Denial, Handling};
use crate::stream::Rewound;
use crate::tcp;
use crate::tls::{Hello, Peek};

/// The timeout for the first bytes that a client sends.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout for the first bytes of a client if the server of the protocol can send first.
const SERVER_FIRST_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of bytes that are read before the protocol of a connection must be known.
const MAX_FIRST_BYTES: usize = 64 * 1024;

pub(crate) async fn serve(broker: Arc<Broker>, stream: TcpStream, dialled: SocketAddr) {
    if dialled.ip().is_loopback() {
        return; // no service of the box listens there
    }
    let target = broker.target_of(dialled.ip());
    tracing::trace!(%dialled, "connection of the box accepted");
    let port = dialled.port();
    stream.set_nodelay(true).ok(); // only slower without
    let decided = broker.rules().tcp(&target, port);
    match decided {
        Ok(permit) if permit.by_rule() => {
            return tcp::relay(&broker, stream, Bytes::new(), permit).await;
        }
        // With `net = "full"`, the first bytes of the client decide about the protocol.
        Ok(permit) => {
            let mut stream = stream;
            match read_first_bytes(&mut stream, SERVER_FIRST_TIMEOUT).await {
                FirstBytes::Tls(hello, seen) => {
                    tls(broker, stream, seen, hello, target, port).await;
                }
                FirstBytes::Http(seen) => plain(broker, stream, seen, target, dialled).await,
                FirstBytes::Other(seen) => tcp::relay(&broker, stream, seen, permit).await,
                FirstBytes::Nothing => tcp::relay(&broker, stream, Bytes::new(), permit).await,
                FirstBytes::Refused(why) => {
                    refuse_hello(&broker, &mut stream, &target, port, why).await;
                }
            }
        }
        Err(denial) => {
            let mut stream = stream;
            match read_first_bytes(&mut stream, FIRST_BYTES_TIMEOUT).await {
                FirstBytes::Tls(hello, seen) => {
                    tls(broker, stream, seen, hello, target, port).await;
                }
                FirstBytes::Http(seen) => plain(broker, stream, seen, target, dialled).await,
                FirstBytes::Other(_) => {
                    refuse(&broker, "TCP", "tcp", &target, port, on_record(&denial));
                }
                FirstBytes::Refused(why) => {
                    refuse_hello(&broker, &mut stream, &target, port, why).await;
                }
                // A client of an allowed host can open a connection in advance and not use it.
                FirstBytes::Nothing if broker.rules().names_port(&target, port) => {}
                FirstBytes::Nothing => {
                    refuse(&broker, "TCP", "tcp", &target, port, on_record(&denial));
                }
            }
        }
    }
}

/// The first bytes that a client sent, by their protocol.
enum FirstBytes {
    Tls(Hello, Bytes),
    Http(Bytes),
    /// The first bytes of a connection whose protocol is neither TLS nor HTTP.
    Other(Bytes),
    /// The first bytes are TLS that must be neither answered nor forwarded, with the reason.
    Refused(&'static str),
    Nothing,
}

async fn read_first_bytes(stream: &mut TcpStream, within: Duration) -> FirstBytes {
    let mut seen = BytesMut::with_capacity(4096);
    loop {
        match timeout(within, stream.read_buf(&mut seen)).await {
            Ok(Ok(0) | Err(_)) => return FirstBytes::Nothing,
            Err(_) if seen.is_empty() => return FirstBytes::Nothing,
            Err(_) => return FirstBytes::Other(seen.freeze()),
            Ok(Ok(_)) => {}
        }
        match Hello::parse(&seen) {
            Peek::Hello(hello) => return FirstBytes::Tls(hello, seen.freeze()),
            Peek::Incomplete if seen.len() < MAX_FIRST_BYTES => {}
            Peek::Refused(why) => return FirstBytes::Refused(why),
            Peek::NotTls if is_http(&seen) => return FirstBytes::Http(seen.freeze()),
            Peek::Incomplete | Peek::NotTls => return FirstBytes::Other(seen.freeze()),
        }
    }
}

/// Returns whether the bytes start with an HTTP method and a space, as far as received. No other
/// supported protocol starts with upper-case letters and a space.
fn is_http(seen: &[u8]) -> bool {
    let method = seen.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    (1..=32).contains(&method) && seen.get(method).is_none_or(|byte| *byte == b' ')
}

async fn plain(
    broker: Arc<Broker>,
    mut stream: TcpStream,
    seen: Bytes,
    target: Target,
    dialled: SocketAddr,
) {
    let mut seen = BytesMut::from(seen);
    let absolute = loop {
        match parse(&seen) {
            FirstLine::Unfinished if seen.len() < MAX_FIRST_BYTES => {
                match timeout(FIRST_BYTES_TIMEOUT, stream.read_buf(&mut seen)).await {
                    Ok(Ok(1..)) => {}
                    Ok(Ok(0) | Err(_)) | Err(_) => return, // the client sent no complete request line
                }
            }
            FirstLine::Absolute(scheme, name) => break Some((scheme, name)),
            FirstLine::Unfinished | FirstLine::Dialled => break None,
        }
    };
    let (scheme, name) = match absolute {
        Some((scheme, name)) if dialled.ip() == PROXY_ADDRESS => (scheme, name),
        // Each request must still name the host that the client resolved.
        Some((scheme, _)) => (scheme, target),
        None => (Scheme::Http, target),
    };
    let target = ConnectionTarget { scheme, name, port: dialled.port() };
    http::serve(broker, Rewound::new(seen.freeze(), stream), target, false).await;
}

async fn tls(
    broker: Arc<Broker>,
    mut stream: TcpStream,
    seen: Bytes,
    hello: Hello,
    target: Target,
    port: u16,
) {
    let name = match (hello.sni, target) {
        (Some(sni), Target::Name(target)) if sni != target => {
            let reason =
                format!("misdirected: the TLS hello names {sni}, but {target} was dialled");
            refuse(&broker, "TLS", "https", &Target::Name(sni), port, reason);
            return send_unrecognized_name(&mut stream).await;
        }
        (Some(sni), _) => Target::Name(sni),
        (None, target) => target,
    };
    let handling = match &name {
        Target::Name(name) => broker.rules().tls(name, port),
        Target::Address(_) => Handling::Intercept, // each request is decided on its own
    };
    match handling {
        Handling::Refuse(denial) => {
            refuse(&broker, "TLS", "https", &name, port, on_record(&denial));
            send_unrecognized_name(&mut stream).await;
        }
        Handling::Passthrough(permit) => {
            if hello.ech {
                let reason =
                    "hidden-name: the TLS hello has an encrypted part, which can name another host";
                refuse(&broker, "TLS", "https", &name, port, reason.to_owned());
                return send_unrecognized_name(&mut stream).await;
            }
            tcp::pass_through(&broker, stream, seen, permit).await;
        }
        Handling::Intercept => {
            let Ok(config) = broker.authority.server_config(&name, (broker.clock)()) else {
                let reason = match broker.rules().tcp(&name, port) {
                    Err(denial) => on_record(&denial),
                    Ok(_) => format!("no-rule: no rule names {name} for HTTPS"),
                };
                refuse(&broker, "TLS", "https", &name, port, reason);
                return send_unrecognized_name(&mut stream).await;
            };
            let acceptor = TlsAcceptor::from(config);
            let handshake =
                timeout(FIRST_BYTES_TIMEOUT, acceptor.accept(Rewound::new(seen, stream))).await;
            let Ok(Ok(stream)) = handshake else {
                tracing::debug!(port, "client rejected the certificate of the box");
                return;
            };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            tracing::trace!(port, is_http2, "TLS handshake completed");
            let target = ConnectionTarget { scheme: Scheme::Https, name, port };
            http::serve(broker, stream, target, is_http2).await;
        }
    }
}

/// Refuses a ClientHello that two programs could read differently.
async fn refuse_hello(
    broker: &Broker,
    stream: &mut TcpStream,
    target: &Target,
    port: u16,
    why: &str,
) {
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 47]; // fatal, illegal_parameter
    refuse(broker, "TLS", "https", target, port, format!("malformed: {why}"));
    stream.write_all(&ALERT).await.ok(); // the connection is refused either way
}

/// Sends the TLS alert `unrecognized_name` to a client.
async fn send_unrecognized_name(stream: &mut TcpStream) {
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 112]; // fatal, unrecognized_name
    stream.write_all(&ALERT).await.ok(); // the connection is refused either way
}

fn on_record(denial: &Denial) -> String {
    Refusal::from(denial.clone()).on_record()
}

/// Records a denial.
fn refuse(broker: &Broker, method: &str, scheme: &str, target: &Target, port: u16, reason: String) {
    broker.deny(Decided {
        method: method.to_owned(),
        scheme: scheme.to_owned(),
        host: target.to_string(),
        port,
        path: String::new(),
        verdict: Verdict::Deny,
        rule: None,
        reason,
        secrets: Vec::new(),
        is_websocket: false,
    });
}
