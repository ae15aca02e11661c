//! Request and response bodies as streams with backpressure.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::pool::Lease;

/// The body of a request.
#[derive(Debug)]
pub enum RequestBody {
    None,
    Whole(Option<Bytes>),
    /// The request body is a stream whose chunks come from a [`Sender`].
    Stream(mpsc::Receiver<Result<Bytes, BodyError>>, Sent),
    /// The request body was a stream that is already sent and cannot be sent again.
    Gone,
}

/// Whether the stream of a request body was sent completely.
#[derive(Debug, Clone, Default)]
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The error with which a program ended the stream of a request body.
#[derive(Debug, thiserror::Error)]
#[error("the stream of the request body failed: {0}")]
pub struct BodyError(pub String);

/// The channel that sends the chunks of [`RequestBody::Stream`].
pub type Sender = mpsc::Sender<Result<Bytes, BodyError>>;

/// Returns a streamed request body and the sender of its chunks. At most one chunk is buffered.
pub fn stream() -> (Sender, RequestBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, RequestBody::Stream(receiver, Sent::default()))
}

impl RequestBody {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    /// Returns a copy of the request body for a redirect or a retry, or `Gone` for a stream.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Whole(bytes) => Self::Whole(bytes.clone()),
            Self::Stream(..) | Self::Gone => Self::Gone,
        }
    }

    /// Returns the length of the request body, or `None` for a stream.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::None | Self::Gone => Some(0),
            Self::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(..) => None,
        }
    }

    /// Returns whether a streamed request body was sent, or `None` for other bodies.
    pub(super) fn sent(&self) -> Option<Sent> {
        match self {
            Self::Stream(_, sent) => Some(sent.clone()),
            Self::None | Self::Whole(_) | Self::Gone => None,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::None | Self::Gone => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(Frame::data).map(Ok)),
            Self::Stream(stream, sent) => {
                let piece = stream.poll_recv(context);
                if matches!(piece, Poll::Ready(None)) {
                    sent.0.store(true, Ordering::Relaxed);
                }
                piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.length() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// The body of a response. Dropping it before its end closes the connection.
#[derive(Debug)]
pub struct ResponseBody {
    body: hyper::body::Incoming,
    lease: Option<Lease>,
}

impl ResponseBody {
    pub(super) fn new(body: hyper::body::Incoming, lease: Lease) -> Self {
        Self { body, lease: Some(lease) }
    }

    /// Returns the next chunk of the response body, or `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            match self.body.frame().await {
                None => {
                    if let Some(lease) = self.lease.take() {
                        lease.release();
                    }
                    return Ok(None);
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_) => {} // trailers, which fetch does not show
                },
                Some(Err(error)) => return Err(error),
            }
        }
    }
}
