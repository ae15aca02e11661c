//! Tests of generated API clients: Deno runs the client code and checks the types.
//!
//! `cargo xtask test` installs Deno into `clients` of the target directory. A missing Deno fails the
//! tests.

#![expect(clippy::disallowed_methods, reason = "tests start the programs that they test with")]

use std::fs;
use std::path::Path;
use std::process::Command;

use belljar_code::api::{self, Service};
use belljar_code::openapi::Document;
use belljar_model::{Config, Scope};
use tempfile::TempDir;

use super::server;

/// The exit status and output of one run of Deno.
struct Ended {
    ok: bool,
    out: String,
    err: String,
}

fn deno(dir: &Path, arguments: &[&str]) -> Ended {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    let deno = clients.join("npm/node_modules/.bin/deno");
    assert!(deno.exists(), "{} is missing: `cargo xtask test` installs it", deno.display());
    let ended = Command::new(deno)
        .args(arguments)
        .current_dir(dir)
        .env("DENO_DIR", dir.join("cache"))
        .env("NO_COLOR", "1")
        .env("SHOP_TOKEN", "placeholder-of-the-shop")
        .output()
        .unwrap();
    Ended {
        ok: ended.status.success(),
        out: String::from_utf8(ended.stdout).unwrap(),
        err: String::from_utf8(ended.stderr).unwrap(),
    }
}

/// Returns a service named `shop` on a port of this machine, with extra lines in its declaration.
fn service(port: u16, extra: &str, document: Option<&str>) -> Service {
    let text = format!(
        "[secret.shop]\nhosts = ['host.belljar.internal']\nenv = 'SHOP_TOKEN'\n\
         [api.shop]\nallow = ['host-port:{port}', 'host.example']\n{extra}\n"
    );
    let config = Config::parse(&text, Path::new("belljar.toml"), Scope::Operator).unwrap();
    let api = config.apis().values().next().unwrap();
    let document = document.map(|text| Document::parse(text.as_bytes()).unwrap());
    Service::new(api, &config, document, None)
}

/// Creates a temporary directory with the JavaScript client of a service and its declarations.
fn write_client(service: &Service) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("api.js"), service.client().module).unwrap();
    fs::write(dir.path().join("apis.d.ts"), api::declarations([service])).unwrap();
    dir
}

/// Runs a JavaScript program that has the client as `apis.shop`, and returns its output.
///
/// Inside a box the broker resolves the host's name. Here `fetch` replaces the name by 127.0.0.1.
#[track_caller]
fn run(dir: &Path, program: &str) -> String {
    let text = format!(
        "import shop, {{ ApiError }} from './api.js';\nconst apis = {{ shop }};\n\
         const really = globalThis.fetch;\n\
         globalThis.fetch = (to, init) => really(String(to).replace('host.belljar.internal', '127.0.0.1'), init);\n\
         {program}\n"
    );
    fs::write(dir.join("main.js"), text).unwrap();
    let ended = deno(
        dir,
        &[
            "run",
            "--quiet",
            "--no-prompt",
            "--allow-net=127.0.0.1",
            "--allow-env=SHOP_TOKEN",
            "main.js",
        ],
    );
    assert!(ended.ok, "{}\n{}", ended.out, ended.err);
    ended.out
}

fn check(dir: &Path, program: &str) -> Ended {
    let text = format!("/// <reference path=\"./apis.d.ts\" />\n{program}\nexport {{}};\n");
    fs::write(dir.join("checked.ts"), text).unwrap();
    deno(dir, &["check", "--quiet", "checked.ts"])
}

const SHOP: &str = include_str!("shop.json");
const HOSTILE: &str = include_str!("hostile.json");

