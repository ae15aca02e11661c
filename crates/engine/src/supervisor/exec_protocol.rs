//! Kept execs: programs in a named box that belong to its supervisor and outlive their clients.
//!
//! A client starts an exec, asks for its status and signals it with the messages of [`super::protocol`].
//! After `AttachExec` the connection carries the frames of this module in both directions. A frame is one
//! byte for its kind, a number of eight bytes and the length of its data in four bytes (both big-endian),
//! and at most [`MAX_DATA`] bytes of data.
//!
//! Each byte of an output stream and of the input has an offset, so a client that connects again continues
//! at any offset that the supervisor still keeps. A client has at most [`WINDOW`] bytes of output that it has
//! not acknowledged, and of input that the program has not read.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use belljar_wire::Stream;

use crate::screen::protocol::Size;

/// The number of bytes of each output stream that the supervisor keeps.
pub const KEPT_OUTPUT: usize = 1 << 20;
/// The maximum number of unacknowledged bytes in each direction.
pub const WINDOW: u64 = 256 * 1024;
/// The maximum length of the data of a frame.
pub const MAX_DATA: usize = 64 * 1024;
/// The maximum length of the output in a frame. A server holds one frame for each client.
pub(super) const MAX_OUTPUT: usize = 8 * 1024;
/// The length of a frame without its data.
const HEADER: usize = 13;

/// The id of a kept exec: 128 random bits that the client chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(pub [u8; 16]);

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not the id of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an exec id has 32 characters of 0-9 and a-f")]
pub struct InvalidExecId;

impl FromStr for ExecId {
    type Err = InvalidExecId;

    fn from_str(text: &str) -> Result<Self, InvalidExecId> {
        let mut bytes = [0; 16];
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        hex::decode_to_slice(text, &mut bytes).map_err(|_| InvalidExecId)?;
        is_lower.then_some(Self(bytes)).ok_or(InvalidExecId)
    }
}

impl Serialize for ExecId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExecId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The state of a kept exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStatus {
    pub id: ExecId,
    /// The start of the command line.
    pub argv: Vec<Vec<u8>>,
    pub has_terminal: bool,
    /// The principal that started the exec.
    pub maker: String,
    /// The time of the start, in milliseconds since the epoch.
    pub started: u64,
    /// How and when the program ended. `None` while the program runs or its last output is read.
    pub end: Option<ExecEnding>,
    /// The number of bytes of input that the program has read.
    pub stdin_offset: u64,
    pub stdout: KeptRange,
    pub stderr: KeptRange,
}

/// How a kept exec ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecEnding {
    /// The time in milliseconds since the epoch.
    pub at: u64,
    pub exit: Option<i32>,
    pub signal: Option<i32>,
}

/// The bytes of a stream that the supervisor keeps: the offset of the first one, and the offset after the
/// last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRange {
    pub start: u64,
    pub end: u64,
}

/// A frame from a client to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToExec<'a> {
    /// Input from this offset. Bytes that the supervisor has already are ignored.
    Input {
        offset: u64,
        data: &'a [u8],
    },
    EndOfInput,
    /// The client has received all bytes before this offset.
    Received {
        stream: Stream,
        offset: u64,
    },
    Signal(i32),
    /// The new size of the program's terminal.
    Resize(Size),
}

/// A frame from the supervisor to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromExec<'a> {
    Output {
        stream: Stream,
        offset: u64,
        data: &'a [u8],
    },
    /// The supervisor no longer has the bytes from the offset `from` to the offset `to`.
    Gap {
        stream: Stream,
        from: u64,
        to: u64,
    },
    /// The program has read all input before this offset.
    InputRead {
        offset: u64,
    },
    /// The program has ended, and all its output was sent. This is the last frame.
    Exited {
        code: i32,
    },
    /// A signal ended the program, and all its output was sent. This is the last frame.
    Killed {
        signal: i32,
    },
    /// Another client has attached. This is the last frame.
    TakenOver,
    /// The client broke a rule of the protocol. This is the last frame.
    Refused(Violation),
}

/// A rule of the protocol that a client broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The client sent more than [`WINDOW`] bytes that the program has not read.
    TooMuchInput,
    /// The input starts behind the end of the input before.
    MissingInput,
    /// The client sent input after the end of the input.
    InputAfterEnd,
    /// The client acknowledged output that was not sent.
    UnsentOutput,
}

impl Violation {
    const ALL: [Self; 4] =
        [Self::TooMuchInput, Self::MissingInput, Self::InputAfterEnd, Self::UnsentOutput];

