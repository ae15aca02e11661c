//! How values of the API are written on a page.

use std::fmt;

use belljar_model::display;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use serde::Deserialize;

/// A text that a box, a model or a server may have written. Control and invisible characters are shown as escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Text(String);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(display::safe_line(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(display::safe_line(text))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Text {
    /// Returns the text of a file or of a program, which keeps its line ends and tabs.
    pub(crate) fn content(text: &str) -> Self {
        Self(display::safe_multiline(text))
    }

    /// Returns bytes that may be text. Bytes that are not UTF-8 are shown as escapes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(display::safe_line(bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the content of a file, which keeps its line ends and tabs.
    pub(crate) fn block(text: &str) -> Self {
        Self(display::safe_multiline(text))
    }

    /// Returns the text without what is behind the first `max` characters.
    pub(crate) fn cut(&self, max: usize) -> Self {
        match self.0.char_indices().nth(max) {
            Some((end, _)) => Self(format!("{}…", self.0.get(..end).unwrap_or_default())),
            None => self.clone(),
        }
    }

    /// Splits the text into plain parts and escapes of hidden characters.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = self.0.as_str();
        while let Some((start, end)) = next_escape(rest) {
            let (plain, from) = rest.split_at(start);
            let (escape, after) = from.split_at(end - start);
            if !plain.is_empty() {
                parts.push(Part { text: plain.to_owned(), is_escape: false });
            }
            parts.push(Part { text: escape.to_owned(), is_escape: true });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part { text: rest.to_owned(), is_escape: false });
        }
        parts
    }
}

/// A part of a text: plain, or the escape of a hidden character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) is_escape: bool,
}

/// Returns the range of the first escape such as `\x1b` or `\u{202e}`.
fn next_escape(text: &str) -> Option<(usize, usize)> {
    text.match_indices('\\').find_map(|(start, _)| {
        let rest = text.get(start + 1..)?;
        let is_hex = |text: &str| {
            (1..=6).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit())
        };
        let length = match rest.strip_prefix("u{").and_then(|rest| rest.split_once('}')) {
            Some((code, _)) if is_hex(code) => code.len() + 3,
            _ => 3,
        };
        let is_byte = || rest.strip_prefix('x').and_then(|rest| rest.get(..2)).is_some_and(is_hex);
        (length > 3 || is_byte()).then_some((start, start + 1 + length))
    })
}

/// Everything but unreserved characters is escaped in a part of an address.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes a text for one segment of a path, or for one value of a query.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Escapes a path of the API for an address.
pub(crate) fn path(text: &str) -> String {
    const PATH: &AsciiSet = &SEGMENT.remove(b'/');
    percent_encode(&bytes_of_path(text), PATH).to_string()
}

/// Returns the bytes of a path that has `\\` for a backslash, and `\xNN` for a byte that is not UTF-8.
fn bytes_of_path(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        let byte = after.strip_prefix('x').and_then(|it| u8::from_str_radix(it.get(..2)?, 16).ok());
        bytes.push(byte.unwrap_or(b'\\'));
        rest = after.get(if byte.is_some() { 3 } else { 1 }..).unwrap_or_default();
    }
    bytes.extend(rest.as_bytes());
    bytes
}

/// A time, shown as the distance from now, with the exact time as its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moment {
    /// As in RFC 3339.
    pub(crate) exact: String,
    /// Such as `4 min ago` or `in 2 h`.
    pub(crate) distance: String,
    /// The time of day, such as `14:32:05`.
    pub(crate) clock: String,
}

impl Moment {
    /// Reads a time of the API. A text of another form is shown as it is.
    pub(crate) fn of(text: &str, now: u64) -> Self {
        let Ok(time) = text.parse::<Timestamp>() else {
            let text = display::safe_line(text);
            return Self { exact: text.clone(), distance: text.clone(), clock: text };
        };
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let past = now.saturating_sub(time.as_millisecond());
        let (span, is_past) = (past.unsigned_abs(), past >= 0);
        let distance = match (duration(span), is_past) {
            (_, _) if span < 1000 => "now".to_owned(),
            (span, true) => format!("{span} ago"),
            (span, false) => format!("in {span}"),
        };
        let clock = time.strftime("%H:%M:%S").to_string();
        Self { exact: time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(), distance, clock }
    }
}

/// Writes a number of milliseconds with its largest unit, such as `4 min`.
pub(crate) fn duration(milliseconds: u64) -> String {
    const SECOND: u64 = 1000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match milliseconds {
        0..SECOND => format!("{milliseconds} ms"),
        SECOND..MINUTE => format!("{} s", milliseconds / SECOND),
        MINUTE..HOUR => format!("{} min", milliseconds / MINUTE),
        HOUR..DAY => format!("{} h", milliseconds / HOUR),
        _ => format!("{} d", milliseconds / DAY),
    }
}

