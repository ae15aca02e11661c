//! A request that becomes a WebSocket: frames are read on their way, in both directions.

use std::io;
use std::sync::Arc;

use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answer::{Refusal, chain};
use super::exchange::{Exchange, PLACEHOLDER_ELSEWHERE, empty};
use super::report::Report;
use crate::scrub::{FrameError, FrameGuard, FrameScrubber};
use crate::underway::{CUT, Carried};
use crate::upstream::{Body, Way};

/// What a server may say about the connection it agrees to.
const AGREED: [HeaderName; 2] = [
    HeaderName::from_static("sec-websocket-accept"),
    HeaderName::from_static("sec-websocket-protocol"),
];

/// The box's side of the connection, which must be taken from the request before it is rewritten.
pub(super) fn take(parts: &mut Parts) -> Option<OnUpgrade> {
    parts.extensions.remove()
}

/// Asks the server for a WebSocket and carries its frames.
pub(super) async fn carry(
    exchange: Exchange,
    inner: Option<OnUpgrade>,
    way: Way,
    mut request: Request<Body>,
    report: Report,
) -> Result<Response<Body>, Refusal> {
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    // Compressed frames could not be searched.
    headers.remove("sec-websocket-extensions");
    let sent = exchange.broker.upstream.send_upgrade(&exchange.permit, way, request).await;
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
    let agreed = scrubber.headers(answer.headers());
    for name in AGREED {
        if let Some(value) = agreed.get(&name) {
            reply.headers_mut().insert(name, value.clone());
        }
    }
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    let guard = FrameGuard::new(&broker.vault.finder());
    let scrubber = FrameScrubber::new(&scrubber);
    let mut frames = Frames { report, guard, scrubber, stopped: None };
    let carried = Carried::Request(Arc::clone(&exchange.ask));
    let ticket = broker.underway.still(carried, &broker.rules());
    broker.spawn(async move {
        frames.report.status(StatusCode::SWITCHING_PROTOCOLS);
        let ended = match (inner.await, outer.await) {
            (Ok(inner), Ok(outer)) => match ticket {
                Some(mut ticket) => tokio::select! {
                    ended = frames.carry(inner, outer) => ended,
                    () = &mut ticket => Err(io::Error::other(CUT)),
                },
                None => Err(io::Error::other(CUT)),
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

/// Frames on their way.
struct Frames {
    report: Report,
    guard: FrameGuard,
    scrubber: FrameScrubber,
    /// Why we ended it.
    stopped: Option<FrameError>,
}

impl Frames {
    /// Carries both ways until both sides are done, or one says what it may not.
    async fn carry(&mut self, inner: Upgraded, outer: Upgraded) -> io::Result<()> {
        let (mut from_box, mut to_box) = tokio::io::split(TokioIo::new(inner));
        let (mut from_world, mut to_world) = tokio::io::split(TokioIo::new(outer));
        let (mut said, mut heard) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut clean = Vec::new();
        let count = self.report.counter();
        let (mut box_ended, mut world_ended) = (false, false);
        while !(box_ended && world_ended) {
            tokio::select! {
                read = from_box.read(&mut said), if !box_ended => {
                    let bytes = said.get(..read?).unwrap_or_default();
                    if bytes.is_empty() {
                        box_ended = true;
                        to_world.shutdown().await?;
                    } else {
                        let looked = self.guard.push(bytes);
                        self.hold(looked)?;
                        count.sent(bytes.len()).map_err(io::Error::other)?;
                        to_world.write_all(bytes).await?;
                    }
                }
                read = from_world.read(&mut heard), if !world_ended => {
                    let bytes = heard.get(..read?).unwrap_or_default();
                    if bytes.is_empty() {
                        world_ended = true;
                        to_box.shutdown().await?;
                    } else {
                        self.report.received(bytes.len());
                        count.received(bytes.len()).map_err(io::Error::other)?;
                        let looked = self.scrubber.push(bytes, &mut clean);
                        self.hold(looked)?;
                        to_box.write_all(&clean).await?;
                        to_box.flush().await?;
                        clean.clear();
                    }
                }
            }
        }
        Ok(())
    }

    fn hold(&mut self, looked: Result<(), FrameError>) -> io::Result<()> {
        looked.map_err(|error| {
            let said = io::Error::other(error.to_string());
            self.stopped = Some(error);
            said
        })
    }
}
