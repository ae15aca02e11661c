//! The web platform: the globals that programs for browsers, Deno and Node expect.
//!
//! Every part is JavaScript with a few native functions. A part is evaluated when a program first
//! uses one of its globals, because most programs use few of them and start time matters.

#![expect(clippy::needless_pass_by_value, reason = "rquickjs passes arguments by value")]

mod binary;
mod bodies;
mod digest;
mod exchange;
mod fetch;
mod native;
mod text;
mod urls;
mod zones;

use std::net::IpAddr;

use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Function, Object, Result, Value};

pub use binary::Binary;

use super::alive::KeepAlive;

/// The settings of the web platform.
#[derive(Debug, Clone)]
pub struct Options {
    /// The IP address of the broker.
    pub broker: IpAddr,
    /// The counter that keeps the program running while a request is pending.
    pub alive: KeepAlive,
}

/// Defines the JavaScript globals of the web platform, such as `fetch` and `URL`.
pub fn install<'js>(ctx: &Ctx<'js>, options: &Options) -> Result<()> {
    let natives = native(ctx)?;
    fetch::natives(ctx, &natives, options)?;
    urls::natives(&natives)?;
    zones::natives(&natives)?;
    natives.set("load", Function::new(ctx.clone(), part)?)?;
    let prelude: Function<'js> = evaluate(ctx, "prelude", include_str!("web/prelude.js"))?;
    prelude.call((natives, ctx.globals()))
}

/// Evaluates the most used parts of the web platform in advance, while the worker waits for a job.
pub fn warm(ctx: &Ctx<'_>) -> Result<()> {
    ctx.eval("void [fetch, URL, TextDecoder, AbortController, crypto]")
}

/// Returns native functions for the JavaScript parts: hashes, random bytes, encodings.
pub fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    native::natives(ctx, &natives)?;
    text::natives(&natives)?;
    Ok(natives)
}

/// Evaluates one JavaScript part of the web platform. Returns `undefined` for an unknown name.
fn part<'js>(ctx: Ctx<'js>, name: String) -> Result<Value<'js>> {
    let source = match name.as_str() {
        "events" => include_str!("web/events.js"),
        "streams" => include_str!("web/streams.js"),
        "writable" => include_str!("web/writable.js"),
        "headers" => include_str!("web/headers.js"),
        "body" => include_str!("web/body.js"),
        "fetch" => include_str!("web/fetch.js"),
        "blob" => include_str!("web/blob.js"),
        "form" => include_str!("web/form.js"),
        "url" => include_str!("web/url.js"),
        "text" => include_str!("web/text.js"),
        "crypto" => include_str!("web/crypto.js"),
        "clone" => include_str!("web/clone.js"),
        "intl" => include_str!("web/intl.js"),
        "collate" => include_str!("web/collate.js"),
        "locales" => include_str!("web/locales.js"),
        "numbers" => include_str!("web/numbers.js"),
        "dates" => include_str!("web/dates.js"),
        "zones" => include_str!("web/zones.js"),
        "words" => include_str!("web/words.js"),
        "misc" => include_str!("web/misc.js"),
        _ => return Ok(Value::new_undefined(ctx)),
    };
    evaluate(&ctx, &name, source)
}

fn evaluate<'js, V: rquickjs::FromJs<'js>>(ctx: &Ctx<'js>, name: &str, source: &str) -> Result<V> {
    let mut options = EvalOptions::default();
    options.filename = Some(format!("belljar:{name}"));
    options.strict = true;
    ctx.eval_with_options(source, options)
}
