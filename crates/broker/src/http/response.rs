//! The response of an upstream server: checks, scrubs and counts it for the box.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};

use super::answer::{Refusal, chain};
use super::exchange::Exchange;
use super::report::Report;
use crate::broker::TooManyMarks;
use crate::meter::{ModelApi, Observer, Outcome};
use crate::scrub::{
    self, BoxError, Coding, Decoder, How, PartBody, PartError, RangeRequest, ScrubbedBody, Scrubber,
};
use crate::target;
use crate::upstream::{AnswerBody, Body};
use crate::vault::{Captures, MAX_CAPTURED_BODY};

impl Exchange {
    /// Replaces a new token in a response by a placeholder, and returns the response for the box.
    pub(super) async fn capture(
        self,
        answer: Response<AnswerBody>,
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
            let clean = (scrubber.headers(headers), scrubber.text(&body).into_owned());
            if clean.0 != *headers || clean.1 != body {
                self.broker.mark(0, 1).map_err(|error| too_many(&error))?;
            }
            Ok::<_, Refusal>(clean)
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

    /// Returns the upstream's response for the box, with secrets removed.
    pub(super) fn answer(
        self,
        answer: Response<AnswerBody>,
        mut report: Report,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = answer.into_parts();
        report.status(parts.status);
        let scrubber = self.broker.vault.scrubber(self.permit.target());
        target::strip_hop_by_hop(&mut parts.headers);
        parts.headers.remove(header::ALT_SVC); // it can name protocols that the broker does not support
        let received = std::mem::take(&mut parts.headers);
        parts.headers = scrubber.headers(&received);
        let is_marked = parts.headers != received;
        if is_marked && let Err(error) = self.broker.mark(0, 1) {
            let refusal = too_many(&error);
            report.finish(Some(refusal.what.clone()));
            return Err(refusal);
        }
        if self.parts.method == Method::HEAD {
            // A response to HEAD has no body, whatever the server sends. Its headers describe the
            // content on the server, unless the broker would decode it.
            if !scrubber.is_empty() && parts.headers.contains_key(header::CONTENT_ENCODING) {
                scrub::reframe(&mut parts.headers);
            }
            report.finish(None);
            return Ok(Response::from_parts(head(parts), empty()));
        }
        if parts.status == StatusCode::PARTIAL_CONTENT
            && let Some(range) = self.range
        {
            return self.answer_part(&range, parts, body, &scrubber, report);
        }
        let api = ModelApi::of(&self.permit);
        let unsatisfiable = unsatisfiable(&parts);
        let codings = match searchable(&parts) {
            _ if scrubber.is_empty() && api.is_none() => Vec::new(),
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
        if let Some(range) = unsatisfiable {
            parts.headers.insert(header::CONTENT_RANGE, range);
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_refused = parts.status.is_client_error() || parts.status.is_server_error();
        let is_success = parts.status.is_success() && self.parts.method == Method::POST;
        let observer = api.map(|api| Observer::new(api.provider, content_type));
        let observer = Arc::new(Mutex::new(observer));
        let (count, watching) = (report.counter(), Arc::clone(&observer));
        let (broker, outbound) = (Arc::clone(&self.broker), Arc::clone(&self.outbound));
        let mut before = u64::from(is_marked);
        let body = ScrubbedBody::new(body, &codings, &scrubber)
            .on_found(move |found| {
                broker.marks().change(&outbound.target, outbound.path.as_str());
                let found = found + u64::from(is_marked);
                Ok(broker.mark(std::mem::replace(&mut before, found), found)?)
            })
            .watch(move |bytes| {
                if let Some(observer) = &mut *lock(&watching) {
                    observer.push(bytes);
                }
                count.received(bytes.len())
            })
            .on_end(move |ended| {
                if let (Some(api), Some(observer)) = (api, lock(&observer).take()) {
                    let is_complete = ended.how == How::Complete && observer.is_final();
                    let usage = observer.usage();
                    if usage.is_some() || is_success {
                        report.called(api, &usage.clone().unwrap_or_default(), is_complete);
                    }
                    report.settle(match &usage {
                        Some(usage) if is_complete => Outcome::Used(api, usage),
                        // Providers do not charge for refused requests.
                        None if is_refused => Outcome::Unsent,
                        Some(usage) => Outcome::AtLeast(api, usage),
                        None => Outcome::Unknown,
                    });
                }
                report.received(usize::try_from(ended.received).unwrap_or(usize::MAX));
                report.finish(ended.how.error());
            });
        Ok(Response::from_parts(head(parts), body.boxed_unsync()))
    }

    /// Returns the part of a resource that the client asked for, if no secret overlaps it.
    fn answer_part(
        self,
        range: &RangeRequest,
        mut parts: http::response::Parts,
        body: AnswerBody,
        scrubber: &Scrubber,
        mut report: Report,
    ) -> Result<Response<Body>, Refusal> {
        let has_codings =
            !matches!(scrub::codings(&parts.headers), Ok(codings) if codings.is_empty());
        let part = match range.part(&mut parts.headers) {
            Ok(part) if !has_codings => part,
            Err(PartError::AfterEnd { total }) => {
                report.finish(None);
                let mut answer = Response::new(empty());
                *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                if let Ok(value) = HeaderValue::try_from(format!("bytes */{total}")) {
                    answer.headers_mut().insert(header::CONTENT_RANGE, value);
                }
                return Ok(answer);
            }
            Ok(_) | Err(PartError::Other) => {
                let refusal = unsearchable(PartError::Other.to_string());
                report.finish(Some(refusal.what.clone()));
                return Err(refusal);
            }
        };
        let (count, broker) = (report.counter(), self.broker);
        let body = PartBody::new(body, part, scrubber)
            .watch(move |bytes| count.received(bytes.len()))
            .on_end(move |ended| {
                broker.mark(0, ended.found).ok(); // the body has already ended
                report.received(usize::try_from(ended.received).unwrap_or(usize::MAX));
                report.finish(ended.how.error());
            });
        Ok(Response::from_parts(head(parts), body.boxed_unsync()))
    }
}

/// Returns the content codings of a response, if the whole response can be searched for secrets.
fn searchable(parts: &http::response::Parts) -> Result<Vec<Coding>, Refusal> {
    if parts.status == StatusCode::PARTIAL_CONTENT {
        return Err(unsearchable("a partial response cannot be searched for secrets".to_owned()));
    }
    scrub::codings(&parts.headers).map_err(|error| {
        unsearchable(format!("the response cannot be searched for secrets: {error}"))
    })
}

fn unsearchable(what: String) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, "unsearchable", what)
}

fn too_many(error: &TooManyMarks) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "secret-guessing", error.to_string())
}

/// Returns the length of a resource that has no such range, as the header of a response 416.
fn unsatisfiable(parts: &http::response::Parts) -> Option<HeaderValue> {
    let range = parts.headers.get(header::CONTENT_RANGE)?;
    let total = range.as_bytes().strip_prefix(b"bytes */")?;
    let is_number = !total.is_empty() && total.iter().all(u8::is_ascii_digit);
    (parts.status == StatusCode::RANGE_NOT_SATISFIABLE && is_number).then(|| range.clone())
}

/// Returns a response head with status and headers, but without the server's reason phrase.
fn head(parts: http::response::Parts) -> http::response::Parts {
    let mut head = Response::new(()).into_parts().0;
    (head.status, head.headers) = (parts.status, parts.headers);
    head
}

/// Decodes a whole compressed body, up to the size limit for buffered bodies.
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
            return Err("the response is too long to be searched for a token".into());
        }
    }
}

pub(super) fn empty() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
