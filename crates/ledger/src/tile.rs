//! Stores the hashes of the tree in files: the tiles of <https://c2sp.org/tlog-tiles>, 256 hashes
//! each.
//!
//! Tiles are derived from the log and can be rebuilt at any time. They are therefore written
//! without fsync, and data read from them is not trusted until a root has been checked. Only a
//! wrong length of a tile is detected here.
//!
//! The disk has the full tiles. The leaves after the last full tile are in memory: a caller that
//! opens tiles passes all leaves of the log from [`Tiles::size`] on to [`Tiles::extend`], which
//! writes tiles that become full, or to [`Tiles::with_tail`], which writes nothing.
//!
//! **Invariant:** a tile of level 0 is written after all tiles above it that it completes, so the
//! number of tiles of level 0 gives the size of the stored tree. A partial or missing tile of a
//! higher level is computed from the tiles below it.

mod bundle;
mod cache;
mod path;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::digest::Digest;
use crate::merkle::Hashes;
use cache::{Cache, Key};

pub use bundle::{bundle, unbundle};
pub use path::{TilePath, entries_path, parse_path, tile_path};

/// The number of hashes in a full tile.
const WIDTH: u16 = 256;
/// The number of levels of the tree that a tile spans.
const HEIGHT: u8 = 8;
const FULL: usize = WIDTH as usize * Digest::LENGTH;

/// The hashes of a log, stored as tiles in a directory.
#[derive(Debug)]
pub struct Tiles {
    dir: PathBuf,
    /// The number of leaves in full tiles on disk.
    stored: u64,
    /// The leaves after the last full tile.
    tail: Vec<Digest>,
    cache: Cache,
}

/// Why hashes cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum TileError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} does not have the length of a tile", path.display())]
    Length { path: PathBuf },
    #[error("{} is missing", path.display())]
    Missing { path: PathBuf },
    #[error("the tiles have {size} entries, but the added ones start at entry {from}")]
    Gap { size: u64, from: u64 },
    #[error("the tiles have {size} entries and therefore no subtree {index} of level {level}")]
    Beyond { level: u8, index: u64, size: u64 },
}

impl Tiles {
    /// Opens the tiles in a directory, which can be missing.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, TileError> {
        let dir = dir.into();
        let stored = count(&dir)? * u64::from(WIDTH);
        Ok(Self { dir, stored, tail: Vec::new(), cache: Cache::default() })
    }

    /// Returns the number of covered leaves, which is also the index of the next leaf to add.
    pub fn size(&self) -> u64 {
        self.stored + self.tail.len() as u64
    }

    /// Adds leaves in memory without writing tiles.
    #[must_use]
    pub fn with_tail(mut self, leaves: impl IntoIterator<Item = Digest>) -> Self {
        self.tail.extend(leaves);
        self
    }

    /// Adds the leaves from index `from` on and writes the tiles that become full.
    pub fn extend(
        &mut self,
        from: u64,
        leaves: impl IntoIterator<Item = Digest>,
    ) -> Result<(), TileError> {
        if from != self.size() {
            return Err(TileError::Gap { size: self.size(), from });
        }
        leaves.into_iter().try_for_each(|leaf| self.push(leaf))
    }

    /// Adds the next leaf and writes the tiles that become full.
    pub fn push(&mut self, leaf: Digest) -> Result<(), TileError> {
        self.tail.push(leaf);
        self.store()
    }

    /// Writes all tiles of the tree of this size, including the partial tiles at its edge.
    pub fn publish(&mut self, size: u64) -> Result<(), TileError> {
        if size > self.size() {
            return Err(TileError::Beyond { level: 0, index: size - 1, size: self.size() });
        }
        self.store()?;
        for level in 0..HEIGHT {
            let (index, width) = edge(size, level);
            if width != 0 {
                let hashes = self.hashes(Key { level, index, width })?;
                write(&self.dir.join(tile_path(level, index, width)), &hashes)?;
            }
        }
        Ok(())
    }

    /// Writes the full tiles of the tail.
    fn store(&mut self) -> Result<(), TileError> {
        while self.tail.len() >= usize::from(WIDTH) {
            let end = self.stored + u64::from(WIDTH);
            let levels = u8::try_from(end.trailing_zeros()).unwrap_or(u8::MAX) / HEIGHT;
            for level in (0..levels).rev() {
                let index = (end >> (HEIGHT * (level + 1))) - 1;
                let hashes = self.hashes(Key { level, index, width: WIDTH })?;
                let path = self.dir.join(tile_path(level, index, WIDTH));
                write(&path, &hashes)?;
                remove_partial(&path)?;
            }
            self.tail.drain(..usize::from(WIDTH));
            self.stored = end;
        }
        Ok(())
    }

    /// Returns the first hashes of a tile; all their subtrees must be complete.
    fn hashes(&self, tile: Key) -> Result<Vec<Digest>, TileError> {
        let Key { level, index, width } = tile;
        let first = index * u64::from(WIDTH);
        if level == 0 {
            return match first.checked_sub(self.stored) {
                Some(skip) => Ok(self.tail_from(skip).take(width.into()).collect()),
                None => {
                    let path = self.dir.join(tile_path(0, index, WIDTH));
                    let missing = || TileError::Missing { path: path.clone() };
                    let mut hashes = read(&path)?.ok_or_else(missing)?;
                    hashes.truncate(width.into());
                    Ok(hashes)
                }
            };
        }
        if let Some(mut hashes) = read(&self.dir.join(tile_path(level, index, WIDTH)))? {
            hashes.truncate(width.into());
            return Ok(hashes);
        }
        // The recursion is at most eight deep, the number of levels of tiles.
        (first..first + u64::from(width))
            .map(|index| self.hashes(Key { level: level - 1, index, width: WIDTH }).map(root))
            .collect()
    }

    fn tail_from(&self, skip: u64) -> impl Iterator<Item = Digest> + '_ {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        self.tail.iter().skip(skip).copied()
    }
}

