//! One HTTP request and its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::header;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{Refusal, chain};
use super::report::{Pending, Report, Stopped};
use super::rest::RequestBody;
use super::{ConnectionTarget, token, websocket};
use crate::active::{CUT_MESSAGE, Cuttable, Ticket, Traffic};
use crate::broker::{Broker, TooManyMarks};
use crate::meter::{self, Cost, Estimate, Meter, ModelApi, Owner, Spent};
use crate::record::{BrokerEvent, Decided, Question, Recorded, Verdict};
use crate::rules::{OutboundRequest, Permit};
use crate::scrub::{BodyError, GuardedBody, How, RangeRequest, UnsupportedRange};
use crate::target;
use crate::upstream::{Body, UpstreamError};
use crate::vault::{BodyGuard, BodyNeed, MAX_BUFFERED, Misuse, Plan, Used};

/// Forwards one HTTP request of the box and returns the response.
pub(super) async fn handle(
    broker: Arc<Broker>,
    connection: Arc<ConnectionTarget>,
    request: Request<Incoming>,
) -> Response<Body> {
    let headers = accept_of(request.headers());
    let request = request.map(|body| RequestBody::new(body, &broker));
    match Exchange::begin(broker, &connection, request) {
        Ok((exchange, body, mut ticket)) => {
            let response = tokio::select! {
                response = exchange.forward(body) => response,
                () = &mut ticket => Err(Refusal::new(StatusCode::FORBIDDEN, "rules-changed", CUT_MESSAGE)),
            };
            match response {
                Ok(answer) => answer.map(|body| cuttable(body, ticket)),
                Err(refusal) => refusal.answer(&headers),
            }
        }
        Err(refusal) => refusal.answer(&headers),
    }
}

/// Returns a response body that aborts when changed rules no longer allow the request.
fn cuttable(body: Body, ticket: Ticket) -> Body {
    if body.is_end_stream() { body } else { Cuttable::new(body, ticket).boxed_unsync() }
}

/// Returns the request headers that select the format of a refusal.
fn accept_of(headers: &HeaderMap) -> HeaderMap {
    [header::ACCEPT, header::CONTENT_TYPE]
        .into_iter()
        .filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())))
        .collect()
}

/// The body of an outgoing request, buffered or streamed.
enum Outgoing {
    Held(Held),
    Passing(RequestBody),
}

/// A buffered request body with its share of the memory limit.
struct Held {
    bytes: Vec<u8>,
    _memory: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An HTTP request of the box that a rule permits.
pub(super) struct Exchange {
    pub(super) broker: Arc<Broker>,
    began: Instant,
    pub(super) permit: Permit,
    pub(super) outbound: Arc<OutboundRequest>,
    pub(super) parts: Parts,
    /// The range that the client asks for, if responses are searched for secrets.
    pub(super) range: Option<RangeRequest>,
    /// A flag that is set when changed rules no longer allow the request.
    is_cut: Arc<AtomicBool>,
}

impl Exchange {
    /// Parses an HTTP request and checks it against the rules.
    fn begin(
        broker: Arc<Broker>,
        connection: &ConnectionTarget,
        request: Request<RequestBody>,
    ) -> Result<(Self, RequestBody, Ticket), Refusal> {
        let (parts, body) = request.into_parts();
        let decided = parse(connection, &parts).and_then(|outbound| {
            let permit = broker.rules().check(&outbound).map_err(Refusal::from)?;
            Ok((permit, outbound))
        });
        match decided {
            Ok((permit, outbound)) => {
                let (began, outbound) = (Instant::now(), Arc::new(outbound));
                let ticket = broker.active.begin(Traffic::Request(Arc::clone(&outbound)));
                let is_cut = ticket.flag();
                let range = None;
                Ok((Self { broker, began, permit, outbound, parts, range, is_cut }, body, ticket))
            }
            Err(refusal) => {
                let path = parts.uri.path();
                broker.deny(Decided {
                    method: parts.method.to_string(),
                    scheme: connection.scheme.to_string(),
                    host: connection.name.to_string(),
                    port: connection.port,
                    path: path.to_owned(),
                    verdict: Verdict::Deny,
                    rule: refusal.rule.clone(),
                    reason: refusal.on_record(),
                    secrets: Vec::new(),
                    is_websocket: false,
                });
                Err(refusal)
            }
        }
    }

