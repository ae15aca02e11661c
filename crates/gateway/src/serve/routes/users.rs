//! The people of a tenant: list, change and invite them.
//!
//! Owners change owners. An administrator can give every other role, and cannot touch an owner. A tenant always
//! has an owner.

use axum::response::Response;
use belljar_model::caller::{Principal, PrincipalKind};
use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::account::time;
use super::login::store_link;
use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Role};
use crate::serve::app::App;
use crate::serve::call::{Call, blocking, check_version, json_response};
use crate::serve::filter::Filter;
use crate::serve::identity::Identity;
use crate::serve::json;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::{Invite, Millis, PersonChange, PersonChanged, PersonRow, TenantKey};

const HOUR: Millis = 60 * 60 * 1000;
/// The default and the maximum time in which an invitation must be used, in hours.
const INVITE_HOURS: (u64, u64) = (24, 168);
/// The issuer of people who have no identity provider. No provider has this name, because it is no URL.
const OWN_ISSUER: &str = "belljar";

/// The name of the list in its cursors, and the keys of its filter.
const USERS: &str = "users";
const KEYS: [&str; 2] = ["role", "state"];

pub(super) fn add(routes: Routes) -> Routes {
    let manage = Access::For(Act::ManageUsers);
    routes
        .add(
            Operation::get("/v1/users", Access::For(Act::SeeUsers))
                .about("Lists the people of the tenant; the filter has the keys role and state")
                .query::<PageParameters>()
                .returns::<List<UserView>>(StatusCode::OK),
            users,
        )
        .add(
            Operation::patch("/v1/users/{user}", manage)
                .about("Changes the role of a person, or disables a person")
                .body::<UserChange>()
                .returns::<UserView>(StatusCode::OK)
                .problems(&[
                    ProblemKind::LAST_OWNER,
                    ProblemKind::STALE,
                    ProblemKind::NO_VERSION,
                    ProblemKind::LOGIN_AGE,
                ]),
            change_user,
        )
        .add(
            Operation::post("/v1/invites", manage)
                .about("Makes a link with which a person gets a role; the link is shown and works once")
                .body::<NewInvite>()
                .returns::<CreatedInvite<'_>>(StatusCode::CREATED)
                .problems(&[ProblemKind::EXISTS, ProblemKind::LOGIN_AGE])
                .shown_once(),
            invite,
        )
}

/// A person of the tenant.
#[derive(Serialize, JsonSchema)]
struct UserView {
    id: String,
    principal: String,
    role: &'static str,
    /// Who decides about the role: `person`, `groups` of the identity provider, or `changed`, which is a person
    /// who came by a group and whose role another person changed.
    role_from: &'static str,
    /// `active`, `disabled`, or `left` if the identity provider named no group of the tenant at the last login.
    state: &'static str,
    created: String,
    /// The time of the last login.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<String>,
    version: String,
}

impl UserView {
    fn of(row: &PersonRow) -> Self {
        Self {
            id: user_id(&row.key),
            principal: row.key.1.to_string(),
            role: row.role.name(),
            role_from: row.role_from.name(),
            state: match (row.disabled, row.left_groups) {
                (Some(_), _) => "disabled",
                (None, Some(_)) => "left",
                (None, None) => "active",
            },
            created: time(row.created),
            seen: row.seen.map(time),
            version: row.version.to_string(),
        }
    }

    /// Returns whether a filter of the list permits the person.
    fn matches(&self, filter: &Filter) -> bool {
        let text = self.principal.to_ascii_lowercase();
        let value = |key: &str| if key == "role" { self.role } else { self.state };
        filter.has_terms(value) && filter.texts().iter().all(|wanted| text.contains(wanted))
    }
}

/// Returns the id of a person in addresses, in which a principal cannot be written.
fn user_id(TenantKey(tenant, person): &TenantKey<Principal>) -> String {
    let digest = Sha256::digest(format!("{tenant}\0{person}"));
    hex::encode(digest).chars().take(16).collect()
}

async fn users(call: Call) -> Result<Response, Problem> {
    let page = call.page(USERS)?;
    let (app, tenant) = (call.app.clone(), call.who()?.tenant().clone());
    let rows = blocking(&call.app, move || Ok(app.store.people(&tenant)?)).await?;
    let filter = Filter::parse(page.q.as_deref(), &KEYS);
    let views = rows.iter().map(UserView::of).filter(|view| view.matches(&filter));
    let slice = page.slice(views, |view| view.id.clone());
    call.list(USERS, slice.items, slice.last.as_deref())
}

/// A change of a person. Missing values stay as they are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserChange {
    #[serde(default)]
    #[schemars(schema_with = "schema_of_optional_role")]
    role: Option<String>,
    disabled: Option<bool>,
}

fn schema_of_role(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Role::ALL.map(Role::name) })
}

fn schema_of_optional_role(_: &mut SchemaGenerator) -> Schema {
    let names = Role::ALL.map(|role| Some(role.name()));
    let names: Vec<Option<&str>> = names.into_iter().chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": names })
}

fn role(text: &str) -> Result<Role, Problem> {
    text.parse().map_err(|error: belljar_model::role::RoleError| {
        Problem::invalid(error.to_string()).field("/role")
    })
}

