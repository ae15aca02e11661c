//! Parses DNS queries and writes replies.
//!
//! The parser is strict, because no real client needs more: one question, no answers, and at most
//! one EDNS record. The question is echoed byte for byte, so that clients with mixed-case names
//! against spoofing (0x20) recognize it.

use std::fmt;
use std::net::IpAddr;

use belljar_model::net::Hostname;

const HEADER: usize = 12;
const MAX_NAME: usize = 255;
const CLASS_IN: u16 = 1;
const OPT: u16 = 41;
/// The maximum size of a DNS datagram that the broker accepts, as announced with EDNS.
const PAYLOAD: u16 = 1232;

const RESPONSE: u16 = 1 << 15;
const OPCODE: u16 = 0xf << 11;
const TRUNCATED: u16 = 1 << 9;
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;
const CHECKING_DISABLED: u16 = 1 << 4;
/// A DNS compression pointer to the name in the question.
const NAME_POINTER: u16 = 0xc00c;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    NoError,
    Format,
    ServerFailure,
    NoName,
    NotImplemented,
    Refused,
}

/// The record type of a DNS query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    A,
    Aaaa,
    Other(u16),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Other(5) => "CNAME",
            Self::Other(10) => "NULL",
            Self::Other(12) => "PTR",
            Self::Other(15) => "MX",
            Self::Other(16) => "TXT",
            Self::Other(33) => "SRV",
            Self::Other(64) => "SVCB",
            Self::Other(65) => "HTTPS",
            Self::Other(255) => "ANY",
            Self::Other(number) => return write!(f, "TYPE{number}"),
        };
        f.write_str(known)
    }
}

/// A well-formed query.
pub(super) struct Question<'a> {
    id: u16,
    flags: u16,
    /// The name, type and class of the question, as received.
    bytes: &'a [u8],
    labels: Vec<&'a [u8]>,
    kind: u16,
    edns: bool,
}

/// Parses a DNS query; the error is the reply to a malformed query, if it gets one.
pub(super) fn parse(message: &[u8]) -> Result<Question<'_>, Option<Vec<u8>>> {
    let Some((header, _)) = message.split_first_chunk::<HEADER>() else { return Err(None) };
    let [id, flags, questions, answers, authorities, additional] = words(header);
    // A reply to a reply could make two servers answer each other forever.
    if flags & RESPONSE != 0 {
        return Err(None);
    }
    let bad = |code| Err(Some(header_only(id, flags, code)));
    if flags & OPCODE != 0 {
        return bad(Code::NotImplemented);
    }
    let shape = (questions, answers, authorities, additional);
    if flags & TRUNCATED != 0 || !matches!(shape, (1, 0, 0, 0 | 1)) {
        return bad(Code::Format);
    }
    let Some((question, class, rest)) = question(message) else { return bad(Code::Format) };
    if class != CLASS_IN {
        return bad(Code::Refused);
    }
    let question = Question { id, flags, ..question };
    match (additional, rest) {
        (0, []) => Ok(question),
        (1, rest) => match edns_version(rest) {
            Some(0) => Ok(Question { edns: true, ..question }),
            Some(_) => Err(Some(question.bad_version())),
            None => bad(Code::Format),
        },
        _ => bad(Code::Format),
    }
}

fn words(header: &[u8; HEADER]) -> [u16; 6] {
    let &[a, b, c, d, e, f, g, h, i, j, k, l] = header;
    [[a, b], [c, d], [e, f], [g, h], [i, j], [k, l]].map(u16::from_be_bytes)
}

/// Parses the question after the header of a DNS message; returns it with its class and the
/// remaining bytes.
fn question(message: &[u8]) -> Option<(Question<'_>, u16, &[u8])> {
    let start = message.get(HEADER..)?;
    let mut rest = start;
    let mut labels = Vec::new();
    loop {
        let (length, after) = rest.split_first()?;
        rest = after;
        match usize::from(*length) {
            0 => break,
            // Larger values are compression pointers, which a question cannot contain.
            length @ 1..=63 => {
                let (label, after) = rest.split_at_checked(length)?;
                labels.push(label);
                rest = after;
            }
            _ => return None,
        }
    }
    if start.len() - rest.len() > MAX_NAME {
        return None;
    }
    let (&[kind_high, kind_low, class_high, class_low], rest) = rest.split_first_chunk::<4>()?;
    let bytes = start.get(..start.len() - rest.len())?;
    let kind = u16::from_be_bytes([kind_high, kind_low]);
    let class = u16::from_be_bytes([class_high, class_low]);
    Some((Question { id: 0, flags: 0, bytes, labels, kind, edns: false }, class, rest))
}

