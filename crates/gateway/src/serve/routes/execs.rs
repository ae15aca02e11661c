//! The routes of execs: additional programs in a running box. They belong to the supervisor of the box, so they
//! outlive their clients and the server.

mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::Response;
use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes::execs;
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::scope::Scoped;
use belljar_engine::screen::protocol::Size;
use belljar_engine::supervisor::exec_protocol::{ExecId, ExecStatus, KeptRange};
use belljar_engine::supervisor::protocol::ExecSpec;
use belljar_model::boxes::BoxName;
use belljar_model::display;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::account::time;
use super::boxes::{find, spec};
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::app::App;
use crate::serve::call::{Call, Owned, blocking, empty_response, json_response};
use crate::serve::json;
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::store::{ExecRow, TenantKey};

/// The maximum length of a command and its environment, in bytes.
const MAX_COMMAND: usize = 128 * 1024;
/// The largest number of a signal.
const MAX_SIGNAL: i32 = 64;
/// The time after which an exec that its box does not know any more can be forgotten. A box keeps an exec that
/// has ended for a shorter time.
const FORGOTTEN: u64 = 48 * 60 * 60 * 1000;

/// The problems of routes that concern an exec.
const EXEC: &[ProblemKind] = &[ProblemKind::BUSY, ProblemKind::GONE];

pub(super) fn add(routes: Routes) -> Routes {
    let access = Access::For(Act::UseBoxes);
    let routes = routes
        .add(
            Operation::post("/v1/boxes/{box}/execs", access)
                .about("Starts an additional program in a running box")
                .body::<NewExec>()
                .with_language()
                .returns::<ExecView>(StatusCode::CREATED)
                .problems(&[
                    ProblemKind::WRONG_STATE,
                    ProblemKind::BUSY,
                    ProblemKind::CANNOT_START,
                ]),
            create,
        )
        .add(
            Operation::get("/v1/execs/{exec}", access)
                .about("Describes an exec, for 24 hours after its end")
                .returns::<ExecView>(StatusCode::OK)
                .problems(EXEC),
            get,
        )
        .add(
            Operation::post("/v1/execs/{exec}/signal", access)
                .about("Sends a signal to the program of an exec; nothing happens if it has ended")
                .body::<SignalRequest>()
                .returns_empty(StatusCode::NO_CONTENT)
                .problems(EXEC),
            signal,
        );
    stream::add(routes)
}

/// A new exec.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewExec {
    /// The program and its arguments.
    #[schemars(schema_with = "spec::schema_of_command")]
    command: Vec<String>,
    /// Environment variables, in addition to those of the program of the box.
    env: Option<BTreeMap<String, String>>,
    /// The absolute path of a directory in the box; by default that of the program of the box.
    #[serde(default)]
    #[schemars(schema_with = "spec::schema_of_path")]
    workdir: Option<String>,
    /// The size of the terminal of the program. By default the program has pipes.
    terminal: Option<TerminalRequest>,
}

/// The size of a terminal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TerminalRequest {
    /// 24 by default.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 1000))]
    rows: Option<u16>,
    /// 80 by default.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 1000))]
    columns: Option<u16>,
}

impl NewExec {
    fn spec(self) -> Result<ExecSpec, Problem> {
        let invalid = |detail: &str, field: &str| Err(Problem::invalid(detail).field(field));
        let argv = spec::command(self.command)?.into_words();
        let argv: Vec<Vec<u8>> = argv.into_iter().map(|word| word.into_encoded_bytes()).collect();
        let env: Vec<(Vec<u8>, Vec<u8>)> = spec::variables(self.env.unwrap_or_default())?
            .iter()
            .map(|it| (it.name().into(), it.value().unwrap_or_default().into()))
            .collect();
        let length = argv.iter().map(Vec::len).sum::<usize>()
            + env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if length > MAX_COMMAND {
            let detail = "the command and its environment have more than 128 KiB";
            return invalid(detail, "/command");
        }
        let is_path = |dir: &String| dir.starts_with('/') && !dir.contains('\0');
        if self.workdir.as_ref().is_some_and(|dir| !is_path(dir)) {
            return invalid("`workdir` must be an absolute path", "/workdir");
        }
        let workdir = self.workdir.map(String::into_bytes);
        let terminal = match self.terminal {
            None => None,
            Some(TerminalRequest { rows, columns }) => {
                let size = checked_size(rows.unwrap_or(24), columns.unwrap_or(80));
                let Some(size) = size else {
                    return invalid("the size must be from 1 to 1000", "/terminal");
                };
                Some(size)
            }
        };
        Ok(ExecSpec { argv, env, workdir, terminal })
    }
}

