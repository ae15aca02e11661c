//! Built-in modules: the Node modules that programs use most, and internal parts of the runtime.
//!
//! Each module is a JavaScript function that creates its exports on first use.

#![expect(clippy::needless_pass_by_value, reason = "rquickjs passes arguments by value")]

use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Function, Result};

macro_rules! sources {
    ($($name:literal => $file:literal,)*) => {
        /// Returns the source text of a built-in module by its full name.
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

/// The names of very short built-in modules that share one file.
const SMALL: [&str; 6] = [
    "node:console",
    "node:module",
    "node:perf_hooks",
    "node:stream/web",
    "node:string_decoder",
    "node:util/types",
];

/// Returns the full name of a built-in module, or `None` if the module is not built in.
pub(super) fn resolve(name: &str) -> Option<String> {
    let full = match name {
        // `fs` without a prefix has the functions of both Node and Deno.
        "fs" | "belljar:fs" => "belljar:fs".to_owned(),
        "path/posix" | "node:path/posix" => "node:path".to_owned(),
        "sys" => "node:util".to_owned(),
        _ if name.starts_with("node:") => name.to_owned(),
        _ => format!("node:{name}"),
    };
    let known = NAMES.contains(&full.as_str()) || SMALL.contains(&full.as_str());
    known.then_some(full)
}

/// Returns the names of all importable modules, for error messages.
pub(super) fn names() -> Vec<String> {
    let all = NAMES.iter().chain(&SMALL).filter(|name| !name.starts_with("internal:"));
    let mut names: Vec<String> =
        all.map(|name| name.strip_prefix("node:").unwrap_or(name).to_owned()).collect();
    names.sort();
    names
}

/// Returns the JavaScript function that creates the exports of a built-in module.
pub(super) fn factory<'js>(ctx: Ctx<'js>, name: String) -> Result<Function<'js>> {
    if let Some(small) = name.strip_prefix("node:").filter(|_| SMALL.contains(&name.as_str())) {
        let code = format!("(load, native) => load(\"internal:small\")[{small:?}]()");
        return evaluate(&ctx, &name, &code);
    }
    let code = source(&name).ok_or_else(|| rquickjs::Error::new_loading(&name))?;
    evaluate(&ctx, &name, code)
}

/// Evaluates JavaScript code of the runtime itself and returns its function. Its file name starts
/// with `belljar:`, which hides it from stacks.
pub(super) fn evaluate<'js>(ctx: &Ctx<'js>, name: &str, code: &str) -> Result<Function<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some(format!("belljar:{name}"));
    ctx.eval_with_options(code, options)
}

/// Returns what a program can use instead of a module that is not built in.
pub(super) fn instead(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("node:").or_else(|| name.strip_prefix("npm:")).unwrap_or(name);
    let bare =
        bare.split_once('@').map_or(bare, |(head, _)| if head.is_empty() { bare } else { head });
    Some(match bare {
        "node-fetch" | "axios" | "got" | "undici" | "ky" | "superagent" | "request"
        | "cross-fetch" | "isomorphic-fetch" | "http" | "https" | "http2" => {
            "use the built-in `fetch`"
        }
        "child_process" | "execa" | "shelljs" | "zx" | "cluster" | "worker_threads" => {
            "use the tool run_command to run programs"
        }
        "net" | "tls" | "dgram" | "dns" | "ws" => "use `fetch` for network access",
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
        "express" | "koa" | "fastify" | "hono" => "servers cannot be reached from outside the box",
        "sqlite" | "better-sqlite3" | "bun:sqlite" | "pg" | "mysql2" | "mongodb" | "redis" => {
            "reach the service by fetch, or run its client with the tool run_command"
        }
        "test" | "vitest" | "jest" | "mocha" => "use `assert` and call your functions",
        "async_hooks" | "vm" | "v8" | "inspector" | "diagnostics_channel" | "repl" => {
            "no equivalent is available here"
        }
        _ => return None,
    })
}
