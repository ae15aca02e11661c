//! Tokens of the API: `bjt_`, eight public characters, `_`, 43 random characters and six check characters.
//!
//! The public part finds the row of the token, so that no table is searched with a secret. The check part
//! makes it possible to recognise a token in a text without the database, for example in a leaked file.
//!
//! **Invariant:** only [`ApiToken::expose`] reveals a token. The server stores its SHA-256.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::mcp::session::NoRandomness;

pub(crate) const PREFIX: &str = "bjt_";
const PUBLIC: usize = 8;
const RANDOM: usize = 43; // 32 bytes in base64
const CHECK: usize = 6;
const LENGTH: usize = PREFIX.len() + PUBLIC + 1 + RANDOM + CHECK;

/// The public part of a token, which identifies it in lists and in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TokenId(String);

impl TokenId {
    /// Parses the public part of a token.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == PUBLIC && text.bytes().all(digit)).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A token of the API as the client sends it.
pub(crate) struct ApiToken {
    pub(crate) id: TokenId,
    text: Zeroizing<String>,
}

impl ApiToken {
    /// Generates a token from the random bytes of the kernel.
    pub(crate) fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; 4 + 32]);
        getrandom::fill(&mut *bytes).map_err(|_| NoRandomness)?;
        let (public, secret) = bytes.split_at(4);
        let public = hex::encode(public);
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(secret));
        let body = Zeroizing::new(format!("{PREFIX}{public}_{}", secret.as_str()));
        let text = Zeroizing::new(format!("{}{}", body.as_str(), check(&body)));
        Ok(Self { id: TokenId(public), text })
    }

    /// Parses a token. `None` if the text has another form or wrong check characters.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (body, shown) = text.split_at_checked(LENGTH - CHECK)?;
        if text.len() != LENGTH || check(body) != shown {
            return None;
        }
        let (public, secret) = body.strip_prefix(PREFIX)?.split_once('_')?;
        let is_random = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if secret.len() != RANDOM || !secret.bytes().all(is_random) {
            return None;
        }
        Some(Self { id: TokenId::parse(public)?, text: Zeroizing::new(text.to_owned()) })
    }

    /// Returns the token as text, to show it once to its maker.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }

    /// Returns the hash that the server stores.
    pub(crate) fn hash(&self) -> [u8; 32] {
        hash(&self.text)
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiToken({})", self.id.as_str())
    }
}

/// Returns the SHA-256 of a credential, which the server stores instead of the credential.
pub(crate) fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares two hashes of credentials in constant time.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

fn check(body: &str) -> String {
    let digest = hash(body);
    hex::encode(digest).chars().take(CHECK).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_token_survives_a_round_trip_and_shows_nothing_in_debug_output() {
        let token = ApiToken::generate().unwrap();
        assert_eq!(token.expose().len(), LENGTH);
        let parsed = ApiToken::parse(token.expose()).unwrap();
        assert_eq!((&parsed.id, parsed.hash()), (&token.id, token.hash()));
        assert_eq!(format!("{token:?}"), format!("ApiToken({})", token.id.as_str()));
    }

    #[test]
    fn f17_api_token_with_one_changed_character_is_refused() {
        let token = ApiToken::generate().unwrap();
        for (at, _) in token.expose().char_indices() {
            let mut wrong = token.expose().to_owned();
            let other = if &wrong[at..=at] == "0" { "1" } else { "0" };
            wrong.replace_range(at..=at, other);
            assert!(ApiToken::parse(&wrong).is_none(), "{at}");
        }
        for wrong in ["", "bjt_", &token.expose()[1..], &format!("{}0", token.expose())] {
            assert!(ApiToken::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn f17_hashes_are_the_same_only_if_all_bytes_are() {
        assert!(is_same(&hash("a"), &hash("a")));
        assert!(!is_same(&hash("a"), &hash("b")));
        assert!(!is_same(&hash("a")[..31], &hash("a")));
    }

    proptest::proptest! {
        #[test]
        fn api_token_parser_accepts_no_other_text(text in ".{0,80}") {
            proptest::prop_assert!(ApiToken::parse(&text).is_none());
        }
    }
}
