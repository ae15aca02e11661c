//! The routes of schedules: list, describe, store and remove them, start their plans, pause and resume them.
//!
//! The schedules of the tenant `local` are sections of `belljar.toml`, so this tenant cannot store any here.

use axum::response::Response;
use belljar_engine::error::EngineError;
use belljar_engine::runs::plans;
use belljar_engine::runs::schedules::stored::{ScheduleValues, StoredSchedule};
use belljar_engine::runs::schedules::{self, ScheduleView as EngineSchedule};
use belljar_engine::scope::Scoped;
use belljar_model::caller::Principal;
use belljar_model::schedule::{Missed, Overlap, ScheduleKey};
use belljar_model::{RunName, display};
use http::header::{ETAG, IF_MATCH, LOCATION};
use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::account::time;
use super::runs::view::RunView;
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, Owned, blocking, check_version, empty_response, json_response};
use crate::serve::filter::Filter;
use crate::serve::page::{List, PageParameters};
use crate::serve::plan_request::{self, MAX_BODY, PlanRequest};
use crate::serve::problem::{Problem, ProblemKind, of_state};

/// The name of the list in its cursors.
const SCHEDULES: &str = "schedules";
/// The keys of the filter of schedules.
const KEYS: [&str; 2] = ["state", "by"];

/// The problems of routes that store a schedule.
const CHANGE: &[ProblemKind] =
    &[ProblemKind::STALE, ProblemKind::NO_VERSION, ProblemKind::WRONG_STATE, ProblemKind::BUSY];

pub(super) fn add(routes: Routes) -> Routes {
    let (see, use_runs) = (Access::For(Act::SeeRuns), Access::For(Act::UseRuns));
    let routes = routes
        .add(
            Operation::get("/v1/schedules", see)
                .about("Lists schedules by name; the filter has the keys state and by")
                .query::<PageParameters>()
                .returns::<List<ScheduleView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::get("/v1/schedules/{schedule}", see)
                .about("Describes a schedule")
                .returns::<ScheduleDetail>(StatusCode::OK),
            get,
        )
        .add(
            Operation::put("/v1/schedules/{schedule}", use_runs)
                .about("Stores a schedule, and enables a new one")
                .body::<NewSchedule>()
                .max_body(MAX_BODY)
                .with_language()
                .returns::<ScheduleDetail>(StatusCode::OK)
                .returns::<ScheduleDetail>(StatusCode::CREATED)
                .problems(CHANGE),
            put,
        )
        .add(
            Operation::delete("/v1/schedules/{schedule}", use_runs)
                .about("Removes a schedule; its runs stay")
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(CHANGE),
            remove,
        );
    add_actions(routes, use_runs)
}

fn add_actions(routes: Routes, access: Access) -> Routes {
    let change = |path, about| {
        Operation::post(path, access)
            .about(about)
            .returns::<ScheduleDetail>(StatusCode::OK)
            .problems(&[ProblemKind::WRONG_STATE, ProblemKind::CANNOT_START])
    };
    routes
        .add(
            Operation::post("/v1/schedules/{schedule}/run", access)
                .about("Starts the plan of a schedule now, as the sender; its slots do not change")
                .returns::<RunView>(StatusCode::CREATED)
                .problems(&[
                    ProblemKind::WRONG_STATE,
                    ProblemKind::LIMIT,
                    ProblemKind::CANNOT_START,
                ]),
            run,
        )
        .add(
            change("/v1/schedules/{schedule}/pause", "Pauses a schedule until it is resumed"),
            pause,
        )
        .add(change("/v1/schedules/{schedule}/resume", "Enables a schedule from now on"), resume)
}

/// A schedule in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedule")]
struct ScheduleView {
    name: String,
    /// `enabled`, `paused`, or `stopped` because of a fault.
    state: &'static str,
    cron: String,
    zone: String,
    /// `once` or `skip`.
    missed: &'static str,
    /// `skip`, `queue` or `allow`.
    overlap: &'static str,
    /// The principal that the runs of the schedule belong to.
    maker: String,
    /// Why the schedule is stopped.
    fault: Option<String>,
    /// The next slot; null if none will start a run.
    next: Option<String>,
    /// The last slot that started a run.
    last: Option<SlotView>,
}

