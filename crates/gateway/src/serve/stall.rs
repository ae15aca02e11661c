//! A connection whose peer must read: a write that makes no progress for too long is an error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream that fails if a write is blocked for longer than the limit.
pub(super) struct WriteLimit<S> {
    stream: S,
    limit: Duration,
    /// The end of the current wait; the timer is only used while a write is blocked.
    timer: Pin<Box<Sleep>>,
    is_blocked: bool,
}

impl<S> WriteLimit<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, timer: Box::pin(tokio::time::sleep(limit)), is_blocked: false }
    }

    /// Starts the timer if a write is blocked, and fails if the write was blocked for too long.
    fn limited<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.is_blocked = false;
            return polled;
        }
        if !self.is_blocked {
            self.is_blocked = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.limited(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.limited(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limited(polled, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f14_write_to_a_peer_that_does_not_read_fails_after_the_limit() {
        let (ours, theirs) = tokio::io::duplex(16);
        let mut limited = WriteLimit::new(ours, Duration::from_secs(30));
        let error = limited.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn write_to_a_slow_peer_that_reads_succeeds() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut limited = WriteLimit::new(ours, Duration::from_secs(30));
        let reader = tokio::spawn(async move {
            let (mut total, mut buffer) = (0, [0; 16]);
            while total < 64 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                total += theirs.read(&mut buffer).await.unwrap();
            }
        });
        limited.write_all(&[0; 64]).await.unwrap();
        reader.await.unwrap();
    }
}
