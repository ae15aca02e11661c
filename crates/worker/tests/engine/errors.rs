//! Errors of programs, with positions in the original source.

use serde_json::json;

use super::worker::{module, run, run_script, script};

#[test]
fn error_position_is_in_the_original_typescript() {
    let outcome = run(
        "interface A { x: number }\ntype B = string;\nfunction f(a: A): never {\n  throw new RangeError(`bad ${a.x}`)\n}\nconst é: string = 'ü'; f({ x: 1 } as A)",
    );
    let error = outcome.error();
    assert_eq!((error.name.as_str(), error.message.as_str()), ("RangeError", "bad 1"));
    assert_eq!((error.line, error.column), (Some(4), Some(31)));
    assert_eq!(error.stack.as_deref(), Some("    at f (main.ts:4:31)\n    at main.ts:6:24"));
}

#[test]
fn capturing_the_result_does_not_shift_columns_of_error_positions() {
    assert_eq!(run("const o: any = 1;  o.a.b").error().column, Some(20));
    assert_eq!(run("if (1) return null!.x;").error().column, Some(1));
    assert_eq!(run("return (undefined as any).x").error().column, Some(9));
}

#[test]
fn error_position_in_rewritten_code_is_in_the_original() {
    let outcome = run(
        "enum Color {\n  Red,\n  Green,\n}\n\nfunction pick(c: Color): never {\n  throw new Error('no ' + Color[c])\n}\npick(Color.Green)",
    );
    assert_eq!(outcome.error().message, "no Green");
    assert_eq!(outcome.error().line, Some(7));
    assert!(outcome.error().stack.as_deref().unwrap().contains("main.ts:9:"));
}

#[test]
fn syntax_error_shows_the_line_and_a_hint() {
    let outcome = run("const a = 1;\nconst b = = 2;");
    let error = outcome.error();
    assert_eq!((error.name.as_str(), error.line, error.column), ("SyntaxError", Some(2), Some(11)));
    assert!(error.stack.as_deref().unwrap().contains("const b = = 2;\n          ^"), "{error:?}");
    assert!(run("const x = <div>hi</div>").error().message.contains("JSX"));
    assert!(run("@log class A {}").error().message.contains("decorators"));
    assert!(run("import fs = require('fs')").error().message.contains("import x from"));
    assert!(run("export = 1").error().message.contains("export default"));
    assert!(run("export const x = 1; return x").error().message.contains("export default"));
    assert_eq!(run("let a = 1; let a = 2;").error().name, "SyntaxError");
    assert_eq!(run("let a = 1;\nlet a = 2;").error().line, Some(2));
}

#[test]
fn thrown_values_of_any_type_are_reported() {
    assert_eq!(run("throw 'text'").error().message, "text was thrown");
    assert_eq!(run("throw { code: 7 }").error().message, r#"{"code":7} was thrown"#);
    assert!(run("throw undefined").error().message.contains("undefined"));
    assert!(run("throw null").error().message.contains("null"));
    let outcome = run("class Own extends Error { name = 'Own'; code = 1 } throw new Own('mine')");
    assert_eq!(outcome.error().name, "Own");
}

#[test]
fn stack_trace_of_a_custom_error_starts_where_the_error_was_created() {
    let outcome = run(
        "class Own extends TypeError {\n  constructor(m: string) {\n    super(m)\n  }\n}\nclass More extends Own {}\nfunction f() {\n  throw new More('x')\n}\nf()",
    );
    assert_eq!(outcome.error().line, Some(8), "{outcome:?}");
}

#[test]
fn error_message_above_the_frame_size_is_truncated() {
    let outcome = run("throw new Error('m'.repeat(40 << 20))");
    assert!(outcome.error().message.len() < 70_000);
    assert!(run("throw 'm'.repeat(40 << 20)").error().message.len() < 70_000);
}

#[test]
fn error_report_includes_its_causes() {
    let outcome = run("throw new Error('outer', { cause: { code: 1 } })");
    assert_eq!(outcome.error().message, r#"outer (cause: {"code":1})"#);
    let outcome =
        run("try { JSON.parse('{') } catch (e) { throw new Error('outer', { cause: e }) }");
    assert!(outcome.error().message.starts_with("outer (cause: SyntaxError"), "{outcome:?}");
    assert!(outcome.error().stack.as_deref().unwrap().contains("[cause]"));
}

#[test]
fn program_above_its_memory_limit_fails_with_out_of_memory() {
    let mut job =
        script("const all = []; for (;;) all.push(new Array(1000).fill('x' + all.length))");
    job.memory = 64 << 20;
    let outcome = run_script(job);
    assert!(
        outcome.error().message.contains("out of memory: the limit of the program is 64 MiB"),
        "{outcome:?}"
    );
    let mut job = script("const a = []; for (;;) a.push({ a: [1, 2, 3] })");
    job.memory = 64 << 20;
    assert!(run_script(job).error().message.contains("out of memory"));
}

#[test]
fn infinite_recursion_throws_a_catchable_error() {
    let outcome = run("const f = (n: number): number => f(n + 1) + 1; f(0)");
    assert_eq!(outcome.error().name, "RangeError");
    let code = "const f = (n: number): number => f(n + 1) + 1; try { f(0) } catch (e) { 'caught' + (e instanceof RangeError) }\n'on'";
    assert_eq!(run(code).value(), json!("on"));
}

#[test]
fn recursion_of_2000_levels_does_not_overflow_the_stack() {
    assert_eq!(
        run("const f = (n: number): number => n ? f(n - 1) + 1 : 0; f(2000)").value(),
        json!(2000)
    );
}

#[test]
fn error_stack_has_the_format_of_node() {
    let outcome = run("try { null!.x } catch (e) { console.log((e as Error).stack) }");
    assert_eq!(outcome.stdout, "TypeError: cannot read property 'x' of null\n    at main.ts:1:6\n");
}

#[test]
fn error_in_an_imported_module_names_the_module() {
    let mut job = script("import { f } from 'skill:broken';\nf()");
    job.modules = vec![module(
        "skill:broken",
        "type A = 1;\nexport function f(): A {\n  throw new Error('inside')\n}",
    )];
    let outcome = run_script(job);
    assert_eq!(
        outcome.error().stack.as_deref(),
        Some("    at f (skill:broken:3:13)\n    at main.ts:2:1")
    );
    let mut job = script("import 'skill:broken'");
    job.modules = vec![module("skill:broken", "let x =\n;")];
    assert!(run_script(job).error().message.contains("skill:broken:2:1"));
}
