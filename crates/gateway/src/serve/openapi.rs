//! The OpenAPI 3.1 document of the API, made from the declarations of the routes.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::access::{self, Act, Grant, Role, Scope, TokenKind, extent};
use super::head::Accepts;
use super::identity::COOKIE_NAME;
use super::problem::{ProblemBody, ProblemKind};
use super::routes::{Access, Content, Operation};

/// The problems that every route with a credential can have.
const ALWAYS: [ProblemKind; 7] = [
    ProblemKind::BAD_REQUEST,
    ProblemKind::UNAUTHENTICATED,
    ProblemKind::FORBIDDEN,
    ProblemKind::NOT_FOUND,
    ProblemKind::TOO_MANY,
    ProblemKind::INTERNAL,
    ProblemKind::UNAVAILABLE,
];

/// The problems that every route with a body can have.
const WITH_BODY: [ProblemKind; 3] =
    [ProblemKind::TOO_LARGE, ProblemKind::MEDIA_TYPE, ProblemKind::LENGTH];

/// The parts of paths with the patterns of their values. A value that does not match has no object.
pub(super) const PATH_PARAMETERS: [(&str, &str); 16] = [
    (
        "approval",
        "^([0-9a-z]{16}-(0|[1-9][0-9]{0,18})|gate:[0-9a-f]{64}|skill:[a-z][a-z0-9_-]{0,63})$",
    ),
    ("box", "^[a-z0-9][a-z0-9._-]{0,62}$"),
    ("event", "^(0|[1-9][0-9]{0,15})$"),
    ("exec", "^[0-9a-f]{32}$"),
    ("path", "^[^\\u0000-\\u001f\\u007f\\\\]+$"),
    ("proposal", "^[0-9a-f]{16}$"),
    ("request", "^(0|[1-9][0-9]{0,15})$"),
    ("run", "^[0-9a-z]{16}$"),
    ("schedule", "^[a-z0-9][a-z0-9_-]{0,62}$"),
    ("secret", "^[a-z0-9][a-z0-9_-]{0,62}$"),
    ("session", "^[0-9a-f]{16}$"),
    ("task", "^[a-z0-9][a-z0-9_-]{0,62}(\\[[0-9]{1,4}\\])?$"),
    (
        "tile",
        "^([0-9]|[1-5][0-9]|6[0-3]|entries)/(x[0-9]{3}/){0,6}[0-9]{3}(\\.p/[1-9][0-9]{0,2})?$",
    ),
    ("token", "^[0-9a-f]{8}$"),
    ("user", "^[0-9a-f]{16}$"),
    ("webhook", "^[a-z0-9][a-z0-9_-]{0,62}$"),
];

/// Returns the document that describes these routes.
pub(super) fn document<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<ProblemBody<'_>>();
    let mut paths = Map::new();
    let described = operations.into_iter().filter(|operation| !operation.summary.is_empty());
    for operation in described {
        for path in operation.aliases.iter().copied().chain([operation.path]) {
            let methods = paths.entry(openapi_path(path)).or_insert_with(|| json!({}));
            let method = operation.method.as_str().to_ascii_lowercase();
            let described = describe((operation, path), &mut schemas, problem.as_value());
            if let Some(methods) = methods.as_object_mut() {
                methods.insert(method, described);
            }
        }
    }
    let definitions = schemas.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Belljar", "version": "1", "license": { "name": "Apache-2.0" } },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "cookie", "name": COOKIE_NAME },
            },
        },
    })
}

/// Converts the pattern of a path. OpenAPI has no syntax for the rest of a path.
fn openapi_path(path: &str) -> String {
    path.replace("{*", "{")
}

