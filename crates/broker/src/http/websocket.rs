//! Forwards WebSockets and inspects their frames in both directions.

use std::io;
use std::sync::Arc;

use belljar_model::net::Target;
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::answer::{Refusal, chain};
use super::exchange::{Exchange, PLACEHOLDER_ELSEWHERE};
use super::report::{Counter, Report};
use super::response::empty;
use crate::active::{CUT_MESSAGE, Traffic};
use crate::broker::Broker;
use crate::scrub::{BoxError, FrameError, FrameGuard, FrameScrubber};
use crate::upstream::{Body, Route};
use crate::vault::BodyGuard;

/// The maximum number of bytes that are read at once.
const PIECE: usize = 16 * 1024;

/// The headers of the server's WebSocket handshake that the box receives.
const HANDSHAKE_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("sec-websocket-accept"),
    HeaderName::from_static("sec-websocket-protocol"),
];

/// Removes the client's side of the WebSocket upgrade from the request, before the request is
/// rewritten.
pub(super) fn take_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    parts.extensions.remove()
}

/// Opens a WebSocket to the upstream server and forwards its frames.
pub(super) async fn forward(
    exchange: Exchange,
    inner: Option<OnUpgrade>,
    route: Route,
    mut request: Request<Body>,
    report: Report,
) -> Result<Response<Body>, Refusal> {
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    // Compressed frames cannot be searched.
    headers.remove("sec-websocket-extensions");
    let sent = exchange.broker.upstream.send_upgrade(&exchange.permit, route, request).await;
    let mut answer = match sent {
        Ok(answer) => answer,
        Err(error) => {
            report.finish(Some(chain(&error)));
            return Err(error.into());
        }
    };
    let Some(inner) = inner.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) else {
        return exchange.answer(answer, report);
    };
    let outer = hyper::upgrade::on(&mut answer);
    let broker = Arc::clone(&exchange.broker);
    let scrubber = broker.vault.scrubber(exchange.permit.target());
    let mut reply = Response::new(empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let handshake = scrubber.headers(answer.headers());
    for name in HANDSHAKE_HEADERS {
        if let Some(value) = handshake.get(&name) {
            reply.headers_mut().insert(name, value.clone());
        }
    }
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    let BodyGuard { refused, masked } = exchange.body_guard();
    let target = exchange.permit.target().clone();
    let sender = Sender {
        guard: FrameGuard::new(&broker.vault.finder(), &refused),
        mask: masked.as_ref().map(FrameScrubber::of_client),
        target,
    };
    let scrubber = FrameScrubber::new(&scrubber);
    let mut frames = Frames { broker: Arc::clone(&broker), report, sender, scrubber };
    let traffic = Traffic::Request(Arc::clone(&exchange.outbound));
    let ticket = broker.active.begin_if_allowed(traffic, &broker.rules());
    broker.spawn(async move {
        frames.report.status(StatusCode::SWITCHING_PROTOCOLS);
        let ended = match (inner.await, outer.await) {
            (Ok(inner), Ok(outer)) => match ticket {
                Some(mut ticket) => tokio::select! {
                    ended = frames.forward(inner, outer) => ended,
                    () = &mut ticket => Err(Ended::Stopped(CUT_MESSAGE.into())),
                },
                None => Err(Ended::Stopped(CUT_MESSAGE.into())),
            },
            (Err(_), _) => Err(Ended::Box(io::ErrorKind::ConnectionAborted)),
            (_, Err(_)) => Err(Ended::Upstream(io::ErrorKind::ConnectionAborted)),
        };
        let error = ended.as_ref().err().map(ToString::to_string);
        if let Err(Ended::Frame(FrameError::Placeholder { .. })) = ended {
            let detail = format!("in a message to {}", exchange.permit.target());
            exchange.broker.alarm(PLACEHOLDER_ELSEWHERE, detail);
        }
        frames.report.finish(error);
    });
    Ok(reply)
}

