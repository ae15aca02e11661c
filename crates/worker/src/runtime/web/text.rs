//! Text encodings: UTF-8, UTF-16, Latin-1 and windows-1252.

use rquickjs::function::Func;
use rquickjs::{Object, Result};

use super::binary::Binary;

pub(super) fn natives(natives: &Object<'_>) -> Result<()> {
    natives.set("utf8Encode", Func::from(|text: String| Binary(text.into_bytes())))?;
    natives.set("utf8Decode", Func::from(utf8_decode))?;
    natives.set("utf8Complete", Func::from(|bytes: Binary| complete(&bytes.0)))?;
    natives.set("utf16Decode", Func::from(utf16_decode))?;
    natives.set("latin1Encode", Func::from(latin1_encode))?;
    natives.set("latin1Decode", Func::from(latin1_decode))?;
    natives.set("windows1252Decode", Func::from(windows_1252_decode))
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes UTF-8. Returns `None` for invalid bytes if `is_fatal` is set.
fn utf8_decode(bytes: Binary, is_fatal: bool, keeps_mark: bool) -> Option<String> {
    let mut bytes = bytes.0;
    if !keeps_mark && bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(_) if is_fatal => None,
        Err(error) => Some(String::from_utf8_lossy(error.as_bytes()).into_owned()),
    }
}

/// Returns the number of bytes before an incomplete UTF-8 character at the end.
fn complete(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match str::from_utf8(bytes.get(at..).unwrap_or_default()) {
            Ok(_) => return bytes.len(),
            // Invalid bytes are skipped. Only an incomplete character at the end is held back.
            Err(error) => match error.error_len() {
                Some(wrong) => at += error.valid_up_to() + wrong,
                None => return at + error.valid_up_to(),
            },
        }
    }
}

fn utf16_decode(bytes: Binary, is_fatal: bool, is_big_endian: bool) -> Option<String> {
    let (pairs, rest) = bytes.0.as_chunks::<2>();
    let read = if is_big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
    let units = pairs.iter().map(|pair| read(*pair));
    let mut text = String::new();
    for decoded in char::decode_utf16(units) {
        match decoded {
            Ok(character) => text.push(character),
            Err(_) if is_fatal => return None,
            Err(_) => text.push(char::REPLACEMENT_CHARACTER),
        }
    }
    match (rest.is_empty(), is_fatal) {
        (true, _) => Some(text),
        (false, true) => None,
        (false, false) => Some(text + "\u{fffd}"),
    }
}

/// Encodes Latin-1. Returns `None` if a character is above U+00FF.
fn latin1_encode(text: String) -> Option<Binary> {
    text.chars().map(|it| u8::try_from(it).ok()).collect::<Option<Vec<u8>>>().map(Binary)
}

fn latin1_decode(bytes: Binary) -> String {
    bytes.0.into_iter().map(char::from).collect()
}

/// The characters of the bytes 0x80 to 0x9f in windows-1252.
const UPPER: &str = "\u{20ac}\u{81}\u{201a}\u{192}\u{201e}\u{2026}\u{2020}\u{2021}\u{2c6}\u{2030}\
    \u{160}\u{2039}\u{152}\u{8d}\u{17d}\u{8f}\u{90}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\
    \u{2014}\u{2dc}\u{2122}\u{161}\u{203a}\u{153}\u{9d}\u{17e}\u{178}";

/// Decodes text in windows-1252, which the web also calls latin1.
fn windows_1252_decode(bytes: Binary) -> String {
    let upper: Vec<char> = UPPER.chars().collect();
    let character = |byte: u8| {
        let upper = byte.checked_sub(0x80).and_then(|at| upper.get(usize::from(at)));
        upper.copied().unwrap_or(char::from(byte))
    };
    bytes.0.into_iter().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_decoder_holds_back_incomplete_utf8_at_the_end_but_not_invalid_bytes() {
        assert_eq!(complete("a\u{20ac}".as_bytes()), 4);
        assert_eq!(complete(b"a\xe2\x82"), 1);
        assert_eq!(complete(b"a\xff\xe2\x82"), 2);
        assert_eq!(complete(b"\xffa"), 2);
        assert_eq!(complete(b"\xf0\x9f\x92"), 0);
    }
}
