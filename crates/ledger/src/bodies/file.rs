//! The file of one kept body, as `docs/ledger-format.md` has it.
//!
//! **Invariant:** nothing of a content is given out before the whole of it was held to its
//! commitment; what is given out then is held to what was read before, piece by piece.

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
const LEVEL: i32 = 3; // zstd's own
const MAX_WINDOW: u32 = 23; // 8 MiB: what RFC 8878, section 3.1.1.1.2 asks every decoder to support
const PIECE: usize = 64 * 1024;

/// Why content was not written.
#[derive(Debug)]
pub(super) enum Unwritten {
    Content(io::Error),
    File(io::Error),
}

/// Why a file does not hold the body that is wanted.
#[derive(Debug)]
pub(super) enum Unfit {
    File(io::Error),
    Damaged(&'static str),
}

/// A body that was held to its commitment.
#[derive(Debug)]
pub(super) struct Checked<'f> {
    file: &'f File,
    length: u64,
    pieces: Vec<Digest>,
}

/// Writes the content into an empty file, all but waiting for the disk; `also` hashes it besides.
pub(super) fn write(
    file: &File,
    content: &mut dyn Read,
    salt: Salt,
    mut also: Option<&mut Sha256>,
) -> Result<Body, Unwritten> {
    let mut committing = Committing::new(salt);
    let mut out = BufWriter::new(file);
    out.write_all(&[0; HEAD]).map_err(Unwritten::File)?; // known at the end only
    let mut encoder = Encoder::new(out, LEVEL).map_err(Unwritten::File)?;
    let mut piece = vec![0; PIECE];
    loop {
        let count = match content.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Unwritten::Content(error)),
        };
        let part = piece.get(..count).unwrap_or_default();
        committing.update(part);
        if let Some(also) = &mut also {
            also.update(part);
        }
        encoder.write_all(part).map_err(Unwritten::File)?;
    }
    encoder.finish().and_then(|mut out| out.flush()).map_err(Unwritten::File)?;
    let body = committing.finish().kept();
    seal(file, &body).map_err(Unwritten::File)?;
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

/// The size that a file says its content has.
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

/// Holds a file to the body that it must be of, as far as that goes without its salt; how long it is
/// without its check.
pub(super) fn check_outside(file: &File, body: Digest, size: u64) -> Result<u64, Unfit> {
    let length = file.metadata().map_err(Unfit::File)?.len();
    let length = length
        .checked_sub(Digest::LENGTH as u64)
        .filter(|length| *length >= HEAD as u64)
        .ok_or(Unfit::Damaged("it is cut short"))?;
    let mut found = [0; HEAD];
    file.read_exact_at(&mut found, 0).map_err(Unfit::of)?;
    if found != head(body, size) {
        return Err(Unfit::Damaged("it does not begin as the file of this body does"));
    }
    let mut end = [0; Digest::LENGTH];
    file.read_exact_at(&mut end, length).map_err(Unfit::of)?;
    if hash(file, length).map_err(Unfit::of)? != Digest::new(end) {
        return Err(Unfit::Damaged("it does not fit its check"));
    }
    Ok(length)
}

/// Reads everything, and holds it to what is wanted.
pub(super) fn check<'f>(file: &'f File, wanted: &Wanted) -> Result<Checked<'f>, Unfit> {
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
        false => Err(Unfit::Damaged("its content does not fit its commitment")),
    }
}

impl Checked<'_> {
    /// Writes the content. Whoever changes the file meanwhile gets nothing of theirs through.
    pub(super) fn write_to(&self, size: u64, out: &mut dyn Write) -> Result<(), WriteOut> {
        let mut pieces = self.pieces.iter();
        let mut refused = None;
        let done = decompress(self.file, self.length, size, |piece| {
            if pieces.next() != Some(&Digest::of(&[piece])) {
                return Err(Unfit::Damaged("it was changed while it was being read"));
            }
            out.write_all(piece).map_err(|error| {
                refused = Some(error);
                Unfit::Damaged("")
            })
        });
        match (refused, done) {
            (Some(error), _) => Err(WriteOut::Out(error)),
            (None, Err(unfit)) => Err(WriteOut::Unfit(unfit)),
            (None, Ok(())) => Ok(()),
        }
    }
}

/// Why a checked content was not given out.
#[derive(Debug)]
pub(super) enum WriteOut {
    Unfit(Unfit),
    Out(io::Error),
}

/// Shows the content in pieces of the same length, but for the last; never more than `size` of it.
fn decompress(
    file: &File,
    length: u64,
    size: u64,
    mut show: impl FnMut(&[u8]) -> Result<(), Unfit>,
) -> Result<(), Unfit> {
    let mut from = file;
    from.seek(SeekFrom::Start(HEAD as u64)).map_err(Unfit::File)?;
    let source: BufReader<Take<&File>> = BufReader::new(from.take(length - HEAD as u64));
    let mut decoder = Decoder::with_buffer(source).map_err(Unfit::of)?.single_frame();
    decoder.window_log_max(MAX_WINDOW).map_err(Unfit::of)?;
    let mut piece = vec![0; PIECE];
    let mut left = size;
    loop {
        let filled = fill(&mut decoder, &mut piece).map_err(Unfit::of)?;
        left = left
            .checked_sub(filled as u64)
            .ok_or(Unfit::Damaged("its content is longer than it says"))?;
        if filled > 0 {
            show(piece.get(..filled).unwrap_or_default())?;
        }
        if filled < PIECE {
            break;
        }
    }
    if left > 0 {
        return Err(Unfit::Damaged("its content is shorter than it says"));
    }
    let source = decoder.finish();
    match source.buffer().is_empty() && source.get_ref().limit() == 0 {
        true => Ok(()),
        false => Err(Unfit::Damaged("something stands behind its content")),
    }
}

/// Reads until the buffer is full or there is no more; how much that was.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match from.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// `H` of the first `length` bytes.
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

impl Unfit {
    /// What the kernel did not say is what zstd says of the bytes.
    fn of(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(_) => Self::File(error),
            None => Self::Damaged("its content cannot be decompressed"),
        }
    }
}
