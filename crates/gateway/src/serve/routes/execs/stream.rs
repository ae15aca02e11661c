//! The streams of an exec over a WebSocket.
//!
//! Every byte of the output has an offset. A client that connects again names the offsets that it has, and gets
//! the same bytes. The supervisor of the box keeps the output, limits what is not acknowledged and checks the
//! offsets; this module only translates its frames to messages.

use std::sync::Arc;

use axum::response::Response;
use belljar_engine::boxes::execs::{self, AttachedExec};
use belljar_engine::supervisor::exec_protocol::{FromExec, Stream, ToExec, Violation};
use bytes::{Buf as _, BytesMut};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{checked_size, is_signal, known, with_exec};
use crate::http::connections::Connection;
use crate::serve::access::Act;
use crate::serve::app::App;
use crate::serve::call::Call;
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::routes::{Access, Operation, Routes};
use crate::serve::streams::{OpenStream, StreamKind};
use crate::serve::websocket::{self, Channel, Close, PendingSocket, Received, Socket};

/// The number of bytes that are read at once. Many clients are connected at once.
const PIECE: usize = 8 * 1024;
/// The largest integer that every JSON parser reads exactly.
const MAX_OFFSET: u64 = 9_007_199_254_740_991;

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::get("/v1/execs/{exec}/stream", Access::For(Act::UseBoxes))
            .about("Connects a WebSocket to the input and the output of an exec")
            .query::<StreamParameters>()
            .returns_empty(StatusCode::SWITCHING_PROTOCOLS)
            .problems(&[
                ProblemKind::UPGRADE,
                ProblemKind::BUSY,
                ProblemKind::CONFLICT,
                ProblemKind::GONE,
            ]),
        stream,
    )
}

/// The offsets before which the client has the output; 0 by default.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StreamParameters {
    /// The offset in standard output.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    out: Option<u64>,
    /// The offset in standard error.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    err: Option<u64>,
}

/// The name of a stream in control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StreamName {
    In,
    Out,
    Err,
}

impl StreamName {
    const fn of(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Out,
            Stream::Stderr => Self::Err,
        }
    }
}

/// A control message of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "type")]
enum FromClient {
    /// The size of the client's terminal changed.
    Resize { rows: u16, columns: u16 },
    /// The client sends a signal to the program.
    Signal { signal: i32 },
    /// The client has sent all input.
    Eof {},
    /// The client has received an output stream before this offset.
    Ack { stream: StreamName, offset: u64 },
}

/// A control message of the server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
enum ToClient {
    /// The program has read the input before this offset. The client sends the input after it again.
    Started { stdin_offset: u64 },
    /// The output between two offsets is not kept any more.
    Gap { stream: StreamName, from: u64, to: u64 },
    /// The program has read the input before this offset.
    Ack { stream: StreamName, offset: u64 },
    /// The program has ended, and the client has all of its output.
    Exit {
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// The client broke a rule of the protocol.
    Error { problem: ErrorView },
}

/// A problem in a control message.
#[derive(Debug, Serialize)]
struct ErrorView {
    r#type: &'static str,
    detail: &'static str,
}

impl ToClient {
    const fn refused(violation: Violation) -> Self {
        let problem = ErrorView { r#type: "/problems/bad-request", detail: violation.text() };
        Self::Error { problem }
    }
}

async fn stream(call: Call) -> Result<Response, Problem> {
    let StreamParameters { out, err } = call.query()?;
    let from = [out.unwrap_or(0), err.unwrap_or(0)];
    if from.into_iter().any(|offset| offset > MAX_OFFSET) {
        return Err(Problem::invalid(format!("an offset must be at most {MAX_OFFSET}")));
    }
    let open = call.app.streams.open(StreamKind::WebSocket, call.who()?)?;
    let (response, pending) = websocket::accept(&call)?;
    let (connection, stdin_offset) = with_exec(&call, move |state, found| {
        let attached = known(execs::attach(state, &found.named_box, found.id, from))?;
        let AttachedExec { connection, stdin_offset } = attached;
        let prepared = connection.set_nonblocking(true);
        let connection = prepared.and_then(|()| UnixStream::from_std(connection));
        let failed = |_| Problem::internal("the streams of the exec cannot be read");
        Ok((connection.map_err(failed)?, stdin_offset))
    })
    .await?;
    let app = Arc::clone(&call.app);
    let relay = Relay { app, connection, stdin_offset, open, _call: call.connection() };
    call.app.tasks.spawn(relay.run(pending));
    Ok(response)
}

/// Passes bytes between the client of a WebSocket and the supervisor of a box.
struct Relay {
    app: Arc<App>,
    connection: UnixStream,
    stdin_offset: u64,
    open: OpenStream,
    _call: Arc<Connection>,
}

/// What a relay waits for.
enum Next {
    /// The supervisor sent this number of bytes.
    Exec(usize),
    Client(Received),
    End(Close),
}

impl Relay {
    async fn run(mut self, pending: PendingSocket) {
        let Some(mut socket) = pending.open().await else { return };
        let why = self.serve(&mut socket).await;
        socket.close(why).await;
    }

