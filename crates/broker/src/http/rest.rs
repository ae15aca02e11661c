//! What is left of a request's body when nobody wants it any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

use crate::broker::Broker;

/// Most that is read and thrown away, and how long that may take.
const THROWN_AWAY: usize = 256 * 1024;
const WITHIN: Duration = Duration::from_secs(2);

/// The body of a request. Of what nobody read, the beginning is read and thrown away: HTTP/2 ends a
/// stream with a reset when its body was not read, and clients then show that instead of the answer.
pub(super) struct Wanted {
    body: Option<Incoming>,
    broker: Arc<Broker>,
}

impl Wanted {
    pub(super) fn new(body: Incoming, broker: &Arc<Broker>) -> Self {
        Self { body: Some(body), broker: Arc::clone(broker) }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            self.broker.spawn(async move {
                // What is more, or slower, is reset after all.
                timeout(WITHIN, Limited::new(body, THROWN_AWAY).collect()).await.ok();
            });
        }
    }
}

impl Body for Wanted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}
