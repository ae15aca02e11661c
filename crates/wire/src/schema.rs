//! Checks JSON values against JSON schemas. Pure.
//!
//! Supports the keywords of JSON Schema 2020-12 that describe data of models and tasks. A schema with
//! another keyword is refused by [`supported`], so no keyword is ignored without notice.

use serde_json::{Map, Value};

/// The maximum depth of a schema and of its references.
const MAX_DEPTH: usize = 128;

/// Keywords without a rule for values.
const ANNOTATIONS: [&str; 11] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "format",
];

/// Returns an error if a schema is invalid or has a keyword that [`check`] does not know.
pub fn supported(schema: &Value) -> Result<(), String> {
    supported_at(schema, schema, 0)
}

fn supported_at(root: &Value, schema: &Value, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("the schema is nested deeper than {MAX_DEPTH} levels"));
    }
    let keywords = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(keywords) => keywords,
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("a schema must be an object, `true` or `false`".to_owned());
        }
    };
    let next = |schema: &Value| supported_at(root, schema, depth + 1);
    for (keyword, value) in keywords {
        let wrong = || format!("the value of `{keyword}` in the schema is invalid");
        match keyword.as_str() {
            "properties" | "$defs" | "definitions" => {
                value.as_object().ok_or_else(wrong)?.values().try_for_each(next)?;
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                value.as_array().ok_or_else(wrong)?.iter().try_for_each(next)?;
            }
            "items" | "additionalProperties" | "not" => next(value)?,
            "$ref" => drop(resolve(root, value.as_str().ok_or_else(wrong)?)?),
            "type" => {
                let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                one_or_more(value).iter().all(known).then_some(()).ok_or_else(wrong)?;
            }
            "required" => {
                let names = value.as_array().ok_or_else(wrong)?;
                names.iter().all(Value::is_string).then_some(()).ok_or_else(wrong)?;
            }
            "enum" => drop(value.as_array().ok_or_else(wrong)?),
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
            | "maxProperties" => drop(value.as_u64().ok_or_else(wrong)?),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                value.as_f64().ok_or_else(wrong)?;
            }
            "uniqueItems" => {
                value.as_bool().ok_or_else(wrong)?;
            }
            "const" => {}
            keyword if ANNOTATIONS.contains(&keyword) => {}
            keyword => return Err(format!("the keyword `{keyword}` of schemas is not supported")),
        }
    }
    Ok(())
}

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "integer", "string"];

/// Returns where and why a value does not match a schema that is [`supported`].
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    Check { root: schema }.value(schema, value, "", 0)
}

struct Check<'a> {
    root: &'a Value,
}

