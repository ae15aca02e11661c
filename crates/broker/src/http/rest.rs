//! Drains the rest of a request body that is no longer needed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

use crate::broker::Broker;

/// The maximum number of unread body bytes that the broker reads and discards.
const MAX_DRAINED: usize = 256 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of a request from the box. Dropping it drains a limited rest of the body: HTTP/2 resets
/// a stream whose body was not read, and clients then show the reset instead of the response.
pub(super) struct RequestBody {
    body: Option<Incoming>,
    broker: Arc<Broker>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, broker: &Arc<Broker>) -> Self {
        Self { body: Some(body), broker: Arc::clone(broker) }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            self.broker.spawn(async move {
                // A longer or slower body is reset.
                timeout(DRAIN_TIMEOUT, Limited::new(body, MAX_DRAINED).collect()).await.ok();
            });
        }
    }
}

impl Body for RequestBody {
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
