//! The event loop: runs one program until its end.
//!
//! Each round runs all pending jobs, then one due timer, and then waits. So timers fire in order, a
//! rejected promise is reported once no handler can be added. A program ends when its main module has
//! returned a value, or when nothing is pending: a timer or request that is left over does not delay a
//! result.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt as _, CaughtError, Ctx, Function, Module, Object, Persistent, Promise, Value,
};
use serde_json::value::RawValue;

use belljar_wire::{MAX_FRAME, ProgramError, ProgramResult, Script};

use super::context::Engine;
use super::errors;
use super::host::PersistentValue;
use super::modules::Sources;
use super::strip::{FileKind, Stripped, prepare};

/// The maximum size of a program's result as JSON, in bytes. The rest of the frame is for its
/// header.
const LARGEST: usize = MAX_FRAME - (1 << 20);

/// Runs a JavaScript program and returns its value or its error.
pub(super) async fn script(engine: &Engine, script: Script) -> ProgramResult {
    match value(engine, script).await {
        Ok(value) => ProgramResult { value, trouble: None },
        Err(trouble) => ProgramResult { value: None, trouble: Some(trouble) },
    }
}

async fn value(engine: &Engine, mut script: Script) -> Result<Option<Box<RawValue>>, ProgramError> {
    let Stripped { code, source_map } =
        prepare(&script.code, script.language, &script.file, FileKind::Main)?;
    engine.host.source_maps.borrow_mut().insert(script.file.clone(), source_map);
    let modules = std::mem::take(&mut script.modules);
    *engine.host.sources.borrow_mut() = Sources::new(modules);
    let memory = usize::try_from(script.memory).unwrap_or(usize::MAX);
    engine.runtime.set_memory_limit(memory).await;
    let run = Run { engine, memory: script.memory };
    run.prepare(&script).await?;
    let outcome = run.with(|ctx| start(ctx, engine, &script, &code)).await?;
    let Some(json) = run.drive::<Option<String>>(&outcome, Option::is_some).await? else {
        return Ok(None);
    };
    if json.len() > LARGEST {
        let message = format!(
            "the result has {} bytes of JSON; the limit is {LARGEST}: write it to a file in /workspace",
            json.len()
        );
        return Err(errors::simple("RangeError", &message));
    }
    let raw = RawValue::from_string(json);
    raw.map(Some).map_err(|error| errors::simple("Error", &error.to_string()))
}

type Outcome = Persistent<Promise<'static>>;

/// Starts a JavaScript program and returns the promise of its result.
fn start(ctx: &Ctx<'_>, engine: &Engine, script: &Script, code: &str) -> rquickjs::Result<Outcome> {
    let prelude = engine.prelude.clone().restore(ctx)?;
    let module = Module::declare(ctx.clone(), script.file.as_str(), code)?;
    let meta = module.meta()?;
    meta.set("url", format!("file:///workspace/{}", script.file))?;
    meta.set("filename", format!("/workspace/{}", script.file))?;
    meta.set("dirname", "/workspace")?;
    meta.set("main", true)?;
    let (module, evaluated) = module.eval()?;
    let outcome: Function<'_> = prelude.get("outcome")?;
    let promise: Promise<'_> = outcome.call((evaluated, module.namespace()?, meta))?;
    Ok(Persistent::save(ctx, promise))
}

struct Run<'e> {
    engine: &'e Engine,
    memory: u64,
}

