// Computes the expected result of each program in this directory with Node or Deno.
//
//   DIR/node_modules/.bin/node oracle.mjs DIR SHOP [--write] [NAME…]
//
// `cargo xtask test` installs DIR, which is `clients/typescript` of the target directory, and runs this script
// without `--write`. SHOP is the example `shop` of `crates/testkit`, which serves the web service of the tests.
// Without `--write` the script reports each program whose header differs from the computed result. With
// `--write` it updates the headers. The test `tests/e2e/programs.rs` explains the header.
//
// Each program runs in its own process, in Node or, if its header says so, in Deno. The script first inserts
// `return (` before the last expression and a function around the program. Both edits keep the line numbers.

import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const here = import.meta.dirname;
const KEYS = ["oracle", "input", "expect", "stdout", "stderr", "error", "message"];
const TOKEN = "shop_live_4f9d2c7b1a8e6035d4c2";

if (process.env.ORACLE_CHILD) await child(JSON.parse(process.env.ORACLE_CHILD));
else await main();

async function main() {
  const [dir, shop, ...rest] = process.argv.slice(2);
  const write = rest.includes("--write");
  const names = rest.filter((word) => !word.startsWith("--"));
  const ts = createRequire(path.resolve(dir, "x.js"))("typescript");
  const files = fs.readdirSync(here).filter((name) => /\.(ts|js)$/.test(name)).sort();
  const wanted = files.filter((name) => !names.length || names.some((it) => name.startsWith(it)));
  let wrong = 0;
  const queue = [...wanted];
  const worker = async () => {
    for (let name = queue.shift(); name; name = queue.shift()) {
      const file = path.join(here, name);
      const text = fs.readFileSync(file, "utf8");
      const { header, body } = parse(text);
      if (header.oracle?.[0]?.startsWith("hand")) continue;
      const found = await run(ts, dir, shop, name, header, body);
      const fresh = render(header, found, body);
      if (fresh === text) continue;
      wrong += 1;
      if (write) fs.writeFileSync(file, fresh);
      console.log(`${write ? "wrote" : "differs"}: ${name}\n${fresh.slice(0, fresh.length - body.length)}`);
      if (found.raw) console.log(found.raw);
    }
  };
  await Promise.all([worker(), worker()]);
  console.log(`${wanted.length} programs, ${wrong} ${write ? "written" : "differ"}`);
  process.exitCode = wrong && !write ? 1 : 0;
}

function parse(text) {
  const lines = text.split("\n");
  const header = {};
  let at = 0;
  for (; at < lines.length; at++) {
    const [, key, value] = /^\/\/ ([a-z]+):(?: (.*))?$/.exec(lines[at]) ?? [];
    if (!KEYS.includes(key)) break;
    (header[key] ??= []).push(value ?? "");
  }
  return { header, body: lines.slice(at).join("\n") };
}

function render(header, found, body) {
  const lines = [];
  const add = (key, value) => lines.push(`// ${key}: ${value}`.trimEnd());
  for (const word of header.oracle ?? []) add("oracle", word);
  for (const word of header.input ?? []) add("input", word);
  if (found.value !== undefined) add("expect", found.value);
  for (const key of ["stdout", "stderr"]) {
    const text = found[key].replace(/\n$/, "");
    if (found[key]) for (const line of text.split("\n")) add(key, line);
  }
  if (found.error) {
    const count = lines.length + 1 + (found.thrown ? 1 : 0);
    add("error", `${found.error}${found.line ? ` at ${found.line + count}` : ""}`);
    if (found.thrown) add("message", JSON.stringify(found.thrown));
  }
  // An empty header is stored as an empty line, which is already part of the body.
  return lines.length ? `${lines.join("\n")}\n${body}` : body;
}

