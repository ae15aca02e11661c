//! Native functions for the JavaScript parts of the runtime.

#![expect(clippy::needless_pass_by_value, reason = "rquickjs passes arguments by value")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::function::{Async, Func};
use rquickjs::promise::PromiseState;
use rquickjs::{Array, Ctx, Exception, Function, IntoJs, Object, Promise, Result, Value};

use belljar_wire::{ProgramResult, Stream};

use super::calls::Calls;
use super::host::Host;
use super::{builtin, errors, files, finish, modules, web};

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
        // The host closed the connection, so the output is lost.
        drop(shared.output(stream, &text));
    };
    natives.set("write", Function::new(ctx.clone(), write)?)?;
    let shared = Rc::clone(host);
    let stack = move |stack: String| errors::own_frames(&shared, &stack);
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
    let set_ref = move |id: u32, holds: bool| shared.timers.borrow_mut().set_ref(id, holds);
    natives.set("refTimer", Function::new(ctx.clone(), set_ref)?)?;
    let shared = Rc::clone(host);
    let has_ref = move |id: u32| shared.timers.borrow().has_ref(id);
    natives.set("hasRefTimer", Function::new(ctx.clone(), has_ref)?)
}

fn process<'js>(ctx: &Ctx<'js>, host: &Rc<Host>, natives: &Object<'js>) -> Result<()> {
    let started = Instant::now();
    // Monotonic milliseconds since the start, for `performance.now()`.
    let now = move || started.elapsed().as_secs_f64() * 1000.0;
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
        let message = format!("the program exited with code {code}");
        let trouble = (code != 0).then(|| errors::simple("Exit", &message));
        finish(&shared, ProgramResult { value: None, trouble });
    };
    natives.set("exit", Function::new(ctx.clone(), exit)?)?;
    natives.set("arch", if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" })?;
    natives.set("version", env!("CARGO_PKG_VERSION"))?;
    natives.set("memory", Func::from(|| resident().unwrap_or_default()))
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Returns the state of a JavaScript promise and its value or reason, for `inspect`.
fn promise<'js>(ctx: Ctx<'js>, promise: Promise<'js>) -> Result<Array<'js>> {
    let pair = Array::new(ctx.clone())?;
    let (kind, value) = match promise.state() {
        PromiseState::Pending => ("pending", Value::new_undefined(ctx.clone())),
        PromiseState::Resolved => {
            let value = promise.result::<Value<'js>>();
            ("resolved", value.unwrap_or_else(|| Ok(Value::new_undefined(ctx.clone())))?)
        }
        PromiseState::Rejected => {
            // Reading the result of a rejected promise throws its reason.
            drop(promise.result::<Value<'js>>());
            ("rejected", ctx.catch())
        }
    };
    pair.set(0, kind.into_js(&ctx)?)?;
    pair.set(1, value)?;
    Ok(pair)
}
