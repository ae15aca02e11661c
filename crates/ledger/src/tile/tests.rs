//! Tests of the paths of the specification and of trees whose hashes are on disk, in memory or
//! lost.

use std::convert::Infallible;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::merkle::{Frontier, consistency, inclusion, root_of};
use crate::merkle::{verify_consistency, verify_inclusion};

fn leaf(index: u64) -> Digest {
    Digest::of(&[&index.to_be_bytes()])
}

fn leaves(size: u64) -> impl Iterator<Item = Digest> {
    (0..size).map(leaf)
}

/// Returns tiles with this many leaves; full tiles are written.
fn tiles(dir: &TempDir, size: u64) -> Tiles {
    let mut tiles = Tiles::open(dir.path()).unwrap();
    let from = tiles.size();
    tiles.extend(from, (from..size).map(leaf)).unwrap();
    tiles
}

/// Returns the relative paths of all files in a directory.
fn files(dir: &Path) -> Vec<String> {
    let mut found = vec![];
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A tree in memory with all its rows.
struct Rows(Vec<Vec<Digest>>);

impl Rows {
    fn new(size: u64) -> Self {
        let mut rows = vec![leaves(size).collect::<Vec<_>>()];
        while rows[rows.len() - 1].len() > 1 {
            rows.push(cache::join(&rows[rows.len() - 1]));
        }
        Self(rows)
    }
}

impl Hashes for Rows {
    type Error = Infallible;

    fn hash(&self, level: u8, index: u64) -> Result<Digest, Infallible> {
        Ok(self.0[usize::from(level)][usize::try_from(index).unwrap()])
    }
}

/// Checks that every `step`th complete subtree has the same hash in the tiles as in memory, and no
/// other has one.
#[track_caller]
fn check_all(tiles: &Tiles, rows: &Rows, step: usize) {
    for (level, row) in (0..).zip(&rows.0) {
        let last = row.len().saturating_sub(1);
        for (index, hash) in row.iter().enumerate() {
            if index % step == 0 || index == last {
                let found = tiles.hash(level, index as u64).unwrap();
                assert_eq!(found, *hash, "{level} {index}");
            }
        }
        let beyond = tiles.hash(level, row.len() as u64);
        assert!(matches!(beyond, Err(TileError::Beyond { .. })), "{level}");
    }
}

#[test]
fn tile_paths_equal_those_of_the_specification() {
    for (level, index, width, path) in [
        (Some(0), 1_234_067, 256, "tile/0/x001/x234/067"),
        (Some(0), 1_234_067, 255, "tile/0/x001/x234/067.p/255"),
        (Some(0), 0, 256, "tile/0/000"),
        (Some(0), 273, 112, "tile/0/273.p/112"),
        (Some(1), 1, 17, "tile/1/001.p/17"),
        (Some(2), 0, 1, "tile/2/000.p/1"),
        (Some(63), 999, 256, "tile/63/999"),
        (Some(7), 1000, 256, "tile/7/x001/000"),
        (Some(0), u64::MAX, 256, "tile/0/x018/x446/x744/x073/x709/x551/615"),
        (None, 1_234_067, 256, "tile/entries/x001/x234/067"),
        (None, 0, 9, "tile/entries/000.p/9"),
    ] {
        let written = match level {
            Some(level) => tile_path(level, index, width),
            None => entries_path(index, width),
        };
        assert_eq!(written, path);
        assert_eq!(parse_path(path), Some(TilePath { level, index, width }));
    }
}

#[test]
fn parse_path_refuses_other_spellings() {
    for path in [
        "",
        "tile",
        "tile/0",
        "tile/0/",
        "tile//000",
        "/tile/0/000",
        "tile/0/000/",
        "tile/0/0",
        "tile/0/00",
        "tile/0/0000",
        "tile/0/x000/001",
        "tile/0/001/002",
        "tile/0/x001/x002",
        "tile/0/x001",
        "tile/0/X001/002",
        "tile/0/xx01/002",
        "tile/0/+01",
        "tile/0/-01",
        "tile/0/ 01",
        "tile/0/x001//002",
        "tile/0/x018/x446/x744/x073/x709/x551/616",
        "tile/0/x999/x999/x999/x999/x999/x999/999",
        "tile/00/000",
        "tile/+0/000",
        "tile/-1/000",
        "tile/64/000",
        "tile/256/000",
        "tile/data/000",
        "tile/Entries/000",
        "tile/0/000.p",
        "tile/0/000.p/",
        "tile/0/000.p/0",
        "tile/0/000.p/01",
        "tile/0/000.p/+1",
        "tile/0/000.p/256",
        "tile/0/000.p/65536",
        "tile/0/000.p/1/",
        "tile/0/000.p/1.p/1",
        "tile/0/../000",
        "tile/8/0/000",
    ] {
        assert_eq!(parse_path(path), None, "{path}");
    }
}

#[test]
fn bundle_has_the_length_before_each_entry() {
    let entries: [&[u8]; 3] = [b"ab", b"", b"c"];
    let bytes = bundle(&entries).unwrap();
    assert_eq!(bytes, b"\0\x02ab\0\0\0\x01c");
    assert_eq!(unbundle(&bytes).unwrap(), entries);
    assert_eq!((bundle(&[]), unbundle(&[])), (Some(vec![]), Some(vec![])));
    for end in [1, 2, 3, 5, 7, 8] {
        assert_eq!(unbundle(&bytes[..end]), None, "{end}");
    }
    let long = vec![7; 65536];
    assert_eq!(bundle(&[&long]), None);
    assert_eq!(unbundle(&bundle(&[&long[1..]]).unwrap()).unwrap(), [&long[1..]]);
    assert_eq!(bundle(&[&b""[..]; 257]), None);
    assert_eq!(unbundle(&[0; 2 * 257]), None);
    assert_eq!(unbundle(&bundle(&[&b""[..]; 256]).unwrap()).unwrap().len(), 256);
}

#[test]
fn tree_of_70000_leaves_has_the_tiles_of_the_specification() {
    // 70000 leaves: 273 full tiles and a partial one of 112, then 1 and 17, then 1 of width 1.
    let dir = TempDir::new().unwrap();
    let mut tiles = tiles(&dir, 70_000);
    let full = files(dir.path());
    assert_eq!(full.iter().filter(|path| path.starts_with("tile/0/")).count(), 273);
    assert_eq!(full.iter().filter(|path| !path.starts_with("tile/0/")).count(), 1);
    assert!(full.contains(&"tile/1/000".to_owned()));
    tiles.publish(70_000).unwrap();
    let partial: Vec<_> =
        files(dir.path()).into_iter().filter(|path| !full.contains(path)).collect();
    assert_eq!(partial, ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]);
    for path in files(dir.path()) {
        let TilePath { level, index, width } = parse_path(&path).unwrap();
        let bytes = fs::read(dir.path().join(&path)).unwrap();
        assert_eq!(bytes.len(), usize::from(width) * Digest::LENGTH, "{path}");
        let last = index * 256 + u64::from(width) - 1;
        let hash = tiles.hash(level.unwrap() * 8, last).unwrap();
        assert!(bytes.ends_with(hash.as_bytes()), "{path}");
    }
    let rows = Rows::new(70_000);
    check_all(&tiles, &rows, 61);

    // Opens the tiles again, with the rest only in memory.
    let again = Tiles::open(dir.path()).unwrap();
    assert_eq!(again.size(), 273 * 256);
    let from = again.size();
    check_all(&again.with_tail((from..70_000).map(leaf)), &rows, 997);

    // A lost tile of a higher level is computed from those below.
    fs::remove_file(dir.path().join("tile/1/000")).unwrap();
    let again = Tiles::open(dir.path()).unwrap().with_tail((from..70_000).map(leaf));
    assert_eq!(root_of(&again, 70_000).unwrap(), root_of(&rows, 70_000).unwrap());
}