/// Refuses an act on an owner, or one that makes an owner, to everyone but an owner with a recent login.
fn check_owner_act(who: &Identity, now: Millis) -> Result<(), Problem> {
    if who.role != Role::Owner {
        let detail = "only an owner can make, change or disable an owner";
        return Err(Problem::new(ProblemKind::FORBIDDEN, detail));
    }
    who.check_login_age(now)
}

async fn change_user(call: Call) -> Result<Response, Problem> {
    let UserChange { role: new_role, disabled } = call.json()?;
    let wanted = PersonChange { role: new_role.as_deref().map(role).transpose()?, disabled };
    let (who, id) = (call.who()?.clone(), call.param("user")?.to_owned());
    let shown = call.header(&IF_MATCH);
    let mut record = call.change("user.changed", &id)?;
    let app = call.app.clone();
    let row = blocking(&call.app, move || {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such person");
        let people = app.store.people(who.tenant())?;
        let row = people.iter().find(|row| user_id(&row.key) == id).ok_or_else(unknown)?;
        check_version(shown.as_deref(), &row.version.to_string())?;
        if is_no_change(row, wanted) {
            return Ok(row.clone());
        }
        if row.role == Role::Owner || wanted.role == Some(Role::Owner) {
            check_owner_act(&who, app.now())?;
        }
        record.set_subject(&row.key.1.to_string());
        record.details = details(wanted);
        record.record(&app)?;
        match app.store.change_person(&row.key, row.version, wanted, app.now())? {
            PersonChanged::Yes(row) => Ok(row),
            PersonChanged::Unknown => Err(unknown()),
            PersonChanged::Stale => {
                let detail = "the person was changed at the same time; read it again";
                Err(Problem::new(ProblemKind::STALE, detail))
            }
            PersonChanged::LastOwner => {
                let detail = "this is the last owner of the tenant; make another owner first";
                Err(Problem::new(ProblemKind::LAST_OWNER, detail))
            }
        }
    })
    .await?;
    let mut response = json_response(StatusCode::OK, &UserView::of(&row))?;
    if let Ok(version) = HeaderValue::try_from(format!("\"{}\"", row.version)) {
        response.headers_mut().insert(ETAG, version);
    }
    Ok(response)
}

fn is_no_change(row: &PersonRow, wanted: PersonChange) -> bool {
    wanted.role.is_none_or(|role| role == row.role)
        && wanted.disabled.is_none_or(|disabled| disabled == row.disabled.is_some())
}

/// Returns a change of a person for the ledger.
fn details(PersonChange { role, disabled }: PersonChange) -> Vec<String> {
    let role = role.map(|role| format!("role {role}"));
    let state = disabled.map(|it| if it { "disabled" } else { "enabled" }.to_owned());
    role.into_iter().chain(state).collect()
}

/// An invitation of a person.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewInvite {
    /// The name of the person. With an identity provider, the person gets the name that the provider gives.
    #[schemars(regex(pattern = r"^[A-Za-z0-9._-]{1,64}$"))]
    name: String,
    #[schemars(schema_with = "schema_of_role")]
    role: String,
    /// The time in which the link must be used; 24 by default.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 168))]
    hours: Option<u64>,
}

/// A new invitation with its link, which is shown only once.
#[derive(Serialize, JsonSchema)]
struct CreatedInvite<'a> {
    url: &'a str,
    name: String,
    role: &'static str,
    expires: String,
}

async fn invite(call: Call) -> Result<Response, Problem> {
    let NewInvite { name, role: role_name, hours } = call.json()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(is_plain) {
        let detail = "`name` must have 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`";
        return Err(Problem::invalid(detail).field("/name"));
    }
    let (role, hours) = (role(&role_name)?, hours.unwrap_or(INVITE_HOURS.0));
    if !(1..=INVITE_HOURS.1).contains(&hours) {
        let detail = format!("`hours` must be a number from 1 to {}", INVITE_HOURS.1);
        return Err(Problem::invalid(detail).field("/hours"));
    }
    let (who, app) = (call.who()?.clone(), call.app.clone());
    if role == Role::Owner {
        check_owner_act(&who, app.now())?;
    }
    let person = Principal::new(PrincipalKind::Person, &format!("{OWN_ISSUER}#{name}"))
        .map_err(|error| Problem::invalid(error.to_string()).field("/name"))?;
    let mut record = call.change("invite.created", &person.to_string())?;
    record.details = vec![format!("role {role}"), format!("{hours} hours")];
    let expires = app.now().saturating_add(hours.saturating_mul(HOUR));
    let url = blocking(&call.app, move || {
        let person = who.key(person);
        check_known(&app, &person, role)?;
        record.record(&app)?;
        let invite = Invite { role, maker: who.caller.principal.clone() };
        store_link(&app, person, Some(invite), expires)
    })
    .await?;
    let expires = time(expires);
    let created = CreatedInvite { url: url.as_str(), name, role: role.name(), expires };
    json_response(StatusCode::CREATED, &created)
}

/// Refuses the name of a person who is disabled or has another role. An active person with the same role gets
/// a link for another login.
fn check_known(app: &App, person: &TenantKey<Principal>, role: Role) -> Result<(), Problem> {
    let Some(known) = app.store.person(person)? else { return Ok(()) };
    if known.is_active() && known.role == role {
        return Ok(());
    }
    let detail = "a person of this name is disabled or has another role; change that person with \
                  PATCH /v1/users, or choose another name";
    Err(Problem::new(ProblemKind::EXISTS, detail).field("/name"))
}
