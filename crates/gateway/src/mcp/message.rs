//! One message of a client, from bytes.
//!
//! What gets past [`read`] is one JSON object that is a request, a notification or an answer with an
//! id of a kind that we can repeat. Everything else is refused here with the words of JSON-RPC, so that
//! neither transport can be ended by what a client writes.

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcError, RequestId};
use serde_json::Value;

/// What is wrong with a message, and which request it was if that could be read.
#[derive(Debug)]
pub(crate) struct Malformed {
    id: Option<RequestId>,
    error: ErrorData,
}

impl Malformed {
    pub(crate) fn new(code: ErrorCode, words: impl Into<String>) -> Self {
        Self { id: None, error: ErrorData::new(code, words.into(), None) }
    }

    fn invalid(id: Option<RequestId>, words: &str) -> Self {
        let error = ErrorData::new(ErrorCode::INVALID_REQUEST, words.to_owned(), None);
        Self { id, error }
    }

    /// As an answer on the wire. An error without an id says `null`, as JSON-RPC wants it.
    pub(crate) fn into_json(self) -> Value {
        let id = self.id.clone();
        let mut answer = serde_json::to_value(JsonRpcError::new(self.id, self.error))
            .unwrap_or_else(|_| serde_json::json!({ "jsonrpc": "2.0" }));
        if let (None, Some(fields)) = (id, answer.as_object_mut()) {
            fields.insert("id".to_owned(), Value::Null);
        }
        answer
    }
}

/// A message that was understood, with the one form of it that was looked at.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) json: Value,
}

impl Message {
    /// Whether a client opens a session with this.
    pub(crate) fn is_initialize(&self) -> bool {
        self.json.get("method").and_then(Value::as_str) == Some("initialize")
    }

    pub(crate) fn into_rpc(self) -> Result<ClientJsonRpcMessage, Malformed> {
        let id = id_of(&self.json);
        serde_json::from_value(self.json)
            .map_err(|_| Malformed::invalid(id, "this is no message of the protocol"))
    }
}

/// Reads one message. Nesting is bounded by the parser at 127 levels.
pub(crate) fn read(bytes: &[u8]) -> Result<Message, Malformed> {
    let json: Value = serde_json::from_slice(bytes)
        .map_err(|error| Malformed::new(ErrorCode::PARSE_ERROR, format!("Parse error: {error}")))?;
    let id = id_of(&json);
    let words = match &json {
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
        Value::Object(_) => "a message has a `method`, a `result` or an `error`",
        Value::Array(_) => {
            "several messages at once are not part of this protocol: send them singly"
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            "a message is a JSON object"
        }
    };
    Err(Malformed::invalid(id, words))
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
        let error = read(bytes.as_bytes()).map(drop).unwrap_err().into_json();
        assert_eq!(error["error"]["code"], code, "{bytes}: {error}");
        assert_eq!(error["id"], *id, "{bytes}: {error}");
        assert_eq!(error["jsonrpc"], "2.0");
    }

    #[test]
    fn what_is_no_message_is_told_so_and_under_its_id_when_it_has_one() {
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
    fn requests_notifications_and_answers_get_through() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":"x","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"x","method":"of/tomorrow","params":{"a":1}}"#,
        ] {
            read(text.as_bytes()).unwrap().into_rpc().unwrap();
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            drop(read(&bytes).map(Message::into_rpc));
        }
    }
}
