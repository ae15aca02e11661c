//! Forwards WebSockets and inspects their frames in both directions.

use std::io;
use std::sync::Arc;

use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answer::{Refusal, chain};
use super::exchange::{Exchange, PLACEHOLDER_ELSEWHERE};
use super::report::Report;
use super::response::empty;
use crate::active::{CUT_MESSAGE, Traffic};
use crate::broker::Broker;
use crate::scrub::{FrameError, FrameGuard, FrameScrubber};
use crate::upstream::{Body, Route, without_text};

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
    let guard = FrameGuard::new(&broker.vault.finder());
    let scrubber = FrameScrubber::new(&scrubber);
    let mut frames = Frames { broker: Arc::clone(&broker), report, guard, scrubber, stopped: None };
    let traffic = Traffic::Request(Arc::clone(&exchange.outbound));
    let ticket = broker.active.begin_if_allowed(traffic, &broker.rules());
    broker.spawn(async move {
        frames.report.status(StatusCode::SWITCHING_PROTOCOLS);
        let ended = match (inner.await, outer.await) {
            (Ok(inner), Ok(outer)) => match ticket {
                Some(mut ticket) => tokio::select! {
                    ended = frames.forward(inner, outer) => ended,
                    () = &mut ticket => Err(io::Error::other(CUT_MESSAGE)),
                },
                None => Err(io::Error::other(CUT_MESSAGE)),
            },
            (Err(error), _) | (_, Err(error)) => Err(io::Error::other(error)),
        };
        let error = ended.err().map(|error| chain(&error));
        if let Some(FrameError::Placeholder { .. }) = frames.stopped {
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
    guard: FrameGuard,
    scrubber: FrameScrubber,
    /// The reason why the broker closed the WebSocket, if it did.
    stopped: Option<FrameError>,
}

impl Frames {
    /// Forwards WebSocket frames until both sides are closed or a frame is refused.
    async fn forward(&mut self, inner: Upgraded, outer: Upgraded) -> io::Result<()> {
        let (mut from_box, mut to_box) = tokio::io::split(TokioIo::new(inner));
        let (mut from_upstream, mut to_upstream) = tokio::io::split(TokioIo::new(outer));
        let (mut sent, mut received) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut clean = Vec::new();
        let count = self.report.counter();
        let (mut box_ended, mut upstream_ended) = (false, false);
        while !(box_ended && upstream_ended) {
            tokio::select! {
                read = from_box.read(&mut sent), if !box_ended => {
                    let bytes = sent.get(..read?).unwrap_or_default();
                    if bytes.is_empty() {
                        box_ended = true;
                        to_upstream.shutdown().await.map_err(|error| without_text(&error))?;
                    } else {
                        let checked = self.guard.push(bytes);
                        self.stop_on_error(checked)?;
                        count.sent(bytes.len()).map_err(io::Error::other)?;
                        to_upstream.write_all(bytes).await.map_err(|error| without_text(&error))?;
                    }
                }
                read = from_upstream.read(&mut received), if !upstream_ended => {
                    let read = read.map_err(|error| without_text(&error))?;
                    let bytes = received.get(..read).unwrap_or_default();
                    if bytes.is_empty() {
                        upstream_ended = true;
                        to_box.shutdown().await?;
                    } else {
                        self.report.received(bytes.len());
                        count.received(bytes.len()).map_err(io::Error::other)?;
                        let before = self.scrubber.found();
                        let checked = self.scrubber.push(bytes, &mut clean);
                        self.stop_on_error(checked)?;
                        let found = self.scrubber.found();
                        self.broker.mark(before, found).map_err(io::Error::other)?;
                        to_box.write_all(&clean).await?;
                        to_box.flush().await?;
                        clean.clear();
                    }
                }
            }
        }
        Ok(())
    }

    fn stop_on_error(&mut self, checked: Result<(), FrameError>) -> io::Result<()> {
        checked.map_err(|error| {
            let stopped = io::Error::other(error.to_string());
            self.stopped = Some(error);
            stopped
        })
    }
}
