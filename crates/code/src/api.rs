//! JavaScript clients, TypeScript declarations and descriptions of declared services (`[api.NAME]`).
//!
//! A client is one fixed program (`api/runtime.js`) plus data: the base URL of the service, the
//! variables that hold placeholders, the header or query parameter for each placeholder, and the
//! operations of the OpenAPI document if the service has one. Clients enforce nothing: the broker
//! decides which hosts a program can reach and which secrets a request can carry.

mod describe;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use belljar_model::Config;
use belljar_model::code::{Api, BaseUrl};
use belljar_model::net::{SecretDecl, SecretKind, Slot};
use serde_json::{Value, json};

pub use describe::ApiQuery;

use crate::openapi::{self, Document, DocumentError, MAX_DOCUMENT, MAX_OPERATIONS};

/// The JavaScript source of the client, the same for every service.
const RUNTIME: &str = include_str!("api/runtime.js");
/// The TypeScript declarations that the declarations of every client refer to.
const PRELUDE: &str = include_str!("api/prelude.d.ts");
/// The maximum size of an operator's file with TypeScript types, in bytes.
const MAX_TYPES: usize = 1 << 20;

/// A declared service together with the contents of its OpenAPI and type files.
#[derive(Clone, Debug)]
pub struct Service {
    api: Api,
    base: Option<String>,
    auth: Vec<Auth>,
    types: Option<String>,
    document: Option<Document>,
    /// Warnings for the operator about parts of the declaration that clients cannot use.
    pub remarks: Vec<String>,
}

/// The JavaScript client of a service and its TypeScript declarations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiClient {
    /// The source of a JavaScript module whose default export is the client.
    pub module: String,
    /// The TypeScript namespace of the client, with an interface `Client`. It refers to types of
    /// [`prelude`].
    pub declarations: String,
    pub operations: usize,
}

/// The header or query parameter in which a client sends a secret's placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Auth {
    variable: String,
    slot: &'static str,
    name: String,
    scheme: &'static str,
}

/// The reason why a service cannot be loaded or described.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("cannot read the file {file} of api `{api}`", file = path.display())]
    Read { api: String, path: PathBuf, source: io::Error },
    #[error("the file {file} of api `{api}` is larger than the limit of {most} bytes", file = path.display())]
    TooLong { api: String, path: PathBuf, most: usize },
    #[error("cannot use the file {file} of api `{api}`: {source}", file = path.display())]
    Document { api: String, path: PathBuf, source: DocumentError },
    #[error("the file {file} of api `{api}` is not valid UTF-8", file = path.display())]
    NotText { api: String, path: PathBuf },
    #[error("api `{api}` has no operation `{asked}`; {advice}")]
    NoOperation { api: String, asked: String, advice: String },
}

impl Service {
    /// Creates a service from its declaration and reads the files that the declaration names.
    pub fn read(api: &Api, config: &Config, home: Option<&Path>) -> Result<Self, ServiceError> {
        let document = match api.openapi(home) {
            Some(path) => Some(read_document(api, &path)?),
            None => None,
        };
        let types = match api.types(home) {
            Some(path) => {
                let text = String::from_utf8(read_limited(api, &path, MAX_TYPES)?);
                let not_text = |_| ServiceError::NotText { api: api.name.to_string(), path };
                Some(text.map_err(not_text)?)
            }
            None => None,
        };
        Ok(Self::new(api, config, document, types))
    }

    /// Creates a service from a parsed OpenAPI document and type text, without reading files.
    pub fn new(
        api: &Api,
        config: &Config,
        document: Option<Document>,
        types: Option<String>,
    ) -> Self {
        let mut remarks = Vec::new();
        let scheme = document.as_ref().and_then(Document::scheme).unwrap_or("Bearer");
        let secrets = api.secrets.iter().filter_map(|name| config.secret(name));
        let auth = secrets.filter_map(|secret| auth(secret, scheme, &mut remarks)).collect();
        let left_out = document.as_ref().map_or(0, Document::operations_left_out);
        if left_out > 0 {
            remarks.push(format!(
                "the OpenAPI document has more than {MAX_OPERATIONS} operations, so {left_out} of them have no function; programs can call their paths with `get`, `post` and the other methods"
            ));
        }
        let base = base(api, document.as_ref());
        if base.is_none() {
            remarks.push(
                "there is no `base-url` and no rule names a single host, so programs must use absolute URLs"
                    .to_owned(),
            );
        }
        Self { api: api.clone(), base, auth, types, document, remarks }
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the base URL for relative paths of the service, if it has one.
    pub fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    /// Returns the JavaScript client module of the service and its TypeScript declarations.
    pub fn client(&self) -> ApiClient {
        let ApiSurface { groups, operations } = self.surface();
        let auth: Vec<Value> =
            self.auth.iter().map(|it| json!([it.variable, it.slot, it.name, it.scheme])).collect();
        let settings = json!({
            "name": self.api.name.identifier(),
            "base": self.base,
            "auth": auth,
        });
        let data = json!([settings, groups]);
        let module = format!(
            "{RUNTIME}\nexport default make(...JSON.parse({}));\n",
            script_text(&data.to_string())
        );
        ApiClient { module, declarations: self.declarations(), operations }
    }

    /// Returns the number of operations in the service's OpenAPI document.
    pub fn operations(&self) -> usize {
        self.document.as_ref().map_or(0, |document| document.operations().len())
    }

    fn surface(&self) -> ApiSurface {
        let operations = self.document.as_ref().map(Document::operations).unwrap_or_default();
        let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for operation in &operations {
            groups.entry(&operation.group).or_default().push(operation.data());
        }
        let groups = groups
            .into_iter()
            .map(|(group, data)| json!([group, Value::Array(data).to_string()]))
            .collect();
        ApiSurface { groups, operations: operations.len() }
    }

    fn declarations(&self) -> String {
        let namespace = self.namespace();
        let mut text = match &self.document {
            Some(document) => {
                let (text, left_out) = openapi::declarations(document, &namespace);
                match left_out {
                    0 => text,
                    more => format!("{text}// … and {more} operations more\n"),
                }
            }
            None => format!("declare namespace {namespace} {{\n  type Client = BelljarApi;\n}}\n"),
        };
        // Types that the operator wrote come last.
        text.extend(self.types.iter().map(|types| format!("{}\n", types.trim_end())));
        text
    }

    fn namespace(&self) -> String {
        format!("api_{}", self.api.name.identifier())
    }
}

struct ApiSurface {
    /// The operation groups of the service: pairs of a group name and the JSON text of its
    /// operations.
    groups: Vec<Value>,
    operations: usize,
}

/// Reads the files of a service and returns its client.
pub fn client(api: &Api, config: &Config, home: Option<&Path>) -> Result<ApiClient, ServiceError> {
    Service::read(api, config, home).map(|service| service.client())
}

/// Returns a description of a service for a model: an overview, or the operations that match
/// `search`.
///
/// A `search` that is the exact name of an operation returns the full types of that operation.
pub fn describe(
    api: &Api,
    config: &Config,
    home: Option<&Path>,
    search: Option<&str>,
) -> Result<String, ServiceError> {
    let service = Service::read(api, config, home)?;
    let Some(words) = search else { return service.describe(&ApiQuery::Overview) };
    let whole = service.describe(&ApiQuery::Operation(words.to_owned()));
    whole.or_else(|_| service.describe(&ApiQuery::Search(words.to_owned())))
}

/// Returns the TypeScript declarations that all clients share. They are needed once per program.
pub fn prelude() -> &'static str {
    PRELUDE
}