impl Check<'_> {
    /// Checks the value at a JSON pointer.
    fn value(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
        let fail = |what: &str| {
            let place = if at.is_empty() { "the value".to_owned() } else { format!("`{at}`") };
            Err(format!("{place} {what}"))
        };
        if depth > MAX_DEPTH {
            return fail("is nested too deep for the schema");
        }
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(keywords) => keywords,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                return fail("is not allowed");
            }
        };
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            self.value(resolve(self.root, reference)?, value, at, depth + 1)?;
        }
        if let Some(types) = keywords.get("type")
            && !one_or_more(types).iter().any(|name| has_type(value, name))
        {
            return fail(&format!("is not of the type {types}"));
        }
        if let Some(expected) = keywords.get("const").filter(|expected| !equal(expected, value)) {
            return fail(&format!("is not {expected}"));
        }
        if let Some(Value::Array(values)) = keywords.get("enum")
            && !values.iter().any(|expected| equal(expected, value))
        {
            return fail(&format!("is not one of {}", Value::Array(values.clone())));
        }
        let next = |schema: &Value| self.value(schema, value, at, depth + 1);
        let list = |keyword: &str| keywords.get(keyword).and_then(Value::as_array);
        list("allOf").into_iter().flatten().try_for_each(next)?;
        if let Some(schemas) = list("anyOf")
            && !schemas.iter().any(|schema| next(schema).is_ok())
        {
            return fail("matches no schema of `anyOf`");
        }
        if let Some(schemas) = list("oneOf")
            && schemas.iter().filter(|schema| next(schema).is_ok()).count() != 1
        {
            return fail("does not match exactly one schema of `oneOf`");
        }
        if keywords.get("not").is_some_and(|schema| next(schema).is_ok()) {
            return fail("matches the schema of `not`");
        }
        match value {
            Value::Number(number) => self.number(keywords, number.as_f64()).or_else(|it| fail(&it)),
            Value::String(text) => {
                let length = text.chars().count() as u64;
                within(keywords, "minLength", "maxLength", length, "characters")
                    .or_else(|it| fail(&it))
            }
            Value::Array(items) => {
                let length = items.len() as u64;
                within(keywords, "minItems", "maxItems", length, "items")
                    .or_else(|it| fail(&it))?;
                let unique = keywords.get("uniqueItems") == Some(&Value::Bool(true));
                let repeats = |(at, item): (usize, &Value)| {
                    items.iter().take(at).any(|other| equal(other, item))
                };
                if unique && items.iter().enumerate().any(repeats) {
                    return fail("has equal items");
                }
                let first = list("prefixItems").map(Vec::as_slice).unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let schema = first.get(index).or_else(|| keywords.get("items"));
                    let Some(schema) = schema else { continue };
                    self.value(schema, item, &format!("{at}/{index}"), depth + 1)?;
                }
                Ok(())
            }
            Value::Object(members) => {
                let count = members.len() as u64;
                within(keywords, "minProperties", "maxProperties", count, "properties")
                    .or_else(|it| fail(&it))?;
                let required = list("required").into_iter().flatten().filter_map(Value::as_str);
                if let Some(missing) =
                    required.into_iter().find(|name| !members.contains_key(*name))
                {
                    return fail(&format!("has no property `{missing}`"));
                }
                let known = keywords.get("properties").and_then(Value::as_object);
                for (name, member) in members {
                    let own = known.and_then(|known| known.get(name));
                    let Some(schema) = own.or_else(|| keywords.get("additionalProperties")) else {
                        continue;
                    };
                    let name = name.replace('~', "~0").replace('/', "~1");
                    self.value(schema, member, &format!("{at}/{name}"), depth + 1)?;
                }
                Ok(())
            }
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn number(&self, keywords: &Map<String, Value>, number: Option<f64>) -> Result<(), String> {
        let Some(number) = number else { return Ok(()) };
        let limit = |keyword: &str| keywords.get(keyword).and_then(Value::as_f64);
        let faults = [
            (limit("minimum").filter(|it| number < *it), "is less than"),
            (limit("maximum").filter(|it| number > *it), "is more than"),
            (limit("exclusiveMinimum").filter(|it| number <= *it), "is not more than"),
            (limit("exclusiveMaximum").filter(|it| number >= *it), "is not less than"),
        ];
        match faults.into_iter().find_map(|(limit, text)| Some((limit?, text))) {
            Some((limit, text)) => Err(format!("{text} {limit}")),
            None => Ok(()),
        }
    }
}

/// Returns the schema that a reference within the document names.
fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let found = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
    found.ok_or_else(|| format!("the schema has no definition for the reference `{reference}`"))
}

fn within(
    keywords: &Map<String, Value>,
    min: &str,
    max: &str,
    size: u64,
    unit: &str,
) -> Result<(), String> {
    let limit = |keyword: &str| keywords.get(keyword).and_then(Value::as_u64);
    if let Some(min) = limit(min).filter(|min| size < *min) {
        return Err(format!("has {size} {unit}, fewer than {min}"));
    }
    match limit(max).filter(|max| size > *max) {
        Some(max) => Err(format!("has {size} {unit}, more than {max}")),
        None => Ok(()),
    }
}

