//! Bearer tokens: made here, held only as hashes, compared in constant time.
//!
//! **Invariant:** nothing that prints a value of this file prints a token, but [`Token::expose`].

use std::fmt;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::mcp::session::NoRandomness;

/// As many random bytes as a SHA-256 has.
const RANDOM: usize = 32;

/// Too short to guess at leisure, too long for a header.
const LENGTH: std::ops::RangeInclusive<usize> = 32..=512;

/// What a client shows to be let in.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// A new one, from the kernel's random bytes.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; RANDOM]);
        getrandom::fill(&mut *bytes).map_err(|_| NoRandomness)?;
        Ok(Self(Zeroizing::new(format!("bj_{}", hex::encode(bytes.as_slice())))))
    }

    /// Takes a token that somebody else made.
    pub fn parse(text: &str) -> Result<Self, BadToken> {
        if !LENGTH.contains(&text.len()) {
            return Err(BadToken::Length);
        }
        // The alphabet of RFC 6750, less the end that only some of them may have.
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !text.bytes().all(fits) {
            return Err(BadToken::Alphabet);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// The token itself, to show it once to the one who made it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A text that is no token. It does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    #[error("a token has {} to {} characters", LENGTH.start(), LENGTH.end())]
    Length,
    #[error("a token has letters, digits and `-._~+/=` only")]
    Alphabet,
}

/// The tokens that let somebody in, as hashes. Their order is the order in which they were given.
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

    /// Which of them this is. Looks at all of every one, whatever is shown: how long that takes says
    /// nothing about how much of a guess was right.
    pub(crate) fn find(&self, shown: &str) -> Option<usize> {
        let shown = hash(shown);
        let same = |held: &[u8; 32]| {
            let differs = held.iter().zip(&shown).fold(0, |bits, (a, b)| bits | (a ^ b));
            std::hint::black_box(differs) == 0
        };
        let find = |found: Option<usize>, (at, held)| if same(held) { Some(at) } else { found };
        self.0.iter().enumerate().fold(None, find)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f17_a_token_is_found_by_the_hash_of_all_of_it() {
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
            // What is held is no key: knowing it lets nobody in.
            assert_eq!(tokens.find(&hex::encode(hash(shown))), None);
        }
        assert_eq!(Tokens::default().find(""), None);
    }

    #[test]
    fn f17_nothing_prints_a_token() {
        let token = Token::generate().unwrap();
        let printed = format!("{token:?} {:?}", Tokens::new([&token]));
        assert_eq!(printed, "Token(..) Tokens(1)");
        let short = Token::parse("hunter2").unwrap_err().to_string();
        let strange = Token::parse(&"hunter2 ".repeat(5)).unwrap_err().to_string();
        assert!(!format!("{short}{strange}").contains("hunter2"));
        assert_eq!(Token::parse(token.expose()).unwrap(), token);
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let made: std::collections::BTreeSet<String> =
            (0..1000).map(|_| Token::generate().unwrap().expose().to_owned()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|token| token.len() == 3 + 2 * RANDOM));
    }
}
