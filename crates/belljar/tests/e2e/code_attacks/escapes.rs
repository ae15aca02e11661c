//! Attempts to escape from the JavaScript engine of the worker with techniques known from other engines.

use serde_json::json;

use super::*;

/// JavaScript sandbox escapes. The program returns the objects that the escapes reached, by name.
const ESCAPES: &str = r#"
const escapes = {
  constructor: () => (() => {}).constructor("return process")().mainModule.require("child_process"),
  indirect: () => (0, eval)("process.binding('spawn_sync')"),
  async: async () => (async () => {}).constructor("return import('child_process')")(),
  generator: () => (function* () {}).constructor("return process.dlopen")().next().value({ exports: {} }, "/lib/x86_64-linux-gnu/libc.so.6"),
  species: async () => {
    let host;
    class Stolen extends Promise { constructor(run) { super((yes, no) => { host = [yes, no]; run(yes, no); }); } }
    const pending = fetch("data:,x");
    Object.defineProperty(pending, "constructor", { value: { [Symbol.species]: Stolen } });
    await pending.then(() => 1, () => 1);
    return host[0].constructor("return process")().mainModule.require("fs");
  },
  prepare: () => {
    Error.prepareStackTrace = (error, frames) => frames;
    const frames = new Error("x").stack;
    delete Error.prepareStackTrace;
    return frames[0].getThis().process.mainModule.require("child_process");
  },
  callsite: () => Error.captureStackTrace({}) ?? new Error().stack.at(-1).getFunction().constructor("return require")()("child_process"),
  unscopables: () => { with_ = Array.prototype[Symbol.unscopables]; return with_.constructor.constructor("return std")(); },
  proxied: () => {
    let reached;
    const trap = new Proxy({}, { get: (_, key, receiver) => { reached ??= receiver; throw new Proxy({}, { getPrototypeOf: () => reached }); } });
    try { console.log(trap); } catch {}
    try { structuredClone(trap); } catch {}
    try { new URL(trap); } catch {}
    return reached.constructor.constructor("return std.popen('id', 'r')")();
  },
  getter: () => { const o = { get [Symbol.toStringTag]() { return arguments.callee.caller; } }; return console.log.call(o, o) ?? os.exec(["id"]); },
  std: async () => (await import("std")).popen("id", "r"),
  os: async () => (await import("os")).exec(["id"]),
  qjs: async () => (await import("qjs:std")).loadFile("/etc/passwd"),
  native: async () => (await import("/usr/lib/x86_64-linux-gnu/libc.so.6")),
  child: async () => (await import("node:child_process")).execSync("id").toString(),
  required: () => require("child_process").spawnSync("id"),
  worker: async () => new (await import("node:worker_threads")).Worker("1", { eval: true }),
  vm: async () => (await import("node:vm")).runInThisContext("process"),
  inspector: async () => (await import("node:inspector")).open(),
  ffi: () => Deno.dlopen("/lib/x86_64-linux-gnu/libc.so.6", { system: { parameters: ["pointer"], result: "i32" } }),
  command: async () => (await new Deno.Command("id").output()).stdout,
  run: () => Deno.run({ cmd: ["id"] }),
  internal: () => Deno[Deno.internal].core.ops.op_spawn(),
  bun: () => Bun.spawnSync(["id"]),
  wasm: () => new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])),
};
const reached = {};
for (const [name, escape] of Object.entries(escapes)) {
  try {
    const got = await escape();
    if (got !== undefined && got !== null) reached[name] = String(got);
  } catch {}
}
reached;
"#;

#[test]
fn f01_known_javascript_sandbox_escapes_reach_nothing_in_the_worker() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    // Control: in Node, which has these modules, some of the escapes succeed.
    let script = format!(
        "import {{ createRequire }} from 'node:module'; globalThis.require = createRequire('/tmp/x.js');\n\
         {}\nconsole.log(JSON.stringify(Object.keys(reached)));",
        ESCAPES.trim_end().trim_end_matches("reached;")
    );
    let control = mcp.call("execute_code", &json!({ "language": "node", "code": script }));
    let found = control["structuredContent"]["stdout"].as_str().unwrap_or_default().to_owned();
    for name in ["child", "required", "vm", "wasm"] {
        assert!(found.contains(&format!("\"{name}\"")), "control: {name} in {control:#}");
    }
    assert_eq!(result(&mcp, ESCAPES), json!({}));
    assert_eq!(result(&mcp, "1 + 1"), 2);
}

