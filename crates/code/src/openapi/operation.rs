//! The operations of a document: names, parameters, request bodies and results.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::document::Document;
use super::names::{self, UsedNames};

/// The maximum number of operations of a document that clients have.
pub(crate) const MAX_OPERATIONS: usize = 5000;
const MAX_PARAMETERS: usize = 100;
const MAX_PATH: usize = 1000;
const MAX_NAME: usize = 200;
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// One operation of a service: an HTTP method on a path.
#[derive(Debug)]
pub struct Operation<'a> {
    /// The name of the operation's group; empty without a group.
    pub group: String,
    pub name: String,
    /// The HTTP method of the operation in upper case.
    pub method: &'static str,
    pub path: &'a str,
    /// The summary of the operation, an untrusted text of the document.
    pub summary: Option<&'a str>,
    pub description: Option<&'a str>,
    pub is_deprecated: bool,
    pub parameters: Vec<Parameter<'a>>,
    pub body: Option<RequestBody<'a>>,
    pub result: ResponseBody<'a>,
}

/// A parameter of an operation: a value in its path, query, headers or cookies.
#[derive(Debug)]
pub struct Parameter<'a> {
    /// The name of the parameter's argument in programs.
    pub argument: String,
    /// The name of the parameter in the HTTP request.
    pub name: &'a str,
    pub location: ParameterLocation,
    pub style: Style,
    pub explode: bool,
    pub is_required: bool,
    pub schema: Option<&'a Value>,
    pub description: Option<&'a str>,
}

/// The part of an HTTP request that carries a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

impl ParameterLocation {
    const ALL: [Self; 4] = [Self::Path, Self::Query, Self::Header, Self::Cookie];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

/// How lists and objects are serialized in a parameter (OpenAPI `style`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// The parameter is sent as JSON, for parameters with `content`.
    Json,
}

impl Style {
    const NAMED: [Self; 7] = [
        Self::Simple,
        Self::Label,
        Self::Matrix,
        Self::Form,
        Self::SpaceDelimited,
        Self::PipeDelimited,
        Self::DeepObject,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Label => "label",
            Self::Matrix => "matrix",
            Self::Form => "form",
            Self::SpaceDelimited => "spaceDelimited",
            Self::PipeDelimited => "pipeDelimited",
            Self::DeepObject => "deepObject",
            Self::Json => "json",
        }
    }

    fn of(parameter: &Value, location: ParameterLocation) -> Self {
        if parameter.get("content").is_some() {
            return Self::Json;
        }
        let style = parameter.get("style").and_then(Value::as_str);
        let known = Self::NAMED.into_iter().find(|known| style == Some(known.name()));
        known.unwrap_or(match location {
            ParameterLocation::Path | ParameterLocation::Header => Self::Simple,
            ParameterLocation::Query | ParameterLocation::Cookie => Self::Form,
        })
    }
}

/// The request body of an operation.
#[derive(Debug)]
pub struct RequestBody<'a> {
    pub kind: BodyKind,
    pub media_type: &'a str,
    pub is_required: bool,
    pub schema: Option<&'a Value>,
}

/// How a client serializes a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    Json,
    Form,
    Multipart,
    Text,
    Bytes,
}

impl BodyKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Form => "form",
            Self::Multipart => "multipart",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }

    fn of(media_type: &str) -> Self {
        let plain = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match plain.as_str() {
            it if it == "application/json" || it.ends_with("+json") => Self::Json,
            "application/x-www-form-urlencoded" => Self::Form,
            it if it.starts_with("multipart/") => Self::Multipart,
            it if it.starts_with("text/") || it.ends_with("xml") => Self::Text,
            _ => Self::Bytes,
        }
    }
}

/// The response body of a successful operation.
#[derive(Debug)]
pub enum ResponseBody<'a> {
    /// The response body is JSON that matches one of these schemas.
    Json(Vec<&'a Value>),
    Text,
    Bytes,
    Nothing,
    /// The OpenAPI document does not describe the response.
    Unknown,
}

