//! A client of the WebSockets of the server, which shows every message as it arrives.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway};

/// An open WebSocket.
pub(crate) struct TestSocket {
    stream: WebSocketStream<TcpStream>,
}

/// A message of the server.
#[derive(Debug, PartialEq)]
pub(crate) enum Sent {
    Data {
        channel: u8,
        offset: u64,
        data: Vec<u8>,
    },
    Control(Value),
    Pong,
    /// The connection is closed with this code.
    Closed(u16),
}

/// Sends the handshake of a WebSocket with these headers.
async fn handshake(server: &TestGateway, path: &str, headers: &[String]) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!(
        "GET {path} HTTP/1.1\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: belljar.stream.v1\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The headers of a request with a session.
pub(crate) fn of_login(login: &Login) -> Vec<String> {
    let [cookie, origin, _] = login.headers();
    vec![format!("Host: {}", login.host), cookie, origin]
}

/// The headers of a request with a token.
pub(crate) fn of_token(server: &TestGateway, token: &str) -> Vec<String> {
    vec![format!("Host: {}", server.host()), format!("Authorization: Bearer {token}")]
}

impl TestSocket {
    pub(crate) async fn open(server: &TestGateway, path: &str, headers: &[String]) -> Self {
        let mut stream = handshake(server, path, headers).await;
        let response = TestResponse::head(&mut stream).await;
        assert_eq!(response.status, 101, "{path}: {response:?}");
        assert_eq!(response.header("sec-websocket-protocol"), Some("belljar.stream.v1"));
        Self { stream: WebSocketStream::from_raw_socket(stream, Role::Client, None).await }
    }

    /// Returns the response to a handshake that the server refuses.
    pub(crate) async fn refused(
        server: &TestGateway,
        path: &str,
        headers: &[String],
    ) -> TestResponse {
        let mut headers = headers.to_vec();
        headers.push("X-Test: refused".to_owned());
        let mut stream = handshake(server, path, &headers).await;
        let mut response = TestResponse::head(&mut stream).await;
        let length = response.header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut body).await.unwrap();
        response.body = String::from_utf8(body).unwrap();
        response
    }

    /// Returns the next message of the server.
    pub(crate) async fn next(&mut self) -> Sent {
        loop {
            let next = tokio::time::timeout(belljar_testkit::DEADLINE, self.stream.next());
            return match next.await.expect("the server sends a message") {
                Some(Ok(Message::Binary(bytes))) => {
                    let offset = u64::from_be_bytes(bytes[1..9].try_into().unwrap());
                    Sent::Data { channel: bytes[0], offset, data: bytes[9..].to_vec() }
                }
                Some(Ok(Message::Text(text))) => {
                    Sent::Control(serde_json::from_str(text.as_str()).unwrap())
                }
                Some(Ok(Message::Pong(_))) => Sent::Pong,
                Some(Ok(Message::Ping(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(frame))) => Sent::Closed(frame.unwrap().code.into()),
                None | Some(Err(_)) => Sent::Closed(1006),
            };
        }
    }

    /// Returns the next control message.
    pub(crate) async fn control(&mut self) -> Value {
        let next = self.next().await;
        let Sent::Control(control) = next else { panic!("{next:?}") };
        control
    }

    /// Returns the code that the connection is closed with. Messages before are dropped.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            if let Sent::Closed(code) = self.next().await {
                return code;
            }
        }
    }

    pub(crate) async fn send(&mut self, control: Value) {
        self.stream.send(Message::text(control.to_string())).await.unwrap();
    }

    pub(crate) async fn ping(&mut self) {
        self.stream.send(Message::Ping(Bytes::new())).await.unwrap();
    }

    /// Sends input from an offset.
    pub(crate) async fn input(&mut self, offset: usize, data: &[u8]) {
        let mut message = vec![0];
        message.extend(u64::try_from(offset).unwrap().to_be_bytes());
        message.extend(data);
        // The server can have closed the connection.
        self.stream.send(Message::Binary(message.into())).await.ok();
    }

    pub(crate) async fn ack(&mut self, stream: &str, offset: usize) {
        let ack = json!({ "type": "ack", "stream": stream, "offset": offset });
        self.stream.send(Message::text(ack.to_string())).await.ok(); // as above
    }
}