impl Run<'_> {
    /// Runs a closure in the JavaScript context and converts a thrown value to an error.
    async fn with<T>(
        &self,
        work: impl FnOnce(&Ctx<'_>) -> rquickjs::Result<T>,
    ) -> Result<T, ProgramError> {
        let memory = self.memory;
        self.engine
            .context
            .with(|ctx| {
                work(&ctx).catch(&ctx).map_err(|error| match error {
                    CaughtError::Exception(error) => {
                        errors::from_thrown(&ctx, error.as_object().as_value(), memory)
                    }
                    CaughtError::Value(value) => errors::from_thrown(&ctx, &value, memory),
                    CaughtError::Error(error) => errors::simple("Error", &error.to_string()),
                })
            })
            .await
    }

    /// Defines the JavaScript globals `input`, `tools` and `apis` of a program.
    async fn prepare(&self, script: &Script) -> Result<(), ProgramError> {
        let engine = self.engine;
        self.with(|ctx| {
            let prelude = engine.prelude.clone().restore(ctx)?;
            let input = match &script.input {
                Some(json) => ctx.json_parse(json.as_str())?,
                None => Value::new_undefined(ctx.clone()),
            };
            prelude.get::<_, Function<'_>>("input")?.call::<_, ()>((input,))?;
            let functions: Vec<Vec<&str>> = script
                .tools
                .iter()
                .map(|tool| vec![tool.server.as_str(), &tool.function, &tool.tool])
                .collect();
            prelude.get::<_, Function<'_>>("tools")?.call::<_, ()>((functions,))
        })
        .await?;
        let clients = self.with(|ctx| Ok(Persistent::save(ctx, Object::new(ctx.clone())?))).await?;
        for api in &script.apis {
            // Clients that the program does not mention are defined as `undefined`.
            let client: PersistentValue = if self
                .used_clients(script)
                .is_none_or(|names| names.contains(api.name.as_str()))
            {
                let specifier = api.specifier.as_str();
                let loading = self
                    .with(|ctx| Ok(Persistent::save(ctx, Module::import(ctx, specifier)?)))
                    .await?;
                self.drive::<PersistentValue>(&loading, |_| true).await?
            } else {
                self.with(|ctx| Ok(Persistent::save(ctx, Value::new_undefined(ctx.clone()))))
                    .await?
            };
            let clients = clients.clone();
            self.with(|ctx| {
                let module = client.restore(ctx)?;
                let client = match module.as_object() {
                    Some(module) => module.get("default")?,
                    None => module,
                };
                clients.restore(ctx)?.set::<_, Value<'_>>(api.name.as_str(), client)
            })
            .await?;
        }
        self.with(|ctx| {
            let prelude = engine.prelude.clone().restore(ctx)?;
            prelude.get::<_, Function<'_>>("apis")?.call::<_, ()>((clients.restore(ctx)?,))
        })
        .await
    }

    /// Returns the names of the API clients that the program and its modules mention as
    /// `apis.NAME`.
    ///
    /// Returns `None` if `apis` is used in another way, so that all clients may be needed. Clients can be
    /// large, and most programs need one or two.
    fn used_clients<'s>(&self, script: &'s Script) -> Option<BTreeSet<&'s str>> {
        let sources = self.engine.host.sources.borrow();
        let mut names = BTreeSet::new();
        for text in sources.texts().chain([script.code.as_str()]) {
            for (at, word) in text.match_indices("apis") {
                let rest = text.get(at + word.len()..).unwrap_or_default();
                let rest = rest.strip_prefix('.')?;
                let named = script.apis.iter().find(|api| {
                    rest.strip_prefix(api.name.as_str()).is_some_and(|rest| {
                        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$')
                    })
                });
                names.extend(named.map(|api| api.name.as_str()));
            }
        }
        Some(names)
    }

    /// Runs the event loop until a promise is settled with a value that `is_final` accepts, or until the
    /// promise is settled and nothing is pending.
    async fn drive<T>(
        &self,
        outcome: &Outcome,
        is_final: impl Fn(&T) -> bool,
    ) -> Result<T, ProgramError>
    where
        T: for<'js> rquickjs::FromJs<'js>,
    {
        let host = &self.engine.host;
        loop {
            while self.step().await? {}
            let failed = std::mem::take(&mut *host.rejected.borrow_mut());
            let mut state = self.with(|ctx| poll_result(ctx, outcome.clone(), failed)).await?;
            if let Some(value) = state.take_if(|value| is_final(value)) {
                return Ok(value);
            }
            let due = host.timers.borrow_mut().take_due(Instant::now());
            if let Some(id) = due {
                self.with(|ctx| fire(ctx, self.engine, id)).await?;
                continue;
            }
            let (timer, held) = {
                let timers = host.timers.borrow();
                (timers.next(), timers.keep_alive() || host.alive.is_held())
            };
            match state.take() {
                Some(value) if !held => return Ok(value),
                Some(_) => {}
                None if timer.is_none() && !self.engine.runtime.is_job_pending().await => {
                    let message =
                        "the program waits for a promise that can never settle: nothing is pending";
                    return Err(errors::simple("Error", message));
                }
                None => {}
            }
            match timer {
                Some(at) => {
                    // Ends at a timer or a wake-up. The next round of the loop checks both.
                    drop(tokio::time::timeout_at(at.into(), wait_for_wake()).await);
                }
                None => wait_for_wake().await,
            }
        }
    }

    /// Runs one pending job of the JavaScript engine; returns false if there is none. Returns false
    /// if there is none.
    async fn step(&self) -> Result<bool, ProgramError> {
        match self.engine.runtime.execute_pending_job().await {
            Ok(more) => Ok(more),
            Err(job) => {
                Err(job.0.with(|ctx| errors::from_thrown(&ctx, &ctx.catch(), self.memory)).await)
            }
        }
    }
}

/// Waits until a native future that the last step polled can continue.
async fn wait_for_wake() {
    let mut polled = false;
    poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Returns the result of the program if its promise is settled, or throws an unhandled rejection.
fn poll_result<T>(
    ctx: &Ctx<'_>,
    outcome: Outcome,
    failed: Vec<(PersistentValue, PersistentValue)>,
) -> rquickjs::Result<Option<T>>
where
    T: for<'js> rquickjs::FromJs<'js>,
{
    let outcome = outcome.restore(ctx)?;
    // An error of the program itself takes precedence over unhandled rejections.
    let failed =
        if outcome.state() == PromiseState::Rejected { None } else { failed.into_iter().next() };
    if let Some((_, reason)) = failed {
        return Err(ctx.throw(reason.restore(ctx)?));
    }
    outcome.result::<T>().transpose()
}

fn fire(ctx: &Ctx<'_>, engine: &Engine, id: u32) -> rquickjs::Result<()> {
    let prelude: Object<'_> = engine.prelude.clone().restore(ctx)?;
    prelude.get::<_, Function<'_>>("fire")?.call((id,))
}