    async fn forward(mut self, body: RequestBody) -> Result<Response<Body>, Refusal> {
        let (plan, body) = self.plan(body).await?;
        self.check_scrubbing()?;
        self.ask(&plan).await?;
        let charge = self.charge(&plan, &body).await?;
        let route = match self.broker.upstream.find(&self.permit, self.outbound.upgrade).await {
            Ok(route) => route,
            Err(error) if error.is_refusal() => return Err(self.record_refusal(error.into())),
            Err(error) => return Err(self.refuse_unreachable(&plan, error).await),
        };
        let recorded = self.record(&plan).await?;
        let mut report = Report::new(&self.broker, &recorded, self.began, charge.take());
        let captures = self.broker.vault.captures(&self.permit, &self.parts);
        let inner = websocket::take_upgrade(&mut self.parts);
        let outgoing = match self.outgoing(plan, &recorded, body, &report).await {
            Ok(outgoing) => outgoing,
            Err(refusal) => {
                report.finish(Some(refusal.what.clone()));
                return Err(refusal);
            }
        };
        report.sending();
        if self.outbound.upgrade {
            return websocket::forward(self, inner, route, outgoing, report).await;
        }
        match (self.broker.upstream.send(&self.permit, route, outgoing).await, captures) {
            (Ok(answer), None) => self.answer(answer, report),
            (Ok(answer), Some(captures)) => self.capture(answer, &captures, report).await,
            (Err(error), _) => {
                if error.is_unsent() {
                    report.unsent();
                }
                let refusal = Self::refusal_of_failure(error, &report);
                report.finish(Some(refusal.what.clone()));
                Err(refusal)
            }
        }
    }

    /// Waits for the operator's approval, if a rule requires it.
    async fn ask(&mut self, plan: &Plan) -> Result<(), Refusal> {
        let Some(rule) = self.permit.asks() else { return Ok(()) };
        let query = self.parts.uri.query().unwrap_or_default().len();
        let question = Question {
            number: 0,
            method: self.parts.method.to_string(),
            scheme: self.permit.scheme().to_string(),
            host: self.permit.target().to_string(),
            port: self.permit.port(),
            path: self.outbound.path.as_str().to_owned(),
            query: u64::try_from(query).unwrap_or(u64::MAX),
            is_websocket: self.outbound.upgrade,
            secrets: plan.uses(&self.broker.vault).map(|used| used.name.to_string()).collect(),
            rule: rule.to_owned(),
            wait: 0,
        };
        match self.broker.ask(question).await {
            Ok(approval) => {
                self.permit = self.permit.clone().approved(&approval);
                Ok(())
            }
            Err(refusal) => Err(self.record_refusal(refusal)),
        }
    }

