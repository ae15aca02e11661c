//! Forwards bytes unchanged: raw TCP, services of the host, and TLS without interception.
//!
//! No credential is added here. A placeholder in the bytes ends the connection.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use belljar_model::ByteSize;
use belljar_model::net::Target;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::active::{CUT_MESSAGE, Traffic};
use crate::ask::Approved;
use crate::broker::Broker;
use crate::http::Refusal;
use crate::meter::{Charge, Provider, Spent};
use crate::record::{BrokerEvent, Decided, Finished, Question, Verdict};
use crate::rules::{Permit, TcpPermit};
use crate::scrub::{BodyError, FinderStream};
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
    let charged = broker.meter().connection(&permit, Instant::now());
    let Some(limits) = route.limits(broker, charged, None) else { return };
    let found = broker.upstream.addresses(&Destination::from(&permit)).await;
    forward(broker, stream, seen, route, limits, traffic, found).await;
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
    let charged = broker.meter().request(&permit, [], None, Instant::now());
    let upload = permit.limits().upload.map(ByteSize::as_u64);
    let Some(limits) = route.limits(broker, charged, upload) else { return };
    let found = broker.upstream.addresses(&Destination::from(&permit)).await;
    forward(broker, stream, seen, route, limits, traffic, found).await;
}

/// The limits that the bytes of a forwarded connection count towards.
struct Limits {
    charge: Charge,
    /// The maximum number of bytes from the box.
    upload: Option<u64>,
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

    /// Returns the limits of a connection that was counted, or records why it is refused. What a
    /// model uses is not visible in a forwarded connection, so a budget of tokens or money refuses
    /// connections to providers of models.
    fn limits(
        &self,
        broker: &Broker,
        charged: Result<Charge, Spent>,
        upload: Option<u64>,
    ) -> Option<Limits> {
        let is_model = Provider::of(&self.target).is_some();
        let owner = broker.meter().counts_tokens([]).filter(|_| is_model).cloned();
        let charged = match owner {
            Some(owner) => Err(Spent::Uncountable { owner }),
            None => charged,
        };
        match charged {
            Ok(charge) => Some(Limits { charge, upload }),
            Err(spent) => {
                let refusal = Refusal::from(spent);
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
            is_websocket: false,
        }
    }
}

async fn forward(
    broker: &Broker,
    mut stream: TcpStream,
    seen: Bytes,
    route: Route,
    limits: Limits,
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
        let count = Counter { broker, limits: &limits };
        count.sent(seen.len(), 0)?;
        out.write_all(&seen).await?;
        sent += u64::try_from(seen.len()).unwrap_or(u64::MAX);
        forward_both(&mut stream, &mut out, guard, count, &mut sent, &mut received).await
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

/// Counts the bytes of a forwarded connection.
#[derive(Clone, Copy)]
struct Counter<'a> {
    broker: &'a Broker,
    limits: &'a Limits,
}

impl Counter<'_> {
    /// Counts bytes from the box after `before` others; returns an error if a limit is exceeded.
    fn sent(self, bytes: usize, before: u64) -> io::Result<()> {
        let total = before.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if let Some(limit) = self.limits.upload.filter(|limit| total > *limit) {
            return Err(io::Error::other(BodyError::TooLong { limit }));
        }
        self.received(bytes)
    }

    fn received(self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let counted = self.broker.meter().bytes(&self.limits.charge, bytes);
        counted.map_err(io::Error::other)
    }
}

/// Forwards bytes in both directions until both sides are done.
async fn forward_both(
    inner: &mut TcpStream,
    outer: &mut TcpStream,
    guard: FinderStream,
    counter: Counter<'_>,
    sent: &mut u64,
    received: &mut u64,
) -> io::Result<()> {
    let (mut from_box, mut to_box) = inner.split();
    let (mut from_upstream, mut to_upstream) = outer.split();
    let out = forward_one(&mut from_box, &mut to_upstream, Some(guard), counter, sent);
    let back = forward_one(&mut from_upstream, &mut to_box, None, counter, received);
    tokio::try_join!(out, back).map(|_| ())
}

async fn forward_one<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    from: &mut R,
    to: &mut W,
    mut guard: Option<FinderStream>,
    counter: Counter<'_>,
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
        match guard {
            Some(_) => counter.sent(length, *count)?,
            None => counter.received(length)?,
        }
        to.write_all(bytes).await?;
        *count += u64::try_from(length).unwrap_or(u64::MAX);
    }
}
