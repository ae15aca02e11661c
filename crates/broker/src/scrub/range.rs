//! Range requests to hosts with secrets.
//!
//! A value can be split over two ranges. So the broker asks for more bytes than the client, on both
//! sides, searches all of them, and forwards those that the client asked for (B06). The bytes of a
//! range are never changed, because the client joins them with others by their positions. A range
//! that contains a part of a value ends with an error instead.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use super::body::{BoxError, Ended, How, Tally, Watch};
use super::search::{Next, Rest};
use super::{Scrubber, head};

/// The maximum length of one byte of a value in a response: two hex digits, each as an entity with
/// zeros and after a line break with spaces.
const MAX_SPELLING: u64 = 64;

/// A range that a client asks for, and the overlap that is searched as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    asked: Asked,
    overlap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

/// The error for a `Range` header that the broker cannot extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the host of a secret can be asked for one range of bytes at a time, such as `bytes=0-499`"
)]
pub struct UnsupportedRange;

/// Why a partial response cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// The server sent another range than the broker asked for.
    #[error("a partial response without its surrounding bytes cannot be searched for secrets")]
    Other,
    /// The range that the client asked for begins after the end of the resource.
    #[error("the range begins after the end of the resource, which has {total} bytes")]
    AfterEnd {
        /// The length of the resource.
        total: u64,
    },
}

impl RangeRequest {
    /// Parses the value of a `Range` header (RFC 9110 §14.1.2).
    pub fn parse(value: &[u8], scrubber: &Scrubber) -> Result<Self, UnsupportedRange> {
        let text = std::str::from_utf8(value).map_err(|_| UnsupportedRange)?;
        let range = text.trim().strip_prefix("bytes=").ok_or(UnsupportedRange)?;
        let (first, last) = range.split_once('-').ok_or(UnsupportedRange)?;
        let asked = match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Asked::From { first, last: Some(last) },
            (Some(first), None) if last.is_empty() => Asked::From { first, last: None },
            (None, Some(last)) if first.is_empty() && last > 0 => Asked::Last(last),
            _ => return Err(UnsupportedRange),
        };
        let longest = scrubber.longest().saturating_add(2); // at least as long as any marker
        Ok(Self { asked, overlap: longest.saturating_mul(MAX_SPELLING) })
    }

    /// Returns the value of the `Range` header that is sent to the server.
    pub fn extended(&self) -> HeaderValue {
        let text = match self.asked {
            Asked::From { first, last: Some(last) } => {
                format!("bytes={}-{}", self.start(first), last.saturating_add(self.overlap))
            }
            Asked::From { first, last: None } => format!("bytes={}-", self.start(first)),
            Asked::Last(count) => format!("bytes=-{}", count.saturating_add(self.overlap)),
        };
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("bytes=0-"))
    }

    fn start(&self, first: u64) -> u64 {
        first.saturating_sub(self.overlap)
    }

    /// Compares a partial response with the request. Sets its headers to the range that the client
    /// asked for.
    pub fn part(&self, headers: &mut HeaderMap) -> Result<Part, PartError> {
        let mut ranges = headers.get_all(CONTENT_RANGE).iter();
        let range = ranges.next().filter(|_| ranges.next().is_none());
        let (received, total) = range.and_then(content_range).ok_or(PartError::Other)?;
        let end = total.checked_sub(1).ok_or(PartError::Other)?;
        let (start, last, wanted) = match self.asked {
            Asked::From { first, last } => {
                let last = last.unwrap_or(end);
                (
                    self.start(first),
                    last.saturating_add(self.overlap).min(end),
                    first..=last.min(end),
                )
            }
            Asked::Last(count) => {
                let start = total.saturating_sub(count.saturating_add(self.overlap));
                (start, end, total.saturating_sub(count)..=end)
            }
        };
        if wanted.is_empty() {
            return Err(PartError::AfterEnd { total });
        }
        if received != (start..last.saturating_add(1)) {
            return Err(PartError::Other);
        }
        let (first, last) = wanted.into_inner();
        head::remove_checksums(headers);
        let range = HeaderValue::try_from(format!("bytes {first}-{last}/{total}"));
        headers.insert(CONTENT_RANGE, range.map_err(|_| PartError::Other)?);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(last - first + 1));
        Ok(Part { received, wanted: first..last + 1 })
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Parses a `Content-Range` header into the range and the length of the resource.
fn content_range(value: &HeaderValue) -> Option<(Range<u64>, u64)> {
    let text = value.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    (first <= last && last < total).then_some((first..last + 1, total))
}

/// A partial response: the received positions, and those that the client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    received: Range<u64>,
    wanted: Range<u64>,
}