fn checked_size(rows: u16, columns: u16) -> Option<Size> {
    let is_valid = |it: u16| (1..=1000).contains(&it);
    (is_valid(rows) && is_valid(columns)).then_some(Size { rows, columns })
}

/// An exec.
#[derive(Serialize, JsonSchema)]
struct ExecView {
    id: String,
    r#box: String,
    /// The start of the command; bytes that are no text are replaced.
    command: Vec<String>,
    terminal: bool,
    /// The principal that started the exec.
    maker: String,
    started: String,
    /// How the program ended; null while it runs.
    end: Option<ExecEndView>,
    /// The number of bytes of input that the program has read.
    stdin_offset: u64,
    stdout: RangeView,
    stderr: RangeView,
}

/// How the program of an exec ended.
#[derive(Serialize, JsonSchema)]
struct ExecEndView {
    at: String,
    /// The exit status of the program, if it exited.
    exit: Option<i32>,
    /// The signal that killed the program.
    signal: Option<i32>,
}

/// The bytes of an output stream that are kept: the offsets of the first one and after the last one.
#[derive(Serialize, JsonSchema)]
struct RangeView {
    start: u64,
    end: u64,
}

impl RangeView {
    const fn of(range: KeptRange) -> Self {
        Self { start: range.start, end: range.end }
    }
}

impl ExecView {
    fn of(status: &ExecStatus, row: &ExecRow) -> Self {
        let words = status.argv.iter().map(|word| String::from_utf8_lossy(word));
        Self {
            id: status.id.to_string(),
            r#box: row.box_name.to_string(),
            command: words.map(|word| display::safe(&*word).to_string()).collect(),
            terminal: status.has_terminal,
            maker: row.maker.to_string(),
            started: time(status.started),
            end: status.end.map(|end| ExecEndView {
                at: time(end.at),
                exit: end.exit,
                signal: end.signal,
            }),
            stdin_offset: status.stdin_offset,
            stdout: RangeView::of(status.stdout),
            stderr: RangeView::of(status.stderr),
        }
    }
}