#[test]
fn f01_worker_state_that_one_program_changed_is_absent_in_the_next() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let poison = r#"
globalThis.leak = "mine";
Object.prototype.polluted = "yes";
Array.prototype.map = () => ["forged"];
Array.prototype.toJSON = () => "forged";
Promise.prototype.then = new Proxy(Promise.prototype.then, { apply: (f, self, args) => Reflect.apply(f, self, args) });
JSON.stringify = () => '"forged"';
JSON.parse = () => ({ forged: true });
console.log = () => { throw 1; };
globalThis.fetch = async () => new Response("forged");
Error.prepareStackTrace = () => "forged";
Object.defineProperty(globalThis, "input", { get: () => "forged" });
process.env.LEAK = "mine";
Object.freeze(globalThis.Deno ?? {});
"done";
"#;
    let inspect = r#"
console.log([1].map((x) => x + 1)[0]);
const { polluted } = {};
({ leak: typeof leak, polluted, json: JSON.stringify([1]), env: process.env.LEAK, proto: Object.keys(Object.prototype).length, f: String(fetch).includes("forged"), tmp: (await import("node:fs")).readdirSync("/tmp").includes("mark") });
"#;
    let clean = result(&mcp, inspect);
    // Control: within one program the changes are visible.
    let same = mcp.run(&format!("{poison};\n({{ leak, polluted: {{}}.polluted }}).polluted"));
    assert!(same["error"].is_null() || same["error"].is_object(), "{same:#}");
    let within = result(
        &mcp,
        "globalThis.leak = 1; Object.prototype.polluted = 2; [leak, {}.polluted].join()",
    );
    assert_eq!(within, "1,2");
    for _ in 0..4 {
        let response = mcp.run(poison);
        assert!(response["run"].is_string(), "{response:#}");
        mcp.run("require('fs').writeFileSync('/tmp/mark', 'x')");
        assert_eq!(result(&mcp, inspect), clean);
    }
    assert_eq!(clean["leak"], "undefined");
    assert_eq!(clean["tmp"], false);
}

#[test]
fn f01_execute_code_returns_a_result_for_values_that_throw_when_inspected() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let programs = [
        "throw null",
        "throw undefined",
        "throw { get message() { throw 1; }, get name() { throw 2; }, get stack() { throw 3; } }",
        "throw new Proxy({}, { get() { throw 1; }, getPrototypeOf() { throw 2; }, has() { throw 3; } })",
        "throw Object.assign(new Error('x'), { name: { toString() { throw 1; } } })",
        "throw Symbol('x')",
        "({ toJSON() { throw new Error('no'); } })",
        "({ get x() { throw new Error('no'); } })",
        "new Proxy({}, { ownKeys() { throw new Error('no'); } })",
        "new Proxy([], { get(t, k) { return k === 'length' ? 2 ** 40 : t[k]; } })",
        "({ then(yes) { throw new Error('then'); } })",
        "Object.defineProperty(Error.prototype, 'stack', { get() { throw 1; } }); null.x",
        "const deep = {}; let at = deep; for (let i = 0; i < 100000; i++) at = at.x = {}; deep",
        "console.log(new Proxy({}, { get() { throw 1; }, ownKeys() { throw 2; } }))",
        "console.log({ [Symbol.for('nodejs.util.inspect.custom')]() { throw 1; } })",
        "Object.prototype.toString = () => { throw 1; }; String.prototype.toString = null; console.log({}, 'x')",
    ];
    for code in programs {
        let response = mcp.run(code);
        assert!(response["run"].is_string() && response["ok"].is_boolean(), "{code}: {response:#}");
        assert_eq!(response["reason"], "exited", "{code}: {response:#}");
    }
    assert_eq!(result(&mcp, "[1, 2].length"), 2, "control");
}

