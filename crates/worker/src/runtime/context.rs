//! Creates the JavaScript context in which a program runs.

use std::rc::Rc;

use rquickjs::{AsyncContext, AsyncRuntime, Ctx, Object, Persistent, Result};

use super::host::Host;
use super::modules::Modules;
use super::{BROKER, builtin, natives, web};

/// The stack limit of JavaScript code in bytes. The rest of the thread's stack is for native
/// functions.
///
/// QuickJS treats a larger value as no limit.
const STACK: usize = 16 << 20;

/// The JavaScript engine with one context.
pub(super) struct Engine {
    pub(super) runtime: AsyncRuntime,
    pub(super) context: AsyncContext,
    pub(super) host: Rc<Host>,
    /// The JavaScript functions of the prelude that the event loop calls.
    pub(super) prelude: Persistent<Object<'static>>,
}

impl Engine {
    pub(super) async fn new(host: Rc<Host>) -> Result<Self> {
        let runtime = AsyncRuntime::new()?;
        runtime.set_max_stack_size(STACK).await;
        let modules = Modules(Rc::clone(&host));
        runtime.set_loader(modules.clone(), modules).await;
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
        *host.prelude.borrow_mut() = Some(prelude.clone());
        Ok(Self { runtime, context, host, prelude })
    }
}

fn set_up(ctx: &Ctx<'_>, host: &Rc<Host>) -> Result<Persistent<Object<'static>>> {
    web::install(ctx, &web::Options { broker: BROKER, alive: host.alive.clone() })?;
    let make = builtin::evaluate(ctx, "internal:prelude", include_str!("js/prelude.js"))?;
    let prelude: Object<'_> = make.call((natives::natives(ctx, host)?,))?;
    Ok(Persistent::save(ctx, prelude))
}
