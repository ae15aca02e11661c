//! What passes between a worker inside its box and the process outside that watches it.
//!
//! Frames of a length and JSON: jobs and answers on the worker's standard input, what it says on its
//! standard output. What comes out of a box is a stranger's: every frame is bounded before it is read,
//! and nothing in it is believed.
//!
//! Both sides of the boundary link this crate, so its dependencies are few.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// No frame is longer.
pub const MAX_FRAME: usize = 32 << 20;

/// What a worker does, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Runs in the engine; what it says comes in frames.
    Script(Script),
    /// Becomes another program, whose output is its own.
    Program(Program),
    /// Passes lines of JSON-RPC on to a server that is reached by HTTP.
    Bridge(HttpServerJob),
}

/// A program for the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    pub code: String,
    pub language: Dialect,
    /// How the program is called in messages: `main.ts`.
    pub file: String,
    /// JSON text; the program finds it as `input`.
    pub input: Option<String>,
    /// What it can import beside what is built in, by exact specifier.
    pub modules: Vec<Module>,
    /// Clients of declared services, by name: modules of `modules` whose default export becomes
    /// `apis.NAME`.
    pub apis: Vec<Named>,
    /// Functions of other servers, which become `tools.SERVER.FUNCTION(input)`.
    pub tools: Vec<ToolRef>,
    /// Bytes of heap for the engine; the box has its own limit above it.
    pub memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    Ts,
    Js,
}

/// The source of something that can be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// `skill:NAME`, `lib:NAME`, `api:NAME`.
    pub specifier: String,
    pub language: Dialect,
    pub source: String,
}

/// A name in the program and the module behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub specifier: String,
}

/// A function of another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRef {
    pub server: String,
    /// As it is called in programs.
    pub function: String,
    /// As its server calls it.
    pub tool: String,
}

/// Another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub argv: Vec<String>,
    /// Beside what the box has.
    pub env: Vec<(String, String)>,
    /// Written before it starts, with mode 0600: absolute path and content.
    pub files: Vec<(String, String)>,
    pub workdir: Option<String>,
    /// What it finds on its standard input, from a file that is gone already.
    pub stdin: Option<String>,
}

/// A server that is reached by HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpServerJob {
    pub url: String,
    /// Beside those of the protocol. Values may be placeholders.
    pub headers: Vec<(String, String)>,
}

/// What a worker hears after its job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToWorker {
    /// What came of [`FromWorker::Call`].
    Answer { id: u64, value: Result<Box<RawValue>, String> },
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromWorker {
    /// It is there and waits for its job.
    Ready,
    Output {
        stream: Stream,
        text: String,
    },
    /// The program calls a function of another server and waits for [`ToWorker::Answer`].
    Call {
        id: u64,
        server: String,
        tool: String,
        input: Box<RawValue>,
    },
    /// The program is over.
    Done(ProgramResult),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How a program in the engine ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramResult {
    /// What it gave, as JSON.
    pub value: Option<Box<RawValue>>,
    pub trouble: Option<ProgramError>,
}

/// What a program threw, or what was wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramError {
    /// `TypeError`, `SyntaxError`, …
    pub name: String,
    pub message: String,
    /// Lines of the user's own program.
    pub stack: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// Why no frame came.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {length} bytes, where {MAX_FRAME} are the most")]
    TooLong { length: usize },
    #[error("a frame that is no message")]
    Malformed { source: serde_json::Error },
    #[error("read a frame")]
    Read { source: io::Error },
}

/// Writes one frame.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// The bytes of one frame.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    let head = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
    let head = head.ok_or_else(|| io::Error::other(FrameError::TooLong { length }))?;
    bytes.splice(..4, head.to_le_bytes());
    Ok(bytes)
}

/// Reads one frame; none when there are no more.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, FrameError> {
    read_at_most(from, MAX_FRAME)
}

/// Reads one frame of at most `limit` bytes. `None`: the stream ended.
pub fn read_at_most<T: DeserializeOwned>(
    from: &mut impl Read,
    limit: usize,
) -> Result<Option<T>, FrameError> {
    let mut head = [0; 4];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(|source| FrameError::Read { source })?,
    }
    let length = bounded(head)?;
    if length > limit {
        return Err(FrameError::TooLong { length });
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).map_err(|source| FrameError::Read { source })?;
    parse(&body).map(Some)
}

/// Decodes frames from bytes that arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    kept: Vec<u8>,
}

impl FrameDecoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// What came behind the last frame, when what follows is no frame any more.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// The next frame, if all of it is there.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((head, rest)) = self.kept.split_first_chunk::<4>() else { return Ok(None) };
        let length = bounded(*head)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = parse(body);
        self.kept.drain(..length + 4);
        message.map(Some)
    }
}

fn bounded(head: [u8; 4]) -> Result<usize, FrameError> {
    let length = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
    if length > MAX_FRAME { Err(FrameError::TooLong { length }) } else { Ok(length) }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(|source| FrameError::Malformed { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_wherever_the_bytes_are_cut() {
        let said =
            |text: &str| FromWorker::Output { stream: Stream::Stdout, text: text.to_owned() };
        let bytes = [encode(&said("one")).unwrap(), encode(&said("two\u{2028}")).unwrap()].concat();
        for at in 0..=bytes.len() {
            let mut decoder = FrameDecoder::default();
            let mut texts = Vec::new();
            for part in [&bytes[..at], &bytes[at..]] {
                decoder.push(part);
                while let Some(FromWorker::Output { text, .. }) = decoder.take().unwrap() {
                    texts.push(text);
                }
            }
            assert_eq!(texts, ["one", "two\u{2028}"], "cut at {at}");
        }
    }

    #[test]
    fn a_length_that_nobody_may_say_is_refused_before_anything_is_kept() {
        let mut decoder = FrameDecoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.take::<FromWorker>(), Err(FrameError::TooLong { .. })));
        assert!(matches!(
            read::<FromWorker>(&mut &u32::MAX.to_le_bytes()[..]),
            Err(FrameError::TooLong { .. })
        ));
    }

    #[test]
    fn what_is_no_message_is_told() {
        let mut bytes = 3_u32.to_le_bytes().to_vec();
        bytes.extend(b"{}}");
        assert!(matches!(read::<FromWorker>(&mut &bytes[..]), Err(FrameError::Malformed { .. })));
        assert!(read::<FromWorker>(&mut &[][..]).unwrap().is_none());
    }
}
