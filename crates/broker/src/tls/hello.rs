//! Parses the ClientHello of a TLS connection without answering it: the server name, and whether
//! another one is encrypted.
//!
//! Parses only what is needed to choose between interception, passthrough and refusal. The caller
//! keeps the bytes, and passes them unchanged to the TLS stack or to the upstream.
//!
//! **Invariant:** never panics, never allocates more than the input, and returns the same result
//! however the bytes are split into records.

use std::borrow::Cow;

use belljar_model::net::Hostname;

/// Maximum size of a ClientHello with its record headers. Real ones are smaller than 3 KiB.
const MAX_HELLO: usize = 16 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HOST_NAME: u8 = 0;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// The TLS extension numbers of Encrypted ClientHello, its drafts, and its predecessor ESNI.
const HIDDEN_NAMES: [u16; 7] = [0xfe0d, 0xfe0c, 0xfe0b, 0xfe0a, 0xfe09, 0xfe08, 0xffce];

/// The protocol of the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The ClientHello is incomplete: read more bytes and parse again.
    Incomplete,
    /// The bytes belong to another protocol than TLS.
    NotTls,
    /// The bytes are invalid TLS that must be neither answered nor forwarded, with the reason.
    Refused(&'static str),
    Hello(Hello),
}

/// The unencrypted contents of a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server name in the ClientHello; `None` if the client dialled an address and sent none.
    pub sni: Option<Hostname>,
    /// Whether the ClientHello has an encrypted part that can contain another server name.
    pub ech: bool,
    /// The application protocols that the client offers, in its order.
    pub alpn: Vec<Vec<u8>>,
}

impl Hello {
    /// Maximum number of bytes that [`Hello::parse`] needs for a result.
    pub const LIMIT: usize = MAX_HELLO;

    /// Parses the bytes of a connection received so far, from its first byte.
    pub fn parse(bytes: &[u8]) -> Peek {
        match message(bytes) {
            Ok(body) => read(&body).map_or_else(Peek::Refused, Peek::Hello),
            Err(Stop::More) if bytes.len() >= MAX_HELLO => {
                Peek::Refused("the ClientHello is too long")
            }
            Err(Stop::More) => Peek::Incomplete,
            Err(Stop::NotTls) => Peek::NotTls,
            Err(Stop::Bad(why)) => Peek::Refused(why),
        }
    }
}

enum Stop {
    More,
    NotTls,
    Bad(&'static str),
}

/// Returns the body of the ClientHello, joined from its records.
fn message(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Stop> {
    let mut rest = bytes;
    let mut whole: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut first = true;
    loop {
        let fragment = record(&mut rest, first)?;
        first = false;
        if whole.is_empty() {
            whole = Cow::Borrowed(fragment);
        } else {
            whole.to_mut().extend_from_slice(fragment);
        }
        if let Some(length) = length_of_message(&whole)? {
            let end = 4 + length;
            match whole.len() {
                have if have < end => {}
                // No client sends a second message before the server's answer.
                have if have > end => return Err(Stop::Bad("bytes follow the ClientHello")),
                _ => return Ok(skip(whole, 4)),
            }
        }
    }
}

fn skip(bytes: Cow<'_, [u8]>, count: usize) -> Cow<'_, [u8]> {
    match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(count..).unwrap_or_default()),
        Cow::Owned(mut bytes) => {
            bytes.drain(..count.min(bytes.len()));
            Cow::Owned(bytes)
        }
    }
}

/// Returns the content of the next TLS record; detects other protocols at the first wrong byte.
fn record<'a>(rest: &mut &'a [u8], first: bool) -> Result<&'a [u8], Stop> {
    let wrong =
        || if first { Stop::NotTls } else { Stop::Bad("a record is not a handshake record") };
    match *rest {
        [] => return Err(Stop::More),
        [HANDSHAKE] | [HANDSHAKE, 3] => return Err(Stop::More),
        [HANDSHAKE, 3, 0..=4, ..] => {}
        _ => return Err(wrong()),
    }
    let Some((&[_, _, _, high, low], after)) = rest.split_first_chunk::<5>() else {
        return Err(Stop::More);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 {
        return Err(Stop::Bad("a record is empty"));
    }
    if length > MAX_HELLO {
        return Err(Stop::Bad("the ClientHello is too long"));
    }
    let Some((fragment, after)) = after.split_at_checked(length) else {
        return Err(Stop::More);
    };
    *rest = after;
    Ok(fragment)
}

fn length_of_message(bytes: &[u8]) -> Result<Option<usize>, Stop> {
    match *bytes {
        [CLIENT_HELLO, high, middle, low, ..] => {
            let length = u32::from_be_bytes([0, high, middle, low]);
            match usize::try_from(length) {
                Ok(length) if length <= MAX_HELLO => Ok(Some(length)),
                _ => Err(Stop::Bad("the ClientHello is too long")),
            }
        }
        [] | [CLIENT_HELLO, ..] => Ok(None),
        _ => Err(Stop::Bad("the first message is not a ClientHello")),
    }
}

type Read<T> = Result<T, &'static str>;

fn read(body: &[u8]) -> Read<Hello> {
    let mut body = Cursor(body);
    body.take(2 + 32)?; // version, random
    body.vector8()?; // session
    body.vector16()?; // cipher suites
    body.vector8()?; // compression
    let mut hello = Hello { sni: None, ech: false, alpn: Vec::new() };
    if body.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.vector16()?;
    if !body.0.is_empty() {
        return Err("bytes follow the extensions");
    }
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16()?;
        seen.push(kind);
        match kind {
            SERVER_NAME => hello.sni = Some(server_name(content)?),
            ALPN => hello.alpn = protocols(content)?,
            _ => hello.ech |= HIDDEN_NAMES.contains(&kind),
        }
    }
    // With a duplicate extension, the broker and the upstream could read different ones.
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != count {
        return Err("an extension is duplicate");
    }
    Ok(hello)
}

fn server_name(mut content: Cursor<'_>) -> Read<Hostname> {
    let mut names = content.vector16()?;
    let kind = names.number8()?;
    let name = names.vector16()?;
    if kind != HOST_NAME || !names.0.is_empty() || !content.0.is_empty() {
        return Err("the server name extension does not contain exactly one host name");
    }
    let name =
        std::str::from_utf8(name.0).map_err(|_| "the server name is not a valid host name")?;
    name.parse().map_err(|_| "the server name is not a valid host name")
}

fn protocols(mut content: Cursor<'_>) -> Read<Vec<Vec<u8>>> {
    let mut list = content.vector16()?;
    if !content.0.is_empty() {
        return Err("bytes follow the protocol list");
    }
    let mut names = Vec::new();
    while !list.0.is_empty() {
        let name = list.vector8()?;
        if name.0.is_empty() {
            return Err("a protocol name is empty");
        }
        names.push(name.0.to_vec());
    }
    Ok(names)
}

/// Reads length-prefixed fields from the front of a slice.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the ClientHello is truncated")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number8(&mut self) -> Read<u8> {
        self.take(1).map(|bytes| bytes.iter().fold(0, |_, byte| *byte))
    }

    fn number16(&mut self) -> Read<u16> {
        let bytes = self.take(2)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    fn vector8(&mut self) -> Read<Self> {
        let length = self.number8()?;
        self.take(length.into()).map(Self)
    }

    fn vector16(&mut self) -> Read<Self> {
        let length = self.number16()?;
        self.take(length.into()).map(Self)
    }
}

#[cfg(test)]
mod tests;
