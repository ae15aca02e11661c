//! Escaping of untrusted text before it is shown on a terminal (threats F13 and G02).
//!
//! A box chooses file names, output and messages, and a terminal obeys escape sequences: a name could
//! clear the screen, change the title, or reverse the order of the text after it. All such text is
//! escaped here: control, format, private and unassigned characters, unusual spaces and bytes that are
//! not UTF-8 become visible escapes.

use crate::unicode::is_visible;

/// Escapes control characters, invisible characters and backslashes for one line of output. For
/// names, paths and arguments.
pub fn safe(text: impl AsRef<[u8]>) -> String {
    escape(text.as_ref(), |c| is_visible(c) && c != '\\')
}

/// Escapes control and invisible characters for one line of output, but keeps backslashes. For
/// sentences that quote something.
pub fn safe_line(text: impl AsRef<[u8]>) -> String {
    escape(text.as_ref(), is_visible)
}

/// Escapes control and invisible characters of a text, but keeps line ends, tabs and backslashes.
/// For the content of files.
pub fn safe_multiline(text: impl AsRef<[u8]>) -> String {
    escape(text.as_ref(), |c| is_visible(c) || matches!(c, '\n' | '\t'))
}

fn escape(bytes: &[u8], keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if keep(c) { out.push(c) } else { push_escaped(&mut out, c) }
        }
        for byte in chunk.invalid() {
            push_byte(&mut out, *byte);
        }
    }
    out
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c => match u8::try_from(c) {
            Ok(byte) if byte.is_ascii() => push_byte(out, byte),
            _ => out.extend(c.escape_unicode()),
        },
    }
}

fn push_byte(out: &mut String, byte: u8) {
    out.push_str(&format!("\\x{byte:02x}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: impl AsRef<[u8]>, line: &str, multiline: &str) {
        assert_eq!(safe(&text), line);
        assert_eq!(safe_multiline(&text), multiline);
    }

    #[test]
    fn f13_escape_sequences_become_visible() {
        check(
            "\u{1b}[2J\u{1b}]0;title\u{7}",
            r"\x1b[2J\x1b]0;title\x07",
            r"\x1b[2J\x1b]0;title\x07",
        );
        check("a\rb", r"a\rb", r"a\rb");
        check("a\n\tb", r"a\n\tb", "a\n\tb");
        check("\u{9b}31m", r"\u{9b}31m", r"\u{9b}31m");
        check(b"\xff\x9b31m", r"\xff\x9b31m", r"\xff\x9b31m");
        check(b"cut \xf0\x9f", r"cut \xf0\x9f", r"cut \xf0\x9f");
    }

    #[test]
    fn g02_invisible_and_reversing_characters_become_visible() {
        check("a\u{202e}txt.exe", r"a\u{202e}txt.exe", r"a\u{202e}txt.exe");
        check("pay\u{200b}pal", r"pay\u{200b}pal", r"pay\u{200b}pal");
        check("rm\u{a0}x", r"rm\u{a0}x", r"rm\u{a0}x");
        check(
            "\u{e0041}\u{e0100}\u{feff}",
            r"\u{e0041}\u{e0100}\u{feff}",
            r"\u{e0041}\u{e0100}\u{feff}",
        );
        check("\u{2028}\u{2029}", r"\u{2028}\u{2029}", r"\u{2028}\u{2029}");
    }

    #[test]
    fn ordinary_text_is_not_escaped() {
        for text in ["", "src/main.rs", "naïve café", "日本語", "हिन्दी", "e\u{301}", "😀", "a'b\"c"]
        {
            check(text, text, text);
        }
        check(r"a\nb", r"a\\nb", r"a\nb");
        assert_eq!(safe_line("a\\n\n"), r"a\n\n");
    }

    /// Returns whether a terminal could interpret the character instead of drawing it.
    fn is_terminal_control(c: char) -> bool {
        c.is_control()
            || matches!(u32::from(c),
                0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff
                | 0xfe00..=0xfe0f | 0xfff0..=0xfffb | 0xe000..=0xf8ff | 0xe0000..=0x10ffff)
    }

    #[test]
    fn f13_no_terminal_control_character_survives_escaping() {
        // Planes 4 to 13 hold no characters, so a sample of them is enough.
        let empty = |c: &char| ('\u{40000}'..'\u{e0000}').contains(c) && u32::from(*c) % 251 != 0;
        let every: Vec<char> = ('\0'..=char::MAX).filter(|c| !empty(c)).collect();
        for block in every.chunks(4096) {
            let text: String = block.iter().collect();
            for out in [safe(&text), safe_line(&text)] {
                assert_eq!(out.chars().find(|c| is_terminal_control(*c) || !is_visible(*c)), None);
            }
            let kept = |c: &char| is_terminal_control(*c) && !matches!(c, '\n' | '\t');
            assert_eq!(safe_multiline(&text).chars().find(kept), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn f13_escaped_bytes_contain_only_visible_characters(bytes: Vec<u8>) {
            proptest::prop_assert!(safe(&bytes).chars().all(is_visible));
            proptest::prop_assert!(safe_line(&bytes).chars().all(is_visible));
        }

        #[test]
        fn different_texts_stay_different_after_escaping(
            one in "[\\\\nx1b\n\u{1b}]{0,4}",
            other in "[\\\\nx1b\n\u{1b}]{0,4}",
        ) {
            proptest::prop_assert_eq!(safe(&one) == safe(&other), one == other);
        }
    }
}