#[test]
fn tree_of_one_full_tile_has_a_partial_tile_above_it() {
    let dir = TempDir::new().unwrap();
    let mut tiles = tiles(&dir, 255);
    assert_eq!(files(dir.path()), [""; 0]);
    tiles.publish(255).unwrap();
    assert_eq!(files(dir.path()), ["tile/0/000.p/255"]);
    // The full tile replaces the partial tile.
    tiles.push(leaf(255)).unwrap();
    assert_eq!(files(dir.path()), ["tile/0/000"]);
    tiles.publish(256).unwrap();
    assert_eq!(files(dir.path()), ["tile/0/000", "tile/1/000.p/1"]);
    let root = fs::read(dir.path().join("tile/1/000.p/1")).unwrap();
    assert_eq!(root, root_of(&Rows::new(256), 256).unwrap().as_bytes());
    // An older size can be published, a later one cannot, and an empty tree has no tiles.
    tiles.publish(3).unwrap();
    assert_eq!(files(dir.path()), ["tile/0/000", "tile/0/000.p/3", "tile/1/000.p/1"]);
    tiles.publish(0).unwrap();
    assert!(matches!(tiles.publish(257), Err(TileError::Beyond { size: 256, .. })));
}

#[test]
fn tiles_and_tail_suffice_for_proofs_at_every_size() {
    let dir = TempDir::new().unwrap();
    let rows = Rows::new(600);
    let mut frontier = Frontier::default();
    let mut tiles = Tiles::open(dir.path().join("not/there/yet")).unwrap();
    for size in 1..=600 {
        let added = leaf(size - 1);
        tiles.push(added).unwrap();
        frontier.push(added);
        assert_eq!(tiles.size(), size);
        if !(size % 37 == 0 || (254..=258).contains(&size) || (511..=514).contains(&size)) {
            continue;
        }
        let root = frontier.root();
        assert_eq!(root_of(&tiles, size).unwrap(), root);
        for index in (0..size).step_by(23).chain([size - 1]) {
            let proof = inclusion(&tiles, index, size).unwrap().unwrap();
            assert_eq!(verify_inclusion(&leaf(index), index, size, &proof, &root), Ok(()));
            let old = root_of(&rows, index).unwrap();
            let proof = consistency(&tiles, index, size).unwrap().unwrap();
            assert_eq!(verify_consistency(index, &old, size, &root, &proof), Ok(()));
        }
    }
}

