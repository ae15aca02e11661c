//! Bodies that are inspected while they are streamed: responses are scrubbed, requests are guarded and
//! masked.
//!
//! Both forward bytes as soon as possible, count them, and report their end exactly once, even if
//! the body is not read to the end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::mask::Mask;
use super::{Coding, DecodeError, Decoder, Finder, FinderStream, Scrubber, Stream};

/// The error type of request and response bodies.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why the broker stopped a body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The content of the body does not match its content coding.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The body contains a placeholder where none is allowed.
    #[error("the body contains the placeholder of `{name}`, which is not allowed there")]
    Placeholder {
        /// Name of the secret.
        name: String,
    },
    /// The body has a trailer field that is allowed in the head only.
    #[error("the header field `{name}` is not allowed as a trailer")]
    Trailer {
        /// Name of the field.
        name: http::HeaderName,
    },
    /// The body is longer than the limit of the rule.
    #[error("the body is longer than the {limit} bytes that the rule allows")]
    TooLong {
        /// The maximum length that the rule allows, in bytes.
        limit: u64,
    },
}

/// How a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Read to its end.
    Complete,
    /// The body ended with an error of either side, with its text.
    Failed(String),
    /// The body was dropped before its end.
    Dropped,
}

impl How {
    /// Returns the error for the record, unless the body is complete.
    pub fn error(self) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Failed(error) => Some(error),
            Self::Dropped => Some("the client stopped reading".to_owned()),
        }
    }
}

/// The summary of a body that has ended: bytes, found values and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The number of received bytes, before decoding.
    pub received: u64,
    /// Forwarded bytes.
    pub passed: u64,
    /// The number of replaced secrets, or 1 for the placeholder that stopped the body.
    pub found: u64,
    /// How the body ended.
    pub how: How,
}

/// A function that inspects each piece of a body; an error of it stops the body.
pub(super) type Watch = Box<dyn FnMut(&[u8]) -> Result<(), BoxError> + Send>;
/// A function that is called with the number of replaced values whenever the number grows; an error
/// of it stops the body.
type OnFound = Box<dyn FnMut(u64) -> Result<(), BoxError> + Send>;
pub(super) type OnEnd = Box<dyn FnOnce(Ended) + Send>;

/// Counts the bytes of a body and reports its end once.
pub(super) struct Tally {
    pub(super) ended: Ended,
    pub(super) on_end: Option<OnEnd>,
}

impl Tally {
    /// Creates a byte counter; an `empty` body is complete even if it is never read.
    pub(super) fn new(empty: bool) -> Self {
        let how = if empty { How::Complete } else { How::Dropped };
        Self { ended: Ended { received: 0, passed: 0, found: 0, how }, on_end: None }
    }

    pub(super) fn report(&mut self, how: How) {
        self.ended.how = how;
        if let Some(on_end) = self.on_end.take() {
            on_end(self.ended.clone());
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.report(self.ended.how.clone());
    }
}

/// The body of a response, decoded and without secrets.
pub struct ScrubbedBody<B> {
    inner: B,
    decoder: Decoder,
    input: Bytes,
    stream: Stream,
    scrubber: Scrubber,
    part: Part,
    watch: Option<Watch>,
    on_found: Option<OnFound>,
    tally: Tally,
}

enum Part {
    Data,
    /// All data of the body was read; the held bytes and then these trailers follow.
    Last(Option<HeaderMap>),
    Trailers(HeaderMap),
    Done,
}

/// Reports the end of a body to the `on_end` function, once. A reader can stop polling as soon as
/// `is_end_stream` returns true.
fn report_end(
    result: Result<Option<Frame<Bytes>>, BoxError>,
    part: &mut Part,
    tally: &mut Tally,
) -> Option<Result<Frame<Bytes>, BoxError>> {
    match (&result, &part) {
        (Err(error), _) => {
            tally.report(How::Failed(error.to_string()));
            *part = Part::Done;
        }
        (Ok(_), Part::Done) => tally.report(How::Complete),
        (Ok(_), Part::Data | Part::Last(_) | Part::Trailers(_)) => {}
    }
    result.transpose()
}

impl<B> fmt::Debug for ScrubbedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScrubbedBody").field("so_far", &self.tally.ended).finish_non_exhaustive()
    }
}

impl<B: Body> ScrubbedBody<B> {
    /// Creates a response body with these content codings, in the order of their application. The
    /// caller must remove codings and length from the headers, see [`super::reframe`].
    pub fn new(inner: B, codings: &[Coding], scrubber: &Scrubber) -> Self {
        let tally = Tally::new(inner.is_end_stream());
        Self {
            inner,
            decoder: Decoder::new(codings),
            input: Bytes::new(),
            stream: scrubber.stream(),
            scrubber: scrubber.clone(),
            part: Part::Data,
            watch: None,
            on_found: None,
            tally,
        }
    }

