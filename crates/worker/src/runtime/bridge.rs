//! Forwards JSON-RPC lines to an MCP server over HTTP, and its responses back.
//!
//! Implements Streamable HTTP of the MCP revisions 2025-03-26 to 2025-11-25, with a session if the
//! server opens one, and of 2026-07-28, without sessions. Every message is one POST. A response is one
//! message or a stream of messages. The bridge checks only that each message is JSON.

mod message;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;
use url::Url;

use self::message::Message;
use super::events::Events;
use super::http::{Client, HttpRequest, HttpResponse, Redirect, RequestBody};
use belljar_wire::HttpServerJob;

/// The maximum size of an MCP message in both directions.
const MESSAGE: usize = belljar_wire::MAX_FRAME;
/// The maximum number of concurrent requests to the MCP server. Further requests wait in the pipe.
const MAX_REQUESTS: usize = 64;
/// The timeout of sending an MCP notification. The messages behind it wait until it is sent.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for pending responses after the end of the input.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of times that an interrupted event stream is resumed.
const MAX_RESUMES: u32 = 100;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Forwards MCP messages between standard streams and an HTTP server until the end of the input.
pub async fn run(
    broker: IpAddr,
    bridge: &HttpServerJob,
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let url = Url::parse(&bridge.url).map_err(io::Error::other)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &bridge.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
        headers.append(name, HeaderValue::from_str(value).map_err(io::Error::other)?);
    }
    let (lines, waiting) = mpsc::channel(MAX_REQUESTS);
    let server = Rc::new(Server {
        client: Client::new(broker),
        url,
        headers,
        state: RefCell::default(),
        lines,
    });
    LocalSet::new()
        .run_until(async {
            let (passed, written) = tokio::join!(forward(server, input), write(waiting, output));
            passed.and(written)
        })
        .await
}

async fn write(
    mut lines: mpsc::Receiver<Vec<u8>>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}

async fn forward(server: Rc<Server>, mut input: impl AsyncBufRead + Unpin) -> io::Result<()> {
    let slots = std::sync::Arc::new(Semaphore::new(MAX_REQUESTS));
    let mut tasks = JoinSet::new();
    let mut notifications = JoinSet::new();
    while let Some(line) = read_line(&mut input).await? {
        while tasks.try_join_next().is_some() {}
        let message = match line {
            Ok(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(line) => Message::parse(&line),
            Err(TooLong) => Err(format!("the message is longer than {MESSAGE} bytes")),
        };
        let message = match message {
            Ok(message) => message,
            Err(why) => {
                server.write_line(&message::error_response(None, -32700, &why)).await;
                continue;
            }
        };
        if message.is_request() {
            // An error would mean that the semaphore is closed, which never happens.
            let slot = std::sync::Arc::clone(&slots).acquire_owned().await.ok();
            let server = Rc::clone(&server);
            tasks.spawn_local(async move {
                server.exchange(message).await;
                drop(slot);
            });
        } else {
            // Sent before the next message is read: a request after `initialized` relies on this order.
            let is_initialized = message.method() == Some("notifications/initialized");
            timeout(NOTIFICATION_TIMEOUT, server.exchange(message)).await.ok(); // no response is expected
            if is_initialized && server.state.borrow().session.is_some() && notifications.is_empty()
            {
                let server = Rc::clone(&server);
                notifications.spawn_local(async move { server.forward_notifications().await });
            }
        }
    }
    let finished = async { while tasks.join_next().await.is_some() {} };
    timeout(SHUTDOWN_TIMEOUT, finished).await.ok(); // the reader may be gone
    notifications.shutdown().await;
    tasks.shutdown().await;
    timeout(SHUTDOWN_TIMEOUT, server.close_session()).await.ok(); // the server expires the session
    Ok(())
}

/// The error for a line that is longer than the limit of a message.
struct TooLong;

/// Reads the next line of the input, or returns `None` at its end. A line above the limit is
/// skipped.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<Result<Vec<u8>, TooLong>>> {
    let mut line = Vec::new();
    let most = u64::try_from(MESSAGE).unwrap_or(u64::MAX);
    if (&mut *input).take(most).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.len() < MESSAGE || line.ends_with(b"\n") {
        return Ok(Some(Ok(line)));
    }
    while !line.ends_with(b"\n") {
        line.clear();
        if (&mut *input).take(64 * 1024).read_until(b'\n', &mut line).await? == 0 {
            break;
        }
    }
    Ok(Some(Err(TooLong)))
}

