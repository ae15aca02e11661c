//! One client over a pair of byte streams, which are mostly standard input and output.
//!
//! A message is a line. A line that is no message is answered and forgotten; a line that is too long is
//! answered, skipped and forgotten. Only the end of the input ends the connection. Lines are read and
//! written by tasks of their own, and every call runs in one, so that none of them waits for another.

use std::sync::Arc;
use std::time::Duration;

use belljar_model::Caller;
use rmcp::RoleServer;
use rmcp::model::ErrorCode;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage, serve_directly};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use crate::error::ServeError;
use crate::mcp::handler::Handler;
use crate::mcp::message::{self, Malformed};
use crate::mcp::service::Service;
use crate::mcp::slot::{SessionSlot, Shares};

/// As long as a body over HTTP may be.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// Messages that wait to be handled, or written.
const WAITING: usize = 64;

const SHARES: Shares = Shares { calls: 32, streams: 0 };

/// How long calls may take to end once their client is gone.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Serves one client on standard input and output until the input ends. Its session belongs to `owner`.
pub async fn stdio<S: Service>(service: Arc<S>, owner: &Caller) -> Result<(), ServeError> {
    streams(service, owner, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves one client until `input` ends, in a session of `owner`. Answers to what it asked before are written first.
pub async fn streams<S: Service>(
    service: Arc<S>,
    owner: &Caller,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServeError> {
    let slot = SessionSlot::new(owner, SHARES).map_err(ServeError::Session)?;
    let (answers, to_write) = mpsc::channel(WAITING);
    let (messages, to_handle) = mpsc::channel(WAITING);
    let writer = tokio::spawn(write(output, to_write));
    let reader = tokio::spawn(read(input, messages, answers.clone()));
    let handler = Handler::of(Arc::clone(&service), Arc::clone(&slot));
    // Without the SDK's gate at the start, which gives up on a client whose first line is none it expects.
    let running = serve_directly(handler, Lines { to_handle, answers: Some(answers) }, None);
    let ended = running.waiting().await;
    reader.abort();
    slot.ending.cancel();
    // A call that does not end by then is the service's to bury: it was told twice.
    drop(tokio::time::timeout(LAST_CALLS, slot.free()).await);
    drop(tokio::time::timeout(LAST_CALLS, writer).await);
    service.closed(&slot.caller);
    ended.map(drop).map_err(ServeError::Task)
}

/// Our end of the two tasks, as the SDK wants it.
struct Lines {
    to_handle: mpsc::Receiver<RxJsonRpcMessage<RoleServer>>,
    answers: Option<mpsc::Sender<Vec<u8>>>,
}

/// The client does not read any more.
#[derive(Debug, thiserror::Error)]
#[error("the output is closed")]
struct Closed;

impl Transport<RoleServer> for Lines {
    type Error = Closed;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Closed>> + Send + 'static {
        let answers = self.answers.clone();
        async move {
            let line = serde_json::to_vec(&item).map_err(|_| Closed)?;
            answers.ok_or(Closed)?.send(line).await.map_err(|_| Closed)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.to_handle.recv().await
    }

    async fn close(&mut self) -> Result<(), Closed> {
        self.answers = None;
        Ok(())
    }
}

/// Hands on every line that is a message, and answers every other one.
async fn read(
    input: impl AsyncRead + Unpin,
    messages: mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    answers: mpsc::Sender<Vec<u8>>,
) {
    let mut input = BufReader::new(input);
    while let Some(line) = next_line(&mut input).await {
        let message = match &line {
            Line::Whole(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => continue,
            Line::Whole(bytes) => message::read(bytes).and_then(message::Message::into_rpc),
            Line::TooLong => Err(too_long()),
        };
        let gone = match message {
            Ok(message) => messages.send(message).await.is_err(),
            Err(malformed) => {
                let line = malformed.into_json().to_string().into_bytes();
                answers.send(line).await.is_err()
            }
        };
        if gone {
            return;
        }
    }
}

fn too_long() -> Malformed {
    let words = format!("a line may have at most {MAX_LINE} bytes");
    Malformed::new(ErrorCode::INVALID_REQUEST, words)
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line without its end, holding no more of it than a message may have. An input that fails is
/// one that has ended, and a last line without an end is a line.
async fn next_line(input: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Line> {
    let (mut line, mut fits) = (Vec::new(), true);
    loop {
        let held = input.fill_buf().await.ok()?;
        if held.is_empty() {
            return (!line.is_empty()).then_some(Line::Whole(line));
        }
        let end = held.iter().position(|byte| *byte == b'\n');
        let part = held.get(..end.unwrap_or(held.len())).unwrap_or_default();
        fits = fits && line.len() + part.len() <= MAX_LINE;
        if fits {
            line.extend_from_slice(part);
        } else {
            line = Vec::new();
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Some(if fits { Line::Whole(line) } else { Line::TooLong });
        }
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
