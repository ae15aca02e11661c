//! One context of the engine with the web platform in it, and nothing else.

use std::net::{IpAddr, Ipv4Addr};

use belljar_worker::runtime::alive::Alive;
use belljar_worker::runtime::web::{self, Options};
use rquickjs::{AsyncContext, AsyncRuntime, CatchResultExt as _, Promise};
use serde_json::Value;

/// Evaluates the body of an asynchronous function; gives what it returns, as JSON, or what it throws.
pub(crate) fn run(body: &str) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let given = runtime.block_on(async {
        let engine = AsyncRuntime::new().unwrap();
        let context = AsyncContext::full(&engine).await.unwrap();
        let script = format!(
            "(async () => {{ {body}\n }})().then((it) => JSON.stringify(it) ?? 'null', \
             (error) => '!' + error.name + ': ' + error.message)"
        );
        context
            .async_with(async |ctx| {
                let options =
                    Options { door: IpAddr::V4(Ipv4Addr::LOCALHOST), alive: Alive::default() };
                web::install(&ctx, &options).catch(&ctx).map_err(|error| error.to_string())?;
                let promise: Promise<'_> =
                    ctx.eval(script).catch(&ctx).map_err(|error| error.to_string())?;
                let given = promise.into_future::<String>().await;
                given.catch(&ctx).map_err(|error| error.to_string())
            })
            .await
    })?;
    match given.strip_prefix('!') {
        Some(error) => Err(error.to_owned()),
        None => Ok(serde_json::from_str(&given).unwrap()),
    }
}

/// The same, for what must not throw.
#[track_caller]
pub(crate) fn give(body: &str) -> Value {
    run(body).unwrap_or_else(|error| panic!("{error}\nin: {body}"))
}

/// Each expression with what it must give, as JSON; an error is told as `!Name: …` up to its length.
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
    let given = give(&format!("return await Promise.all([{}])", list.join(",\n")));
    let mut wrong = String::new();
    for ((code, expected), given) in cases.iter().zip(given.as_array().unwrap()) {
        let given = given.as_str().unwrap();
        let fits = match expected.strip_prefix('!') {
            Some(_) => given.starts_with(expected),
            None => given == *expected,
        };
        if !fits {
            wrong += &format!("{code}\n  gives {given}\n  not   {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
