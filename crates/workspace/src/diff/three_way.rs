//! Shows a conflict: the changes of the host and of the box to the same original.

use std::io::{self, Write};

use super::Colour;
use super::body::{self, Body, Bytes};
use super::text::{self, line, show};
use crate::change::{Base, Change};
use crate::layers::Layers;
use crate::meta::FileKind;

/// Returns two diffs of a conflict: from the original to the host's version and to the box's
/// version. If the original is unknown, returns the diff from the host's to the box's version.
pub fn three_way(layers: &Layers, change: &Change, colour: Colour) -> String {
    text::in_memory(|out| write(layers, change, (colour, out)))
}

fn write(
    layers: &Layers,
    change: &Change,
    (colour, out): (Colour, &mut dyn Write),
) -> io::Result<()> {
    let path = show(&change.path);
    let host = body::host_bytes(layers, &change.path);
    let new = match change.new.as_ref().filter(|side| side.kind == FileKind::File) {
        Some(side) => body::new_bytes(layers, change, side),
        None => Bytes::Missing("the box has no regular file at this path"),
    };
    text::conflict_header(&path, colour, out)?;
    let [base_name, host_name, box_name] =
        ["base", "host", "box"].map(|side| format!("{side}/{path}"));
    let Some(base) = original(layers, change) else {
        return side((&host, &new), (&host_name, &box_name), (colour, out));
    };
    side((&base, &host), (&base_name, &host_name), (colour, &mut *out))?;
    side((&base, &new), (&base_name, &box_name), (colour, out))
}

fn original(layers: &Layers, change: &Change) -> Option<Bytes> {
    let hash = change.old.as_ref()?.hash?;
    (change.base == Some(Base::Kept)).then(|| body::base_bytes(layers, hash))
}

fn side(
    (old, new): (&Bytes, &Bytes),
    names: (&str, &str),
    (colour, out): (Colour, &mut dyn Write),
) -> io::Result<()> {
    let why = match Body::of(old, new) {
        Body::Lines(lines) if !lines.hunks.is_empty() => {
            return text::hunks(&lines, names, colour, out);
        }
        Body::Lines(_) | Body::Nothing => "no difference",
        Body::Binary => "binary",
        Body::TooLarge => "too large to show",
        Body::Missing(why) => why,
    };
    line(out, colour, "", &format!("! {} -> {}: {why}", names.0, names.1))
}