    const fn number(self) -> u8 {
        match self {
            Self::TooMuchInput => 0,
            Self::MissingInput => 1,
            Self::InputAfterEnd => 2,
            Self::UnsentOutput => 3,
        }
    }

    /// Describes the rule for the client.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooMuchInput => {
                "the client sent more than 256 KiB of input that the program has not read; \
                 wait for `ack`"
            }
            Self::MissingInput => {
                "bytes of the input are missing; send the input from `stdin_offset`"
            }
            Self::InputAfterEnd => "the client sent input after `eof`",
            Self::UnsentOutput => "the client acknowledged output that was not sent",
        }
    }
}

/// A peer sent bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of an exec is malformed")]
pub struct MalformedFrame;

impl ToExec<'_> {
    /// Appends the frame to a buffer.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Input { offset, data } => push(to, 0, offset, data),
            Self::EndOfInput => push(to, 1, 0, &[]),
            Self::Received { stream: Stream::Stdout, offset } => push(to, 2, offset, &[]),
            Self::Received { stream: Stream::Stderr, offset } => push(to, 3, offset, &[]),
            Self::Signal(number) => push(to, 4, signed(number), &[]),
            Self::Resize(Size { rows, columns }) => {
                push(to, 5, u64::from(rows) << 16 | u64::from(columns), &[]);
            }
        }
    }
}

impl<'a> ToExec<'a> {
    /// Decodes the first frame of a buffer and returns it with its length. `None` if it is incomplete.
    pub fn decode(buffer: &'a [u8]) -> Result<Option<(Self, usize)>, MalformedFrame> {
        let Some(Raw { kind, number, data, length }) = Raw::decode(buffer)? else {
            return Ok(None);
        };
        let frame = match (kind, data.is_empty()) {
            (0, _) => Self::Input { offset: number, data },
            (1, true) => Self::EndOfInput,
            (2, true) => Self::Received { stream: Stream::Stdout, offset: number },
            (3, true) => Self::Received { stream: Stream::Stderr, offset: number },
            (4, true) => Self::Signal(unsigned(number)?),
            (5, true) => {
                let size = u32::try_from(number).map_err(|_| MalformedFrame)?;
                let part = |bits: u32| u16::try_from(bits & 0xffff).map_err(|_| MalformedFrame);
                Self::Resize(Size { rows: part(size >> 16)?, columns: part(size)? })
            }
            _ => return Err(MalformedFrame),
        };
        Ok(Some((frame, length)))
    }
}

impl FromExec<'_> {
    /// Appends the frame to a buffer.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Output { stream: Stream::Stdout, offset, data } => push(to, 0, offset, data),
            Self::Output { stream: Stream::Stderr, offset, data } => push(to, 1, offset, data),
            Self::Gap { stream: Stream::Stdout, from, to: end } => {
                push(to, 2, from, &end.to_be_bytes());
            }
            Self::Gap { stream: Stream::Stderr, from, to: end } => {
                push(to, 3, from, &end.to_be_bytes());
            }
            Self::InputRead { offset } => push(to, 4, offset, &[]),
            Self::Exited { code } => push(to, 5, signed(code), &[]),
            Self::Killed { signal } => push(to, 6, signed(signal), &[]),
            Self::TakenOver => push(to, 7, 0, &[]),
            Self::Refused(violation) => push(to, 8, violation.number().into(), &[]),
        }
    }
}

impl<'a> FromExec<'a> {
    /// Decodes the first frame of a buffer and returns it with its length. `None` if it is incomplete.
    pub fn decode(buffer: &'a [u8]) -> Result<Option<(Self, usize)>, MalformedFrame> {
        let Some(Raw { kind, number, data, length }) = Raw::decode(buffer)? else {
            return Ok(None);
        };
        let gap = |stream| {
            let end = data.try_into().map_err(|_| MalformedFrame)?;
            Ok(Self::Gap { stream, from: number, to: u64::from_be_bytes(end) })
        };
        let frame = match kind {
            0 => Self::Output { stream: Stream::Stdout, offset: number, data },
            1 => Self::Output { stream: Stream::Stderr, offset: number, data },
            2 => gap(Stream::Stdout)?,
            3 => gap(Stream::Stderr)?,
            4 => Self::InputRead { offset: number },
            5 => Self::Exited { code: unsigned(number)? },
            6 => Self::Killed { signal: unsigned(number)? },
            7 => Self::TakenOver,
            8 => {
                let mut all = Violation::ALL.into_iter();
                let found = all.find(|known| u64::from(known.number()) == number);
                Self::Refused(found.ok_or(MalformedFrame)?)
            }
            _ => return Err(MalformedFrame),
        };
        Ok(Some((frame, length)))
    }
}

