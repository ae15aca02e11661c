//! The routes of runs: list, describe and prove them, start plans, and cancel, repeat and settle.

mod act;
pub(super) mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_engine::runs::index::{ListedState, RunKind, RunSearch, RunSummary, RunTerm};
use belljar_engine::runs::machine::TaskRef;
use belljar_engine::runs::view as runs;
use belljar_engine::runs::{receipt, rows};
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Role};
use crate::serve::call::{Call, Owned, blocking, json_response};
use crate::serve::feed::Subscription;
use crate::serve::filter::Filter;
use crate::serve::identity::Identity;
use crate::serve::makers::Makers;
use crate::serve::page::{List, PageParameters, PageQuery};
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::tenants::Tenant;
use view::{RunDetail, RunView, TaskDetail};

/// The name of the list in its cursors.
const RUNS: &str = "runs";
/// The keys of the filter of runs.
const KEYS: [&str; 5] = ["state", "kind", "by", "name", "schedule"];
/// The directory that relative paths of a plan would refer to. Plans of clients have absolute paths only.
pub(super) const BASE: &str = "/";
/// The maximum time that a request waits for the end of a run, in milliseconds.
const MAX_WAIT: u64 = 60_000;
/// Tells whether the run of a receipt can still have events.
const RUN_STATE: HeaderName = HeaderName::from_static("x-belljar-run-state");
/// The media type of a receipt.
const RECEIPT: &str = "application/json";

pub(super) fn add(routes: Routes) -> Routes {
    let see = Access::For(Act::SeeRuns);
    let routes = routes
        .add(
            Operation::get("/v1/runs", see)
                .about(
                    "Lists runs, newest first; the filter has the keys state, kind, by, name and schedule",
                )
                .query::<PageParameters>()
                .returns::<List<RunView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::get("/v1/runs/{run}", see)
                .about("Describes a run with its tasks; can wait until no task runs")
                .query::<WaitParameters>()
                .returns::<RunDetail>(StatusCode::OK),
            get,
        )
        .add(
            Operation::get("/v1/runs/{run}/tasks/{task}", see)
                .about("Describes a task of a run with its output")
                .returns::<TaskDetail>(StatusCode::OK),
            task,
        )
        .add(
            Operation::get("/v1/runs/{run}/receipt", see)
                .about("Returns the receipt of a run; the header X-Belljar-Run-State is `open` or `ended`")
                .query::<ReceiptParameters>()
                .returns_bytes(StatusCode::OK, RECEIPT)
                .problems(&[ProblemKind::WRONG_STATE]),
            receipt_of_run,
        );
    act::add(routes)
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(RUNS)?;
    let (state, owned, tenant) = (call.scope()?, call.owned()?, call.tenant()?);
    let found = blocking(&call.app, move || {
        let search = search(&state, &owned, &page)?;
        Ok(tenant.runs.page(&state, &search)?)
    })
    .await?;
    let next = found.next.map(|cursor| cursor.to_string());
    call.list(RUNS, found.runs.iter().map(RunView::of).collect(), next.as_deref())
}

/// Returns the search for the page of a list. Blocks.
fn search(state: &Scoped, owned: &Owned, page: &PageQuery) -> Result<RunSearch, Problem> {
    let filter = Filter::parse(page.q.as_deref(), &KEYS);
    let keys = [
        ("state", RunTerm::State),
        ("kind", RunTerm::Kind),
        ("by", RunTerm::Maker),
        ("name", RunTerm::Name),
    ];
    let mut terms = Vec::new();
    for (key, term) in keys {
        terms.extend(filter.terms(key).map(|value| (term, value.to_owned())));
    }
    // The principal of a run that a schedule started is the schedule.
    let schedules = filter.terms("schedule").map(|name| format!("schedule:{name}"));
    terms.extend(schedules.map(|maker| (RunTerm::Maker, maker)));
    let after = page.after.as_deref().map(str::parse::<rows::Cursor>).transpose();
    Ok(RunSearch {
        makers: Makers::read(state, owned)?.into_set(),
        terms,
        texts: filter.texts().to_vec(),
        accepted: None,
        after: after.map_err(|error| Problem::invalid(error.to_string()).field("/cursor"))?,
        limit: page.limit,
    })
}

/// Finds the run of a request, if the sender may use it. Blocks.
pub(super) fn find(
    state: &Scoped,
    tenant: &Tenant,
    owned: &Owned,
    text: &str,
) -> Result<RunSummary, Problem> {
    let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such run");
    let run: RunId = text.parse().map_err(|_| unknown())?;
    let found = tenant.runs.find(state, run)?.ok_or_else(unknown)?;
    match Makers::read(state, owned)?.include_text(&found.maker) {
        true => Ok(found),
        false => Err(unknown()),
    }
}

