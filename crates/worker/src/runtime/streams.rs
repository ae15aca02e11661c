//! Asynchronous standard input and output for the bridge.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// Standard input as an asynchronous reader.
///
/// It uses the same buffered handle as earlier reads, so bytes that they read ahead are not lost.
#[derive(Debug)]
pub(super) struct Input {
    parts: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Input {
    /// Starts a thread that reads standard input.
    pub(super) fn start() -> io::Result<Self> {
        let (send, parts) = mpsc::channel(16);
        std::thread::Builder::new().spawn(move || {
            let mut part = vec![0; 1 << 16];
            while let Ok(length @ 1..) = io::stdin().lock().read(&mut part) {
                let read = part.get(..length).unwrap_or_default().to_vec();
                if send.blocking_send(read).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { parts, rest: Vec::new() })
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match self.parts.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(part)) => self.rest = part,
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        let given: Vec<u8> = self.rest.drain(..length).collect();
        buffer.put_slice(&given);
        Poll::Ready(Ok(()))
    }
}

/// Standard output as an asynchronous writer. Writes block, because the process has no other output.
#[derive(Debug)]
pub(super) struct Output;

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(io::stdout().lock().write_all(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(io::stdout().lock().flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
