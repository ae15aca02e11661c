//! Forwards bytes unchanged: raw TCP, services of the host, and TLS without interception.
//!
//! No credential is added here. A placeholder in the bytes ends the connection.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use belljar_model::net::Target;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::active::{CUT_MESSAGE, Traffic};
use crate::ask::Approved;
use crate::broker::Broker;
use crate::record::{BrokerEvent, Decided, Finished, Question, Verdict};
use crate::rules::{Permit, TcpPermit};
use crate::scrub::FinderStream;
use crate::upstream::{Destination, UpstreamError};

/// The timeout of a forwarded connection without traffic.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Forwards a raw TCP connection that a rule permits.
pub(crate) async fn relay(broker: &Broker, stream: TcpStream, seen: Bytes, permit: TcpPermit) {
    let route = Route {
        method: "TCP",
        scheme: "tcp",
        target: permit.target().clone(),
        port: permit.port(),
        rule: permit.rule().to_owned(),
    };
    let traffic = Traffic::Tcp(route.target.clone(), route.port);
    let permit = match permit.asks().map(|rule| route.question(rule)) {
        Some(question) => match route.ask(broker, question).await {
            Some(approval) => permit.approved(&approval),
            None => return,
        },
        None => permit,
    };
    let found = broker.upstream.addresses(&Destination::from(&permit)).await;
    forward(broker, stream, seen, route, traffic, found).await;
}

/// Forwards a TLS connection to the server that its rule names, without interception.
pub(crate) async fn pass_through(broker: &Broker, stream: TcpStream, seen: Bytes, permit: Permit) {
    let route = Route {
        method: "TLS",
        scheme: "https",
        target: permit.target().clone(),
        port: permit.port(),
        rule: permit.rule().to_owned(),
    };
    let Target::Name(name) = &route.target else { return }; // rules forward names only
    let traffic = Traffic::Tls(name.clone(), route.port);
    let permit = match permit.asks().map(|rule| route.question(rule)) {
        Some(question) => match route.ask(broker, question).await {
            Some(approval) => permit.approved(&approval),
            None => return,
        },
        None => permit,
    };
    let found = broker.upstream.addresses(&Destination::from(&permit)).await;
    forward(broker, stream, seen, route, traffic, found).await;
}

/// The target of a forwarded TCP connection, with the rule that allows it.
struct Route {
    method: &'static str,
    scheme: &'static str,
    target: Target,
    port: u16,
    rule: String,
}

impl Route {
    /// Returns the question to the operator about a connection.
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

    /// Waits for the operator's approval of the connection.
    async fn ask(&self, broker: &Broker, question: Question) -> Option<Approved> {
        match broker.ask(question).await {
            Ok(approval) => Some(approval),
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

async fn forward(
    broker: &Broker,
    mut stream: TcpStream,
    seen: Bytes,
    route: Route,
    traffic: Traffic,
    found: Result<Option<Vec<SocketAddr>>, UpstreamError>,
) {
    let addresses = match found {
        Ok(addresses) => addresses,
        Err(error) => {
            broker.deny(route.decided(Verdict::Deny, error.to_string()));
            return;
        }
    };
    let Some(mut ticket) = broker.active.begin_if_allowed(traffic, &broker.rules()) else {
        broker.deny(route.decided(Verdict::Deny, format!("rules-changed: {CUT_MESSAGE}")));
        return;
    };
    let allowed = route.decided(Verdict::Allow, "named by a rule".to_owned());
    let Ok(recorded) = broker.recorder.record(vec![BrokerEvent::Decided(allowed)]).await else {
        return;
    };
    let began = Instant::now();
    let (mut sent, mut received) = (0, 0);
    let done = async {
        let mut out = broker
            .upstream
            .raw(addresses.as_deref(), &route.target, route.port)
            .await
            .map_err(io::Error::other)?;
        let mut guard = broker.vault.finder().stream();
        if guard.push(&seen).is_some() {
            return Err(io::Error::other(PLACEHOLDER));
        }
        out.write_all(&seen).await?;
        sent += u64::try_from(seen.len()).unwrap_or(u64::MAX);
        forward_both(&mut stream, &mut out, guard, &mut sent, &mut received).await
    };
    let done = tokio::select! {
        done = done => done,
        () = &mut ticket => Err(io::Error::other(CUT_MESSAGE)),
    };
    let error = done.err().map(|error| error.to_string());
    if error.as_deref() == Some(PLACEHOLDER) {
        let detail = format!("a placeholder in a raw connection to {}", route.target);
        broker.alarm("placeholder-elsewhere", detail);
    }
    broker.recorder.send(vec![BrokerEvent::Finished(Finished {
        cause: recorded.index(),
        status: None,
        sent,
        received,
        micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        error,
    })]);
}

const PLACEHOLDER: &str = "the connection contained a placeholder";

/// Forwards bytes in both directions until both sides are done.
async fn forward_both(
    inner: &mut TcpStream,
    outer: &mut TcpStream,
    guard: FinderStream,
    sent: &mut u64,
    received: &mut u64,
) -> io::Result<()> {
    let (mut from_box, mut to_box) = inner.split();
    let (mut from_upstream, mut to_upstream) = outer.split();
    let out = forward_one(&mut from_box, &mut to_upstream, Some(guard), sent);
    let back = forward_one(&mut from_upstream, &mut to_box, None, received);
    tokio::try_join!(out, back).map(|_| ())
}

async fn forward_one<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    from: &mut R,
    to: &mut W,
    mut guard: Option<FinderStream>,
    count: &mut u64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = timeout(IDLE_TIMEOUT, from.read(&mut buffer)).await??;
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
