//! WebSockets with the subprotocol `belljar.stream.v1`.
//!
//! A binary message is one byte for the channel, eight bytes for the offset of the data in its stream
//! (big-endian), and at most 64 KiB of data. A text message is a JSON object for control. The handshake is
//! part of this file; the library reads and writes frames.

use std::time::Duration;

use aws_lc_rs::digest;
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderValue, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::call::Call;
use super::identity::Credential;
use super::problem::{Problem, ProblemKind};
use super::streams::StreamEnd;

/// The name of the subprotocol, which a client must request.
pub(crate) const PROTOCOL: &str = "belljar.stream.v1";

/// The maximum length of the data of a message.
pub(crate) const MAX_DATA: usize = 64 * 1024;
/// The length of the channel and the offset.
const HEADER: usize = 9;
/// The size of the buffers of one connection. Those of the library are larger.
const BUFFER: usize = 4 * 1024;

/// The time after which the server asks an idle client for a sign of life.
const PING: Duration = Duration::from_secs(20);
/// The time after which a silent client is given up.
const SILENCE: Duration = Duration::from_secs(60);

/// A stream of bytes within a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Input,
    Output,
    Error,
    Screen,
}

impl Channel {
    const ALL: [Self; 4] = [Self::Input, Self::Output, Self::Error, Self::Screen];

    const fn number(self) -> u8 {
        match self {
            Self::Input => 0,
            Self::Output => 1,
            Self::Error => 2,
            Self::Screen => 3,
        }
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// The stream is complete.
    Normal,
    Drain,
    /// The client sent a message that the protocol does not have.
    Malformed,
    TooLarge,
    Expired,
    Revoked,
    /// The object of the stream has ended.
    Gone,
    /// Another client has taken the stream over.
    TakenOver,
    Internal,
}

impl Close {
    const fn code(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::Drain => 1001,
            Self::Malformed => 1002,
            Self::TooLarge => 1009,
            Self::Internal => 1011,
            Self::Expired => 4401,
            Self::Revoked => 4403,
            Self::Gone => 4404,
            Self::TakenOver => 4409,
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Normal => "the stream has ended",
            Self::Drain => "the server stops; connect again",
            Self::Malformed => "a message is malformed",
            Self::TooLarge => "a message is too large",
            Self::Internal => "the stream cannot be read",
            Self::Expired => "the credential has expired",
            Self::Revoked => "the credential was revoked or has other rights; connect again",
            Self::Gone => "the object of the stream has ended",
            Self::TakenOver => "another client has taken the stream over",
        }
    }
}

impl From<StreamEnd> for Close {
    fn from(end: StreamEnd) -> Self {
        match end {
            StreamEnd::Drain => Self::Drain,
            StreamEnd::Expired => Self::Expired,
            StreamEnd::Revoked => Self::Revoked,
        }
    }
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Data {
        channel: Channel,
        offset: u64,
        data: Bytes,
    },
    /// The JSON text of a control message.
    Control(String),
    /// The client has closed the connection, or it broke.
    Closed,
    /// The client broke the protocol.
    Invalid(Close),
}

/// A connection whose handshake was accepted, but whose response is not sent yet.
pub(crate) struct PendingSocket {
    upgrade: OnUpgrade,
}

