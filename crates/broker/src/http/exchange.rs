//! One request and its answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::header;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{Refusal, chain};
use super::report::{Report, Stopped};
use super::rest::Wanted;
use super::{Asked, token, websocket};
use crate::broker::Broker;
use crate::meter::{Charge, Observer, Provider};
use crate::record::{Decided, Question, Recorded, Verdict, Word};
use crate::rules::{Ask, Permit};
use crate::scrub::{self, BoxError, Coding, Decoder, GuardedBody, How, ScrubbedBody};
use crate::target;
use crate::underway::{CUT, Carried, Cuttable, Ticket};
use crate::upstream::{Body, UpstreamError};
use crate::vault::{BodyNeed, Captures, MAX_BUFFERED, MAX_CAPTURED_BODY, Misuse, Plan, Used};

/// Carries one request out and its answer back.
pub(super) async fn handle(
    broker: Arc<Broker>,
    asked: Arc<Asked>,
    request: Request<Incoming>,
) -> Response<Body> {
    let headers = accept_of(request.headers());
    let request = request.map(|body| Wanted::new(body, &broker));
    match Exchange::begin(broker, &asked, request) {
        Ok((exchange, body, mut ticket)) => {
            let carried = tokio::select! {
                carried = exchange.carry(body) => carried,
                () = &mut ticket => Err(Refusal::new(StatusCode::FORBIDDEN, "rules-changed", CUT)),
            };
            match carried {
                Ok(answer) => answer.map(|body| cuttable(body, ticket)),
                Err(refusal) => refusal.answer(&headers),
            }
        }
        Err(refusal) => refusal.answer(&headers),
    }
}

/// A body that is still to come can still be cut off.
fn cuttable(body: Body, ticket: Ticket) -> Body {
    if body.is_end_stream() { body } else { Cuttable::new(body, ticket).boxed_unsync() }
}

/// The headers that say how a refusal should look.
fn accept_of(headers: &HeaderMap) -> HeaderMap {
    [header::ACCEPT, header::CONTENT_TYPE]
        .into_iter()
        .filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())))
        .collect()
}

/// The body of a request, read already or not.
enum Outgoing {
    Held(Held),
    Passing(Wanted),
}

/// A body in memory, with the room it takes there.
struct Held {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request that a rule permits.
pub(super) struct Exchange {
    pub(super) broker: Arc<Broker>,
    began: Instant,
    pub(super) permit: Permit,
    pub(super) ask: Arc<Ask>,
    parts: Parts,
    /// The rules do not allow it any more.
    is_cut: Arc<AtomicBool>,
}

impl Exchange {
    /// Finds out what a request means and whether that is allowed.
    fn begin(
        broker: Arc<Broker>,
        asked: &Asked,
        request: Request<Wanted>,
    ) -> Result<(Self, Wanted, Ticket), Refusal> {
        let (parts, body) = request.into_parts();
        let decided = understand(asked, &parts).and_then(|ask| {
            let permit = broker.rules().check(&ask).map_err(Refusal::from)?;
            Ok((permit, ask))
        });
        match decided {
            Ok((permit, ask)) => {
                let (began, ask) = (Instant::now(), Arc::new(ask));
                let ticket = broker.underway.begin(Carried::Request(Arc::clone(&ask)));
                let is_cut = ticket.flag();
                Ok((Self { broker, began, permit, ask, parts, is_cut }, body, ticket))
            }
            Err(refusal) => {
                let path = parts.uri.path();
                broker.deny(Decided {
                    method: parts.method.to_string(),
                    scheme: asked.scheme.to_string(),
                    host: asked.name.to_string(),
                    port: asked.port,
                    path: path.to_owned(),
                    verdict: Verdict::Deny,
                    rule: refusal.rule.clone(),
                    reason: refusal.on_record(),
                    secrets: Vec::new(),
                });
                Err(refusal)
            }
        }
    }