    /// Returns a refusal if the response could not be searched for secrets, or if too many responses
    /// contained one. Parses the range that the client asks for.
    fn check_scrubbing(&mut self) -> Result<(), Refusal> {
        let target = self.permit.target();
        let scrubber = self.broker.vault.scrubber(target);
        if scrubber.is_empty() {
            return Ok(());
        }
        let wait = self.broker.marks().wait(Instant::now());
        if let Some(wait) = wait {
            let what = TooManyMarks.to_string();
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "secret-guessing", what);
            return Err(self.record_refusal(Refusal { retry_after: Some(wait), ..refusal }));
        }
        let mut ranges = self.parts.headers.get_all(header::RANGE).iter();
        let Some(range) = ranges.next().filter(|_| self.parts.method == Method::GET) else {
            return Ok(());
        };
        let refuse = |what: String| Refusal::new(StatusCode::BAD_REQUEST, "range", what);
        if self.broker.marks().is_changed(target, self.outbound.path.as_str()) {
            let what = "an earlier response of this address contained a secret that was replaced, so \
                        positions in it have changed; request the whole resource";
            return Err(self.record_refusal(refuse(what.to_owned())));
        }
        let is_single = ranges.next().is_none();
        let parsed = is_single.then(|| RangeRequest::parse(range.as_bytes(), &scrubber));
        match parsed.unwrap_or(Err(UnsupportedRange)) {
            Ok(range) => self.range = Some(range),
            Err(error) => return Err(self.record_refusal(refuse(error.to_string()))),
        }
        Ok(())
    }

    /// Counts the request towards its limits and budgets, or refuses it if one is used up. A budget that is
    /// a lease may grow in the meantime.
    async fn charge(&self, plan: &Plan, body: &Outgoing) -> Result<Pending, Refusal> {
        loop {
            let spent = match self.try_charge(plan, body) {
                Ok(pending) => return Ok(pending),
                Err(spent) => spent,
            };
            if !self.broker.extend_lease(&spent).await {
                return Err(self.record_refusal(spent.into()));
            }
        }
    }

    fn try_charge(&self, plan: &Plan, body: &Outgoing) -> Result<Pending, Spent> {
        let uses: Vec<Used> = plan.uses(&self.broker.vault).collect();
        let names = uses.iter().map(|used| &used.name);
        let mut meter = self.broker.meter();
        let charged = self.estimate(&meter, plan, body).and_then(|estimate| {
            meter.request(&self.permit, names, estimate.as_ref(), Instant::now())
        });
        drop(meter);
        Ok(Pending::new(&self.broker, charged?))
    }

    /// Returns the owner of a budget of tokens or money that the request is charged to, with the
    /// API of models that counts them. A secret with such a budget is for models only.
    fn counted(&self, meter: &Meter, plan: &Plan) -> Option<(Owner, Option<ModelApi>)> {
        let uses: Vec<Used> = plan.uses(&self.broker.vault).collect();
        let owner = meter.counts_tokens(uses.iter().map(|used| &used.name))?.clone();
        let api = ModelApi::of(&self.permit);
        (api.is_some() || owner != Owner::Run).then_some((owner, api))
    }

