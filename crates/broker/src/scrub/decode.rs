//! Decodes the content codings of a response, so that they cannot hide a secret.
//!
//! Memory and the output of one step are bounded for any input; the caller limits the total output.
//! Truncated content and bytes after its end are errors: a client that reads such content
//! differently could see a secret that the broker missed (B05).

mod gzip;

use std::fmt;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use zstd::stream::raw::{DParameter, InBuffer, Operation as _, OutBuffer};

use gzip::Gzip;

/// The maximum size of the output of one decoding step.
const STEP: usize = 64 * 1024;
/// The maximum number of nested content codings; each one needs memory.
const MAX_CODINGS: usize = 3;
/// The maximum window of zstd as a power of two: 8 MiB, the limit of RFC 9659 for servers.
const ZSTD_WINDOW_LOG: u32 = 23;

/// A content coding (compression) that the broker supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// deflate (RFC 1950), or the raw RFC 1951 that some servers send under this name.
    Deflate,
    /// Brotli (RFC 7932).
    Brotli,
    /// The Zstandard content coding (RFC 8878).
    Zstd,
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        })
    }
}

/// The reason why a compressed response cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// The response uses a content coding that the broker does not support.
    ///
    /// The name of the coding is not shown: the upstream chose it, and it can be a secret (B04).
    #[error(
        "the response has an unknown content coding; the broker knows gzip, deflate, br and zstd"
    )]
    Unknown,
    /// The response has too many nested content codings.
    #[error("the response has more than {MAX_CODINGS} nested content codings")]
    TooMany,
}

/// Returns the content codings of a response in the order of their application.
pub fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, Undecodable> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        for name in value.as_bytes().split(|&byte| byte == b',') {
            match name.trim_ascii().to_ascii_lowercase().as_slice() {
                b"" | b"identity" => {}
                b"gzip" | b"x-gzip" => codings.push(Coding::Gzip),
                b"deflate" => codings.push(Coding::Deflate),
                b"br" => codings.push(Coding::Brotli),
                b"zstd" => codings.push(Coding::Zstd),
                _ => return Err(Undecodable::Unknown),
            }
        }
    }
    if codings.len() > MAX_CODINGS {
        return Err(Undecodable::TooMany);
    }
    Ok(codings)
}

/// The error for content that does not match its content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The compressed content is malformed, or needs too much memory.
    #[error("the compressed response is not valid {0} data")]
    Corrupt(Coding),
    /// The compressed content ends too early.
    #[error("the response is truncated within its {0} coding")]
    Truncated(Coding),
    /// The response continues after the end of the compressed content.
    #[error("the response continues after the end of its {0} coding")]
    Trailing(Coding),
}

/// Decodes compressed content step by step.
pub struct Decoder {
    /// The decoders of all content codings, in the order of decoding.
    stages: Vec<Stage>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| stage.coding)).finish()
    }
}

impl Decoder {
    /// Creates a decoder for content codings in the order of their application.
    pub fn new(codings: &[Coding]) -> Self {
        Self { stages: codings.iter().rev().map(|&coding| Stage::new(coding)).collect() }
    }

    /// Returns whether the content is not compressed.
    pub fn is_identity(&self) -> bool {
        self.stages.is_empty()
    }

    /// Decodes `input` until some decoded content is available, and returns that content. Returns
    /// nothing if all input was consumed and more is needed.
    pub fn step(&mut self, input: &mut Bytes) -> Result<Bytes, DecodeError> {
        step(&mut self.stages, input)
    }

    /// Returns an error if the compressed content is incomplete. Must be called after the last byte
    /// was consumed.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        for stage in &mut self.stages {
            stage.finish()?;
        }
        Ok(())
    }
}

fn step(stages: &mut [Stage], input: &mut Bytes) -> Result<Bytes, DecodeError> {
    let Some((last, before)) = stages.split_last_mut() else { return Ok(std::mem::take(input)) };
    loop {
        if last.input.is_empty() && !last.full {
            last.input = step(before, input)?;
            if last.input.is_empty() {
                return Ok(Bytes::new());
            }
        }
        let out = last.run()?;
        if !out.is_empty() {
            return Ok(out);
        }
    }
}

/// The decoder of one content coding.
struct Stage {
    coding: Coding,
    codec: Codec,
    input: Bytes,
    buffer: Vec<u8>,
    /// Whether the last call filled the output buffer, so that more output can follow without
    /// input.
    full: bool,
    /// Whether any input was received. A response without content has no coding.
    begun: bool,
    /// Whether the end of the compressed content was reached.
    ended: bool,
}

