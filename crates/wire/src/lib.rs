//! Frame codec and messages between a worker inside a box and its supervisor on the host.
//!
//! A frame is a 4-byte length and JSON. The worker receives its job and responses on standard input and
//! sends messages on standard output. Output of a box is untrusted: the length of a frame is checked
//! before the frame is read, and this crate does not interpret the content.
//!
//! Both the worker and the supervisor link this crate, so it has few dependencies.

#![forbid(unsafe_code)]

mod model;
pub mod schema;

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use model::{
    InputSource, ModelAnswer, ModelFailure, ModelFailureKind, ModelInput, ModelJob, ModelOutput,
    ModelProtocol, ModelUsage, ToolJob,
};

/// Maximum length of the JSON text in a frame, in bytes.
pub const MAX_FRAME: usize = 32 << 20;

/// The job of a worker; each worker carries out one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// The worker runs a program in its JavaScript engine; the output is sent in frames.
    Script(Script),
    /// The worker executes another program, which inherits the standard streams.
    Program(Program),
    /// The worker forwards lines of JSON-RPC to an MCP server over HTTP.
    Bridge(HttpServerJob),
    /// The worker asks a language model; the result is sent in a frame.
    Model(ModelJob),
}

/// A TypeScript or JavaScript program that the worker runs in its JavaScript engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    pub code: String,
    pub language: Dialect,
    /// The file name of the program in error messages, such as `main.ts`.
    pub file: String,
    /// The JSON text that becomes the global variable `input` of the program.
    pub input: Option<String>,
    /// The modules that the program can import, in addition to the built-in ones.
    pub modules: Vec<Module>,
    /// The modules whose default export becomes `apis.NAME`: clients of declared services.
    pub apis: Vec<Named>,
    /// The tools of MCP servers, which become `tools.SERVER.FUNCTION(input)`.
    pub tools: Vec<ToolRef>,
    /// The heap limit of the JavaScript engine in bytes; the memory limit of the box is higher.
    pub memory: u64,
}

/// The language of a program or module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    Ts,
    Js,
}

/// The source code of a module that a program can import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The import specifier of the module: `skill:NAME`, `lib:NAME` or `api:NAME`.
    pub specifier: String,
    pub language: Dialect,
    pub source: String,
}

/// A global name in the program, and the module that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub specifier: String,
}

/// A tool of an MCP server that a program can call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRef {
    pub server: String,
    /// The name of the tool's function in programs.
    pub function: String,
    /// The name of the tool on its MCP server.
    pub tool: String,
}

/// A program that the worker executes in its own place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub argv: Vec<String>,
    /// The environment variables in addition to those of the box.
    pub env: Vec<(String, String)>,
    /// The files to write before the program starts, with mode 0600: absolute path and content.
    pub files: Vec<(String, String)>,
    pub workdir: Option<String>,
    /// The content of the program's standard input, which it reads from an unlinked file.
    pub stdin: Option<String>,
}

/// The job to connect to an MCP server over HTTP: its URL and headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpServerJob {
    pub url: String,
    /// The HTTP headers in addition to those of the protocol. Values can be placeholders of
    /// secrets.
    pub headers: Vec<(String, String)>,
}

/// A message from the host to a worker after its job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToWorker {
    /// The result of the tool call [`FromWorker::Call`], or an error message.
    Answer { id: u64, value: Result<Box<RawValue>, String> },
}

/// A message from a worker to the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromWorker {
    /// The worker has started and waits for its job.
    Ready,
    /// Text that the program printed.
    Output { stream: Stream, text: String },
    /// The program calls a tool of an MCP server and waits for [`ToWorker::Answer`].
    Call { id: u64, server: String, tool: String, input: Box<RawValue> },
    /// The program has ended.
    Done(ProgramResult),
}

/// An output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The result of a program in the JavaScript engine: its return value or its error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramResult {
    /// The return value of the program as JSON.
    pub value: Option<Box<RawValue>>,
    /// The error of the program, if it failed.
    pub trouble: Option<ProgramError>,
}

/// An exception that a program threw, or a syntax error in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramError {
    /// The class of the error, such as `TypeError` or `SyntaxError`.
    pub name: String,
    pub message: String,
    /// The stack trace of the error, with the lines of the user's program.
    pub stack: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// The reason why a frame could not be read or decoded.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the message frame of {length} bytes exceeds the limit of {MAX_FRAME} bytes")]
    TooLong { length: usize },
    #[error("the frame does not contain a valid message of the worker protocol")]
    Malformed { source: serde_json::Error },
    #[error("cannot read a message frame of the worker protocol")]
    Read { source: io::Error },
}

/// Writes a message as one frame and flushes the stream.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// Encodes a message as one frame.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    let head = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
    let head = head.ok_or_else(|| io::Error::other(FrameError::TooLong { length }))?;
    bytes.splice(..4, head.to_le_bytes());
    Ok(bytes)
}

/// Reads one frame and decodes its message; `None` at the end of the stream. Returns `None` at the
/// end of the stream.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, FrameError> {
    read_at_most(from, MAX_FRAME)
}

/// Reads one frame of at most `limit` bytes. Returns `None` at the end of the stream.
pub fn read_at_most<T: DeserializeOwned>(
    from: &mut impl Read,
    limit: usize,
) -> Result<Option<T>, FrameError> {
    let mut head = [0; 4];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(|source| FrameError::Read { source })?,
    }
    let length = checked_length(head)?;
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
    buffer: Vec<u8>,
}

impl FrameDecoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Removes and returns the bytes after the last frame, for a stream that continues without frames.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Returns the message of the next frame, or `None` if the frame is incomplete.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let length = checked_length(*head)?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = parse(body);
        self.buffer.drain(..length + 4);
        message.map(Some)
    }
}

/// Decodes the length of a frame; an error if it exceeds the limit. Fails if the length exceeds
/// [`MAX_FRAME`].
fn checked_length(head: [u8; 4]) -> Result<usize, FrameError> {
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
    fn frame_decoder_returns_the_same_frames_wherever_the_bytes_are_split() {
        let output =
            |text: &str| FromWorker::Output { stream: Stream::Stdout, text: text.to_owned() };
        let bytes =
            [encode(&output("one")).unwrap(), encode(&output("two\u{2028}")).unwrap()].concat();
        for at in 0..=bytes.len() {
            let mut decoder = FrameDecoder::default();
            let mut texts = Vec::new();
            for part in [&bytes[..at], &bytes[at..]] {
                decoder.push(part);
                while let Some(FromWorker::Output { text, .. }) = decoder.take().unwrap() {
                    texts.push(text);
                }
            }
            assert_eq!(texts, ["one", "two\u{2028}"], "split at {at}");
        }
    }

    #[test]
    fn frame_above_the_size_limit_is_refused_before_its_body_arrives() {
        let mut decoder = FrameDecoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.take::<FromWorker>(), Err(FrameError::TooLong { .. })));
        assert!(matches!(
            read::<FromWorker>(&mut &u32::MAX.to_le_bytes()[..]),
            Err(FrameError::TooLong { .. })
        ));
    }

    #[test]
    fn frame_read_reports_a_malformed_message_and_returns_none_at_the_end() {
        let mut bytes = 3_u32.to_le_bytes().to_vec();
        bytes.extend(b"{}}");
        assert!(matches!(read::<FromWorker>(&mut &bytes[..]), Err(FrameError::Malformed { .. })));
        assert!(read::<FromWorker>(&mut &[][..]).unwrap().is_none());
    }
}
