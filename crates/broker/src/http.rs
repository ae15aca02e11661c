//! HTTP: every request is parsed, decided, recorded, given its credentials, and written anew.
//!
//! ```text
//! request ─▶ one meaning ─▶ Permit ─▶ meter ─▶ Plan ─▶ way ─▶ Recorded ─▶ credentials ─▶ upstream
//! answer  ◀─ scrubbed ◀────────────────────────────────────────────────────────────────────┘
//! ```
//! Bytes of the box are never passed on as they came: what hyper understood is written again, so two
//! readers of one request cannot disagree.

mod answer;
mod exchange;
mod report;
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

/// What is known of a connection before its first request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) scheme: Scheme,
    /// The name that was asked for, by DNS or in the TLS hello.
    pub(crate) name: Target,
    pub(crate) port: u16,
}

/// How long a head may take to arrive, and a connection to wait for the next one.
const HEAD: Duration = Duration::from_secs(30);
/// Largest head.
const HEAD_BYTES: u32 = 64 * 1024;
/// Requests at once on one connection.
const STREAMS: u32 = 128;

/// Serves a connection until it ends.
pub(crate) async fn serve<S>(broker: Arc<Broker>, stream: S, asked: Asked, is_http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(asked);
    let (own, meant) = (Arc::clone(&broker), Arc::clone(&asked));
    let tasks = broker.spawner();
    let service = service_fn(move |request| {
        let (broker, asked) = (Arc::clone(&broker), Arc::clone(&asked));
        async move { Ok::<_, Infallible>(exchange::handle(broker, asked, request).await) }
    });
    let stream = TokioIo::new(stream);
    let unreachable = unreachable(Arc::clone(&own), Arc::clone(&meant));
    // How a connection ends is no news: its requests say how they went.
    if is_http2 {
        let mut builder = http2::Builder::new(tasks);
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_BYTES)
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
            .header_read_timeout(HEAD)
            .max_buf_size(HEAD_BYTES as usize);
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
            own.deny(unreadable(&meant, &error));
        }
    }
}

/// Waits until other rules do not know the host of a connection any more. Its requests are decided one
/// by one, and cut off one by one.
async fn unreachable(broker: Arc<Broker>, asked: Arc<Asked>) {
    let mut changes = broker.changes();
    while changes.changed().await.is_ok() {
        let is_known = match &asked.name {
            Target::Name(name) => broker.rules().name(name).is_ok(),
            Target::Address(_) => false,
        };
        if !is_known {
            return;
        }
    }
}

/// What goes on record about bytes that are no request: they were answered with 400, and went nowhere.
fn unreadable(asked: &Asked, error: &hyper::Error) -> Decided {
    Decided {
        method: "HTTP".to_owned(),
        scheme: asked.scheme.to_string(),
        host: asked.name.to_string(),
        port: asked.port,
        path: String::new(),
        verdict: Verdict::Deny,
        rule: None,
        reason: format!("malformed: no request that can be read one way only: {error}"),
        secrets: Vec::new(),
    }
}