/// Returns the complete TypeScript declarations of the global `apis` for these services.
pub fn declarations<'a>(services: impl IntoIterator<Item = &'a Service>) -> String {
    let mut text = PRELUDE.to_owned();
    let mut members = String::new();
    for service in services {
        text.push_str(&service.declarations());
        let (name, namespace) = (service.api.name.identifier(), service.namespace());
        members.push_str(&format!("  readonly {name}: {namespace}.Client;\n"));
    }
    format!("{text}declare const apis: {{\n{members}}};\n")
}

/// Returns a text as an ASCII string literal that is valid in both JSON and JavaScript.
fn script_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for character in Value::String(text.to_owned()).to_string().chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// Chooses the base URL: the operator's setting, else the document's server, else the first host.
///
/// The document's server counts only if a rule of the service allows it.
fn base(api: &Api, document: Option<&Document>) -> Option<String> {
    if let Some(base) = &api.base_url {
        return Some(base.to_string());
    }
    let first = api.base();
    let Some(server) = document.and_then(Document::server) else {
        return first.map(|base| base.to_string());
    };
    if server.starts_with('/') {
        let joined: Option<BaseUrl> = first
            .as_ref()?
            .to_string()
            .parse()
            .ok()
            .and_then(|base: BaseUrl| format!("{base}{server}").parse().ok());
        return joined.or(first).map(|base| base.to_string());
    }
    let server = server.parse::<BaseUrl>().ok();
    let reached = server.filter(|base| api.allow.iter().any(|rule| base.is_allowed_by(rule)));
    reached.or(first).map(|base| base.to_string())
}

/// Returns how a client sends the placeholder of a secret, or `None` if a client cannot send it.
fn auth(secret: &SecretDecl, scheme: &'static str, remarks: &mut Vec<String>) -> Option<Auth> {
    let name = &secret.name;
    let Some(variable) = secret.env.clone() else {
        // Other kinds need no placeholder in programs: the broker creates the credential.
        if matches!(secret.kind, SecretKind::Token) {
            remarks.push(format!(
                "secret `{name}` has no `env`, so programs cannot read its placeholder"
            ));
        }
        return None;
    };
    if matches!(secret.kind, SecretKind::SigV4 { .. } | SecretKind::Hmac { .. }) {
        remarks.push(format!(
            "secret `{name}` signs requests: programs must insert its placeholder themselves"
        ));
        return None;
    }
    let found = secret.slots.iter().find_map(|slot| match slot {
        Slot::Header(header) if header == "authorization" => {
            Some(("header", header.clone(), scheme))
        }
        Slot::Header(header) => Some(("header", header.clone(), "")),
        Slot::Basic => Some(("header", "authorization".to_owned(), "Basic")),
        Slot::Query(parameter) => Some(("query", parameter.clone(), "")),
        Slot::Json(_) => None,
    });
    let Some((slot, name, scheme)) = found else {
        remarks.push(format!(
            "secret `{name}` is sent in request bodies: programs must insert its placeholder themselves"
        ));
        return None;
    };
    Some(Auth { variable, slot, name, scheme })
}

fn read_document(api: &Api, path: &Path) -> Result<Document, ServiceError> {
    let bytes = read_limited(api, path, MAX_DOCUMENT)?;
    Document::parse(&bytes).map_err(|source| ServiceError::Document {
        api: api.name.to_string(),
        path: path.to_owned(),
        source,
    })
}

fn read_limited(api: &Api, path: &Path, most: usize) -> Result<Vec<u8>, ServiceError> {
    let failed =
        |source| ServiceError::Read { api: api.name.to_string(), path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).map_err(failed)?.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        return Err(ServiceError::TooLong {
            api: api.name.to_string(),
            path: path.to_owned(),
            most,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
