//! Sets one member of a JSON text and leaves all other bytes unchanged.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The error for a text that is not JSON.
const NOT_JSON: &str = "the file is not plain JSON; it may have comments";

/// A member of a JSON object, with its value as part of the original text.
struct Member<'a> {
    key: String,
    value: &'a RawValue,
}

/// Returns the text with `value` at `path`; missing objects on the path are created.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok(format!("{}\n", pretty(&nested(path, value), "  ", 0)));
    }
    let before: Value = serde_json::from_str(text).map_err(|_| NOT_JSON.to_owned())?;
    let whole: &RawValue = serde_json::from_str(text).map_err(|_| NOT_JSON.to_owned())?;
    let indent = indent(text);
    let new = edit(text, whole, path, value, &indent, 1)?;
    // The edit changes bytes, so the result is parsed and compared with the expected value.
    let mut expected = before;
    set_value(&mut expected, path, value);
    let is_expected = serde_json::from_str::<Value>(&new).is_ok_and(|new| new == expected);
    if is_expected { Ok(new) } else { Err("the file cannot be edited safely".to_owned()) }
}

/// Returns the text with the member of an object added or replaced, recursively along the path.
fn edit(
    text: &str,
    object: &RawValue,
    path: &[&str],
    value: &Value,
    indent: &str,
    level: usize,
) -> Result<String, String> {
    let Some((key, rest)) = path.split_first() else {
        return Err("the path of the entry is empty".to_owned());
    };
    let members = members(object)?;
    let mut found = members.iter().filter(|member| member.key == *key);
    let start = offset(text, object.get());
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(format!("the key {key:?} occurs twice")),
        (Some(member), None) if rest.is_empty() => {
            let start = offset(text, member.value.get());
            // An equal value keeps its formatting.
            if serde_json::from_str::<Value>(member.value.get()).is_ok_and(|old| old == *value) {
                return Ok(text.to_owned());
            }
            Ok(replace_range(text, start, member.value.get().len(), &pretty(value, indent, level)))
        }
        (Some(member), None) => edit(text, member.value, rest, value, indent, level + 1),
        (None, _) => {
            let value = pretty(&nested(rest, value), indent, level);
            let line = format!("\n{}{}: {value}", indent.repeat(level), quoted(key));
            match members.last() {
                Some(last) => {
                    let end = offset(text, last.value.get()) + last.value.get().len();
                    Ok(replace_range(text, end, 0, &format!(",{line}")))
                }
                None => {
                    let close = format!("{{{line}\n{}}}", indent.repeat(level - 1));
                    Ok(replace_range(text, start, object.get().len(), &close))
                }
            }
        }
    }
}

/// Returns the members of a JSON object in their order.
fn members(object: &RawValue) -> Result<Vec<Member<'_>>, String> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<Member<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((key, value)) = map.next_entry()? {
                members.push(Member { key, value });
            }
            Ok(members)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(object.get());
    deserializer
        .deserialize_map(Members)
        .map_err(|_| "the value at the place of the entry is not an object".to_owned())
}

/// Returns the byte offset of a part within its text.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Returns the text with a range of bytes replaced.
fn replace_range(text: &str, start: usize, length: usize, new: &str) -> String {
    let (before, rest) = text.split_at(start);
    let (_, after) = rest.split_at(length);
    [before, new, after].concat()
}

/// Returns the indentation of the file: the whitespace before its first member.
fn indent(text: &str) -> String {
    let line = text.lines().find(|line| line.trim_start().starts_with('"'));
    let whitespace = line.map(|line| &line[..line.len() - line.trim_start().len()]);
    whitespace.filter(|whitespace| !whitespace.is_empty()).unwrap_or("  ").to_owned()
}

/// Formats a value with the indentation of the file.
fn pretty(value: &Value, indent: &str, level: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    // Strings in JSON have no line breaks, so every line break is formatting.
    let mut lines = text.lines();
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let inner = line.trim_start_matches(' ');
        let depth = (line.len() - inner.len()) / 2;
        out.push_str(&format!("\n{}{inner}", indent.repeat(level + depth)));
    }
    out
}

/// Returns a key as a JSON string.
fn quoted(key: &str) -> String {
    Value::from(key).to_string()
}

/// Wraps a value into one object per key of the path.
fn nested(path: &[&str], value: &Value) -> Value {
    let wrap = |inner: Value, key: &&str| {
        Value::Object([((*key).to_owned(), inner)].into_iter().collect())
    };
    path.iter().rev().fold(value.clone(), wrap)
}

/// Sets the value at a path of a parsed JSON value.
fn set_value(target: &mut Value, path: &[&str], value: &Value) {
    let Some((key, rest)) = path.split_first() else {
        *target = value.clone();
        return;
    };
    if let Value::Object(object) = target {
        set_value(
            object.entry(*key).or_insert_with(|| Value::Object(serde_json::Map::new())),
            rest,
            value,
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let new = set(text, &["servers", "bj"], &json!({"command": "b"})).unwrap();
        assert_eq!(new, expect);
        let again = set(&new, &["servers", "bj"], &json!({"command": "b"})).unwrap();
        assert_eq!(again, new, "a second edit changes nothing");
    }

    #[test]
    fn json_edit_adds_an_entry_and_keeps_all_other_bytes() {
        let fresh = "{\n  \"servers\": {\n    \"bj\": {\n      \"command\": \"b\"\n    }\n  }\n}";
        check("", &format!("{fresh}\n"));
        check("{}", fresh);
        check(
            "{\n\t\"z\": 1e3,\n\t\"servers\": {\n\t\t\"other\": [1,  2]\n\t},\n\t\"a\":\"\\u0041\"\n}\n",
            "{\n\t\"z\": 1e3,\n\t\"servers\": {\n\t\t\"other\": [1,  2],\n\t\t\"bj\": {\n\t\t\t\"command\": \"b\"\n\t\t}\n\t},\n\t\"a\":\"\\u0041\"\n}\n",
        );
        check(
            "{\"servers\":{\"bj\":{\"command\":\"old\",\"args\":[]},\"c\":2},\"n\":12345678901234567890123}",
            "{\"servers\":{\"bj\":{\n      \"command\": \"b\"\n    },\"c\":2},\"n\":12345678901234567890123}",
        );
        check(
            "{ \"servers\": {} }",
            "{ \"servers\": {\n    \"bj\": {\n      \"command\": \"b\"\n    }\n  } }",
        );
    }

    #[test]
    fn json_edit_refuses_texts_that_cannot_be_edited_safely() {
        for text in [
            "{ // note\n}",
            "{\"servers\": []}",
            "[]",
            "{\"servers\":{},\"servers\":{}}",
            "{\"servers\":{},}",
            "\u{feff}{}",
            "{",
        ] {
            assert!(set(text, &["servers", "bj"], &json!({})).is_err(), "{text}");
        }
    }
}
