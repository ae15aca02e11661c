//! A random secret for tests, and a search for it in different encodings.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};

/// A random secret value, which occurs in no other data.
#[derive(Debug, Clone)]
pub struct Canary(String);

impl Canary {
    pub fn new() -> Self {
        let random = || RandomState::new().hash_one(0);
        // The characters `/`, `+` and `=` are encoded differently by each escaping.
        let value = format!("canary/{:016x}+{:016x}=", random(), random());
        crate::planted::plant(&value);
        Self(value)
    }

    pub fn value(&self) -> &str {
        &self.0
    }

    /// Returns whether an `Authorization` header contains the secret: alone, as bearer token, or as
    /// password of basic authentication.
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

    /// Returns a text that contains the secret in all encodings.
    pub fn repeated(&self) -> String {
        let encode = |engine: &GeneralPurpose| {
            ["", ":", "::"].map(|before| engine.encode(format!("{before}{}{before}", self.0)))
        };
        let base64 = [encode(&STANDARD), encode(&URL_SAFE)].concat();
        let others = self.escaped().into_iter().map(|(_, text)| text);
        others.chain(base64).collect::<Vec<_>>().join(" ")
    }

    /// Returns the name of an encoding in which these bytes contain the secret, if any.
    pub fn found_in(&self, bytes: &[u8]) -> Option<&'static str> {
        let length = self.0.len();
        let mut encodings = self.escaped();
        for (name, engine) in [("base64", STANDARD), ("base64url", URL_SAFE)] {
            for before in 0..3 {
                let digits = engine.encode(format!("{}{}", &"::"[..before], self.0));
                // Only the digits that depend on bytes of the secret alone.
                let (from, to) = ((before * 8).div_ceil(6), (before + length) * 8 / 6);
                encodings.push((name, digits[from..to].to_owned()));
            }
        }
        let has = |text: &String| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        encodings.into_iter().find(|(_, text)| has(text)).map(|(name, _)| name)
    }

    /// Returns the secret in the encodings that do not depend on surrounding bytes.
    fn escaped(&self) -> Vec<(&'static str, String)> {
        let each = |encode: fn(u8) -> String| self.0.bytes().map(encode).collect();
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
    fn canary_is_found_in_each_encoding_at_any_position() {
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
    fn canary_is_accepted_bare_as_bearer_token_and_as_password() {
        let canary = Canary::new();
        let pair = |text: String| format!("Basic {}", STANDARD.encode(text));
        assert!(canary.is_in(canary.value()));
        assert!(canary.is_in(&format!("Bearer {}", canary.value())));
        assert!(canary.is_in(&pair(format!("me:{}", canary.value()))));
        assert!(!canary.is_in(&pair(format!("{}:me", canary.value()))));
        assert!(!canary.is_in("Bearer canary"));
    }
}
