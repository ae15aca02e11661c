//! Functions that the engine's own JavaScript calls.

#![expect(clippy::needless_pass_by_value, reason = "this is how the engine calls functions")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::function::{Async, Func};
use rquickjs::promise::PromiseState;
use rquickjs::{Array, Ctx, Exception, Function, IntoJs, Object, Promise, Result, Value};

use belljar_wire::{ProgramResult, Stream};

use super::calls::Calls;
use super::host::Host;
use super::{builtin, files, leave, modules, trouble, web};

pub(super) fn natives<'js>(ctx: &Ctx<'js>, host: &Rc<Host>) -> Result<Object<'js>> {
    let natives = web::native(ctx)?;
    output(ctx, host, &natives)?;
    timers(ctx, host, &natives)?;
    process(ctx, host, &natives)?;
    files::natives(ctx, &natives)?;
    natives.set("factory", Function::new(ctx.clone(), builtin::factory)?)?;
    natives.set("builtins", Func::from(builtin::names))?;
    let shared = Rc::clone(host);
    let resolve =
        move |ctx: Ctx<'js>, name: String| modules::resolve_built_in(&ctx, &shared, &name);
    natives.set("resolveBuiltin", Function::new(ctx.clone(), resolve)?)?;
    natives.set("promise", Function::new(ctx.clone(), promise)?)?;
    let calls = Calls::new(Rc::clone(host));
    let call = move |ctx: Ctx<'js>, server: String, tool: String, input: String| {
        let answer = calls.call(server, tool, input);
        async move { answer.await.map_err(|message| Exception::throw_message(&ctx, &message)) }
    };
    natives.set("call", Function::new(ctx.clone(), Async(call))?)?;
    Ok(natives)
}

fn output<'js>(ctx: &Ctx<'js>, host: &Rc<Host>, natives: &Object<'js>) -> Result<()> {
    let shared = Rc::clone(host);
    let write = move |error: bool, text: String| {
        let stream = if error { Stream::Stderr } else { Stream::Stdout };
        // Who does not listen is told nothing.
        drop(shared.output(stream, &text));
    };
    natives.set("write", Function::new(ctx.clone(), write)?)?;
    let shared = Rc::clone(host);
    let stack = move |stack: String| trouble::own_frames(&shared, &stack);
    natives.set("stack", Function::new(ctx.clone(), stack)?)
}

fn timers<'js>(ctx: &Ctx<'js>, host: &Rc<Host>, natives: &Object<'js>) -> Result<()> {
    let shared = Rc::clone(host);
    let start = move |id: u32, delay: f64| {
        let delay = Duration::try_from_secs_f64(delay / 1000.0).unwrap_or_default();
        shared.timers.borrow_mut().start(id, delay);
    };
    natives.set("startTimer", Function::new(ctx.clone(), start)?)?;
    let shared = Rc::clone(host);
    let stop = move |id: u32| shared.timers.borrow_mut().stop(id);
    natives.set("stopTimer", Function::new(ctx.clone(), stop)?)?;
    let shared = Rc::clone(host);
    let refer = move |id: u32, holds: bool| shared.timers.borrow_mut().refer(id, holds);
    natives.set("refTimer", Function::new(ctx.clone(), refer)?)?;
    let shared = Rc::clone(host);
    let refers = move |id: u32| shared.timers.borrow().refers(id);
    natives.set("hasRefTimer", Function::new(ctx.clone(), refers)?)
}

fn process<'js>(ctx: &Ctx<'js>, host: &Rc<Host>, natives: &Object<'js>) -> Result<()> {
    let begun = Instant::now();
    // From nought and never backward.
    let now = move || begun.elapsed().as_secs_f64() * 1000.0;
    natives.set("now", Function::new(ctx.clone(), now)?)?;
    let shared = Rc::clone(host);
    let env = move |ctx: Ctx<'js>| -> Result<Object<'js>> {
        let env = Object::new(ctx)?;
        for (name, value) in &shared.env {
            env.set(name.as_str(), value.as_str())?;
        }
        Ok(env)
    };
    natives.set("env", Function::new(ctx.clone(), env)?)?;
    let shared = Rc::clone(host);
    let exit = move |code: i32| -> () {
        let message = format!("the program ended itself with code {code}");
        let trouble = (code != 0).then(|| trouble::plain("Exit", &message));
        leave(&shared, ProgramResult { value: None, trouble });
    };
    natives.set("exit", Function::new(ctx.clone(), exit)?)?;
    natives.set("arch", if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" })?;
    natives.set("version", env!("CARGO_PKG_VERSION"))?;
    natives.set("memory", Func::from(|| resident().unwrap_or_default()))
}

/// Bytes that the process has in memory.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// How it stands with a promise: `pending`, or what came of it.
fn promise<'js>(ctx: Ctx<'js>, promise: Promise<'js>) -> Result<Array<'js>> {
    let told = Array::new(ctx.clone())?;
    let (kind, value) = match promise.state() {
        PromiseState::Pending => ("pending", Value::new_undefined(ctx.clone())),
        PromiseState::Resolved => {
            let value = promise.result::<Value<'js>>();
            ("resolved", value.unwrap_or_else(|| Ok(Value::new_undefined(ctx.clone())))?)
        }
        PromiseState::Rejected => {
            // Asking for it throws it.
            drop(promise.result::<Value<'js>>());
            ("rejected", ctx.catch())
        }
    };
    told.set(0, kind.into_js(&ctx)?)?;
    told.set(1, value)?;
    Ok(told)
}
