//! Checks the tiles and the index, which are derived from the log, against the log.
//!
//! Both prove nothing and can be deleted, so a contradiction is only a warning.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use super::finding::{Code, Findings, Location};
use crate::digest::Digest;
use crate::index;
use crate::log::Log;
use crate::paths::LedgerPaths;
use crate::tile::tile_path;

/// Reports an index that contradicts the log.
pub(super) fn check_index(paths: &LedgerPaths, found: &mut Findings) {
    let Ok(log) = Log::open(&paths.log()) else { return };
    if index::contradicts(&paths.index(), &log) {
        let text = "The index contradicts the log, so lists of events and of unknown results can be \
                    incomplete. It is derived from the log: delete it, and it is rebuilt.";
        found.warn(Code::DerivedContradicts, Location::File(paths.index()), text.to_owned());
    }
}

/// Compares the tiles with the leaves of the log during the pass.
#[derive(Debug)]
pub(super) struct TileCheck {
    dir: PathBuf,
    /// For each level of tiles: the number of full tiles, and the hashes of the partial tile.
    levels: Vec<(u64, Vec<Digest>)>,
    is_broken: bool,
}

const WIDTH: u16 = 256;

impl TileCheck {
    pub(super) fn new(paths: &LedgerPaths) -> Self {
        let dir = paths.tiles().to_owned();
        // Without tiles there is nothing to compare.
        let is_broken = !dir.join("tile").exists();
        Self { dir, levels: Vec::new(), is_broken }
    }

    /// Stops the comparison because an event could not be read.
    pub(super) const fn break_off(&mut self) {
        self.is_broken = true;
    }

    pub(super) fn push(&mut self, leaf: Digest, found: &mut Findings) {
        let mut carried = (!self.is_broken).then_some(leaf);
        let mut level = 0;
        while let Some(hash) = carried.take() {
            if self.levels.len() == level {
                self.levels.push((0, Vec::with_capacity(WIDTH.into())));
            }
            let Some((full, hashes)) = self.levels.get_mut(level) else { return };
            hashes.push(hash);
            if hashes.len() == usize::from(WIDTH) {
                let index = *full;
                *full += 1;
                let hashes = std::mem::take(hashes);
                self.compare(level, index, WIDTH, &hashes, found);
                carried = Some(root(hashes));
            }
            level += 1;
        }
    }

    /// Compares the partial tiles at the edge of the tree.
    pub(super) fn finish(self, found: &mut Findings) {
        if self.is_broken {
            return;
        }
        for (level, (index, hashes)) in self.levels.iter().enumerate() {
            for (width, _) in (1_u16..WIDTH).zip(hashes) {
                let part = hashes.get(..width.into()).unwrap_or_default();
                self.compare(level, *index, width, part, found);
            }
            self.compare_beyond(level, *index, found);
        }
    }

    /// Reports an existing tile with other hashes than these.
    fn compare(
        &self,
        level: usize,
        index: u64,
        width: u16,
        hashes: &[Digest],
        found: &mut Findings,
    ) {
        let Ok(level) = u8::try_from(level) else { return };
        let path = self.dir.join(tile_path(level, index, width));
        let Ok(file) = fs::File::open(&path) else { return };
        let mut bytes = Vec::new();
        let limit = u64::from(WIDTH) * Digest::LENGTH as u64 + 1;
        let read = file.take(limit).read_to_end(&mut bytes);
        let expected = hashes.iter().flat_map(Digest::as_bytes);
        if read.is_err() || !bytes.iter().eq(expected) {
            let text = "This file of hashes contradicts the log. It is derived from the log: \
                        delete it, and it is rebuilt.";
            found.warn(Code::DerivedContradicts, Location::File(path), text.to_owned());
        }
    }

    /// Reports a full tile beyond the tree, which comes from a longer log.
    fn compare_beyond(&self, level: usize, index: u64, found: &mut Findings) {
        let Ok(level) = u8::try_from(level) else { return };
        let path = self.dir.join(tile_path(level, index, WIDTH));
        if path.exists() {
            let text = "This file of hashes belongs to a longer log. It is derived from the log: \
                        delete it.";
            found.warn(Code::DerivedContradicts, Location::File(path), text.to_owned());
        }
    }
}

fn root(mut hashes: Vec<Digest>) -> Digest {
    while hashes.len() > 1 {
        let (pairs, _) = hashes.as_chunks();
        hashes = pairs.iter().map(|[left, right]| Digest::node(left, right)).collect();
    }
    hashes.first().copied().unwrap_or_else(crate::merkle::empty_root)
}