/// A slot that started a run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Slot")]
struct SlotView {
    slot: String,
    run: String,
}

/// A schedule with its plan.
#[derive(Serialize, JsonSchema)]
struct ScheduleDetail {
    #[serde(flatten)]
    schedule: ScheduleView,
    /// The text of the plan; null for a schedule of `belljar.toml`.
    plan: Option<String>,
    /// The file of the plan on the host, for a schedule of `belljar.toml`.
    file: Option<String>,
    /// The version for `If-Match`; null for a schedule of `belljar.toml`.
    version: Option<String>,
}

impl ScheduleView {
    fn of(view: &EngineSchedule, maker: &Principal) -> Self {
        let last = view.last.map(|(slot, run)| SlotView { slot: time(slot), run: run.to_string() });
        Self {
            name: view.name.clone(),
            state: view.state.name(),
            cron: display::safe_line(&view.cron),
            zone: display::safe_line(&view.zone),
            missed: view.missed.name(),
            overlap: view.overlap.name(),
            maker: maker.to_string(),
            fault: view.fault.as_ref().map(display::safe_line),
            next: view.next.as_ref().map(|(slot, _)| time(*slot)),
            last,
        }
    }
}

impl ScheduleDetail {
    fn of(view: &EngineSchedule, maker: &Principal) -> Self {
        let stored = view.stored.as_ref();
        let file = view.plan.as_os_str().as_encoded_bytes();
        Self {
            schedule: ScheduleView::of(view, maker),
            plan: stored.and_then(|it| Some(it.values.as_ref()?.plan.clone())),
            file: stored.is_none().then(|| display::safe(file).to_string()),
            version: stored.map(|it| it.version.to_string()),
        }
    }

    fn respond(&self, status: StatusCode) -> Result<Response, Problem> {
        let mut response = json_response(status, self)?;
        let tag = self.version.as_ref().map(|version| format!("\"{version}\""));
        if let Some(tag) = tag.and_then(|tag| HeaderValue::try_from(tag).ok()) {
            response.headers_mut().insert(ETAG, tag);
        }
        Ok(response)
    }
}

/// The sender's view of the schedules of the tenant.
struct Visible {
    state: Scoped,
    owned: Owned,
    /// The principal that the schedules of `belljar.toml` belong to.
    local_owner: Principal,
}

impl Visible {
    fn new(call: &Call) -> Result<Self, Problem> {
        let local_owner = call.app.owner.principal.clone();
        Ok(Self { state: call.scope()?, owned: call.owned()?, local_owner })
    }

    fn maker<'a>(&'a self, view: &'a EngineSchedule) -> &'a Principal {
        view.stored.as_ref().map_or(&self.local_owner, |stored| &stored.maker)
    }

