//! Creates placeholders: random texts in the shape of the secret, useless outside the box.

use belljar_model::net::{Shape, ShapePart};

/// Letters and digits, which need no escape in a header, a query, a JSON string or a shell.
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// The largest multiple of 62 in a byte; larger random bytes are skipped, so that all letters are
/// equally likely.
const UNBIASED: u8 = 248;

/// The system's random number generator failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the random number generator of the system failed")]
pub struct NoRandom;

/// A function that fills a buffer with random bytes.
pub(super) type Random = fn(&mut [u8]) -> Result<(), NoRandom>;

/// Fills a buffer from the random number generator of the system.
pub(super) fn system(bytes: &mut [u8]) -> Result<(), NoRandom> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| NoRandom)
}

/// Creates a random placeholder of this format.
pub(super) fn mint(shape: &Shape, random: Random) -> Result<String, NoRandom> {
    let mut text = String::with_capacity(shape.len());
    for part in shape.parts() {
        match part {
            ShapePart::Literal(literal) => text.push_str(literal),
            ShapePart::Random(count) => letters(*count, random, &mut text)?,
        }
    }
    Ok(text)
}

fn letters(count: usize, random: Random, text: &mut String) -> Result<(), NoRandom> {
    let mut bytes = [0; 64];
    let mut left = count;
    while left > 0 {
        random(&mut bytes)?;
        let unbiased = bytes.iter().filter(|byte| **byte < UNBIASED).take(left);
        let letters = unbiased.filter_map(|byte| ALPHABET.get(usize::from(byte % 62)));
        let before = text.len();
        text.extend(letters.map(|letter| char::from(*letter)));
        left = left.saturating_sub(text.len() - before);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn of(shape: &str) -> String {
        mint(&shape.parse().unwrap(), system).unwrap()
    }

    #[test]
    fn b14_placeholders_are_unique() {
        let minted: BTreeSet<String> = (0..2000).map(|_| of("ghp_{36}")).collect();
        assert_eq!(minted.len(), 2000);
    }

    #[test]
    fn placeholder_letters_are_evenly_distributed() {
        let mut counts = BTreeMap::new();
        for letter in (0..200).flat_map(|_| of("{1000}").into_bytes()) {
            *counts.entry(letter).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), ALPHABET.len());
        // The average is 3226 per letter; a bias of one in four would add 800.
        assert!(counts.values().all(|count| (2700..3800).contains(count)), "{counts:?}");
    }

    #[test]
    fn mint_returns_an_error_if_no_random_bytes_are_available() {
        let shape = "bj_{40}".parse().unwrap();
        assert_eq!(mint(&shape, |_| Err(NoRandom)), Err(NoRandom));
    }

    proptest! {
        #[test]
        fn placeholder_has_the_declared_format(
            before in "[A-Za-z0-9_-]{0,9}", one in 1_usize..60, between in "[._-]{1,5}", two in 20_usize..99,
        ) {
            let text = of(&format!("{before}{{{one}}}{between}{{{two}}}"));
            prop_assert_eq!(text.len(), before.len() + one + between.len() + two);
            let rest = text.strip_prefix(before.as_str()).unwrap();
            let (first, rest) = rest.split_at(one);
            let last = rest.strip_prefix(between.as_str()).unwrap();
            prop_assert!(first.bytes().chain(last.bytes()).all(|byte| byte.is_ascii_alphanumeric()));
        }
    }
}
