//! Tiles of the tree of the newest checkpoint, in the format of <https://c2sp.org/tlog-tiles>.
//!
//! **Invariant:** a returned tile leads to the root of the checkpoint, and a returned event has the leaf
//! hash that the index has for it.

use super::{BUNDLE, Reader, ReaderError};
use crate::digest::Digest;
use crate::index::{IndexError, Query, ReadError};
use crate::merkle::{self, Hashes as _};
use crate::tile::{self, TilePath, Tiles, bundle};

/// The number of levels of the tree that a tile spans.
const HEIGHT: u8 = 8;

impl Reader {
    /// Returns the content of a tile; `None` if the tree of the newest checkpoint has no such tile.
    pub fn tile(&self, path: &TilePath) -> Result<Option<Vec<u8>>, ReaderError> {
        let (checkpoint, _) = self.checkpoint()?;
        let (size, root) = (checkpoint.size(), checkpoint.root());
        let TilePath { level, index, width } = *path;
        let row = level.map_or(0, |level| u32::from(level) * u32::from(HEIGHT));
        let available = size.checked_shr(row).unwrap_or(0);
        let first = index.checked_mul(BUNDLE);
        let Some(first) = first.filter(|it| it.saturating_add(width.into()) <= available) else {
            return Ok(None);
        };
        let Some(level) = level else { return self.entries(first, width).map(Some) };
        let read = |tiles: &Tiles| -> Result<Option<Vec<u8>>, ReaderError> {
            if merkle::root_of(tiles, size)? != root || !leads_to_root(tiles, level, index, size)? {
                return Ok(None);
            }
            let hashes = hashes(tiles, level, first, width)?;
            Ok(Some(hashes.iter().flat_map(Digest::as_bytes).copied().collect()))
        };
        self.with_tiles(size, read).map(Some)
    }

    /// Returns a bundle with this number of events from the event `first` on.
    fn entries(&self, first: u64, width: u16) -> Result<Vec<u8>, ReaderError> {
        let query =
            Query { after: first.checked_sub(1), limit: Some(width.into()), ..Query::default() };
        let rows = self.index.events(&query)?;
        let mut entries = Vec::with_capacity(width.into());
        for (row, index) in rows.iter().zip(first..) {
            let bytes = self.log.entry(row.offset, row.length);
            let bytes = bytes.map_err(|source| ReadError::Log { index, source })?;
            if row.index != index || Digest::leaf(&bytes) != row.leaf {
                return Err(ReadError::Elsewhere { index }.into());
            }
            entries.push(bytes);
        }
        if entries.len() != usize::from(width) {
            return Err(IndexError::Damaged { source: None }.into());
        }
        let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        // An event and the number of events both fit into a bundle.
        Ok(bundle(&entries).unwrap_or_default())
    }
}

/// Returns whether a tile contains the hashes that the tiles above it have for it.
///
/// The root of the tree covers the incomplete tile at the right edge of each level.
fn leads_to_root(tiles: &Tiles, level: u8, index: u64, size: u64) -> Result<bool, ReaderError> {
    let (mut level, mut index) = (level, index);
    loop {
        let available = size.checked_shr(u32::from(level) * u32::from(HEIGHT)).unwrap_or(0);
        if (index + 1).saturating_mul(BUNDLE) > available {
            return Ok(true);
        }
        let own = tile::root(hashes(tiles, level, index * BUNDLE, 256)?);
        level += 1;
        if tiles.hash(level * HEIGHT, index)? != own {
            return Ok(false);
        }
        index /= BUNDLE;
    }
}

/// Returns consecutive hashes of a level of tiles.
fn hashes(tiles: &Tiles, level: u8, first: u64, width: u16) -> Result<Vec<Digest>, ReaderError> {
    let all = first..first + u64::from(width);
    Ok(all.map(|index| tiles.hash(level * HEIGHT, index)).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::AlarmRaised;
    use crate::ledger::{Draft, Ledger};
    use crate::merkle::Frontier;
    use crate::paths::LedgerPaths;
    use crate::tile::{parse_path, tile_path, unbundle};

    fn ledger(events: u64) -> (tempfile::TempDir, LedgerPaths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = LedgerPaths::under(dir.path());
        let ledger = Ledger::open(&paths).unwrap();
        let missing = events - ledger.events();
        let draft = |number: u64| {
            Draft::new(AlarmRaised { alarm: number.to_string(), detail: "x".to_owned() })
        };
        drop(ledger.record_all((0..missing).map(draft).collect()).unwrap());
        assert_eq!(ledger.events(), events);
        (dir, paths)
    }

    fn get(reader: &Reader, path: &str) -> Option<Vec<u8>> {
        reader.tile(&parse_path(path).unwrap()).unwrap()
    }

    #[test]
    fn tiles_and_bundles_give_the_root_of_the_checkpoint() {
        let (_dir, paths) = ledger(600);
        let reader = Reader::open(&paths).unwrap();
        let (checkpoint, _) = reader.checkpoint().unwrap();
        let mut frontier = Frontier::default();
        for path in ["tile/entries/000", "tile/entries/001", "tile/entries/002.p/88"] {
            let bytes = get(&reader, path).unwrap();
            unbundle(&bytes).unwrap().into_iter().for_each(|it| frontier.push(Digest::leaf(it)));
        }
        assert_eq!((frontier.size(), frontier.root()), (600, checkpoint.root()));
        let mut frontier = Frontier::default();
        for path in ["tile/0/000", "tile/0/001", "tile/0/002.p/88"] {
            let bytes = get(&reader, path).unwrap();
            for hash in bytes.as_chunks().0 {
                frontier.push(Digest::new(*hash));
            }
        }
        assert_eq!((frontier.size(), frontier.root()), (600, checkpoint.root()));
        assert_eq!(get(&reader, "tile/1/000.p/2").unwrap().len(), 64);
        assert_eq!(get(&reader, "tile/0/000.p/7").unwrap().len(), 7 * 32, "part of a full tile");
    }

    #[test]
    fn tile_beyond_the_checkpoint_does_not_exist() {
        let (_dir, paths) = ledger(300);
        let reader = Reader::open(&paths).unwrap();
        for path in [
            "tile/0/001",
            "tile/0/001.p/45",
            "tile/0/002.p/1",
            "tile/1/000",
            "tile/1/000.p/2",
            "tile/2/000.p/1",
            "tile/63/000",
            "tile/entries/001",
            "tile/entries/x018/x446/x744/x073/x709/x551/615",
        ] {
            assert_eq!(get(&reader, path), None, "{path}");
        }
        assert!(get(&reader, "tile/0/001.p/44").is_some(), "control");
    }

    #[test]
    fn changed_tile_on_disk_is_not_returned() {
        let (_dir, paths) = ledger(600);
        let reader = Reader::open(&paths).unwrap();
        let intact = get(&reader, "tile/0/001").unwrap();
        let file = paths.tiles().join(tile_path(0, 1, 256));
        let mut changed = fs::read(&file).unwrap();
        changed[7] ^= 1;
        fs::write(&file, &changed).unwrap();
        assert_eq!(get(&reader, "tile/0/001").unwrap(), intact, "the tiles are built again");
        assert_eq!(fs::read(&file).unwrap(), intact);
    }
}