    /// Returns the schedules that the sender may use, by name. Blocks.
    fn all(&self) -> Result<Vec<EngineSchedule>, Problem> {
        let mut all = schedules::list(&self.state)?.schedules;
        all.retain(|view| self.owned.may_use(self.maker(view)));
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    /// Returns a schedule that the sender may use. Blocks.
    fn find(&self, name: &str) -> Result<EngineSchedule, Problem> {
        self.all()?.into_iter().find(|view| view.name == name).ok_or_else(unknown)
    }

    fn describe(&self, name: &str) -> Result<ScheduleDetail, Problem> {
        let found = self.find(name)?;
        Ok(ScheduleDetail::of(&found, self.maker(&found)))
    }
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such schedule")
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(SCHEDULES)?;
    let visible = Visible::new(&call)?;
    let slice = blocking(&call.app, move || {
        let filter = Filter::parse(page.q.as_deref(), &KEYS);
        let mut found = visible.all()?;
        found.retain(|view| is_wanted(&filter, view, visible.maker(view)));
        let views = found.iter().map(|view| ScheduleView::of(view, visible.maker(view)));
        Ok(page.slice(views, |view| view.name.clone()))
    })
    .await?;
    call.list(SCHEDULES, slice.items, slice.last.as_deref())
}

fn is_wanted(filter: &Filter, view: &EngineSchedule, maker: &Principal) -> bool {
    let value = |key: &str| match key {
        "state" => view.state.name(),
        "by" => maker.name(),
        _ => "",
    };
    let has_text = |text: &String| {
        let texts = [&view.name, &view.cron, &view.zone];
        texts.iter().any(|it| it.to_lowercase().contains(text))
    };
    filter.has_terms(value) && filter.texts().iter().all(has_text)
}

async fn get(call: Call) -> Result<Response, Problem> {
    let (visible, name) = (Visible::new(&call)?, call.param("schedule")?.to_owned());
    let detail = blocking(&call.app, move || visible.describe(&name)).await?;
    detail.respond(StatusCode::OK)
}

/// The values of a schedule.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSchedule {
    /// The text of the plan, in TOML or JSON. All paths in it are absolute.
    #[schemars(length(min = 1, max = 4_194_304))]
    plan: String,
    /// Minute, hour, day, month and day of the week, such as `0 3 * * *`.
    #[schemars(length(min = 1, max = 256))]
    cron: String,
    /// A name of the time zone database; `UTC` by default.
    #[schemars(length(min = 1, max = 64))]
    zone: Option<String>,
    /// What happens to slots at which no driver ran: `once` (default) or `skip`.
    #[schemars(schema_with = "schema_of_missed")]
    #[serde(default)]
    missed: Option<String>,
    /// What happens at a slot while a run of the schedule is open: `skip` (default), `queue` or `allow`.
    #[schemars(schema_with = "schema_of_overlap")]
    #[serde(default)]
    overlap: Option<String>,
}

fn schema_of_missed(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "enum": ["once", "skip", null] })
}

fn schema_of_overlap(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "enum": ["skip", "queue", "allow", null] })
}

impl NewSchedule {
    fn values(self) -> Result<ScheduleValues, Problem> {
        let missed = self.missed.as_deref().map(str::parse::<Missed>).transpose();
        let overlap = self.overlap.as_deref().map(str::parse::<Overlap>).transpose();
        Ok(ScheduleValues {
            plan: self.plan,
            cron: self.cron,
            zone: self.zone.unwrap_or_else(|| "UTC".to_owned()),
            missed: missed
                .map_err(|error| Problem::invalid(error.to_string()).field("/missed"))?
                .unwrap_or_default(),
            overlap: overlap
                .map_err(|error| Problem::invalid(error.to_string()).field("/overlap"))?
                .unwrap_or_default(),
        })
    }
}

/// Checks that the sender may change a name, and has seen its current version.
///
/// A name that another principal used is unknown to a sender who may use own schedules only.
fn check_change(
    owned: &Owned,
    shown: Option<&str>,
    current: Option<&StoredSchedule>,
) -> Result<(), Problem> {
    if current.is_some_and(|current| !owned.may_use(&current.maker)) {
        return Err(unknown());
    }
    match (current.filter(|current| current.values.is_some()), shown) {
        (Some(current), shown) => check_version(shown, &current.version.to_string()),
        (None, None) => Ok(()),
        (None, Some(_)) => {
            let detail = "there is no such schedule; omit the header `If-Match` to create it";
            Err(Problem::new(ProblemKind::STALE, detail))
        }
    }
}

async fn put(call: Call) -> Result<Response, Problem> {
    let values = call.json::<NewSchedule>()?.values()?;
    let text = call.param("schedule")?.to_owned();
    let name: RunName = text.parse().map_err(|_| unknown())?;
    let (visible, shown) = (Visible::new(&call)?, call.header(&IF_MATCH));
    let (who, app) = (call.who()?.clone(), call.app.clone());
    let change = call.change("schedule.stored", &text)?;
    let (detail, is_new) = blocking(&call.app, move || {
        let state = &visible.state;
        schedules::check_stored(state)?;
        let (config, _) = state.load_config(None).map_err(of_state)?;
        PlanRequest::of_text(values.plan.clone()).check(state, &config, &who)?;
        schedules::check_values(state, &name, &values).map_err(|(key, what)| {
            let field = match key {
                ScheduleKey::Plan => "/plan",
                ScheduleKey::Cron => "/cron",
                ScheduleKey::Zone => "/zone",
            };
            Problem::invalid(what).field(field)
        })?;
        let mut is_new = true;
        schedules::put(state, &name, values, |current| -> Result<(), Problem> {
            check_change(&visible.owned, shown.as_deref(), current)?;
            is_new = current.is_none_or(|current| current.values.is_none());
            change.record(&app)
        })?;
        Ok((visible.describe(&text)?, is_new))
    })
    .await?;
    detail.respond(if is_new { StatusCode::CREATED } else { StatusCode::OK })
}

