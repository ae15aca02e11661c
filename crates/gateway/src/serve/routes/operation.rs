//! The declaration of a route: its method, path and access, and its description for OpenAPI.

use http::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::serve::access::Act;
use crate::serve::head::Accepts;
use crate::serve::problem::ProblemKind;

/// The maximum length of a body, unless the route has another limit.
const MAX_BODY: usize = 1024 * 1024;

/// The clients that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every client that can connect.
    Anyone,
    /// Clients on the local socket, which are processes of the user that runs the server.
    LocalSocket,
    /// Every client with a valid credential.
    Authenticated,
    /// People with a session, who see a page of the console. The page has the rights of the person.
    Page,
    /// Clients whose role and scopes allow this act.
    For(Act),
}

/// A function that adds the schema of a type to the schemas of a document.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The content of a successful response.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    Empty,
    Json(SchemaOf),
    /// Bytes with this media type.
    Bytes(&'static str),
}

/// What happens to the response of a request that has an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    /// The response is stored, and a repeated request gets it again.
    Stored,
    /// The response contains a credential. It is not stored, so a repeated request is refused.
    ShownOnce,
}

/// The declaration of a route.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// Further paths of the same route, for values that are also the path of another route.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) access: Access,
    pub(crate) accepts: Accepts,
    /// The maximum length of the body in bytes.
    pub(crate) max_body: usize,
    pub(crate) replay: Replay,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<SchemaOf>,
    /// Whether a request without a body is valid.
    pub(crate) is_body_optional: bool,
    /// Whether the body has a text in a language of its own, whose syntax no schema describes.
    pub(crate) has_language: bool,
    /// The successful responses.
    pub(crate) responses: Vec<(StatusCode, Content)>,
    /// The problems of this route in addition to those of every route.
    pub(crate) problems: &'static [ProblemKind],
}

impl Operation {
    const fn new(method: Method, path: &'static str, access: Access, accepts: Accepts) -> Self {
        Self {
            method,
            path,
            aliases: &[],
            access,
            accepts,
            max_body: MAX_BODY,
            replay: Replay::Stored,
            summary: "",
            query: None,
            body: None,
            is_body_optional: false,
            has_language: false,
            responses: Vec::new(),
            problems: &[],
        }
    }

    pub(super) const fn get(path: &'static str, access: Access) -> Self {
        Self::new(Method::GET, path, access, Accepts::Nothing)
    }

    pub(super) const fn post(path: &'static str, access: Access) -> Self {
        Self::new(Method::POST, path, access, Accepts::Json)
    }

    pub(super) const fn put(path: &'static str, access: Access) -> Self {
        Self::new(Method::PUT, path, access, Accepts::Json)
    }

    /// Declares a PUT whose body is bytes. The handler receives them as a stream.
    pub(super) const fn upload(path: &'static str, access: Access, max_body: usize) -> Self {
        let mut operation = Self::new(Method::PUT, path, access, Accepts::Bytes);
        operation.max_body = max_body;
        operation
    }

    pub(super) const fn patch(path: &'static str, access: Access) -> Self {
        Self::new(Method::PATCH, path, access, Accepts::Json)
    }

    pub(super) const fn delete(path: &'static str, access: Access) -> Self {
        Self::new(Method::DELETE, path, access, Accepts::Nothing)
    }

    /// Describes the route in one sentence. Routes without a description are not in the OpenAPI document.
    #[must_use]
    pub(super) const fn about(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Declares further paths of the same route.
    #[must_use]
    pub(super) const fn also_at(mut self, paths: &'static [&'static str]) -> Self {
        self.aliases = paths;
        self
    }

    /// Declares that the response contains a credential, which the server does not keep.
    #[must_use]
    pub(super) const fn shown_once(mut self) -> Self {
        self.replay = Replay::ShownOnce;
        self
    }

    /// Declares the parameters of the query as the fields of a type.
    #[must_use]
    pub(super) fn query<T: JsonSchema + DeserializeOwned>(mut self) -> Self {
        self.query = Some(<T as JsonSchema>::json_schema);
        self
    }

    /// Declares the type of the JSON body.
    #[must_use]
    pub(super) fn body<T: JsonSchema + DeserializeOwned>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Declares the type of the JSON body, which a request can omit.
    #[must_use]
    pub(super) fn optional_body<T: JsonSchema + DeserializeOwned>(self) -> Self {
        Self { is_body_optional: true, ..self.body::<T>() }
    }

    /// Declares the maximum length of the body in bytes.
    #[must_use]
    pub(super) const fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Declares that the body has a text in a language of its own, such as a network rule.
    #[must_use]
    pub(super) const fn with_language(mut self) -> Self {
        self.has_language = true;
        self
    }

    /// Declares a successful response with a JSON body.
    #[must_use]
    pub(super) fn returns<T: JsonSchema + Serialize>(mut self, status: StatusCode) -> Self {
        self.responses.push((status, Content::Json(SchemaGenerator::subschema_for::<T>)));
        self
    }

    /// Declares a successful response without a body.
    #[must_use]
    pub(super) fn returns_empty(mut self, status: StatusCode) -> Self {
        self.responses.push((status, Content::Empty));
        self
    }

    /// Declares a successful response whose body has another media type than JSON.
    #[must_use]
    pub(super) fn returns_bytes(mut self, status: StatusCode, media_type: &'static str) -> Self {
        self.responses.push((status, Content::Bytes(media_type)));
        self
    }

    /// Declares problems in addition to those of every route.
    #[must_use]
    pub(super) const fn problems(mut self, kinds: &'static [ProblemKind]) -> Self {
        self.problems = kinds;
        self
    }
}
