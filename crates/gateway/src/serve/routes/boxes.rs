//! The routes of named boxes: list, create, change, start, pause, stop, copy and remove them.

mod changes;
mod files;
mod log;
mod network;
pub(in crate::serve) mod screen;
pub(in crate::serve) mod spec;
pub(in crate::serve) mod view;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes::{self, Reset, snapshot};
use belljar_engine::clones;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::policy;
use belljar_engine::scope::Scoped;
use belljar_model::NameError;
use belljar_model::boxes::BoxName;
use belljar_model::spec::{BoxSpec, WorkspaceSpec};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Extent};
use crate::serve::audit::Change;
use crate::serve::box_list::{self, Visible};
use crate::serve::call::{Call, Owned, blocking, empty_response, json_response};
use crate::serve::filter::Filter;
use crate::serve::identity::Identity;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::quotas;
use crate::serve::rights;
use spec::{LimitsRequest, NewBox};
use view::{BoxDetail, BoxView};

/// The name of the list in its cursors.
const BOXES: &str = "boxes";

/// The problems of routes that change a box.
const CHANGE: &[ProblemKind] = &[ProblemKind::BUSY, ProblemKind::WRONG_STATE, ProblemKind::LIMIT];

pub(super) fn add(routes: Routes) -> Routes {
    let (see, use_boxes) = (Access::For(Act::SeeBoxes), Access::For(Act::UseBoxes));
    let routes = routes
        .add(
            Operation::get("/v1/boxes", see)
                .about("Lists boxes by name; the filter has the keys state, agent, template and by")
                .query::<PageParameters>()
                .returns::<List<BoxView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::post("/v1/boxes", use_boxes)
                .about("Creates a box and starts it")
                .body::<NewBox>()
                .with_language()
                .returns::<BoxDetail>(StatusCode::CREATED)
                .problems(&[
                    ProblemKind::EXISTS,
                    ProblemKind::CANNOT_START,
                    ProblemKind::LIMIT,
                ]),
            create,
        )
        .add(
            Operation::get("/v1/boxes/{box}", see)
                .about("Describes a box")
                .returns::<BoxDetail>(StatusCode::OK),
            get,
        )
        .add(
            Operation::patch("/v1/boxes/{box}", use_boxes)
                .about("Changes the limits and the health check of a box for its next start")
                .body::<BoxChange>()
                .returns::<BoxDetail>(StatusCode::OK)
                .problems(CHANGE),
            change,
        )
        .add(
            Operation::delete("/v1/boxes/{box}", use_boxes)
                .about("Stops a box and moves it to the trash, from where it can be restored for 14 days")
                .query::<Removal>()
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(&[ProblemKind::HOLDS_WORK, ProblemKind::BUSY]),
            remove,
        );
    let routes = add_lifecycle(routes, use_boxes);
    [log::add, network::add, screen::add, files::add, changes::add]
        .into_iter()
        .fold(routes, |routes, add| add(routes))
}

fn add_lifecycle(routes: Routes, access: Access) -> Routes {
    let operation = |path, about| {
        Operation::post(path, access)
            .about(about)
            .returns::<BoxDetail>(StatusCode::OK)
            .problems(CHANGE)
    };
    routes
        .add(operation("/v1/boxes/{box}/start", "Starts a box, or resumes a paused one"), start)
        .add(operation("/v1/boxes/{box}/stop", "Stops a box").optional_body::<StopRequest>(), stop)
        .add(
            operation(
                "/v1/boxes/{box}/pause",
                "Pauses all processes of a box until it is resumed; the timeout of the box continues",
            ),
            pause,
        )
        .add(operation("/v1/boxes/{box}/resume", "Resumes a paused box"), resume)
        .add(
            operation("/v1/boxes/{box}/snapshot", "Takes a snapshot of a box")
                .body::<SnapshotRequest>(),
            take_snapshot,
        )
        .add(
            operation(
                "/v1/boxes/{box}/reset",
                "Resets a stopped box to its first state or to a snapshot",
            )
            .optional_body::<ResetRequest>(),
            reset,
        )
        .add(
            Operation::post("/v1/boxes/{box}/fork", access)
                .about("Creates a box as a copy of a box or of one of its snapshots")
                .body::<ForkRequest>()
                .returns::<BoxDetail>(StatusCode::CREATED)
                .problems(&[ProblemKind::EXISTS, ProblemKind::BUSY]),
            fork,
        )
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(BOXES)?;
    let tenant = call.tenant()?;
    let ready = match tenant.boxes.fresh(&tenant.scope) {
        Some(ready) => ready,
        None => blocking(&call.app, move || tenant.boxes.current(&tenant.scope)).await?,
    };
    let filter = Filter::parse(page.q.as_deref(), &box_list::KEYS);
    let who = call.who()?;
    let is_own = |maker: &_| who.owns(maker);
    let visible = match call.extent()? {
        Extent::All => Visible::All,
        Extent::Own | Extent::Nothing => Visible::MadeBy(&is_own),
    };
    let (items, last) = ready.page(visible, &filter, page.after.as_deref(), page.limit);
    let next = last.map(|last| call.cursor(BOXES, last)).transpose()?;
    Ok(json_list(&items, next.as_deref()))
}

