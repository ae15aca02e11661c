//! A parsed OpenAPI document with size limits and references that stay inside it.

use belljar_model::net::percent_decoded;
use serde_json::{Map, Value};

use super::operation::{MAX_OPERATIONS, Operation};

/// The maximum size of an OpenAPI document in bytes. The largest known document has twelve million
/// bytes.
pub const MAX_DOCUMENT: usize = 32 << 20;
/// The maximum length of a server URL in an OpenAPI document. A longer URL is ignored.
const MAX_URL: usize = 1024;
/// The maximum number of references that point to other references.
const MAX_HOPS: usize = 16;

/// A parsed OpenAPI 3 document.
#[derive(Clone, Debug)]
pub struct Document {
    root: Value,
}

/// The reason why a text cannot be used as an OpenAPI document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the document has {length} bytes; the limit is {MAX_DOCUMENT}")]
    TooLong { length: usize },
    #[error("the document is not valid JSON")]
    Json { source: serde_json::Error },
    #[error(
        "looks like YAML, but only JSON is supported. Convert it, for example: python3 -c 'import sys,yaml,json; json.dump(yaml.safe_load(sys.stdin),sys.stdout,default=str)'"
    )]
    Yaml,
    #[error("Swagger 2 is not supported; convert the document to OpenAPI 3")]
    Swagger,
    #[error("not an OpenAPI document: the key `openapi` must be version 3.0, 3.1 or 3.2")]
    NotOpenApi,
}

impl Document {
    /// Parses an OpenAPI document in JSON and checks its version.
    pub fn parse(text: &[u8]) -> Result<Self, DocumentError> {
        if text.len() > MAX_DOCUMENT {
            return Err(DocumentError::TooLong { length: text.len() });
        }
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        // serde_json limits the nesting depth.
        let parsed = serde_json::from_slice(text).map_err(|source| match looks_like_yaml(text) {
            true => DocumentError::Yaml,
            false => DocumentError::Json { source },
        });
        Self::of(parsed?)
    }

    fn of(mut root: Value) -> Result<Self, DocumentError> {
        if root.get("swagger").is_some() {
            return Err(DocumentError::Swagger);
        }
        let version = root.get("openapi").and_then(Value::as_str).unwrap_or_default();
        if !["3.0", "3.1", "3.2"].iter().any(|known| version.starts_with(known)) {
            return Err(DocumentError::NotOpenApi);
        }
        // Examples are often half of a large document, and no code here reads them.
        if let Some(components) = root.get_mut("components").and_then(Value::as_object_mut) {
            components.remove("examples");
        }
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// Returns the title of the OpenAPI document.
    pub fn title(&self) -> Option<&str> {
        self.root.pointer("/info/title")?.as_str()
    }

    /// Returns the URL of the document's first server with the default values of its variables.
    ///
    /// The result can be a path without a host. A URL without a scheme, such as `//api.example`, gets
    /// `https`.
    pub fn server(&self) -> Option<String> {
        let server = self.root.get("servers")?.get(0)?;
        let mut url = server.get("url")?.as_str()?.to_owned();
        let none = Map::new();
        let variables = server.get("variables").and_then(Value::as_object).unwrap_or(&none);
        for (name, variable) in variables.iter().take(32) {
            let value = variable.get("default").and_then(Value::as_str).unwrap_or_default();
            // Checked after each replacement: variables that contain each other grow exponentially.
            if url.len() > MAX_URL || value.len() > MAX_URL {
                return None;
            }
            url = url.replace(&format!("{{{name}}}"), value);
        }
        if url.starts_with("//") {
            url.insert_str(0, "https:");
        }
        (url.len() <= MAX_URL).then_some(url)
    }

    /// Returns the authentication scheme of the `Authorization` header: `Bearer`, `Basic` or empty.
    pub fn scheme(&self) -> Option<&'static str> {
        let schemes = self.root.pointer("/components/securitySchemes")?.as_object()?;
        schemes.values().take(64).filter_map(|it| self.resolve(it)).find_map(|scheme| {
            let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
            match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
                ("http", "bearer") | ("oauth2" | "openIdConnect", _) => Some("Bearer"),
                ("http", "basic") => Some("Basic"),
                ("apiKey", _)
                    if text("in") == "header"
                        && text("name").eq_ignore_ascii_case("authorization") =>
                {
                    Some("")
                }
                _ => None,
            }
        })
    }

    /// Returns all operations of the OpenAPI document, sorted by group and name.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        Operation::all(self)
    }

    /// Returns the number of operations that exceed the limit, which [`Self::operations`] leaves out.
    pub fn operations_left_out(&self) -> usize {
        Operation::count(self).saturating_sub(MAX_OPERATIONS)
    }

    /// Follows the references (`$ref`) of a value and returns the referenced value. Returns `None`
    /// if a target is missing or references loop.
    pub(super) fn resolve<'a>(&'a self, value: &'a Value) -> Option<&'a Value> {
        let mut value = value;
        for _ in 0..MAX_HOPS {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Some(value);
            };
            value = self.root.pointer(&percent_decoded(reference.strip_prefix('#')?))?;
        }
        None
    }
}

fn looks_like_yaml(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text.get(..4096).unwrap_or(text));
    text.lines().any(|line| {
        ["openapi:", "swagger:", "info:", "---"].iter().any(|start| line.starts_with(start))
    })
}
