//! Reads the upper layer of a box and compares it with the user's directory, once.
//!
//! The result is stored in `changes.json`, which is the basis of every diff and apply. Sealing
//! again returns the stored result until the run restarts ([`prepare_restart`]). Sealing changes
//! neither the upper layer nor the user's directory.

use std::io;
use std::path::Path;

use belljar_model::Clock;

use crate::base::BaseStore;
use crate::change::{Change, Changes};
use crate::layers::Layers;
use crate::path::RelPath;
use crate::renames;

mod deleted;
mod earlier;
mod manifest;
mod sides;
mod sync;
mod upper;

use earlier::EarlierRuns;
pub use earlier::prepare_restart;
pub use manifest::LoadError;

/// The limits of reading a box's changes, so that a hostile box costs a bounded amount of time and
/// memory.
#[derive(Debug, Clone, Copy)]
pub struct SealLimits {
    /// The maximum number of changed paths. More is an error.
    pub entries: usize,
    /// The maximum total length of all changed paths, in bytes. More is an error.
    pub path_bytes: u64,
    /// The maximum number of bytes that are read from the upper layer, including holes. More is an
    /// error.
    pub upper_bytes: u64,
    /// The maximum size of a file that can be applied; larger files are reported and left out.
    pub file_bytes: u64,
    /// The maximum number of bytes of the user's files that are read to store originals. Further
    /// files are identified by inode and times.
    pub base_bytes: u64,
}

impl Default for SealLimits {
    fn default() -> Self {
        Self {
            entries: 200_000,
            path_bytes: 256 << 20,
            upper_bytes: 16 << 30,
            file_bytes: 4 << 30,
            base_bytes: 1 << 30,
        }
    }
}

/// The reason why the changes of a box could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the box changed more than {cap} paths")]
    TooManyEntries { cap: usize },
    #[error("the paths changed by the box have more than {cap} bytes in total")]
    TooManyPathBytes { cap: u64 },
    #[error("the box wrote more than {cap} bytes (limit reached at {path:?})")]
    TooManyBytes { cap: u64, path: RelPath },
    #[error("cannot read {path:?} in the upper layer")]
    Upper { path: RelPath, source: io::Error },
    #[error("cannot read {path:?} in the workspace")]
    Lower { path: RelPath, source: io::Error },
    #[error("the directory {path:?} was moved while it was read; try again")]
    Moved { path: RelPath },
    #[error("cannot store the original of {path:?}")]
    Keep { path: RelPath, source: io::Error },
    #[error("cannot write the files that the box changed to disk")]
    Sync { source: io::Error },
    #[error("cannot write {file}", file = Path::new("changes.json").display())]
    Write { source: io::Error },
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Reads the changes of an ended box, stores them in `changes.json` and returns them. The first
/// call reads and stores them; later calls return the stored result.
///
/// `start` is the time when the box first saw the workspace: a host file with an older change time
/// is the original that the box started from.
pub fn seal(layers: &Layers, start: Clock, limits: &SealLimits) -> Result<Changes, SealError> {
    if let Some(sealed) = Changes::load(layers)? {
        return Ok(sealed);
    }
    let changes = read_changes(layers, start, limits)?;
    sync::write_to_disk(layers, &changes).map_err(|source| SealError::Sync { source })?;
    changes.save(layers).map_err(|source| SealError::Write { source })?;
    Ok(changes)
}

/// Reads the current changes of a box without storing them; the box can be running.
pub fn read_changes(
    layers: &Layers,
    start: Clock,
    limits: &SealLimits,
) -> Result<Changes, SealError> {
    let base = BaseStore::create(layers).map_err(|source| SealError::Write { source })?;
    let mut sealing = Sealing {
        layers,
        start,
        limits,
        base,
        earlier: EarlierRuns::load(layers)?,
        entries: Vec::new(),
        same: Vec::new(),
        too_long: Vec::new(),
        path_bytes: 0,
        upper_bytes: 0,
        base_bytes: 0,
        linked: std::collections::HashMap::new(),
        bare: Vec::new(),
        opaque: Vec::new(),
        all_opaque: Vec::new(),
    };
    upper::read(&mut sealing)?;
    let Sealing { entries, same, too_long, all_opaque, .. } = sealing;
    let mut changes = Changes::new(start, entries, too_long).covering(same, all_opaque);
    renames::detect(&mut changes);
    Ok(changes)
}

/// The state of reading a box's changes.
struct Sealing<'a> {
    layers: &'a Layers,
    start: Clock,
    limits: &'a SealLimits,
    base: BaseStore,
    earlier: EarlierRuns,
    entries: Vec<Change>,
    same: Vec<crate::change::StartState>,
    too_long: Vec<crate::change::TooLong>,
    path_bytes: u64,
    upper_bytes: u64,
    base_bytes: u64,
    /// The summaries of upper-layer files with several hard links, so that each is read once.
    linked: std::collections::HashMap<(u64, u64), crate::content::Summary>,
    /// The opaque directories on the path to the current directory, including itself.
    opaque: Vec<RelPath>,
    all_opaque: Vec<RelPath>,
    /// The directories on the current path that git would treat as a bare repository.
    bare: Vec<(RelPath, &'static belljar_model::risky::RiskyRule)>,
}

impl Sealing<'_> {
    fn push(&mut self, mut change: Change) -> Result<(), SealError> {
        self.path_bytes += change.path.as_bytes().len() as u64;
        if self.entries.len() >= self.limits.entries {
            return Err(SealError::TooManyEntries { cap: self.limits.entries });
        }
        if self.path_bytes > self.limits.path_bytes {
            return Err(SealError::TooManyPathBytes { cap: self.limits.path_bytes });
        }
        if self.layers.is_own(&change.path) {
            change.unsupported = Some(crate::change::Unsupported::OwnState);
        }
        self.entries.push(change);
        Ok(())
    }

    /// Counts a file name whose path exceeds the length limit.
    fn push_too_long(&mut self, within: RelPath) {
        match self.too_long.last_mut() {
            Some(last) if last.within == within => last.names += 1,
            Some(_) | None => self.too_long.push(crate::change::TooLong { within, names: 1 }),
        }
    }
}
