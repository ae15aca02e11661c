//! Passes lines of JSON-RPC on to an MCP server that is reached by HTTP, and its answers back.
//!
//! Streamable HTTP as of 2025-03-26 to 2025-11-25, with a session if the server wants one, and as of
//! 2026-07-28, without. Every message is a POST of its own; what comes back is one message or a stream
//! of them. Nothing is believed of either side but that a message is JSON.

mod events;
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

use self::events::Events;
use self::message::Message;
use super::http::{Answer, Ask, Client, Outgoing, Redirect};
use belljar_wire::HttpServerJob;

/// Longest message, either way.
const MESSAGE: usize = belljar_wire::MAX_FRAME;
/// Requests under way at once; more wait in the pipe.
const UNDER_WAY: usize = 64;
/// How long a notification may take, since what comes behind it waits.
const NOTIFICATION: Duration = Duration::from_secs(30);
/// How long answers are waited for when nobody asks any more.
const LAST: Duration = Duration::from_secs(10);
/// How often a stream that broke off is asked for again.
const RESUMES: u32 = 100;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Serves until there is no more input.
pub async fn run(
    door: IpAddr,
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
    let (lines, waiting) = mpsc::channel(UNDER_WAY);
    let server = Rc::new(Server {
        client: Client::new(door),
        url,
        headers,
        state: RefCell::default(),
        lines,
    });
    LocalSet::new()
        .run_until(async {
            let (passed, written) = tokio::join!(pass(server, input), write(waiting, output));
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

async fn pass(server: Rc<Server>, mut input: impl AsyncBufRead + Unpin) -> io::Result<()> {
    let room = std::sync::Arc::new(Semaphore::new(UNDER_WAY));
    let mut tasks = JoinSet::new();
    let mut listening = JoinSet::new();
    while let Some(line) = read_line(&mut input).await? {
        while tasks.try_join_next().is_some() {}
        let message = match line {
            Ok(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(line) => Message::parse(&line),
            Err(TooLong) => Err("a message that is too long".to_owned()),
        };
        let message = match message {
            Ok(message) => message,
            Err(why) => {
                server.say(&message::failure(None, -32700, &why)).await;
                continue;
            }
        };
        if message.wants_answer() {
            // Closed by nobody; were it, there would be room for everything.
            let place = std::sync::Arc::clone(&room).acquire_owned().await.ok();
            let server = Rc::clone(&server);
            tasks.spawn_local(async move {
                server.exchange(message).await;
                drop(place);
            });
        } else {
            // In its order: a request behind `initialized` may count on it.
            let opens = message.method() == Some("notifications/initialized");
            timeout(NOTIFICATION, server.exchange(message)).await.ok(); // nobody waits for an answer
            if opens && server.state.borrow().session.is_some() && listening.is_empty() {
                let server = Rc::clone(&server);
                listening.spawn_local(async move { server.listen().await });
            }
        }
    }
    let finished = async { while tasks.join_next().await.is_some() {} };
    timeout(LAST, finished).await.ok(); // nobody may be left to hear it
    listening.shutdown().await;
    tasks.shutdown().await;
    timeout(LAST, server.leave()).await.ok(); // the server will find out
    Ok(())
}

/// A line that is longer than a message may be.
struct TooLong;

/// The next line; none at the end. One that is too long is passed over.
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

/// The server at the other end, and what is known of it.
struct Server {
    client: Client,
    url: Url,
    headers: HeaderMap,
    state: RefCell<State>,
    lines: mpsc::Sender<Vec<u8>>,
}

/// What a server of before 2026-07-28 said at `initialize`.
#[derive(Debug, Default)]
struct State {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl Server {
    /// Sends one message and passes on all that comes of it. A request is always answered.
    async fn exchange(&self, message: Message) {
        let mut open = message.ids();
        if let Err(why) = self.post(&message, &mut open).await {
            for id in open.into_keys() {
                self.say(&message::failure(Some(&id), -32000, &why)).await;
            }
            return;
        }
        for id in open.into_keys() {
            let why = "the server ended its answer before it gave one";
            self.say(&message::failure(Some(&id), -32000, why)).await;
        }
    }

    async fn post(&self, message: &Message, open: &mut BTreeMap<String, ()>) -> Result<(), String> {
        let mut headers = self.headers_for(message.version());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if message.version().is_some() {
            // As of 2026-07-28 a message is known by its head too.
            for (name, value) in [(METHOD, message.method()), (NAME, message.name())] {
                let value = value.and_then(|value| HeaderValue::from_str(value).ok());
                value.map(|value| headers.insert(name, value));
            }
        }
        let body = Outgoing::whole(message.bytes().to_vec());
        let answer = self.ask(Method::POST, headers, body).await?;
        if message.method() == Some("initialize") && answer.status.is_success() {
            self.state.borrow_mut().session = answer.headers.get(SESSION).cloned();
        }
        let is_initialize = message.method() == Some("initialize");
        match kind(&answer) {
            Kind::Events => self.follow(answer, open, is_initialize).await,
            Kind::Json => self.one(answer, open, is_initialize).await,
            Kind::Other if answer.status.is_success() => Ok(()),
            Kind::Other => Err(complaint(answer).await),
        }
    }

    /// An answer that is one message.
    async fn one(
        &self,
        mut answer: Answer,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) -> Result<(), String> {
        let status = answer.status;
        let body = whole(&mut answer, MESSAGE).await?;
        match Message::parse(&body) {
            Ok(told) if told.is_rpc() => {
                self.heard(&told, open, is_initialize).await;
                Ok(())
            }
            Ok(_) if status.is_success() => Ok(()),
            Ok(other) => Err(said(status, other.bytes())),
            Err(why) => Err(format!("the server answers {status} with what is no message: {why}")),
        }
    }

    /// An answer that is a stream of messages; resumed where it breaks off, if the server can.
    async fn follow(
        &self,
        answer: Answer,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) -> Result<(), String> {
        let mut answer = answer;
        let mut events = Events::default();
        for _ in 0..RESUMES {
            let broke = self.drain(&mut answer, &mut events, open, is_initialize).await?;
            if open.is_empty() || events.last_id().is_none() {
                return broke.map_or(Ok(()), Err);
            }
            tokio::time::sleep(events.retry()).await;
            answer = self.resume(&events).await?;
        }
        Err("the stream of the answer broke off too often".to_owned())
    }

    /// Passes on what a stream holds; tells why it broke, if it did.
    async fn drain(
        &self,
        answer: &mut Answer,
        events: &mut Events,
        open: &mut BTreeMap<String, ()>,
        is_initialize: bool,
    ) -> Result<Option<String>, String> {
        loop {
            let piece = match answer.body.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(None),
                Err(error) => {
                    return Ok(Some(format!("the stream of the answer broke off: {error}")));
                }
            };
            for data in events.push(&piece)? {
                if let Ok(told) = Message::parse(data.as_bytes()) {
                    self.heard(&told, open, is_initialize).await;
                }
            }
        }
    }

    async fn resume(&self, events: &Events) -> Result<Answer, String> {
        let mut headers = self.headers_for(None);
        let last = events.last_id().and_then(|id| HeaderValue::from_str(id).ok());
        last.map(|last| headers.insert(LAST_EVENT, last));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let answer = self.ask(Method::GET, headers, Outgoing::None).await?;
        match kind(&answer) {
            Kind::Events => Ok(answer),
            Kind::Json | Kind::Other => Err(complaint(answer).await),
        }
    }

    /// What the server says of itself, as long as it wants to; most say nothing.
    async fn listen(&self) {
        let mut events = Events::default();
        for _ in 0..RESUMES {
            let Ok(mut answer) = self.resume(&events).await else { return };
            if self.drain(&mut answer, &mut events, &mut BTreeMap::new(), false).await.is_err() {
                return;
            }
            tokio::time::sleep(events.retry()).await;
        }
    }

    async fn leave(&self) {
        let session = self.state.borrow().session.is_some();
        if session {
            let headers = self.headers_for(None);
            self.ask(Method::DELETE, headers, Outgoing::None).await.ok(); // the server will find out
        }
    }

    async fn heard(&self, told: &Message, open: &mut BTreeMap<String, ()>, is_initialize: bool) {
        if let Some(id) = told.answers() {
            open.remove(&id);
        }
        if is_initialize && let Some(version) = told.negotiated() {
            self.state.borrow_mut().version = HeaderValue::from_str(version).ok();
        }
        self.say(told.bytes()).await;
    }

    /// Writes one line.
    async fn say(&self, message: &[u8]) {
        // White space is the only place for a break in JSON.
        let mut line: Vec<u8> =
            message.iter().map(|it| if b"\r\n".contains(it) { b' ' } else { *it }).collect();
        line.push(b'\n');
        self.lines.send(line).await.ok(); // who does not listen is told nothing
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

    async fn ask(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Outgoing,
    ) -> Result<Answer, String> {
        let ask = Ask { method, url: self.url.clone(), headers, body, redirect: Redirect::Follow };
        self.client.fetch(ask).await.map_err(|error| error.to_string())
    }
}

enum Kind {
    Events,
    Json,
    Other,
}

fn kind(answer: &Answer) -> Kind {
    let said = answer.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    match said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "text/event-stream" if answer.status.is_success() => Kind::Events,
        "application/json" => Kind::Json,
        _ => Kind::Other,
    }
}

/// What a server says that does not want.
async fn complaint(mut answer: Answer) -> String {
    let status = answer.status;
    let body = whole(&mut answer, 64 * 1024).await.unwrap_or_default();
    said(status, &body)
}

fn said(status: hyper::StatusCode, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(500).collect();
    match text.as_str() {
        "" => format!("the server answers {status}"),
        text => format!("the server answers {status}: {text}"),
    }
}

async fn whole(answer: &mut Answer, most: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = answer.body.next().await.map_err(|error| error.to_string())? {
        body.extend_from_slice(&piece);
        if body.len() > most {
            return Err(format!("an answer of more than {most} bytes"));
        }
    }
    Ok(body)
}
