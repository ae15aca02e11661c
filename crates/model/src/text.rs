//! Serde for types whose one spelling is their text.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

/// Reads a string and parses it; the parser's own words are the error.
pub(crate) fn parse<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
