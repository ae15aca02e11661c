//! Loads the content of both sides of a change, as far as it can be shown.

use std::os::fd::AsFd as _;

use super::lines::{self, Lines};
use crate::at;
use crate::base;
use crate::change::{Base, Change, Side};
use crate::content::{self, Content, ContentHash};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;
use crate::tree::UpperFile;

/// The size limit of a file for diffs; larger files are only mentioned.
pub(super) const SHOW_LIMIT: u64 = 4 * 1024 * 1024;

/// The part of a diff after its headers.
#[derive(Debug)]
pub(super) enum Body {
    /// Nothing follows the headers of the diff.
    Nothing,
    Lines(Lines),
    Binary,
    TooLarge,
    /// One version of the file cannot be read; the text is the reason.
    Missing(&'static str),
}

/// The content of one version of a file.
pub(super) enum Bytes {
    Have(Vec<u8>),
    Binary,
    TooLarge,
    Missing(&'static str),
}

impl Body {
    /// Loads both versions of a changed file and compares them.
    pub(super) fn load(layers: &Layers, change: &Change) -> Self {
        let old_file = change.old.as_ref().filter(|side| side.kind == FileKind::File);
        let new_file = change.new.as_ref().filter(|side| side.kind == FileKind::File);
        let same = old_file
            .zip(new_file)
            .is_some_and(|(old, new)| old.hash.is_some() && old.hash == new.hash);
        if same || (old_file.is_none() && new_file.is_none()) || change.unsupported.is_some() {
            return Self::Nothing;
        }
        // A moved file has the same content as before.
        if matches!(change.kind, crate::change::ChangeKind::Renamed { .. }) {
            return Self::Nothing;
        }
        let old = old_file.map_or(Bytes::Have(Vec::new()), |side| old_bytes(layers, change, side));
        let new = new_file.map_or(Bytes::Have(Vec::new()), |side| new_bytes(layers, change, side));
        Self::of(&old, &new)
    }

    /// Compares two versions of a file that are already loaded.
    pub(super) fn of(old: &Bytes, new: &Bytes) -> Self {
        match (old, new) {
            (Bytes::Binary, _) | (_, Bytes::Binary) => Self::Binary,
            (Bytes::TooLarge, _) | (_, Bytes::TooLarge) => Self::TooLarge,
            (Bytes::Missing(why), _) | (_, Bytes::Missing(why)) => Self::Missing(why),
            (Bytes::Have(old), Bytes::Have(new)) => Self::Lines(lines::compare(old, new)),
        }
    }

    pub(super) const fn lines(&self) -> Option<&Lines> {
        match self {
            Self::Lines(lines) => Some(lines),
            Self::Nothing | Self::Binary | Self::TooLarge | Self::Missing(_) => None,
        }
    }
}

/// Returns the original content of a file, or the host's current content if the original is
/// unknown.
pub(super) fn old_bytes(layers: &Layers, change: &Change, side: &Side) -> Bytes {
    if let Some(known) = by_summary(side) {
        return known;
    }
    match (change.base, side.hash) {
        (Some(Base::Kept), Some(hash)) => base_bytes(layers, hash),
        (Some(Base::Unknown), _) => host_bytes(layers, &change.path),
        // The host can have changed the file since: the hash decides whether it is the original.
        (_, Some(hash)) => match host_bytes(layers, &change.path) {
            Bytes::Have(bytes) if ContentHash::of(&bytes) == hash => Bytes::Have(bytes),
            Bytes::Have(_) | Bytes::Binary | Bytes::TooLarge | Bytes::Missing(_) => Bytes::Missing(
                "the original was not stored, and the host has changed the file since",
            ),
        },
        (_, None) => Bytes::Missing("the original was not read"),
    }
}

/// Returns the content of the box's version of a file, checked against its hash.
pub(super) fn new_bytes(layers: &Layers, change: &Change, side: &Side) -> Bytes {
    if let Some(known) = by_summary(side) {
        return known;
    }
    let (parent, name) = change.path.split().unwrap_or((RelPath::root(), b"."));
    let read = layers.upper().dir(&parent).and_then(|dir| {
        let mut opened = UpperFile::open(dir.as_fd(), name)?;
        content::read_up_to(opened.file(), SHOW_LIMIT)
    });
    match read {
        Ok(Some(bytes)) if Some(ContentHash::of(&bytes)) == side.hash => Bytes::Have(bytes),
        Ok(_) => Bytes::Missing("the box's file changed after the changes were sealed"),
        Err(_) => Bytes::Missing("the box's file cannot be read"),
    }
}

/// Returns the stored original content with this hash.
pub(super) fn base_bytes(layers: &Layers, hash: ContentHash) -> Bytes {
    match base::load(layers.run(), hash, SHOW_LIMIT) {
        Ok(Some(bytes)) => Bytes::Have(bytes),
        Ok(None) | Err(_) => Bytes::Missing("the stored original is damaged or missing"),
    }
}

/// Returns the current content of a file on the host.
pub(super) fn host_bytes(layers: &Layers, path: &RelPath) -> Bytes {
    let (parent, name) = path.split().unwrap_or((RelPath::root(), b"."));
    let opened = at::dir(layers.lower(), &parent).and_then(|dir| at::file(&dir, name));
    let read = opened.and_then(|(fd, _)| content::read_up_to(&mut fd.into(), SHOW_LIMIT));
    match read {
        Ok(Some(bytes)) if content::classify(&bytes) == Content::Binary => Bytes::Binary,
        Ok(Some(bytes)) => Bytes::Have(bytes),
        Ok(None) => Bytes::TooLarge,
        Err(_) => Bytes::Missing("the host's file is missing or cannot be read"),
    }
}

/// Returns a result without reading the file if its summary shows that it is binary or too large.
fn by_summary(side: &Side) -> Option<Bytes> {
    if side.content == Some(Content::Binary) {
        return Some(Bytes::Binary);
    }
    (side.size > SHOW_LIMIT).then_some(Bytes::TooLarge)
}
