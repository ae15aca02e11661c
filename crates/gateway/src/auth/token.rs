//! Bearer tokens, stored only as hashes and compared in constant time.
//!
//! **Invariant:** only [`Token::expose`] reveals a token; `Debug` and error messages do not.

use std::fmt;

use belljar_model::caller::ClientId;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::auth::api_token::{hash, is_same};
use crate::mcp::session::NoRandomness;

/// The number of random bytes in a generated token, the same as in a SHA-256 hash.
const RANDOM: usize = 32;

/// The allowed length of a token: long enough to resist guessing, short enough for a header.
const LENGTH: std::ops::RangeInclusive<usize> = 32..=512;

/// A bearer token: a secret text that authenticates a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Generates a token from the random bytes of the kernel.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; RANDOM]);
        getrandom::fill(&mut *bytes).map_err(|_| NoRandomness)?;
        Ok(Self(Zeroizing::new(format!("bj_{}", hex::encode(bytes.as_slice())))))
    }

    /// Parses a token that was generated elsewhere.
    pub fn parse(text: &str) -> Result<Self, BadToken> {
        if !LENGTH.contains(&text.len()) {
            return Err(BadToken::Length);
        }
        // The characters of RFC 6750; `=` is accepted anywhere, not only at the end.
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !text.bytes().all(is_allowed) {
            return Err(BadToken::Alphabet);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the token as text, to show it once to the operator.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The reason why a text is not a valid bearer token. The message does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    #[error("invalid token: expected {} to {} characters", LENGTH.start(), LENGTH.end())]
    Length,
    #[error("invalid token: only letters, digits and `-._~+/=` are allowed")]
    Alphabet,
}

/// The hashes of the accepted bearer tokens, in their original order.
#[derive(Clone, Default)]
pub struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> Self {
        Self(tokens.into_iter().map(|token| hash(token.expose())).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ids of the clients that hold the tokens, in the order of the tokens. An id does not reveal
    /// its token, and is the same after a restart of the server.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.0.iter().map(|held| {
            let id =
                Sha256::new().chain_update("belljar client id\n").chain_update(held).finalize();
            let mut start = [0; 8];
            start.iter_mut().zip(id).for_each(|(to, from)| *to = from);
            ClientId::of_token(start)
        })
    }

    /// Returns the index of an accepted token, or `None` if the shown token is unknown. The time
    /// does not depend on how much of a guess is right: all hashes are compared completely.
    pub(crate) fn find(&self, shown: &str) -> Option<usize> {
        let shown = hash(shown);
        let find = |found: Option<usize>, (at, held): (usize, &[u8; 32])| {
            if is_same(held, &shown) { Some(at) } else { found }
        };
        self.0.iter().enumerate().fold(None, find)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f17_bearer_token_is_accepted_only_if_all_of_it_matches() {
        let all: Vec<Token> = (0..3).map(|_| Token::generate().unwrap()).collect();
        let tokens = Tokens::new(&all);
        for (at, token) in all.iter().enumerate() {
            assert_eq!(tokens.find(token.expose()), Some(at));
            let shown = token.expose();
            for wrong in
                [&shown[..shown.len() - 1], &format!("{shown}0"), &shown.to_uppercase(), ""]
            {
                assert_eq!(tokens.find(wrong), None, "{wrong}");
            }
            // The stored hash itself is not accepted as a token.
            assert_eq!(tokens.find(&hex::encode(hash(shown))), None);
        }
        assert_eq!(Tokens::default().find(""), None);
    }

    #[test]
    fn f17_debug_output_and_errors_contain_no_token() {
        let token = Token::generate().unwrap();
        let printed = format!("{token:?} {:?}", Tokens::new([&token]));
        assert_eq!(printed, "Token(..) Tokens(1)");
        let short = Token::parse("hunter2").unwrap_err().to_string();
        let strange = Token::parse(&"hunter2 ".repeat(5)).unwrap_err().to_string();
        assert!(!format!("{short}{strange}").contains("hunter2"));
        assert_eq!(Token::parse(token.expose()).unwrap(), token);
    }

    #[test]
    fn generated_bearer_tokens_are_unique() {
        let made: std::collections::BTreeSet<String> =
            (0..1000).map(|_| Token::generate().unwrap().expose().to_owned()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|token| token.len() == 3 + 2 * RANDOM));
    }
}
