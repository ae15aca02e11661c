//! Finds one string of a JSON text by its pointer, without changing anything else.
//!
//! Parsing and serializing the text again would lose digits of numbers and the order of keys, and
//! break a signature over the text. So only the position of the string is determined.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The reason why a JSON text cannot be searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("the body is not valid JSON")]
    Malformed,
    #[error(
        "the body has a duplicate key, which servers read differently, on the path to the slot"
    )]
    Twice,
}

/// The position and content of a string in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The byte range of the string in the JSON text, including the quotes.
    pub(super) span: Range<usize>,
    pub(super) text: String,
}

/// Returns the string at a JSON pointer (RFC 6901); `None` if there is no string.
pub(super) fn find(json: &[u8], pointer: &str) -> Result<Option<Found>, JsonError> {
    let whole = std::str::from_utf8(json).map_err(|_| JsonError::Malformed)?;
    let mut at: &RawValue = serde_json::from_str(whole).map_err(|_| JsonError::Malformed)?;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match child(at, &step)? {
            Some(child) => at = child,
            None => return Ok(None),
        }
    }
    let Ok(text) = serde_json::from_str::<String>(at.get()) else { return Ok(None) };
    // `at` borrows from `whole`, so the distance of the two is its position.
    let start = at.get().as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    Ok(Some(Found { span: start..start + at.get().len(), text }))
}

/// Returns the JSON text with another string at the given position.
pub(super) fn replace(json: &[u8], span: &Range<usize>, text: &str) -> Option<Vec<u8>> {
    let (before, after) = (json.get(..span.start)?, json.get(span.end..)?);
    let text = serde_json::to_string(text).ok()?;
    Some([before, text.as_bytes(), after].concat())
}

/// Returns the JSON text with an empty string at the given position.
pub(super) fn cut(json: &[u8], span: &Range<usize>) -> Option<Vec<u8>> {
    Some([json.get(..span.start)?, b"\"\"", json.get(span.end..)?].concat())
}

fn child<'a>(parent: &'a RawValue, step: &str) -> Result<Option<&'a RawValue>, JsonError> {
    let text = parent.get();
    let mut reader = serde_json::Deserializer::from_str(text);
    match text.as_bytes().first() {
        Some(b'{') => {
            let found = reader.deserialize_map(Member(step)).map_err(|_| JsonError::Malformed)?;
            if found.count > 1 { Err(JsonError::Twice) } else { Ok(found.value) }
        }
        Some(b'[') => {
            let plain = step == "0" || (!step.starts_with('0') && !step.starts_with('+'));
            let Some(index) = step.parse().ok().filter(|_| plain) else { return Ok(None) };
            reader.deserialize_seq(Element(index)).map_err(|_| JsonError::Malformed)
        }
        _ => Ok(None),
    }
}

/// Searches for one key of a JSON object.
struct Member<'s>(&'s str);

struct FoundMember<'a> {
    value: Option<&'a RawValue>,
    count: usize,
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = FoundMember<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = FoundMember { value: None, count: 0 };
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == self.0 {
                found.value = Some(map.next_value()?);
                found.count += 1;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Searches for one element of a JSON array, by index.
struct Element(usize);

impl<'de> Visitor<'de> for Element {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut index = 0;
        while let Some(value) = seq.next_element::<&RawValue>()? {
            if index == self.0 {
                found = Some(value);
            }
            index += 1;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(json: &str, pointer: &str, expect: Option<&str>) {
        let found = find(json.as_bytes(), pointer).unwrap();
        assert_eq!(found.as_ref().map(|found| found.text.as_str()), expect, "{json} {pointer}");
        if let Some(found) = found {
            let spelled: String = serde_json::from_str(&json[found.span]).unwrap();
            assert_eq!(spelled, found.text);
        }
    }

    #[test]
    fn find_returns_the_string_at_a_json_pointer() {
        check(r#"{"a":{"b":["x","y"]}}"#, "/a/b/1", Some("y"));
        check(r#" { "token" : "v" , "n": 1e400 } "#, "/token", Some("v"));
        check(r#"{"a/b":{"~":"v"}}"#, "/a~1b/~0", Some("v"));
        check(r#"{"\u0061":"\u0076"}"#, "/a", Some("v"));
        check(r#"{"":"v"}"#, "/", Some("v"));
        for pointer in ["/b", "/a/b", "/a/0"] {
            check(r#"{"a":"v"}"#, pointer, None);
        }
        for pointer in ["/2", "/01", "/+1", "/-", "/x", "/1", "/0/0"] {
            check(r#"["v",1]"#, pointer, None);
        }
        check(r#"{"a":1,"b":null}"#, "/a", None);
    }

    #[test]
    fn b02_duplicate_keys_and_malformed_json_are_refused() {
        for json in [r#"{"a":"x","a":"y"}"#, r#"{"a":"x","\u0061":"y"}"#] {
            assert_eq!(find(json.as_bytes(), "/a"), Err(JsonError::Twice));
        }
        for json in ["", "{", r#"{"a":"x"} {"a":"y"}"#, r#"{"a":"x"}x"#, "{'a':'x'}", "\u{feff}{}"]
        {
            assert_eq!(find(json.as_bytes(), "/a"), Err(JsonError::Malformed), "{json}");
        }
        assert_eq!(find(b"{\"a\":\"\xff\"}", "/a"), Err(JsonError::Malformed));
        let deep = "[".repeat(100_000);
        assert_eq!(find(deep.as_bytes(), "/0"), Err(JsonError::Malformed));
    }

    #[test]
    fn json_replace_and_cut_change_only_the_string() {
        let json = br#"{ "z":12345678901234567890123, "a": "old" ,"f":1.10 }"#;
        let found = find(json, "/a").unwrap().unwrap();
        let new = replace(json, &found.span, "n\"e\\w").unwrap();
        assert_eq!(new, br#"{ "z":12345678901234567890123, "a": "n\"e\\w" ,"f":1.10 }"#);
        assert_eq!(
            cut(json, &found.span).unwrap(),
            br#"{ "z":12345678901234567890123, "a": "" ,"f":1.10 }"#
        );
    }

    proptest! {
        #[test]
        fn replaced_json_string_is_found_again(key: String, old: String, new: String, other: String) {
            let json = serde_json::json!({ format!("x{key}"): [other, { "k": old }] }).to_string();
            let pointer = format!("/x{}/1/k", key.replace('~', "~0").replace('/', "~1"));
            let found = find(json.as_bytes(), &pointer).unwrap().unwrap();
            prop_assert_eq!(&found.text, &old);
            let json = replace(json.as_bytes(), &found.span, &new).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            prop_assert_eq!(value.pointer(&pointer).unwrap().as_str().unwrap(), &new);
        }

        #[test]
        fn find_in_json_does_not_panic_on_random_bytes(json: Vec<u8>, pointer in "(/[a-z0-9~]{0,3}){0,4}") {
            find(&json, &pointer).ok();
        }
    }
}
