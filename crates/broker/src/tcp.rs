//! Bytes that are passed on as they are: raw TCP, services of the host, and TLS that is not opened.
//!
//! No credential goes here. A placeholder that shows up ends the connection.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use belljar_model::net::Target;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ask::Approved;
use crate::broker::Broker;
use crate::record::{Decided, Finished, Question, Verdict, Word};
use crate::rules::{Permit, TcpPermit};
use crate::scrub::FinderStream;
use crate::underway::{CUT, Carried};
use crate::upstream::{Place, UpstreamError};

/// How long a connection may be without a byte in either direction.
const SILENCE: Duration = Duration::from_secs(60 * 60);

/// Carries a raw connection that a rule names.
pub(crate) async fn relay(broker: &Broker, stream: TcpStream, seen: Bytes, permit: TcpPermit) {
    let way = Way {
        method: "TCP",
        scheme: "tcp",
        target: permit.target().clone(),
        port: permit.port(),
        rule: permit.rule().to_owned(),
    };
    let carried = Carried::Tcp(way.target.clone(), way.port);
    let permit = match permit.asks().map(|rule| way.question(rule)) {
        Some(question) => match way.ask(broker, question).await {
            Some(yes) => permit.approved(&yes),
            None => return,
        },
        None => permit,
    };
    let found = broker.upstream.addresses(&Place::from(&permit)).await;
    carry(broker, stream, seen, way, carried, found).await;
}

/// Carries TLS between the program and the server that its rule names, unopened.
pub(crate) async fn pass_through(broker: &Broker, stream: TcpStream, seen: Bytes, permit: Permit) {
    let way = Way {
        method: "TLS",
        scheme: "https",
        target: permit.target().clone(),
        port: permit.port(),
        rule: permit.rule().to_owned(),
    };
    let Target::Name(name) = &way.target else { return }; // no rule carries an address unseen
    let carried = Carried::Tls(name.clone(), way.port);
    let permit = match permit.asks().map(|rule| way.question(rule)) {
        Some(question) => match way.ask(broker, question).await {
            Some(yes) => permit.approved(&yes),
            None => return,
        },
        None => permit,
    };
    let found = broker.upstream.addresses(&Place::from(&permit)).await;
    carry(broker, stream, seen, way, carried, found).await;
}

/// Where bytes go, and by which rule.
struct Way {
    method: &'static str,
    scheme: &'static str,
    target: Target,
    port: u16,
    rule: String,
}

impl Way {
    /// Asks about the connection as a whole.
    fn question(&self, rule: &str) -> Question {
        Question {
            number: 0,
            method: self.method.to_owned(),
            scheme: self.scheme.to_owned(),
            host: self.target.to_string(),
            port: self.port,
            path: String::new(),
            query: 0,
            is_websocket: false,
            secrets: Vec::new(),
            rule: rule.to_owned(),
            wait: 0,
        }
    }

    /// Waits for somebody to say yes to it.
    async fn ask(&self, broker: &Broker, question: Question) -> Option<Approved> {
        match broker.ask(question).await {
            Ok(yes) => Some(yes),
            Err(refusal) => {
                broker.deny(self.decided(Verdict::Deny, refusal.on_record()));
                None
            }
        }
    }

    fn decided(&self, verdict: Verdict, reason: String) -> Decided {
        Decided {
            method: self.method.to_owned(),
            scheme: self.scheme.to_owned(),
            host: self.target.to_string(),
            port: self.port,
            path: String::new(),
            verdict,
            rule: Some(self.rule.clone()),
            reason,
            secrets: Vec::new(),
        }
    }
}

async fn carry(
    broker: &Broker,
    mut stream: TcpStream,
    seen: Bytes,
    way: Way,
    carried: Carried,
    found: Result<Option<Vec<SocketAddr>>, UpstreamError>,
) {
    let addresses = match found {
        Ok(addresses) => addresses,
        Err(error) => {
            broker.deny(way.decided(Verdict::Deny, error.to_string()));
            return;
        }
    };
    let Some(mut ticket) = broker.underway.still(carried, &broker.rules()) else {
        broker.deny(way.decided(Verdict::Deny, format!("rules-changed: {CUT}")));
        return;
    };
    let allowed = way.decided(Verdict::Allow, "named by a rule".to_owned());
    let Ok(recorded) = broker.clerk.record(vec![Word::Decided(allowed)]).await else { return };
    let began = Instant::now();
    let (mut sent, mut received) = (0, 0);
    let done = async {
        let mut out = broker
            .upstream
            .raw(addresses.as_deref(), &way.target, way.port)
            .await
            .map_err(io::Error::other)?;
        let mut guard = broker.vault.finder().stream();
        if guard.push(&seen).is_some() {
            return Err(io::Error::other(PLACEHOLDER));
        }
        out.write_all(&seen).await?;
        sent += u64::try_from(seen.len()).unwrap_or(u64::MAX);
        both(&mut stream, &mut out, guard, &mut sent, &mut received).await
    };
    let done = tokio::select! {
        done = done => done,
        () = &mut ticket => Err(io::Error::other(CUT)),
    };
    let error = done.err().map(|error| error.to_string());
    if error.as_deref() == Some(PLACEHOLDER) {
        let detail = format!("a placeholder in a raw connection to {}", way.target);
        broker.alarm("placeholder-elsewhere", detail);
    }
    broker.clerk.tell(vec![Word::Finished(Finished {
        cause: recorded.index(),
        status: None,
        sent,
        received,
        micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        error,
    })]);
}

const PLACEHOLDER: &str = "a placeholder was about to leave the box";

/// Passes bytes both ways until both sides are done.
async fn both(
    inner: &mut TcpStream,
    outer: &mut TcpStream,
    guard: FinderStream,
    sent: &mut u64,
    received: &mut u64,
) -> io::Result<()> {
    let (mut from_box, mut to_box) = inner.split();
    let (mut from_world, mut to_world) = outer.split();
    let out = pump(&mut from_box, &mut to_world, Some(guard), sent);
    let back = pump(&mut from_world, &mut to_box, None, received);
    tokio::try_join!(out, back).map(|_| ())
}

async fn pump<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    from: &mut R,
    to: &mut W,
    mut guard: Option<FinderStream>,
    count: &mut u64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = timeout(SILENCE, from.read(&mut buffer)).await??;
        let bytes = buffer.get(..length).unwrap_or_default();
        if bytes.is_empty() {
            return to.shutdown().await;
        }
        if guard.as_mut().is_some_and(|guard| guard.push(bytes).is_some()) {
            return Err(io::Error::other(PLACEHOLDER));
        }
        to.write_all(bytes).await?;
        *count += u64::try_from(length).unwrap_or(u64::MAX);
    }
}
