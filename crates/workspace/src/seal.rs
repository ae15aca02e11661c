//! Reads what a box left in the upper layer against the user's directory, once.
//!
//! The result is written to `changes.json`; from then on it is what is shown and taken over, and
//! sealing again returns it, until the run goes on ([`go_on`]). Nothing in the upper layer or in the user's directory is changed.

use std::io;
use std::path::Path;

use belljar_model::Clock;

use crate::base::BaseStore;
use crate::change::{Change, Changes};
use crate::layers::Layers;
use crate::path::RelPath;
use crate::renames;

mod doomed;
mod earlier;
mod manifest;
mod sides;
mod upper;

use earlier::Earlier;
pub use earlier::go_on;
pub use manifest::LoadError;

/// How much is looked at, so that a hostile box costs a bounded amount of time and memory.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Changed paths. More is an error.
    pub entries: usize,
    /// Bytes of all changed paths together. More is an error.
    pub path_bytes: u64,
    /// Bytes read from the upper layer, holes included. More is an error.
    pub upper_bytes: u64,
    /// The largest single file that is taken over; larger ones are reported and left out.
    pub file_bytes: u64,
    /// Bytes of the user's own files that are read to keep originals. Beyond it, files are
    /// recognised by inode and times alone.
    pub base_bytes: u64,
}

impl Default for Caps {
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

/// Why what a box changed could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the box changed more than {cap} paths")]
    TooManyEntries { cap: usize },
    #[error("the names of what the box changed are longer than {cap} bytes together")]
    TooManyPathBytes { cap: u64 },
    #[error("the box wrote more than {cap} bytes that would have to be read (at {path:?})")]
    TooManyBytes { cap: u64, path: RelPath },
    #[error("read {path:?} in the upper layer")]
    Upper { path: RelPath, source: io::Error },
    #[error("read {path:?} in the workspace")]
    Lower { path: RelPath, source: io::Error },
    #[error("{path:?} was moved while it was being read; try again")]
    Moved { path: RelPath },
    #[error("keep the original of {path:?}")]
    Keep { path: RelPath, source: io::Error },
    #[error("write {}", Path::new("changes.json").display())]
    Write { source: io::Error },
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// What the box changed. Reads it the first time, and returns what was read from then on.
///
/// `start` is the clock as it was when the box began to see the workspace: a file of the host with
/// an older change time is what the box started from.
pub fn seal(layers: &Layers, start: Clock, caps: &Caps) -> Result<Changes, SealError> {
    if let Some(sealed) = Changes::load(layers)? {
        return Ok(sealed);
    }
    let changes = look(layers, start, caps)?;
    changes.save(layers).map_err(|source| SealError::Write { source })?;
    Ok(changes)
}

/// What the box changed so far, read anew and not written down: it may still be at work.
pub fn look(layers: &Layers, start: Clock, caps: &Caps) -> Result<Changes, SealError> {
    let base = BaseStore::create(layers).map_err(|source| SealError::Write { source })?;
    let mut sealing = Sealing {
        layers,
        start,
        caps,
        base,
        earlier: Earlier::load(layers)?,
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

/// What has been found so far.
struct Sealing<'a> {
    layers: &'a Layers,
    start: Clock,
    caps: &'a Caps,
    base: BaseStore,
    earlier: Earlier,
    entries: Vec<Change>,
    same: Vec<crate::change::Known>,
    too_long: Vec<crate::change::TooLong>,
    path_bytes: u64,
    upper_bytes: u64,
    base_bytes: u64,
    /// Files of the upper layer with several names, read once.
    linked: std::collections::HashMap<(u64, u64), crate::content::Summary>,
    /// Opaque directories above the current one, and it itself if it is one.
    opaque: Vec<RelPath>,
    all_opaque: Vec<RelPath>,
    /// Directories above the current one that git would take for a repository.
    bare: Vec<(RelPath, &'static belljar_model::risky::RiskyRule)>,
}

impl Sealing<'_> {
    fn push(&mut self, mut change: Change) -> Result<(), SealError> {
        self.path_bytes += change.path.as_bytes().len() as u64;
        if self.entries.len() >= self.caps.entries {
            return Err(SealError::TooManyEntries { cap: self.caps.entries });
        }
        if self.path_bytes > self.caps.path_bytes {
            return Err(SealError::TooManyPathBytes { cap: self.caps.path_bytes });
        }
        if self.layers.is_own(&change.path) {
            change.unsupported = Some(crate::change::Unsupported::OwnState);
        }
        self.entries.push(change);
        Ok(())
    }

    /// A name that makes a longer path than any program could use.
    fn push_too_long(&mut self, within: RelPath) {
        match self.too_long.last_mut() {
            Some(last) if last.within == within => last.names += 1,
            Some(_) | None => self.too_long.push(crate::change::TooLong { within, names: 1 }),
        }
    }
}
