//! Takes secrets out of what comes back, and finds placeholders in what goes out.
//!
//! A [`Scrubber`] knows the values that were given to one host, and nothing else is ever touched (B09).
//! It replaces each occurrence by `[belljar:NAME]`, in a stream, wherever the stream is cut into pieces
//! (B06): what is held back is exactly the bytes from the first place on at which an occurrence may have
//! begun. Occurrences that overlap are taken out together.
//!
//! **What is found** (B05). A value stands plain, in base64 (both alphabets, each of three offsets, with
//! lines broken after the twelfth digit), or in hex of any case. Every character of any of these may be
//! as it is or escaped, in any mix: `%41`, also encoded twice and `+` for a space; `\u0041`, `\x41`,
//! `\/`, with backslashes escaped again up to eight; `&#65;`, `&#x41;` and the names of HTML.
//! Text beyond ASCII is also found when it was taken for Latin-1. If bytes end within a value,
//! sixteen bytes of it are enough (B07).
//!
//! **What is not found**: anything that a program of the host's choosing did to the value: reversed,
//! rot13, other letter case, encrypted, compressed within the content, base64 of base64, base32, UTF-16,
//! quoted-printable, lists of numbers, hex with separators, a part that is not the beginning, spaces
//! between letters, or a value sent in two messages or two answers. A host that wants to give a
//! secret away can; this is against hosts that repeat what they were sent.

mod body;
mod decode;
mod forms;
mod head;
mod search;
mod spell;
#[cfg(test)]
mod tests;
mod websocket;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zeroize::Zeroizing;

pub use body::{BodyError, BoxError, Ended, GuardedBody, How, ScrubbedBody};
pub use decode::{Coding, DecodeError, Decoder, Undecodable, codings};
pub use head::reframe;
pub use search::MIN_VALUE;
pub use websocket::{FrameError, FrameGuard, FrameScrubber};

use search::{Next, Rest, Search};

/// Names of values, and how to find them.
struct Values {
    names: Vec<String>,
    search: Search,
    /// The same in lower case, for names of headers, which have no other.
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
        Ok(Self { names, search: Search::new(&bytes), folded: Search::plain(&lower) })
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

/// A value that cannot be told from ordinary text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the value of `{name}` is shorter than {MIN_VALUE} bytes, too short to be kept out of answers"
)]
pub struct TooShort {
    /// The secret.
    pub name: String,
}

/// Takes some values out of whatever it is shown.
#[derive(Clone, Debug)]
pub struct Scrubber(Arc<Values>);

impl Scrubber {
    /// For these values, each with the name that stands in its place.
    pub fn new(values: &[(String, &[u8])]) -> Result<Self, TooShort> {
        Values::new(values).map(|values| Self(Arc::new(values)))
    }

    /// Whether there is nothing to take out.
    pub fn is_empty(&self) -> bool {
        self.0.names.is_empty()
    }

    /// All of `text` without the values.
    pub fn text<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        if self.0.search.next(text, 0, Rest::EndOrCut) == Next::Clean {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut out = Vec::with_capacity(text.len());
        stream.push(text, &mut out);
        stream.finish(&mut out);
        Cow::Owned(out)
    }

    /// Whether a text that was put in lower case tells a value.
    fn tells_folded(&self, text: &[u8]) -> bool {
        self.0.folded.next(text, 0, Rest::End) != Next::Clean
    }

    /// Begins a stream.
    pub fn stream(&self) -> Stream {
        Stream { values: self.0.clone(), held: Held::default(), found: 0 }
    }
}

/// The bytes that may belong to an occurrence.
#[derive(Default)]
struct Held {
    bytes: Zeroizing<Vec<u8>>,
    /// How many of them were replaced already; they are kept because another occurrence may overlap.
    replaced: usize,
    /// What they were replaced by.
    last: Option<usize>,
}

/// One stream without the values.
pub struct Stream {
    values: Arc<Values>,
    held: Held,
    found: u64,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the bytes: they may be half of a secret.
        f.debug_struct("Stream").field("held", &self.held()).field("found", &self.found).finish()
    }
}

impl Stream {
    /// Adds to `out` all that is certain after `bytes`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.feed(bytes, Rest::Open, out);
    }

    /// As [`Self::push`], without copying what can go on as it is.
    pub fn push_bytes(&mut self, mut bytes: Bytes) -> Bytes {
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

    /// Adds the rest, now that nothing follows. The stream can be used anew.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.feed(&[], Rest::EndOrCut, out);
    }

    /// How many occurrences were replaced so far.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// How many bytes wait for what follows them.
    pub fn held(&self) -> usize {
        self.held.bytes.len() - self.held.replaced
    }

    fn feed(&mut self, bytes: &[u8], rest: Rest, out: &mut Vec<u8>) {
        if self.held.bytes.is_empty() {
            return self.scan(bytes, rest, out);
        }
        let mut all = std::mem::take(&mut self.held.bytes);
        all.extend_from_slice(bytes);
        self.scan(&all, rest, out);
    }

    fn scan(&mut self, text: &[u8], rest: Rest, out: &mut Vec<u8>) {
        let mut from = 0;
        // What is before this went out or was replaced.
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
                    // One that overlaps its like, as in a row of equal letters, is the same find.
                    let same = at < done && self.held.last == Some(secret);
                    if end > done && !same {
                        out.extend_from_slice(b"[belljar:");
                        out.extend_from_slice(self.values.name(secret).as_bytes());
                        out.push(b']');
                        self.found += 1;
                        self.held.last = Some(secret);
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

/// Finds values without changing anything: placeholders in what a box sends.
#[derive(Clone, Debug)]
pub struct Finder(Arc<Values>);

impl Finder {
    /// For these values, each with the name to report.
    pub fn new(values: &[(String, &[u8])]) -> Result<Self, TooShort> {
        Values::new(values).map(|values| Self(Arc::new(values)))
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.0.names.is_empty()
    }

    /// The name of the first value in `text`.
    pub fn text(&self, text: &[u8]) -> Option<&str> {
        match self.0.search.next(text, 0, Rest::End) {
            Next::Found { secret, .. } => Some(self.0.name(secret)),
            Next::Clean | Next::Pending { .. } => None,
        }
    }

    /// Begins a stream.
    pub fn stream(&self) -> FinderStream {
        FinderStream { values: self.0.clone(), held: Vec::new() }
    }
}

/// Looks for values in one stream.
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
    /// Looks at the next bytes; the name of the first value that they complete.
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

    /// As [`Self::push`], and what can go on because no value has begun in it.
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

    /// The bytes that were waiting, now that nothing follows; the name of a value in them.
    pub fn finish(&mut self) -> Result<Bytes, &str> {
        let held = std::mem::take(&mut self.held);
        match self.values.search.next(&held, 0, Rest::End) {
            Next::Found { secret, .. } => Err(self.values.name(secret)),
            Next::Clean | Next::Pending { .. } => Ok(held.into()),
        }
    }
}

/// The first value in `text`, or else up to where none may have begun.
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
