//! A document as it was read: bounded, with references that stay inside.

use belljar_model::net::percent_decoded;
use serde_json::{Map, Value};

use super::operation::Operation;

/// The largest one known has twelve million bytes.
pub const MAX_DOCUMENT: usize = 32 << 20;
/// An address longer than this is none.
const MAX_URL: usize = 1024;
/// References that lead to references.
const MAX_HOPS: usize = 16;

/// A document of OpenAPI 3.
#[derive(Clone, Debug)]
pub struct Document {
    root: Value,
}

/// Why a text is no document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("{length} bytes, where {MAX_DOCUMENT} are the most")]
    TooLong { length: usize },
    #[error("not JSON")]
    Json { source: serde_json::Error },
    #[error(
        "looks like YAML; only JSON is read. Convert it, for example: python3 -c 'import sys,yaml,json; json.dump(yaml.safe_load(sys.stdin),sys.stdout,default=str)'"
    )]
    Yaml,
    #[error("Swagger 2 is not read; convert the document to OpenAPI 3")]
    Swagger,
    #[error("no OpenAPI document: `openapi` does not say 3.0, 3.1 or 3.2")]
    NotOpenApi,
}

impl Document {
    pub fn parse(text: &[u8]) -> Result<Self, DocumentError> {
        if text.len() > MAX_DOCUMENT {
            return Err(DocumentError::TooLong { length: text.len() });
        }
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        // Depth is bounded by the parser itself.
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
        // Often half of a large document, and nothing here reads them.
        if let Some(components) = root.get_mut("components").and_then(Value::as_object_mut) {
            components.remove("examples");
        }
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// What it calls itself.
    pub fn title(&self) -> Option<&str> {
        self.root.pointer("/info/title")?.as_str()
    }

    /// Where its first server is, with the defaults of its variables; perhaps only a path.
    pub fn server(&self) -> Option<String> {
        let server = self.root.get("servers")?.get(0)?;
        let mut url = server.get("url")?.as_str()?.to_owned();
        let none = Map::new();
        let variables = server.get("variables").and_then(Value::as_object).unwrap_or(&none);
        for (name, variable) in variables.iter().take(32) {
            let value = variable.get("default").and_then(Value::as_str).unwrap_or_default();
            // Looked at each time: variables that name each other grow without end.
            if url.len() > MAX_URL || value.len() > MAX_URL {
                return None;
            }
            url = url.replace(&format!("{{{name}}}"), value);
        }
        (url.len() <= MAX_URL).then_some(url)
    }

    /// How a token in `Authorization` is introduced: `Bearer`, `Basic` or not at all.
    pub fn scheme(&self) -> Option<&'static str> {
        let schemes = self.root.pointer("/components/securitySchemes")?.as_object()?;
        schemes.values().take(64).filter_map(|it| self.resolve(it)).find_map(|scheme| {
            let says = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
            match (says("type"), says("scheme").to_ascii_lowercase().as_str()) {
                ("http", "bearer") | ("oauth2" | "openIdConnect", _) => Some("Bearer"),
                ("http", "basic") => Some("Basic"),
                ("apiKey", _)
                    if says("in") == "header"
                        && says("name").eq_ignore_ascii_case("authorization") =>
                {
                    Some("")
                }
                _ => None,
            }
        })
    }

    /// All operations, by group and name.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        Operation::all(self)
    }

    /// What a value is, wherever its reference leads; none if that is nowhere or a circle.
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
