//! A JavaScript context with only the web platform.

use std::net::{IpAddr, Ipv4Addr};

use belljar_worker::runtime::alive::KeepAlive;
use belljar_worker::runtime::web::{self, Options};
use rquickjs::{AsyncContext, AsyncRuntime, CatchResultExt as _, Promise};
use serde_json::Value;

/// Runs the body of an async JavaScript function and returns its value or its error. Returns its
/// result as JSON, or the thrown error.
pub(crate) fn run(body: &str) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let actual = runtime.block_on(async {
        let engine = AsyncRuntime::new().unwrap();
        let context = AsyncContext::full(&engine).await.unwrap();
        let script = format!(
            "(async () => {{ {body}\n }})().then((it) => JSON.stringify(it) ?? 'null', \
             (error) => '!' + error.name + ': ' + error.message)"
        );
        context
            .async_with(async |ctx| {
                let options = Options {
                    broker: IpAddr::V4(Ipv4Addr::LOCALHOST),
                    alive: KeepAlive::default(),
                };
                web::install(&ctx, &options).catch(&ctx).map_err(|error| error.to_string())?;
                let promise: Promise<'_> =
                    ctx.eval(script).catch(&ctx).map_err(|error| error.to_string())?;
                let actual = promise.into_future::<String>().await;
                actual.catch(&ctx).map_err(|error| error.to_string())
            })
            .await
    })?;
    match actual.strip_prefix('!') {
        Some(error) => Err(error.to_owned()),
        None => Ok(serde_json::from_str(&actual).unwrap()),
    }
}

/// Runs the body of an async JavaScript function that must not throw.
#[track_caller]
pub(crate) fn evaluate(body: &str) -> Value {
    run(body).unwrap_or_else(|error| panic!("{error}\nin: {body}"))
}

/// Checks that each JavaScript expression has the expected value as JSON. `!Name: …` is the start
/// of an expected error.
#[track_caller]
pub(crate) fn check(cases: &[(&str, &str)]) {
    let list: Vec<String> = cases
        .iter()
        .map(|(code, _)| {
            format!(
                "(async () => {{ try {{ return JSON.stringify(await ({code})) ?? 'undefined' }} \
                 catch (error) {{ return '!' + error.name + ': ' + error.message }} }})()"
            )
        })
        .collect();
    let actual = evaluate(&format!("return await Promise.all([{}])", list.join(",\n")));
    let mut wrong = String::new();
    for ((code, expected), actual) in cases.iter().zip(actual.as_array().unwrap()) {
        let actual = actual.as_str().unwrap();
        let matches = match expected.strip_prefix('!') {
            Some(_) => actual.starts_with(expected),
            None => actual == *expected,
        };
        if !matches {
            wrong += &format!("{code}\n  gives {actual}\n  not   {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
