//! The web platform: what programs for browsers, Deno and Node find as globals.
//!
//! Every part is JavaScript over a few native functions, and is evaluated when a program first names one
//! of its globals: most programs use few of them, and each waits for the start.

#![expect(
    clippy::needless_pass_by_value,
    reason = "functions of the engine own what they are given"
)]

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

use super::alive::Alive;

/// How the platform reaches the rest.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the broker listens.
    pub door: IpAddr,
    /// Is held while something is fetched.
    pub alive: Alive,
}

/// Defines the globals.
pub fn install<'js>(ctx: &Ctx<'js>, options: &Options) -> Result<()> {
    let natives = native(ctx)?;
    fetch::natives(ctx, &natives, options)?;
    urls::natives(&natives)?;
    zones::natives(&natives)?;
    natives.set("load", Function::new(ctx.clone(), part)?)?;
    let prelude: Function<'js> = evaluate(ctx, "prelude", include_str!("web/prelude.js"))?;
    prelude.call((natives, ctx.globals()))
}

/// Evaluates what programs use most, for a context that has nothing else to do yet.
pub fn warm(ctx: &Ctx<'_>) -> Result<()> {
    ctx.eval("void [fetch, URL, TextDecoder, AbortController, crypto]")
}

/// Functions for what else is written in JavaScript here: hashes, random bytes, encodings.
pub fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    native::natives(ctx, &natives)?;
    text::natives(&natives)?;
    Ok(natives)
}

/// A part of the platform: a function of the natives and of what finds other parts.
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