/// Writes a number of milliseconds with its two largest units, such as `4 min 2 s`.
pub(crate) fn took(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (whole, rest, names) = match seconds {
        0 => return format!("{milliseconds} ms"),
        1..60 => return format!("{seconds} s"),
        60..3600 => (seconds / 60, seconds % 60, ["min", "s"]),
        3600..86_400 => (seconds / 3600, seconds / 60 % 60, ["h", "min"]),
        _ => (seconds / 86_400, seconds / 3600 % 24, ["d", "h"]),
    };
    if rest == 0 {
        format!("{whole} {}", names[0])
    } else {
        format!("{whole} {} {rest} {}", names[0], names[1])
    }
}

/// Reads a time of the API in milliseconds since 1970.
pub(crate) fn millis(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// Writes an amount of US dollars of the API, such as `$0.42`. A text of another form is shown as it is.
pub(crate) fn money(text: &str) -> Text {
    Text::from(format!("${text}"))
}

/// Writes a number of bytes with its largest unit, such as `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = u128::from(count) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 || tenths % 10 == 0 {
        return format!("{} {name}", tenths / 10);
    }
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// Writes a number with separators, such as `48,211`.
pub(crate) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Shortens the name of a principal for people: the part after the issuer.
pub(crate) fn principal(text: &str) -> Text {
    let name = match text.split_once(':') {
        Some(("person", name)) => name.rsplit_once('#').map_or(name, |(_, subject)| subject),
        Some((_, _)) | None => text,
    };
    Text::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g02_text_shows_control_and_direction_characters_as_escapes() {
        assert_eq!(Text::from("a\u{1b}[2J\u{202e}b\n").as_str(), "a\\x1b[2J\\u{202e}b\\n");
        assert_eq!(Text::content("a\u{1b}[2J\u{202e}\tb\n").as_str(), "a\\x1b[2J\\u{202e}\tb\n");
        assert_eq!(Text::from("plain <b>").as_str(), "plain <b>", "the template escapes markup");
    }

    #[test]
    fn g02_escapes_of_hidden_characters_are_parts_of_their_own() {
        let parts = |text: &str| {
            let parts = Text::block(text).parts().into_iter();
            parts
                .map(|it| format!("{}{}", if it.is_escape { "!" } else { "" }, it.text))
                .collect::<Vec<_>>()
        };
        assert_eq!(parts("a\u{202e}b\u{1b}"), ["a", "!\\u{202e}", "b", "!\\x1b"]);
        assert_eq!(parts("a\nb \\ \\u{} \\xg1 C:\\x"), ["a\nb \\ \\u{} \\xg1 C:\\x"]);
        assert!(parts("").is_empty());
        assert_eq!(Text::from("abc").cut(2).as_str(), "ab…");
        assert_eq!(Text::from("abc").cut(3).as_str(), "abc");
    }

    #[test]
    fn time_that_something_took_has_two_units() {
        let shown = [0, 59_999, 60_000, 242_000, 3_660_000, 90_000_000].map(took);
        assert_eq!(shown, ["0 ms", "59 s", "1 min", "4 min 2 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(millis("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(millis("yesterday"), None);
    }

    #[test]
    fn moment_is_the_distance_from_now() {
        let now = 1_000_000_000_000;
        let at = |text: &str| Moment::of(text, now).distance;
        assert_eq!(at("2001-09-09T01:46:40Z"), "now");
        assert_eq!(at("2001-09-09T01:42:30Z"), "4 min ago");
        assert_eq!(at("2001-09-09T03:46:41Z"), "in 2 h");
        assert_eq!(at("x\u{7}"), "x\\x07");
    }

    #[test]
    fn numbers_have_units_and_separators() {
        let shown = [bytes(0), bytes(1023), bytes(1536), bytes(1 << 20), bytes(u64::MAX)];
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "1 MiB", "16777215.9 TiB"]);
        assert_eq!([number(7), number(1000), number(48_211)], ["7", "1,000", "48,211"]);
        assert_eq!([duration(999), duration(61_000)], ["999 ms", "1 min"]);
        assert_eq!(segment("a b/ä"), "a%20b%2F%C3%A4");
        assert_eq!(path(r"a b/\xff\\x"), "a%20b/%FF%5Cx");
        assert_eq!(principal("person:https://id.example#ada").as_str(), "ada");
        assert_eq!(principal("service:ci").as_str(), "service:ci");
    }
}
