//! The file with the salts of body commitments: fixed-size records, appended under the ledger's
//! lock.
//!
//! Erasing a salt makes a redaction final.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::body::Salt;
use crate::bytes::Cursor;
use crate::digest::Digest;
use crate::frame::{self, HEADER, LedgerId, SALTS_MAGIC};

/// The salt file, open for appending.
#[derive(Debug)]
pub(crate) struct Salts {
    file: File,
}

/// The salt file, open for reading.
#[derive(Debug)]
pub(crate) struct Reading {
    file: File,
}

/// The salt file, open for erasing, with the positions of the records that are not erased.
///
/// The file is read once, because a batch of erasures must not hold the ledger's lock for long.
#[derive(Debug)]
pub(crate) struct Eraser {
    file: File,
    places: HashMap<Digest, Vec<u64>>,
    next: u64,
}

/// The state of one record: its salt, or that the salt was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Salt(Salt),
    Erased,
    Damaged,
}

pub(crate) const RECORD: usize = 72;
const DOMAIN: &[u8] = b"belljar salt 1\0";
const CHECK: usize = 8;
const CHUNK: usize = 8192 * RECORD;

impl Salts {
    pub(crate) fn create(path: &Path, id: LedgerId) -> io::Result<()> {
        Self::restore(path, id, &[]).map(drop)
    }

    /// Creates the file with the complete records of an old file whose header is damaged, and returns
    /// the number of records. A reader checks each record by itself.
    pub(crate) fn restore(path: &Path, id: LedgerId, old: &[u8]) -> io::Result<u64> {
        // The file is created atomically, because a truncated header would make it unusable.
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&frame::header(SALTS_MAGIC, id))?;
        let records = old.get(HEADER..).unwrap_or_default();
        let count = records.len() / RECORD;
        file.write_all(records.get(..count * RECORD).unwrap_or_default())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        Ok(count as u64)
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn open(path: &Path, id: LedgerId) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        check_header(&file, id)?;
        Ok(Self { file })
    }

    /// Appends records and waits for the disk; the caller holds the ledger's lock.
    pub(crate) fn append(&self, salts: &[(Digest, Salt)]) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let records = length.checked_sub(HEADER as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let torn = records % RECORD as u64;
        if torn != 0 {
            self.file.set_len(length - torn)?; // removes a torn append
        }
        let mut bytes = Vec::with_capacity(salts.len() * RECORD);
        for (hash, salt) in salts {
            bytes.extend_from_slice(hash.as_bytes());
            bytes.extend_from_slice(salt.as_bytes());
            bytes.extend_from_slice(&check(hash, salt));
        }
        let appended = (&self.file).write_all(&bytes).and_then(|()| self.file.sync_data());
        if appended.is_err() {
            self.file.set_len(length - torn).ok(); // if it fails, the next append does it
        }
        appended
    }
}

impl Reading {
    pub(crate) fn open(path: &Path, id: LedgerId) -> io::Result<Self> {
        let file = File::open(path)?;
        check_header(&file, id)?;
        Ok(Self { file })
    }

    /// Returns the commitments of the records from `place` on, at most one chunk of them.
    pub(crate) fn hashes(&self, place: u64) -> io::Result<Vec<(u64, Digest)>> {
        Ok(self.chunk(place)?.into_iter().map(|(place, hash, _)| (place, hash)).collect())
    }

    /// Returns the record at `place`.
    pub(crate) fn at(&self, place: u64) -> io::Result<Option<(Digest, Kept)>> {
        let mut record = [0; RECORD];
        match self.file.read_exact_at(&mut record, place) {
            Ok(()) => Ok(parse(&record)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Searches the whole file for a commitment; a record with a salt wins over an erased one.
    pub(crate) fn find(&self, wanted: Digest) -> io::Result<Option<Kept>> {
        let mut known: Option<Kept> = None;
        let mut place = HEADER as u64;
        loop {
            let records = self.chunk(place)?;
            let Some((last, _, _)) = records.last() else { return Ok(known) };
            place = last + RECORD as u64;
            for (_, _, kept) in records.into_iter().filter(|(_, hash, _)| *hash == wanted) {
                known = kept.or(known);
            }
        }
    }

    fn chunk(&self, place: u64) -> io::Result<Vec<(u64, Digest, Kept)>> {
        let bytes = read_chunk(&self.file, place)?;
        let records = (place..).step_by(RECORD).zip(bytes.chunks_exact(RECORD));
        Ok(records
            .filter_map(|(place, record)| parse(record).map(|(hash, kept)| (place, hash, kept)))
            .collect())
    }
}

impl Kept {
    /// Merges two records of one commitment: a record with a salt wins over an erased one.
    pub(crate) fn or(self, known: Option<Self>) -> Option<Self> {
        match (self, known) {
            (Self::Salt(_), _) | (_, None) => Some(self),
            (_, known) => known,
        }
    }
}

impl Eraser {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, places: HashMap::new(), next: HEADER as u64 })
    }