async fn remove(call: Call) -> Result<Response, Problem> {
    let text = call.param("schedule")?.to_owned();
    let name: RunName = text.parse().map_err(|_| unknown())?;
    let (visible, shown) = (Visible::new(&call)?, call.header(&IF_MATCH));
    let (app, change) = (call.app.clone(), call.change("schedule.removed", &text)?);
    blocking(&call.app, move || {
        let state = &visible.state;
        visible.find(&text)?;
        schedules::check_stored(state)?;
        schedules::remove(state, &name, |current| -> Result<(), Problem> {
            // Another request can have removed it since.
            current.filter(|current| current.values.is_some()).ok_or_else(unknown)?;
            check_change(&visible.owned, shown.as_deref(), current)?;
            change.record(&app)
        })
    })
    .await?;
    Ok(empty_response())
}

async fn run(call: Call) -> Result<Response, Problem> {
    let (visible, name) = (Visible::new(&call)?, call.param("schedule")?.to_owned());
    let (tenant, who) = (call.tenant()?, call.who()?.clone());
    let (app, change) = (call.app.clone(), call.change("schedule.started", &name)?);
    let view = blocking(&call.app, move || {
        let (state, found) = (&visible.state, visible.find(&name)?);
        if let Some(values) = found.stored.as_ref().and_then(|stored| stored.values.as_ref()) {
            // The run belongs to the sender, who may use other directories than the maker.
            let (config, _) = state.load_config(None).map_err(of_state)?;
            let plan = PlanRequest::of_text(values.plan.clone()).check(state, &config, &who);
            let plan = plan.map_err(|refusal| wrong_plan(refusal.into()))?;
            plan_request::check_paths(state, &who, &plans::paths(&plan))?;
        }
        change.record(&app)?;
        let run = schedules::run(state, &name).map_err(of_state)?;
        let found = tenant.runs.find(state, run)?;
        let found = found.ok_or_else(|| Problem::internal("the run is not on record"))?;
        Ok(RunView::of(&found))
    })
    .await?;
    let mut response = json_response(StatusCode::CREATED, &view)?;
    if let Ok(location) = HeaderValue::try_from(view.path()) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// A stored plan that became invalid is no fault of the request.
fn wrong_plan(problem: Problem) -> Problem {
    match problem.kind == ProblemKind::INVALID {
        true => Problem::new(ProblemKind::WRONG_STATE, problem.detail()),
        false => problem,
    }
}

/// Changes the state of a schedule after the change was recorded, and describes the schedule.
async fn changed(
    call: &Call,
    act: &'static str,
    work: fn(&Scoped, &str) -> Result<(), EngineError>,
) -> Result<Response, Problem> {
    let (visible, name) = (Visible::new(call)?, call.param("schedule")?.to_owned());
    let (app, change) = (call.app.clone(), call.change(act, &name)?);
    let detail = blocking(&call.app, move || {
        visible.find(&name)?;
        change.record(&app)?;
        work(&visible.state, &name).map_err(of_state)?;
        visible.describe(&name)
    })
    .await?;
    detail.respond(StatusCode::OK)
}

async fn pause(call: Call) -> Result<Response, Problem> {
    changed(&call, "schedule.paused", schedules::pause).await
}

async fn resume(call: Call) -> Result<Response, Problem> {
    changed(&call, "schedule.resumed", schedules::resume).await
}
