//! The operations of a document: how each is called, what it takes and what it gives.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::document::Document;
use super::names::{self, Taken};

const MAX_OPERATIONS: usize = 5000;
const MAX_PARAMETERS: usize = 100;
const MAX_PATH: usize = 1000;
const MAX_NAME: usize = 200;
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// One operation.
#[derive(Debug)]
pub struct Operation<'a> {
    /// Empty for one that stands alone.
    pub group: String,
    pub name: String,
    /// In capitals.
    pub method: &'static str,
    pub path: &'a str,
    /// A stranger's words.
    pub summary: Option<&'a str>,
    pub description: Option<&'a str>,
    pub is_deprecated: bool,
    pub parameters: Vec<Parameter<'a>>,
    pub body: Option<Body<'a>>,
    pub result: Outcome<'a>,
}

/// What a caller says beside the body.
#[derive(Debug)]
pub struct Parameter<'a> {
    /// As programs say it.
    pub argument: String,
    /// As it is on the wire.
    pub name: &'a str,
    pub place: Place,
    pub style: Style,
    pub explode: bool,
    pub is_required: bool,
    pub schema: Option<&'a Value>,
    pub description: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

impl Place {
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

/// How lists and objects are written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// A whole value in JSON.
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

    fn of(parameter: &Value, place: Place) -> Self {
        if parameter.get("content").is_some() {
            return Self::Json;
        }
        let said = parameter.get("style").and_then(Value::as_str);
        let known = Self::NAMED.into_iter().find(|style| said == Some(style.name()));
        known.unwrap_or(match place {
            Place::Path | Place::Header => Self::Simple,
            Place::Query | Place::Cookie => Self::Form,
        })
    }
}

/// What an operation is sent.
#[derive(Debug)]
pub struct Body<'a> {
    pub kind: BodyKind,
    pub media_type: &'a str,
    pub is_required: bool,
    pub schema: Option<&'a Value>,
}

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

/// What an operation gives.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// One of these, as JSON.
    Json(Vec<&'a Value>),
    Text,
    Bytes,
    Nothing,
    /// The document does not say.
    Unknown,
}

impl<'a> Operation<'a> {
    pub(super) fn all(document: &'a Document) -> Vec<Self> {
        let mut taken = Taken::new();
        let mut operations = Vec::new();
        let paths = document.root().get("paths").and_then(Value::as_object);
        for (path, item) in paths.into_iter().flatten() {
            let Some(item) = document.resolve(item).filter(|_| is_path(path)) else { continue };
            for method in METHODS {
                let Some(said) = item.get(method).filter(|said| said.is_object()) else { continue };
                if operations.len() == MAX_OPERATIONS {
                    return sorted(operations);
                }
                operations.push(Self::read(document, (path, item), (method, said), &mut taken));
            }
        }
        sorted(operations)
    }