async fn create(call: Call) -> Result<Response, Problem> {
    let spec = call.json::<NewExec>()?.spec()?;
    let (who, state, owned) = (call.who()?.clone(), call.scope()?, call.owned()?);
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|_| Problem::internal("the kernel returned no random bytes"))?;
    let id = ExecId(id);
    let name = call.param("box")?.to_owned();
    let mut change = call.change("box.exec-started", &name)?;
    change.details = vec![format!("exec {id}")];
    let app = Arc::clone(&call.app);
    let (row, status) = blocking(&call.app, move || {
        let named_box = find(&state, &owned, &name)?;
        change.record(&app)?;
        let (box_name, maker) = (named_box.name().clone(), who.caller.principal.clone());
        let row = ExecRow { key: who.key(id), box_name, maker, created: app.now() };
        app.store.put_exec(&row)?;
        let started = execs::start(&state, &named_box, id, spec);
        if started.is_err() {
            app.store.remove_exec(&row.key)?;
        }
        let status = started.map_err(refused)?;
        forget_old(&app, &state, &named_box, &row)?;
        Ok((row, status))
    })
    .await?;
    let mut response = json_response(StatusCode::CREATED, &ExecView::of(&status, &row))?;
    if let Ok(location) = HeaderValue::try_from(format!("/v1/execs/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// What the engine cannot start in a box is a matter of the box: another box can have the program.
fn refused(error: EngineError) -> Problem {
    let is_of_box = matches!(
        error.kind(),
        ErrorKind::Invalid | ErrorKind::NotExecutable | ErrorKind::ProgramNotFound
    );
    let problem = Problem::from(error);
    if is_of_box {
        return Problem::new(ProblemKind::WRONG_STATE, problem.detail()).field("/command");
    }
    problem
}

/// Forgets old execs that the box does not know any more, at about one of 16 starts.
fn forget_old(
    app: &App,
    state: &Scoped,
    named_box: &NamedBox,
    row: &ExecRow,
) -> Result<(), Problem> {
    if row.key.1.0.first().is_some_and(|byte| byte % 16 != 0) {
        return Ok(());
    }
    let known: Vec<ExecId> =
        execs::list(state, named_box)?.into_iter().map(|status| status.id).collect();
    let of_box: TenantKey<BoxName> = TenantKey(row.key.0.clone(), row.box_name.clone());
    let before = row.created.saturating_sub(FORGOTTEN);
    Ok(app.store.remove_old_execs(&of_box, before, &known)?)
}

/// An exec of a request, with the box that knows it.
struct FoundExec {
    id: ExecId,
    row: ExecRow,
    named_box: NamedBox,
}

/// Finds the exec of a request, if the sender may use it and its box exists.
fn find_exec(
    app: &App,
    state: &Scoped,
    owned: &Owned,
    key: &TenantKey<ExecId>,
) -> Result<FoundExec, Problem> {
    let row = app.store.exec(key)?.filter(|row| owned.may_use(&row.maker));
    let row = row.ok_or_else(unknown)?;
    let named_box = match NamedBox::find(state, &row.box_name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(gone()),
        found => found?,
    };
    if !owned.may_use(&belljar_engine::boxes::maker(&named_box)) {
        return Err(unknown());
    }
    Ok(FoundExec { id: key.1, row, named_box })
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such exec")
}

fn gone() -> Problem {
    let detail =
        "the exec is not kept any more: it ended more than 24 hours ago, or its box has stopped";
    Problem::new(ProblemKind::GONE, detail)
}

/// A box that has stopped, or was started again, does not know the exec any more.
fn known<T>(result: Result<Option<T>, EngineError>) -> Result<T, Problem> {
    match result {
        Err(error) if error.kind() == ErrorKind::WrongState => Err(gone()),
        found => found?.ok_or_else(gone),
    }
}

/// Calls a blocking function with the exec of a request.
async fn with_exec<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Scoped, FoundExec) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (state, owned) = (call.scope()?, call.owned()?);
    let id: ExecId = call.param("exec")?.parse().map_err(|_| unknown())?;
    let (app, key) = (Arc::clone(&call.app), call.who()?.key(id));
    blocking(&call.app, move || {
        let found = find_exec(&app, &state, &owned, &key)?;
        work(&state, found)
    })
    .await
}

async fn get(call: Call) -> Result<Response, Problem> {
    let view = with_exec(&call, |state, FoundExec { id, row, named_box }| {
        let status = known(execs::status(state, &named_box, id))?;
        Ok(ExecView::of(&status, &row))
    })
    .await?;
    json_response(StatusCode::OK, &view)
}

/// A signal for a program.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignalRequest {
    /// The number of the signal, such as 15.
    #[serde(deserialize_with = "signal_number")]
    #[schemars(range(min = 1, max = 64))]
    signal: i32,
}

fn signal_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let missing = || serde::de::Error::custom("expected the number of a signal");
    json::integer(deserializer)?.ok_or_else(missing)
}

/// Returns whether a number is that of a signal.
fn is_signal(number: i32) -> bool {
    (1..=MAX_SIGNAL).contains(&number)
}

async fn signal(call: Call) -> Result<Response, Problem> {
    let SignalRequest { signal } = call.json()?;
    if !is_signal(signal) {
        let detail = format!("`signal` must be a number from 1 to {MAX_SIGNAL}");
        return Err(Problem::invalid(detail).field("/signal"));
    }
    let mut change = call.change("box.exec-signalled", "")?;
    let app = Arc::clone(&call.app);
    with_exec(&call, move |state, FoundExec { id, named_box, .. }| {
        change.subject = named_box.name().to_string();
        change.details = vec![format!("exec {id}"), format!("signal {signal}")];
        change.record(&app)?;
        let sent = execs::signal(state, &named_box, id, signal);
        known(sent.map(|is_known| is_known.then_some(())))
    })
    .await?;
    Ok(empty_response())
}