    async fn carry(mut self, body: Wanted) -> Result<Response<Body>, Refusal> {
        let (plan, body) = self.plan(body).await?;
        self.ask(&plan).await?;
        let charge = self.charge(&plan)?;
        let way = match self.broker.upstream.find(&self.permit, self.ask.upgrade).await {
            Ok(way) => way,
            Err(error) if error.is_refusal() => return Err(self.refused(error.into())),
            Err(error) => return Err(self.unreached(&plan, error).await),
        };
        let recorded = self.record(&plan).await?;
        let report = Report::new(&self.broker, &recorded, self.began, Some(charge));
        let captures = self.broker.vault.captures(&self.permit, &self.parts);
        let inner = websocket::take(&mut self.parts);
        let outgoing = match self.outgoing(plan, &recorded, body, &report).await {
            Ok(outgoing) => outgoing,
            Err(refusal) => {
                report.finish(Some(refusal.what.clone()));
                return Err(refusal);
            }
        };
        if self.ask.upgrade {
            return websocket::carry(self, inner, way, outgoing, report).await;
        }
        match (self.broker.upstream.send(&self.permit, way, outgoing).await, captures) {
            (Ok(answer), None) => self.answer(answer, report),
            (Ok(answer), Some(captures)) => self.capture(answer, &captures, report).await,
            (Err(error), _) => {
                let refusal = Self::explain(error, &report);
                report.finish(Some(refusal.what.clone()));
                Err(refusal)
            }
        }
    }

