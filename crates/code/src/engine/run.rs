//! Runs one program to its end.
//!
//! The loop is ours: first all that can go on goes on, then one timer, then it waits. So timers fire in
//! their order, a promise that failed is noticed once nobody can ask it any more, and a program ends
//! when nothing it waits for is left.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use rquickjs::promise::PromiseState;
use rquickjs::{Ctx, Function, Module, Object, Persistent, Promise, Value};
use serde_json::value::RawValue;

use crate::wire::{Done, Script, Trouble};

use super::context::Engine;
use super::trouble;

pub(super) async fn script(engine: &Engine, script: Script) -> Done {
    match value(engine, script).await {
        Ok(value) => Done { value, trouble: None },
        Err(trouble) => Done { value: None, trouble: Some(trouble) },
    }
}

async fn value(engine: &Engine, script: Script) -> Result<Option<Box<RawValue>>, Trouble> {
    let memory = usize::try_from(script.memory).unwrap_or(usize::MAX);
    engine.runtime.set_memory_limit(memory).await;
    let outcome = engine
        .context
        .with(|ctx| {
            let begun = begin(&ctx, engine, &script);
            begun.map_err(|error| told(&ctx, &error))
        })
        .await?;
    let json = drive(engine, outcome).await?;
    json.map(RawValue::from_string)
        .transpose()
        .map_err(|error| trouble::plain("Error", &error.to_string()))
}

type Outcome = Persistent<Promise<'static>>;

/// Starts the program; what it gives is promised.
fn begin(ctx: &Ctx<'_>, engine: &Engine, script: &Script) -> rquickjs::Result<Outcome> {
    let prelude = engine.prelude.clone().restore(ctx)?;
    let input = match &script.input {
        Some(json) => ctx.json_parse(json.as_str())?,
        None => Value::new_undefined(ctx.clone()),
    };
    ctx.globals().set("input", input)?;
    let module = Module::declare(ctx.clone(), script.file.as_str(), script.code.as_str())?;
    let (module, evaluated) = module.eval()?;
    let outcome: Function<'_> = prelude.get("outcome")?;
    let promise: Promise<'_> = outcome.call((evaluated, module.namespace()?, module.meta()?))?;
    Ok(Persistent::save(ctx, promise))
}

async fn drive(engine: &Engine, outcome: Outcome) -> Result<Option<String>, Trouble> {
    loop {
        while step(engine).await? {}
        let failed = engine.host.rejected.borrow_mut().pop();
        let state = engine.context.with(|ctx| look(&ctx, outcome.clone(), failed)).await?;
        let now = Instant::now();
        let due = engine.host.timers.borrow_mut().take_due(now);
        if let Some(id) = due {
            engine.context.with(|ctx| fire(&ctx, engine, id)).await?;
            continue;
        }
        let timer = engine.host.timers.borrow().next();
        match state {
            Some(json) if timer.is_none() && !engine.host.alive.is_held() => return Ok(json),
            Some(_) => {}
            None if timer.is_none() && !engine.runtime.is_job_pending().await => {
                let message = "the program waits for a promise that nothing is left to settle";
                return Err(trouble::plain("Error", message));
            }
            None => {}
        }
        match timer {
            Some(at) => {
                // Whichever comes first; the loop looks for itself.
                drop(tokio::time::timeout_at(at.into(), woken()).await);
            }
            None => woken().await,
        }
    }
}

/// Does one thing that can be done now; false when there is none.
async fn step(engine: &Engine) -> Result<bool, Trouble> {
    match engine.runtime.execute_pending_job().await {
        Ok(more) => Ok(more),
        Err(job) => Err(job.0.with(|ctx| trouble::of(&ctx.catch())).await),
    }
}

/// Waits until one of the futures of the engine, which the last step asked, can go on.
async fn woken() {
    let mut asked = false;
    poll_fn(|_| if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// What the program gave, when it is known.
fn look(
    ctx: &Ctx<'_>,
    outcome: Outcome,
    failed: Option<(super::host::Kept, super::host::Kept)>,
) -> Result<Option<Option<String>>, Trouble> {
    let looked = || {
        let outcome = outcome.restore(ctx)?;
        if let Some((promise, reason)) = failed {
            let promise = promise.restore(ctx)?;
            if promise != *outcome.as_value() {
                return Err(ctx.throw(reason.restore(ctx)?));
            }
        }
        match outcome.state() {
            PromiseState::Pending => Ok(None),
            PromiseState::Resolved | PromiseState::Rejected => {
                outcome.result::<Option<String>>().transpose()
            }
        }
    };
    looked().map_err(|error| told(ctx, &error))
}

fn fire(ctx: &Ctx<'_>, engine: &Engine, id: u32) -> Result<(), Trouble> {
    let fired = || {
        let prelude: Object<'_> = engine.prelude.clone().restore(ctx)?;
        prelude.get::<_, Function<'_>>("fire")?.call::<_, ()>((id,))
    };
    fired().map_err(|error| told(ctx, &error))
}

fn told(ctx: &Ctx<'_>, error: &rquickjs::Error) -> Trouble {
    if error.is_exception() {
        trouble::of(&ctx.catch())
    } else {
        trouble::plain("Error", &error.to_string())
    }
}