/// Returns the definitions of all operations, with their paths and methods.
fn definitions(
    document: &Document,
) -> impl Iterator<Item = ((&str, &Value), (&'static str, &Value))> {
    let paths = document.root().get("paths").and_then(Value::as_object);
    let paths = paths.into_iter().flatten().filter(|(path, _)| is_path(path));
    paths.filter_map(|(path, item)| Some((path.as_str(), document.resolve(item)?))).flat_map(
        |(path, item)| {
            let methods =
                METHODS.into_iter().filter_map(|method| Some((method, item.get(method)?)));
            let methods = methods.filter(|(_, definition)| definition.is_object());
            methods.map(move |method| ((path, item), method))
        },
    )
}

impl<'a> Operation<'a> {
    pub(super) fn all(document: &'a Document) -> Vec<Self> {
        let mut used = UsedNames::new();
        let definitions = definitions(document).take(MAX_OPERATIONS);
        let read = |(path, method)| Self::read(document, path, method, &mut used);
        sorted(definitions.map(read).collect())
    }

    /// Returns the number of all operations of the document.
    pub(super) fn count(document: &Document) -> usize {
        definitions(document).count()
    }

    fn read(
        document: &'a Document,
        (path, item): (&'a str, &'a Value),
        (method, definition): (&'static str, &'a Value),
        used: &mut UsedNames,
    ) -> Self {
        let text = |key: &str| definition.get(key).and_then(Value::as_str);
        let tag = definition.get("tags").and_then(|tags| tags.get(0)).and_then(Value::as_str);
        let (group, name) =
            used.claim(names::preferred_name(text("operationId"), tag, method, path));
        let body = definition.get("requestBody").and_then(|body| document.resolve(body));
        let body = body.and_then(RequestBody::read);
        let parameters = parameters(document, item, definition, body.is_some());
        let method = match method {
            "get" => "GET",
            "put" => "PUT",
            "post" => "POST",
            "delete" => "DELETE",
            "options" => "OPTIONS",
            "head" => "HEAD",
            _ => "PATCH",
        };
        Self {
            group,
            name,
            method,
            path,
            summary: text("summary"),
            description: text("description"),
            is_deprecated: definition.get("deprecated").and_then(Value::as_bool).unwrap_or(false),
            parameters,
            body,
            result: result(document, definition),
        }
    }

    /// Returns the operation name with its group, such as `repos.get`, or `ping` without a group.
    pub fn full_name(&self) -> String {
        match self.group.as_str() {
            "" => self.name.clone(),
            group => format!("{group}.{}", self.name),
        }
    }

    /// Returns the operation as data for a client: name, method, path, parameters and body.
    pub(crate) fn data(&self) -> Value {
        let parameters: Vec<Value> = self
            .parameters
            .iter()
            .map(|it| {
                let (location, style) = (it.location.name(), it.style.name());
                json!([it.argument, it.name, location, style, it.explode, it.is_required])
            })
            .collect();
        match &self.body {
            None => json!([self.name, self.method, self.path, parameters]),
            Some(body) => {
                let body = json!([body.kind.name(), body.media_type, body.is_required]);
                json!([self.name, self.method, self.path, parameters, body])
            }
        }
    }
}

fn sorted(mut operations: Vec<Operation<'_>>) -> Vec<Operation<'_>> {
    operations.sort_by(|left, right| (&left.group, &left.name).cmp(&(&right.group, &right.name)));
    operations
}

/// Returns whether a path is safe in a URL: ASCII, no `..`, no query and no fragment.
fn is_path(path: &str) -> bool {
    let legal = |byte: u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'?' | b'#' | b'\\');
    path.starts_with('/')
        && path.len() <= MAX_PATH
        && path.bytes().all(legal)
        && !path.contains("//")
        && !path.split('/').any(|part| matches!(part, "." | ".."))
}

fn parameters<'a>(
    document: &'a Document,
    item: &'a Value,
    definition: &'a Value,
    has_body: bool,
) -> Vec<Parameter<'a>> {
    let lists = [definition, item].map(|of| of.get("parameters").and_then(Value::as_array));
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut used: BTreeSet<String> = BTreeSet::new();
    if has_body {
        used.insert("body".to_owned());
    }
    let mut parameters = Vec::new();
    // Parameters of the operation come first and override parameters of the whole path.
    for parameter in lists.into_iter().flatten().flatten() {
        let Some(parameter) = document.resolve(parameter) else { continue };
        let text = |key: &str| parameter.get(key).and_then(Value::as_str);
        let (Some(name), Some(location)) = (text("name"), text("in")) else { continue };
        let Some(location) = ParameterLocation::ALL.into_iter().find(|it| it.name() == location)
        else {
            continue;
        };
        let is_new = seen.insert((name, location.name()));
        if !is_new || !is_wire_name(name, location) || parameters.len() == MAX_PARAMETERS {
            continue;
        }
        let style = Style::of(parameter, location);
        let explode = parameter.get("explode").and_then(Value::as_bool);
        let schema = parameter
            .get("schema")
            .or_else(|| parameter.get("content")?.as_object()?.values().next()?.get("schema"));
        let required = parameter.get("required").and_then(Value::as_bool).unwrap_or(false);
        parameters.push(Parameter {
            argument: argument(name, location, &mut used),
            name,
            location,
            style,
            explode: explode.unwrap_or(matches!(style, Style::Form | Style::DeepObject)),
            is_required: required || location == ParameterLocation::Path,
            schema,
            description: text("description"),
        });
    }
    parameters
}

