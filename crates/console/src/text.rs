//! How values of the API are written on a page.

use std::fmt;

use belljar_model::display;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
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
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Everything but unreserved characters is escaped in a part of an address.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes a text for one segment of a path, or for one value of a query.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
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
        assert_eq!(Text::from("plain <b>").as_str(), "plain <b>", "the template escapes markup");
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
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "1 MiB", "16777216 TiB"]);
        assert_eq!([number(7), number(1000), number(48_211)], ["7", "1,000", "48,211"]);
        assert_eq!([duration(999), duration(61_000)], ["999 ms", "1 min"]);
        assert_eq!(segment("a b/ä"), "a%20b%2F%C3%A4");
        assert_eq!(principal("person:https://id.example#ada").as_str(), "ada");
        assert_eq!(principal("service:ci").as_str(), "service:ci");
    }
}
