//! A secret of a test, and the spellings in which it might come back.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};

/// A value that is nowhere else in the world.
#[derive(Debug, Clone)]
pub struct Canary(String);

impl Canary {
    pub fn new() -> Self {
        let random = || RandomState::new().hash_one(0);
        // Some characters that every way of escaping treats in its own way.
        let value = format!("canary/{:016x}+{:016x}=", random(), random());
        crate::planted::plant(&value);
        Self(value)
    }

    pub fn value(&self) -> &str {
        &self.0
    }

    /// Whether a server should take this `Authorization` for it: bare, as a bearer's token, or as a
    /// password.
    pub fn is_in(&self, authorization: &str) -> bool {
        match authorization.split_once(' ') {
            None => authorization == self.0,
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token == self.0,
            Some((scheme, pair)) if scheme.eq_ignore_ascii_case("basic") => {
                let pair = STANDARD.decode(pair).unwrap_or_default();
                let pair = String::from_utf8_lossy(&pair).into_owned();
                pair.split_once(':').is_some_and(|(_, password)| password == self.0)
            }
            Some(_) => false,
        }
    }

    /// What a server writes that repeats it in many spellings.
    pub fn repeated(&self) -> String {
        let based = |engine: &GeneralPurpose| {
            ["", ":", "::"].map(|before| engine.encode(format!("{before}{}{before}", self.0)))
        };
        let based = [based(&STANDARD), based(&URL_SAFE)].concat();
        let others = self.escaped().into_iter().map(|(_, text)| text);
        others.chain(based).collect::<Vec<_>>().join(" ")
    }

    /// The name of a spelling of it that is in these bytes.
    pub fn found_in(&self, bytes: &[u8]) -> Option<&'static str> {
        let length = self.0.len();
        let mut spellings = self.escaped();
        for (name, engine) in [("base64", STANDARD), ("base64url", URL_SAFE)] {
            for before in 0..3 {
                let digits = engine.encode(format!("{}{}", &"::"[..before], self.0));
                // Those that stand for nothing but bytes of the value.
                let (from, to) = ((before * 8).div_ceil(6), (before + length) * 8 / 6);
                spellings.push((name, digits[from..to].to_owned()));
            }
        }
        let has = |text: &String| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        spellings.into_iter().find(|(_, text)| has(text)).map(|(name, _)| name)
    }

    /// It in the spellings that look the same wherever it stands.
    fn escaped(&self) -> Vec<(&'static str, String)> {
        let each = |spell: fn(u8) -> String| self.0.bytes().map(spell).collect();
        let escaped = |byte: u8| match byte {
            b'0'..=b'9' | b'a'..=b'z' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        vec![
            ("plain", self.0.clone()),
            ("hex", hex::encode(&self.0)),
            ("HEX", hex::encode_upper(&self.0)),
            ("percent", each(escaped)),
            ("all percent", each(|byte| format!("%{byte:02x}"))),
            ("JSON", each(|byte| format!("\\u{byte:04x}"))),
            ("HTML", each(|byte| format!("&#{byte};"))),
        ]
    }
}

impl Default for Canary {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_in_each_spelling_wherever_it_stands() {
        let canary = Canary::new();
        for text in canary.repeated().split(' ') {
            assert!(canary.found_in(format!("<{text}>").as_bytes()).is_some(), "{text}");
        }
        for user in ["", "a", "ab", "abc", "abcd"] {
            let pair = STANDARD.encode(format!("{user}:{}:more", canary.value()));
            assert_eq!(canary.found_in(pair.as_bytes()), Some("base64"), "{user}");
        }
        assert_eq!(canary.found_in(Canary::new().value().as_bytes()), None);
    }

    #[test]
    fn a_server_takes_it_in_three_forms() {
        let canary = Canary::new();
        let pair = |text: String| format!("Basic {}", STANDARD.encode(text));
        assert!(canary.is_in(canary.value()));
        assert!(canary.is_in(&format!("Bearer {}", canary.value())));
        assert!(canary.is_in(&pair(format!("me:{}", canary.value()))));
        assert!(!canary.is_in(&pair(format!("{}:me", canary.value()))));
        assert!(!canary.is_in("Bearer canary"));
    }
}
