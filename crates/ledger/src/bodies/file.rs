//! The file format of one stored body, as in `docs/ledger-format.md`.
//!
//! **Invariant:** no byte of a content is returned before the whole content was checked against its
//! commitment. The returned bytes are then compared with the checked ones, piece by piece.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Take, Write};
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

use super::Wanted;
use crate::body::{Body, Committing, Salt};
use crate::bytes::Cursor;
use crate::digest::Digest;

const MAGIC: &[u8; 8] = b"BJBODY1\n";
pub(super) const HEAD: usize = MAGIC.len() + Digest::LENGTH + 8;
const LEVEL: i32 = 3; // zstd's default
const MAX_WINDOW: u32 = 23; // 8 MiB: RFC 8878, section 3.1.1.1.2
const PIECE: usize = 64 * 1024;

/// Why a content was not written to its file.
#[derive(Debug)]
pub(super) enum WriteError {
    Content(io::Error),
    File(io::Error),
}

/// Why a file does not contain the wanted body.
#[derive(Debug)]
pub(super) enum FileFault {
    File(io::Error),
    Damaged(&'static str),
}

/// A body that was checked against its commitment.
#[derive(Debug)]
pub(super) struct Checked<'f> {
    file: &'f File,
    length: u64,
    pieces: Vec<Digest>,
}

/// Writes the content into an empty file without syncing it; `also` hashes the content too.
pub(super) fn write(
    file: &File,
    content: &mut dyn Read,
    salt: Salt,
    mut also: Option<&mut Sha256>,
) -> Result<Body, WriteError> {
    let mut committing = Committing::new(salt);
    let mut out = BufWriter::new(file);
    out.write_all(&[0; HEAD]).map_err(WriteError::File)?; // known at the end only
    let mut encoder = Encoder::new(out, LEVEL).map_err(WriteError::File)?;
    let mut piece = vec![0; PIECE];
    loop {
        let count = match content.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(WriteError::Content(error)),
        };
        let part = piece.get(..count).unwrap_or_default();
        committing.update(part);
        if let Some(also) = &mut also {
            also.update(part);
        }
        encoder.write_all(part).map_err(WriteError::File)?;
    }
    encoder.finish().and_then(|mut out| out.flush()).map_err(WriteError::File)?;
    let body = committing.finish().kept();
    seal(file, &body).map_err(WriteError::File)?;
    Ok(body)
}

fn seal(file: &File, body: &Body) -> io::Result<()> {
    file.write_all_at(&head(body.hash(), body.size()), 0)?;
    let length = file.metadata()?.len();
    let check = hash(file, length)?;
    file.write_all_at(check.as_bytes(), length)
}

fn head(hash: Digest, size: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let size = size.to_be_bytes();
    let bytes = MAGIC.iter().chain(hash.as_bytes()).chain(&size);
    head.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    head
}

/// Returns the size of the content as stated in the header of the file.
pub(super) fn size(file: &File) -> io::Result<Option<u64>> {
    let mut head = [0; HEAD];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut cursor = Cursor::new(&head);
    let is_body = cursor.take(MAGIC.len()) == Some(MAGIC);
    let size = cursor.array::<{ Digest::LENGTH }>().and_then(|_| cursor.u64());
    Ok(size.filter(|_| is_body))
}

/// Checks a file without its salt, and returns its length without the checksum.
pub(super) fn check_outside(file: &File, body: Digest, size: u64) -> Result<u64, FileFault> {
    let length = file.metadata().map_err(FileFault::File)?.len();
    let length = length
        .checked_sub(Digest::LENGTH as u64)
        .filter(|length| *length >= HEAD as u64)
        .ok_or(FileFault::Damaged("the file is truncated"))?;
    let mut found = [0; HEAD];
    file.read_exact_at(&mut found, 0).map_err(FileFault::of)?;
    if found != head(body, size) {
        return Err(FileFault::Damaged("the file does not start like the file of this body"));
    }
    let mut end = [0; Digest::LENGTH];
    file.read_exact_at(&mut end, length).map_err(FileFault::of)?;
    if hash(file, length).map_err(FileFault::of)? != Digest::new(end) {
        return Err(FileFault::Damaged("the file does not match its checksum"));
    }
    Ok(length)
}

