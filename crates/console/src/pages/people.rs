//! The people of the tenant, tokens of the API and sessions.

use askama::Template;
use serde::Deserialize;

use super::html;
use crate::frame::Frame;
use crate::read_if_permitted;
use crate::text::{Moment, principal, segment};
use crate::{Api, Extents, List, PageRequest, RIGHTS, Refusal, Text, path_with, read};

const ROLES: [&str; 5] = ["owner", "admin", "operator", "member", "auditor"];

/// The scopes of tokens, with what each one permits.
const SCOPES: [(&str, &str); 10] = [
    ("boxes:read", "see boxes and requests"),
    ("boxes:write", "start and use boxes"),
    ("runs:read", "see runs"),
    ("runs:write", "submit and cancel runs"),
    ("changes:apply", "apply changes to workspaces"),
    ("ledger:read", "read the ledger"),
    ("usage:read", "see usage"),
    ("metrics:read", "read metrics"),
    ("secrets:write", "set and remove secrets"),
    ("mcp", "use MCP"),
];

/// A person, as `GET /v1/users` returns it.
#[derive(Debug, Deserialize)]
struct User {
    id: String,
    principal: String,
    role: String,
    role_from: String,
    state: String,
    #[serde(default)]
    seen: Option<String>,
    version: String,
}

struct UserRow {
    id: String,
    name: Text,
    principal: Text,
    role: String,
    from: &'static str,
    class: &'static str,
    icon: &'static str,
    state: Text,
    seen: Option<Moment>,
    version: String,
    is_disabled: bool,
    is_me: bool,
    /// Why the person who reads the page cannot change this person.
    locked: Option<&'static str>,
}

impl UserRow {
    fn of(user: User, frame: &Frame, now: u64) -> Self {
        let (class, icon) = match &*user.state {
            "active" => ("ok", "ok"),
            "disabled" => ("bad", "no"),
            _ => ("off", "off"),
        };
        let locked = match (&*frame.me.role, &*user.role) {
            ("owner", _) => None,
            ("admin", "owner") => Some("Only an owner can change an owner"),
            ("admin", _) => None,
            _ => Some("Administrators and owners change people"),
        };
        Self {
            name: principal(&user.principal),
            principal: Text::from(user.principal.as_str()),
            from: match &*user.role_from {
                "groups" => "a group of the identity provider",
                "changed" => "a person, after a group",
                _ => "a person",
            },
            class,
            icon,
            state: Text::from(user.state.as_str()),
            seen: user.seen.as_deref().map(|seen| Moment::of(seen, now)),
            is_disabled: user.state == "disabled",
            is_me: user.principal == frame.me.principal,
            locked,
            id: user.id,
            role: user.role,
            version: user.version,
        }
    }
}

/// A token, as `GET /v1/tokens` returns it.
#[derive(Debug, Deserialize)]
struct Token {
    id: String,
    name: Text,
    kind: Text,
    scopes: Vec<Text>,
    networks: Vec<Text>,
    #[serde(default)]
    money_per_day: Option<Text>,
    #[serde(default)]
    boxes: Option<u32>,
    maker: String,
    expires: String,
    #[serde(default)]
    revoked: Option<String>,
    version: String,
}

struct TokenRow {
    id: String,
    name: Text,
    kind: Text,
    scopes: Vec<Text>,
    limits: Text,
    maker: Text,
    expires: Moment,
    revoked: Option<Moment>,
    version: String,
}

impl TokenRow {
    fn of(token: Token, now: u64) -> Self {
        let networks = token.networks.iter().map(|network| format!("from {network}"));
        let money = token.money_per_day.iter().map(|money| format!("{money} USD a day"));
        let boxes = token.boxes.iter().map(|boxes| format!("{boxes} boxes at once"));
        let limits: Vec<String> = networks.chain(money).chain(boxes).collect();
        Self {
            limits: Text::from(if limits.is_empty() {
                "none".to_owned()
            } else {
                limits.join(", ")
            }),
            maker: principal(&token.maker),
            expires: Moment::of(&token.expires, now),
            revoked: token.revoked.as_deref().map(|time| Moment::of(time, now)),
            id: token.id,
            name: token.name,
            kind: token.kind,
            scopes: token.scopes,
            version: token.version,
        }
    }
}

/// A session, as `GET /v1/sessions` returns it.
#[derive(Debug, Deserialize)]
struct Session {
    id: String,
    principal: String,
    created: String,
    seen: String,
    expires: String,
    current: bool,
}

struct SessionRow {
    id: String,
    person: Text,
    created: Moment,
    seen: Moment,
    expires: Moment,
    is_current: bool,
}

impl SessionRow {
    fn of(session: Session, now: u64) -> Self {
        Self {
            person: principal(&session.principal),
            created: Moment::of(&session.created, now),
            seen: Moment::of(&session.seen, now),
            expires: Moment::of(&session.expires, now),
            is_current: session.current,
            id: session.id,
        }
    }
}

#[derive(Template)]
#[template(path = "people.html")]
struct People {
    frame: Frame,
    /// `None` if the person may not see the people of the tenant.
    people: Option<Vec<UserRow>>,
    more_people: Option<String>,
    tokens: Vec<TokenRow>,
    more_tokens: Option<String>,
    sessions: Vec<SessionRow>,
    more_sessions: Option<String>,
    roles: [&'static str; 5],
    scopes: [(&'static str, &'static str); 10],
    rights: [(&'static str, Extents); 25],
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let (frame, now) = (Frame::read(api, request, "People and tokens").await?, request.now);
    let list = |path, name| path_with(path, &[("limit", "50"), ("cursor", request.query(name))]);
    let more = |name, next: Option<String>| Some(path_with("/people", &[(name, &next?)]));
    let people: Option<List<User>> = read_if_permitted(api, &list("/v1/users", "people")).await?;
    let tokens: List<Token> = read(api, &list("/v1/tokens", "tokens")).await?;
    let sessions: List<Session> = read(api, &list("/v1/sessions", "sessions")).await?;
    let (people, next) = match people {
        Some(list) => (Some(list.items), list.next),
        None => (None, None),
    };
    let row = |user| UserRow::of(user, &frame, now);
    html(&People {
        people: people.map(|items| items.into_iter().map(row).collect()),
        more_people: more("people", next),
        tokens: tokens.items.into_iter().map(|token| TokenRow::of(token, now)).collect(),
        more_tokens: more("tokens", tokens.next),
        sessions: sessions.items.into_iter().map(|it| SessionRow::of(it, now)).collect(),
        more_sessions: more("sessions", sessions.next),
        roles: ROLES,
        scopes: SCOPES,
        rights: RIGHTS,
        frame,
    })
}

/// Returns the icon of an extent.
fn icon_of(extent: &str) -> &'static str {
    match extent {
        "all" => "ok",
        "own" => "minus",
        _ => "no",
    }
}

/// Returns the id of an element of the page for an object.
fn id_of(kind: &str, id: &str) -> String {
    format!("{kind}-{}", segment(id))
}
