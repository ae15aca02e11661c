//! Name comparison by the rules of the most lenient file systems (threat C18).

use crate::unicode::is_ignorable;

/// Returns the folded form of a file name, by which lenient file systems (ext4 with `casefold`,
/// HFS+, APFS, NTFS, FAT) find a file.
///
/// The result is lower case, has no invisible characters, no dots or spaces at the end, and no stream
/// after `:`.
pub(crate) fn fold_component(name: &[u8]) -> Vec<u8> {
    let mut folded = if name.is_ascii() { name.to_ascii_lowercase() } else { fold_unicode(name) };
    let stream = folded.iter().skip(1).position(|byte| *byte == b':');
    folded.truncate(stream.map_or(folded.len(), |at| at + 1));
    let end = folded.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |at| at + 1);
    folded.truncate(end);
    folded
}

fn fold_unicode(name: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_folded(&mut folded, c);
        }
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

fn push_folded(folded: &mut Vec<u8>, c: char) {
    if c.is_ascii() {
        folded.extend(u8::try_from(c).map(|byte| byte.to_ascii_lowercase()));
    } else if let Some(ascii) = ascii_fold(c) {
        folded.extend_from_slice(ascii.as_bytes());
    } else if !is_ignorable(c) {
        folded.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Returns the ASCII text that a character folds to, if any.
///
/// By full case folding (CaseFolding.txt, C and F), and by the upper-case folding of older systems.
fn ascii_fold(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{17f}' => "s",             // long s
        '\u{212a}' => "k",            // kelvin sign
        '\u{131}' | '\u{130}' => "i", // Turkish dotless and dotted i
        '\u{df}' | '\u{1e9e}' => "ss",
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_that_folds_to_ascii_is_in_the_table() {
        for c in ('\u{80}'..=char::MAX).filter(|c| !is_ignorable(*c)) {
            let folded: String = c.to_uppercase().flat_map(char::to_lowercase).collect();
            if folded.is_ascii() {
                assert_eq!(ascii_fold(c), Some(folded.as_str()), "U+{:04X}", u32::from(c));
            }
        }
    }

    #[test]
    fn file_names_fold_as_on_the_most_lenient_file_system() {
        for (name, folded) in [
            (&b".GIT"[..], &b".git"[..]),
            (".g\u{200c}it".as_bytes(), b".git"),
            (".git\u{fe0f}".as_bytes(), b".git"),
            (b".git. .", b".git"),
            (b".git::$INDEX_ALLOCATION", b".git"),
            ("ma\u{212a}efile".as_bytes(), b"makefile"),
            ("con\u{fb01}g".as_bytes(), b"config"),
            ("hoo\u{212a}\u{17f}".as_bytes(), b"hooks"),
            (b":x", b":x"),
            (b"\xff\xfeA", b"\xff\xfea"),
            ("é".as_bytes(), "é".as_bytes()),
            (b"...", b""),
        ] {
            assert_eq!(fold_component(name), folded, "{}", name.escape_ascii());
        }
    }

    proptest::proptest! {
        #[test]
        fn folding_a_folded_name_changes_nothing(name: String) {
            let once = fold_component(name.as_bytes());
            proptest::prop_assert_eq!(fold_component(&once), once);
        }
    }
}