/// Reads the whole file and checks its content against the wanted body.
pub(super) fn check<'f>(file: &'f File, wanted: &Wanted) -> Result<Checked<'f>, FileFault> {
    let length = check_outside(file, wanted.hash, wanted.size)?;
    let mut committing = Committing::new(wanted.salt);
    let mut pieces = Vec::new();
    decompress(file, length, wanted.size, |piece| {
        committing.update(piece);
        pieces.push(Digest::of(&[piece]));
        Ok(())
    })?;
    let body = committing.finish();
    match (body.hash(), body.size()) == (wanted.hash, wanted.size) {
        true => Ok(Checked { file, length, pieces }),
        false => Err(FileFault::Damaged("the content does not match its commitment")),
    }
}

impl Checked<'_> {
    /// Writes the checked content to `out`; a concurrent change of the file is detected.
    pub(super) fn write_to(&self, size: u64, out: &mut dyn Write) -> Result<(), CopyError> {
        let mut pieces = self.pieces.iter();
        let mut refused = None;
        let done = decompress(self.file, self.length, size, |piece| {
            if pieces.next() != Some(&Digest::of(&[piece])) {
                return Err(FileFault::Damaged("the file changed during the read"));
            }
            out.write_all(piece).map_err(|error| {
                refused = Some(error);
                FileFault::Damaged("")
            })
        });
        match (refused, done) {
            (Some(error), _) => Err(CopyError::Out(error)),
            (None, Err(fault)) => Err(CopyError::FileFault(fault)),
            (None, Ok(())) => Ok(()),
        }
    }
}

/// Why a checked content was not copied to the output.
#[derive(Debug)]
pub(super) enum CopyError {
    FileFault(FileFault),
    Out(io::Error),
}

/// Passes the content to `show` in pieces of equal length except for the last, at most `size`
/// bytes.
fn decompress(
    file: &File,
    length: u64,
    size: u64,
    mut show: impl FnMut(&[u8]) -> Result<(), FileFault>,
) -> Result<(), FileFault> {
    let mut from = file;
    from.seek(SeekFrom::Start(HEAD as u64)).map_err(FileFault::File)?;
    let source: BufReader<Take<&File>> = BufReader::new(from.take(length - HEAD as u64));
    let mut decoder = Decoder::with_buffer(source).map_err(FileFault::of)?.single_frame();
    decoder.window_log_max(MAX_WINDOW).map_err(FileFault::of)?;
    let mut piece = vec![0; PIECE];
    let mut left = size;
    loop {
        let filled = fill(&mut decoder, &mut piece).map_err(FileFault::of)?;
        left = left
            .checked_sub(filled as u64)
            .ok_or(FileFault::Damaged("the content is longer than the header states"))?;
        if filled > 0 {
            show(piece.get(..filled).unwrap_or_default())?;
        }
        if filled < PIECE {
            break;
        }
    }
    if left > 0 {
        return Err(FileFault::Damaged("the content is shorter than the header states"));
    }
    let source = decoder.finish();
    match source.buffer().is_empty() && source.get_ref().limit() == 0 {
        true => Ok(()),
        false => Err(FileFault::Damaged("there are extra bytes after the content")),
    }
}

/// Reads until the buffer is full or the input ends, and returns the number of bytes read.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns the digest of the first `length` bytes.
fn hash(file: &File, length: u64) -> io::Result<Digest> {
    let mut from = file;
    from.seek(SeekFrom::Start(0))?;
    let mut from = from.take(length);
    let mut state = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match fill(&mut from, &mut piece)? {
            0 => break,
            count => state.update(piece.get(..count).unwrap_or_default()),
        }
    }
    match from.limit() {
        0 => Ok(Digest::new(state.finalize().into())),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl FileFault {
    /// An error without an OS code comes from zstd and is about the bytes.
    fn of(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(_) => Self::File(error),
            None => Self::Damaged("the content cannot be decompressed"),
        }
    }
}
