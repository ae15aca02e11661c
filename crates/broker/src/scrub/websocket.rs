//! WebSocket frames (RFC 6455): messages of a server are scrubbed, messages of a box are searched
//! for placeholders, which are refused or masked.
//!
//! Extensions are never negotiated, so a reserved bit is an error, like everything else that the
//! RFC forbids: two readers of the same bytes must not see different messages. Messages are not
//! collected. A piece is forwarded as a fragment as soon as it is certain, and no buffer exceeds
//! [`MAX_PIECE`] plus the bytes that the scrubber holds.

use std::fmt;

use super::{Finder, FinderStream, Scrubber, Stream};

/// The maximum size of a message fragment that the broker creates.
const MAX_PIECE: usize = 64 * 1024;
const MAX_CONTROL: usize = 125;

/// The reason why a WebSocket is closed: an invalid frame or a forbidden placeholder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The WebSocket frame is one that RFC 6455 forbids.
    #[error("not a valid WebSocket frame: {0}")]
    Invalid(&'static str),
    /// The WebSocket message contains a placeholder.
    #[error("a WebSocket message contains the placeholder of `{name}`, which is not allowed there")]
    Placeholder {
        /// Name of the secret.
        name: String,
    },
}

/// Removes secrets from the WebSocket frames that a server sends to a box, or masks placeholders in
/// the frames of a box.
pub struct FrameScrubber {
    reader: Reader,
    scrubber: Scrubber,
    stream: Stream,
    /// The scrubbed bytes of the current message that were not sent yet.
    piece: Vec<u8>,
    /// The opcode of the next fragment: the message's own for the first one, then zero.
    opcode: u8,
    /// The masking key of the current frame, for frames of a client.
    key: Option<[u8; 4]>,
    control: Vec<u8>,
    found: u64,
}

impl fmt::Debug for FrameScrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameScrubber").field("found", &self.found()).finish_non_exhaustive()
    }
}

impl FrameScrubber {
    /// Creates a frame scrubber for the bytes after the server's response 101.
    pub fn new(scrubber: &Scrubber) -> Self {
        Self::of_side(Side::Server, scrubber)
    }

    /// Creates a frame scrubber for the bytes after a client's upgrade request. Its frames keep the
    /// masking keys that the client chose.
    pub fn of_client(scrubber: &Scrubber) -> Self {
        Self::of_side(Side::Client, scrubber)
    }

    fn of_side(side: Side, scrubber: &Scrubber) -> Self {
        Self {
            reader: Reader::new(side),
            scrubber: scrubber.clone(),
            stream: scrubber.stream(),
            piece: Vec::new(),
            opcode: 0,
            key: None,
            control: Vec::new(),
            found: 0,
        }
    }

    /// Scrubs `bytes` and appends the frames that are already certain to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        while let Some(event) = self.reader.next(&mut bytes)? {
            match event {
                Event::Begin(head) => {
                    self.key = head.key;
                    if head.is_data() && head.opcode != 0 {
                        self.opcode = head.opcode;
                    }
                }
                Event::Payload(head, payload) if head.is_data() => {
                    self.stream.push(&payload, &mut self.piece);
                    if self.piece.len() >= MAX_PIECE {
                        self.send(false, out);
                    }
                }
                Event::Payload(_, payload) => self.control.extend_from_slice(&payload),
                Event::End(head) if head.is_data() => self.end_data(head.fin, out),
                Event::End(head) => self.end_control(head.opcode, out),
            }
        }
        // A long frame that arrives slowly is forwarded in parts.
        if !self.piece.is_empty() && self.reader.in_long_frame() {
            self.send(false, out);
        }
        Ok(())
    }

    /// Returns the number of values that were replaced so far.
    pub fn found(&self) -> u64 {
        self.found + self.stream.found()
    }

    /// Returns the names of the values that were replaced in messages so far, the first one first.
    pub fn names(&self) -> &[String] {
        self.stream.names()
    }

    fn end_data(&mut self, fin: bool, out: &mut Vec<u8>) {
        if fin {
            self.stream.finish(&mut self.piece);
        }
        if fin || !self.piece.is_empty() {
            self.send(fin, out);
        }
    }

    fn end_control(&mut self, opcode: u8, out: &mut Vec<u8>) {
        let control = std::mem::take(&mut self.control);
        // The two bytes of a close code are not text.
        let (code, text) = match opcode {
            CLOSE => control.split_at(control.len().min(2)),
            _ => control.split_at(0),
        };
        let clean = self.scrubber.text(text);
        self.found += u64::from(matches!(clean, std::borrow::Cow::Owned(_)));
        let mut payload = code.to_vec();
        payload.extend_from_slice(shorten(&clean, MAX_CONTROL - code.len()));
        frame(true, opcode, self.key, &payload, out);
    }

    fn send(&mut self, fin: bool, out: &mut Vec<u8>) {
        frame(fin, self.opcode, self.key, &self.piece, out);
        self.piece.clear();
        self.opcode = 0;
    }
}

