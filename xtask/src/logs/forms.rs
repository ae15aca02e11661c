//! The forms in which a secret can be in a log, and a search for many of them at once.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};

/// Every form of a search has at least so many bytes.
pub(crate) const SHORTEST: usize = 8;

/// A form of one secret: its name and its bytes.
pub(crate) type Form = (&'static str, Vec<u8>);

/// All forms of a secret. Equal ones are there once, under the first name.
pub(crate) fn forms(secret: &str) -> Vec<Form> {
    let bytes = secret.as_bytes();
    let mut all: Vec<Form> = vec![
        ("plain", bytes.to_vec()),
        ("hex", hex::encode(bytes).into_bytes()),
        ("HEX", hex::encode_upper(bytes).into_bytes()),
        ("percent", each(bytes, |byte| percent(byte, is_unreserved(byte), true))),
        ("percent, lower case", each(bytes, |byte| percent(byte, is_unreserved(byte), false))),
        ("percent, letters too", each(bytes, |byte| percent(byte, byte.is_ascii_digit(), true))),
        ("percent, all", each(bytes, |byte| percent(byte, false, true))),
        ("percent, all, lower case", each(bytes, |byte| percent(byte, false, false))),
        ("JSON", json(secret, false)),
        ("JSON with \\/", json(secret, true)),
        ("JSON, all", each(bytes, |byte| format!("\\u{byte:04x}"))),
        ("JSON, all, upper case", each(bytes, |byte| format!("\\u{byte:04X}"))),
    ];
    for offset in 0..3 {
        all.push(("base64", base64_digits(&STANDARD, bytes, offset)));
        all.push(("base64url", base64_digits(&URL_SAFE, bytes, offset)));
    }
    let mut seen = Vec::new();
    all.retain(|(_, form)| {
        let is_new = form.len() >= SHORTEST && !seen.contains(form);
        seen.push(form.clone());
        is_new
    });
    all
}

fn each(bytes: &[u8], spell: impl Fn(u8) -> String) -> Vec<u8> {
    bytes.iter().flat_map(|byte| spell(*byte).into_bytes()).collect()
}

/// RFC 3986: what stays as it is in a URL.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn percent(byte: u8, as_is: bool, upper: bool) -> String {
    match (as_is, upper) {
        (true, _) => char::from(byte).to_string(),
        (false, true) => format!("%{byte:02X}"),
        (false, false) => format!("%{byte:02x}"),
    }
}

/// As in a JSON text, without the quotes. Some writers escape every slash.
fn json(secret: &str, slashes: bool) -> Vec<u8> {
    let text = serde_json::Value::from(secret).to_string();
    let text = text.trim_matches('"');
    if slashes { text.replace('/', "\\/").into_bytes() } else { text.as_bytes().to_vec() }
}

/// The digits that stand for bytes of the secret alone when `offset` bytes are before it.
fn base64_digits(engine: &GeneralPurpose, bytes: &[u8], offset: usize) -> Vec<u8> {
    let text = engine.encode([&vec![0; offset], bytes].concat());
    let (from, to) = ((offset * 8).div_ceil(6), (offset + bytes.len()) * 8 / 6);
    text.as_bytes().get(from..to).unwrap_or_default().to_vec()
}

/// Looks for many forms in one pass: by their first bytes, then by all of them.
#[derive(Debug)]
pub(crate) struct Search {
    by_start: HashMap<u64, Vec<Form>>,
    /// Whether a form can begin like this. Rules most places out for less than a look into the map.
    filter: Vec<bool>,
}

impl Search {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut by_start: HashMap<u64, Vec<Form>> = HashMap::new();
        let mut filter = vec![false; 1 << 16];
        for form in secrets.into_iter().flat_map(forms) {
            let start = form.1.iter().take(SHORTEST).fold(0, |start, byte| push(start, *byte));
            by_start.entry(start).or_default().push(form);
            if let Some(can) = filter.get_mut(place(start)) {
                *can = true;
            }
        }
        Self { by_start, filter }
    }

    /// How often each kind of form is in a text.
    pub(crate) fn count(&self, text: &[u8]) -> BTreeMap<&'static str, usize> {
        let mut found = BTreeMap::new();
        let mut window = 0;
        for (at, byte) in text.iter().enumerate() {
            window = push(window, *byte);
            if at + 1 < SHORTEST || self.filter.get(place(window)) == Some(&false) {
                continue;
            }
            let rest = text.get(at + 1 - SHORTEST..).unwrap_or_default();
            let forms = self.by_start.get(&window).into_iter().flatten();
            for (name, _) in forms.filter(|(_, form)| rest.starts_with(form)) {
                *found.entry(*name).or_default() += 1;
            }
        }
        found
    }
}

/// The last eight bytes of a text as a number.
fn push(window: u64, byte: u8) -> u64 {
    (window << 8) | u64::from(byte)
}

/// Where the filter has a start: 16 bits, spread by the golden ratio.
fn place(start: u64) -> usize {
    usize::try_from(start.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "key/9f+4k=\"Zq\" 0123";

    #[test]
    fn each_form_is_found_under_its_name_and_alone() {
        let search = Search::new([SECRET]);
        for (name, form) in forms(SECRET) {
            let text = [b"before ", &form[..], b" after"].concat();
            assert_eq!(search.count(&text), BTreeMap::from([(name, 1)]), "{name}");
        }
    }

    #[test]
    fn base64_of_a_longer_text_is_found_at_every_offset() {
        let search = Search::new([SECRET]);
        for user in ["", "a", "ab", "abc"] {
            let pair = format!("{user}:{SECRET}:more");
            assert_eq!(search.count(STANDARD.encode(&pair).as_bytes()).len(), 1, "{user}");
            assert_eq!(search.count(URL_SAFE.encode(&pair).as_bytes()).len(), 1, "{user}");
        }
    }

    #[test]
    fn another_secret_is_not_found() {
        let other = SECRET.replace('9', "8");
        let search = Search::new([SECRET]);
        for (_, form) in forms(&other) {
            assert!(search.count(&form).is_empty(), "{}", String::from_utf8_lossy(&form));
        }
    }
}