/// Describes an operation at one of its paths.
fn describe(
    (operation, path): (&Operation, &str),
    schemas: &mut SchemaGenerator,
    problem: &Value,
) -> Value {
    let mut described = json!({
        "operationId": operation_id(&operation.method, path),
        "summary": operation.summary,
        "parameters": parameters((operation, path), schemas),
        "responses": responses(operation, schemas, problem),
    });
    let Some(fields) = described.as_object_mut() else { return described };
    if let Some(body) = operation.body {
        let content = json!({ "application/json": { "schema": body(schemas) } });
        fields.insert(
            "requestBody".to_owned(),
            json!({ "required": !operation.is_body_optional, "content": content }),
        );
    }
    if operation.accepts == Accepts::Bytes {
        let schema = json!({ "type": "string", "format": "binary" });
        let content = json!({ Accepts::Bytes.media_type(): { "schema": schema } });
        fields.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    if operation.has_language {
        fields.insert("x-belljar-language".to_owned(), Value::Bool(true));
    }
    fields.insert("security".to_owned(), security(operation.access));
    if let Access::For(act) = operation.access {
        fields.insert("x-belljar-rights".to_owned(), rights(act));
    }
    described
}

/// Returns the objects that an operation can concern, for each role and each kind of token, and the scopes of
/// a token that permit the operation.
fn rights(act: Act) -> Value {
    let mut rights = Map::new();
    for role in Role::ALL {
        let extent = extent(act, role, &Grant::Person);
        rights.insert(role.name().to_owned(), json!(extent.name()));
    }
    for kind in TokenKind::ALL {
        let extent = extent(act, Role::Owner, &Grant::Token(kind, Scope::ALL.to_vec()));
        rights.insert(kind.name().to_owned(), json!(extent.name()));
    }
    let scopes = Scope::ALL.into_iter().filter(|scope| scope.acts().contains(&act));
    rights.insert("scopes".to_owned(), scopes.map(Scope::name).collect());
    Value::Object(rights)
}

/// Returns the credentials that a route accepts. Some acts are for people only.
fn security(access: Access) -> Value {
    let session = json!({ "session": [] });
    match access {
        Access::Anyone => json!([]),
        Access::For(act) if !access::is_for_tokens(act) => json!([session]),
        Access::For(_) | Access::Authenticated | Access::Page | Access::LocalSocket => {
            json!([{ "token": [] }, session])
        }
    }
}

/// Returns the name of an operation for generated clients, such as `get_v1_boxes_box`.
fn operation_id(method: &Method, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let method = method.as_str().to_ascii_lowercase();
    [method.as_str()].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

/// Returns the names of the variable parts of a path.
pub(super) fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    let segments = path.split('/').filter_map(|part| part.strip_prefix('{'));
    segments.map(|part| part.trim_start_matches('*').trim_end_matches('}'))
}

fn parameters((operation, path): (&Operation, &str), schemas: &mut SchemaGenerator) -> Vec<Value> {
    let mut parameters: Vec<Value> = path_parameters(path)
        .map(|name| {
            let pattern = PATH_PARAMETERS.iter().find(|(known, _)| *known == name);
            let pattern = pattern.map_or("^.+$", |(_, pattern)| pattern);
            let schema = json!({ "type": "string", "pattern": pattern });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    let query = operation.query.map(|query| query(schemas).to_value());
    let fields = query.as_ref().and_then(|schema| schema.get("properties")?.as_object());
    for (name, schema) in fields.into_iter().flatten() {
        parameters.push(json!({ "name": name, "in": "query", "schema": schema }));
    }
    if operation.method == Method::POST && operation.access != Access::Anyone {
        let schema = json!({ "type": "string", "pattern": "^[!-~]{1,128}$" });
        parameters.push(json!({ "name": "Idempotency-Key", "in": "header", "schema": schema }));
    }
    if operation.problems.contains(&ProblemKind::NO_VERSION) {
        let schema = json!({ "type": "string" });
        parameters.push(json!({ "name": "If-Match", "in": "header", "schema": schema }));
        // A new object of this name has no version.
        if operation.method == Method::PUT && operation.path.ends_with('}') {
            let schema = json!({ "type": "string", "enum": ["*"] });
            parameters.push(json!({ "name": "If-None-Match", "in": "header", "schema": schema }));
        }
    }
    parameters
}

fn responses(operation: &Operation, schemas: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut responses = Map::new();
    let mut contents = BTreeMap::<StatusCode, Map<String, Value>>::new();
    for (status, content) in &operation.responses {
        // A status can have several media types.
        let media_types = contents.entry(*status).or_default();
        match content {
            Content::Empty => {}
            Content::Json(schema) => {
                let schema = json!({ "schema": schema(schemas) });
                media_types.insert("application/json".to_owned(), schema);
            }
            Content::Bytes(media_type) => {
                media_types.insert((*media_type).to_owned(), json!({}));
            }
        }
    }
    for (status, content) in contents {
        let description = status.canonical_reason().unwrap_or("Success");
        let response = if content.is_empty() {
            json!({ "description": description })
        } else {
            json!({ "description": description, "content": content })
        };
        responses.insert(status.as_u16().to_string(), response);
    }
    for status in problem_statuses(operation) {
        let description = status.canonical_reason().unwrap_or("Problem");
        let content = json!({ "application/problem+json": { "schema": problem } });
        let response = json!({ "description": description, "content": content });
        responses.insert(status.as_u16().to_string(), response);
    }
    Value::Object(responses)
}

/// Returns the statuses of all problems of a route in ascending order.
fn problem_statuses(operation: &Operation) -> BTreeSet<StatusCode> {
    let has_body = operation.accepts != Accepts::Nothing;
    let with_body = WITH_BODY.iter().filter(|_| has_body);
    let has_key = operation.method == Method::POST && operation.access != Access::Anyone;
    let with_key = has_key.then_some(&ProblemKind::KEY_REUSED);
    let kinds = ALWAYS.iter().chain(with_body).chain(with_key).chain(operation.problems);
    kinds.map(|kind| kind.status).collect()
}
