//! Undoes the content codings of an answer, so that nothing hides in them.
//!
//! Memory and the output of one step are bounded whatever comes in; how much comes out in all is for
//! the reader to limit. What is not whole to the last byte, or goes on after its end, is an error: an
//! answer that we read otherwise than its reader would could hide something from us (B05).

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

/// The most that one step gives.
const STEP: usize = 64 * 1024;
/// Nobody needs more codings one upon the other; each costs memory.
const MAX_CODINGS: usize = 3;
/// Eight MiB, which RFC 9659 allows to servers and no more.
const ZSTD_WINDOW_LOG: u32 = 23;

/// A content coding that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or the raw RFC 1951 that some servers send by that name.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
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

/// An answer whose content nobody here can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// A coding that is none of ours.
    #[error(
        "the content coding `{coding}` cannot be undone, so the answer cannot be looked through"
    )]
    Unknown {
        /// As the upstream named it, made safe to show.
        coding: String,
    },
    /// More codings than anybody needs.
    #[error("more than {MAX_CODINGS} content codings one upon the other")]
    TooMany,
}

/// The codings of an answer in the order in which they were applied.
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
                other => {
                    let shown = other.get(..other.len().min(40)).unwrap_or_default();
                    let coding = shown.escape_ascii().to_string();
                    return Err(Undecodable::Unknown { coding });
                }
            }
        }
    }
    if codings.len() > MAX_CODINGS {
        return Err(Undecodable::TooMany);
    }
    Ok(codings)
}

/// Content that is not what its coding says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not in the format, or asking for more memory than is given.
    #[error("the answer is not valid {0}")]
    Corrupt(Coding),
    /// Ends too early.
    #[error("the answer ends in the middle of its {0} coding")]
    Truncated(Coding),
    /// Goes on after the end.
    #[error("the answer goes on after the end of its {0} coding")]
    Trailing(Coding),
}

/// Undoes codings, step by step.
pub struct Decoder {
    /// In the order in which they are undone.
    stages: Vec<Stage>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| stage.coding)).finish()
    }
}

impl Decoder {
    /// For codings in the order in which they were applied.
    pub fn new(codings: &[Coding]) -> Self {
        Self { stages: codings.iter().rev().map(|&coding| Stage::new(coding)).collect() }
    }

    /// Whether bytes pass as they are.
    pub fn is_identity(&self) -> bool {
        self.stages.is_empty()
    }

    /// Takes from `input` what is needed for the next bytes of content. Nothing comes out when all of
    /// `input` was taken and more is needed.
    pub fn step(&mut self, input: &mut Bytes) -> Result<Bytes, DecodeError> {
        step(&mut self.stages, input)
    }

    /// To be called after the last byte was taken: whether the content is whole.
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

/// One coding being undone.
struct Stage {
    coding: Coding,
    codec: Codec,
    input: Bytes,
    buffer: Vec<u8>,
    /// The last run filled the buffer, so the codec may have more without more input.
    full: bool,
    /// Anything came in at all. An answer without content has no coding either.
    begun: bool,
    /// The end was reached.
    ended: bool,
}

enum Codec {
    Gzip(Gzip),
    /// Which of the two kinds it is shows in the first two bytes.
    DeflateStart(Option<u8>),
    Deflate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    /// Not made, if the library has no memory for it.
    Zstd(Option<zstd::stream::raw::Decoder<'static>>),
}

/// What one run of a codec did.
struct Ran {
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
            self.again()?;
        }
        let ran = self.codec.run(&self.input, &mut self.buffer);
        let ran = ran.ok_or(DecodeError::Corrupt(self.coding))?;
        self.input.advance(ran.taken);
        self.full = ran.given == self.buffer.len();
        self.ended = ran.ended;
        if ran.taken == 0 && ran.given == 0 && !ran.ended && !self.input.is_empty() {
            // No progress is possible; never loop upon that.
            return Err(DecodeError::Corrupt(self.coding));
        }
        Ok(Bytes::copy_from_slice(self.buffer.get(..ran.given).unwrap_or_default()))
    }

    /// More input after an end: gzip and zstd may follow upon themselves.
    fn again(&mut self) -> Result<(), DecodeError> {
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
    /// None if the input is not in the format.
    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Option<Ran> {
        match self {
            Self::Gzip(gzip) => gzip.run(input, output),
            Self::DeflateStart(first) => {
                let (taken, &next) = (1, input.first()?);
                let Some(first) = *first else {
                    *first = Some(next);
                    return Some(Ran { taken, given: 0, ended: false });
                };
                // RFC 1950: method 8, and the two bytes are a multiple of 31.
                let zlib = first & 15 == 8 && u16::from_be_bytes([first, next]).is_multiple_of(31);
                let mut deflate = Decompress::new(zlib);
                let begun = inflate(&mut deflate, &[first], output)?;
                *self = Self::Deflate(deflate);
                // One byte is never the whole of it.
                (begun.taken == 1 && begun.given == 0)
                    .then_some(Ran { taken: 0, given: 0, ended: false })
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
                Some(Ran { taken, given, ended })
            }
            Self::Zstd(decoder) => {
                let decoder = decoder.as_mut()?;
                let mut from = InBuffer::around(input);
                let mut to = OutBuffer::around(output);
                let hint = decoder.run(&mut from, &mut to).ok()?;
                Some(Ran { taken: from.pos(), given: to.pos(), ended: hint == 0 })
            }
        }
    }
}

fn inflate(deflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> Option<Ran> {
    let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
    let status = deflate.decompress(input, output, FlushDecompress::None).ok()?;
    Some(Ran {
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