    /// Passes bytes in both directions until one side ends.
    async fn serve(&mut self, socket: &mut Socket) -> Close {
        let stdin_offset = self.stdin_offset;
        if !socket.send_control(&ToClient::Started { stdin_offset }).await {
            return Close::Normal;
        }
        let mut buffer = BytesMut::new();
        loop {
            // A client that does not read cannot keep the stream open.
            let end = tokio::select! {
                end = forward(&mut buffer, socket) => end,
                end = self.open.end(&self.app) => Some(end.into()),
            };
            if let Some(end) = end {
                return end;
            }
            buffer.reserve(PIECE);
            let next = tokio::select! {
                read = self.connection.read_buf(&mut buffer) => Next::Exec(read.unwrap_or(0)),
                received = socket.receive() => Next::Client(received),
                end = self.open.end(&self.app) => Next::End(end.into()),
            };
            let end = match next {
                Next::Exec(0) => Some(Close::Gone),
                Next::Exec(_) => None,
                Next::Client(received) => self.received(received).await,
                Next::End(end) => Some(end),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Carries out a message of the client. Returns a reason if the connection ends.
    async fn received(&mut self, received: Received) -> Option<Close> {
        let mut bytes = Vec::new();
        match received {
            Received::Closed => return Some(Close::Normal),
            Received::Invalid(why) => return Some(why),
            Received::Data { channel: Channel::Input, offset, data } => {
                ToExec::Input { offset, data: &data }.encode(&mut bytes);
            }
            Received::Data {
                channel: Channel::Output | Channel::Error | Channel::Screen, ..
            } => return Some(Close::Malformed),
            Received::Control(text) => {
                let frame = serde_json::from_str(&text).ok().and_then(frame_of);
                let Some(frame) = frame else { return Some(Close::Malformed) };
                frame.encode(&mut bytes);
            }
        }
        // An exec that has ended closes its connection after its last frame, which is still to be read.
        self.connection.write_all(&bytes).await.ok();
        None
    }
}

/// Translates a control message. `None` if a value of it is invalid.
fn frame_of(control: FromClient) -> Option<ToExec<'static>> {
    Some(match control {
        FromClient::Resize { rows, columns } => ToExec::Resize(checked_size(rows, columns)?),
        FromClient::Signal { signal } if is_signal(signal) => ToExec::Signal(signal),
        FromClient::Signal { .. } => return None,
        FromClient::Eof {} => ToExec::EndOfInput,
        FromClient::Ack { stream, offset } => {
            let stream = match stream {
                StreamName::In => return None,
                StreamName::Out => Stream::Stdout,
                StreamName::Err => Stream::Stderr,
            };
            ToExec::Received { stream, offset }
        }
    })
}

/// Sends all complete frames of a buffer to the client. Returns a reason if the connection ends.
async fn forward(buffer: &mut BytesMut, socket: &mut Socket) -> Option<Close> {
    loop {
        let length = match FromExec::decode(buffer) {
            Ok(None) => return None,
            Err(_) => return Some(Close::Internal),
            Ok(Some((frame, length))) => {
                if let Some(end) = send(frame, socket).await {
                    return Some(end);
                }
                length
            }
        };
        buffer.advance(length);
    }
}

/// Sends one frame to the client. Returns a reason if the connection ends.
async fn send(frame: FromExec<'_>, socket: &mut Socket) -> Option<Close> {
    let (control, end) = match frame {
        FromExec::Output { stream, offset, data } => {
            let channel = match stream {
                Stream::Stdout => Channel::Output,
                Stream::Stderr => Channel::Error,
            };
            let is_sent = socket.send_data(channel, offset, data).await;
            return (!is_sent).then_some(Close::Normal);
        }
        FromExec::Gap { stream, from, to } => {
            (ToClient::Gap { stream: StreamName::of(stream), from, to }, None)
        }
        FromExec::InputRead { offset } => (ToClient::Ack { stream: StreamName::In, offset }, None),
        FromExec::Exited { code } => {
            (ToClient::Exit { code: Some(code), signal: None }, Some(Close::Normal))
        }
        FromExec::Killed { signal } => {
            (ToClient::Exit { code: None, signal: Some(signal) }, Some(Close::Normal))
        }
        FromExec::TakenOver => return Some(Close::TakenOver),
        FromExec::Refused(violation) => (ToClient::refused(violation), Some(Close::Malformed)),
    };
    let is_sent = socket.send_control(&control).await;
    end.or((!is_sent).then_some(Close::Normal))
}

#[cfg(test)]
mod tests {
    use belljar_engine::screen::protocol::Size;

    use super::*;

    fn frame(text: &str) -> Option<ToExec<'static>> {
        serde_json::from_str(text).ok().and_then(frame_of)
    }

    #[test]
    fn control_message_is_translated_and_a_malformed_one_is_refused() {
        let size = Size { rows: 2, columns: 1000 };
        let resize = r#"{"type":"resize","rows":2,"columns":1000}"#;
        assert_eq!(frame(resize), Some(ToExec::Resize(size)));
        assert_eq!(frame(r#"{"type":"signal","signal":15}"#), Some(ToExec::Signal(15)));
        assert_eq!(frame(r#"{"type":"eof"}"#), Some(ToExec::EndOfInput));
        for (name, stream) in [("out", Stream::Stdout), ("err", Stream::Stderr)] {
            let text = format!(r#"{{"type":"ack","stream":"{name}","offset":7}}"#);
            assert_eq!(frame(&text), Some(ToExec::Received { stream, offset: 7 }));
        }
        for malformed in [
            "",
            "{}",
            "[]",
            r#"{"type":"resize","rows":0,"columns":1}"#,
            r#"{"type":"resize","rows":1,"columns":1001}"#,
            r#"{"type":"resize","rows":1}"#,
            r#"{"type":"signal","signal":0}"#,
            r#"{"type":"signal","signal":65}"#,
            r#"{"type":"ack","stream":"in","offset":7}"#,
            r#"{"type":"ack","stream":"out","offset":-7}"#,
            r#"{"type":"eof","more":1}"#,
            r#"{"type":"exit","code":0}"#,
        ] {
            assert_eq!(frame(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn control_messages_of_the_server_have_their_documented_form() {
        let text = |message: &ToClient| serde_json::to_string(message).unwrap();
        let started = ToClient::Started { stdin_offset: 3 };
        assert_eq!(text(&started), r#"{"type":"started","stdin_offset":3}"#);
        let gap = ToClient::Gap { stream: StreamName::Err, from: 1, to: 2 };
        assert_eq!(text(&gap), r#"{"type":"gap","stream":"err","from":1,"to":2}"#);
        let exit = ToClient::Exit { code: None, signal: Some(9) };
        assert_eq!(text(&exit), r#"{"type":"exit","signal":9}"#);
        let refused = text(&ToClient::refused(Violation::MissingInput));
        assert!(
            refused.starts_with(r#"{"type":"error","problem":{"type":"/problems/bad-request""#)
        );
    }
}
