//! The newest signed checkpoint, stored in the anchor in two slots that are written alternately.
//!
//! A head is written after its batch is on disk and is not synced itself. After a crash it can be
//! older than the log but never newer, so a log that is shorter than its head has lost events.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bytes::Cursor;
use crate::digest::Digest;
use crate::merkle::Frontier;

/// The state of the ledger at one size, with its signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) generation: u64,
    /// The length of the log with these events, in bytes.
    pub(crate) end: u64,
    /// The sequence number and hash of the last event of the ledger itself.
    pub(crate) own: Option<(u64, Digest)>,
    pub(crate) frontier: Frontier,
    /// The signed checkpoint.
    pub(crate) note: String,
}

/// The content of one of the two slots for heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Slot {
    Whole(Box<Head>),
    /// The slot was never written.
    Blank,
    Damaged,
}

pub(crate) const SLOT: usize = 4096;
const MAGIC: &[u8; 4] = b"BJH1";

impl Head {
    /// Writes the head into the slot that its generation selects.
    pub(crate) fn write(&self, file: &File) -> io::Result<()> {
        let bytes = self.encode().ok_or_else(|| io::Error::other("the head is too long"))?;
        file.write_all_at(&bytes, (self.generation % 2) * SLOT as u64)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut content = Vec::with_capacity(SLOT);
        content.extend_from_slice(&self.frontier.size().to_be_bytes());
        content.extend_from_slice(&self.end.to_be_bytes());
        content.push(u8::from(self.own.is_some()));
        let (sequence, hash) = self.own.unwrap_or((0, Digest::new([0; Digest::LENGTH])));
        content.extend_from_slice(&sequence.to_be_bytes());
        content.extend_from_slice(hash.as_bytes());
        let peaks = self.frontier.peaks();
        content.push(u8::try_from(peaks.len()).ok()?);
        peaks.iter().for_each(|peak| content.extend_from_slice(peak.as_bytes()));
        content.extend_from_slice(&u16::try_from(self.note.len()).ok()?.to_be_bytes());
        content.extend_from_slice(self.note.as_bytes());

        let mut out = Vec::with_capacity(SLOT);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&u32::try_from(content.len()).ok()?.to_be_bytes());
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&content);
        let check = Digest::of(&[&out]);
        out.extend_from_slice(check.as_bytes());
        (out.len() <= SLOT).then(|| {
            out.resize(SLOT, 0);
            out
        })
    }
}

impl Slot {
    fn parse(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Blank;
        }
        whole(bytes).map_or(Self::Damaged, |head| Self::Whole(Box::new(head)))
    }
}

fn whole(slot: &[u8]) -> Option<Head> {
    let mut cursor = Cursor::new(slot);
    let magic = cursor.take(MAGIC.len())?;
    let length = usize::try_from(cursor.u32()?).ok()?;
    let generation = cursor.u64()?;
    let mut content = Cursor::new(cursor.take(length)?);
    let covered = slot.get(..slot.len() - cursor.rest().len())?;
    let check = cursor.array()?;
    let is_whole = magic == MAGIC
        && Digest::of(&[covered]) == Digest::new(check)
        && cursor.rest().iter().all(|byte| *byte == 0);
    if !is_whole {
        return None;
    }
    let size = content.u64()?;
    let end = content.u64()?;
    let has_own = content.u8()? == 1;
    let own = (content.u64()?, Digest::new(content.array()?));
    let count = content.u8()?;
    let peaks = (0..count).map(|_| content.array().map(Digest::new)).collect::<Option<_>>()?;
    let length = content.u16()?;
    let note = String::from_utf8(content.take(length.into())?.to_vec()).ok()?;
    let frontier = Frontier::from_peaks(size, peaks)?;
    content.is_empty().then_some(Head {
        generation,
        end,
        own: has_own.then_some(own),
        frontier,
        note,
    })
}

/// Reads both slots of the file; a slot that is being written at the moment reads as damaged.
pub(crate) fn read(file: &File) -> io::Result<[Slot; 2]> {
    let mut bytes = [0; 2 * SLOT];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    let (first, second) = bytes.split_at(SLOT);
    Ok([Slot::parse(first), Slot::parse(second)])
}

/// Returns the newest head of a file that other processes write, and retries while no slot is
/// valid.
pub(crate) fn settled(file: &File) -> io::Result<Option<Head>> {
    const ATTEMPTS: u32 = 50;
    for _ in 0..ATTEMPTS {
        if let Some(head) = newest(read(file)?) {
            return Ok(Some(head));
        }
        std::thread::yield_now(); // a writer is about to complete a slot
    }
    Ok(None)
}

/// Returns the newer of the valid slots.
pub(crate) fn newest(slots: [Slot; 2]) -> Option<Head> {
    let heads = slots.into_iter().filter_map(|slot| match slot {
        Slot::Whole(head) => Some(*head),
        Slot::Blank | Slot::Damaged => None,
    });
    heads.max_by_key(|head| head.generation)
}