/// Returns a list whose items are JSON already.
fn json_list(items: &[&str], next: Option<&str>) -> Response {
    let length = items.iter().map(|item| item.len() + 1).sum::<usize>();
    let mut text = String::with_capacity(length + 128);
    text.push_str("{\"items\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(item);
    }
    text.push_str("],\"next\":");
    match next {
        // A cursor has no characters that JSON escapes.
        Some(next) => {
            text.push('"');
            text.push_str(next);
            text.push('"');
        }
        None => text.push_str("null"),
    }
    text.push('}');
    let mut response = Body::from(text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Finds the box of a request, if the sender may use it.
pub(super) fn find(state: &Scoped, owned: &Owned, name: &str) -> Result<NamedBox, Problem> {
    let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such box");
    let name: BoxName = name.parse().map_err(|_| unknown())?;
    let found = NamedBox::find(state, &name).map_err(|error| {
        if error.kind() == ErrorKind::NotFound { unknown() } else { error.into() }
    })?;
    if owned.may_use(&boxes::maker(&found)) { Ok(found) } else { Err(unknown()) }
}

/// Calls a blocking function with the box of a request.
pub(super) async fn with_box<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Scoped, NamedBox) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (state, owned, name) = (call.scope()?, call.owned()?, call.param("box")?.to_owned());
    blocking(&call.app, move || {
        let found = find(&state, &owned, &name)?;
        work(&state, found)
    })
    .await
}

/// Changes the box of a request after the change was recorded, and describes the box.
async fn changed_box(
    call: &Call,
    act: &'static str,
    work: impl FnOnce(&Scoped, &NamedBox) -> Result<(), Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let record = call.change(act, call.param("box")?)?;
    let app = call.app.clone();
    let changed = with_box(call, move |state, found| {
        record.record(&app)?;
        work(state, &found)?;
        Ok(BoxDetail::read(state, &NamedBox::find(state, found.name())?)?)
    })
    .await;
    call.tenant()?.boxes.expire();
    json_response(StatusCode::OK, &changed?)
}

async fn get(call: Call) -> Result<Response, Problem> {
    let detail = with_box(&call, |state, found| Ok(BoxDetail::read(state, &found)?)).await?;
    json_response(StatusCode::OK, &detail)
}

async fn create(call: Call) -> Result<Response, Problem> {
    let new: NewBox = call.json()?;
    let name = box_name(&new.name, "/name")?;
    let is_started = new.start.unwrap_or(true);
    let (spec, who, state) = (new.spec()?, call.who()?.clone(), call.scope()?);
    let change = call.change("box.created", name.as_str())?;
    let app = call.app.clone();
    let (turn, tenant) = (call.app.wait_for_start(&who).await?, call.tenant()?);
    let created = blocking(&call.app, move || {
        let _turn = turn;
        let maker = &who.caller.principal;
        let quota = app.quotas.of(&app.state, who.tenant());
        let place = is_started.then(|| quotas::take_place(&tenant, quota, &who, (&name, maker)));
        let _place = place.transpose()?;
        let detail = create_box(&state, &who, &name, spec, || change.record(&app))?;
        let named_box = NamedBox::find(&state, &name)?;
        if !is_started {
            return Ok(detail);
        }
        start_box(&state, &named_box)?;
        Ok(BoxDetail::read(&state, &named_box)?)
    })
    .await;
    call.tenant()?.boxes.expire();
    created_box(&created?, call.path())
}