/// Checks WebSocket frames from a box to a server for placeholders, without changing them.
pub struct FrameGuard {
    reader: Reader,
    /// The finder for placeholders in control frames, where none is allowed.
    finder: Finder,
    stream: FinderStream,
    control: Vec<u8>,
}

impl fmt::Debug for FrameGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameGuard").finish_non_exhaustive()
    }
}

impl FrameGuard {
    /// Creates a frame guard for the bytes after the upgrade request. `refused` are the placeholders
    /// that messages must not contain, and `all` those that control frames must not contain.
    pub fn new(all: &Finder, refused: &Finder) -> Self {
        Self {
            reader: Reader::new(Side::Client),
            finder: all.clone(),
            stream: refused.stream(),
            control: Vec::new(),
        }
    }

    /// Checks the next bytes of the WebSocket, which can be forwarded unchanged if there is no
    /// error.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), FrameError> {
        while let Some(event) = self.reader.next(&mut bytes)? {
            match event {
                Event::Begin(_) => {}
                Event::Payload(head, payload) if head.is_data() => {
                    if let Some(name) = self.stream.push(&payload) {
                        return Err(FrameError::Placeholder { name: name.to_owned() });
                    }
                }
                Event::Payload(_, payload) => self.control.extend_from_slice(&payload),
                Event::End(head) if head.is_data() => {
                    if head.fin
                        && let Err(name) = self.stream.finish()
                    {
                        return Err(FrameError::Placeholder { name: name.to_owned() });
                    }
                }
                Event::End(_) => {
                    let control = std::mem::take(&mut self.control);
                    if let Some(name) = self.finder.text(&control) {
                        return Err(FrameError::Placeholder { name: name.to_owned() });
                    }
                }
            }
        }
        Ok(())
    }
}

const CLOSE: u8 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The WebSocket server, which never masks its frames.
    Server,
    /// The WebSocket client, which always masks its frames.
    Client,
}

#[derive(Clone, Copy)]
struct Head {
    fin: bool,
    opcode: u8,
    /// The masking key of a client's frame.
    key: Option<[u8; 4]>,
}

impl Head {
    fn is_data(self) -> bool {
        self.opcode < CLOSE
    }
}

enum Event {
    Begin(Head),
    /// A part of a frame's payload, unmasked.
    Payload(Head, Vec<u8>),
    End(Head),
}

/// Splits a stream of bytes into WebSocket frames.
struct Reader {
    side: Side,
    head: Vec<u8>,
    frame: Option<Open>,
    /// Whether more fragments of the current message must follow.
    in_message: bool,
    closed: bool,
}

struct Open {
    head: Head,
    left: u64,
    len: u64,
    at: usize,
}

impl Reader {
    fn new(side: Side) -> Self {
        Self { side, head: Vec::new(), frame: None, in_message: false, closed: false }
    }

    fn in_long_frame(&self) -> bool {
        const LONG: u64 = 4 * 1024;
        self.frame.as_ref().is_some_and(|open| open.head.is_data() && open.len > LONG)
    }

