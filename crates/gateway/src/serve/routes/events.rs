//! The route of server-sent events: what happens in the tenant, as it happens.
//!
//! The id of an event is its position in the ledger of the tenant. A client that reconnects sends the last id
//! and gets every event after it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_engine::moment;
use belljar_engine::record::feed::FeedEvent;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Extent, extent};
use crate::serve::app::App;
use crate::serve::call::{Call, blocking};
use crate::serve::feed::Subscription;
use crate::serve::identity::Identity;
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::streams::{OpenStream, StreamKind};
use crate::serve::tenants::Tenant;

/// The time after which an idle stream sends a comment, so that both ends notice a dead connection.
const PING: Duration = Duration::from_secs(20);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::get("/v1/events", Access::Authenticated)
            .about("Streams events of the tenant as server-sent events")
            .query::<EventParameters>()
            .returns_bytes(StatusCode::OK, "text/event-stream"),
        events,
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventParameters {
    /// The position of the first event; by default only new events are sent. `Last-Event-ID` replaces it.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    from: Option<u64>,
}

async fn events(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let from = first_event(&call)?;
    let open = call.app.streams.open(StreamKind::Events, &who)?;
    let tenant = call.tenant()?;
    let Subscription { next, receiver } = tenant.feed.subscribe(&call.app, &tenant.scope).await?;
    let (start, now) = (from.unwrap_or(next), call.app.now());
    let mut first =
        format!("event: hello\ndata: {{\"time\":\"{}\"}}\n\n", super::account::time(now));
    let stage = if start > next {
        // The ledger is shorter than the client believes: the client must read everything again.
        first.push_str(RESET);
        Stage::Ended
    } else {
        Stage::Replay
    };
    let app = Arc::clone(&call.app);
    let stream = EventStream {
        visible: Visibility::of(&who),
        who,
        app,
        tenant,
        next: start,
        live_from: next,
        receiver,
        stage,
        first: Some(Bytes::from(first)),
        open,
    };
    let mut response = Body::new(EventBody::new(stream)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// Returns the position of the first event that the request asks for.
fn first_event(call: &Call) -> Result<Option<u64>, Problem> {
    /// The largest integer that every JSON parser reads exactly.
    const MAX: u64 = 9_007_199_254_740_991;
    let EventParameters { from } = call.query()?;
    if from.is_some_and(|from| from > MAX) {
        return Err(Problem::invalid(format!("`from` must be at most {MAX}")).field("/from"));
    }
    let Some(last) = call.header(&LAST_EVENT_ID) else { return Ok(from) };
    let last = last.parse().ok().filter(|last: &u64| *last <= MAX);
    let invalid = || {
        let detail = "the header `Last-Event-ID` must be the id of an event";
        Problem::new(ProblemKind::BAD_REQUEST, detail)
    };
    Ok(Some(last.ok_or_else(invalid)?.saturating_add(1)))
}

/// Tells the client that it missed events.
const RESET: &str = "event: reset\ndata: {}\n\n";

/// The events that a sender may see.
struct Visibility(Extent);

impl Visibility {
    fn of(who: &Identity) -> Self {
        let acts = [Act::SeeBoxes, Act::SeeRuns, Act::ReadLedger];
        let all = acts.into_iter().map(|act| extent(act, who.role, &who.grant));
        Self(all.max().unwrap_or(Extent::Nothing))
    }

    fn includes(&self, who: &Identity, event: &FeedEvent) -> bool {
        match self.0 {
            Extent::All => true,
            Extent::Own => event.maker.as_ref().is_some_and(|maker| who.owns(maker)),
            Extent::Nothing => false,
        }
    }
}

/// An event without its content.
#[derive(Serialize)]
struct EventView<'a> {
    index: u64,
    time: String,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "box")]
    box_name: Option<&'a str>,
}

/// Appends an event in the format of server-sent events.
fn push_event(text: &mut String, event: &FeedEvent) {
    let view = EventView {
        index: event.index,
        time: moment::rfc3339(event.time),
        kind: &event.kind,
        run: event.run.map(|run| run.to_string()),
        box_name: event.box_name.as_deref(),
    };
    let data = serde_json::to_string(&view).unwrap_or_default(); // texts and numbers only
    text.push_str(&format!("id: {}\nevent: {}\ndata: {data}\n\n", event.index, event.kind));
}

/// The events for one client.
struct EventStream {
    app: Arc<App>,
    who: Identity,
    visible: Visibility,
    tenant: Arc<Tenant>,
    /// The position of the next event.
    next: u64,
    /// The position from which the receiver has events.
    live_from: u64,
    receiver: tokio::sync::broadcast::Receiver<Arc<FeedEvent>>,
    stage: Stage,
    first: Option<Bytes>,
    open: OpenStream,
}

enum Stage {
    /// Older events are read from the ledger.
    Replay,
    Live,
    Ended,
}

impl EventStream {
    /// Returns the next bytes of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if self.open.must_end(&self.app) {
                return None;
            }
            let text = match self.stage {
                Stage::Ended => return None,
                Stage::Replay if self.next >= self.live_from => {
                    self.stage = Stage::Live;
                    continue;
                }
                Stage::Replay => self.replayed().await,
                Stage::Live => self.live().await,
            };
            if !text.is_empty() {
                return Some(Bytes::from(text));
            }
        }
    }

    async fn replayed(&mut self) -> String {
        let (tenant, from) = (Arc::clone(&self.tenant), self.next);
        let read = blocking(&self.app, move || tenant.feed.replay(&tenant.scope, from)).await;
        let Ok(events) = read else {
            self.stage = Stage::Ended;
            return RESET.to_owned();
        };
        let mut text = String::new();
        let live_from = self.live_from;
        for event in events.iter().filter(|event| event.index < live_from) {
            self.push(&mut text, event);
        }
        if self.next == from {
            self.next = self.live_from; // the tenant has no ledger
        }
        text
    }

    async fn live(&mut self) -> String {
        let ping = Instant::now() + PING;
        let mut text = String::new();
        let received = tokio::select! {
            received = self.receiver.recv() => received,
            () = tokio::time::sleep_until(ping) => return ": ping\n\n".to_owned(),
            _ = self.open.end(&self.app) => {
                self.stage = Stage::Ended;
                return text;
            }
        };
        match received {
            Ok(event) => {
                self.push(&mut text, &event);
                while let Ok(more) = self.receiver.try_recv() {
                    self.push(&mut text, &more);
                }
            }
            Err(RecvError::Lagged(_) | RecvError::Closed) => {
                self.stage = Stage::Ended;
                text.push_str(RESET);
            }
        }
        text
    }

    /// Appends an event if the client may see it.
    fn push(&mut self, text: &mut String, event: &FeedEvent) {
        if event.index < self.next {
            return; // it was replayed
        }
        self.next = event.index + 1;
        if self.visible.includes(&self.who, event) {
            push_event(text, event);
        }
    }
}

type NextChunk = Pin<Box<dyn Future<Output = (EventStream, Option<Bytes>)> + Send>>;

/// The body of a response with events.
struct EventBody {
    next: Option<NextChunk>,
}

impl EventBody {
    fn new(stream: EventStream) -> Self {
        Self { next: Some(next_chunk(stream)) }
    }
}

fn next_chunk(mut stream: EventStream) -> NextChunk {
    Box::pin(async move {
        let chunk = stream.next().await;
        (stream, chunk)
    })
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let (stream, chunk) = std::task::ready!(next.as_mut().poll(cx));
        self.next = chunk.is_some().then(|| next_chunk(stream));
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}
