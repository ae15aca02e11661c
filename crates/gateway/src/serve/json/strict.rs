//! An adapter for a deserializer of JSON: a struct must be an object, and no object has a key twice.
//!
//! Without it, serde also reads a struct from an array and keeps the last value of a repeated key of a map.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, Error, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};

/// A value, a deserializer or a visitor whose parts are read strictly.
pub(super) struct Strict<T>(pub(super) T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(StrictVisitor { visitor, shape: Shape::Any })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(StrictVisitor { visitor, shape: Shape::Object })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(StrictVisitor { visitor, shape: Shape::Any })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, StrictVisitor { visitor, shape: Shape::Any })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, StrictVisitor { visitor, shape: Shape::Any })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The shapes of JSON values that a visitor accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Any,
    Object,
}

struct StrictVisitor<V> {
    visitor: V,
    shape: Shape,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StrictVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape {
            Shape::Any => self.visitor.expecting(f),
            Shape::Object => f.write_str("an object"),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.visitor.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.visitor.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.visitor.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.visitor.visit_f64(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.visitor.visit_str(value)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.visitor.visit_borrowed_str(value)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        match self.shape {
            Shape::Any => self.visitor.visit_seq(Strict(list)),
            Shape::Object => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(StrictMap { map, keys: BTreeSet::new() })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, value: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Strict(value))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

/// An object with the keys that were read from it.
struct StrictMap<A> {
    map: A,
    keys: BTreeSet<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for StrictMap<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let Some(key) = self.map.next_key::<String>()? else { return Ok(None) };
        if !self.keys.insert(key.clone()) {
            return Err(A::Error::custom(format_args!("the key `{key}` occurs twice")));
        }
        let key: StringDeserializer<A::Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(Strict(seed))
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, content) = self.0.variant_seed(seed)?;
        Ok((name, Strict(content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, StrictVisitor { visitor, shape: Shape::Any })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, StrictVisitor { visitor, shape: Shape::Object })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    #[serde(deny_unknown_fields, rename_all = "snake_case")]
    enum Place {
        Nowhere,
        At(Inner),
        Between { from: u8, to: u8 },
    }

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        number: Option<u8>,
    }

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        names: BTreeMap<String, Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        inner: Option<Inner>,
        place: Option<Place>,
    }

    fn parse(text: &str) -> Result<Outer, serde_json::Error> {
        Outer::deserialize(Strict(&mut serde_json::Deserializer::from_str(text)))
    }

    #[test]
    fn struct_in_a_body_is_read_from_an_object_only() {
        for text in [
            r#"{"names":{"a":{"number":1}},"list":[{}],"inner":{"number":null}}"#,
            r#"{"place":"nowhere"}"#,
            r#"{"place":{"at":{"number":2}}}"#,
            r#"{"place":{"between":{"from":1,"to":2}}}"#,
            r#"{"inner":null,"place":null}"#,
        ] {
            let strict = parse(text).unwrap();
            assert_eq!(strict, serde_json::from_str(text).unwrap(), "{text}");
        }
        for text in [
            "[]",
            "[{}, [], null, null]",
            r#"{"names":{"a":[1]}}"#,
            r#"{"list":[[1]]}"#,
            r#"{"inner":[1]}"#,
            r#"{"place":{"at":[1]}}"#,
            r#"{"place":{"between":[1,2]}}"#,
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("expected an object"), "{text}: {error}");
            let control = serde_json::from_str::<Outer>(text);
            assert!(control.is_ok() || text == "[]", "control: serde accepts {text}: {control:?}");
        }
    }

    #[test]
    fn object_with_a_key_that_occurs_twice_is_refused() {
        for text in [
            r#"{"list":[],"list":[]}"#,
            r#"{"names":{"a":{},"a":{}}}"#,
            r#"{"names":{"a":{},"\u0061":{}}}"#,
            r#"{"list":[{"number":1,"number":1}]}"#,
            r#"{"place":{"between":{"from":1,"from":1,"to":2}}}"#,
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("occurs twice"), "{text}: {error}");
        }
        parse(r#"{"names":{"a":{"number":1},"b":{"number":1}}}"#).unwrap();
    }
}