/// Accepts the handshake of a WebSocket. The response must be sent before the socket can be opened.
pub(crate) fn accept(call: &Call) -> Result<(Response, PendingSocket), Problem> {
    let refused = |detail: &str| Problem::new(ProblemKind::BAD_REQUEST, detail);
    let has_word = |name: &HeaderName, word: &str| {
        let value = call.header(name).unwrap_or_default();
        value.split(',').any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    if !has_word(&UPGRADE, "websocket") || !has_word(&CONNECTION, "upgrade") {
        let detail =
            "this route is a WebSocket; send `Upgrade: websocket` and `Connection: Upgrade`";
        return Err(Problem::new(ProblemKind::UPGRADE, detail));
    }
    if call.header(&SEC_WEBSOCKET_VERSION).as_deref() != Some("13") {
        return Err(refused("the version of the WebSocket must be 13"));
    }
    if !has_word(&SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        return Err(refused("request the subprotocol `belljar.stream.v1`"));
    }
    // A page of another origin is refused with the head. A browser always sends the header.
    if matches!(call.who()?.credential, Credential::Session { .. })
        && call.header(&ORIGIN).is_none()
    {
        return Err(Problem::new(
            ProblemKind::FORGED,
            "a WebSocket under a session needs `Origin`",
        ));
    }
    let key = call.header(&SEC_WEBSOCKET_KEY).unwrap_or_default();
    if STANDARD.decode(&key).map_or(0, |key| key.len()) != 16 {
        return Err(refused("the header `Sec-WebSocket-Key` is invalid"));
    }
    let upgrade = call.upgrade().ok_or_else(|| refused("the connection cannot be upgraded"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let accepted = HeaderValue::try_from(accept_key(&key))
        .map_err(|_| Problem::internal("the handshake failed"))?;
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    Ok((response, PendingSocket { upgrade }))
}

/// Returns the value of `Sec-WebSocket-Accept` for a key (RFC 6455, section 4.2.2).
fn accept_key(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    STANDARD.encode(hash.as_ref())
}

impl PendingSocket {
    /// Waits until the response is sent, and returns the open connection.
    pub(crate) async fn open(self) -> Option<Socket> {
        let upgraded = self.upgrade.await.ok()?;
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(2 * MAX_DATA)
            .max_message_size(Some(HEADER + MAX_DATA))
            .max_frame_size(Some(HEADER + MAX_DATA));
        let io = TokioIo::new(upgraded);
        let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        Some(Socket { stream, heard: Instant::now(), pinged: Instant::now() })
    }
}

/// An open WebSocket.
pub(crate) struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    /// The time of the last message of the client.
    heard: Instant,
    /// The time of the last ping.
    pinged: Instant,
}

impl Socket {
    /// Waits for a message of the client. Pings an idle client. Safe to cancel.
    pub(crate) async fn receive(&mut self) -> Received {
        loop {
            let next_ping = self.heard.max(self.pinged) + PING;
            let message = tokio::select! {
                message = self.stream.next() => message,
                () = tokio::time::sleep_until(next_ping) => {
                    if self.heard.elapsed() > SILENCE {
                        return Received::Closed;
                    }
                    self.pinged = Instant::now();
                    if self.stream.send(Message::Ping(Bytes::new())).await.is_err() {
                        return Received::Closed;
                    }
                    continue;
                }
            };
            self.heard = Instant::now();
            return match message {
                None | Some(Ok(Message::Close(_))) => Received::Closed,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Binary(bytes))) => {
                    decode(bytes).unwrap_or(Received::Invalid(Close::Malformed))
                }
                Some(Ok(Message::Text(text))) => Received::Control(text.as_str().to_owned()),
                Some(Err(Error::Capacity(_))) => Received::Invalid(Close::TooLarge),
                Some(Err(Error::Protocol(_) | Error::Utf8(_))) => {
                    Received::Invalid(Close::Malformed)
                }
                Some(Err(_)) => Received::Closed,
            };
        }
    }

    /// Sends data of a stream. Returns `false` if the connection is broken.
    pub(crate) async fn send_data(&mut self, channel: Channel, offset: u64, data: &[u8]) -> bool {
        self.stream.send(Message::Binary(encode(channel, offset, data))).await.is_ok()
    }

    /// Sends a control message. Returns `false` if the connection is broken.
    pub(crate) async fn send_control(&mut self, control: &impl Serialize) -> bool {
        let Ok(text) = serde_json::to_string(control) else { return false };
        self.stream.send(Message::text(text)).await.is_ok()
    }

    /// Closes the connection with a reason, and waits a moment for the client to do so too.
    pub(crate) async fn close(mut self, why: Close) {
        const TIME: Duration = Duration::from_secs(2);
        let code = CloseCode::from(why.code());
        let frame = CloseFrame { code, reason: why.reason().into() };
        let closing = async {
            self.stream.send(Message::Close(Some(frame))).await.ok(); // it can be broken already
            while let Some(Ok(_)) = self.stream.next().await {}
        };
        drop(tokio::time::timeout(TIME, closing).await);
    }
}

fn encode(channel: Channel, offset: u64, data: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(HEADER + data.len());
    message.put_u8(channel.number());
    message.put_u64(offset);
    message.put_slice(data);
    message.freeze()
}

/// Parses a binary message. `None` if it is too short or its channel is unknown.
fn decode(mut message: Bytes) -> Option<Received> {
    let (number, rest) = message.split_first()?;
    let channel = Channel::ALL.into_iter().find(|channel| channel.number() == *number)?;
    let offset = u64::from_be_bytes(rest.get(..HEADER - 1)?.try_into().ok()?);
    let data = message.split_off(HEADER);
    Some(Received::Data { channel, offset, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_key_is_the_one_of_the_example_in_rfc_6455() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn message_survives_a_round_trip_and_a_malformed_one_is_refused() {
        for channel in Channel::ALL {
            let message = encode(channel, 1 << 40, b"data");
            let data = Bytes::from_static(b"data");
            assert_eq!(decode(message), Some(Received::Data { channel, offset: 1 << 40, data }));
        }
        assert_eq!(
            decode(encode(Channel::Input, 0, b"")),
            Some(Received::Data { channel: Channel::Input, offset: 0, data: Bytes::new() })
        );
        for malformed in [&b""[..], b"\x00", b"\x01\0\0\0\0\0\0\0", b"\x04\0\0\0\0\0\0\0\0x"] {
            assert_eq!(decode(Bytes::copy_from_slice(malformed)), None, "{malformed:?}");
        }
    }
}
