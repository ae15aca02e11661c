//! Reads `events.log`: batches from any offset, and single events.
//!
//! No lock is needed: the log only grows, and bytes after its last complete batch belong to an
//! append that is not acknowledged yet.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

use crate::digest::Digest;
use crate::frame::{
    self, BATCH_HEAD, BatchError, BatchHead, HEADER, HeaderError, LOG_MAGIC, LedgerId, MAGIC,
};

/// The log, open for reading.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    path: PathBuf,
    id: LedgerId,
}

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not the log of a ledger", path.display())]
    Header { path: PathBuf, source: HeaderError },
    #[error("the log is damaged at byte {offset}")]
    Batch { offset: u64, source: BatchError },
    #[error("the log is damaged at byte {offset}: its next event is {found} instead of {expected}")]
    Gap { offset: u64, expected: u64, found: u64 },
    #[error("{} was removed or replaced by another file", path.display())]
    Exchanged { path: PathBuf },
    #[error("the log shrank from {expected} to {found} bytes")]
    Shrunk { expected: u64, found: u64 },
}

/// An iterator over the batches of the log.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    log: &'a Log,
    buffer: Vec<u8>,
    /// The offset in the file of the first byte of `buffer`; bytes before `used` are consumed.
    base: u64,
    used: usize,
    /// The required index of the first event of the next batch, if known.
    next: Option<u64>,
    ranges: Vec<Range<usize>>,
    leaves: Vec<Digest>,
}

/// One complete batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) offset: u64,
    pub(crate) first: u64,
    pub(crate) writer: u64,
    bytes: &'a [u8],
    ranges: &'a [Range<usize>],
    pub(crate) leaves: &'a [Digest],
}

/// One event with its index and its offset in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located<'a> {
    pub(crate) index: u64,
    /// The offset of the event's bytes in the log.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) leaf: Digest,
}

/// The maximum size of one read; a longer batch is read on its own. The first reads are smaller,
/// because most callers find few new bytes and an unused buffer must be zeroed too.
const CHUNK: usize = 1 << 20;
const FIRST: usize = 1 << 14;

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        let read = |source| LogError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        Self::of(file, path)
    }

    /// Reads the header of a log whose file is already open.
    pub(crate) fn of(file: File, path: &Path) -> Result<Self, LogError> {
        let read = |source| LogError::Read { path: path.to_owned(), source };
        let mut header = [0; HEADER];
        let count = read_at(&file, &mut header, 0).map_err(read)?;
        let start = header.get(..count).unwrap_or_default();
        let id = frame::parse_header(LOG_MAGIC, start)
            .map_err(|source| LogError::Header { path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned(), id })
    }

    pub(crate) const fn id(&self) -> LedgerId {
        self.id
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn length(&self) -> Result<u64, LogError> {
        self.file.metadata().map(|meta| meta.len()).map_err(|source| self.read_error(source))
    }

    /// Returns the batches from `offset` on; the first batch there must start with event `next`.
    pub(crate) fn scan(&self, offset: u64, next: u64) -> Scan<'_> {
        self.scan_any(offset, Some(next))
    }

    fn scan_any(&self, offset: u64, next: Option<u64>) -> Scan<'_> {
        Scan {
            log: self,
            buffer: Vec::new(),
            base: offset,
            used: 0,
            next,
            ranges: Vec::new(),
            leaves: Vec::new(),
        }
    }

    /// Reads the bytes of one event at a known offset.
    pub(crate) fn entry(&self, offset: u64, length: usize) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(|source| self.read_error(source))?;
        Ok(bytes)
    }

    /// Returns whether a complete batch follows after damage at `offset`; if so, the damage is not
    /// a torn append.
    ///
    /// A box can choose bytes of an event that look like a batch. Such bytes do not count: no box
    /// knows the number of a writer or the offset at which an append will be torn.
    pub(crate) fn has_batch_behind(&self, offset: u64) -> Result<bool, LogError> {
        let mut head = [0; BATCH_HEAD];
        let count =
            read_at(&self.file, &mut head, offset).map_err(|source| self.read_error(source))?;
        let torn = BatchHead::parse(head.get(..count).unwrap_or_default()).ok();
        let writer = torn.map(|head| head.writer);
        // An event cannot choose the offset at which the damaged batch claims to end.
        if let Some(next) = torn.map(|head| offset + head.length() as u64)
            && matches!(self.scan_any(next, None).next(), Ok(Some(_)))
        {
            return Ok(true);
        }
        let mut at = next_data(&self.file, offset + 1);
        let mut window = vec![0; CHUNK];
        loop {
            let count =
                read_at(&self.file, &mut window, at).map_err(|source| self.read_error(source))?;
            for position in magics(window.get(..count).unwrap_or_default()) {
                if self.is_batch(at + position as u64, writer)? {
                    return Ok(true);
                }
            }
            if count < CHUNK {
                return Ok(false);
            }
            at = next_data(&self.file, at + (CHUNK - MAGIC.len() + 1) as u64);
        }
    }

    /// Returns whether a batch of this writer starts at `offset`, or batches that reach the end of
    /// the file.
    fn is_batch(&self, offset: u64, writer: Option<u64>) -> Result<bool, LogError> {
        let length = self.length()?;
        let mut scan = self.scan_any(offset, None);
        loop {
            match scan.next() {
                Ok(Some(batch)) if Some(batch.writer) == writer => return Ok(true),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(scan.offset() == length && scan.offset() > offset),
                Err(error @ LogError::Read { .. }) => return Err(error),
                Err(_) => return Ok(false),
            }
        }
    }

    fn read_error(&self, source: io::Error) -> LogError {
        LogError::Read { path: self.path.clone(), source }
    }
}

