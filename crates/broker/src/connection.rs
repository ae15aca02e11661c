//! One connection out of the box: what is it, where does it want to go, and who carries it there.
//!
//! The address that was dialled says nothing but which name was asked for: DNS is ours. It is never
//! where we connect to.

mod door;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_model::net::{Scheme, Target};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use self::door::{DOOR, Named, named};
use crate::broker::Broker;
use crate::http::{self, Asked, Refusal};
use crate::record::{Decided, Verdict};
use crate::rules::{Denial, Handling};
use crate::stream::Rewound;
use crate::tcp;
use crate::tls::{Hello, Peek};

/// How long a program may take to say what it wants.
const FIRST_WORD: Duration = Duration::from_secs(15);
/// How long it may take in a place where the server may speak first.
const MAYBE_SILENT: Duration = Duration::from_millis(500);
/// Most that a first word may be.
const FIRST_WORDS: usize = 64 * 1024;

pub(crate) async fn serve(broker: Arc<Broker>, stream: TcpStream, dialled: SocketAddr) {
    if dialled.ip().is_loopback() {
        return; // a service of the box itself, which is not there
    }
    let meant = broker.meant(dialled.ip());
    tracing::trace!(%dialled, "connection of the box");
    let port = dialled.port();
    stream.set_nodelay(true).ok(); // slower, not wrong, without
    let decided = broker.rules().tcp(&meant, port);
    match decided {
        Ok(permit) if permit.by_rule() => {
            return tcp::relay(&broker, stream, Bytes::new(), permit).await;
        }
        // Where anything goes, what the program says first tells what it is.
        Ok(permit) => {
            let mut stream = stream;
            match first_word(&mut stream, MAYBE_SILENT).await {
                First::Tls(hello, seen) => tls(broker, stream, seen, hello, meant, port).await,
                First::Http(seen) => plain(broker, stream, seen, meant, dialled).await,
                First::Other(seen) => tcp::relay(&broker, stream, seen, permit).await,
                First::Nothing => tcp::relay(&broker, stream, Bytes::new(), permit).await,
            }
        }
        Err(denial) => {
            let mut stream = stream;
            match first_word(&mut stream, FIRST_WORD).await {
                First::Tls(hello, seen) => tls(broker, stream, seen, hello, meant, port).await,
                First::Http(seen) => plain(broker, stream, seen, meant, dialled).await,
                First::Other(_) => refuse(&broker, "TCP", "tcp", &meant, port, on_record(&denial)),
                First::Nothing => {}
            }
        }
    }
}

/// What a program says before it is answered.
enum First {
    Tls(Hello, Bytes),
    Http(Bytes),
    /// Bytes of another protocol.
    Other(Bytes),
    Nothing,
}

async fn first_word(stream: &mut TcpStream, within: Duration) -> First {
    let mut seen = BytesMut::with_capacity(4096);
    loop {
        match timeout(within, stream.read_buf(&mut seen)).await {
            Ok(Ok(0) | Err(_)) => return First::Nothing,
            Err(_) if seen.is_empty() => return First::Nothing,
            Err(_) => return First::Other(seen.freeze()),
            Ok(Ok(_)) => {}
        }
        match Hello::parse(&seen) {
            Peek::Hello(hello) => return First::Tls(hello, seen.freeze()),
            Peek::Incomplete if seen.len() < FIRST_WORDS => {}
            Peek::Refused(_) => return First::Nothing,
            Peek::NotTls if is_http(&seen) => return First::Http(seen.freeze()),
            Peek::Incomplete | Peek::NotTls => return First::Other(seen.freeze()),
        }
    }
}

/// A method and a space, as far as it was said: no other protocol begins with upper-case letters and a
/// blank that we would have to pass on.
fn is_http(seen: &[u8]) -> bool {
    let method = seen.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    (1..=32).contains(&method) && seen.get(method).is_none_or(|byte| *byte == b' ')
}

async fn plain(
    broker: Arc<Broker>,
    mut stream: TcpStream,
    seen: Bytes,
    meant: Target,
    dialled: SocketAddr,
) {
    let mut seen = BytesMut::from(seen);
    let said = loop {
        match named(&seen) {
            Named::Unfinished if seen.len() < FIRST_WORDS => {
                match timeout(FIRST_WORD, stream.read_buf(&mut seen)).await {
                    Ok(Ok(1..)) => {}
                    Ok(Ok(0) | Err(_)) | Err(_) => return, // it never said what it wants
                }
            }
            Named::Absolute(scheme, name) => break Some((scheme, name)),
            Named::Unfinished | Named::Dialled => break None,
        }
    };
    let (scheme, name) = match said {
        Some((scheme, name)) if dialled.ip() == DOOR => (scheme, name),
        // Each request must still name whom a name server was asked for.
        Some((scheme, _)) => (scheme, meant),
        None => (Scheme::Http, meant),
    };
    let asked = Asked { scheme, name, port: dialled.port() };
    http::serve(broker, Rewound::new(seen.freeze(), stream), asked, false).await;
}

async fn tls(
    broker: Arc<Broker>,
    mut stream: TcpStream,
    seen: Bytes,
    hello: Hello,
    meant: Target,
    port: u16,
) {
    let name = match (hello.sni, meant) {
        (Some(sni), Target::Name(meant)) if sni != meant => {
            let reason = format!("misdirected: the hello names {sni}, and {meant} was dialled");
            refuse(&broker, "TLS", "https", &Target::Name(sni), port, reason);
            return unrecognized(&mut stream).await;
        }
        (Some(sni), _) => Target::Name(sni),
        (None, meant) => meant,
    };
    let handling = match &name {
        Target::Name(name) => broker.rules().tls(name, port),
        Target::Address(_) => Handling::Intercept, // each request is decided; no rule, no certificate
    };
    match handling {
        Handling::Refuse(denial) => {
            refuse(&broker, "TLS", "https", &name, port, on_record(&denial));
            unrecognized(&mut stream).await;
        }
        Handling::Passthrough(permit) => {
            if hello.ech {
                let reason = "hidden-name: the hello has an encrypted part, which may name another";
                refuse(&broker, "TLS", "https", &name, port, reason.to_owned());
                return unrecognized(&mut stream).await;
            }
            tcp::pass_through(&broker, stream, seen, permit).await;
        }
        Handling::Intercept => {
            let Ok(config) = broker.authority.server_config(&name, (broker.clock)()) else {
                return;
            };
            let acceptor = TlsAcceptor::from(config);
            let shaken = timeout(FIRST_WORD, acceptor.accept(Rewound::new(seen, stream))).await;
            let Ok(Ok(stream)) = shaken else {
                tracing::debug!(port, "program does not accept the certificate of the box");
                return;
            };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            tracing::trace!(port, is_http2, "connection is encrypted");
            let asked = Asked { scheme: Scheme::Https, name, port };
            http::serve(broker, stream, asked, is_http2).await;
        }
    }
}

/// Tells a TLS client that nobody of that name is here.
async fn unrecognized(stream: &mut TcpStream) {
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 112]; // fatal, unrecognized_name
    stream.write_all(&ALERT).await.ok(); // it is refused either way
}

fn on_record(denial: &Denial) -> String {
    Refusal::from(denial.clone()).on_record()
}

/// Puts a refusal on record.
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
    });
}
