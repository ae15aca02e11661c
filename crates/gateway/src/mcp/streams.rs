//! Serves one client over a pair of byte streams, usually standard input and output.
//!
//! A message is one line. A malformed or too long line gets an error response and is skipped. Only
//! the end of the input ends the connection. Separate tasks read lines, write lines and run each
//! call, so that none blocks another.

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
use crate::mcp::slot::{SessionLimits, SessionSlot};

/// The maximum size of a line in bytes, the same as of an HTTP body.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// The maximum number of queued MCP messages per direction.
const QUEUE_LENGTH: usize = 64;

const LIMITS: SessionLimits = SessionLimits { calls: 32, streams: 0 };

/// The timeout for running calls after the client disconnected.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one MCP client on standard input and output until the input ends. The session belongs to
/// `owner`.
pub async fn stdio<S: Service>(service: Arc<S>, owner: &Caller) -> Result<(), ServeError> {
    streams(service, owner, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves one MCP client in a session of `owner` until `input` ends. Pending requests are still
/// answered.
pub async fn streams<S: Service>(
    service: Arc<S>,
    owner: &Caller,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServeError> {
    let slot = SessionSlot::new(owner, 0, LIMITS).map_err(ServeError::Session)?;
    let (answers, to_write) = mpsc::channel(QUEUE_LENGTH);
    let (messages, to_handle) = mpsc::channel(QUEUE_LENGTH);
    let writer = tokio::spawn(write(output, to_write));
    let reader = tokio::spawn(read(input, messages, answers.clone()));
    let handler = Handler::for_session(Arc::clone(&service), Arc::clone(&slot));
    // Skips the SDK's handshake check, which disconnects a client whose first line is unexpected.
    let running =
        serve_directly(handler, LineTransport { to_handle, answers: Some(answers) }, None);
    let ended = running.waiting().await;
    reader.abort();
    slot.ending.cancel();
    // A call that still runs has ignored two cancellations; the service must handle it.
    drop(tokio::time::timeout(CLOSE_TIMEOUT, slot.wait_until_idle()).await);
    drop(tokio::time::timeout(CLOSE_TIMEOUT, writer).await);
    service.closed(&slot.caller);
    ended.map(drop).map_err(ServeError::Task)
}

/// The reader and writer tasks of a client, as a transport of the MCP SDK.
struct LineTransport {
    to_handle: mpsc::Receiver<RxJsonRpcMessage<RoleServer>>,
    answers: Option<mpsc::Sender<Vec<u8>>>,
}

/// The error that the client has closed the output.
#[derive(Debug, thiserror::Error)]
#[error("cannot send to the client: it closed the connection")]
struct OutputClosed;

impl Transport<RoleServer> for LineTransport {
    type Error = OutputClosed;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), OutputClosed>> + Send + 'static {
        let answers = self.answers.clone();
        async move {
            let line = serde_json::to_vec(&item).map_err(|_| OutputClosed)?;
            answers.ok_or(OutputClosed)?.send(line).await.map_err(|_| OutputClosed)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.to_handle.recv().await
    }

    async fn close(&mut self) -> Result<(), OutputClosed> {
        self.answers = None;
        Ok(())
    }
}

/// Forwards valid MCP messages of the client and answers malformed lines with an error.
async fn read(
    input: impl AsyncRead + Unpin,
    messages: mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    answers: mpsc::Sender<Vec<u8>>,
) {
    let mut input = BufReader::new(input);
    while let Some(line) = next_line(&mut input).await {
        let message = match &line {
            Line::Whole(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => continue,
            Line::Whole(bytes) => message::parse(bytes).and_then(message::Message::into_rpc),
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
    let text = format!("the line is longer than {MAX_LINE} bytes");
    Malformed::new(ErrorCode::INVALID_REQUEST, text)
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// Reads the next line without its terminator; at most the maximum length is buffered. A read error
/// counts as the end of the input, and an unterminated last line is a line.
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
