//! Bodies: reads the body of a request within its limits, at once or as a stream, and keeps a connection busy until the body of its
//! response is sent.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};

use super::call::Running;
use super::problem::{Problem, ProblemKind};

/// The time that every body has, however short it is.
const BASE_TIME: Duration = Duration::from_secs(10);
/// The slowest accepted transfer of a body, in bytes per second.
const MIN_RATE: u64 = 16 * 1024;

/// Reads a body of the declared length. The length is at most `max`.
pub(super) async fn read(body: Body, length: u64, max: usize) -> Result<Bytes, Problem> {
    if length > u64::try_from(max).unwrap_or(u64::MAX) {
        return Err(too_long(max));
    }
    let time = BASE_TIME + Duration::from_secs(length / MIN_RATE);
    match tokio::time::timeout(time, Limited::new(body, max).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(_)) => Err(incomplete()),
        Err(_) => Err(too_slow()),
    }
}

/// A body that its handler receives as a stream.
pub(crate) struct Upload {
    body: Body,
    length: u64,
}

impl Upload {
    /// Checks the declared length of a body.
    pub(super) fn new(body: Body, length: u64, max: usize) -> Result<Self, Problem> {
        if length > u64::try_from(max).unwrap_or(u64::MAX) {
            return Err(too_long(max));
        }
        Ok(Self { body, length })
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Passes the bytes of the body to a function. Stops early, without an error, if the function does.
    pub(crate) async fn copy<F: Future<Output = ControlFlow<()>>>(
        self,
        mut pass: impl FnMut(Bytes) -> F,
    ) -> Result<(), Problem> {
        let Self { mut body, length } = self;
        let copied = async {
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return Err(incomplete()) };
                let Ok(data) = frame.into_data() else { continue };
                if pass(data).await.is_break() {
                    break;
                }
            }
            Ok(())
        };
        let time = BASE_TIME + Duration::from_secs(length / MIN_RATE);
        tokio::time::timeout(time, copied).await.unwrap_or_else(|_| Err(too_slow()))
    }
}

fn too_long(max: usize) -> Problem {
    let detail = format!("the body is longer than {max} bytes");
    Problem::new(ProblemKind::TOO_LARGE, detail).closing()
}

fn incomplete() -> Problem {
    Problem::new(ProblemKind::BAD_REQUEST, "the body is incomplete").closing()
}

fn too_slow() -> Problem {
    let detail = "the body must arrive with at least 16 KiB per second";
    Problem::new(ProblemKind::TIMEOUT, detail).closing()
}

/// The body of a response, which keeps its connection busy until it is sent or dropped.
pub(super) struct ResponseBody {
    body: Body,
    #[expect(dead_code, reason = "held until drop, which marks the connection as idle")]
    running: Option<Running>,
}

impl ResponseBody {
    pub(super) const fn new(body: Body, running: Option<Running>) -> Self {
        Self { body, running }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f14_body_that_is_too_long_or_too_slow_is_refused() {
        let problem = read(Body::empty(), 11, 10).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::TOO_LARGE);
        let (_sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let slow = Body::new(http_body_util::StreamBody::new(Waiting(receiver)));
        let problem = read(slow, 10, 10).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::TIMEOUT);
        assert_eq!(read(Body::from("1234"), 4, 10).await.unwrap(), "1234", "control");
    }

    struct Waiting(tokio::sync::mpsc::Receiver<Bytes>);

    impl futures_core::Stream for Waiting {
        type Item = Result<Frame<Bytes>, std::convert::Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.poll_recv(cx).map(|it| it.map(|bytes| Ok(Frame::data(bytes))))
        }
    }
}