/// A frame whose kind is not interpreted.
struct Raw<'a> {
    kind: u8,
    number: u64,
    data: &'a [u8],
    /// The length of the whole frame.
    length: usize,
}

impl<'a> Raw<'a> {
    fn decode(buffer: &'a [u8]) -> Result<Option<Self>, MalformedFrame> {
        let Some((head, rest)) = buffer.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [kind, head @ ..] = *head;
        let (number, length) = head.split_at(8);
        let number = number.try_into().map_err(|_| MalformedFrame)?;
        let length = length.try_into().map_err(|_| MalformedFrame)?;
        let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| MalformedFrame)?;
        if length > MAX_DATA {
            return Err(MalformedFrame);
        }
        let Some(data) = rest.get(..length) else { return Ok(None) };
        let number = u64::from_be_bytes(number);
        Ok(Some(Self { kind, number, data, length: HEADER + length }))
    }
}

/// Appends a frame. The caller sends at most [`MAX_DATA`] bytes of data.
fn push(to: &mut Vec<u8>, kind: u8, number: u64, data: &[u8]) {
    to.push(kind);
    to.extend_from_slice(&number.to_be_bytes());
    to.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(data);
}

/// Converts an exit status or a signal, which is never negative.
fn signed(number: i32) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn unsigned(number: u64) -> Result<i32, MalformedFrame> {
    i32::try_from(number).map_err(|_| MalformedFrame)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: Size = Size { rows: 40, columns: 65_535 };

    #[test]
    fn exec_id_survives_a_round_trip_and_other_texts_are_refused() {
        let id = ExecId([0xab; 16]);
        assert_eq!(id.to_string(), "ab".repeat(16));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(serde_json::from_str::<ExecId>(&format!("\"{id}\"")).unwrap(), id);
        for text in ["", "ab", &"AB".repeat(16), &"ab".repeat(17), &"gg".repeat(16)] {
            assert_eq!(text.parse::<ExecId>(), Err(InvalidExecId), "{text}");
        }
    }

    #[test]
    fn each_frame_survives_a_round_trip_and_is_incomplete_without_its_last_byte() {
        let to_exec = [
            ToExec::Input { offset: 1 << 40, data: b"keys" },
            ToExec::Input { offset: 0, data: b"" },
            ToExec::EndOfInput,
            ToExec::Received { stream: Stream::Stdout, offset: 7 },
            ToExec::Received { stream: Stream::Stderr, offset: u64::MAX },
            ToExec::Signal(15),
            ToExec::Resize(SIZE),
        ];
        for frame in to_exec {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            assert_eq!(ToExec::decode(&bytes), Ok(Some((frame, bytes.len()))));
            assert_eq!(ToExec::decode(&bytes[..bytes.len() - 1]), Ok(None), "{frame:?}");
        }
        let refused = Violation::ALL.map(FromExec::Refused);
        let from_exec = [
            FromExec::Output { stream: Stream::Stdout, offset: 9, data: b"out" },
            FromExec::Output { stream: Stream::Stderr, offset: 1 << 50, data: b"err" },
            FromExec::Gap { stream: Stream::Stdout, from: 1, to: 2 },
            FromExec::Gap { stream: Stream::Stderr, from: 3, to: u64::MAX },
            FromExec::InputRead { offset: 5 },
            FromExec::Exited { code: 255 },
            FromExec::Killed { signal: 9 },
            FromExec::TakenOver,
        ];
        for frame in from_exec.into_iter().chain(refused) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            assert_eq!(FromExec::decode(&bytes), Ok(Some((frame, bytes.len()))));
            assert_eq!(FromExec::decode(&bytes[..bytes.len() - 1]), Ok(None), "{frame:?}");
        }
    }

    #[test]
    fn frame_above_the_size_limit_is_refused_before_its_data_arrives() {
        let mut bytes = vec![0; 9];
        bytes.extend(u32::try_from(MAX_DATA + 1).unwrap().to_be_bytes());
        assert_eq!(ToExec::decode(&bytes), Err(MalformedFrame));
        assert_eq!(FromExec::decode(&bytes), Err(MalformedFrame));
        *bytes.last_mut().unwrap() = 0;
        assert_eq!(ToExec::decode(&bytes), Ok(None), "control");
    }

    proptest! {
        #[test]
        fn decoding_random_bytes_never_panics_and_never_exceeds_the_buffer(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(Some((_, length))) = ToExec::decode(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Ok(Some((_, length))) = FromExec::decode(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