impl Scan<'_> {
    /// Returns the next batch, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Batch<'_>>, LogError> {
        let offset = self.offset();
        let bad = |source| LogError::Batch { offset, source };
        if self.need(BATCH_HEAD)? == 0 {
            return Ok(None);
        }
        let head = BatchHead::parse(self.rest()).map_err(bad)?;
        if self.need(head.length())? < head.length() {
            return Err(bad(BatchError::Short));
        }
        let start = self.used;
        let bytes = self.buffer.get(start..start + head.length()).unwrap_or_default();
        frame::open_batch(&head, bytes, &mut self.ranges, &mut self.leaves).map_err(bad)?;
        if let Some(expected) = self.next.filter(|next| *next != head.first) {
            return Err(LogError::Gap { offset, expected, found: head.first });
        }
        self.used += head.length();
        self.next = head.first.checked_add(u64::from(head.count));
        Ok(Some(Batch {
            offset,
            first: head.first,
            writer: head.writer,
            bytes,
            ranges: &self.ranges,
            leaves: &self.leaves,
        }))
    }

    /// Returns the offset of the next batch.
    pub(crate) const fn offset(&self) -> u64 {
        self.base + self.used as u64
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.used..).unwrap_or_default()
    }

    /// Reads until the buffer has `count` bytes or the file ends, and returns the number of bytes
    /// in it.
    fn need(&mut self, count: usize) -> Result<usize, LogError> {
        let have = self.buffer.len() - self.used;
        if have >= count {
            return Ok(have);
        }
        self.buffer.drain(..self.used);
        self.base += self.used as u64;
        self.used = 0;
        let usual = (self.buffer.capacity() * 4).clamp(FIRST, CHUNK);
        self.buffer.resize(count.max(usual), 0);
        let free = self.buffer.get_mut(have..).unwrap_or_default();
        let read = read_at(&self.log.file, free, self.base + have as u64)
            .map_err(|source| self.log.read_error(source))?;
        self.buffer.truncate(have + read);
        Ok(self.buffer.len())
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn events(self) -> impl Iterator<Item = Located<'a>> {
        let ranges = self.ranges.iter().zip(self.leaves);
        (self.first..).zip(ranges).map(move |(index, (range, leaf))| Located {
            index,
            offset: self.offset + range.start as u64,
            bytes: self.bytes.get(range.clone()).unwrap_or_default(),
            leaf: *leaf,
        })
    }

    /// Returns the index after the last event.
    pub(crate) const fn end(&self) -> u64 {
        self.first + self.leaves.len() as u64
    }
}

/// Reads until the buffer is full or the file ends, and returns the number of bytes read.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns the first offset from `offset` on that is not in a hole of the file.
///
/// A hole reads as zeros, so no batch starts in it. The result is the end of the file if only a
/// hole follows, and `offset` if the file system does not know its holes. Moves the cursor of the
/// file, which no reader of a log uses.
pub(crate) fn next_data(file: &File, offset: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => file.metadata().map_or(offset, |it| it.len().max(offset)),
        Err(_) => offset,
    }
}

/// Returns the positions at which a batch could start.
fn magics(window: &[u8]) -> impl Iterator<Item = usize> {
    window.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| bytes == MAGIC).map(|(at, _)| at)
}
