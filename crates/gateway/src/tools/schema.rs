//! JSON Schemas of tool results.

use serde_json::{Map, Value, json};

/// The JSON Schema of a [`ProgramReport`](belljar_engine::programs::ProgramReport).
pub(super) fn of_report() -> Map<String, Value> {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let nullable = |kind: &str| json!({"type": [kind, "null"]});
    let value = json!({
        "type": "object",
        "required": ["run", "ok", "result", "stdout", "stderr", "stdout_truncated",
            "stderr_truncated", "duration_ms", "reason", "error", "exit", "requests",
            "more_requests", "denied", "notes"],
        "properties": {
            "run": text, "ok": {"type": "boolean"}, "result": {}, "stdout": text, "stderr": text,
            "stdout_truncated": {"type": "boolean"}, "stderr_truncated": {"type": "boolean"},
            "duration_ms": {"type": "number"}, "reason": text,
            "error": {
                "type": ["object", "null"],
                "required": ["name", "message"],
                "properties": {
                    "name": text, "message": text, "stack": nullable("string"),
                    "line": nullable("integer"), "column": nullable("integer"),
                },
            },
            "exit": nullable("integer"),
            "requests": {"type": "array", "items": {
                "type": "object",
                "required": ["method", "url", "allowed", "status", "secrets"],
                "properties": {
                    "method": text, "url": text, "allowed": {"type": "boolean"},
                    "status": nullable("integer"), "secrets": texts,
                },
            }},
            "more_requests": {"type": "integer"}, "denied": texts, "notes": texts,
        },
    });
    object(value)
}

/// Returns the members of a JSON object that is a literal in this crate.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
