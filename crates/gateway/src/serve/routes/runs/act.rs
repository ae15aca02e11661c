//! The routes that start, cancel, continue, repeat and settle runs.

use axum::response::Response;
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::runs::control::{self, Settlement};
use belljar_engine::runs::index::{RunKind, RunSummary};
use belljar_engine::runs::machine::{TaskRef, Try};
use belljar_engine::runs::submit::{self, SubmitKey};
use belljar_engine::runs::{driver, plans, rerun, view as runs};
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_model::caller::PrincipalKind;
use belljar_model::plan::TaskId;
use http::header::{HeaderName, LOCATION};
use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::view::RunView;
use super::{BASE, with_run};
use crate::serve::access::Act;
use crate::serve::approver::Approver;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::plan_request::{self, MAX_BODY, PlanRequest};
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::routes::{Access, Operation, Routes};
use crate::serve::tenants::Tenant;

/// The header with the key of a request, which is the submission key of a run too.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The maximum length of a reason in bytes.
const MAX_REASON: usize = 1000;

pub(super) fn add(routes: Routes) -> Routes {
    let use_runs = Access::For(Act::UseRuns);
    let routes = routes
        .add(
            Operation::post("/v1/runs", use_runs)
                .about("Starts the run of a plan")
                .body::<PlanRequest>()
                .max_body(MAX_BODY)
                .with_language()
                .returns::<RunView>(StatusCode::CREATED)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::LIMIT, ProblemKind::CONFLICT]),
            start,
        )
        .add(
            Operation::post("/v1/runs/{run}/cancel", use_runs)
                .about("Cancels the run of a plan, or one task of it; the driver ends its boxes")
                .optional_body::<CancelRequest>()
                .returns::<RunView>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE]),
            cancel,
        )
        .add(
            Operation::post("/v1/runs/{run}/resume", use_runs)
                .about("Continues an open run of a plan, after its driver was killed for example")
                .returns::<RunView>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::CANNOT_START]),
            resume,
        )
        .add(
            Operation::post("/v1/runs/{run}/rerun", use_runs)
                .about("Starts a run that repeats a task of a run, and all tasks that depend on it")
                .body::<RerunRequest>()
                .returns::<RepeatedRun>(StatusCode::CREATED)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::LIMIT, ProblemKind::CONFLICT]),
            repeat,
        );
    routes.add(
        Operation::post("/v1/runs/{run}/tasks/{task}/settle", Access::For(Act::Answer))
            .about("Decides what happens to a lost attempt that may have had an effect")
            .body::<SettleRequest>()
            .returns::<RunView>(StatusCode::OK)
            .problems(&[ProblemKind::WRONG_STATE]),
        settle,
    )
}

/// Describes a run after a change. Blocks.
fn described(state: &Scoped, tenant: &Tenant, run: RunId) -> Result<RunView, Problem> {
    let found = tenant.runs.find(state, run)?;
    let found = found.ok_or_else(|| Problem::internal("the ledger has no record of the run"))?;
    Ok(RunView::of(&found))
}

