//! Parses one message of a client.
//!
//! [`parse`] accepts only a JSON object that is a request, a notification or a response with an id
//! that can be repeated. Everything else is refused with a JSON-RPC error, so that no input of a
//! client can end a transport.

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcError, RequestId};
use serde_json::Value;

/// The error for a malformed MCP message, with the id of the request if it could be parsed.
#[derive(Debug)]
pub(crate) struct Malformed {
    id: Option<RequestId>,
    error: Box<ErrorData>,
}

impl Malformed {
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { id: None, error: Box::new(ErrorData::new(code, text.into(), None)) }
    }

    fn invalid(id: Option<RequestId>, text: &str) -> Self {
        let error = ErrorData::new(ErrorCode::INVALID_REQUEST, text.to_owned(), None);
        Self { id, error: Box::new(error) }
    }

    /// Returns the JSON-RPC error response for the malformed message. Without an id the field is
    /// `null`, as JSON-RPC requires.
    pub(crate) fn into_json(self) -> Value {
        let id = self.id.clone();
        let mut answer = serde_json::to_value(JsonRpcError::new(self.id, *self.error))
            .unwrap_or_else(|_| serde_json::json!({ "jsonrpc": "2.0" }));
        if let (None, Some(fields)) = (id, answer.as_object_mut()) {
            fields.insert("id".to_owned(), Value::Null);
        }
        answer
    }
}

/// A valid MCP message in the JSON form that was checked.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) json: Value,
}

impl Message {
    /// Returns whether the message is the `initialize` request, which starts a session.
    pub(crate) fn is_initialize(&self) -> bool {
        self.json.get("method").and_then(Value::as_str) == Some("initialize")
    }

    /// Returns the version of the protocol that an `initialize` message requests.
    pub(crate) fn initialize_version(&self) -> Option<&str> {
        if !self.is_initialize() {
            return None;
        }
        self.json.pointer("/params/protocolVersion").and_then(Value::as_str)
    }

    pub(crate) fn into_rpc(self) -> Result<ClientJsonRpcMessage, Malformed> {
        let id = id_of(&self.json);
        serde_json::from_value(self.json)
            .map_err(|_| Malformed::invalid(id, "the message is not part of the protocol"))
    }
}

/// Parses one message. The parser limits the nesting to 127 levels.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
    let json: Value = serde_json::from_slice(bytes)
        .map_err(|error| Malformed::new(ErrorCode::PARSE_ERROR, format!("Parse error: {error}")))?;
    let id = id_of(&json);
    let text = match &json {
        Value::Object(fields) if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") => {
            "`jsonrpc` must be \"2.0\""
        }
        Value::Object(fields) if fields.get("method").is_some_and(|method| !method.is_string()) => {
            "`method` must be a string"
        }
        Value::Object(fields) if fields.contains_key("method") => {
            if fields.contains_key("id") && id.is_none() {
                "`id` must be a string or a whole number"
            } else {
                return Ok(Message { json });
            }
        }
        Value::Object(fields) if fields.contains_key("result") || fields.contains_key("error") => {
            return Ok(Message { json });
        }
        Value::Object(_) => "a message must have a `method`, a `result` or an `error`",
        Value::Array(_) => "batches are not supported; send one message at a time",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            "a message must be a JSON object"
        }
    };
    Err(Malformed::invalid(id, text))
}

fn id_of(json: &Value) -> Option<RequestId> {
    match json.get("id")? {
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(bytes: &str, code: i64, id: &Value) {
        let error = parse(bytes.as_bytes()).map(drop).unwrap_err().into_json();
        assert_eq!(error["error"]["code"], code, "{bytes}: {error}");
        assert_eq!(error["id"], *id, "{bytes}: {error}");
        assert_eq!(error["jsonrpc"], "2.0");
    }

    #[test]
    fn malformed_mcp_messages_are_answered_with_their_id() {
        refused("{", -32700, &Value::Null);
        refused("\u{feff}{}", -32700, &Value::Null);
        refused("{}", -32600, &Value::Null);
        refused("[]", -32600, &Value::Null);
        refused("7", -32600, &Value::Null);
        refused(r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#, -32600, &4.into());
        refused(r#"{"jsonrpc":"2.0","id":4}"#, -32600, &4.into());
        refused(r#"{"jsonrpc":"2.0","id":"a","method":7}"#, -32600, &"a".into());
        refused(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, &Value::Null);
        refused(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, &Value::Null);
        refused(&"[".repeat(100_000), -32700, &Value::Null);
    }

    #[test]
    fn mcp_message_parser_accepts_requests_notifications_and_responses() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":"x","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"x","method":"of/tomorrow","params":{"a":1}}"#,
        ] {
            parse(text.as_bytes()).unwrap().into_rpc().unwrap();
        }
    }

    proptest::proptest! {
        #[test]
        fn mcp_message_parser_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            drop(parse(&bytes).map(Message::into_rpc));
        }
    }
}
