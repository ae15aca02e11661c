//! Removes secrets from responses, and finds or masks placeholders in requests.
//!
//! A [`Scrubber`] contains the values that are bound to one host, and changes nothing else (B09).
//! It replaces each occurrence in a stream by `[belljar:NAME]`, however the stream is split into
//! pieces (B06). It holds back exactly the bytes from the first possible start of an occurrence on.
//! Overlapping occurrences are replaced together.
//!
//! **Detected forms** (B05): plain, base64 (both alphabets, each of three offsets, with line breaks)
//! and hex in any case. Every character can be escaped or not, in any mix: `%41`, also encoded
//! twice, and `+` for a space; `\101`, `\u0041`, `\u{41}`, `\U00000041`, `\x41`, `\/`, with up to
//! eight backslashes; `&#65;`, `&#x41;`, with zeros up to sixteen digits, and the named entities of
//! HTML. Text outside ASCII is also found if it was read as Latin-1.
//!
//! A truncated value is found too (B07): at the end of the bytes or before a delimiter from sixteen
//! bytes on, and before other text if about two thirds of it are there. The text up to the length of
//! the value is then removed as well, so that the output does not show how many bytes were right
//! (B09).
//!
//! **Not detected:** other transformations by the host: reversed, rot13, other letter case,
//! encrypted, compressed within the content, base64 of base64, base32, UTF-16, quoted-printable,
//! lists of numbers, hex with separators, a part that is not the start, spaces between letters, or
//! a value split over two messages or responses. A malicious host can always leak a secret; the
//! scrubber protects against hosts that echo requests.

mod body;
mod decode;
mod forms;
mod head;
mod mask;
mod range;
mod search;
mod spell;
#[cfg(test)]
mod tests;
mod websocket;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use zeroize::Zeroizing;

pub use body::{BodyError, BoxError, Ended, GuardedBody, How, ScrubbedBody};
pub use decode::{Coding, DecodeError, Decoder, Undecodable, codings};
pub use head::reframe;
pub use range::{Part, PartBody, PartError, RangeRequest, UnsupportedRange};
pub use search::MIN_VALUE;
pub use websocket::{FrameError, FrameGuard, FrameScrubber};

use search::{Next, Rest, Search};

/// The names of some values, and the search index for the values.
struct Values {
    names: Vec<String>,
    /// The length of the longest value in bytes.
    longest: usize,
    search: Search,
    /// The search index for lower-case text, for header names.
    folded: Search,
}

impl Values {
    fn new(values: &[(String, &[u8])]) -> Result<Self, TooShort> {
        if let Some((name, _)) = values.iter().find(|(_, value)| value.len() < MIN_VALUE) {
            return Err(TooShort { name: name.clone() });
        }
        let bytes: Vec<&[u8]> = values.iter().map(|(_, value)| *value).collect();
        let names = values.iter().map(|(name, _)| name.clone()).collect();
        let lower: Vec<_> =
            bytes.iter().map(|value| Zeroizing::new(value.to_ascii_lowercase())).collect();
        let lower: Vec<&[u8]> = lower.iter().map(|value| value.as_slice()).collect();
        let longest = bytes.iter().map(|value| value.len()).max().unwrap_or(0);
        Ok(Self { names, longest, search: Search::new(&bytes), folded: Search::plain(&lower) })
    }

    fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}

/// The error for a secret value that is too short to be distinguished from ordinary text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the value of `{name}` is shorter than {MIN_VALUE} bytes, too short to be removed from responses"
)]
pub struct TooShort {
    /// Name of the secret.
    pub name: String,
}

/// Removes secret values from text, in all their encodings. All clones and streams of a scrubber
/// use the same values.
#[derive(Clone, Debug)]
pub struct Scrubber(Arc<RwLock<Arc<Values>>>);

impl Scrubber {
    /// Creates a scrubber for these values, each with the name that replaces it.
    pub fn new(values: &[(String, &[u8])]) -> Result<Self, TooShort> {
        Values::new(values).map(|values| Self(Arc::new(RwLock::new(Arc::new(values)))))
    }

    /// Replaces the values by those of another scrubber, also for streams that are already in use.
    pub fn replace(&self, by: &Self) {
        let values = by.values();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = values;
    }

    /// Returns whether the scrubber has no values to remove.
    pub fn is_empty(&self) -> bool {
        self.values().names.is_empty()
    }

