//! The tiles that were used last, so that many proofs do not read and hash the same tile again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::HEIGHT;
use crate::digest::Digest;

/// Which tile, and how much of it: a tile at the edge of the tree grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) level: u8,
    pub(super) index: u64,
    pub(super) width: u16,
}

/// Tiles with all hashes inside them, the one that was used last in front.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<VecDeque<(Key, Rows)>>);

/// The hashes of a tile, and above them those of each two, and so on.
type Rows = Vec<Vec<Digest>>;

const MAX: usize = 64; // 16 KiB each

impl Cache {
    /// The hash at this place of this row of a tile; `load` gives the lowest row if need be.
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
        // Each change is complete in itself, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parents of these hashes; a last one without a sibling has none.
pub(super) fn join(hashes: &[Digest]) -> Vec<Digest> {
    let (pairs, _) = hashes.as_chunks();
    pairs.iter().map(|[left, right]| Digest::node(left, right)).collect()
}