async function run(ts, dir, shop, name, header, body) {
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "oracle-"));
  const workspace = path.join(scratch, "workspace");
  fs.mkdirSync(workspace);
  const server = spawn(shop, { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const address = (await firstChunk(server.stdout)).trim();
    const prepared = prepare(ts, name, body.replace(/"\/(workspace|tmp)/g, (_, at) => `"${at === "tmp" ? scratch : workspace}`));
    if (prepared.error) return { ...prepared, stdout: "", stderr: "" };
    const file = path.join(scratch, "program.ts");
    fs.writeFileSync(file, prepared.code);
    fs.writeFileSync(path.join(scratch, "package.json"), '{"type":"module"}');
    const job = { file, address, input: header.input?.[0] ?? null, out: path.join(scratch, "out.json"), base: scratch };
    const deno = header.oracle?.[0] === "deno";
    const bin = (tool) => path.resolve(dir, "node_modules/.bin", tool);
    const [command, args] = deno
      ? [bin("deno"), ["run", "-A", "--no-check", path.join(here, "oracle.mjs")]]
      : [bin("node"), ["--experimental-transform-types", "--enable-source-maps", "--no-warnings", path.join(here, "oracle.mjs")]];
    const env = { PATH: process.env.PATH, HOME: scratch, TZ: "UTC", LANG: "C", NO_COLOR: "1", ORACLE_CHILD: JSON.stringify(job) };
    const running = spawn(command, args, { env, cwd: workspace, stdio: ["ignore", "pipe", "pipe"] });
    const timer = setTimeout(() => running.kill("SIGKILL"), 30_000);
    const [stdout, stderr] = await Promise.all([readAll(running.stdout), readAll(running.stderr)]);
    clearTimeout(timer);
    const restorePaths = (text) => text.replaceAll(workspace, "/workspace").replaceAll(scratch, "/tmp");
    const out = fs.existsSync(job.out) ? JSON.parse(restorePaths(fs.readFileSync(job.out, "utf8"))) : {};
    const raw = out.value === undefined && !out.error && stderr ? `raw stderr: ${stderr}` : "";
    return { ...out, stdout: restorePaths(stdout), stderr: restorePaths(stderr), raw };
  } finally {
    server.stdin.end();
    fs.rmSync(scratch, { recursive: true, force: true });
  }
}

function firstChunk(stream) {
  return new Promise((resolve) => stream.once("data", (data) => resolve(String(data))));
}

async function readAll(stream) {
  let text = "";
  stream.setEncoding("utf8");
  for await (const part of stream) text += part;
  return text;
}

// Edits a program so that it exports its result: its default export, return value or last expression.
function prepare(ts, name, body) {
  const kind = name.endsWith(".ts") ? ts.ScriptKind.TS : ts.ScriptKind.JS;
  const source = ts.createSourceFile(name, `${body}\nexport {};`, ts.ScriptTarget.Latest, true, kind);
  const wrong = source.parseDiagnostics.find((it) => it.category === ts.DiagnosticCategory.Error && it.code !== 1108);
  if (wrong) {
    const { line } = source.getLineAndCharacterOfPosition(wrong.start);
    return { error: "SyntaxError", line: line + 1 };
  }
  const isDefault = (it) =>
    ts.isExportAssignment(it) || it.modifiers?.some((word) => word.kind === ts.SyntaxKind.DefaultKeyword);
  if (source.statements.some(isDefault)) return { code: body };
  const edits = [];
  const statements = source.statements.slice(0, -1); // without the added `export {}`
  const first = statements.find((it) => !ts.isImportDeclaration(it) && !(ts.isImportEqualsDeclaration?.(it)));
  for (const it of statements) {
    const word = it.modifiers?.find((word) => word.kind === ts.SyntaxKind.ExportKeyword);
    if (word) edits.push([word.getStart(source), word.end, " ".repeat(word.end - word.getStart(source))]);
  }
  if (first) edits.push([first.getStart(source), first.getStart(source), "export default async function program(input) { "]);
  const last = statements.at(-1);
  if (last && ts.isExpressionStatement(last)) {
    const [start, end] = [last.expression.getStart(source), last.expression.end];
    edits.push([start, start, "return ("], [end, end, ")"]);
  }
  let code = body;
  edits.map((edit, at) => [...edit, at]).sort((a, b) => b[0] - a[0] || b[1] - a[1] || b[3] - a[3]).forEach(([from, to, text]) => {
    code = code.slice(0, from) + text + code.slice(to);
  });
  return { code: first ? `${code}\n}\n` : code };
}

// Runs one program in the child process and saves its result or its error.
async function child({ file, address, input, out, base }) {
  const real = globalThis.fetch;
  // Imitates the broker of a box: resolves the names of the test service and adds the credential.
  globalThis.fetch = (resource, init) => {
    const request = new Request(resource, init);
    const url = new URL(request.url);
    if (!url.hostname.endsWith("shop.test")) throw new TypeError("fetch failed");
    return follow(real, request, init, url, address, 0);
  };
  globalThis.require = createRequire(file);
  if (input !== null) globalThis.input = JSON.parse(input);
  const describe = (error) => describeError(file, base, error);
  const save = (result) => fs.writeFileSync(out, JSON.stringify(result));
  process.on("uncaughtException", (error) => {
    save(describe(error));
    process.exit(1);
  });
  try {
    const module = await import(file);
    let value = await module.default;
    if (typeof value === "function") value = await value(globalThis.input);
    const text = JSON.stringify(plain(value, []));
    save(text === undefined ? {} : { value: text });
  } catch (error) {
    save(describe(error));
  }
}

function describeError(file, base, error) {
  const name = error?.name ?? "Error";
  const lines = String(error?.stack).split("\n").filter((line) => line.includes("program.ts"));
  const line = Number(/program\.ts:(\d+)/.exec(lines[0] ?? "")?.[1]) || undefined;
  const source = fs.readFileSync(file, "utf8").split("\n")[line - 1] ?? "";
  const thrown = /\bthrow\b|reject\(|new \w*Error/.test(source) ? String(error?.message ?? error).replaceAll(base, "") : undefined;
  return { error: name, line, thrown };
}

async function follow(real, request, init, url, address, hops) {
  const upstream = new URL(url);
  upstream.protocol = "http:";
  upstream.host = address;
  const headers = new Headers(request.headers);
  if (url.hostname === "api.shop.test" && url.pathname === "/me") headers.set("authorization", `Bearer ${TOKEN}`);
  const body = ["GET", "HEAD"].includes(request.method) ? undefined : await request.clone().arrayBuffer();
  const answer = await real(upstream, { method: request.method, headers, body, redirect: "manual", signal: request.signal });
  const to = answer.headers.get("location");
  const mode = request.redirect;
  if (![301, 302, 303, 307, 308].includes(answer.status) || !to || mode === "manual") return named(answer, url, hops);
  if (mode === "error") throw new TypeError("fetch failed");
  if (hops >= 20) throw new TypeError("fetch failed");
  const next = new URL(to, url);
  const toGet = answer.status === 303 || ([301, 302].includes(answer.status) && request.method === "POST");
  const again = toGet
    ? new Request(next, { headers: request.headers, signal: request.signal })
    : new Request(next, { method: request.method, headers: request.headers, body, signal: request.signal });
  if (toGet) again.headers.delete("content-type");
  return follow(real, again, init, next, address, hops + 1);
}

function named(answer, url, hops) {
  Object.defineProperty(answer, "url", { value: url.href });
  Object.defineProperty(answer, "redirected", { value: hops > 0 });
  return answer;
}

// Converts a value to plain JSON data in the same way as the worker.
function plain(value, above) {
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value !== "object") return value;
  if (above.includes(value)) return "[Circular]";
  const within = [...above, value];
  const go = (it) => plain(it, within);
  if (value instanceof Error) return { name: value.name, message: value.message, stack: "…" };
  if (value instanceof Uint8Array) return { type: "bytes", base64: btoa(String.fromCharCode(...value)) };
  if (value instanceof Map) {
    const entries = [...value];
    const named = entries.every(([key]) => typeof key === "string");
    return named ? Object.fromEntries(entries.map(([key, it]) => [key, go(it)])) : entries.map(go);
  }
  if (value instanceof Set) return [...value].map(go);
  if (typeof value.toJSON === "function") return go(value.toJSON(""));
  if (Array.isArray(value)) return value.map(go);
  return Object.fromEntries(Object.entries(value).map(([key, it]) => [key, go(it)]));
}
