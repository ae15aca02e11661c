//! Parses JSON strictly: bounded nesting, no unknown or duplicate fields, no text after the value.

mod strict;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::problem::Problem;
use strict::Strict;

/// The maximum nesting of a JSON body.
const MAX_DEPTH: usize = 32;

/// Parses a JSON body. Unknown and duplicate fields are errors that name the field.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if depth(bytes) > MAX_DEPTH {
        return Err(Problem::invalid(format!("the JSON is nested deeper than {MAX_DEPTH} levels")));
    }
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(Strict(&mut parser)).map_err(|error| {
        let pointer = pointer(error.path());
        Problem::invalid(format!("invalid JSON body: {}", error.inner())).field(pointer)
    })?;
    parser.end().map_err(|_| Problem::invalid("the body has text after the JSON value"))?;
    Ok(parsed)
}

/// Parses a JSON body that contains a secret. Errors name one of the fields, and quote nothing of the body.
pub(super) fn parse_secret<T: DeserializeOwned>(
    bytes: &[u8],
    fields: &[&str],
) -> Result<T, Problem> {
    parse(bytes).map_err(|error| {
        let known = fields.iter().find(|field| {
            let rest = error.pointer().and_then(|it| it.strip_prefix('/')?.strip_prefix(**field));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let names = fields.join("`, `");
        let text = format!("invalid JSON body; it is not quoted here. Its fields are `{names}`");
        let problem = Problem::invalid(text);
        match known {
            Some(field) => problem.field(format!("/{field}")),
            None => problem,
        }
    })
}

/// Reads an optional integer. A number without a fraction is an integer in JSON Schema, such as `1.0`.
pub(crate) fn integer<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64> + TryFrom<u64>,
{
    Ok(Option::<Integer<T>>::deserialize(deserializer)?.map(|Integer(number)| number))
}

/// Reads a list of integers. A number without a fraction is an integer in JSON Schema, such as `1.0`.
pub(crate) fn integers<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64> + TryFrom<u64>,
{
    let numbers = Vec::<Integer<T>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|Integer(number)| number).collect())
}

/// An integer that a float can stand for.
struct Integer<T>(T);

impl<'de, T: TryFrom<i64> + TryFrom<u64>> Deserialize<'de> for Integer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor(PhantomData)).map(Self)
    }
}

struct IntegerVisitor<T>(PhantomData<T>);

impl<T: TryFrom<i64> + TryFrom<u64>> Visitor<'_> for IntegerVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer in the permitted range")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let invalid = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
        T::try_from(number).map_err(invalid)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let invalid = |_| E::invalid_value(Unexpected::Signed(number), &self);
        T::try_from(number).map_err(invalid)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        /// The largest number up to which every integer is a float.
        const MAX: f64 = 9_007_199_254_740_992.0;
        if number.fract() != 0.0 || number.abs() > MAX {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        // The text of such a float is the integer, so that no conversion between the types is needed.
        let exact = format!("{number:.0}").parse::<i64>();
        let number = exact.map_err(|_| E::invalid_value(Unexpected::Float(number), &self))?;
        self.visit_i64(number)
    }
}

/// Returns the nesting of a JSON text, without parsing it.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Converts the path of an error to a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => pointer.push_str(variant),
            Segment::Unknown => pointer.push('?'),
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::serve::problem::ProblemKind;

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        number: u8,
    }

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        list: Vec<Inner>,
    }

    #[test]
    fn json_body_with_a_wrong_unknown_or_duplicate_field_is_refused_with_its_pointer() {
        let parse_outer = |text: &str| parse::<Outer>(text.as_bytes());
        assert_eq!(parse_outer(r#"{"list":[{"number":1}]}"#).unwrap().list, [Inner { number: 1 }]);
        for (text, pointer) in [
            (r#"{"list":[{"number":1},{"number":300}]}"#, "/list/1/number"),
            (r#"{"list":[{"numbr":1}]}"#, "/list/0/numbr"),
            (r#"{"list":[],"list":[]}"#, "`list`"),
            (r#"{"list":[]} x"#, ""),
            ("", ""),
            ("\u{feff}{}", ""),
        ] {
            let problem = parse_outer(text).unwrap_err();
            let shown = format!("{problem:?}");
            assert_eq!(problem.kind, ProblemKind::INVALID, "{text}");
            // The parser reports a duplicate field with the path of its object.
            assert!(shown.contains(pointer), "{text}: {shown}");
        }
    }

    #[test]
    fn f11_error_about_a_body_with_a_secret_quotes_nothing_of_it() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only errors are read")]
        struct Body {
            value: String,
            hosts: Vec<u8>,
        }
        const SECRET: &str = "12345678901234567";
        for text in [
            format!("\"{SECRET}\""),
            format!("{{\"value\":{SECRET}}}"),
            format!("{{\"{SECRET}\":1}}"),
            format!("{{\"value\":\"x\",\"hosts\":[\"{SECRET}\"]}}"),
            format!("{{\"value\":\"x\"}} {SECRET}"),
        ] {
            let quoted = format!("{:?}", parse::<Body>(text.as_bytes()).unwrap_err());
            let problem = parse_secret::<Body>(text.as_bytes(), &["value", "hosts"]).unwrap_err();
            let shown = format!("{problem:?}");
            assert!(!shown.contains(SECRET), "{text}: {shown}, before: {quoted}");
        }
        let problem = parse_secret::<Body>(br#"{"value":"x","hosts":[true]}"#, &["hosts"]);
        assert_eq!(problem.unwrap_err().pointer(), Some("/hosts"), "control");
    }

    #[test]
    fn integer_accepts_floats_without_a_fraction_within_the_range_of_its_type() {
        #[derive(Deserialize)]
        struct Body {
            #[serde(default, deserialize_with = "integer")]
            size: Option<u32>,
        }
        let size = |text: &str| parse::<Body>(text.as_bytes()).map(|body| body.size);
        assert_eq!(size("{}"), Ok(None));
        assert_eq!(size(r#"{"size":null}"#), Ok(None));
        for text in [r#"{"size":7}"#, r#"{"size":7.0}"#, r#"{"size":0.7e1}"#] {
            assert_eq!(size(text), Ok(Some(7)), "{text}");
        }
        for text in [r#"{"size":7.5}"#, r#"{"size":-1}"#, r#"{"size":-1.0}"#, r#"{"size":1e300}"#] {
            assert_eq!(size(text).unwrap_err().kind, ProblemKind::INVALID, "{text}");
        }
    }

    #[test]
    fn f14_deeply_nested_json_is_refused_before_it_is_parsed() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(depth(nested(MAX_DEPTH).as_bytes()), MAX_DEPTH);
        parse::<serde_json::Value>(nested(MAX_DEPTH).as_bytes()).unwrap();
        parse::<serde_json::Value>(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
        parse::<serde_json::Value>(nested(100_000).as_bytes()).unwrap_err();
        assert_eq!(depth(br#""[[[\"[[""#), 0, "brackets in a string do not count");
    }
}
