//! HTTP proxy: parses, decides and records every request, adds its credentials, and sends a new
//! request upstream.
//!
//! ```text
//! request  ─▶ canonical form ─▶ Permit ─▶ meter ─▶ Plan ─▶ route ─▶ Recorded ─▶ credentials ─▶ upstream
//! response ◀─ scrubbed ◀──────────────────────────────────────────────────────────────────────────┘
//! ```
//! Bytes of the box are never forwarded unchanged: hyper parses a request and serializes it again,
//! so the broker and the upstream cannot read one request differently.

mod answer;
mod exchange;
mod report;
mod response;
mod rest;
mod token;
mod websocket;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use belljar_model::net::{Scheme, Target};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::broker::Broker;
use crate::record::{Decided, Verdict};

pub(crate) use answer::Refusal;

/// The destination of a connection from the box, known before its first request.
#[derive(Debug)]
pub(crate) struct ConnectionTarget {
    pub(crate) scheme: Scheme,
    /// The host name that the client resolved or sent in its TLS handshake, or the dialled address.
    pub(crate) name: Target,
    pub(crate) port: u16,
}

/// The timeout for the head of an HTTP request, also on an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of an HTTP request head.
const MAX_HEAD: u32 = 64 * 1024;
/// The maximum number of concurrent HTTP requests on one connection.
const MAX_STREAMS: u32 = 128;

/// Serves an HTTP connection of a box until the connection ends.
pub(crate) async fn serve<S>(
    broker: Arc<Broker>,
    stream: S,
    target: ConnectionTarget,
    is_http2: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let target = Arc::new(target);
    let (broker_handle, target_handle) = (Arc::clone(&broker), Arc::clone(&target));
    let tasks = broker.spawner();
    let service = service_fn(move |request| {
        let (broker, target) = (Arc::clone(&broker), Arc::clone(&target));
        async move { Ok::<_, Infallible>(exchange::handle(broker, target, request).await) }
    });
    let stream = TokioIo::new(stream);
    let unreachable = unreachable(Arc::clone(&broker_handle), Arc::clone(&target_handle));
    // The result of a connection is ignored: each of its requests records its own result.
    if is_http2 {
        let mut builder = http2::Builder::new(tasks);
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(2 << 20);
        let mut connection = pin!(builder.serve_connection(stream, service));
        tokio::select! {
            served = connection.as_mut() => drop(served),
            () = unreachable => {
                connection.as_mut().graceful_shutdown();
                connection.await.ok();
            }
        }
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD as usize);
        let connection = builder.serve_connection(stream, service).with_upgrades();
        let mut connection = pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = unreachable => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served
            && error.is_parse()
        {
            broker_handle.deny(malformed_request(&target_handle, &error));
        }
    }
}

/// Completes when changed rules no longer allow the host of a connection. Single requests are
/// decided and cut off separately.
async fn unreachable(broker: Arc<Broker>, target: Arc<ConnectionTarget>) {
    let mut changes = broker.changes();
    while changes.changed().await.is_ok() {
        let is_known = match &target.name {
            Target::Name(name) => broker.rules().name(name).is_ok(),
            Target::Address(_) => false,
        };
        if !is_known {
            return;
        }
    }
}

/// Returns the denial to record for a malformed HTTP request, which gets the response 400.
fn malformed_request(target: &ConnectionTarget, error: &hyper::Error) -> Decided {
    Decided {
        method: "HTTP".to_owned(),
        scheme: target.scheme.to_string(),
        host: target.name.to_string(),
        port: target.port,
        path: String::new(),
        verdict: Verdict::Deny,
        rule: None,
        reason: format!("malformed: the request is ambiguous or cannot be parsed: {error}"),
        secrets: Vec::new(),
        is_websocket: false,
    }
}