/// Returns the version of the EDNS record, or `None` if the record is not the whole rest of the
/// message.
fn edns_version(record: &[u8]) -> Option<u8> {
    let (&[root, kind_high, kind_low, _, _, _, version, _, _, high, low], options) =
        record.split_first_chunk::<11>()?;
    let kind = u16::from_be_bytes([kind_high, kind_low]);
    let length = usize::from(u16::from_be_bytes([high, low]));
    (root == 0 && kind == OPT && options.len() == length).then_some(version)
}

impl Question<'_> {
    pub(super) fn kind(&self) -> Kind {
        match self.kind {
            1 => Kind::A,
            28 => Kind::Aaaa,
            other => Kind::Other(other),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the queried name if it is a valid host name; a label with a dot is invalid.
    pub(super) fn name(&self) -> Option<Hostname> {
        let mut text = String::with_capacity(MAX_NAME);
        for label in &self.labels {
            if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
                return None;
            }
            if !text.is_empty() {
                text.push('.');
            }
            text.extend(label.iter().map(|byte| char::from(*byte)));
        }
        text.parse().ok()
    }

    /// Returns the queried name in displayable form, with escapes for special bytes (RFC 4343
    /// §2.1).
    pub(super) fn display(&self) -> String {
        let mut text = String::new();
        for label in &self.labels {
            if !text.is_empty() {
                text.push('.');
            }
            for byte in *label {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
                    text.push(char::from(*byte));
                } else {
                    text.push_str(&format!("\\{byte:03}"));
                }
            }
        }
        text
    }

    pub(super) fn reply(&self, code: Code, address: Option<(IpAddr, u32)>) -> Vec<u8> {
        let mut reply = self.begin(code, u16::from(address.is_some()));
        if let Some((address, ttl)) = address {
            put(&mut reply, &[NAME_POINTER, self.kind, CLASS_IN]);
            reply.extend_from_slice(&ttl.to_be_bytes());
            match address {
                IpAddr::V4(four) => {
                    put(&mut reply, &[4]);
                    reply.extend_from_slice(&four.octets());
                }
                IpAddr::V6(six) => {
                    put(&mut reply, &[16]);
                    reply.extend_from_slice(&six.octets());
                }
            }
        }
        if self.edns {
            put_edns(&mut reply, 0);
        }
        reply
    }

    /// Returns the DNS reply to a query with an unsupported EDNS version.
    fn bad_version(&self) -> Vec<u8> {
        let with = Question { edns: true, labels: Vec::new(), ..*self };
        let mut reply = with.begin(Code::NoError, 0);
        put_edns(&mut reply, 1);
        reply
    }

    fn begin(&self, code: Code, answers: u16) -> Vec<u8> {
        let mut reply = Vec::with_capacity(HEADER + self.bytes.len() + 48);
        put(&mut reply, &[self.id, flags(self.flags, code), 1, answers, 0, u16::from(self.edns)]);
        reply.extend_from_slice(self.bytes);
        reply
    }
}

fn header_only(id: u16, asked: u16, code: Code) -> Vec<u8> {
    let mut reply = Vec::with_capacity(HEADER);
    // The opcode is echoed as well, even if it is unknown.
    put(&mut reply, &[id, flags(asked, code) | asked & OPCODE, 0, 0, 0, 0]);
    reply
}

fn flags(asked: u16, code: Code) -> u16 {
    let echoed = asked & (RECURSION_DESIRED | CHECKING_DISABLED);
    let code = match code {
        Code::NoError => 0,
        Code::Format => 1,
        Code::ServerFailure => 2,
        Code::NoName => 3,
        Code::NotImplemented => 4,
        Code::Refused => 5,
    };
    RESPONSE | RECURSION_AVAILABLE | echoed | code
}

/// Appends an EDNS record to a DNS reply; `high` is the upper part of the response code.
fn put_edns(reply: &mut Vec<u8>, high: u8) {
    reply.push(0);
    put(reply, &[OPT, PAYLOAD]);
    reply.extend_from_slice(&[high, 0, 0, 0, 0, 0]);
}

fn put(reply: &mut Vec<u8>, words: &[u16]) {
    for word in words {
        reply.extend_from_slice(&word.to_be_bytes());
    }
}
