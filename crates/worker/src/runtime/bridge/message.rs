//! A JSON-RPC message and the few fields that the bridge reads. Its bytes are forwarded unchanged.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A JSON-RPC message, or a batch of messages as older revisions allow.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    value: Value,
}

impl Message {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value =
            serde_json::from_slice(bytes).map_err(|error| format!("invalid JSON: {error}"))?;
        let bytes = bytes.trim_ascii().to_vec();
        Ok(Self { bytes, value })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn each(&self) -> impl Iterator<Item = &Value> {
        let list = self.value.as_array().map(Vec::as_slice);
        list.unwrap_or(std::slice::from_ref(&self.value)).iter()
    }

    /// Returns whether every message of the batch is JSON-RPC.
    pub(super) fn is_rpc(&self) -> bool {
        self.each().next().is_some() && self.each().all(|it| it.get("jsonrpc").is_some())
    }

    /// Returns whether any message of the batch expects a response.
    pub(super) fn is_request(&self) -> bool {
        !self.ids().is_empty()
    }

    /// Returns the ids of all requests in the batch, as JSON text.
    pub(super) fn ids(&self) -> BTreeMap<String, ()> {
        let requests = self.each().filter(|it| it.get("method").is_some());
        requests.filter_map(|it| Some((it.get("id")?.to_string(), ()))).collect()
    }

    /// Returns the id of the request that this JSON-RPC message answers.
    pub(super) fn response_to(&self) -> Option<String> {
        let is_response = self.value.get("result").is_some() || self.value.get("error").is_some();
        is_response.then(|| self.value.get("id").map(Value::to_string)).flatten()
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.value.get("method")?.as_str()
    }

    /// Returns the protocol version that a request names in its `_meta` (since 2026-07-28).
    pub(super) fn version(&self) -> Option<&str> {
        let meta = self.value.get("params")?.get("_meta")?;
        meta.get("io.modelcontextprotocol/protocolVersion")?.as_str()
    }

    /// Returns the name of the tool or prompt, or the URI of the resource, of a request.
    pub(super) fn name(&self) -> Option<&str> {
        let params = self.value.get("params")?;
        match self.method()? {
            "tools/call" | "prompts/get" => params.get("name")?.as_str(),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                params.get("uri")?.as_str()
            }
            _ => None,
        }
    }

    /// Returns the protocol version that the server chose in the response to `initialize`.
    pub(super) fn negotiated(&self) -> Option<&str> {
        self.value.get("result")?.get("protocolVersion")?.as_str()
    }
}

/// Returns a JSON-RPC error response of the bridge itself. `id` is JSON text.
pub(super) fn error_response(id: Option<&str>, code: i32, message: &str) -> Vec<u8> {
    let id: Value = id.and_then(|id| serde_json::from_str(id).ok()).unwrap_or(Value::Null);
    let error = json!({ "code": code, "message": message });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}