    /// Returns the length of the longest value in bytes.
    fn longest(&self) -> u64 {
        u64::try_from(self.values().longest).unwrap_or(u64::MAX)
    }

    fn values(&self) -> Arc<Values> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `text` with every secret value replaced.
    pub fn text<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        if self.values().search.next(text, 0, Rest::EndOrCut) == Next::Clean {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut out = Vec::with_capacity(text.len());
        stream.push(text, &mut out);
        stream.finish(&mut out);
        Cow::Owned(out)
    }

    /// Returns whether the name of a header, which is in lower case, contains one of the values.
    fn is_in_name(&self, name: &[u8]) -> bool {
        let values = self.values();
        // An escape is the original character, the other letters are in lower case.
        let decoded = Zeroizing::new(spell::decoded(name).to_ascii_lowercase());
        let is_in =
            |search: &Search, text: &[u8]| search.next(text, 0, Rest::EndOrCut) != Next::Clean;
        is_in(&values.search, name)
            || is_in(&values.folded, name)
            || is_in(&values.folded, &decoded)
    }

    /// Returns a scrubber for one stream of bytes.
    pub fn stream(&self) -> Stream {
        Stream {
            scrubber: self.clone(),
            values: self.values(),
            held: Held::default(),
            found: 0,
            names: Vec::new(),
        }
    }
}

/// The bytes at the end of the input that can be the start of a secret value.
#[derive(Default)]
struct Held {
    bytes: Zeroizing<Vec<u8>>,
    /// The number of held bytes that are already replaced; kept because another occurrence can
    /// overlap them.
    replaced: usize,
    /// The index of the last value that was replaced in the held bytes.
    last: Option<usize>,
}

/// Removes secret values from a stream of bytes, piece by piece.
pub struct Stream {
    scrubber: Scrubber,
    /// The values that were in use for the last piece.
    values: Arc<Values>,
    held: Held,
    found: u64,
    /// The names of the replaced values, in the order of their first occurrence.
    names: Vec<String>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the bytes, which can be part of a secret.
        f.debug_struct("Stream").field("held", &self.held()).field("found", &self.found).finish()
    }
}

impl Stream {
    /// Scrubs `bytes` and appends the output that is already certain to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.feed(bytes, Rest::Open, out);
    }

    /// Scrubs like [`Self::push`], but does not copy bytes that stay unchanged.
    pub fn push_bytes(&mut self, mut bytes: Bytes) -> Bytes {
        self.update();
        if self.held() > 0 && self.held.replaced == 0 {
            let mut all = std::mem::take(&mut *self.held.bytes);
            all.reserve_exact(bytes.len());
            all.extend_from_slice(&bytes);
            bytes = all.into();
        }
        let mut out = Vec::new();
        if self.held.bytes.is_empty() {
            match self.values.search.next(&bytes, 0, Rest::Open) {
                Next::Clean => return bytes,
                Next::Pending { at } => {
                    self.hold(&bytes, at, at);
                    return bytes.slice(..at);
                }
                Next::Found { .. } => {}
            }
        }
        self.push(&bytes, &mut out);
        out.into()
    }

    /// Ends the stream and appends the remaining output to `out`. The stream can then be reused.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.feed(&[], Rest::EndOrCut, out);
    }

    /// Returns the number of values that were replaced so far.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Returns the names of the values that were replaced so far, each once, the first one first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of bytes that are held back, because they can be the start of a value.
    pub fn held(&self) -> usize {
        self.held.bytes.len() - self.held.replaced
    }

    /// Takes over values that were added since the last piece.
    fn update(&mut self) {
        let values = self.scrubber.values();
        if !Arc::ptr_eq(&values, &self.values) {
            self.values = values;
            self.held.last = None; // an index of the old values
        }
    }

    fn feed(&mut self, bytes: &[u8], rest: Rest, out: &mut Vec<u8>) {
        self.update();
        if self.held.bytes.is_empty() {
            return self.scan(bytes, rest, out);
        }
        let mut all = std::mem::take(&mut self.held.bytes);
        all.extend_from_slice(bytes);
        self.scan(&all, rest, out);
    }

    fn scan(&mut self, text: &[u8], rest: Rest, out: &mut Vec<u8>) {
        let mut from = 0;
        // Bytes before this position were output or replaced.
        let mut done = std::mem::take(&mut self.held.replaced);
        loop {
            match self.values.search.next(text, from, rest) {
                Next::Clean => {
                    out.extend_from_slice(text.get(done..).unwrap_or_default());
                    self.held.last = None;
                    return;
                }
                Next::Pending { at } => {
                    out.extend_from_slice(text.get(done..at).unwrap_or_default());
                    return self.hold(text, at, done);
                }
                Next::Found { at, end, secret } => {
                    out.extend_from_slice(text.get(done..at).unwrap_or_default());
                    // An occurrence that overlaps one of the same value, as in a row of equal
                    // letters, counts once.
                    let same = at < done && self.held.last == Some(secret);
                    if end > done && !same {
                        out.extend_from_slice(b"[belljar:");
                        out.extend_from_slice(self.values.name(secret).as_bytes());
                        out.push(b']');
                        self.found += 1;
                        self.held.last = Some(secret);
                        if !self.names.iter().any(|name| name == self.values.name(secret)) {
                            self.names.push(self.values.name(secret).to_owned());
                        }
                    }
                    done = done.max(end);
                    from = at + 1;
                }
            }
        }
    }

    fn hold(&mut self, text: &[u8], at: usize, done: usize) {
        self.held.bytes = Zeroizing::new(text.get(at..).unwrap_or_default().to_vec());
        self.held.replaced = done.saturating_sub(at);
    }
}

