//! Parses JSON strictly: bounded nesting, no unknown or duplicate fields, no text after the value.

use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The maximum nesting of a JSON body.
const MAX_DEPTH: usize = 32;

/// Parses a JSON body. Unknown and duplicate fields are errors that name the field.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if depth(bytes) > MAX_DEPTH {
        return Err(Problem::invalid(format!("the JSON is nested deeper than {MAX_DEPTH} levels")));
    }
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut parser).map_err(|error| {
        let pointer = pointer(error.path());
        Problem::invalid(format!("invalid JSON body: {}", error.inner())).field(pointer)
    })?;
    parser.end().map_err(|_| Problem::invalid("the body has text after the JSON value"))?;
    Ok(parsed)
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
    fn f14_deeply_nested_json_is_refused_before_it_is_parsed() {
        let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(depth(nested(MAX_DEPTH).as_bytes()), MAX_DEPTH);
        parse::<serde_json::Value>(nested(MAX_DEPTH).as_bytes()).unwrap();
        parse::<serde_json::Value>(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
        parse::<serde_json::Value>(nested(100_000).as_bytes()).unwrap_err();
        assert_eq!(depth(br#""[[[\"[[""#), 0, "brackets in a string do not count");
    }
}
