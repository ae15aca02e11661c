//! Paths of the tiles of a log, relative to its directory or URL.

use std::fmt::Write as _;

use super::WIDTH;

/// A parsed path of a tile; each tile has exactly one valid path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TilePath {
    /// The level of the tile, or `None` for a bundle of entries.
    pub level: Option<u8>,
    pub index: u64,
    /// 256 for a full tile, 1 to 255 for a partial one.
    pub width: u16,
}

const MAX_LEVEL: u8 = 63;

/// Returns the path of a tile of hashes, such as `tile/0/x001/x234/067` or `tile/1/000.p/17`.
///
/// A width outside 1 to 255 means a full tile.
pub fn tile_path(level: u8, index: u64, width: u16) -> String {
    path(&level.to_string(), index, width)
}

/// Returns the path of a bundle of entries, such as `tile/entries/x001/x234/067`.
pub fn entries_path(index: u64, width: u16) -> String {
    path("entries", index, width)
}

/// Parses a path that [`tile_path`] or [`entries_path`] returned; `None` for any other text.
pub fn parse_path(text: &str) -> Option<TilePath> {
    let (kind, rest) = text.strip_prefix("tile/")?.split_once('/')?;
    let level = match kind {
        "entries" => None,
        level => Some(level.parse::<u8>().ok().filter(|level| *level <= MAX_LEVEL)?),
    };
    let (digits, width) = match rest.split_once(".p/") {
        Some((digits, width)) => (digits, width.parse().ok()?),
        None => (rest, WIDTH),
    };
    let mut index = 0_u64;
    for group in digits.split('/') {
        let group = group.strip_prefix('x').unwrap_or(group).parse::<u16>().ok()?;
        index = index.checked_mul(1000)?.checked_add(u64::from(group))?;
    }
    // The steps above accept other spellings too; only the canonical one equals the path of the
    // result.
    let written = path(kind, index, width);
    let same = written == text && level.is_none_or(|level| level.to_string() == kind);
    same.then_some(TilePath { level, index, width })
}

fn path(kind: &str, index: u64, width: u16) -> String {
    let mut groups = vec![index % 1000];
    let mut rest = index / 1000;
    while rest != 0 {
        groups.push(rest % 1000);
        rest /= 1000;
    }
    let mut path = format!("tile/{kind}/");
    for (place, group) in groups.iter().enumerate().rev() {
        let written = match place {
            0 => write!(path, "{group:03}"),
            _ => write!(path, "x{group:03}/"),
        };
        written.expect("writing to a string cannot fail");
    }
    if (1..WIDTH).contains(&width) {
        path.push_str(&format!(".p/{width}"));
    }
    path
}