impl Hashes for Tiles {
    type Error = TileError;

    fn hash(&self, level: u8, index: u64) -> Result<Digest, TileError> {
        let size = self.size();
        let beyond = || TileError::Beyond { level, index, size };
        let subtrees = size.checked_shr(level.into()).unwrap_or(0);
        if index >= subtrees {
            return Err(beyond());
        }
        let row = level % HEIGHT;
        let (tile_level, tile_index) = (level / HEIGHT, index >> (HEIGHT - row));
        let (edge_index, edge_width) = edge(size, tile_level);
        let width = if tile_index == edge_index { edge_width } else { WIDTH };
        let tile = Key { level: tile_level, index: tile_index, width };
        let place = index - (tile_index << (HEIGHT - row));
        self.cache.get(tile, row, place, || self.hashes(tile))?.ok_or_else(beyond)
    }
}

/// Returns the index and width of the partial tile of a tree of this size; the width can be 0.
fn edge(size: u64, level: u8) -> (u64, u16) {
    let hashes = size >> (HEIGHT * level);
    (hashes / u64::from(WIDTH), u16::try_from(hashes % u64::from(WIDTH)).unwrap_or(0))
}

/// Returns the root hash of a full tile.
pub(crate) fn root(mut hashes: Vec<Digest>) -> Digest {
    while hashes.len() > 1 {
        hashes = cache::join(&hashes);
    }
    hashes.first().copied().unwrap_or_else(crate::merkle::empty_root)
}

/// Returns the number of full tiles of level 0, assuming that there are no gaps.
fn count(dir: &Path) -> Result<u64, TileError> {
    let full = |index: u64| {
        let path = dir.join(tile_path(0, index, WIDTH));
        match fs::metadata(&path) {
            Ok(found) => Ok(found.is_file() && found.len() == FULL as u64),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(TileError::Read { path, source }),
        }
    };
    // Searches with growing steps for a missing tile, then bisects.
    let (mut low, mut high) = (0, 1);
    while full(high - 1)? {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if full(middle - 1)? { low = middle } else { high = middle }
    }
    Ok(low)
}

/// Reads a full tile; `None` if the file is missing.
fn read(path: &Path) -> Result<Option<Vec<Digest>>, TileError> {
    let failed = |source| TileError::Read { path: path.to_owned(), source };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::with_capacity(FULL + 1);
    file.take(FULL as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let (hashes, []) = bytes.as_chunks() else {
        return Err(TileError::Length { path: path.to_owned() });
    };
    if hashes.len() != usize::from(WIDTH) {
        return Err(TileError::Length { path: path.to_owned() });
    }
    Ok(Some(hashes.iter().copied().map(Digest::new).collect()))
}

/// Writes a tile atomically.
fn write(path: &Path, hashes: &[Digest]) -> Result<(), TileError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let failed = |source| TileError::Write { path: path.to_owned(), source };
    let bytes: Vec<u8> = hashes.iter().flat_map(Digest::as_bytes).copied().collect();
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    // Several writers can write the same tile at once; each needs its own temporary file.
    let mark = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_added_extension(format!("{}-{mark}.new", process::id()));
    fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).map_err(failed)
}

/// Removes the partial tiles of a tile that is now full.
fn remove_partial(full: &Path) -> Result<(), TileError> {
    let path = full.with_added_extension("p");
    match fs::remove_dir_all(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(TileError::Write { path, source })
        }
        _ => Ok(()),
    }
}
