//! Reads complete batches for the verifier and resumes after damage.
//!
//! One thread reads and hashes events while another thread checks them. No input can cause an
//! endless loop or keep more than a few batches in memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use crate::digest::Digest;
use crate::frame::{self, BATCH_HEAD, BatchError, BatchHead, MAGIC};
use crate::log::{Located, next_data, read_at};

/// Consecutive complete batches.
#[derive(Debug, Default)]
pub(super) struct Piece {
    base: u64,
    bytes: Vec<u8>,
    used: usize,
    batches: Vec<Whole>,
    paths: Vec<Range<usize>>,
    leaves: Vec<Digest>,
    /// The ranges and leaves of one batch while it is parsed.
    opened: (Vec<Range<usize>>, Vec<Digest>),
}

/// One batch of a piece.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) first: u64,
    /// The range of the batch's events in the piece.
    events: Range<usize>,
}

/// Why reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// More batches follow.
    More,
    /// The file ends after a complete batch.
    File,
    /// The next bytes are not a batch.
    Bad(BatchError),
}

/// The bytes after a damaged part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Batch {
        offset: u64,
        first: u64,
    },
    Nothing,
    /// The search was abandoned, because too many bytes look like batches and are none.
    GaveUp,
}

const CHUNK: usize = 1 << 20;
const IN_FLIGHT: usize = 3;
/// The maximum number of bytes to hash in the search for a batch after damage.
const EFFORT: u64 = 256 << 20;

impl Piece {
    /// Reads complete batches from `offset` on.
    pub(super) fn fill(&mut self, file: &File, offset: u64) -> io::Result<End> {
        self.base = offset;
        self.used = 0;
        self.batches.clear();
        self.paths.clear();
        self.leaves.clear();
        self.bytes.resize(CHUNK, 0);
        let read = read_at(file, &mut self.bytes, offset)?;
        let mut at_end = read < CHUNK;
        self.bytes.truncate(read);
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(if at_end { End::File } else { End::More });
            }
            let head = match BatchHead::parse(rest) {
                Err(BatchError::Short) if !at_end && self.used > 0 => return Ok(End::More),
                Err(error) => return Ok(End::Bad(error)),
                Ok(head) => head,
            };
            if rest.len() < head.length() {
                if at_end {
                    return Ok(End::Bad(BatchError::Short));
                }
                if self.used > 0 {
                    return Ok(End::More);
                }
                at_end = self.lengthen(file, head.length())?;
                continue;
            }
            if let Err(error) = self.take(&head) {
                return Ok(End::Bad(error));
            }
        }
    }

    /// Reads until `length` bytes are in the buffer, and returns whether the file ends there or
    /// earlier.
    fn lengthen(&mut self, file: &File, length: usize) -> io::Result<bool> {
        let have = self.bytes.len();
        self.bytes.resize(length, 0);
        let free = self.bytes.get_mut(have..).unwrap_or_default();
        let read = read_at(file, free, self.base + have as u64)?;
        self.bytes.truncate(have + read);
        Ok(have + read < length)
    }

    fn take(&mut self, head: &BatchHead) -> Result<(), BatchError> {
        let end = self.used + head.length();
        let bytes = self.bytes.get(self.used..end).ok_or(BatchError::Short)?;
        let (paths, leaves) = &mut self.opened;
        frame::open_batch(head, bytes, paths, leaves)?;
        if head.first.checked_add(u64::from(head.count)).is_none() {
            return Err(BatchError::Count);
        }
        let start = self.paths.len();
        let at = self.used;
        self.paths.extend(paths.iter().map(|place| place.start + at..place.end + at));
        self.leaves.extend_from_slice(leaves);
        self.batches.push(Whole {
            offset: self.base + at as u64,
            length: head.length() as u64,
            first: head.first,
            events: start..self.paths.len(),
        });
        self.used = end;
        Ok(())
    }

    /// Returns the offset of the next batch.
    pub(super) const fn end(&self) -> u64 {
        self.base + self.used as u64
    }

    pub(super) fn batches(&self) -> &[Whole] {
        &self.batches
    }

    pub(super) fn events(&self, batch: &Whole) -> impl Iterator<Item = Located<'_>> {
        let paths = self.paths.get(batch.events.clone()).unwrap_or_default();
        let leaves = self.leaves.get(batch.events.clone()).unwrap_or_default();
        (batch.first..).zip(paths.iter().zip(leaves)).map(|(index, (place, leaf))| Located {
            index,
            offset: self.base + place.start as u64,
            bytes: self.bytes.get(place.clone()).unwrap_or_default(),
            leaf: *leaf,
        })
    }
}