    /// Calls `watch` with every forwarded piece of the body; an error of `watch` ends the body.
    #[must_use]
    pub fn watch<F>(mut self, watch: F) -> Self
    where
        F: FnMut(&[u8]) -> Result<(), BoxError> + Send + 'static,
    {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Calls `on_end` once when the body ends in any way.
    #[must_use]
    pub fn on_end(mut self, on_end: impl FnOnce(Ended) + Send + 'static) -> Self {
        self.tally.on_end = Some(Box::new(on_end));
        self
    }

    /// Calls `on_found` with the number of replaced values whenever it grows, before the
    /// replacements are forwarded; an error of `on_found` ends the body.
    #[must_use]
    pub fn on_found<F>(mut self, on_found: F) -> Self
    where
        F: FnMut(u64) -> Result<(), BoxError> + Send + 'static,
    {
        self.on_found = Some(Box::new(on_found));
        self
    }

    /// Reports new replacements.
    fn count(&mut self, more: u64) -> Result<(), BoxError> {
        let found = self.stream.found().saturating_add(more);
        let is_new = found > std::mem::replace(&mut self.tally.ended.found, found);
        match &mut self.on_found {
            Some(on_found) if is_new => on_found(found),
            _ => Ok(()),
        }
    }

    fn pass(&mut self, data: Bytes) -> Result<Frame<Bytes>, BoxError> {
        if let Some(watch) = &mut self.watch {
            watch(&data)?;
        }
        self.tally.ended.passed += len(&data);
        Ok(Frame::data(data))
    }
}

impl<B> ScrubbedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BoxError>> {
        loop {
            match &mut self.part {
                Part::Data => {
                    let content = self.decoder.step(&mut self.input).map_err(BodyError::Decode)?;
                    if content.is_empty() {
                        ready!(self.read(cx))?;
                        continue;
                    }
                    let clean = self.stream.push_bytes(content);
                    self.count(0)?;
                    if !clean.is_empty() {
                        return Poll::Ready(self.pass(clean).map(Some));
                    }
                }
                Part::Last(trailers) => {
                    let trailers = trailers.take();
                    self.decoder.finish().map_err(BodyError::Decode)?;
                    let mut rest = Vec::new();
                    self.stream.finish(&mut rest);
                    self.count(0)?;
                    self.part = trailers.map_or(Part::Done, Part::Trailers);
                    if !rest.is_empty() {
                        return Poll::Ready(self.pass(rest.into()).map(Some));
                    }
                }
                Part::Trailers(trailers) => {
                    let clean = self.scrubber.headers(trailers);
                    let is_changed = clean != *trailers;
                    self.part = Part::Done;
                    self.count(u64::from(is_changed))?;
                    return Poll::Ready(Ok(Some(Frame::trailers(clean))));
                }
                Part::Done => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Reads the next piece of the body.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(frame) => frame.map_err(Into::into)?,
            None => {
                self.part = Part::Last(None);
                return Poll::Ready(Ok(()));
            }
        };
        match frame.into_data() {
            Ok(data) => {
                self.tally.ended.received += len(&data);
                self.input = data;
            }
            Err(frame) => self.part = Part::Last(frame.into_trailers().ok()),
        }
        Poll::Ready(Ok(()))
    }
}

impl<B> Body for ScrubbedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let result = ready!(this.poll(cx));
        Poll::Ready(report_end(result, &mut this.part, &mut this.tally))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.part, Part::Done)
            || matches!(self.part, Part::Data)
                && self.tally.ended.received == 0
                && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.decoder.is_identity() && self.scrubber.is_empty() {
            return self.inner.size_hint();
        }
        SizeHint::default()
    }
}

/// The body of a request, which fails if it contains a refused placeholder or is too long. Other
/// placeholders are masked.
pub struct GuardedBody<B> {
    inner: B,
    finder: FinderStream,
    mask: Option<Mask>,
    limit: Option<u64>,
    part: Part,
    watch: Option<Watch>,
    tally: Tally,
    /// The finder for placeholders in trailers, where none is allowed.
    names: Finder,
}

impl<B> fmt::Debug for GuardedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody").field("so_far", &self.tally.ended).finish_non_exhaustive()
    }
}

impl<B: Body> GuardedBody<B> {
    /// Creates a request body that is searched for these placeholders and fails if it contains one.
    pub fn new(inner: B, finder: &Finder) -> Self {
        let tally = Tally::new(inner.is_end_stream());
        Self {
            inner,
            finder: finder.stream(),
            mask: None,
            limit: None,
            part: Part::Data,
            watch: None,
            tally,
            names: finder.clone(),
        }
    }

    /// Masks the placeholders of `masked` in the body, which then fails only if it contains one of
    /// `refused`. Calls `on_masked` with the name of each secret once. The length of the body can
    /// change.
    #[must_use]
    pub fn mask(
        mut self,
        masked: &Scrubber,
        refused: &Finder,
        on_masked: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        self.finder = refused.stream();
        self.mask = Some(Mask::new(masked, on_masked));
        self
    }

    /// Returns the number of bytes that were received and are held back.
    fn held(&self) -> usize {
        self.finder.held() + self.mask.as_ref().map_or(0, Mask::held)
    }

