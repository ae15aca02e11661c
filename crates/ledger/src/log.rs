//! Reading `events.log`: from any batch on, and single events.
//!
//! Needs no lock: the log only grows, and what stands behind its last whole batch is nobody's yet.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not this ledger's log", path.display())]
    Header { path: PathBuf, source: HeaderError },
    #[error("the log is damaged at byte {offset}")]
    Batch { offset: u64, source: BatchError },
    #[error(
        "the log is damaged at byte {offset}: its next event should be {expected}, and is {found}"
    )]
    Gap { offset: u64, expected: u64, found: u64 },
    #[error("{} was removed, or another file put in its place", path.display())]
    Exchanged { path: PathBuf },
    #[error("the log had {expected} bytes and has only {found} now")]
    Shrunk { expected: u64, found: u64 },
}

/// Batches, one after the other.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    log: &'a Log,
    buffer: Vec<u8>,
    /// Where the first byte of `buffer` is in the file, and which part of it was not yet used.
    base: u64,
    used: usize,
    /// The index that the next batch must begin with, when that is known.
    next: Option<u64>,
    places: Vec<Range<usize>>,
    leaves: Vec<Digest>,
}

/// One whole batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) offset: u64,
    pub(crate) first: u64,
    pub(crate) writer: u64,
    bytes: &'a [u8],
    places: &'a [Range<usize>],
    pub(crate) leaves: &'a [Digest],
}

/// One event in its batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located<'a> {
    pub(crate) index: u64,
    /// Where its bytes begin in the log.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) leaf: Digest,
}

/// How much is read at once; a batch that is longer is read alone. The first looks take less: most
/// who read on find little, and room that is not needed has to be filled with zeros all the same.
const CHUNK: usize = 1 << 20;
const FIRST: usize = 1 << 14;

impl Log {
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        let read = |source| LogError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        Self::of(file, path)
    }

    /// Reads a log that is open already.
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

    /// Batches from `offset` on, where the event `next` begins one.
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
            places: Vec::new(),
            leaves: Vec::new(),
        }
    }

    /// The bytes of one event whose place is known.
    pub(crate) fn entry(&self, offset: u64, length: usize) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(|source| self.read_error(source))?;
        Ok(bytes)
    }

    /// Whether a whole batch stands somewhere behind `offset`: then what is damaged there is no
    /// append that was cut short.
    ///
    /// An event may hold bytes that look like a batch: a box can have chosen them. They do not count,
    /// for no box knows the number of a writer, nor where an append will be cut short.
    pub(crate) fn has_batch_behind(&self, offset: u64) -> Result<bool, LogError> {
        let mut head = [0; BATCH_HEAD];
        let count =
            read_at(&self.file, &mut head, offset).map_err(|source| self.read_error(source))?;
        let torn = BatchHead::parse(head.get(..count).unwrap_or_default()).ok();
        let writer = torn.map(|head| head.writer);
        // Where the damaged one says that it ends is no place that an event can choose.
        if let Some(next) = torn.map(|head| offset + head.length() as u64)
            && matches!(self.scan_any(next, None).next(), Ok(Some(_)))
        {
            return Ok(true);
        }
        let mut at = offset + 1;
        loop {
            let mut window = vec![0; CHUNK];
            let count =
                read_at(&self.file, &mut window, at).map_err(|source| self.read_error(source))?;
            window.truncate(count);
            for place in magics(&window) {
                if self.is_batch(at + place as u64, writer)? {
                    return Ok(true);
                }
            }
            if count < CHUNK {
                return Ok(false);
            }
            at += (CHUNK - MAGIC.len() + 1) as u64;
        }
    }

    /// Whether a batch of this writer begins here, or batches that reach to the end of the file.
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
    /// The next batch; `None` at the end of the file.
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
        frame::open_batch(&head, bytes, &mut self.places, &mut self.leaves).map_err(bad)?;
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
            places: &self.places,
            leaves: &self.leaves,
        }))
    }

    /// Where the next batch begins.
    pub(crate) const fn offset(&self) -> u64 {
        self.base + self.used as u64
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.used..).unwrap_or_default()
    }

    /// Sees to it that `count` bytes are in the buffer, if the file has them; how many are.
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
        let room = self.buffer.get_mut(have..).unwrap_or_default();
        let read = read_at(&self.log.file, room, self.base + have as u64)
            .map_err(|source| self.log.read_error(source))?;
        self.buffer.truncate(have + read);
        Ok(self.buffer.len())
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn events(self) -> impl Iterator<Item = Located<'a>> {
        let places = self.places.iter().zip(self.leaves);
        (self.first..).zip(places).map(move |(index, (place, leaf))| Located {
            index,
            offset: self.offset + place.start as u64,
            bytes: self.bytes.get(place.clone()).unwrap_or_default(),
            leaf: *leaf,
        })
    }

    /// The index after the last event.
    pub(crate) const fn end(&self) -> u64 {
        self.first + self.leaves.len() as u64
    }
}

/// Reads until the buffer is full or the file ends; how much that was.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match file.read_at(room, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Where batches could begin.
fn magics(window: &[u8]) -> impl Iterator<Item = usize> {
    window.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| bytes == MAGIC).map(|(at, _)| at)
}
