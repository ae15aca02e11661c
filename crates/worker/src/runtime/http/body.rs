//! Bodies, piece by piece: nothing is read before somebody wants it, and nothing is sent that nobody
//! takes.

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
pub enum Outgoing {
    None,
    Whole(Option<Bytes>),
    /// Comes from a [`Sender`].
    Stream(mpsc::Receiver<Result<Bytes, Broken>>, Sent),
    /// It was a stream, and is gone.
    Gone,
}

/// Whether a stream was sent to its end.
#[derive(Debug, Clone, Default)]
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The program broke its own body off.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request broke off: {0}")]
pub struct Broken(pub String);

/// The other end of [`Outgoing::Stream`].
pub type Sender = mpsc::Sender<Result<Bytes, Broken>>;

/// A body that is written as it is taken: one piece waits at most.
pub fn stream() -> (Sender, Outgoing) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Outgoing::Stream(receiver, Sent::default()))
}

impl Outgoing {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    /// The same once more, for a redirect that wants it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Whole(bytes) => Self::Whole(bytes.clone()),
            Self::Stream(..) | Self::Gone => Self::Gone,
        }
    }

    /// None where the length shows at the end only.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::None | Self::Gone => Some(0),
            Self::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(..) => None,
        }
    }

    /// None where it is sent at once.
    pub(super) fn sent(&self) -> Option<Sent> {
        match self {
            Self::Stream(_, sent) => Some(sent.clone()),
            Self::None | Self::Whole(_) | Self::Gone => None,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
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

/// The body of an answer. To drop it before its end ends the connection.
#[derive(Debug)]
pub struct Incoming {
    body: hyper::body::Incoming,
    lease: Option<Lease>,
}

impl Incoming {
    pub(super) fn new(body: hyper::body::Incoming, lease: Lease) -> Self {
        Self { body, lease: Some(lease) }
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            match self.body.frame().await {
                None => {
                    if let Some(lease) = self.lease.take() {
                        lease.give_back();
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