/// Returns the response for a new box below the path of the list.
fn created_box(detail: &BoxDetail, list: &str) -> Result<Response, Problem> {
    let mut response = json_response(StatusCode::CREATED, detail)?;
    if let Ok(location) = HeaderValue::try_from(format!("{list}/{}", detail.name())) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Checks that the sender may have this box, records it and creates it.
fn create_box(
    state: &Scoped,
    who: &Identity,
    name: &BoxName,
    spec: BoxSpec,
    record: impl FnOnce() -> Result<(), Problem>,
) -> Result<BoxDetail, Problem> {
    let spec = checked_spec(state, who, spec)?;
    if belljar_engine::box_store::boxes_dir(state).join(name.as_str()).exists() {
        let detail = format!("the tenant has a box {name} already; choose another name");
        return Err(Problem::new(ProblemKind::EXISTS, detail).field("/name"));
    }
    record()?;
    let created = boxes::create(state, std::slice::from_ref(name), &spec, state.home());
    let created = created.map_err(of_state)?;
    let created = created.first().ok_or_else(|| Problem::internal("no box was created"))?;
    Ok(BoxDetail::read(state, created)?)
}

/// Checks the spec of a box or run against the policy and the rights of the sender. The directory of the
/// returned spec is the one that was checked.
pub(super) fn checked_spec(
    state: &Scoped,
    who: &Identity,
    mut spec: BoxSpec,
) -> Result<BoxSpec, Problem> {
    let listed = rights::listed_directories(state)?;
    // The supervisor reads the configuration again, from the same file.
    spec.config_file = state.config_file().map(ToOwned::to_owned);
    match &mut spec.workspace {
        WorkspaceSpec::None => {}
        WorkspaceSpec::Directory(path) => {
            *path = policy::open_workspace(state, path).map_err(of_state)?.path;
            rights::check_directory(who, &listed, path)?;
        }
        WorkspaceSpec::Clone { repo, .. } => {
            *repo = clones::find_source(state, repo).map_err(of_state)?.path().to_owned();
            rights::check_directory(who, &listed, repo)?;
        }
    }
    let workspace = match &spec.workspace {
        WorkspaceSpec::None => None,
        WorkspaceSpec::Directory(path) | WorkspaceSpec::Clone { repo: path, .. } => Some(path),
    };
    let (loaded, _) = state.load_config(workspace.map(AsRef::as_ref)).map_err(of_state)?;
    let template = config::template(&loaded, &spec.template)
        .map_err(|error| of_state(error).field("/template"))?;
    rights::check_overrides(who, &template, &spec.overrides)?;
    Ok(spec)
}

fn start_box(state: &Scoped, named_box: &NamedBox) -> Result<(), Problem> {
    let started = boxes::start(state, std::slice::from_ref(named_box));
    started.into_iter().collect::<Result<(), _>>().map_err(of_state)
}

/// The changes of a box, which hold from its next start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BoxChange {
    limits: Option<LimitsRequest>,
    /// A shell command in the box that reports its health with its exit status.
    #[schemars(length(min = 1, max = 4096))]
    health: Option<String>,
}

async fn change(call: Call) -> Result<Response, Problem> {
    let BoxChange { limits, health } = call.json()?;
    spec::check_health(health.as_deref())?;
    let who = call.who()?.clone();
    changed_box(&call, "box.changed", move |state, found| {
        let _lock = found.lock_for_change()?;
        let mut changed = NamedBox::find(state, found.name())?;
        let spec = &mut changed.record.spec;
        if let Some(limits) = limits {
            limits.set(&mut spec.overrides)?;
        }
        spec.health = health.or(spec.health.take());
        checked_spec(state, &who, BoxSpec { workspace: WorkspaceSpec::None, ..spec.clone() })?;
        changed.save().map_err(|error| Problem::internal(format!("{error:#}")))
    })
    .await
}

/// The parameters of the removal of a box.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Removal {
    /// Whether unapplied work of the box is moved to the trash too.
    discard_work: Option<bool>,
}

async fn remove(call: Call) -> Result<Response, Problem> {
    let discard_work = call.query::<Removal>()?.discard_work.unwrap_or(false);
    let mut record = call.change("box.removed", call.param("box")?)?;
    record.details =
        discard_work.then(|| "unapplied work is discarded".to_owned()).into_iter().collect();
    let app = call.app.clone();
    let removed = with_box(&call, move |state, found| {
        record.record(&app)?;
        boxes::remove(state, &found, discard_work).map_err(holds_work)
    })
    .await;
    call.tenant()?.boxes.expire();
    removed.map(|()| empty_response())
}