#[test]
fn f01_forged_worker_messages_do_not_affect_the_mcp_server_or_later_programs() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let forge = |frames: &str| {
        format!(
            "import fs from 'node:fs';\n\
             const frame = (it) => {{ const body = Buffer.from(JSON.stringify(it)); const head = Buffer.alloc(4); \
             new DataView(head.buffer, head.byteOffset).setUint32(0, body.length, true); return Buffer.concat([head, body]); }};\n\
             const raw = (bytes) => {{ for (const at of ['/proc/self/fd/1', '/dev/stdout']) {{ try {{ fs.appendFileSync(at, bytes); return; }} catch {{}} }} }};\n\
             {frames}\n'honest'"
        )
    };
    // A program can forge only its own output and result.
    let response = mcp.run(&forge("raw(frame({ output: { stream: 'stdout', text: 'forged' } }));"));
    assert!(response["run"].is_string(), "{response:#}");
    // A forged call of a tool server that the program has no access to is not made.
    mcp.run(&forge("raw(frame({ call: { id: 9, server: 'nobody', tool: 'x', input: {} } }));"));
    // Invalid messages end the program but affect neither the server nor the next program.
    for bytes in ["Buffer.alloc(64, 255)", "Buffer.from('\\x05\\x00\\x00\\x00nonsense')"] {
        let response = mcp.run(&forge(&format!("raw({bytes});")));
        assert!(response["run"].is_string(), "{response:#}");
    }
    let flood = forge("for (;;) raw(Buffer.alloc(1 << 20, 255));");
    let flooded = mcp.call("execute_code", &json!({ "code": flood, "timeout": 2 }));
    assert!(flooded["structuredContent"]["run"].is_string(), "{flooded:#}");
    let text = flooded.to_string();
    assert!(text.len() < 4 << 20, "{} bytes", text.len());
    assert_eq!(result(&mcp, "'still here'"), "still here");
}

#[test]
fn f03_worker_refuses_to_import_bytecode_wasm_and_shared_objects() {
    let lab = lab();
    let mcp = Mcp::start(lab.belljar(["mcp"]));
    let code = r#"
import fs from "node:fs";
const load = async (name, bytes) => {
  fs.writeFileSync(`/workspace/${name}`, bytes);
  try { return Object.keys(await import(`/workspace/${name}`)).join() || "loaded"; } catch (error) { return error.name; }
};
const source = "export const ok = 1;";
({
  control: await load("source.js", source),
  // The first bytes of a compiled module: a version and a table of names.
  bytecode: await Promise.all([1, 2, 5, 20, 21, 24, 64, 67].map((version) => load(`v${version}.js`, Buffer.from([version, 1, 2, 111, 107, 15, 0, 0, 0])))),
  wasm: await load("m.wasm", Buffer.from([0, 97, 115, 109, 1, 0, 0, 0])),
  shared: await load("m.so", Buffer.from([127, 69, 76, 70, 2, 1, 1, 0])),
  data: await import("data:application/wasm;base64,AGFzbQEAAAA=").then(() => "loaded", (error) => error.name),
  assembly: typeof WebAssembly,
  names: Reflect.ownKeys(globalThis).map(String).filter((name) => /bytecode|bjson|^std$|^os$|^scriptArgs$|loadScript|evalScript/i.test(name)),
  v8: await import("node:v8").then((v8) => Object.keys(v8).join(), () => ""),
  vm: await import("node:vm").then((vm) => typeof vm.Script, () => "none"),
});
"#;
    let results = result(&mcp, code);
    assert_eq!(
        (&results["control"], &results["assembly"]),
        (&json!("ok"), &json!("undefined")),
        "{results:#}"
    );
    let refused = |value: &Value| value.as_str().is_some_and(|name| name.ends_with("Error"));
    assert!(results["bytecode"].as_array().unwrap().iter().all(refused), "{results:#}");
    assert!(["wasm", "shared", "data"].iter().all(|name| refused(&results[*name])), "{results:#}");
    assert_eq!((&results["names"], &results["vm"]), (&json!([]), &json!("none")), "{results:#}");
}