/// Returns the elements of a list, or the value itself.
fn one_or_more(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

fn has_type(value: &Value, name: &Value) -> bool {
    match (name.as_str().unwrap_or_default(), value) {
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("number", Value::Number(_))
        | ("string", Value::String(_)) => true,
        ("integer", Value::Number(number)) => {
            number.is_i64()
                || number.is_u64()
                || number.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        _ => false,
    }
}

/// Returns whether two values are equal. `1` and `1.0` are the same number.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(a, b)| a == b)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: &Value, value: &Value, expected: &str) {
        supported(schema).unwrap();
        assert_eq!(check(schema, value).unwrap_err(), expected);
    }

    #[test]
    fn value_that_matches_is_accepted_and_another_is_refused_with_its_place() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "required": ["severity"],
            "additionalProperties": false,
            "properties": {
                "severity": { "enum": ["high", "low"] },
                "files": { "type": "array", "items": { "$ref": "#/$defs/file" }, "maxItems": 2 },
                "score": { "type": "integer", "minimum": 0, "exclusiveMaximum": 10 },
                "note": { "type": ["string", "null"], "maxLength": 3 },
            },
            "$defs": { "file": { "type": "string", "minLength": 1 } },
        });
        let good = json!({"severity": "high", "files": ["a"], "score": 9.0, "note": null});
        assert_eq!(check(&schema, &good), Ok(()));
        refused(&schema, &json!({}), "the value has no property `severity`");
        refused(&schema, &json!([]), "the value is not of the type \"object\"");
        refused(&schema, &json!({"severity": "x"}), "`/severity` is not one of [\"high\",\"low\"]");
        refused(&schema, &json!({"severity": "low", "x/y": 1}), "`/x~1y` is not allowed");
        let files = json!({"severity": "low", "files": ["a", ""]});
        refused(&schema, &files, "`/files/1` has 0 characters, fewer than 1");
        let score = |score: Value| json!({"severity": "low", "score": score});
        refused(&schema, &score(json!(10)), "`/score` is not less than 10");
        refused(&schema, &score(json!(1.5)), "`/score` is not of the type \"integer\"");
        refused(&schema, &score(json!(-1)), "`/score` is less than 0");
    }

    #[test]
    fn combined_schemas_are_checked() {
        let schema = json!({
            "oneOf": [{ "type": "string" }, { "const": 1 }, { "minimum": 1 }],
            "not": { "const": "bad" },
        });
        // A text matches `minimum` too, because that keyword is only about numbers.
        refused(&schema, &json!("x"), "the value does not match exactly one schema of `oneOf`");
        assert_eq!(check(&schema, &json!(2)), Ok(()));
        let any = json!({ "anyOf": [{ "type": "null" }, { "allOf": [{ "type": "string" }] }] });
        assert_eq!(check(&any, &json!("x")), Ok(()));
        refused(&any, &json!(1), "the value matches no schema of `anyOf`");
        let unique = json!({ "uniqueItems": true, "prefixItems": [{ "type": "string" }] });
        refused(&unique, &json!(["a", 1, 1.0]), "the value has equal items");
        refused(&unique, &json!([1]), "`/0` is not of the type \"string\"");
    }

    #[test]
    fn schema_with_an_unknown_keyword_or_reference_is_refused() {
        for (schema, expected) in [
            (json!({ "pattern": "x" }), "the keyword `pattern`"),
            (json!({ "items": { "if": true } }), "the keyword `if`"),
            (json!({ "type": "text" }), "`type`"),
            (json!({ "$ref": "#/$defs/x" }), "no definition"),
            (json!({ "$ref": "https://example.com/x" }), "no definition"),
            (json!([]), "must be an object"),
            (json!({ "maxItems": -1 }), "`maxItems`"),
        ] {
            let error = supported(&schema).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn circular_references_end() {
        let circle = json!({ "$ref": "#" });
        refused(&circle, &json!(1), "the value is nested too deep for the schema");
        let list = json!({ "type": "array", "items": { "$ref": "#" } });
        assert_eq!(check(&list, &json!([[], [[]]])), Ok(()));
        refused(&list, &json!([[1]]), "`/0/0` is not of the type \"array\"");
    }
}
