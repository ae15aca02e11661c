//! Sessions of people: list and end them.

use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{may_manage, time};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, empty_response};
use crate::serve::identity::Credential;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::routes::{Access, Operation, Routes};
use crate::serve::store::{SessionRow, TenantKey};

/// The name of the list in its cursors.
const SESSIONS: &str = "sessions";

pub(super) fn add(routes: Routes) -> Routes {
    let own = Access::For(Act::OwnAccount);
    routes
        .add(
            Operation::get("/v1/sessions", own)
                .about("Lists the sessions that the sender may manage")
                .query::<PageParameters>()
                .returns::<List<SessionView>>(StatusCode::OK),
            sessions,
        )
        .add(
            Operation::delete("/v1/sessions/{session}", own)
                .about("Ends a session")
                .returns_empty(StatusCode::NO_CONTENT),
            end_session,
        )
}

/// A session without its secret.
#[derive(Serialize, JsonSchema)]
struct SessionView {
    id: String,
    principal: String,
    created: String,
    seen: String,
    expires: String,
    /// Whether the request uses this session.
    current: bool,
}

impl SessionView {
    fn of(row: &SessionRow, current: Option<&str>) -> Self {
        Self {
            id: row.id.clone(),
            principal: row.owner.1.to_string(),
            created: time(row.created),
            seen: time(row.seen),
            expires: time(row.expires),
            current: current == Some(row.id.as_str()),
        }
    }
}

async fn sessions(call: Call) -> Result<Response, Problem> {
    let page = call.page(SESSIONS)?;
    let (who, app) = (call.who()?.clone(), call.app.clone());
    let tenant = who.tenant().clone();
    let rows = blocking(&call.app, move || Ok(app.store.sessions(&tenant, app.now())?)).await?;
    let current = match &who.credential {
        Credential::Session { id, .. } => Some(id.as_str()),
        Credential::LocalSocket | Credential::Token { .. } => None,
    };
    let visible = rows.iter().filter(|row| may_manage(&who, &row.owner.1));
    let views = visible.map(|row| SessionView::of(row, current));
    let slice = page.slice(views, |view| view.id.clone());
    call.list(SESSIONS, slice.items, slice.last.as_deref())
}

async fn end_session(call: Call) -> Result<Response, Problem> {
    let who = call.who()?.clone();
    let id = call.param("session")?.to_owned();
    let (app, change) = (call.app.clone(), call.change("session.ended", &id)?);
    blocking(&call.app, move || {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such session");
        let rows = app.store.sessions(who.tenant(), app.now())?;
        let row = rows.iter().find(|row| row.id == id);
        row.filter(|row| may_manage(&who, &row.owner.1)).ok_or_else(unknown)?;
        change.record(&app)?;
        let key: TenantKey<String> = who.key(id);
        if app.store.end_session(&key)? { Ok(()) } else { Err(unknown()) }
    })
    .await?;
    Ok(empty_response())
}