/// Returns the response for a new run.
fn created<T: Serialize>(view: &T, path: &str) -> Result<Response, Problem> {
    let mut response = json_response(StatusCode::CREATED, view)?;
    if let Ok(location) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Wakes the driver of a run that is on record. If no driver starts, the server tries it again.
fn wake(state: &Scoped) {
    if driver::wake(state).is_err() {
        tracing::warn!("the driver of runs cannot be started; the server tries it again");
    }
}

async fn start(call: Call) -> Result<Response, Problem> {
    let request: PlanRequest = call.json()?;
    let key = submission_key(&call)?;
    let (state, who) = (call.scope()?, call.who()?.clone());
    let plan = blocking(&call.app, move || {
        let (config, _) = state.load_config(None).map_err(of_state)?;
        Ok(request.check(&state, &config, &who)?)
    })
    .await?;
    let (state, tenant, app) = (call.scope()?, call.tenant()?, call.app.clone());
    let change = call.change("run.submitted", plan.name())?;
    let view = blocking(&call.app, move || {
        change.record(&app)?;
        let run = submit::accept(&state, &plan, BASE.as_ref(), key.as_ref()).map_err(of_state)?;
        wake(&state);
        described(&state, &tenant, run)
    })
    .await?;
    created(&view, &view.path())
}

/// Returns the submission key of a request. The keys of a user of the machine are those of `belljar submit`; a
/// key of another principal is valid for this principal only.
fn submission_key(call: &Call) -> Result<Option<SubmitKey>, Problem> {
    let Some(key) = call.header(&KEY) else { return Ok(None) };
    let principal = &call.who()?.caller.principal;
    let key = match principal.kind() {
        PrincipalKind::User => key,
        PrincipalKind::Person
        | PrincipalKind::Service
        | PrincipalKind::Agent
        | PrincipalKind::Schedule => format!("{principal} {key}"),
    };
    // A long name of a principal is no fault of the request.
    Ok(SubmitKey::new(key).ok())
}

/// Refuses a run that is not of a plan, or that has ended.
fn check_open(found: &RunSummary) -> Result<(), Problem> {
    if found.kind != RunKind::Plan {
        let detail = "the run is not of a plan";
        return Err(Problem::new(ProblemKind::WRONG_STATE, detail));
    }
    if found.ended.is_some() {
        let detail = format!("the run has ended: {}", found.state.name());
        return Err(Problem::new(ProblemKind::WRONG_STATE, detail));
    }
    Ok(())
}

/// What is cancelled.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    /// A task, or an instance such as `fix[0]`; by default the whole run.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_-]{0,62}(\[(0|[1-9][0-9]{0,3})\])?$"))]
    task: Option<String>,
}

async fn cancel(call: Call) -> Result<Response, Problem> {
    let CancelRequest { task } = call.optional_json()?;
    let of: Option<TaskRef> = task.as_deref().map(|task| task_of(task, "/task")).transpose()?;
    let mut change = call.change("run.cancelled", call.param("run")?)?;
    change.details = task.into_iter().collect();
    let app = call.app.clone();
    let view = with_run(&call, move |state, tenant, found| {
        check_open(&found)?;
        change.record(&app)?;
        control::cancel(state, found.run, of.as_ref()).map_err(of_state)?;
        described(state, tenant, found.run)
    })
    .await?;
    json_response(StatusCode::OK, &view)
}

fn task_of(text: &str, field: &str) -> Result<TaskRef, Problem> {
    text.parse().map_err(|_| {
        let detail = "write the name of a task, or of an instance such as `fix[0]`";
        Problem::invalid(detail).field(field)
    })
}

async fn resume(call: Call) -> Result<Response, Problem> {
    let change = call.change("run.resumed", call.param("run")?)?;
    let app = call.app.clone();
    let view = with_run(&call, move |state, tenant, found| {
        check_open(&found)?;
        change.record(&app)?;
        driver::wake(state)?;
        described(state, tenant, found.run)
    })
    .await?;
    json_response(StatusCode::OK, &view)
}

/// The part of a run that is repeated.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RerunRequest {
    /// The first task that runs again. Outputs of tasks that do not depend on it are reused.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_-]{0,62}$"))]
    from: String,
}

/// A run that repeats a part of another one.
#[derive(Serialize, JsonSchema)]
struct RepeatedRun {
    #[serde(flatten)]
    run: RunView,
    /// The tasks whose outputs are those of the earlier run.
    reused: Vec<String>,
}