    /// Returns what the request can use of a budget of tokens or money; an error if that cannot be
    /// known.
    fn estimate(
        &self,
        meter: &Meter,
        plan: &Plan,
        body: &Outgoing,
    ) -> Result<Option<Estimate>, Spent> {
        let Some((owner, api)) = self.counted(meter, plan) else { return Ok(None) };
        let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.parts.method);
        let body = match body {
            Outgoing::Held(held) => Some(held.bytes.as_slice()),
            Outgoing::Passing(_) => None,
        };
        let is_plain = !self.parts.headers.contains_key(header::CONTENT_ENCODING);
        let (target, path) = (self.permit.target(), self.outbound.path.as_str());
        let cost = match api {
            _ if self.outbound.upgrade => Cost::Unknown,
            None if is_read => Cost::Free,
            None => Cost::Unknown,
            Some(api) => {
                let method = self.parts.method.as_str();
                meter::cost(api, target, method, path, body.filter(|_| is_plain))
            }
        };
        match cost {
            Cost::Free => Ok(None),
            Cost::AtMost(estimate) => Ok(Some(estimate)),
            Cost::Unknown => Err(Spent::Uncountable { owner }),
        }
    }

    /// Determines which secrets are inserted into the request, and where. Buffers the body if it
    /// contains a secret or is signed.
    async fn plan(&self, body: RequestBody) -> Result<(Plan, Outgoing), Refusal> {
        let (vault, now) = (&self.broker.vault, (self.broker.clock)());
        let mut plan = vault
            .plan(&self.permit, &self.parts, now)
            .map_err(|misuse| self.refuse_misuse(&misuse))?;
        // A budget of tokens or money needs to know what the request asks for.
        let is_counted = self.counted(&self.broker.meter(), &plan).is_some();
        let is_held = is_counted || self.changes_length(&body);
        match plan.body() {
            BodyNeed::Guard if !is_held => Ok((plan, Outgoing::Passing(body))),
            BodyNeed::Guard | BodyNeed::Buffer => {
                let most = body.size_hint().upper().and_then(|most| usize::try_from(most).ok());
                let memory = self
                    .broker
                    .reserve_memory(most.unwrap_or(MAX_BUFFERED).min(MAX_BUFFERED))
                    .await;
                let collected = Limited::new(body, MAX_BUFFERED).collect().await;
                let held = collected.map_err(|error| {
                    let code = match error.is::<LengthLimitError>() {
                        true => StatusCode::PAYLOAD_TOO_LARGE,
                        false => StatusCode::BAD_REQUEST,
                    };
                    self.record_refusal(Refusal::new(
                        code,
                        "body",
                        format!("cannot read the body: {error}"),
                    ))
                })?;
                let held = Held { bytes: held.to_bytes().to_vec(), _memory: memory };
                let length = u64::try_from(held.bytes.len()).unwrap_or(u64::MAX);
                if let Some(limit) = self.permit.limits().upload.filter(|it| length > it.as_u64()) {
                    let what = BodyError::TooLong { limit: limit.as_u64() }.to_string();
                    let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body", what);
                    return Err(self.record_refusal(refusal));
                }
                vault
                    .plan_body(&self.permit, &self.parts, &mut plan, &held.bytes)
                    .map_err(|misuse| self.refuse_misuse(&misuse))?;
                Ok((plan, Outgoing::Held(held)))
            }
        }
    }

    /// Returns whether masking placeholders could change the announced length of this body, so that
    /// the body must be buffered first. A longer body is streamed, and a placeholder stops it.
    fn changes_length(&self, body: &RequestBody) -> bool {
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let is_masked = || self.body_guard().masked.is_some();
        length.is_some_and(|length| (1..=MAX_BUFFERED).contains(&length)) && is_masked()
    }

    pub(super) fn body_guard(&self) -> BodyGuard {
        self.broker.vault.body_guard(self.permit.scheme(), self.permit.target())
    }

    /// Builds the HTTP request that is sent to the upstream server.
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
        parts.headers.remove(header::EXPECT); // the broker answered it
        if !vault.scrubber(self.permit.target()).is_empty() {
            // The response must not be compressed and must have the bytes around a range, so that
            // it can be searched. This must precede signing.
            if let Some(range) = &self.range {
                parts.headers.insert(header::RANGE, range.extended());
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
                report.counter().sent(held.bytes.len()).ok(); // the body is already complete
                Full::new(Bytes::from_owner(held)).map_err(|never| match never {}).boxed_unsync()
            }
            Outgoing::Passing(body) => {
                let count = report.counter();
                let guard = self.body_guard();
                let is_masked = guard.masked.filter(|_| body.size_hint().exact().is_none());
                let finder = self.broker.vault.finder();
                let (broker, target) = (Arc::clone(&self.broker), self.permit.target().clone());
                let (stopped, is_cut) = (Arc::clone(&report.stopped), Arc::clone(&self.is_cut));
                let mut body = GuardedBody::new(body, &finder);
                if let Some(masked) = is_masked {
                    let (broker, target) = (Arc::clone(&broker), target.clone());
                    let on_masked = move |name: &str| broker.record_masked(name, &target);
                    body = body.mask(&masked, &guard.refused, on_masked);
                }
                let body = body
                    .watch(move |bytes| match is_cut.load(Ordering::Acquire) {
                        true => Err(CUT_MESSAGE.into()),
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

    async fn record(&self, plan: &Plan) -> Result<Recorded, Refusal> {
        let mut events =
            vec![BrokerEvent::Decided(self.decided(Verdict::Allow, "a rule allows it"))];
        let uses: Vec<Used> = plan.uses(&self.broker.vault).collect();
        if let Some(BrokerEvent::Decided(decided)) = events.first_mut() {
            decided.secrets = uses.iter().map(|used| used.name.to_string()).collect();
        }
        events.extend(uses.into_iter().map(|Used { name, slot }| {
            let host = self.permit.target().to_string();
            BrokerEvent::SecretUsed { name: name.to_string(), slot, host }
        }));
        events.extend(plan.masked().iter().map(|name| {
            let host = self.permit.target().to_string();
            BrokerEvent::SecretMasked { name: name.clone(), host }
        }));
        Ok(self.broker.recorder.record(events).await?)
    }

    fn decided(&self, verdict: Verdict, reason: &str) -> Decided {
        Decided {
            method: self.parts.method.to_string(),
            scheme: self.permit.scheme().to_string(),
            host: self.permit.target().to_string(),
            port: self.permit.port(),
            path: self.outbound.path.as_str().to_owned(),
            verdict,
            rule: Some(self.permit.rule().to_owned()),
            reason: reason.to_owned(),
            secrets: Vec::new(),
            is_websocket: self.outbound.upgrade,
        }
    }

    /// Records that a request is refused although a rule permits it.
    fn record_refusal(&self, refusal: Refusal) -> Refusal {
        self.broker.deny(self.decided(Verdict::Deny, &refusal.on_record()));
        refusal
    }

    /// Records an alarm and returns the refusal for a placeholder at a forbidden place.
    fn refuse_misuse(&self, misuse: &Misuse) -> Refusal {
        let alarm = misuse.kind.name();
        self.broker.alarm(alarm, misuse.to_string());
        let refusal = Refusal::new(StatusCode::FORBIDDEN, alarm, misuse.to_string());
        self.record_refusal(refusal)
    }

    /// Records that a permitted request could not reach its upstream server, and returns the
    /// refusal.
    async fn refuse_unreachable(&self, plan: &Plan, error: UpstreamError) -> Refusal {
        let refusal = Refusal::from(error);
        if let Ok(recorded) = self.record(plan).await {
            let report = Report::new(&self.broker, &recorded, self.began, None);
            report.finish(Some(refusal.what.clone()));
        }
        refusal
    }

    /// Returns the refusal for a failed request; the cause can be that the broker stopped the
    /// request body.
    fn refusal_of_failure(error: UpstreamError, report: &Report) -> Refusal {
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

/// The name of the alarm for a placeholder at a place where it is forbidden.
pub(super) const PLACEHOLDER_ELSEWHERE: &str = "placeholder-elsewhere";

/// Parses an HTTP request into the canonical form that rules are compared with.
fn parse(connection: &ConnectionTarget, parts: &Parts) -> Result<OutboundRequest, Refusal> {
    let bad = |code: &'static str| {
        move |error: &dyn std::error::Error| {
            Refusal::new(StatusCode::BAD_REQUEST, code, error.to_string())
        }
    };
    if [Method::CONNECT, Method::TRACE].contains(&parts.method) || parts.method == "TRACK" {
        let what = format!("the method {} is not supported", parts.method);
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", what));
    }
    target::headers(&parts.headers).map_err(|error| bad("header")(&error))?;
    let known = [&connection.name];
    let target =
        target::authority(parts, connection.scheme, &known, connection.port).map_err(|error| {
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
    Ok(OutboundRequest {
        scheme: connection.scheme,
        target,
        port: connection.port,
        method,
        path,
        upgrade,
    })
}

/// Returns whether the HTTP request asks for an upgrade to WebSocket. Other upgrades are not
/// forwarded.
fn wants_websocket(parts: &Parts) -> bool {
    let upgrade = parts.headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(b"websocket"))
}