    /// Waits for somebody to say yes, if a rule wants that.
    async fn ask(&mut self, plan: &Plan) -> Result<(), Refusal> {
        let Some(rule) = self.permit.asks() else { return Ok(()) };
        let query = self.parts.uri.query().unwrap_or_default().len();
        let question = Question {
            number: 0,
            method: self.parts.method.to_string(),
            scheme: self.permit.scheme().to_string(),
            host: self.permit.target().to_string(),
            port: self.permit.port(),
            path: self.ask.path.as_str().to_owned(),
            query: u64::try_from(query).unwrap_or(u64::MAX),
            is_websocket: self.ask.upgrade,
            secrets: plan.uses(&self.broker.vault).map(|used| used.name.to_string()).collect(),
            rule: rule.to_owned(),
            wait: 0,
        };
        match self.broker.ask(question).await {
            Ok(yes) => {
                self.permit = self.permit.clone().approved(&yes);
                Ok(())
            }
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// Counts the request, unless a limit or a budget is spent.
    fn charge(&self, plan: &Plan) -> Result<Charge, Refusal> {
        let uses: Vec<Used> = plan.uses(&self.broker.vault).collect();
        let names = uses.iter().map(|used| &used.name);
        let charged = self.broker.meter().request(&self.permit, names, Instant::now());
        charged.map_err(|spent| self.refused(spent.into()))
    }

    /// Which secrets go where. A body that one of them is in, or is signed over, is read first.
    async fn plan(&self, body: Wanted) -> Result<(Plan, Outgoing), Refusal> {
        let (vault, now) = (&self.broker.vault, (self.broker.clock)());
        let mut plan =
            vault.plan(&self.permit, &self.parts, now).map_err(|misuse| self.misused(&misuse))?;
        match plan.body() {
            BodyNeed::Guard => Ok((plan, Outgoing::Passing(body))),
            BodyNeed::Buffer => {
                let most = body.size_hint().upper().and_then(|most| usize::try_from(most).ok());
                let room = self.broker.room(most.unwrap_or(MAX_BUFFERED).min(MAX_BUFFERED)).await;
                let collected = Limited::new(body, MAX_BUFFERED).collect().await;
                let held = collected.map_err(|error| {
                    let code = match error.is::<LengthLimitError>() {
                        true => StatusCode::PAYLOAD_TOO_LARGE,
                        false => StatusCode::BAD_REQUEST,
                    };
                    self.refused(Refusal::new(code, "body", format!("read the body: {error}")))
                })?;
                let held = Held { bytes: held.to_bytes().to_vec(), _room: room };
                vault
                    .look(&self.permit, &self.parts, &mut plan, &held.bytes)
                    .map_err(|misuse| self.misused(&misuse))?;
                Ok((plan, Outgoing::Held(held)))
            }
        }
    }

    /// The request as the upstream gets it.
    async fn outgoing(
        &mut self,
        plan: Plan,
        recorded: &Recorded,
        mut body: Outgoing,
        report: &Report,
    ) -> Result<Request<Body>, Refusal> {
        let vault = &self.broker.vault;
        let refuse = |error: &dyn std::error::Error| {
            Refusal::new(StatusCode::BAD_GATEWAY, "secret", chain(error))
        };
        let fetch = |due| token::refresh(&self.broker, due);
        vault.refresh(recorded, &plan, fetch).await.map_err(|error| refuse(&error))?;
        let parts = &mut self.parts;
        target::strip_hop_by_hop(&mut parts.headers);
        target::strip_overrides(&mut parts.headers);
        parts.headers.remove(header::EXPECT); // answered on this side
        if !plan.is_empty() || !vault.scrubber(self.permit.target()).is_empty() {
            // What is searched must be whole and in clear. Before signatures are made.
            for name in [header::RANGE, header::IF_RANGE] {
                parts.headers.remove(name);
            }
            if parts.headers.contains_key(header::ACCEPT_ENCODING) {
                let identity = HeaderValue::from_static("identity");
                parts.headers.insert(header::ACCEPT_ENCODING, identity);
            }
        }
        let held = match &mut body {
            Outgoing::Held(held) => Some(&mut held.bytes),
            Outgoing::Passing(_) => None,
        };
        let injected = vault.inject(&self.permit, recorded, plan, parts, held);
        drop(injected.map_err(|error| refuse(&error))?);
        let mut request = Request::new(self.body(body, report));
        *request.method_mut() = self.parts.method.clone();
        let path = self.parts.uri.path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        *request.headers_mut() = std::mem::take(&mut self.parts.headers);
        Ok(request)
    }

    fn body(&mut self, body: Outgoing, report: &Report) -> Body {
        let limit = self.permit.limits().upload;
        match body {
            Outgoing::Held(held) => {
                self.parts.headers.remove(header::CONTENT_LENGTH);
                report.counter().sent(held.bytes.len()).ok(); // it is all here: too late to stop it
                Full::new(Bytes::from_owner(held)).map_err(|never| match never {}).boxed_unsync()
            }
            Outgoing::Passing(body) => {
                let count = report.counter();
                let finder = self.broker.vault.finder();
                let (broker, target) = (Arc::clone(&self.broker), self.permit.target().clone());
                let (stopped, is_cut) = (Arc::clone(&report.stopped), Arc::clone(&self.is_cut));
                let body = GuardedBody::new(body, &finder)
                    .watch(move |bytes| match is_cut.load(Ordering::Acquire) {
                        true => Err(CUT.into()),
                        false => count.sent(bytes.len()),
                    })
                    .on_end(move |ended| {
                        let How::Failed(why) = ended.how else { return };
                        let is_placeholder = ended.found > 0;
                        if is_placeholder {
                            let detail = format!("in the body of a request to {target}");
                            broker.alarm(PLACEHOLDER_ELSEWHERE, detail);
                        }
                        stopped.set(Stopped { is_placeholder, why }).ok(); // a body ends once
                    });
                match limit {
                    Some(limit) => body.limit(limit.as_u64()).boxed_unsync(),
                    None => body.boxed_unsync(),
                }
            }
        }
    }

    /// An answer that gives out a token: the box gets a placeholder for it.
    async fn capture(
        self,
        answer: Response<Incoming>,
        captures: &Captures,
        mut report: Report,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = answer.into_parts();
        report.status(parts.status);
        target::strip_hop_by_hop(&mut parts.headers);
        let captured = async {
            let codings = searchable(&parts)?;
            let refuse = |error: String| Refusal::new(StatusCode::BAD_GATEWAY, "capture", error);
            let body = Limited::new(body, MAX_CAPTURED_BODY).collect().await;
            let body = body.map_err(|error| refuse(error.to_string()))?.to_bytes();
            report.received(body.len());
            let mut body = decoded(body, &codings).map_err(|error| refuse(chain(&*error)))?;
            scrub::reframe(&mut parts.headers);
            let vault = &self.broker.vault;
            let (status, headers) = (parts.status, &mut parts.headers);
            vault
                .capture(captures, status, headers, Some(&mut body))
                .map_err(|error| refuse(chain(&error)))?;
            let scrubber = vault.scrubber(self.permit.target());
            Ok::<_, Refusal>((scrubber.headers(headers), scrubber.text(&body).into_owned()))
        };
        match captured.await {
            Ok((headers, body)) => {
                report.finish(None);
                let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
                let mut answer = Response::new(body.boxed_unsync());
                *answer.status_mut() = parts.status;
                *answer.headers_mut() = headers;
                Ok(answer)
            }
            Err(refusal) => {
                report.finish(Some(refusal.what.clone()));
                Err(refusal)
            }
        }
    }

    /// The answer as the box gets it.
    pub(super) fn answer(
        self,
        answer: Response<Incoming>,
        mut report: Report,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = answer.into_parts();
        report.status(parts.status);
        let scrubber = self.broker.vault.scrubber(self.permit.target());
        target::strip_hop_by_hop(&mut parts.headers);
        parts.headers.remove(header::ALT_SVC); // it would lead to a protocol that is not there
        let provider = Provider::of(self.permit.target());
        let codings = match searchable(&parts) {
            _ if scrubber.is_empty() && provider.is_none() => Vec::new(),
            Ok(codings) => {
                scrub::reframe(&mut parts.headers);
                codings
            }
            Err(_) if scrubber.is_empty() => Vec::new(),
            Err(refusal) => {
                report.finish(Some(refusal.what.clone()));
                return Err(refusal);
            }
        };
        parts.headers = scrubber.headers(&parts.headers);
        if self.parts.method == Method::HEAD {
            // There is no body, whatever the server sends behind its head.
            report.finish(None);
            return Ok(Response::from_parts(head(parts), empty()));
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let observer = provider.map(|provider| Observer::new(provider, content_type));
        let observer = Arc::new(Mutex::new(observer));
        let (count, watching) = (report.counter(), Arc::clone(&observer));
        let body = ScrubbedBody::new(body, &codings, &scrubber)
            .watch(move |bytes| {
                if let Some(observer) = &mut *lock(&watching) {
                    observer.push(bytes);
                }
                count.received(bytes.len())
            })
            .on_end(move |ended| {
                let usage = lock(&observer).take().and_then(|observer| observer.usage());
                if let (Some(provider), Some(usage)) = (provider, usage) {
                    report.used(provider, &usage);
                }
                report.received(usize::try_from(ended.received).unwrap_or(usize::MAX));
                report.finish(match ended.how {
                    How::Complete => None,
                    How::Failed(error) => Some(error),
                    How::Dropped => Some("nobody read on".to_owned()),
                });
            });
        Ok(Response::from_parts(head(parts), body.boxed_unsync()))
    }

    async fn record(&self, plan: &Plan) -> Result<Recorded, Refusal> {
        let mut words = vec![Word::Decided(self.decided(Verdict::Allow, "a rule allows it"))];
        let uses: Vec<Used> = plan.uses(&self.broker.vault).collect();
        if let Some(Word::Decided(decided)) = words.first_mut() {
            decided.secrets = uses.iter().map(|used| used.name.to_string()).collect();
        }
        words.extend(uses.into_iter().map(|Used { name, slot }| {
            let host = self.permit.target().to_string();
            Word::SecretUsed { name: name.to_string(), slot, host }
        }));
        Ok(self.broker.clerk.record(words).await?)
    }

    fn decided(&self, verdict: Verdict, reason: &str) -> Decided {
        Decided {
            method: self.parts.method.to_string(),
            scheme: self.permit.scheme().to_string(),
            host: self.permit.target().to_string(),
            port: self.permit.port(),
            path: self.ask.path.as_str().to_owned(),
            verdict,
            rule: Some(self.permit.rule().to_owned()),
            reason: reason.to_owned(),
            secrets: Vec::new(),
        }
    }

    /// A refusal after a rule had allowed the request.
    fn refused(&self, refusal: Refusal) -> Refusal {
        self.broker.deny(self.decided(Verdict::Deny, &refusal.on_record()));
        refusal
    }

    /// A placeholder where none belongs.
    fn misused(&self, misuse: &Misuse) -> Refusal {
        let alarm = misuse.kind.name();
        self.broker.alarm(alarm, misuse.to_string());
        let refusal = Refusal::new(StatusCode::FORBIDDEN, alarm, misuse.to_string());
        self.refused(refusal)
    }

    /// Allowed, and there is no way to it: both go on record.
    async fn unreached(&self, plan: &Plan, error: UpstreamError) -> Refusal {
        let refusal = Refusal::from(error);
        if let Ok(recorded) = self.record(plan).await {
            let report = Report::new(&self.broker, &recorded, self.began, None);
            report.finish(Some(refusal.what.clone()));
        }
        refusal
    }

    /// What became of a request on its way: it may be the box's own body that was stopped.
    fn explain(error: UpstreamError, report: &Report) -> Refusal {
        match report.stopped.get() {
            Some(Stopped { is_placeholder: true, why }) => {
                Refusal::new(StatusCode::FORBIDDEN, PLACEHOLDER_ELSEWHERE, why.as_str())
            }
            Some(Stopped { is_placeholder: false, why }) => {
                Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body", why.as_str())
            }
            None => error.into(),
        }
    }
}

/// The alarm for a placeholder where none may be.
pub(super) const PLACEHOLDER_ELSEWHERE: &str = "placeholder-elsewhere";

/// The one thing that a request asks for, or why there is none.
fn understand(asked: &Asked, parts: &Parts) -> Result<Ask, Refusal> {
    let bad = |code: &'static str| {
        move |error: &dyn std::error::Error| {
            Refusal::new(StatusCode::BAD_REQUEST, code, error.to_string())
        }
    };
    if [Method::CONNECT, Method::TRACE].contains(&parts.method) || parts.method == "TRACK" {
        let what = format!("{} is not carried", parts.method);
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", what));
    }
    target::headers(&parts.headers).map_err(|error| bad("header")(&error))?;
    let known = [&asked.name];
    let target = target::authority(parts, asked.scheme, &known, asked.port).map_err(|error| {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Refusal::new(status, "misdirected", error.to_string())
    })?;
    let raw = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let (path, query) =
        target::CanonicalPath::parse(raw).map_err(|error| bad("ambiguous-path")(&error))?;
    let method = parts.method.as_str().parse().map_err(|error| bad("method")(&error))?;
    target::query_override(&method, &path, query.as_deref())
        .map_err(|error| bad("method-override")(&error))?;
    let upgrade = parts.headers.contains_key(header::UPGRADE) && wants_websocket(parts);
    Ok(Ask { scheme: asked.scheme, target, port: asked.port, method, path, upgrade })
}

/// Whether the request wants to become a WebSocket; other upgrades are not asked for on its behalf.
fn wants_websocket(parts: &Parts) -> bool {
    let upgrade = parts.headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(b"websocket"))
}

/// How to decode an answer, if all of it can be searched for secrets.
fn searchable(parts: &http::response::Parts) -> Result<Vec<Coding>, Refusal> {
    let refuse = |what: String| Refusal::new(StatusCode::BAD_GATEWAY, "unsearchable", what);
    if parts.status == StatusCode::PARTIAL_CONTENT {
        return Err(refuse("part of an answer cannot be searched for secrets".to_owned()));
    }
    scrub::codings(&parts.headers)
        .map_err(|error| refuse(format!("the answer cannot be searched for secrets: {error}")))
}

/// A head with nothing but status and headers: a reason of the server's own words goes no further.
fn head(parts: http::response::Parts) -> http::response::Parts {
    let mut head = Response::new(()).into_parts().0;
    (head.status, head.headers) = (parts.status, parts.headers);
    head
}

/// A whole body without its codings, within what is held in memory.
fn decoded(mut body: Bytes, codings: &[Coding]) -> Result<Vec<u8>, BoxError> {
    let mut decoder = Decoder::new(codings);
    let mut out = Vec::new();
    loop {
        let piece = decoder.step(&mut body)?;
        if piece.is_empty() {
            decoder.finish()?;
            return Ok(out);
        }
        out.extend_from_slice(&piece);
        if out.len() > MAX_CAPTURED_BODY {
            return Err("the answer is too long to look for a token in it".into());
        }
    }
}

pub(super) fn empty() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
