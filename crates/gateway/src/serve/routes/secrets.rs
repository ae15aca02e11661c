//! The routes of secrets. No response contains the value of a secret.

use axum::response::Response;
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::moment;
use belljar_engine::secrets::{Expected, MAX_VALUE, NewSecret, Origin, SecretStatus, Secrets};
use belljar_model::net::SecretName;
use http::StatusCode;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, check_version, empty_response, versioned_response};
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};

/// The name of the list in its cursors.
const SECRETS: &str = "secrets";
/// The maximum number of hosts and of slots of a secret.
const MAX_ITEMS: usize = 100;
/// The fields of a new secret, which errors may name.
const FIELDS: [&str; 3] = ["value", "hosts", "slots"];

pub(super) fn add(routes: Routes) -> Routes {
    let write = Access::For(Act::WriteSecrets);
    routes
        .add(
            Operation::get("/v1/secrets", Access::For(Act::SeeSecrets))
                .about("Lists the secrets that are set or declared, without their values")
                .query::<PageParameters>()
                .returns::<List<SecretView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::put("/v1/secrets/{secret}", write)
                .about("Sets the value of a secret, with the hosts and slots that may get it")
                .body::<SecretRequest>()
                .with_language()
                .returns::<SecretView>(StatusCode::OK)
                .returns::<SecretView>(StatusCode::CREATED)
                .problems(&[
                    ProblemKind::NO_VERSION,
                    ProblemKind::STALE,
                    ProblemKind::WRONG_STATE,
                    ProblemKind::LIMIT,
                ]),
            put,
        )
        .add(
            Operation::delete("/v1/secrets/{secret}", write)
                .about("Removes the value of a secret")
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(&[ProblemKind::NO_VERSION, ProblemKind::STALE]),
            remove,
        )
}

/// A secret without its value.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Secret")]
struct SecretView {
    name: String,
    /// Whether the secret has a value.
    is_set: bool,
    /// The version of the value; null without a value.
    version: Option<String>,
    /// When the value was set.
    changed: Option<String>,
    /// The hosts that may get the secret.
    hosts: Vec<String>,
    /// The parts of a request that can hold the secret.
    slots: Vec<String>,
    /// Where hosts and slots are declared: `policy`, `api` or `built-in`; null if they are not.
    declared: Option<&'static str>,
}

impl SecretView {
    fn of(status: &SecretStatus, origin: Option<Origin>) -> Self {
        let declared = status.declared.as_ref();
        let hosts = declared.map(|it| it.hosts.iter().map(ToString::to_string).collect());
        let slots = declared.map(|it| it.slots.iter().map(ToString::to_string).collect());
        let version = status.value.version();
        Self {
            name: status.name.to_string(),
            is_set: version.is_some(),
            version: version.map(|version| version.to_string()),
            changed: version.filter(|at| *at > 0).map(moment::rfc3339),
            hosts: hosts.unwrap_or_default(),
            slots: slots.unwrap_or_default(),
            declared: origin.map(Origin::name),
        }
    }
}

/// The value of a secret with its use. Hosts and slots that are left out stay as they are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SecretRequest {
    /// One line of at least 8 bytes.
    #[schemars(schema_with = "schema_of_value")]
    value: Value,
    /// Hosts such as `api.github.com` and `*.example.com`; required for a secret that nothing declares.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_texts")]
    hosts: Option<Vec<String>>,
    /// The parts of a request that can hold the secret, such as `header:x-api-key`; `header:authorization`
    /// by default.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_texts")]
    slots: Option<Vec<String>>,
}

/// The value of a secret. It is overwritten when it is dropped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Value(String);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

fn schema_of_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 8, "maxLength": MAX_VALUE, "writeOnly": true })
}

fn schema_of_texts(_: &mut SchemaGenerator) -> Schema {
    let text = json_schema!({ "type": "string", "minLength": 1, "maxLength": 256 });
    json_schema!({ "type": ["array", "null"], "minItems": 1, "maxItems": MAX_ITEMS, "items": text })
}

impl SecretRequest {
    fn new_secret(self, name: SecretName) -> Result<NewSecret, Problem> {
        let Self { value, hosts, slots } = self;
        if value.0.len() > MAX_VALUE {
            let detail = format!("`value` must have at most {MAX_VALUE} bytes");
            return Err(Problem::invalid(detail).field("/value"));
        }
        Ok(NewSecret {
            name,
            value: Zeroizing::new(value.0.as_bytes().to_vec()),
            hosts: hosts.map(|hosts| parsed("hosts", &hosts)).transpose()?,
            slots: slots.map(|slots| parsed("slots", &slots)).transpose()?,
        })
    }
}

/// Parses the items of a list.
fn parsed<T: std::str::FromStr>(field: &str, texts: &[String]) -> Result<Vec<T>, Problem>
where
    T::Err: std::fmt::Display,
{
    if texts.is_empty() || texts.len() > MAX_ITEMS {
        let detail = format!("`{field}` must have 1 to {MAX_ITEMS} items");
        return Err(Problem::invalid(detail).field(format!("/{field}")));
    }
    let item = |(index, text): (usize, &String)| {
        text.parse().map_err(|error: T::Err| {
            Problem::invalid(format!("`{field}`: {error}")).field(format!("/{field}/{index}"))
        })
    };
    texts.iter().enumerate().map(item).collect()
}

