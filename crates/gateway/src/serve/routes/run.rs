//! The routes of single runs: one command in a new box, in one request.
//!
//! The run belongs to a process of its own, which stores the result in the state directory. So it outlives the
//! request and the server.

mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_engine::error::EngineError;
use belljar_engine::supervisor::asynchronous::Connection;
use belljar_engine::supervisor::exec_protocol::Stream;
use belljar_engine::supervisor::protocol::FromSupervisor;
use belljar_engine::supervisor::single_run::{self, FoundRun, SingleRun};
use belljar_model::spec::{BoxSpec, RunSpec, SpecVersion, WorkspaceSpec};
use belljar_model::{RunId, RunResult};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use tokio::time::Instant;

use super::boxes::{checked_spec, spec};
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::json;
use crate::serve::problem::{Problem, ProblemKind, of_state};
use spec::{LimitsRequest, NetworkRequest, OverrideParts};
use view::RunView;

/// The time in milliseconds that a request waits for the end of the run: by default, and at most.
const WAIT: (u64, u64) = (60_000, 300_000);
/// The maximum number of bytes of output in a response.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// The largest integer that every JSON parser reads exactly.
const MAX_OFFSET: u64 = 9_007_199_254_740_991;
const OCTETS: &str = "application/octet-stream";
/// The position after the returned bytes, for the next request.
const NEXT: HeaderName = HeaderName::from_static("x-belljar-next");

pub(super) fn add(routes: Routes) -> Routes {
    let access = Access::For(Act::UseRuns);
    routes
        .add(
            Operation::post("/v1/run", access)
                .about("Runs one command in a new box, and waits for its result")
                .body::<NewRun>()
                .with_language()
                .returns::<RunView>(StatusCode::OK)
                .returns::<RunView>(StatusCode::ACCEPTED)
                .problems(&[
                    ProblemKind::WRONG_STATE,
                    ProblemKind::BUSY,
                    ProblemKind::CANNOT_START,
                ]),
            run,
        )
        .add(
            Operation::get("/v1/runs/{run}/result", access)
                .about("Returns the result of a single run; the status is 202 while it runs")
                .returns::<RunView>(StatusCode::OK)
                .returns::<RunView>(StatusCode::ACCEPTED),
            result,
        )
        .add(
            Operation::get("/v1/runs/{run}/output", access)
                .about("Returns a part of the output of a single run, at most 1 MiB; the first 16 MiB are kept")
                .query::<OutputParameters>()
                .returns_bytes(StatusCode::OK, OCTETS),
            output,
        )
}

/// A command for a new box.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewRun {
    /// The program and its arguments.
    #[schemars(schema_with = "spec::schema_of_command")]
    command: Vec<String>,
    /// A template of the policy; `default` by default.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    template: Option<String>,
    /// The workspace of the box; by default it has none.
    workspace: Option<RunWorkspace>,
    /// The standard input of the program; empty by default.
    stdin: Option<String>,
    /// Environment variables.
    env: Option<BTreeMap<String, String>>,
    network: Option<NetworkRequest>,
    limits: Option<LimitsRequest>,
    /// The time in milliseconds that the request waits for the result. The run goes on after that.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 0, max = 300_000))]
    wait_ms: Option<u64>,
}

/// The workspace of a run. The changes of the run wait for a review, unless the template has another mode.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RunWorkspace {
    /// An absolute path on the host.
    #[schemars(schema_with = "spec::schema_of_path")]
    Directory(String),
}

/// A checked request for a run.
struct Requested {
    spec: RunSpec,
    input: Vec<u8>,
    wait: Duration,
}

impl NewRun {
    fn check(self) -> Result<Requested, Problem> {
        let wait = self.wait_ms.unwrap_or(WAIT.0);
        if wait > WAIT.1 {
            let detail = format!("`wait_ms` must be at most {}", WAIT.1);
            return Err(Problem::invalid(detail).field("/wait_ms"));
        }
        let program = spec::command(self.command)?;
        let parts = OverrideParts {
            env: self.env,
            secrets: None,
            network: self.network,
            limits: self.limits,
        };
        let workspace = match self.workspace {
            None => WorkspaceSpec::None,
            Some(RunWorkspace::Directory(path)) => WorkspaceSpec::Directory(PathBuf::from(path)),
        };
        let on = BoxSpec {
            template: self.template.unwrap_or_else(|| BoxSpec::default().template),
            overrides: parts.overrides()?,
            workspace,
            ..BoxSpec::default()
        };
        let version = SpecVersion::default();
        let spec = RunSpec { version, name: None, on, program, terminal: None };
        spec.check().map_err(|error| Problem::invalid(error.to_string()))?;
        let input = self.stdin.unwrap_or_default().into_bytes();
        Ok(Requested { spec, input, wait: Duration::from_millis(wait) })
    }
}

