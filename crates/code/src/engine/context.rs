//! Makes the one context in which a program runs.

use std::rc::Rc;
use std::time::Duration;

use rquickjs::{AsyncContext, AsyncRuntime, Ctx, Function, Object, Persistent, Result};

use crate::wire::Stream;

use super::host::Host;
use super::{DOOR, web};

/// Of the stack of the thread; the rest is for what the engine calls.
const STACK: usize = 64 << 20;

pub(super) struct Engine {
    pub(super) runtime: AsyncRuntime,
    pub(super) context: AsyncContext,
    pub(super) host: Rc<Host>,
    /// What the prelude gives the loop.
    pub(super) prelude: Persistent<Object<'static>>,
}

impl Engine {
    pub(super) async fn new(host: Rc<Host>) -> Result<Self> {
        let runtime = AsyncRuntime::new()?;
        runtime.set_max_stack_size(STACK).await;
        let shared = Rc::clone(&host);
        runtime
            .set_host_promise_rejection_tracker(Some(Box::new(
                move |ctx, promise, reason, handled| {
                    let promise = Persistent::save(&ctx, promise);
                    let mut rejected = shared.rejected.borrow_mut();
                    if handled {
                        rejected.retain(|(known, _)| *known != promise);
                    } else {
                        rejected.push((promise, Persistent::save(&ctx, reason)));
                    }
                },
            )))
            .await;
        let context = AsyncContext::full(&runtime).await?;
        let shared = Rc::clone(&host);
        let prelude = context.with(|ctx| set_up(&ctx, &shared)).await?;
        Ok(Self { runtime, context, host, prelude })
    }
}

fn set_up(ctx: &Ctx<'_>, host: &Rc<Host>) -> Result<Persistent<Object<'static>>> {
    web::install(ctx, &web::Options { door: DOOR, alive: host.alive.clone() })?;
    let make: Function<'_> = ctx.eval(include_str!("js/prelude.js"))?;
    let prelude: Object<'_> = make.call((natives(ctx, host)?,))?;
    Ok(Persistent::save(ctx, prelude))
}

fn natives<'js>(ctx: &Ctx<'js>, host: &Rc<Host>) -> Result<Object<'js>> {
    let natives = web::native(ctx)?;
    let shared = Rc::clone(host);
    let write = move |error: bool, text: String| {
        let stream = if error { Stream::Stderr } else { Stream::Stdout };
        // Who does not listen is told nothing.
        drop(shared.output(stream, &text));
    };
    natives.set("write", Function::new(ctx.clone(), write)?)?;
    let shared = Rc::clone(host);
    let start = move |id: u32, delay: f64| {
        // What is not a number, or too large for one, is no delay at all, as everywhere.
        let delay = Duration::try_from_secs_f64(delay / 1000.0).unwrap_or_default();
        shared.timers.borrow_mut().start(id, delay);
    };
    natives.set("startTimer", Function::new(ctx.clone(), start)?)?;
    let shared = Rc::clone(host);
    let stop = move |id: u32| shared.timers.borrow_mut().stop(id);
    natives.set("stopTimer", Function::new(ctx.clone(), stop)?)?;
    Ok(natives)
}
