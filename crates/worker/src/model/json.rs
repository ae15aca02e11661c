//! Bounds and checks of JSON text from a model server.

use serde_json::Value;

/// The maximum nesting depth of JSON from a model server.
pub(super) const MAX_DEPTH: usize = 64;

/// Parses JSON of a bounded depth.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    if is_too_deep(text) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Returns the JSON text of an answer, without the code fence that models often put around it. The value
/// must match the schema.
pub(super) fn of_answer(text: &str, schema: Option<&str>) -> Result<String, String> {
    let text = without_fence(text.trim());
    let value = parse(text)?;
    if let Some(schema) = schema {
        let schema = parse(schema)?;
        belljar_wire::schema::check(&schema, &value)?;
    }
    Ok(text.to_owned())
}

fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some((language, inner)) = inner.and_then(|inner| inner.split_once('\n')) else {
        return text;
    };
    match language.trim() {
        "" | "json" | "JSON" => inner.trim(),
        _ => text,
    }
}

fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut is_string, mut is_escape) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escape => is_escape = false,
            b'\\' if is_string => is_escape = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_an_answer_is_checked_and_freed_from_a_code_fence() {
        for (text, expected) in [
            (" {\"a\": 1}\n", Some("{\"a\": 1}")),
            ("```json\n[1]\n```", Some("[1]")),
            ("```\n[1]\n```\n", Some("[1]")),
            ("```js\n[1]\n```", None),
            ("```", None),
            ("``````", None),
            ("Here it is: {}", None),
            ("{} {}", None),
            ("\"\\ud800\"", None),
            ("", None),
        ] {
            assert_eq!(of_answer(text, None).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn json_is_parsed_up_to_the_maximum_depth_only() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert!(parse(&nested(MAX_DEPTH + 1)).is_err());
        let text = format!("\"\\\"{}\"", "[".repeat(100));
        assert!(parse(&text).is_ok(), "brackets in a string are text");
    }
}