    fn read(
        document: &'a Document,
        (path, item): (&'a str, &'a Value),
        (method, said): (&'static str, &'a Value),
        taken: &mut Taken,
    ) -> Self {
        let words = |key: &str| said.get(key).and_then(Value::as_str);
        let tag = said.get("tags").and_then(|tags| tags.get(0)).and_then(Value::as_str);
        let (group, name) = taken.claim(names::wish(words("operationId"), tag, method, path));
        let body = said.get("requestBody").and_then(|body| document.resolve(body));
        let body = body.and_then(Body::read);
        let parameters = parameters(document, item, said, body.is_some());
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
            summary: words("summary"),
            description: words("description"),
            is_deprecated: said.get("deprecated").and_then(Value::as_bool).unwrap_or(false),
            parameters,
            body,
            result: result(document, said),
        }
    }

    /// `repos.get`, or `ping` for one without a group.
    pub fn called(&self) -> String {
        match self.group.as_str() {
            "" => self.name.clone(),
            group => format!("{group}.{}", self.name),
        }
    }

    /// What a client has to know: name, method, path, parameters and body, as data.
    pub(crate) fn data(&self) -> Value {
        let parameters: Vec<Value> = self
            .parameters
            .iter()
            .map(|it| {
                let (place, style) = (it.place.name(), it.style.name());
                json!([it.argument, it.name, place, style, it.explode, it.is_required])
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

/// A path that a request can have: no step upward, nothing of a query, plain characters.
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
    said: &'a Value,
    has_body: bool,
) -> Vec<Parameter<'a>> {
    let lists = [said, item].map(|of| of.get("parameters").and_then(Value::as_array));
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    if has_body {
        taken.insert("body".to_owned());
    }
    let mut parameters = Vec::new();
    // What the operation says itself comes first, and what the path says for all fills up.
    for parameter in lists.into_iter().flatten().flatten() {
        let Some(parameter) = document.resolve(parameter) else { continue };
        let words = |key: &str| parameter.get(key).and_then(Value::as_str);
        let (Some(name), Some(place)) = (words("name"), words("in")) else { continue };
        let Some(place) = Place::ALL.into_iter().find(|it| it.name() == place) else { continue };
        let is_new = seen.insert((name, place.name()));
        if !is_new || !is_wire_name(name, place) || parameters.len() == MAX_PARAMETERS {
            continue;
        }
        let style = Style::of(parameter, place);
        let explode = parameter.get("explode").and_then(Value::as_bool);
        let schema = parameter
            .get("schema")
            .or_else(|| parameter.get("content")?.as_object()?.values().next()?.get("schema"));
        let required = parameter.get("required").and_then(Value::as_bool).unwrap_or(false);
        parameters.push(Parameter {
            argument: argument(name, place, &mut taken),
            name,
            place,
            style,
            explode: explode.unwrap_or(matches!(style, Style::Form | Style::DeepObject)),
            is_required: required || place == Place::Path,
            schema,
            description: words("description"),
        });
    }
    parameters
}

/// Whether a name can stand where it says; some headers are never a parameter (OpenAPI 3.1, 4.8.12).
fn is_wire_name(name: &str, place: Place) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let known = ["accept", "content-type", "authorization"];
    !name.is_empty()
        && name.len() <= MAX_NAME
        && match place {
            Place::Header => {
                name.bytes().all(token) && !known.contains(&name.to_ascii_lowercase().as_str())
            }
            Place::Cookie => name.bytes().all(token),
            Place::Path | Place::Query => !name.contains(['{', '}']),
        }
}

/// As it is on the wire, unless another argument is called so.
fn argument(name: &str, place: Place, taken: &mut BTreeSet<String>) -> String {
    // An object literal takes this word for something else.
    let name = if name == "__proto__" { "proto" } else { name };
    let placed = format!("{}_{name}", place.name());
    let numbered = (2_usize..).map(|number| format!("{placed}{number}"));
    let candidates = [name.to_owned(), placed.clone()].into_iter().chain(numbered);
    let argument = candidates.into_iter().find(|it| !taken.contains(it)).unwrap_or(placed.clone());
    taken.insert(argument.clone());
    argument
}

impl<'a> Body<'a> {
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
        let all = usable.map(|(media_type, said)| (BodyKind::of(media_type), media_type, said));
        let (kind, media_type, said) = all.min_by_key(|(kind, ..)| order(*kind))?;
        let any = media_type.contains('*');
        Some(Self {
            kind,
            media_type: if any { "application/octet-stream" } else { media_type },
            is_required: body.get("required").and_then(Value::as_bool).unwrap_or(false),
            schema: said.get("schema"),
        })
    }
}

/// Whether it can stand in a header.
fn is_media_type(text: &str) -> bool {
    text.len() <= MAX_NAME && text.contains('/') && text.bytes().all(|it| matches!(it, b' '..=b'~'))
}

/// What the responses that are successes give together.
fn result<'a>(document: &'a Document, said: &'a Value) -> Outcome<'a> {
    let Some(responses) = said.get("responses").and_then(Value::as_object) else {
        return Outcome::Unknown;
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
        for (media_type, said) in content.iter().take(64) {
            match (BodyKind::of(media_type), said.get("schema")) {
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
        (false, _, _) => Outcome::Json(schemas),
        (true, true, _) => Outcome::Text,
        (true, false, true) => Outcome::Bytes,
        (true, false, false) if is_empty => Outcome::Nothing,
        (true, false, false) => Outcome::Unknown,
    }
}