/// Finds values in a text without changing the text, for example placeholders in requests.
#[derive(Clone, Debug)]
pub struct Finder(Arc<Values>);

impl Finder {
    /// Creates a finder for these values, each with the name to report.
    pub fn new(values: &[(String, &[u8])]) -> Result<Self, TooShort> {
        Values::new(values).map(|values| Self(Arc::new(values)))
    }

    /// Returns whether the finder has no values to find.
    pub fn is_empty(&self) -> bool {
        self.0.names.is_empty()
    }

    /// Returns the name of the first value that occurs in `text`.
    pub fn text(&self, text: &[u8]) -> Option<&str> {
        match self.0.search.next(text, 0, Rest::End) {
            Next::Found { secret, .. } => Some(self.0.name(secret)),
            Next::Clean | Next::Pending { .. } => None,
        }
    }

    /// Returns a finder for one stream of bytes.
    pub fn stream(&self) -> FinderStream {
        FinderStream { values: self.0.clone(), held: Vec::new() }
    }
}

/// Searches a stream of bytes for values, piece by piece.
pub struct FinderStream {
    values: Arc<Values>,
    held: Vec<u8>,
}

impl fmt::Debug for FinderStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinderStream").field("held", &self.held.len()).finish()
    }
}

impl FinderStream {
    /// Returns the number of bytes that are held back, because they can be the start of a value.
    fn held(&self) -> usize {
        self.held.len()
    }

    /// Searches the next bytes of the stream; returns the name of the first value that they
    /// complete.
    pub fn push(&mut self, bytes: &[u8]) -> Option<&str> {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        match find(&self.values.search, &held) {
            Ok(clean) => {
                self.held = held.get(clean..).unwrap_or_default().to_vec();
                None
            }
            Err(secret) => Some(self.values.name(secret)),
        }
    }

    /// Searches like [`Self::push`], and returns the bytes in which no value has started.
    pub fn guard(&mut self, bytes: Bytes) -> Result<Bytes, &str> {
        let mut bytes = if self.held.is_empty() {
            bytes
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(&bytes);
            held.into()
        };
        match find(&self.values.search, &bytes) {
            Ok(clean) => {
                self.held = bytes.split_off(clean).to_vec();
                Ok(bytes)
            }
            Err(secret) => Err(self.values.name(secret)),
        }
    }

    /// Ends the stream; returns the last bytes that were held back, or the name of a value in them.
    pub fn finish(&mut self) -> Result<Bytes, &str> {
        let held = std::mem::take(&mut self.held);
        match self.values.search.next(&held, 0, Rest::End) {
            Next::Found { secret, .. } => Err(self.values.name(secret)),
            Next::Clean | Next::Pending { .. } => Ok(held.into()),
        }
    }
}

/// Returns the index of the first value in `text` as an error, or else the length of the text
/// before any possible value.
fn find(search: &Search, text: &[u8]) -> Result<usize, usize> {
    let mut clean = text.len();
    let mut from = 0;
    loop {
        match search.next(text, from, Rest::OpenOrFound) {
            Next::Clean => return Ok(clean),
            Next::Found { secret, .. } => return Err(secret),
            Next::Pending { at } => {
                clean = clean.min(at);
                from = at + 1;
            }
        }
    }
}
