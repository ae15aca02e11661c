//! The salts of body commitments: fixed records, appended by whoever holds the ledger's lock.
//!
//! Erasing a salt is what makes a redaction final.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::body::Salt;
use crate::bytes::Cursor;
use crate::digest::Digest;
use crate::frame::{self, HEADER, LedgerId, SALTS_MAGIC};

/// The file of salts, open for appending and erasing.
#[derive(Debug)]
pub(crate) struct Salts {
    file: File,
}

/// What a record says about one commitment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Salt(Salt),
    Erased,
    Damaged,
}

pub(crate) const RECORD: usize = 72;
const DOMAIN: &[u8] = b"belljar salt 1\0";
const CHECK: usize = 8;

impl Salts {
    pub(crate) fn create(path: &Path, id: LedgerId) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&frame::header(SALTS_MAGIC, id))?;
        file.sync_all()
    }

    pub(crate) fn open(path: &Path, id: LedgerId) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let found = frame::parse_header(SALTS_MAGIC, &header).map_err(io::Error::other)?;
        match found == id {
            true => Ok(Self { file }),
            false => Err(io::Error::other("these are the salts of another ledger")),
        }
    }

    /// Appends records and waits for the disk. The caller holds the ledger's lock.
    pub(crate) fn append(&self, salts: &[(Digest, Salt)]) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let torn = (length - HEADER as u64) % RECORD as u64;
        if torn != 0 {
            self.file.set_len(length - torn)?; // an append that was cut short
        }
        let mut bytes = Vec::with_capacity(salts.len() * RECORD);
        for (hash, salt) in salts {
            bytes.extend_from_slice(hash.as_bytes());
            bytes.extend_from_slice(salt.as_bytes());
            bytes.extend_from_slice(&check(hash, salt));
        }
        let appended = (&self.file).write_all(&bytes).and_then(|()| self.file.sync_data());
        if appended.is_err() {
            self.file.set_len(length - torn).ok(); // else the next append does it
        }
        appended
    }
}

/// Erases the salts of these commitments and waits for the disk; how many records that were.
pub(crate) fn erase(path: &Path, hashes: &[Digest]) -> io::Result<usize> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut erased = 0;
    for (place, hash, kept) in records(&file)? {
        if hashes.contains(&hash) && kept != Kept::Erased {
            let zeros = [0; RECORD - Digest::LENGTH];
            file.write_all_at(&zeros, place + Digest::LENGTH as u64)?;
            erased += 1;
        }
    }
    file.sync_data()?;
    Ok(erased)
}

/// Everything that is known of each commitment. Of several records, one with a salt counts.
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
    let places = (HEADER as u64..).step_by(RECORD);
    Ok(places
        .zip(body.chunks_exact(RECORD))
        .filter_map(|(place, record)| {
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
            Some((place, hash, kept))
        })
        .collect())
}

fn check(hash: &Digest, salt: &Salt) -> [u8; CHECK] {
    let full = Digest::of(&[DOMAIN, hash.as_bytes(), salt.as_bytes()]);
    let [a, b, c, d, e, f, g, h, ..] = *full.as_bytes();
    [a, b, c, d, e, f, g, h]
}