    /// Sets the maximum length of the body.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Calls `watch` with every received piece of the body; an error of `watch` ends the body.
    #[must_use]
    pub fn watch<F>(mut self, watch: F) -> Self
    where
        F: FnMut(&[u8]) -> Result<(), BoxError> + Send + 'static,
    {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Calls `on_end` once when the body ends in any way.
    #[must_use]
    pub fn on_end(mut self, on_end: impl FnOnce(Ended) + Send + 'static) -> Self {
        self.tally.on_end = Some(Box::new(on_end));
        self
    }

    fn take(&mut self, data: Bytes) -> Result<Bytes, BoxError> {
        let tally = &mut self.tally.ended;
        tally.received += len(&data);
        if let Some(limit) = self.limit.filter(|&limit| tally.received > limit) {
            return Err(BodyError::TooLong { limit }.into());
        }
        if let Some(watch) = &mut self.watch {
            watch(&data)?;
        }
        match self.finder.guard(data) {
            Ok(clean) => {
                let clean = match &mut self.mask {
                    Some(mask) => mask.push(clean),
                    None => clean,
                };
                tally.passed += len(&clean);
                Ok(clean)
            }
            Err(name) => {
                tally.found += 1;
                Err(BodyError::Placeholder { name: name.to_owned() }.into())
            }
        }
    }

    fn take_last(&mut self) -> Result<Bytes, BoxError> {
        let tally = &mut self.tally.ended;
        match self.finder.finish() {
            Ok(rest) => {
                let rest = match &mut self.mask {
                    Some(mask) => mask.finish(&rest),
                    None => rest,
                };
                tally.passed += len(&rest);
                Ok(rest)
            }
            Err(name) => {
                tally.found += 1;
                Err(BodyError::Placeholder { name: name.to_owned() }.into())
            }
        }
    }

    fn check_trailers(&mut self, trailers: &HeaderMap) -> Result<(), BoxError> {
        let names = trailers.keys().map(|name| name.as_str().as_bytes());
        let mut fields = names.chain(trailers.values().map(http::HeaderValue::as_bytes));
        if let Some(name) = fields.find_map(|field| self.names.text(field)) {
            self.tally.ended.found += 1;
            return Err(BodyError::Placeholder { name: name.to_owned() }.into());
        }
        match trailers.keys().find(|name| !is_for_trailers(name.as_str())) {
            Some(name) => Err(BodyError::Trailer { name: name.clone() }.into()),
            None => Ok(()),
        }
    }
}

/// Returns whether a header field is allowed as a trailer. Fields about credentials, routing or
/// framing are not (RFC 9110 §6.5.1): they arrive after the head was checked, and some servers
/// merge them into the head.
fn is_for_trailers(name: &str) -> bool {
    const NEVER: [&str; 10] = [
        "cookie",
        "expect",
        "forwarded",
        "host",
        "range",
        "te",
        "trailer",
        "upgrade",
        "via",
        "connection",
    ];
    const PARTS: [&str; 8] =
        ["auth", "content-", "encoding", "key", "method", "override", "token", "x-forwarded"];
    !NEVER.contains(&name) && !PARTS.iter().any(|part| name.contains(part))
}

impl<B> GuardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BoxError>> {
        loop {
            match &mut self.part {
                Part::Data => {
                    let clean = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                        None => {
                            self.part = Part::Last(None);
                            continue;
                        }
                        Some(frame) => match frame.map_err(Into::into)?.into_data() {
                            Ok(data) => self.take(data)?,
                            Err(frame) => {
                                self.part = Part::Last(frame.into_trailers().ok());
                                continue;
                            }
                        },
                    };
                    // For a body of known length, a reader can stop after the last byte.
                    if self.inner.is_end_stream() && self.held() == 0 {
                        self.part = Part::Done;
                    }
                    if !clean.is_empty() {
                        return Poll::Ready(Ok(Some(Frame::data(clean))));
                    }
                }
                Part::Last(trailers) => {
                    let trailers = trailers.take();
                    let rest = self.take_last()?;
                    self.part = trailers.map_or(Part::Done, Part::Trailers);
                    if !rest.is_empty() {
                        return Poll::Ready(Ok(Some(Frame::data(rest))));
                    }
                }
                Part::Trailers(trailers) => {
                    let trailers = std::mem::take(trailers);
                    self.check_trailers(&trailers)?;
                    self.part = Part::Done;
                    return Poll::Ready(Ok(Some(Frame::trailers(trailers))));
                }
                Part::Done => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl<B> Body for GuardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let result = ready!(this.poll(cx));
        Poll::Ready(report_end(result, &mut this.part, &mut this.tally))
    }

    fn is_end_stream(&self) -> bool {
        match self.part {
            Part::Done => true,
            Part::Data => self.held() == 0 && self.inner.is_end_stream(),
            Part::Last(_) | Part::Trailers(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        if self.mask.is_some() {
            return hint;
        }
        // The content is unchanged, so the announced length stays correct.
        let inner = self.inner.size_hint();
        let held = u64::try_from(self.held()).unwrap_or(u64::MAX);
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

pub(super) fn len(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