/// Why the broker stopped a partial response.
#[derive(Debug, thiserror::Error)]
enum PartBodyError {
    #[error("the range contains a part of the secret `{name}`; request the whole resource instead")]
    Secret { name: String },
    #[error("the partial response has another length than its head announces")]
    Length,
}

/// The body of a partial response. Its bytes are forwarded unchanged, or it fails.
pub struct PartBody<B> {
    inner: B,
    scrubber: Scrubber,
    part: Part,
    /// The received bytes that were not forwarded yet.
    held: Vec<u8>,
    /// The position of the first held byte.
    position: u64,
    /// The last wanted bytes. They are forwarded when the whole response was received and searched,
    /// so that the connection to the server can be used again.
    last: Bytes,
    is_done: bool,
    watch: Option<Watch>,
    tally: Tally,
}

impl<B> fmt::Debug for PartBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartBody").field("part", &self.part).finish_non_exhaustive()
    }
}

impl<B: Body> PartBody<B> {
    /// Creates the body of a partial response without content codings.
    pub fn new(inner: B, part: Part, scrubber: &Scrubber) -> Self {
        let (position, scrubber) = (part.received.start, scrubber.clone());
        let (held, tally) = (Vec::new(), Tally::new(false));
        let last = Bytes::new();
        Self { inner, scrubber, part, held, position, last, is_done: false, watch: None, tally }
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

    /// Searches the held bytes and returns those that are certain and wanted.
    fn search(&mut self, rest: Rest) -> Result<Bytes, BoxError> {
        let values = self.scrubber.values();
        let position =
            |at: usize| self.position.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        let (mut from, mut clean) = (0, self.held.len());
        loop {
            match values.search.next(&self.held, from, rest) {
                Next::Clean => break,
                Next::Pending { at } => {
                    clean = clean.min(at);
                    from = at + 1;
                }
                Next::Found { at, end, secret } => {
                    let wanted = &self.part.wanted;
                    if position(at) < wanted.end && position(end) > wanted.start {
                        self.tally.ended.found += 1;
                        let name = values.name(secret).to_owned();
                        return Err(PartBodyError::Secret { name }.into());
                    }
                    from = at + 1;
                }
            }
        }
        let rest = self.held.split_off(clean);
        let certain = Bytes::from(std::mem::replace(&mut self.held, rest));
        let offset = |wanted: u64| {
            let offset = usize::try_from(wanted.saturating_sub(self.position));
            offset.unwrap_or(usize::MAX).min(certain.len())
        };
        let wanted = offset(self.part.wanted.start)..offset(self.part.wanted.end);
        self.position = self.position.saturating_add(super::body::len(&certain));
        Ok(certain.slice(wanted))
    }

    fn pass(&mut self, data: Bytes) -> Result<Frame<Bytes>, BoxError> {
        if let Some(watch) = &mut self.watch {
            watch(&data)?;
        }
        self.tally.ended.passed += super::body::len(&data);
        Ok(Frame::data(data))
    }
}

impl<B> PartBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BoxError>> {
        while !self.is_done {
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose();
            let wanted = match frame.map_err(Into::into)? {
                None => {
                    self.is_done = true;
                    let length = self.part.received.end - self.part.received.start;
                    if self.tally.ended.received != length {
                        return Poll::Ready(Err(PartBodyError::Length.into()));
                    }
                    let rest = self.search(Rest::EndOrCut)?;
                    match (std::mem::take(&mut self.last), rest) {
                        (last, rest) if rest.is_empty() => last,
                        (last, rest) => [last, rest].concat().into(),
                    }
                }
                Some(frame) => {
                    // Trailers of a partial response are about bytes that the client does not get.
                    let Ok(data) = frame.into_data() else { continue };
                    self.tally.ended.received += super::body::len(&data);
                    self.held.extend_from_slice(&data);
                    self.search(Rest::Open)?
                }
            };
            if !self.is_done && self.position >= self.part.wanted.end {
                self.last = [std::mem::take(&mut self.last), wanted].concat().into();
            } else if !wanted.is_empty() {
                return Poll::Ready(self.pass(wanted).map(Some));
            }
        }
        Poll::Ready(Ok(None))
    }
}

impl<B> Body for PartBody<B>
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
        match &result {
            Err(error) => {
                this.is_done = true;
                this.tally.report(How::Failed(error.to_string()));
            }
            Ok(None) => this.tally.report(How::Complete),
            Ok(Some(_)) => {
                // For a body of known length, a reader can stop after the last byte.
                if this.tally.ended.passed == this.part.wanted.end - this.part.wanted.start {
                    this.tally.ended.how = How::Complete;
                }
            }
        }
        Poll::Ready(result.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.is_done && self.held.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.part.wanted.end - self.part.wanted.start;
        SizeHint::with_exact(left.saturating_sub(self.tally.ended.passed))
    }
}