#[test]
fn api_client_sends_the_http_request_of_each_operation() {
    let server = server::Echo::start();
    let dir = write_client(&service(server.port(), "secrets = ['shop']", Some(SHOP)));
    let out = run(
        dir.path(),
        r#"
        const show = (echo) => console.log(echo.method, echo.target);
        let echo = await apis.shop.pets.list();
        show(echo);
        console.log(echo.headers.authorization, echo.headers.accept);
        show(await apis.shop.pets.list({ limit: 2, tags: ["a b", "c&d"], ids: [1, 2] }));
        show(await apis.shop.pets.list({ filter: { kind: "cat", born: "x" }, where: { a: [1] } }));
        echo = await apis.shop.pets.list({ "X-Trace": "t", basket: "b c" }, { headers: { "x-more": "1" } });
        console.log(echo.headers["x-trace"], echo.headers.cookie, echo.headers["x-more"]);
        echo = await apis.shop.pets.createOne({ body: { name: "é", kind: "cat" } });
        console.log(echo.method, echo.target, echo.headers["content-type"], echo.body);
        show(await apis.shop.pets.get({ id: "a/b?c" }));
        console.log(await apis.shop.pets.delete({ id: 204 }));
        echo = await apis.shop.photosAndMore.setPhoto({ id: 1, body: new Uint8Array([104, 105]) });
        console.log(echo.headers["content-type"], echo.body);
        echo = await apis.shop.form.post({ body: { a: "x y&z", b: [1, 2] } });
        console.log(echo.headers["content-type"], echo.body);
        echo = await apis.shop.upload.post({ body: { a: "text", file: new Uint8Array([104, 105]) } });
        console.log(echo.headers["content-type"].split("=")[0], echo.body.replace(/belljar-[0-9a-f-]+/g, "B").replace(/\r\n/g, "|"));
        show(await apis.shop.tree({ a: ["x", "y z"], b: ["1", "2"], body: "q" }));
        console.log(await apis.shop.text());
        show(await apis.shop.get("/plain", { query: { a: 1, b: ["x", "y"], c: { d: 2 }, e: null } }));
        echo = await apis.shop.post("free", { body: { a: 1 } });
        console.log(echo.target, echo.headers["content-type"], echo.body, echo.headers.authorization);
        console.log((await apis.shop.fetch("/v2/x")).status, Object.keys(await apis.shop.head("/h")).includes("content-type"));
        "#,
    );
    let expect = "\
GET /v2/pets
Bearer placeholder-of-the-shop application/json, */*;q=0.5
GET /v2/pets?limit=2&tags=a%20b&tags=c%26d&ids=1,2
GET /v2/pets?filter%5Bkind%5D=cat&filter%5Bborn%5D=x&where=%7B%22a%22%3A%5B1%5D%7D
t basket=b%20c 1
POST /v2/pets application/json {\"name\":\"é\",\"kind\":\"cat\"}
GET /v2/pets/a%2Fb%3Fc
undefined
image/png hi
application/x-www-form-urlencoded a=x+y%26z&b=1&b=2
multipart/form-data; boundary --B|content-disposition: form-data; name=\"a\"||text|--B|content-disposition: form-data; name=\"file\"; filename=\"file\"|content-type: application/octet-stream||hi|--B|
GET /v2/tree/x,y%20z/;b=1;b=2?body=q
plain text
GET /v2/plain?a=1&b=x&b=y&c%5Bd%5D=2
/v2/free application/json {\"a\":1} Bearer placeholder-of-the-shop
200 true
";
    assert_eq!(out, expect);
}

#[test]
fn api_client_throws_on_error_statuses_and_refuses_invalid_arguments() {
    let server = server::Echo::start();
    let dir = write_client(&service(server.port(), "", Some(SHOP)));
    let out = run(
        dir.path(),
        r#"
        const expected = async (work) => { try { console.log("no error", await work()); } catch (error) { console.log(`${error.name}: ${error.message}`); return error; } };
        const error = await expected(() => apis.shop.get("/status/418"));
        console.log(error instanceof ApiError, error instanceof Error, error.status, error.body.why, error.headers["content-type"]);
        await expected(() => apis.shop.get("/broken"));
        await expected(() => apis.shop.pets.get());
        await expected(() => apis.shop.pets.get({ id: 1, nmae: "x" }));
        await expected(() => apis.shop.pets.get({ id: ".." }));
        await expected(() => apis.shop.pets.get({ id: "" }));
        await expected(() => apis.shop.pets.createOne({}));
        await expected(() => apis.shop.pets.get([1]));
        const none = await apis.shop.pets.list();
        console.log(none.headers.authorization);
        console.log(Object.isFrozen(apis.shop), Object.isFrozen(apis.shop.pets), apis.shop.pets.nothing, apis.shop.then, Object.getPrototypeOf(apis.shop));
        "#,
    );
    let port = server.port();
    let expect = format!(
        "\
ApiError: GET http://host.belljar.internal:{port}/v2/status/418: 418 I'm a teapot: {{\"why\":\"teapot\"}}
true true 418 teapot application/json
SyntaxError: GET http://host.belljar.internal:{port}/v2/broken: the response is not valid JSON: Expected property name or '}}' in JSON at position 1 (line 1 column 2)
TypeError: apis.shop.pets.get: `id` is missing
TypeError: apis.shop.pets.get: unknown argument `nmae`; expected id
TypeError: `id` cannot be \"..\" in a path
TypeError: `id` cannot be \"\" in a path
TypeError: apis.shop.pets.createOne: `body` is missing
TypeError: apis.shop.pets.get takes one object of arguments
undefined
true true undefined undefined null
"
    );
    assert_eq!(out, expect);
}

#[test]
fn api_client_sends_placeholders_only_to_its_own_service() {
    let (server, other) = (server::Echo::start(), server::Echo::start());
    let dir = write_client(&service(server.port(), "secrets = ['shop']", None));
    let out = run(
        dir.path(),
        &format!(
            r#"
            const sent = async (path) => (await (await apis.shop.fetch(path)).json()).headers.authorization;
            console.log(await sent("/here"));
            console.log(await sent("http://127.0.0.1:{}/there"));
            console.log((await apis.shop.get("http://127.0.0.1:{}/there")).headers.authorization);
            console.log((await apis.shop.get("/", {{ headers: {{ authorization: "mine" }} }})).headers.authorization);
            "#,
            other.port(),
            other.port()
        ),
    );
    assert_eq!(out, "Bearer placeholder-of-the-shop\nundefined\nundefined\nmine\n");
}

#[test]
fn declared_types_accept_correct_programs_and_reject_wrong_ones() {
    let dir = write_client(&service(1, "", Some(SHOP)));
    let good = r#"
        const pets = await apis.shop.pets.list({ limit: 1, filter: { kind: "cat" } });
        const target: string = pets.target;
        const pet = await apis.shop.pets.createOne({ body: { name: "x", kind: "dog", weight: null } });
        const id: number = pet.id;
        const name: string = pet.children![0].children![0].name;
        const parent: number | undefined = pet.parent?.id;
        const none: void = await apis.shop.pets.delete({ id: "1" });
        const photo: Uint8Array = await apis.shop.photosAndMore.getPhoto({ id: 1 });
        const text: string = await apis.shop.text();
        const free: { a: number } = await apis.shop.get<{ a: number }>("/x", { query: { a: 1 } });
        const status: number = (await apis.shop.fetch("/x", { method: "PUT" })).status;
        console.log(target, id, name, parent, none, photo, text, free, status);
    "#;
    let ended = check(dir.path(), good);
    assert!(ended.ok, "{}", ended.err);
    let bad = [
        ("await apis.shop.pets.get();", "Expected 1-2 arguments"),
        ("await apis.shop.pets.get({ id: true });", "Type 'boolean' is not assignable"),
        ("await apis.shop.pets.list({ filter: { kind: \"bird\" } });", "'Kind | undefined'"),
        (
            "await apis.shop.pets.createOne({ body: { name: \"x\" } });",
            "Property 'kind' is missing",
        ),
        ("(await apis.shop.pets.get({ id: 1 })).nmae;", "'nmae' does not exist"),
        ("apis.shop.pest;", "'pest' does not exist"),
        ("apis.other;", "'other' does not exist"),
    ];
    let program: Vec<&str> = bad.iter().map(|(line, _)| *line).collect();
    let ended = check(dir.path(), &program.join("\n"));
    assert!(!ended.ok);
    for (line, expected) in bad {
        assert!(ended.err.contains(expected), "{line}: {}", ended.err);
    }
}

#[test]
fn f09_hostile_openapi_document_does_not_become_code() {
    let server = server::Echo::start();
    let service =
        service(server.port(), "description = '*/ globalThis.pwned = 1; /*'", Some(HOSTILE));
    let dir = write_client(&service);
    let out = run(
        dir.path(),
        r#"
        const names = (object, depth) => Object.keys(object).flatMap((key) => typeof object[key] === "object" && depth > 0 ? names(object[key], depth - 1).map((it) => key + "." + it) : [key]);
        console.log(names(apis.shop, 1).join("\n"));
        for (const group of Object.values(apis.shop)) for (const run of typeof group === "function" ? [] : Object.values(group)) await run().catch(() => {});
        console.log(globalThis.pwned, ({}).polluted, Object.getPrototypeOf(apis.shop));
        const sent = await apis.shop.xGlobalThis.pwned1({ proto: { polluted: 1 }, constructor: "x" }).catch((error) => error.message);
        console.log(sent.target);
        "#,
    );
    let tail = "undefined undefined null\n/a?polluted=1&constructor=x\n";
    assert!(out.ends_with(tail), "{out}");
    for absent in ["upward", "query", "elsewhere"] {
        assert!(!out.contains(absent), "{absent} in {out}");
    }
    // The declarations compile and declare no names from the hostile document.
    let ended = check(dir.path(), "apis.shop.get(\"/\"); await apis.shop.j({ body: \"x\" });");
    assert!(ended.ok, "{}", ended.err);
    let ended = check(dir.path(), "evil; pwned;");
    for evil in ["Cannot find name 'evil'", "Cannot find name 'pwned'"] {
        assert!(!ended.ok && ended.err.contains(evil), "{}", ended.err);
    }
}