/// Returns the problem of an operation of the vault.
fn problem(error: EngineError) -> Problem {
    match error.kind() {
        ErrorKind::Conflict => Problem::new(ProblemKind::STALE, format!("{error:#}")),
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::WrongState
        | ErrorKind::Refused
        | ErrorKind::LimitReached
        | ErrorKind::Busy
        | ErrorKind::Damaged
        | ErrorKind::Version
        | ErrorKind::Broken
        | ErrorKind::Unrecorded
        | ErrorKind::CannotStart
        | ErrorKind::NotExecutable
        | ErrorKind::ProgramNotFound => Problem::from(error),
    }
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such secret")
}

fn name_of(call: &Call) -> Result<SecretName, Problem> {
    call.param("secret")?.parse().map_err(|_| unknown())
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(SECRETS)?;
    let state = call.scope()?;
    let views: Vec<SecretView> = blocking(&call.app, move || {
        let secrets = Secrets::open(&state)?;
        let all = secrets.list()?;
        Ok(all.iter().map(|it| SecretView::of(it, secrets.origin(&it.name))).collect())
    })
    .await?;
    let wanted = views.into_iter().filter(|view| {
        page.q.as_ref().is_none_or(|q| {
            view.name.contains(q.as_str())
                || view.hosts.iter().any(|host| host.contains(q.as_str()))
        })
    });
    let slice = page.slice(wanted, |view| view.name.clone());
    call.list(SECRETS, slice.items, slice.last.as_deref())
}

/// Checks the version that the sender has seen. `current` is the version of the stored value.
fn expected(
    shown: Option<&str>,
    is_new: Option<&str>,
    current: Option<u64>,
) -> Result<Expected, Problem> {
    match (is_new, current) {
        (Some("*"), None) => return Ok(Expected::NotSet),
        (Some("*"), Some(_)) => {
            let detail = "the secret has a value; send its version in the header `If-Match`";
            return Err(Problem::new(ProblemKind::STALE, detail));
        }
        (Some(_), _) => {
            let detail = "the header `If-None-Match` must be `*`";
            return Err(Problem::new(ProblemKind::BAD_REQUEST, detail));
        }
        (None, _) => {}
    }
    match (shown, current) {
        (Some(_), None) => Err(unknown()),
        (None, None) => {
            let detail = "send the header `If-None-Match: *` for a secret without a value";
            Err(Problem::new(ProblemKind::NO_VERSION, detail))
        }
        (shown, Some(current)) => {
            check_version(shown, &current.to_string())?;
            Ok(Expected::Version(current))
        }
    }
}

async fn put(call: Call) -> Result<Response, Problem> {
    let name = name_of(&call)?;
    let new = call.secret_json::<SecretRequest>(&FIELDS)?.new_secret(name)?;
    let (shown, is_new) = (call.header(&IF_MATCH), call.header(&IF_NONE_MATCH));
    let (app, state, tenant) = (call.app.clone(), call.scope()?, call.tenant()?);
    let change = call.change("secret.set", new.name.as_str())?;
    let (view, was_set) = blocking(&call.app, move || {
        let _held = tenant.lock_settings();
        let secrets = Secrets::open(&state)?;
        let current = secrets.find(&new.name)?.and_then(|status| status.value.version());
        let expected = expected(shown.as_deref(), is_new.as_deref(), current)?;
        change.record(&app)?;
        let status = secrets.put(new, expected).map_err(problem)?;
        let origin = Secrets::open(&state)?.origin(&status.name);
        Ok((SecretView::of(&status, origin), current.is_some()))
    })
    .await?;
    let status = if was_set { StatusCode::OK } else { StatusCode::CREATED };
    versioned_response(status, view.version.as_deref().unwrap_or_default(), &view)
}

async fn remove(call: Call) -> Result<Response, Problem> {
    let name = name_of(&call)?;
    let shown = call.header(&IF_MATCH);
    let (app, state, tenant) = (call.app.clone(), call.scope()?, call.tenant()?);
    let change = call.change("secret.removed", name.as_str())?;
    blocking(&call.app, move || {
        let _held = tenant.lock_settings();
        let secrets = Secrets::open(&state)?;
        let current = secrets.find(&name)?.and_then(|status| status.value.version());
        let Some(current) = current else { return Err(unknown()) };
        let expected = expected(shown.as_deref(), None, Some(current))?;
        change.record(&app)?;
        secrets.withdraw(&name, expected).map_err(problem)
    })
    .await?;
    Ok(empty_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_a_secret_needs_its_version_and_a_new_secret_has_none() {
        let status = |shown: Option<&str>, is_new: Option<&str>, current: Option<u64>| {
            expected(shown, is_new, current).map_err(|problem| problem.kind.status.as_u16())
        };
        assert_eq!(status(None, Some("*"), None), Ok(Expected::NotSet));
        assert_eq!(status(None, Some("*"), Some(7)), Err(412));
        assert_eq!(status(None, Some("\"7\""), Some(7)), Err(400));
        assert_eq!(status(Some("\"7\""), None, Some(7)), Ok(Expected::Version(7)));
        assert_eq!(status(Some("\"6\""), None, Some(7)), Err(412));
        assert_eq!(status(Some("\"7\""), None, None), Err(404));
        assert_eq!(status(None, None, None), Err(428));
        assert_eq!(status(None, None, Some(7)), Err(428));
    }
}
