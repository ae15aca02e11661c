//! What is built in: the modules of Node that programs use most, and the engine's own parts.
//!
//! Each is a JavaScript function that makes its exports when somebody first asks for them.

#![expect(clippy::needless_pass_by_value, reason = "this is how the engine calls functions")]

use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Function, Result};

macro_rules! sources {
    ($($name:literal => $file:literal,)*) => {
        /// The text of a part, by its full name.
        fn source(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("js/", $file))),)*
                _ => None,
            }
        }

        const NAMES: &[&str] = &[$($name),*];
    };
}

sources! {
    "internal:console" => "console.js",
    "internal:deno" => "deno.js",
    "internal:equal" => "equal.js",
    "internal:files" => "files.js",
    "internal:inspect" => "inspect.js",
    "internal:result" => "result.js",
    "internal:timers" => "timers.js",
    "internal:tools" => "tools.js",
    "internal:small" => "node/small.js",
    "belljar:fs" => "node/belljar-fs.js",
    "node:assert" => "node/assert.js",
    "node:assert/strict" => "node/assert-strict.js",
    "node:buffer" => "node/buffer.js",
    "node:crypto" => "node/crypto.js",
    "node:events" => "node/events.js",
    "node:fs" => "node/fs.js",
    "node:fs/promises" => "node/fs-promises.js",
    "node:os" => "node/os.js",
    "node:path" => "node/path.js",
    "node:process" => "node/process.js",
    "node:querystring" => "node/querystring.js",
    "node:timers" => "node/timers.js",
    "node:timers/promises" => "node/timers-promises.js",
    "node:url" => "node/url.js",
    "node:util" => "node/util.js",
}

/// Modules of a line or two, all in one file.
const SMALL: [&str; 6] = [
    "node:console",
    "node:module",
    "node:perf_hooks",
    "node:stream/web",
    "node:string_decoder",
    "node:util/types",
];

/// The full name of a module that is built in.
pub(super) fn resolve(name: &str) -> Option<String> {
    let full = match name {
        // Plain `fs` speaks as Node and as Deno.
        "fs" | "belljar:fs" => "belljar:fs".to_owned(),
        "path/posix" | "node:path/posix" => "node:path".to_owned(),
        "sys" => "node:util".to_owned(),
        _ if name.starts_with("node:") => name.to_owned(),
        _ => format!("node:{name}"),
    };
    let known = NAMES.contains(&full.as_str()) || SMALL.contains(&full.as_str());
    known.then_some(full)
}

/// What can be imported, for messages.
pub(super) fn names() -> Vec<String> {
    let all = NAMES.iter().chain(&SMALL).filter(|name| !name.starts_with("internal:"));
    let mut names: Vec<String> =
        all.map(|name| name.strip_prefix("node:").unwrap_or(name).to_owned()).collect();
    names.sort();
    names
}

/// The function that makes a part.
pub(super) fn factory<'js>(ctx: Ctx<'js>, name: String) -> Result<Function<'js>> {
    if let Some(small) = name.strip_prefix("node:").filter(|_| SMALL.contains(&name.as_str())) {
        let code = format!("(load, native) => load(\"internal:small\")[{small:?}]()");
        return evaluate(&ctx, &name, &code);
    }
    let code = source(&name).ok_or_else(|| rquickjs::Error::new_loading(&name))?;
    evaluate(&ctx, &name, code)
}

/// Runs a text of our own, under a name that no frame of a program has.
pub(super) fn evaluate<'js>(ctx: &Ctx<'js>, name: &str, code: &str) -> Result<Function<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some(format!("belljar:{name}"));
    ctx.eval_with_options(code, options)
}

/// What to use in place of a module that is not there.
pub(super) fn instead(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("node:").or_else(|| name.strip_prefix("npm:")).unwrap_or(name);
    let bare =
        bare.split_once('@').map_or(bare, |(head, _)| if head.is_empty() { bare } else { head });
    Some(match bare {
        "node-fetch" | "axios" | "got" | "undici" | "ky" | "superagent" | "request"
        | "cross-fetch" | "isomorphic-fetch" | "http" | "https" | "http2" => {
            "`fetch` is there already"
        }
        "child_process" | "execa" | "shelljs" | "zx" | "cluster" | "worker_threads" => {
            "programs run with the tool run_command"
        }
        "net" | "tls" | "dgram" | "dns" | "ws" => "`fetch` is the way out",
        "uuid" | "nanoid" => "use crypto.randomUUID()",
        "dotenv" => "use process.env",
        "lodash" | "underscore" | "ramda" => {
            "use the methods of Array and Object (Object.groupBy, structuredClone, …)"
        }
        "moment" | "dayjs" | "date-fns" | "luxon" => "use Date and Intl",
        "fs-extra" | "graceful-fs" | "glob" | "globby" | "fast-glob" | "rimraf" | "mkdirp" => {
            "use `fs` (glob, walk, mkdir and rm with recursive)"
        }
        "stream" | "stream/promises" | "readline" | "zlib" => {
            "use ReadableStream and TransformStream, or read the file whole with `fs`"
        }
        "chalk" | "kleur" | "picocolors" => "write plain text",
        "express" | "koa" | "fastify" | "hono" => "nothing here can be reached from outside",
        "sqlite" | "better-sqlite3" | "bun:sqlite" | "pg" | "mysql2" | "mongodb" | "redis" => {
            "reach the service by fetch, or run its client with the tool run_command"
        }
        "test" | "vitest" | "jest" | "mocha" => "use `assert` and call your functions",
        "async_hooks" | "vm" | "v8" | "inspector" | "diagnostics_channel" | "repl" => {
            "there is nothing like it here"
        }
        _ => return None,
    })
}
