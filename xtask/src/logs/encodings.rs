//! Encodings in which a secret can appear in a log, and a search for many encoded secrets at once.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};

/// The minimum length of an encoded secret that is searched for, in bytes.
pub(crate) const MIN_LENGTH: usize = 8;

/// An encoded secret: the name of the encoding and the bytes.
pub(crate) type Encoded = (&'static str, Vec<u8>);

/// Encodes a secret in every supported way. Equal results are returned once, with the first name.
pub(crate) fn encodings(secret: &str) -> Vec<Encoded> {
    let bytes = secret.as_bytes();
    let mut all: Vec<Encoded> = vec![
        ("plain", bytes.to_vec()),
        ("hex", hex::encode(bytes).into_bytes()),
        ("HEX", hex::encode_upper(bytes).into_bytes()),
        ("percent", encode_bytes(bytes, |byte| percent(byte, is_unreserved(byte), true))),
        (
            "percent, lower case",
            encode_bytes(bytes, |byte| percent(byte, is_unreserved(byte), false)),
        ),
        (
            "percent, letters too",
            encode_bytes(bytes, |byte| percent(byte, byte.is_ascii_digit(), true)),
        ),
        ("percent, all", encode_bytes(bytes, |byte| percent(byte, false, true))),
        ("percent, all, lower case", encode_bytes(bytes, |byte| percent(byte, false, false))),
        ("JSON", json(secret, false)),
        ("JSON with \\/", json(secret, true)),
        ("JSON, all", encode_bytes(bytes, |byte| format!("\\u{byte:04x}"))),
        ("JSON, all, upper case", encode_bytes(bytes, |byte| format!("\\u{byte:04X}"))),
    ];
    for offset in 0..3 {
        all.push(("base64", base64_digits(&STANDARD, bytes, offset)));
        all.push(("base64url", base64_digits(&URL_SAFE, bytes, offset)));
    }
    let mut seen = Vec::new();
    all.retain(|(_, encoded)| {
        let is_new = encoded.len() >= MIN_LENGTH && !seen.contains(encoded);
        seen.push(encoded.clone());
        is_new
    });
    all
}

fn encode_bytes(bytes: &[u8], encode: impl Fn(u8) -> String) -> Vec<u8> {
    bytes.iter().flat_map(|byte| encode(*byte).into_bytes()).collect()
}

/// Whether a byte is not escaped in a URL (RFC 3986).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn percent(byte: u8, unescaped: bool, upper: bool) -> String {
    match (unescaped, upper) {
        (true, _) => char::from(byte).to_string(),
        (false, true) => format!("%{byte:02X}"),
        (false, false) => format!("%{byte:02x}"),
    }
}

/// Encodes a secret as a JSON string without the quotes. Some programs also escape every slash.
fn json(secret: &str, escape_slashes: bool) -> Vec<u8> {
    let text = serde_json::Value::from(secret).to_string();
    let text = text.trim_matches('"');
    if escape_slashes { text.replace('/', "\\/").into_bytes() } else { text.as_bytes().to_vec() }
}

/// Returns the base64 digits that depend only on the secret when `offset` other bytes precede it.
fn base64_digits(engine: &GeneralPurpose, bytes: &[u8], offset: usize) -> Vec<u8> {
    let text = engine.encode([&vec![0; offset], bytes].concat());
    let (start, end) = ((offset * 8).div_ceil(6), (offset + bytes.len()) * 8 / 6);
    text.as_bytes().get(start..end).unwrap_or_default().to_vec()
}

/// A search for many encoded secrets in one pass: by their first 8 bytes, then by all bytes.
#[derive(Debug)]
pub(crate) struct Search {
    by_prefix: HashMap<u64, Vec<Encoded>>,
    /// Whether an encoded secret can have a prefix with this hash. This check is faster than a lookup
    /// in the map.
    filter: Vec<bool>,
}

impl Search {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut by_prefix: HashMap<u64, Vec<Encoded>> = HashMap::new();
        let mut filter = vec![false; 1 << 16];
        for encoded in secrets.into_iter().flat_map(encodings) {
            let prefix = encoded.1.iter().take(MIN_LENGTH).fold(0, |last, byte| push(last, *byte));
            by_prefix.entry(prefix).or_default().push(encoded);
            if let Some(is_possible) = filter.get_mut(filter_index(prefix)) {
                *is_possible = true;
            }
        }
        Self { by_prefix, filter }
    }

    /// Counts the secrets in a text by encoding.
    pub(crate) fn count(&self, text: &[u8]) -> BTreeMap<&'static str, usize> {
        let mut found = BTreeMap::new();
        let mut window = 0;
        for (index, byte) in text.iter().enumerate() {
            window = push(window, *byte);
            if index + 1 < MIN_LENGTH || self.filter.get(filter_index(window)) == Some(&false) {
                continue;
            }
            let rest = text.get(index + 1 - MIN_LENGTH..).unwrap_or_default();
            let candidates = self.by_prefix.get(&window).into_iter().flatten();
            for (name, _) in candidates.filter(|(_, encoded)| rest.starts_with(encoded)) {
                *found.entry(*name).or_default() += 1;
            }
        }
        found
    }
}

/// Appends a byte to the last eight bytes of a text, which are stored as a number.
fn push(window: u64, byte: u8) -> u64 {
    (window << 8) | u64::from(byte)
}

/// Returns the index of a prefix in the filter: a 16-bit hash.
fn filter_index(prefix: u64) -> usize {
    usize::try_from(prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "key/9f+4k=\"Zq\" 0123";

    #[test]
    fn search_finds_each_encoding_of_a_secret_under_its_name_only() {
        let search = Search::new([SECRET]);
        for (name, encoded) in encodings(SECRET) {
            let text = [b"before ", &encoded[..], b" after"].concat();
            assert_eq!(search.count(&text), BTreeMap::from([(name, 1)]), "{name}");
        }
    }

    #[test]
    fn search_finds_a_secret_at_every_offset_of_a_base64_text() {
        let search = Search::new([SECRET]);
        for user in ["", "a", "ab", "abc"] {
            let pair = format!("{user}:{SECRET}:more");
            assert_eq!(search.count(STANDARD.encode(&pair).as_bytes()).len(), 1, "{user}");
            assert_eq!(search.count(URL_SAFE.encode(&pair).as_bytes()).len(), 1, "{user}");
        }
    }

    #[test]
    fn search_does_not_find_a_different_secret() {
        let other = SECRET.replace('9', "8");
        let search = Search::new([SECRET]);
        for (_, encoded) in encodings(&other) {
            assert!(search.count(&encoded).is_empty(), "{}", String::from_utf8_lossy(&encoded));
        }
    }
}
