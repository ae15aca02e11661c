//! Checks canonical paths: parsing an accepted path again does not change it, and no server can read it as a
//! path with empty, `.` or `..` segments, even after decoding it twice.

use belljar_broker::target::CanonicalPath;
use belljar_model::net::PathPattern;

pub fn check(bytes: &[u8]) {
    let text = super::text(bytes);
    let Ok((path, query)) = CanonicalPath::parse(text) else { return };
    let spelled = path.as_str();
    let (again, no_query) = CanonicalPath::parse(spelled).expect("a canonical path can be parsed");
    assert!(again == path && no_query.is_none());
    let (before, after) = text.split_once('?').map_or((text, None), |(a, b)| (a, Some(b)));
    // A star is escaped, so that a path cannot become a pattern.
    let expected = before.replace('*', "%2A");
    assert!(spelled.eq_ignore_ascii_case(&expected) && query.as_deref() == after);
    // Some servers decode escapes before they split the path into segments, and some decode twice.
    let once = decoded(spelled.as_bytes());
    for reading in [spelled.as_bytes().to_vec(), decoded(&once), once] {
        assert!(!reading.iter().any(|byte| matches!(byte, b'\\' | 0..=31 | 127)), "{spelled:?}");
        assert!(!reading.windows(2).any(|two| two == b"//"), "{spelled:?}");
        let mut segments = reading.split(|byte| *byte == b'/');
        assert!(!segments.any(|segment| segment == b"." || segment == b".."), "{spelled:?}");
    }
    let everything: PathPattern = "/**".parse().expect("a pattern");
    assert!(path.allowed_by(&everything) && path.denied_by(&everything));
}

/// Decodes percent escapes once.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let digit = |index: usize| after.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).expect("two digits"));
                rest = &after[2..];
            }
            _ => out.push(*byte),
        }
    }
    out
}