    /// Parses `bytes` until the next frame head or payload, and returns it.
    fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, FrameError> {
        let Some(open) = &mut self.frame else { return self.read_head(bytes) };
        let head = open.head;
        if open.left == 0 {
            self.frame = None;
            return Ok(Some(Event::End(head)));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let len = usize::try_from(open.left).unwrap_or(usize::MAX).min(bytes.len()).min(MAX_PIECE);
        let (now, later) = bytes.split_at(len);
        *bytes = later;
        open.left -= u64::try_from(len).unwrap_or(open.left);
        let payload = masked(now, head.key, open.at);
        open.at = (open.at + len) % 4;
        Ok(Some(Event::Payload(head, payload)))
    }

    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, FrameError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            self.head.push(byte);
            if let Some(open) = parse(&self.head, self.side)? {
                self.head.clear();
                let head = open.head;
                self.check(head)?;
                self.frame = Some(open);
                return Ok(Some(Event::Begin(head)));
            }
        }
        Ok(None)
    }

    /// Checks that a frame is allowed after the frames before it.
    fn check(&mut self, head: Head) -> Result<(), FrameError> {
        if self.closed {
            return Err(FrameError::Invalid("a frame after a close frame"));
        }
        if !head.is_data() {
            self.closed = head.opcode == CLOSE;
            return Ok(());
        }
        match (self.in_message, head.opcode) {
            (false, 0) => {
                return Err(FrameError::Invalid("a continuation frame without a message"));
            }
            (true, 1 | 2) => {
                return Err(FrameError::Invalid(
                    "a new message before the end of the previous one",
                ));
            }
            _ => {}
        }
        self.in_message = !head.fin;
        Ok(())
    }
}

/// Parses the head of a WebSocket frame; `None` if it is incomplete.
fn parse(head: &[u8], side: Side) -> Result<Option<Open>, FrameError> {
    let Some((&[first, second], rest)) = head.split_first_chunk() else { return Ok(None) };
    let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
    if first & 0x70 != 0 {
        return Err(FrameError::Invalid("a reserved bit"));
    }
    if !matches!(opcode, 0..=2 | CLOSE..=10) {
        return Err(FrameError::Invalid("a reserved opcode"));
    }
    let is_masked = second & 0x80 != 0;
    if is_masked != (side == Side::Client) {
        return Err(FrameError::Invalid("wrong masking: clients must mask, servers must not"));
    }
    let Some((len, rest)) = length(second & 0x7f, rest)? else { return Ok(None) };
    if opcode >= CLOSE && (!fin || second & 0x7f > 125) {
        return Err(FrameError::Invalid("a long or fragmented control frame"));
    }
    if opcode == CLOSE && len == 1 {
        return Err(FrameError::Invalid("a truncated close code"));
    }
    let key = match (is_masked, rest.first_chunk::<4>()) {
        (false, _) => None,
        (true, Some(key)) => Some(*key),
        (true, None) => return Ok(None),
    };
    Ok(Some(Open { head: Head { fin, opcode, key }, left: len, len, at: 0 }))
}

/// Parses the payload length of a frame, which must be in its shortest form; returns it with the
/// remaining bytes.
fn length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, FrameError> {
    let (len, rest, least) = match short {
        126 => match rest.split_first_chunk::<2>() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest, 126),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((len, rest)) => (u64::from_be_bytes(*len), rest, 1 << 16),
            None => return Ok(None),
        },
        _ => (u64::from(short), rest, 0),
    };
    if len < least || len >> 63 != 0 {
        return Err(FrameError::Invalid("a length that is not in its shortest form"));
    }
    Ok(Some((len, rest)))
}

/// Appends one WebSocket frame to `out`, masked with `key` if it is a frame of a client.
fn frame(fin: bool, opcode: u8, key: Option<[u8; 4]>, payload: &[u8], out: &mut Vec<u8>) {
    out.push(u8::from(fin) << 7 | opcode);
    let is_masked = u8::from(key.is_some()) << 7;
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(len @ 0..=125), _) => out.push(is_masked | len),
        (_, Ok(len)) => {
            out.push(is_masked | 126);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(is_masked | 127);
            let len = u64::try_from(payload.len()).unwrap_or(u64::MAX);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
    out.extend(key.into_iter().flatten());
    out.extend_from_slice(&masked(payload, key, 0));
}

/// Returns a part of a payload masked or unmasked, which is the same operation. `at` is the position
/// of the part in the payload.
fn masked(payload: &[u8], key: Option<[u8; 4]>, at: usize) -> Vec<u8> {
    let Some(key) = key else { return payload.to_vec() };
    let key = key.iter().cycle().skip(at % 4);
    payload.iter().zip(key).map(|(byte, key)| byte ^ key).collect()
}

/// Truncates a text to at most `len` bytes, without splitting a character.
fn shorten(text: &[u8], len: usize) -> &[u8] {
    let Some(short) = text.get(..len) else { return text };
    match std::str::from_utf8(short) {
        Err(error) if error.error_len().is_none() => {
            text.get(..error.valid_up_to()).unwrap_or_default()
        }
        _ => short,
    }
}
