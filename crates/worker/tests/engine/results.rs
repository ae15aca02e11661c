//! Results of programs.

use belljar_wire::Dialect;
use serde_json::json;

use super::worker::{run, run_script, script};

#[test]
fn default_export_is_the_result_of_a_program() {
    assert_eq!(run("export default { answer: 6 * 7 }").value(), json!({ "answer": 42 }));
    assert_eq!(run("export default Promise.resolve(1)").value(), json!(1));
    assert_eq!(run("const x = 3; export { x as default }").value(), json!(3));
}

#[test]
fn default_export_function_is_called_with_the_input() {
    let mut job =
        script("export default async ({ n }: { n: number }) => { await null; return n + 1 }");
    job.input = Some(r#"{"n": 41}"#.to_owned());
    assert_eq!(run_script(job).value(), json!(42));
    let mut job = script("export default function () { return input.n }");
    job.input = Some(r#"{"n": 41}"#.to_owned());
    assert_eq!(run_script(job).value(), json!(41));
}

#[test]
fn top_level_return_is_the_result_of_a_program() {
    assert_eq!(run("const x: number = 1\nif (x) return { x }\nthrow 1").value(), json!({ "x": 1 }));
    assert_eq!(run("return await Promise.resolve([1 as number])").value(), json!([1]));
    let late = "const a = 1; import path from 'node:path'; return path.join('a', 'b') + a // end";
    assert_eq!(run(late).value(), json!("a/b1"));
    assert_eq!(run("if (false) return 1\n'last'").value(), json!("last"));
}

#[test]
fn last_expression_is_the_result_of_a_program() {
    for (code, value) in [
        ("1 + 1", json!(2)),
        ("const x = 2; x", json!(2)),
        ("const x = { a: 1 };\n({ ...x, b: 2 })", json!({ "a": 1, "b": 2 })),
        ("let a = 1, b = 2; a, b", json!(2)),
        ("main()\nasync function main(): Promise<number> { return 7 }", json!(7)),
        ("await Promise.all([1, 2])", json!([1, 2])),
        ("const y = [1]\ny as number[]\ninterface X {}", json!([1])),
        ("'alone'", json!("alone")),
        ("async () => 1", json!(null)),
        ("export const x = 1; x + 1", json!(2)),
        ("enum E { A = 4 } E.A", json!(4)),
        ("const z = 1", json!(null)),
    ] {
        assert_eq!(run(code).value(), value, "{code}");
    }
}

#[test]
fn program_result_converts_values_that_json_lacks() {
    let value = run(
        "const loop: any = { name: 'loop' }; loop.self = loop; const shared = { s: 1 };
        ({ big: 10n ** 20n, map: new Map([['a', 1]]), pairs: new Map([[{}, 1]]), set: new Set([1, 2]),
           date: new Date(0), bytes: new Uint8Array([1, 2, 3]), loop, twice: [shared, shared], none: undefined,
           list: [undefined, () => 1], nan: NaN, f() {}, sym: Symbol('x'), re: /a/g, url: new URL('http://x/y'),
           float: new Float64Array([0.5]), boxed: Object('s'), half: 'a\\ud800b' })",
    )
    .value();
    assert_eq!(
        value,
        json!({
            "big": "100000000000000000000", "map": { "a": 1 }, "pairs": [[{}, 1]], "set": [1, 2],
            "date": "1970-01-01T00:00:00.000Z", "bytes": { "type": "bytes", "base64": "AQID" },
            "loop": { "name": "loop", "self": "[Circular]" }, "twice": [{ "s": 1 }, { "s": 1 }],
            "list": [null, null], "nan": null, "re": "/a/g", "url": "http://x/y", "float": [0.5],
            "boxed": "s", "half": "a\u{fffd}b"
        })
    );
    let error = run("new TypeError('no', { cause: 'why' })").value();
    assert_eq!(error["name"], "TypeError");
    assert_eq!(error["message"], "no");
    assert_eq!(error["cause"], "why");
    assert_eq!(error["stack"], "TypeError: no\n    at main.ts:1:5");
}

#[test]
fn javascript_program_with_types_is_accepted() {
    for code in ["const x = 1; x", "const x: number = 1; x"] {
        let mut job = script(code);
        job.language = Dialect::Js;
        assert_eq!(run_script(job).value(), json!(1));
    }
}

#[test]
fn process_exit_ends_the_program_without_a_result() {
    let outcome = run("console.log('a'); try { process.exit() } finally { console.log('b') }");
    assert_eq!(outcome.stdout, "a\n");
    assert!(outcome.done.value.is_none() && outcome.done.trouble.is_none());
    assert_eq!(run("Deno.exit(3)").error().name, "Exit");
    assert!(run("process.exit(3)").error().message.contains("code 3"));
}

#[test]
fn program_result_above_the_frame_size_is_an_error() {
    assert!(run("'x'.repeat(33 << 20)").error().message.contains("write it to a file"));
}

#[test]
fn module_exports_is_the_result_of_a_program() {
    assert_eq!(run("module.exports = { a: 1 }").value(), json!({ "a": 1 }));
    assert_eq!(run("if (require.main === module) console.log('main')").stdout, "main\n");
}
