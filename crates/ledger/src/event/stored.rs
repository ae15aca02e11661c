//! The values of events as fields of entries.

use crate::body::Body;
use crate::digest::Digest;
use crate::field::{Fields, Value};

/// A Rust value that is stored as a field; `None` is stored as a missing field.
pub(super) trait Field: Sized {
    fn put(&self, name: &str, fields: &mut Fields);
    fn get(name: &str, fields: &Fields) -> Option<Self>;
}

macro_rules! field {
    ($type:ty, $value:ident => $put:expr, $pattern:pat => $get:expr) => {
        impl Field for $type {
            fn put(&self, name: &str, fields: &mut Fields) {
                let $value = self.clone();
                fields.set(name, $put);
            }

            fn get(name: &str, fields: &Fields) -> Option<Self> {
                match fields.get(name)? {
                    $pattern => $get,
                    _ => None,
                }
            }
        }
    };
}

field!(String, value => Value::Text(value), Value::Text(text) => Some(text.clone()));
field!(Vec<u8>, value => Value::Bytes(value), Value::Bytes(bytes) => Some(bytes.clone()));
field!(u64, value => Value::Number(value), Value::Number(number) => Some(*number));
field!(bool, value => Value::Truth(value), Value::Truth(truth) => Some(*truth));
field!(Digest, value => Value::Hash(value), Value::Hash(hash) => Some(*hash));
field!(Body, value => Value::Body(value), Value::Body(body) => Some(body.clone()));
field!(
    Vec<String>,
    value => Value::List(value.into_iter().map(String::into_bytes).collect()),
    Value::List(items) => items.iter().map(|item| String::from_utf8(item.clone()).ok()).collect()
);
field!(
    Vec<Digest>,
    value => Value::List(value.iter().map(|hash| hash.as_bytes().to_vec()).collect()),
    Value::List(items) => items
        .iter()
        .map(|item| <[u8; Digest::LENGTH]>::try_from(item.as_slice()).ok().map(Digest::new))
        .collect()
);

impl<T: Field> Field for Option<T> {
    fn put(&self, name: &str, fields: &mut Fields) {
        if let Some(value) = self {
            value.put(name, fields);
        }
    }

    fn get(name: &str, fields: &Fields) -> Option<Self> {
        match fields.get(name) {
            Some(_) => T::get(name, fields).map(Some),
            None => Some(None),
        }
    }
}