#[test]
fn extend_refuses_leaves_out_of_order() {
    let dir = TempDir::new().unwrap();
    let mut tiles = tiles(&dir, 300);
    for from in [0, 299, 301] {
        let gap = tiles.extend(from, leaves(1));
        assert!(matches!(gap, Err(TileError::Gap { size: 300, from: found }) if found == from));
    }
    assert_eq!(tiles.size(), 300);
    // Leaves that were only in memory must be added again.
    assert_eq!(Tiles::open(dir.path()).unwrap().size(), 256);
}

#[test]
fn tile_of_the_wrong_length_is_refused_and_written_again() {
    let dir = TempDir::new().unwrap();
    drop(tiles(&dir, 1024));
    let path = dir.path().join("tile/0/001");
    let whole = fs::read(&path).unwrap();
    let longer = [&whole[..], &[0; 32]].concat();
    for bytes in [&whole[..0], &whole[..8191], &whole[..8160], &longer] {
        fs::write(&path, bytes).unwrap();
        // The count is known from before the damage, and the tile is bad.
        let tiles = Tiles { stored: 1024, ..Tiles::open(dir.path()).unwrap() };
        let read = tiles.hash(0, 300);
        assert!(matches!(read, Err(TileError::Length { path: bad }) if bad == path));
    }
    fs::remove_file(&path).unwrap();
    let missing = Tiles { stored: 1024, ..Tiles::open(dir.path()).unwrap() }.hash(0, 300);
    assert!(matches!(missing, Err(TileError::Missing { path: bad }) if bad == path));

    // A truncated last tile, as after a power failure, does not count and is written again.
    fs::write(&path, &whole).unwrap();
    fs::write(dir.path().join("tile/0/003"), &whole[..100]).unwrap();
    assert_eq!(Tiles::open(dir.path()).unwrap().size(), 768);
    check_all(&tiles(&dir, 1024), &Rows::new(1024), 1);
    assert_eq!(Tiles::open(dir.path()).unwrap().size(), 1024);
}