async fn repeat(call: Call) -> Result<Response, Problem> {
    let RerunRequest { from } = call.json()?;
    let invalid = |error| Problem::invalid(format!("{error}")).field("/from");
    let first: TaskId =
        from.parse().map_err(|error: belljar_model::plan::IdError| invalid(error))?;
    let mut change = call.change("run.repeated", call.param("run")?)?;
    change.details = vec![from];
    let (app, who) = (call.app.clone(), call.who()?.clone());
    let repeated = with_run(&call, move |state, tenant, found| {
        if found.kind != RunKind::Plan || !runs::has_files(state, found.run) {
            let detail = "the run is not of a plan, or its files were removed";
            return Err(Problem::new(ProblemKind::WRONG_STATE, detail));
        }
        // The new run belongs to the sender, who may use other directories than the earlier sender.
        let plan = runs::run(state, found.run)?.plan;
        plan_request::check_paths(state, &who, &plans::paths(&plan))?;
        let (config, _) = state.load_config(None).map_err(of_state)?;
        change.record(&app)?;
        let repeated = rerun::rerun(state, &config, found.run, &first).map_err(changed_policy)?;
        wake(state);
        let reused = repeated.reused.iter().map(ToString::to_string).collect();
        Ok(RepeatedRun { run: described(state, tenant, repeated.run)?, reused })
    })
    .await?;
    created(&repeated, &repeated.run.path())
}

/// The engine refuses to reuse outputs under another policy. That is no lack of rights.
fn changed_policy(error: EngineError) -> Problem {
    match error.kind() == ErrorKind::Refused {
        true => Problem::new(ProblemKind::CONFLICT, format!("{error:#}")),
        false => of_state(error),
    }
}

/// The decision of a person about a lost attempt.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SettleRequest {
    /// `rerun` repeats the attempt, `done` gives an output, and `failed` makes the task fail.
    #[schemars(schema_with = "schema_of_decision")]
    how: String,
    /// The output of a task that is done.
    #[schemars(length(max = 1_000_000))]
    output: Option<String>,
    /// The reason of the decision, for the record.
    #[schemars(length(max = 1000))]
    reason: Option<String>,
}

const DECISIONS: [&str; 3] = ["rerun", "done", "failed"];

fn schema_of_decision(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": DECISIONS })
}

async fn settle(call: Call) -> Result<Response, Problem> {
    let SettleRequest { how, output, reason } = call.json()?;
    if !DECISIONS.contains(&how.as_str()) {
        let detail = "`how` must be `rerun`, `done` or `failed`";
        return Err(Problem::invalid(detail).field("/how"));
    }
    // A character has at most four bytes.
    if reason.as_ref().is_some_and(|reason| reason.len() > 4 * MAX_REASON) {
        return Err(Problem::invalid("the reason is too long").field("/reason"));
    }
    let approver = Approver::of(call.who()?)?;
    let task = call.param("task")?.to_owned();
    let mut change = call.change("task.settled", &format!("{}/{task}", call.param("run")?))?;
    change.details = std::iter::once(how.clone()).chain(reason).collect();
    let app = call.app.clone();
    let view = with_run(&call, move |state, tenant, found| {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the run has no such task");
        let TaskRef { task, item } = task.parse().map_err(|_| unknown())?;
        if found.kind != RunKind::Plan || !runs::has_files(state, found.run) {
            return Err(unknown());
        }
        let view = runs::run(state, found.run)?;
        let of = TaskRef { task: task.clone(), item };
        let lost = view.task(&of).ok_or_else(unknown)?.lost;
        let not_lost = || {
            let detail = format!("task {of} does not wait for a decision");
            Problem::new(ProblemKind::WRONG_STATE, detail)
        };
        let attempt = lost.ok_or_else(not_lost)?;
        let how = match (how.as_str(), output) {
            ("rerun", None) => Settlement::Rerun,
            ("failed", None) => Settlement::Failed,
            ("done", Some(output)) => Settlement::Done(output.into_bytes()),
            _ => {
                let detail = "`done` needs an `output`, and no other decision has one";
                return Err(Problem::invalid(detail).field("/output"));
            }
        };
        change.record(&app)?;
        tracing::info!(run = %found.run, by = %approver.principal(), "a lost attempt is settled");
        control::settle(state, found.run, &Try { task, item, attempt }, how)?;
        described(state, tenant, found.run)
    })
    .await?;
    json_response(StatusCode::OK, &view)
}