/// The frames of one WebSocket, in both directions.
struct Frames {
    broker: Arc<Broker>,
    report: Report,
    sender: Sender,
    scrubber: FrameScrubber,
}

/// The inspection of the frames that the box sends.
struct Sender {
    guard: FrameGuard,
    /// Masks the placeholders of the host's own secrets, if it has any.
    mask: Option<FrameScrubber>,
    target: Target,
}

/// Why the broker ended a WebSocket before both sides closed it.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the box closed the connection: {0}")]
    Box(io::ErrorKind),
    #[error("the upstream closed the connection: {0}")]
    Upstream(io::ErrorKind),
    #[error("{0}")]
    Stopped(BoxError),
}

impl Frames {
    /// Forwards WebSocket frames until both sides are closed or a frame is refused. The directions do
    /// not wait for each other: a client can send everything before it reads.
    async fn forward(&mut self, inner: Upgraded, outer: Upgraded) -> Result<(), Ended> {
        let Self { broker, report, sender, scrubber } = self;
        let (from_box, to_box) = tokio::io::split(TokioIo::new(inner));
        let (from_upstream, to_upstream) = tokio::io::split(TokioIo::new(outer));
        let count = report.counter();
        let sending = send(broker, sender, &count, from_box, to_upstream);
        let receiving = receive(broker, scrubber, &count, report, from_upstream, to_box);
        tokio::try_join!(sending, receiving).map(|_| ())
    }
}

/// Forwards the frames of the box with masked placeholders.
async fn send(
    broker: &Broker,
    sender: &mut Sender,
    count: &Counter,
    mut from_box: impl AsyncRead + Unpin,
    mut to_upstream: impl AsyncWrite + Unpin,
) -> Result<(), Ended> {
    let upstream = |error: io::Error| Ended::Upstream(error.kind());
    let (mut buffer, mut masked) = (vec![0; PIECE], Vec::new());
    let Sender { guard, mask, target } = sender;
    let mut reported = 0;
    loop {
        let read = from_box.read(&mut buffer).await.map_err(|error| Ended::Box(error.kind()))?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return to_upstream.shutdown().await.map_err(upstream);
        }
        guard.push(bytes)?;
        count.sent(bytes.len()).map_err(Ended::Stopped)?;
        let bytes = match mask {
            Some(mask) => {
                masked.clear();
                mask.push(bytes, &mut masked)?;
                let names = mask.names();
                names.iter().skip(reported).for_each(|name| broker.record_masked(name, target));
                reported = names.len();
                masked.as_slice()
            }
            None => bytes,
        };
        to_upstream.write_all(bytes).await.map_err(upstream)?;
        to_upstream.flush().await.map_err(upstream)?;
    }
}

/// Forwards the frames of the upstream server without secrets.
async fn receive(
    broker: &Broker,
    scrubber: &mut FrameScrubber,
    count: &Counter,
    report: &mut Report,
    mut from_upstream: impl AsyncRead + Unpin,
    mut to_box: impl AsyncWrite + Unpin,
) -> Result<(), Ended> {
    let client = |error: io::Error| Ended::Box(error.kind());
    let (mut buffer, mut clean) = (vec![0; PIECE], Vec::new());
    loop {
        let read = from_upstream.read(&mut buffer).await;
        let read = read.map_err(|error| Ended::Upstream(error.kind()))?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return to_box.shutdown().await.map_err(client);
        }
        report.received(bytes.len());
        count.received(bytes.len()).map_err(Ended::Stopped)?;
        let before = scrubber.found();
        scrubber.push(bytes, &mut clean)?;
        let marked = broker.mark(before, scrubber.found());
        marked.map_err(|error| Ended::Stopped(error.into()))?;
        to_box.write_all(&clean).await.map_err(client)?;
        to_box.flush().await.map_err(client)?;
        clean.clear();
    }
}
