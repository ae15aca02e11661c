//! The fields of an event: names and typed values in one canonical encoding.

use crate::body::Body;
use crate::bytes::{Cursor, put_bytes32, put_str8};
use crate::digest::Digest;

/// The typed value of one field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Bytes(Vec<u8>),
    Number(u64),
    Truth(bool),
    List(Vec<Vec<u8>>),
    Hash(Digest),
    Body(Body),
}

/// The fields of one event, sorted by name without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, Value)>);

/// Why the encoded fields of an event are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("the fields are truncated")]
    Short,
    #[error("the name of a field has characters other than a-z, 0-9 and _")]
    Name,
    #[error("the fields are not in ascending order, or one is a duplicate")]
    Order,
    #[error("a field has a type that this version of Belljar does not support")]
    Type,
    #[error("the value of a field is invalid for its type")]
    Value,
}

impl Fields {
    /// Sets a field, replacing an earlier value of the same name.
    pub fn set(&mut self, name: &str, value: Value) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(place) => {
                if let Some(field) = self.0.get_mut(place) {
                    field.1 = value;
                }
            }
            Err(place) => self.0.insert(place, (name.to_owned(), value)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the bodies that the fields reference.
    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        self.0.iter().filter_map(|(_, value)| match value {
            Value::Body(body) => Some(body),
            Value::Text(_)
            | Value::Bytes(_)
            | Value::Number(_)
            | Value::Truth(_)
            | Value::List(_)
            | Value::Hash(_) => None,
        })
    }

    /// Appends the encoded fields; `None` if a name, value or count exceeds the limits of the
    /// format.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(&u16::try_from(self.0.len()).ok()?.to_be_bytes());
        for (name, value) in &self.0 {
            put_str8(out, name)?;
            value.encode(out)?;
        }
        Some(())
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, FieldError> {
        let mut fields = Vec::new();
        walk(cursor, |name, value| fields.push((name.to_owned(), value.into_value())))?;
        Ok(Self(fields))
    }
}

/// A value of a field, borrowed from the bytes of its event.
#[derive(Debug, Clone)]
pub(crate) enum Raw<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Number(u64),
    Truth(bool),
    /// The checked items of a list, each with its length before it.
    List(&'a [u8]),
    Hash(Digest),
    Body(Body),
}

/// Parses the canonical encoding of fields and passes each name and value to `show`.
pub(crate) fn walk<'a>(
    cursor: &mut Cursor<'a>,
    mut show: impl FnMut(&'a str, Raw<'a>),
) -> Result<(), FieldError> {
    let mut last = "";
    for _ in 0..cursor.u16().ok_or(FieldError::Short)? {
        let name = cursor.str8().ok_or(FieldError::Short)?;
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(FieldError::Name);
        }
        if last >= name {
            return Err(FieldError::Order);
        }
        last = name;
        let kind = cursor.u8().ok_or(FieldError::Short)?;
        let bytes = cursor.bytes32().ok_or(FieldError::Short)?;
        show(name, Raw::decode(kind, bytes)?);
    }
    Ok(())
}

impl<'a> Raw<'a> {
    fn decode(kind: u8, bytes: &'a [u8]) -> Result<Self, FieldError> {
        let mut cursor = Cursor::new(bytes);
        let value = match kind {
            1 => {
                let text = std::str::from_utf8(bytes).map_err(|_| FieldError::Value)?;
                return Ok(Self::Text(text));
            }
            2 => return Ok(Self::Bytes(bytes)),
            3 => cursor.u64().map(Self::Number),
            4 => cursor.u8().and_then(truth).map(Self::Truth),
            5 => list(&mut cursor).map(Self::List),
            6 => cursor.array().map(Digest::new).map(Self::Hash),
            7 => body(&mut cursor).map(Self::Body),
            _ => return Err(FieldError::Type),
        };
        value.filter(|_| cursor.is_empty()).ok_or(FieldError::Value)
    }

    fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::Text(text.to_owned()),
            Self::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Self::Number(number) => Value::Number(number),
            Self::Truth(truth) => Value::Truth(truth),
            Self::List(items) => Value::List(self::items(items).map(<[u8]>::to_vec).collect()),
            Self::Hash(hash) => Value::Hash(hash),
            Self::Body(body) => Value::Body(body),
        }
    }
}

impl Value {
    fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Text(text) => put(out, 1, text.as_bytes()),
            Self::Bytes(bytes) => put(out, 2, bytes),
            Self::Number(number) => put(out, 3, &number.to_be_bytes()),
            Self::Truth(truth) => put(out, 4, &[u8::from(*truth)]),
            Self::List(items) => {
                let mut list = Vec::new();
                list.extend_from_slice(&u32::try_from(items.len()).ok()?.to_be_bytes());
                items.iter().try_for_each(|item| put_bytes32(&mut list, item))?;
                put(out, 5, &list)
            }
            Self::Hash(hash) => put(out, 6, hash.as_bytes()),
            Self::Body(body) => {
                let mut bytes = body.hash().as_bytes().to_vec();
                bytes.extend_from_slice(&body.size().to_be_bytes());
                bytes.push(u8::from(body.is_kept()));
                put(out, 7, &bytes)
            }
        }
    }
}

fn put(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) -> Option<()> {
    out.push(kind);
    put_bytes32(out, bytes)
}

fn truth(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Returns the bytes of a list after checking that its items match the count and fill the bytes.
fn list<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let count = cursor.u32()?;
    let all = cursor.rest();
    // An item takes at least four bytes, so a false count ends the loop and reserves no memory.
    for _ in 0..count {
        cursor.bytes32()?;
    }
    cursor.is_empty().then_some(all)
}

/// Returns the items of a list that was checked before.
pub(crate) fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut cursor = Cursor::new(list);
    std::iter::from_fn(move || cursor.bytes32())
}

fn body(cursor: &mut Cursor<'_>) -> Option<Body> {
    let hash = Digest::new(cursor.array()?);
    let size = cursor.u64()?;
    Some(Body::named(hash, size, truth(cursor.u8()?)?))
}