/// The MCP server behind the bridge and the state of its session.
struct Server {
    client: Client,
    url: Url,
    headers: HeaderMap,
    state: RefCell<SessionState>,
    lines: mpsc::Sender<Vec<u8>>,
}

/// The session id and protocol version that an MCP server before revision 2026-07-28 set in
/// `initialize`.
#[derive(Debug, Default)]
struct SessionState {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl Server {
    /// Sends one MCP message and forwards all messages of the response. A request always gets a
    /// response.
    async fn exchange(&self, message: Message) {
        let mut open = message.ids();
        if let Err(why) = self.post(&message, &mut open).await {
            for id in open.into_keys() {
                self.write_line(&message::error_response(Some(&id), -32000, &why)).await;
            }
            return;
        }
        for id in open.into_keys() {
            let why = "the server closed its response without a result";
            self.write_line(&message::error_response(Some(&id), -32000, why)).await;
        }
    }

    async fn post(&self, message: &Message, open: &mut BTreeMap<String, ()>) -> Result<(), String> {
        let mut headers = self.headers_for(message.version());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if message.version().is_some() {
            // Since 2026-07-28, headers repeat the method and the name of a message.
            for (name, value) in [(METHOD, message.method()), (NAME, message.name())] {
                let value = value.and_then(|value| HeaderValue::from_str(value).ok());
                value.map(|value| headers.insert(name, value));
            }
        }
        let body = RequestBody::whole(message.bytes().to_vec());
        let response = self.request(Method::POST, headers, body).await?;
        if message.method() == Some("initialize") && response.status.is_success() {
            self.state.borrow_mut().session = response.headers.get(SESSION).cloned();
        }
        let is_initialize = message.method() == Some("initialize");
        match content_kind(&response) {
            ContentKind::Events => self.forward_stream(response, open, is_initialize).await,
            ContentKind::Json => self.forward_message(response, open, is_initialize).await,
            ContentKind::Other if response.status.is_success() => Ok(()),
            ContentKind::Other => Err(error_of(response).await),
        }
    }

    /// Forwards an HTTP response that consists of one MCP message.
    async fn forward_message(
        &self,
        mut response: HttpResponse,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) -> Result<(), String> {
        let status = response.status;
        let body = read_all(&mut response, MESSAGE).await?;
        match Message::parse(&body) {
            Ok(message) if message.is_rpc() => {
                self.receive(&message, open, is_initialize).await;
                Ok(())
            }
            Ok(_) if status.is_success() => Ok(()),
            Ok(other) => Err(error_with_status(status, other.bytes())),
            Err(why) => {
                Err(format!("the server responded {status} with an invalid message: {why}"))
            }
        }
    }

    /// Forwards an HTTP response that is a stream of MCP messages. An interrupted stream is resumed
    /// if possible.
    async fn forward_stream(
        &self,
        response: HttpResponse,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) -> Result<(), String> {
        let mut response = response;
        let mut events = Events::new(MESSAGE);
        for _ in 0..MAX_RESUMES {
            let interrupted =
                self.forward_events(&mut response, &mut events, open, is_initialize).await?;
            if open.is_empty() || events.last_id().is_none() {
                return interrupted.map_or(Ok(()), Err);
            }
            tokio::time::sleep(events.retry()).await;
            response = self.resume(&events).await?;
        }
        Err("the response stream was interrupted too often".to_owned())
    }

