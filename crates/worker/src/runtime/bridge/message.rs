//! What of a message of JSON-RPC must be known to pass it on. The rest stays as it came.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A message, or a list of them, as older revisions allow.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    value: Value,
}

impl Message {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
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

    /// Whether this is JSON-RPC at all.
    pub(super) fn is_rpc(&self) -> bool {
        self.each().next().is_some() && self.each().all(|it| it.get("jsonrpc").is_some())
    }

    pub(super) fn wants_answer(&self) -> bool {
        !self.ids().is_empty()
    }

    /// Of the requests in it, as JSON.
    pub(super) fn ids(&self) -> BTreeMap<String, ()> {
        let asked = self.each().filter(|it| it.get("method").is_some());
        asked.filter_map(|it| Some((it.get("id")?.to_string(), ()))).collect()
    }

    /// Which request this answers.
    pub(super) fn answers(&self) -> Option<String> {
        let is_answer = self.value.get("result").is_some() || self.value.get("error").is_some();
        is_answer.then(|| self.value.get("id").map(Value::to_string)).flatten()
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.value.get("method")?.as_str()
    }

    /// The revision that a request itself names, as of 2026-07-28.
    pub(super) fn version(&self) -> Option<&str> {
        let meta = self.value.get("params")?.get("_meta")?;
        meta.get("io.modelcontextprotocol/protocolVersion")?.as_str()
    }

    /// The tool, prompt or resource that a request is for.
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

    /// The revision that an answer to `initialize` settles on.
    pub(super) fn negotiated(&self) -> Option<&str> {
        self.value.get("result")?.get("protocolVersion")?.as_str()
    }
}

/// An answer in the server's place. `id` is JSON.
pub(super) fn failure(id: Option<&str>, code: i32, message: &str) -> Vec<u8> {
    let id: Value = id.and_then(|id| serde_json::from_str(id).ok()).unwrap_or(Value::Null);
    let error = json!({ "code": code, "message": message });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes()
}
