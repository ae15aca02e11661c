//! A cache of recently used tiles, so that many proofs do not read and hash a tile repeatedly.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::HEIGHT;
use crate::digest::Digest;

/// The level, index and current width of a tile; the tile at the edge of the tree grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) level: u8,
    pub(super) index: u64,
    pub(super) width: u16,
}

/// Cached tiles with all their inner hashes, most recently used first.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<VecDeque<(Key, Rows)>>);

/// The hashes of a tile, followed by the rows of their parents up to the root.
type Rows = Vec<Vec<Digest>>;

const MAX: usize = 64; // 16 KiB each

impl Cache {
    /// Returns a hash of a row of a tile; `load` returns the lowest row if the tile is not cached.
    pub(super) fn get<E>(
        &self,
        key: Key,
        row: u8,
        place: u64,
        load: impl FnOnce() -> Result<Vec<Digest>, E>,
    ) -> Result<Option<Digest>, E> {
        let pick =
            |rows: &Rows| rows.get(usize::from(row))?.get(usize::try_from(place).ok()?).copied();
        let mut tiles = self.lock();
        if let Some(found) = tiles.iter().position(|(known, _)| *known == key)
            && let Some(tile) = tiles.remove(found)
        {
            let hash = pick(&tile.1);
            tiles.push_front(tile);
            return Ok(hash);
        }
        drop(tiles);
        let mut rows = vec![load()?];
        for _ in 1..HEIGHT {
            let above = rows.last().map(|row| join(row)).unwrap_or_default();
            rows.push(above);
        }
        let hash = pick(&rows);
        let mut tiles = self.lock();
        tiles.push_front((key, rows));
        tiles.truncate(MAX);
        Ok(hash)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Key, Rows)>> {
        // Each change is complete in itself, so a panic elsewhere leaves valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the parents of these hashes; a last hash without a sibling has no parent.
pub(super) fn join(hashes: &[Digest]) -> Vec<Digest> {
    let (pairs, _) = hashes.as_chunks();
    pairs.iter().map(|[left, right]| Digest::node(left, right)).collect()
}