    /// Forwards the MCP messages in an event stream until its end. Returns the error if the stream
    /// was interrupted.
    async fn forward_events(
        &self,
        response: &mut HttpResponse,
        events: &mut Events,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) -> Result<Option<String>, String> {
        loop {
            let piece = match response.body.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(None),
                Err(error) => {
                    return Ok(Some(format!("the response stream was interrupted: {error}")));
                }
            };
            for data in events.push(&piece).map_err(|error| error.to_string())? {
                if let Ok(message) = Message::parse(data.as_bytes()) {
                    self.receive(&message, open, is_initialize).await;
                }
            }
        }
    }

    async fn resume(&self, events: &Events) -> Result<HttpResponse, String> {
        let mut headers = self.headers_for(None);
        let last = events.last_id().and_then(|id| HeaderValue::from_str(id).ok());
        last.map(|last| headers.insert(LAST_EVENT, last));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.request(Method::GET, headers, RequestBody::None).await?;
        match content_kind(&response) {
            ContentKind::Events => Ok(response),
            ContentKind::Json | ContentKind::Other => Err(error_of(response).await),
        }
    }

    /// Forwards the MCP messages that the server sends without a request. Most servers send none.
    async fn forward_notifications(&self) {
        let mut events = Events::new(MESSAGE);
        for _ in 0..MAX_RESUMES {
            let Ok(mut response) = self.resume(&events).await else { return };
            if self
                .forward_events(&mut response, &mut events, &mut BTreeMap::new(), false)
                .await
                .is_err()
            {
                return;
            }
            tokio::time::sleep(events.retry()).await;
        }
    }

    async fn close_session(&self) {
        let session = self.state.borrow().session.is_some();
        if session {
            let headers = self.headers_for(None);
            self.request(Method::DELETE, headers, RequestBody::None).await.ok(); // it expires anyway
        }
    }

    async fn receive(
        &self,
        message: &Message,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) {
        if let Some(id) = message.response_to() {
            open.remove(&id);
        }
        if is_initialize && let Some(version) = message.negotiated() {
            self.state.borrow_mut().version = HeaderValue::from_str(version).ok();
        }
        self.write_line(message.bytes()).await;
    }

    /// Queues an MCP message as one line of the output.
    async fn write_line(&self, message: &[u8]) {
        // In JSON, a line break can occur only between tokens, so a space is equivalent.
        let mut line: Vec<u8> =
            message.iter().map(|it| if b"\r\n".contains(it) { b' ' } else { *it }).collect();
        line.push(b'\n');
        self.lines.send(line).await.ok(); // the reader is gone
    }

    fn headers_for(&self, version: Option<&str>) -> HeaderMap {
        let mut headers = self.headers.clone();
        let state = self.state.borrow();
        let version =
            version.and_then(|it| HeaderValue::from_str(it).ok()).or(state.version.clone());
        for (name, value) in [(SESSION, state.session.clone()), (VERSION, version)] {
            value.map(|value| headers.insert(name, value));
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers
    }

    async fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Result<HttpResponse, String> {
        let redirect = Redirect::Follow;
        let request = HttpRequest { method, url: self.url.clone(), headers, body, redirect };
        self.client.fetch(request).await.map_err(|error| error.to_string())
    }
}

/// The kind of an HTTP response by its content type.
enum ContentKind {
    Events,
    Json,
    Other,
}

fn content_kind(response: &HttpResponse) -> ContentKind {
    let error_with_status =
        response.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    match error_with_status
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "text/event-stream" if response.status.is_success() => ContentKind::Events,
        "application/json" => ContentKind::Json,
        _ => ContentKind::Other,
    }
}

/// Returns the error message of an HTTP response that is not a success.
async fn error_of(mut response: HttpResponse) -> String {
    let status = response.status;
    let body = read_all(&mut response, 64 * 1024).await.unwrap_or_default();
    error_with_status(status, &body)
}

fn error_with_status(status: hyper::StatusCode, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(500).collect();
    match text.as_str() {
        "" => format!("the server responded {status}"),
        text => format!("the server responded {status}: {text}"),
    }
}

async fn read_all(response: &mut HttpResponse, most: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = response.body.next().await.map_err(|error| error.to_string())? {
        body.extend_from_slice(&piece);
        if body.len() > most {
            return Err(format!("the response is longer than {most} bytes"));
        }
    }
    Ok(body)
}