enum Codec {
    Gzip(Gzip),
    /// The first byte of a deflate stream; two bytes show whether the format is RFC 1950 or RFC
    /// 1951.
    DeflateStart(Option<u8>),
    Deflate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    /// The zstd decoder; `None` if the library could not allocate it.
    Zstd(Option<zstd::stream::raw::Decoder<'static>>),
}

/// The result of one call of a decompression library.
struct Progress {
    taken: usize,
    given: usize,
    ended: bool,
}

impl Stage {
    fn new(coding: Coding) -> Self {
        let codec = match coding {
            Coding::Gzip => Codec::Gzip(Gzip::new()),
            Coding::Deflate => Codec::DeflateStart(None),
            Coding::Brotli => {
                let alloc = StandardAlloc::default;
                Codec::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => Codec::Zstd(zstd_decoder()),
        };
        Self {
            coding,
            codec,
            input: Bytes::new(),
            buffer: Vec::new(),
            full: false,
            begun: false,
            ended: false,
        }
    }

    fn run(&mut self) -> Result<Bytes, DecodeError> {
        self.begun = true;
        if self.buffer.is_empty() {
            self.buffer = vec![0; STEP];
        }
        if self.ended {
            if self.input.is_empty() {
                self.full = false;
                return Ok(Bytes::new());
            }
            self.restart()?;
        }
        let progress = self.codec.run(&self.input, &mut self.buffer);
        let progress = progress.ok_or(DecodeError::Corrupt(self.coding))?;
        self.input.advance(progress.taken);
        self.full = progress.given == self.buffer.len();
        self.ended = progress.ended;
        if progress.taken == 0 && progress.given == 0 && !progress.ended && !self.input.is_empty() {
            // No progress is possible, so the loop must end.
            return Err(DecodeError::Corrupt(self.coding));
        }
        Ok(Bytes::copy_from_slice(self.buffer.get(..progress.given).unwrap_or_default()))
    }

    /// Prepares for input after the end of a member: gzip and zstd allow several members.
    fn restart(&mut self) -> Result<(), DecodeError> {
        match &mut self.codec {
            Codec::Gzip(gzip) => {
                *gzip = Gzip::new();
                if self.input.first() != Some(&gzip::MAGIC) {
                    return Err(DecodeError::Trailing(self.coding));
                }
            }
            Codec::Zstd(_) => {}
            Codec::DeflateStart(_) | Codec::Deflate(_) | Codec::Brotli(_) => {
                return Err(DecodeError::Trailing(self.coding));
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), DecodeError> {
        if self.begun && !self.ended {
            return Err(DecodeError::Truncated(self.coding));
        }
        if !self.input.is_empty() {
            return Err(DecodeError::Trailing(self.coding));
        }
        Ok(())
    }
}

impl Codec {
    /// Decodes a piece of input into `output`; `None` if the input is malformed.
    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Option<Progress> {
        match self {
            Self::Gzip(gzip) => gzip.run(input, output),
            Self::DeflateStart(first) => {
                let (taken, &next) = (1, input.first()?);
                let Some(first) = *first else {
                    *first = Some(next);
                    return Some(Progress { taken, given: 0, ended: false });
                };
                // RFC 1950: method 8, and the two bytes are a multiple of 31.
                let zlib = first & 15 == 8 && u16::from_be_bytes([first, next]).is_multiple_of(31);
                let mut deflate = Decompress::new(zlib);
                let begun = inflate(&mut deflate, &[first], output)?;
                *self = Self::Deflate(deflate);
                // One byte is never complete content.
                (begun.taken == 1 && begun.given == 0)
                    .then_some(Progress { taken: 0, given: 0, ended: false })
                    .and_then(|_| self.run(input, output))
            }
            Self::Deflate(deflate) => inflate(deflate, input, output),
            Self::Brotli(state) => {
                let (mut left, mut taken, mut room) = (input.len(), 0, output.len());
                let (mut given, mut total) = (0, 0);
                let result = BrotliDecompressStream(
                    &mut left, &mut taken, input, &mut room, &mut given, output, &mut total, state,
                );
                let ended = match result {
                    BrotliResult::ResultSuccess => true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => false,
                    BrotliResult::ResultFailure => return None,
                };
                Some(Progress { taken, given, ended })
            }
            Self::Zstd(decoder) => {
                let decoder = decoder.as_mut()?;
                let mut from = InBuffer::around(input);
                let mut to = OutBuffer::around(output);
                let hint = decoder.run(&mut from, &mut to).ok()?;
                Some(Progress { taken: from.pos(), given: to.pos(), ended: hint == 0 })
            }
        }
    }
}

fn inflate(deflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> Option<Progress> {
    let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
    let status = deflate.decompress(input, output, FlushDecompress::None).ok()?;
    Some(Progress {
        taken: usize::try_from(deflate.total_in() - before_in).ok()?,
        given: usize::try_from(deflate.total_out() - before_out).ok()?,
        ended: status == Status::StreamEnd,
    })
}

fn zstd_decoder() -> Option<zstd::stream::raw::Decoder<'static>> {
    let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
    Some(decoder)
}
