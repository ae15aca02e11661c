//! Reads the first message of a TLS connection without answering it: which name is asked for, and whether one is hidden.
//!
//! Only as much is parsed as is needed to choose between interception, passthrough and refusal. The bytes stay with the
//! caller, who hands them to the TLS stack or to the upstream unchanged.
//!
//! **Invariant:** never panics, never allocates more than it was given, and what it returns is the same however the bytes
//! were cut into records.

use std::borrow::Cow;

use belljar_model::net::Hostname;

/// The most a ClientHello may take, with the heads of its records. Real ones have less than 3 KiB.
const LIMIT: usize = 16 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HOST_NAME: u8 = 0;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// Encrypted ClientHello, its drafts, and the ESNI that came before.
const HIDDEN_NAMES: [u16; 7] = [0xfe0d, 0xfe0c, 0xfe0b, 0xfe0a, 0xfe09, 0xfe08, 0xffce];

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The beginning of a ClientHello: read more and ask again.
    Incomplete,
    /// Not TLS at all.
    NotTls,
    /// TLS, but nothing that may be answered or passed on. The text says why.
    Refused(&'static str),
    Hello(Hello),
}

/// What a client said in the open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name asked for; none if the client sent none (it dialled an address).
    pub sni: Option<Hostname>,
    /// Another name may be hidden in an encrypted hello.
    pub ech: bool,
    /// The protocols offered, in the client's order.
    pub alpn: Vec<Vec<u8>>,
}

impl Hello {
    /// How many bytes to read at most before [`Hello::parse`] has an answer.
    pub const LIMIT: usize = LIMIT;

    /// Looks at what came in so far, from the first byte of the connection.
    pub fn parse(bytes: &[u8]) -> Peek {
        match message(bytes) {
            Ok(body) => read(&body).map_or_else(Peek::Refused, Peek::Hello),
            Err(Stop::More) if bytes.len() >= LIMIT => Peek::Refused("the ClientHello is too long"),
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

/// The body of the ClientHello, put together from its records.
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
                // A second message in the same record would come before we answered: no client does that.
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

/// The content of the next record. What cannot become one is told from its first wrong byte on.
fn record<'a>(rest: &mut &'a [u8], first: bool) -> Result<&'a [u8], Stop> {
    let wrong = || if first { Stop::NotTls } else { Stop::Bad("a record that is no handshake") };
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
        return Err(Stop::Bad("an empty record"));
    }
    if length > LIMIT {
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
                Ok(length) if length <= LIMIT => Ok(Some(length)),
                _ => Err(Stop::Bad("the ClientHello is too long")),
            }
        }
        [] | [CLIENT_HELLO, ..] => Ok(None),
        _ => Err(Stop::Bad("the first message is no ClientHello")),
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
    // Two of a kind: we might read one of them and the upstream the other.
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != count {
        return Err("an extension comes twice");
    }
    Ok(hello)
}

fn server_name(mut content: Cursor<'_>) -> Read<Hostname> {
    let mut names = content.vector16()?;
    let kind = names.number8()?;
    let name = names.vector16()?;
    if kind != HOST_NAME || !names.0.is_empty() || !content.0.is_empty() {
        return Err("the server name extension does not hold exactly one host name");
    }
    let name = std::str::from_utf8(name.0).map_err(|_| "the server name is no host name")?;
    name.parse().map_err(|_| "the server name is no host name")
}

fn protocols(mut content: Cursor<'_>) -> Read<Vec<Vec<u8>>> {
    let mut list = content.vector16()?;
    if !content.0.is_empty() {
        return Err("bytes follow the list of protocols");
    }
    let mut names = Vec::new();
    while !list.0.is_empty() {
        let name = list.vector8()?;
        if name.0.is_empty() {
            return Err("a protocol without a name");
        }
        names.push(name.0.to_vec());
    }
    Ok(names)
}

/// Takes lengths and what they announce from the front.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the ClientHello is cut short")?;
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