#[test]
fn damaged_tile_changes_the_root() {
    let dir = TempDir::new().unwrap();
    let good = root_of(&tiles(&dir, 512), 512).unwrap();
    let path = dir.path().join("tile/0/001");
    let mut bytes = fs::read(&path).unwrap();
    bytes[77] ^= 1;
    fs::write(&path, bytes).unwrap();
    let tiles = Tiles::open(dir.path()).unwrap();
    assert_ne!(root_of(&tiles, 512).unwrap(), good);
}

#[test]
fn two_concurrent_writers_of_the_same_tiles_both_succeed() {
    let dir = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut tiles = Tiles::open(dir.path()).unwrap();
                let from = tiles.size();
                tiles.extend(from, (from..2000).map(leaf)).unwrap();
            });
        }
    });
    assert_eq!(files(dir.path()).len(), 7);
    check_all(&tiles(&dir, 2000), &Rows::new(2000), 1);
}

#[test]
fn many_proofs_read_each_tile_once() {
    let dir = TempDir::new().unwrap();
    let tiles = tiles(&dir, 2048);
    let proof = |index| inclusion(&tiles, index, 2048).unwrap().unwrap();
    let first: Vec<_> = (0..2048).step_by(100).map(proof).collect();
    // Cached tiles are not read again, not even when their files are removed.
    fs::remove_dir_all(dir.path().join("tile")).unwrap();
    let again: Vec<_> = (0..2048).step_by(100).map(proof).collect();
    assert_eq!(first, again);
}

#[test]
fn hash_lookup_does_not_panic_on_any_level_or_index() {
    let dir = TempDir::new().unwrap();
    let tiles = tiles(&dir, 300);
    for level in [0, 1, 7, 8, 9, 16, 56, 63, 64, 255] {
        for index in [300, 301, u64::MAX - 1, u64::MAX] {
            let found = tiles.hash(level, index);
            assert!(matches!(found, Err(TileError::Beyond { size: 300, .. })), "{level} {index}");
        }
    }
}

proptest! {
    #[test]
    fn tile_path_survives_a_round_trip(level in 0..=63_u8, index: u64, width in 1..=256_u16, shift in 0..64) {
        let index = index >> shift;
        let path = tile_path(level, index, width);
        prop_assert_eq!(parse_path(&path), Some(TilePath { level: Some(level), index, width }));
        let path = entries_path(index, width);
        prop_assert_eq!(parse_path(&path), Some(TilePath { level: None, index, width }));
    }

    #[test]
    fn parsed_tile_path_prints_the_same_text(path in "tile/([0-9]{1,2}|entries)/(x[0-9]{3}/){0,2}[0-9]{1,3}(.p/[0-9]{1,3})?") {
        if let Some(TilePath { level, index, width }) = parse_path(&path) {
            let written = level.map_or_else(
                || entries_path(index, width),
                |level| tile_path(level, index, width),
            );
            prop_assert_eq!(written, path);
        }
    }

    #[test]
    fn bundle_survives_a_round_trip_and_unbundle_never_panics(
        entries in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..9),
        noise in prop::collection::vec(0..4_u8, 0..40),
    ) {
        let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        let bytes = bundle(&entries).unwrap();
        prop_assert_eq!(unbundle(&bytes), Some(entries));
        if let Some(entries) = unbundle(&noise) {
            prop_assert_eq!(bundle(&entries), Some(noise.clone()));
        }
    }
}