/// The engine refuses to lose unapplied work as an invalid request.
fn holds_work(error: EngineError) -> Problem {
    if error.kind() != ErrorKind::Invalid {
        return of_state(error);
    }
    let detail = format!("{error:#}; the API has `discard_work` for this");
    Problem::new(ProblemKind::HOLDS_WORK, detail)
}

async fn start(call: Call) -> Result<Response, Problem> {
    let (who, tenant) = (call.who()?.clone(), call.tenant()?);
    let (app, turn) = (call.app.clone(), call.app.wait_for_start(&who).await?);
    changed_box(&call, "box.started", move |state, found| {
        let _turn = turn;
        let quota = app.quotas.of(&app.state, who.tenant());
        let maker = boxes::maker(found);
        let _place = quotas::take_place(&tenant, quota, &who, (found.name(), &maker))?;
        start_box(state, found)
    })
    .await
}

async fn pause(call: Call) -> Result<Response, Problem> {
    changed_box(&call, "box.paused", |state, found| boxes::pause(state, found).map_err(of_state))
        .await
}

async fn resume(call: Call) -> Result<Response, Problem> {
    changed_box(&call, "box.resumed", |state, found| boxes::resume(state, found).map_err(of_state))
        .await
}

/// How a box is stopped.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopRequest {
    /// Whether the program is killed instead of terminated.
    now: Option<bool>,
}

async fn stop(call: Call) -> Result<Response, Problem> {
    let now = call.optional_json::<StopRequest>()?.now.unwrap_or(false);
    changed_box(&call, "box.stopped", move |state, found| {
        boxes::stop(state, found, now).map(drop).map_err(of_state)
    })
    .await
}

/// A new snapshot.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SnapshotRequest {
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    tag: String,
}

async fn take_snapshot(call: Call) -> Result<Response, Problem> {
    let tag = box_name(&call.json::<SnapshotRequest>()?.tag, "/tag")?;
    changed_box(&call, "box.snapshot-taken", move |state, found| {
        let _lock = found.lock_for_change()?;
        snapshot::take(state, found, &tag).map_err(of_state)
    })
    .await
}

/// The state that a box is reset to.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResetRequest {
    /// A snapshot; by default the state after the creation of the box.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    tag: Option<String>,
    /// Whether only the home directory is reset.
    keep_work: Option<bool>,
    /// Whether unapplied work is moved to the trash.
    discard_work: Option<bool>,
}

async fn reset(call: Call) -> Result<Response, Problem> {
    let ResetRequest { tag, keep_work, discard_work } = call.optional_json()?;
    let tag = tag.map(|tag| box_name(&tag, "/tag")).transpose()?;
    changed_box(&call, "box.reset", move |state, found| {
        let (keep_work, discard_work) = (keep_work.unwrap_or(false), discard_work.unwrap_or(false));
        let to = Reset { tag: tag.as_ref(), keep_work, discard_work };
        boxes::reset(state, found, to).map_err(holds_work)
    })
    .await
}

/// The copy of a box.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkRequest {
    /// The name of the new box.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    name: String,
    /// A snapshot; by default the current state of the box.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    tag: Option<String>,
}

async fn fork(call: Call) -> Result<Response, Problem> {
    let ForkRequest { name, tag } = call.json()?;
    let name = box_name(&name, "/name")?;
    let tag = tag.map(|tag| box_name(&tag, "/tag")).transpose()?;
    let record: Change = call.change("box.forked", name.as_str())?;
    let app = call.app.clone();
    let forked = with_box(&call, move |state, found| {
        record.record(&app)?;
        boxes::fork(state, &found, tag.as_ref(), std::slice::from_ref(&name)).map_err(of_state)?;
        Ok(BoxDetail::read(state, &NamedBox::find(state, &name)?)?)
    })
    .await;
    call.tenant()?.boxes.expire();
    created_box(&forked?, "/v1/boxes")
}

/// Parses the name of a box or of a snapshot. A name with the form of a run id is refused too.
fn box_name(text: &str, field: &str) -> Result<BoxName, Problem> {
    text.parse().map_err(|error: NameError| {
        let kind = match error {
            NameError::Malformed => ProblemKind::INVALID,
            NameError::LooksLikeId => ProblemKind::WRONG_STATE,
        };
        Problem::new(kind, error.to_string()).field(field)
    })
}