impl Whole {
    /// Returns the index after the last event; the parser checked that it does not overflow.
    pub(super) const fn end(&self) -> u64 {
        self.first.saturating_add(self.events.end as u64 - self.events.start as u64)
    }
}

/// Passes every piece from `offset` on to `show`, and returns the end offset and the reason.
pub(super) fn each_piece(
    file: &File,
    offset: u64,
    mut show: impl FnMut(&Piece),
) -> io::Result<(u64, End)> {
    let (full, pieces) = sync_channel(IN_FLIGHT);
    let (empty, back) = channel();
    thread::scope(|scope| {
        scope.spawn(move || read_ahead(file, offset, &full, &back));
        let mut last = (offset, End::File);
        for piece in pieces {
            let (piece, end) = piece?;
            show(&piece);
            last = (piece.end(), end);
            empty.send(piece).ok(); // the reader can have ended already
        }
        Ok(last)
    })
}

fn read_ahead(
    file: &File,
    mut offset: u64,
    full: &SyncSender<io::Result<(Piece, End)>>,
    back: &Receiver<Piece>,
) {
    loop {
        let mut piece = back.try_recv().unwrap_or_default();
        let filled = piece.fill(file, offset);
        offset = piece.end();
        let more = matches!(filled, Ok(End::More));
        let sent = full.send(filled.map(|end| (piece, end)));
        if sent.is_err() || !more {
            return;
        }
    }
}

/// Searches for a complete batch after the damaged one at `offset`.
///
/// Bytes inside an event that look like a batch do not count; see
/// [`crate::log::Log::has_batch_behind`].
pub(super) fn behind(file: &File, offset: u64) -> io::Result<Behind> {
    let mut piece = Piece::default();
    let mut effort = EFFORT;
    // The stated end of the damaged batch is tried first, because its events can contain any bytes.
    let mut head = [0; BATCH_HEAD];
    let count = read_at(file, &mut head, offset)?;
    let torn = BatchHead::parse(head.get(..count).unwrap_or_default()).ok();
    if let Some(head) = torn {
        let next = offset + head.length() as u64;
        if let Some(found) = piece.holds_batch(file, next)? {
            return Ok(Behind::Batch { offset: next, first: found.first });
        }
    }
    let writer = torn.map(|head| head.writer);
    let mut window = vec![0; CHUNK];
    let mut at = next_data(file, offset + 1);
    loop {
        let count = read_at(file, &mut window, at)?;
        let found = window.get(..count).unwrap_or_default().windows(MAGIC.len());
        for place in found.enumerate().filter(|(_, bytes)| bytes == MAGIC).map(|(place, _)| place) {
            let start = at + place as u64;
            match piece.holds_batch(file, start)? {
                Some(found) if Some(found.writer) == writer || piece.reach_end(file, start)? => {
                    return Ok(Behind::Batch { offset: start, first: found.first });
                }
                Some(_) | None => effort = effort.saturating_sub(piece.bytes.len() as u64),
            }
            if effort == 0 {
                return Ok(Behind::GaveUp);
            }
        }
        if count < CHUNK {
            return Ok(Behind::Nothing);
        }
        at = next_data(file, at + (CHUNK - MAGIC.len() + 1) as u64);
    }
}

impl Piece {
    /// Returns whether complete batches reach from `offset` to the end of the file.
    fn reach_end(&mut self, file: &File, mut offset: u64) -> io::Result<bool> {
        let end = file.metadata()?.len();
        while offset < end {
            let Some(head) = self.holds_batch(file, offset)? else { return Ok(false) };
            offset += head.length() as u64;
        }
        Ok(true)
    }

    /// Returns the head of the complete batch at `offset`, if there is one.
    fn holds_batch(&mut self, file: &File, offset: u64) -> io::Result<Option<BatchHead>> {
        self.bytes.resize(BATCH_HEAD, 0);
        let read = read_at(file, &mut self.bytes, offset)?;
        self.bytes.truncate(read);
        let Ok(head) = BatchHead::parse(&self.bytes) else { return Ok(None) };
        self.base = offset;
        if self.lengthen(file, head.length())? {
            return Ok(None);
        }
        let (paths, leaves) = &mut self.opened;
        let opened = frame::open_batch(&head, &self.bytes, paths, leaves);
        Ok(opened.ok().map(|()| head))
    }
}