    /// Erases the salts of these commitments, waits for the disk and returns the number of erased
    /// records; the caller holds the ledger's lock.
    pub(crate) fn erase(&mut self, hashes: &[Digest]) -> io::Result<usize> {
        self.read_on()?;
        let mut erased = 0;
        for hash in hashes {
            for place in self.places.remove(hash).unwrap_or_default() {
                let zeros = [0; RECORD - Digest::LENGTH];
                self.file.write_all_at(&zeros, place + Digest::LENGTH as u64)?;
                erased += 1;
            }
        }
        if erased > 0 {
            self.file.sync_data()?;
        }
        Ok(erased)
    }

    /// Reads the records that were appended since the last call.
    fn read_on(&mut self) -> io::Result<()> {
        loop {
            let bytes = read_chunk(&self.file, self.next)?;
            let records = bytes.chunks_exact(RECORD);
            if records.len() == 0 {
                return Ok(());
            }
            for record in records {
                if let Some((hash, kept)) = parse(record)
                    && kept != Kept::Erased
                {
                    self.places.entry(hash).or_default().push(self.next);
                }
                self.next += RECORD as u64;
            }
        }
    }
}

/// Erases the salts of these commitments in the file at a path.
#[cfg(test)]
pub(crate) fn erase(path: &Path, hashes: &[Digest]) -> io::Result<usize> {
    Eraser::open(path)?.erase(hashes)
}

/// Returns the state of every commitment; a record with a salt wins over an erased one.
pub(crate) fn all(path: &Path) -> io::Result<HashMap<Digest, Kept>> {
    let file = File::open(path)?;
    let mut all = HashMap::new();
    for (_, hash, kept) in records(&file)? {
        let known = all.entry(hash).or_insert(kept);
        if matches!(kept, Kept::Salt(_)) {
            *known = kept;
        }
    }
    Ok(all)
}

fn records(mut file: &File) -> io::Result<Vec<(u64, Digest, Kept)>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let body = bytes.get(HEADER..).ok_or(io::ErrorKind::UnexpectedEof)?;
    let positions = (HEADER as u64..).step_by(RECORD);
    Ok(positions
        .zip(body.chunks_exact(RECORD))
        .filter_map(|(place, record)| parse(record).map(|(hash, kept)| (place, hash, kept)))
        .collect())
}

pub(crate) fn parse(record: &[u8]) -> Option<(Digest, Kept)> {
    let mut cursor = Cursor::new(record);
    let hash = Digest::new(cursor.array()?);
    let salt = Salt::new(cursor.array()?);
    let found = cursor.array::<CHECK>()?;
    let kept = if found == check(&hash, &salt) {
        Kept::Salt(salt)
    } else if salt.as_bytes().iter().chain(&found).all(|byte| *byte == 0) {
        Kept::Erased
    } else {
        Kept::Damaged
    };
    Some((hash, kept))
}

/// Reads up to [`CHUNK`] bytes without moving the file position, so that threads can share the
/// file.
fn read_chunk(file: &File, place: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; CHUNK];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, place + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn check_header(file: &File, id: LedgerId) -> io::Result<()> {
    let mut header = [0; HEADER];
    let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
        io::Error::new(io::ErrorKind::InvalidData, error)
    };
    file.read_exact_at(&mut header, 0).map_err(|error| {
        let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
        if is_short { invalid("the header is incomplete".into()) } else { error }
    })?;
    let found = frame::parse_header(SALTS_MAGIC, &header).map_err(|error| invalid(error.into()))?;
    match found == id {
        true => Ok(()),
        false => Err(invalid("the salts belong to another ledger".into())),
    }
}

fn check(hash: &Digest, salt: &Salt) -> [u8; CHECK] {
    let full = Digest::of(&[DOMAIN, hash.as_bytes(), salt.as_bytes()]);
    let [a, b, c, d, e, f, g, h, ..] = *full.as_bytes();
    [a, b, c, d, e, f, g, h]
}
