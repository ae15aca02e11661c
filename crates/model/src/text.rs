//! Serde helpers for types that are written as text.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Deserializes a string and parses it; a parse error becomes the error message.
pub(crate) fn parse<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A text of the operating system: a string if it is UTF-8, otherwise a list of bytes.
///
/// Works only with self-describing formats such as JSON.
pub(crate) struct OsText<T>(pub(crate) T);

impl<T: AsRef<OsStr>> Serialize for OsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.as_ref();
        match text.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => text.as_bytes().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OsText<OsString> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OsTextVisitor).map(Self)
    }
}

struct OsTextVisitor;

impl<'de> Visitor<'de> for OsTextVisitor {
    type Value = OsString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OsString, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OsString, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        Ok(OsString::from_vec(bytes))
    }
}