/// Returns whether a parameter name is valid in its location. Some header names are reserved for
/// the client itself (OpenAPI 3.1, 4.8.12).
fn is_wire_name(name: &str, location: ParameterLocation) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let known = ["accept", "content-type", "authorization"];
    !name.is_empty()
        && name.len() <= MAX_NAME
        && match location {
            ParameterLocation::Header => {
                name.bytes().all(token) && !known.contains(&name.to_ascii_lowercase().as_str())
            }
            ParameterLocation::Cookie => name.bytes().all(token),
            ParameterLocation::Path | ParameterLocation::Query => !name.contains(['{', '}']),
        }
}

/// Returns the argument name of a parameter: its own name, or a variant if that name is used.
fn argument(name: &str, location: ParameterLocation, used: &mut BTreeSet<String>) -> String {
    // `__proto__` in an object literal sets the prototype.
    let name = if name == "__proto__" { "proto" } else { name };
    let with_location = format!("{}_{name}", location.name());
    let numbered = (2_usize..).map(|number| format!("{with_location}{number}"));
    let candidates = [name.to_owned(), with_location.clone()].into_iter().chain(numbered);
    let argument =
        candidates.into_iter().find(|it| !used.contains(it)).unwrap_or(with_location.clone());
    used.insert(argument.clone());
    argument
}

impl<'a> RequestBody<'a> {
    fn read(body: &'a Value) -> Option<Self> {
        let content = body.get("content")?.as_object()?;
        let order = |kind: BodyKind| match kind {
            BodyKind::Json => 0,
            BodyKind::Form => 1,
            BodyKind::Multipart => 2,
            BodyKind::Text => 3,
            BodyKind::Bytes => 4,
        };
        let usable = content.iter().take(64).filter(|(media_type, _)| is_media_type(media_type));
        let all = usable
            .map(|(media_type, definition)| (BodyKind::of(media_type), media_type, definition));
        let (kind, media_type, definition) = all.min_by_key(|(kind, ..)| order(*kind))?;
        let any = media_type.contains('*');
        Some(Self {
            kind,
            media_type: if any { "application/octet-stream" } else { media_type },
            is_required: body.get("required").and_then(Value::as_bool).unwrap_or(false),
            schema: definition.get("schema"),
        })
    }
}

/// Returns whether a text is safe as the value of a `content-type` header.
fn is_media_type(text: &str) -> bool {
    text.len() <= MAX_NAME && text.contains('/') && text.bytes().all(|it| matches!(it, b' '..=b'~'))
}

/// Returns the combined body type of all successful responses of an operation.
fn result<'a>(document: &'a Document, definition: &'a Value) -> ResponseBody<'a> {
    let Some(responses) = definition.get("responses").and_then(Value::as_object) else {
        return ResponseBody::Unknown;
    };
    let mut successes: Vec<&Value> = responses
        .iter()
        .filter(|(status, _)| status.starts_with('2'))
        .filter_map(|(_, response)| document.resolve(response))
        .collect();
    if successes.is_empty() {
        let default = responses.get("default").and_then(|it| document.resolve(it));
        successes.extend(default);
    }
    let mut schemas: Vec<&Value> = Vec::new();
    let (mut is_text, mut is_bytes, mut is_empty) = (false, false, false);
    for response in &successes {
        let content = response.get("content").and_then(Value::as_object);
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            is_empty = true;
            continue;
        };
        for (media_type, definition) in content.iter().take(64) {
            match (BodyKind::of(media_type), definition.get("schema")) {
                (BodyKind::Json, Some(schema)) if !schemas.contains(&schema) => {
                    schemas.push(schema);
                }
                (BodyKind::Json, _) => {}
                (BodyKind::Text | BodyKind::Form, _) => is_text = true,
                (BodyKind::Multipart | BodyKind::Bytes, _) => is_bytes = true,
            }
        }
    }
    match (schemas.is_empty(), is_text, is_bytes) {
        (false, _, _) => ResponseBody::Json(schemas),
        (true, true, _) => ResponseBody::Text,
        (true, false, true) => ResponseBody::Bytes,
        (true, false, false) if is_empty => ResponseBody::Nothing,
        (true, false, false) => ResponseBody::Unknown,
    }
}