/// Calls a blocking function with the run of a request.
async fn with_run<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Scoped, &Arc<Tenant>, RunSummary) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (state, owned, tenant) = (call.scope()?, call.owned()?, call.tenant()?);
    let text = call.param("run")?.to_owned();
    blocking(&call.app, move || {
        let found = find(&state, &tenant, &owned, &text)?;
        work(&state, &tenant, found)
    })
    .await
}

/// Returns whether the sender may see what programs wrote. Auditors see what happened only.
fn may_see_contents(who: &Identity) -> bool {
    who.role != Role::Auditor
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WaitParameters {
    /// The time in milliseconds that the request waits while the state of the run is `running`.
    #[schemars(range(max = 60_000))]
    wait_ms: Option<u64>,
}

async fn get(call: Call) -> Result<Response, Problem> {
    let wait = call.query::<WaitParameters>()?.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT {
        let detail = format!("`wait_ms` must be at most {MAX_WAIT}");
        return Err(Problem::invalid(detail).field("/wait_ms"));
    }
    let mut summary = with_run(&call, |_, _, found| Ok(found)).await?;
    if wait > 0 && summary.state == ListedState::Running {
        summary = wait_while_running(&call, Duration::from_millis(wait)).await?;
    }
    let has_contents = may_see_contents(call.who()?);
    let state = call.scope()?;
    let detail =
        blocking(&call.app, move || RunDetail::read(&state, &summary, has_contents)).await?;
    json_response(StatusCode::OK, &detail)
}

/// Waits until the run has another state, or until the time is over.
async fn wait_while_running(call: &Call, time: Duration) -> Result<RunSummary, Problem> {
    let deadline = Instant::now() + time;
    let tenant = call.tenant()?;
    let Subscription { mut receiver, .. } = tenant.feed.subscribe(&call.app, &tenant.scope).await?;
    loop {
        // Read after the subscription, so that no event is missed.
        let summary = with_run(call, |_, _, found| Ok(found)).await?;
        if summary.state != ListedState::Running {
            return Ok(summary);
        }
        let run = summary.run;
        let changed = async {
            loop {
                match receiver.recv().await {
                    Ok(event) if event.run != Some(run) => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(deadline) => return Ok(summary),
            () = call.app.stop.cancelled() => return Ok(summary),
        }
        while receiver.try_recv().is_ok() {}
    }
}

async fn task(call: Call) -> Result<Response, Problem> {
    let name = call.param("task")?.to_owned();
    let has_contents = may_see_contents(call.who()?);
    let detail = with_run(&call, move |state, _, found| {
        let unknown = |detail: &str| Problem::new(ProblemKind::NOT_FOUND, detail);
        let of: TaskRef = name.parse().map_err(|_| unknown("the run has no such task"))?;
        if found.kind != RunKind::Plan || !runs::has_files(state, found.run) {
            return Err(unknown("the run has no tasks"));
        }
        let view = runs::run(state, found.run)?;
        let task = view.task(&of).ok_or_else(|| match of.item {
            None if view.tasks.iter().any(|task| task.of.task == of.task) => {
                unknown("the task has instances; name one of them, such as NAME[0]")
            }
            Some(_) | None => unknown("the run has no such task"),
        })?;
        TaskDetail::read(state, &view, task, has_contents)
    })
    .await?;
    json_response(StatusCode::OK, &detail)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReceiptParameters {
    /// Whether the receipt discloses the stored contents, such as the plan and the outputs.
    bodies: Option<bool>,
}

async fn receipt_of_run(call: Call) -> Result<Response, Problem> {
    let with_bodies = call.query::<ReceiptParameters>()?.bodies.unwrap_or(false);
    if with_bodies && !may_see_contents(call.who()?) {
        let detail = "your role does not allow contents; omit `bodies`";
        return Err(Problem::new(ProblemKind::FORBIDDEN, detail));
    }
    let (text, is_open) = with_run(&call, move |state, _, found| {
        // The end is read first: a run that ends in between is called open, and its receipt says otherwise.
        let is_open = found.ended.is_none();
        Ok((receipt::text(state, found.run, with_bodies).map_err(of_state)?, is_open))
    })
    .await?;
    let mut response = Body::from(text).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(RECEIPT));
    let run_state = if is_open { "open" } else { "ended" };
    headers.insert(RUN_STATE, HeaderValue::from_static(run_state));
    Ok(response)
}
