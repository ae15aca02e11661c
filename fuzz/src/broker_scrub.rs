//! Wherever a stream is cut, the same comes out of it, and no value is left in it.

use std::sync::LazyLock;

use belljar_broker::scrub::{Finder, Scrubber};

/// Values that overlap, repeat themselves, and look like escapes or like each other's encodings.
const VALUES: [&[u8]; 6] = [
    b"ghp_0123456789abcdefABCDEF",
    b"abababab",
    b"babababaX%41",
    b"\\u0041\\\\/&amp;",
    "p\u{e4}ssw\u{f6}rd\u{20ac}".as_bytes(),
    b"\xff\x00\x80%\\&[\"",
];

fn values() -> Vec<(String, &'static [u8])> {
    VALUES.iter().enumerate().map(|(index, value)| (format!("v{index}"), *value)).collect()
}

static SCRUBBER: LazyLock<Scrubber> = LazyLock::new(|| Scrubber::new(&values()).unwrap());
static FINDER: LazyLock<Finder> = LazyLock::new(|| Finder::new(&values()).unwrap());

fn pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = SCRUBBER.stream();
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(piece, &mut out);
    }
    stream.finish(&mut out);
    out
}

pub fn check(text: &[u8]) {
    // The work grows with the square.
    let text = &text[..text.len().min(300)];
    let whole = pieces([text]);
    assert_eq!(SCRUBBER.text(text), whole);
    assert_eq!(FINDER.text(&whole), None, "{}", whole.escape_ascii());
    assert_eq!(pieces(text.chunks(1)), whole, "byte by byte");
    for at in 0..=text.len() {
        let (one, two) = text.split_at(at);
        assert_eq!(pieces([one, two]), whole, "cut at {at}");
    }
}
