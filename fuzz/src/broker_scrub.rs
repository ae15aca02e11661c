//! Checks the scrubber: its output does not depend on how a stream is split, and contains no secret value.

use std::sync::LazyLock;

use belljar_broker::scrub::{Finder, Scrubber};

/// Values that overlap, that are periodic, and that look like escapes or like encodings of each other.
const VALUES: [&[u8]; 6] = [
    b"ghp_0123456789abcdefABCDEF",
    b"abababab",
    b"babababaX%41",
    b"\\u0041\\\\/&amp;",
    "p\u{e4}ssw\u{f6}rd\u{20ac}".as_bytes(),
    b"\xff\x00\x80%\\&[\"",
];

/// Returns the values with their names.
fn values() -> Vec<(String, &'static [u8])> {
    VALUES.iter().enumerate().map(|(index, value)| (format!("v{index}"), *value)).collect()
}

static SCRUBBER: LazyLock<Scrubber> = LazyLock::new(|| Scrubber::new(&values()).unwrap());
static FINDER: LazyLock<Finder> = LazyLock::new(|| Finder::new(&values()).unwrap());

/// Scrubs a stream that arrives in these pieces.
fn scrub<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = SCRUBBER.stream();
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(piece, &mut out);
    }
    stream.finish(&mut out);
    out
}

pub fn check(text: &[u8]) {
    // The run time is quadratic in the length.
    let text = &text[..text.len().min(300)];
    let whole = scrub([text]);
    assert_eq!(SCRUBBER.text(text), whole);
    assert_eq!(FINDER.text(&whole), None, "{}", whole.escape_ascii());
    assert_eq!(scrub(text.chunks(1)), whole, "split into single bytes");
    for at in 0..=text.len() {
        let (one, two) = text.split_at(at);
        assert_eq!(scrub([one, two]), whole, "split at {at}");
    }
}