async fn run(call: Call) -> Result<Response, Problem> {
    let Requested { spec, input, wait } = call.json::<NewRun>()?.check()?;
    let until = Instant::now() + wait;
    let (who, state) = (call.who()?.clone(), call.scope()?);
    let id = state.new_id()?;
    let change = call.change("run.started", &id.0.to_string())?;
    let app = Arc::clone(&call.app);
    let turn = call.app.wait_for_start(&who).await?;
    let mut host = blocking(&call.app, move || {
        let RunSpec { on, .. } = spec;
        let spec = RunSpec { on: checked_spec(&state, &who, on)?, ..spec };
        change.record(&app)?;
        let connection = single_run::start(&state, SingleRun { id, spec }, &input)?;
        Connection::new(connection).map_err(|_| Problem::internal("the run cannot be watched"))
    })
    .await?;
    started(&mut host).await?;
    drop(turn);
    let ended = tokio::select! {
        ended = ended(&mut host) => ended?,
        () = tokio::time::sleep_until(until) => return accepted(id.0),
        () = call.app.stop.cancelled() => return accepted(id.0),
    };
    match ended {
        Some(ended) => finished(&call, &ended).await,
        None => described(&call, id.0).await,
    }
}

/// Waits until the run is recorded and its program starts. An error means that the program did not start.
async fn started(host: &mut Connection) -> Result<(), Problem> {
    match host.next().await {
        Ok(Some(FromSupervisor::Ready { .. })) => Ok(()),
        Ok(Some(FromSupervisor::Failed { kind, message })) => {
            Err(of_state(EngineError::message(kind, message)))
        }
        Ok(_) | Err(_) => {
            let detail = "the process of the run ended before the program was started";
            Err(Problem::new(ProblemKind::CANNOT_START, detail))
        }
    }
}

/// Waits until the result is stored. `None` if the process of the run was killed.
async fn ended(host: &mut Connection) -> Result<Option<Box<RunResult>>, Problem> {
    match host.next().await {
        Ok(Some(FromSupervisor::RunEnded(result))) => Ok(Some(result)),
        // The program has run. A status of its own would mean that it has not.
        Ok(Some(FromSupervisor::Failed { message, .. })) => Err(Problem::internal(message)),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Returns the response for a run whose result is not known yet.
fn accepted(id: RunId) -> Result<Response, Problem> {
    let mut response = json_response(StatusCode::ACCEPTED, &RunView::running(id))?;
    if let Ok(location) = HeaderValue::try_from(format!("/v1/runs/{id}/result")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

async fn finished(call: &Call, ended: &RunResult) -> Result<Response, Problem> {
    let (state, id) = (call.scope()?, ended.run);
    let kept = blocking(&call.app, move || {
        let read = |stream| single_run::output(&state, id, stream, 0, MAX_OUTPUT);
        Ok([read(Stream::Stdout)?, read(Stream::Stderr)?])
    })
    .await?;
    json_response(StatusCode::OK, &RunView::ended(ended, kept))
}

/// Returns the response for a run as its files describe it.
async fn described(call: &Call, id: RunId) -> Result<Response, Problem> {
    let FoundRun { record, .. } = found(call, id).await?;
    match (&record.result, RunView::without_result(&record)) {
        (Some(ended), _) => finished(call, ended).await,
        (None, Some(view)) => json_response(StatusCode::OK, &view),
        (None, None) => accepted(id),
    }
}

/// Finds the run of a request, if the sender may use it.
async fn found(call: &Call, id: RunId) -> Result<FoundRun, Problem> {
    let (state, owned) = (call.scope()?, call.owned()?);
    blocking(&call.app, move || {
        let found = single_run::find(&state, id)?.filter(|found| owned.may_use(&found.maker));
        found.ok_or_else(unknown)
    })
    .await
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such single run")
}

fn run_id(call: &Call) -> Result<RunId, Problem> {
    call.param("run")?.parse().map_err(|_| unknown())
}

async fn result(call: Call) -> Result<Response, Problem> {
    let id = run_id(&call)?;
    described(&call, id).await
}

/// The part of the output that a request asks for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputParameters {
    /// `stdout` or `stderr`; `stdout` by default.
    #[serde(default)]
    #[schemars(schema_with = "schema_of_stream")]
    stream: Option<StreamName>,
    /// The position of the first byte; 0 by default. The header `X-Belljar-Next` of a response has the next one.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    from: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StreamName {
    Stdout,
    Stderr,
}

fn schema_of_stream(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["stdout", "stderr"] })
}

async fn output(call: Call) -> Result<Response, Problem> {
    let OutputParameters { stream, from } = call.query()?;
    let from = from.unwrap_or(0);
    if from > MAX_OFFSET {
        return Err(Problem::invalid(format!("`from` must be at most {MAX_OFFSET}")).field("/from"));
    }
    let stream = match stream {
        None | Some(StreamName::Stdout) => Stream::Stdout,
        Some(StreamName::Stderr) => Stream::Stderr,
    };
    let id = run_id(&call)?;
    found(&call, id).await?;
    let state = call.scope()?;
    let part =
        blocking(&call.app, move || Ok(single_run::output(&state, id, stream, from, MAX_OUTPUT)?))
            .await?;
    let length = u64::try_from(part.bytes.len()).unwrap_or(u64::MAX);
    let mut response = Body::from(part.bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(OCTETS));
    // A browser does not show what a program in a box wrote.
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(NEXT, HeaderValue::from(from.min(part.kept).saturating_add(length)));
    Ok(response)
}
