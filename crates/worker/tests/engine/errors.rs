//! Errors point at the lines of the user.

use serde_json::json;

use super::worker::{hear, module, run, script};

#[test]
fn an_error_points_at_the_line_and_column_that_the_user_wrote() {
    let heard = run(
        "interface A { x: number }\ntype B = string;\nfunction f(a: A): never {\n  throw new RangeError(`bad ${a.x}`)\n}\nconst é: string = 'ü'; f({ x: 1 } as A)",
    );
    let trouble = heard.trouble();
    assert_eq!((trouble.name.as_str(), trouble.message.as_str()), ("RangeError", "bad 1"));
    assert_eq!((trouble.line, trouble.column), (Some(4), Some(31)));
    assert_eq!(trouble.stack.as_deref(), Some("    at f (main.ts:4:31)\n    at main.ts:6:24"));
}

#[test]
fn what_catches_the_result_shifts_no_column() {
    assert_eq!(run("const o: any = 1;  o.a.b").trouble().column, Some(20));
    assert_eq!(run("if (1) return null!.x;").trouble().column, Some(1));
    assert_eq!(run("return (undefined as any).x").trouble().column, Some(9));
}

#[test]
fn an_error_in_what_was_rewritten_points_at_the_line_that_was_written() {
    let heard = run(
        "enum Color {\n  Red,\n  Green,\n}\n\nfunction pick(c: Color): never {\n  throw new Error('no ' + Color[c])\n}\npick(Color.Green)",
    );
    assert_eq!(heard.trouble().message, "no Green");
    assert_eq!(heard.trouble().line, Some(7));
    assert!(heard.trouble().stack.as_deref().unwrap().contains("main.ts:9:"));
}

#[test]
fn a_syntax_error_is_told_with_its_line() {
    let heard = run("const a = 1;\nconst b = = 2;");
    let trouble = heard.trouble();
    assert_eq!(
        (trouble.name.as_str(), trouble.line, trouble.column),
        ("SyntaxError", Some(2), Some(11))
    );
    assert!(
        trouble.stack.as_deref().unwrap().contains("const b = = 2;\n          ^"),
        "{trouble:?}"
    );
    assert!(run("const x = <div>hi</div>").trouble().message.contains("JSX"));
    assert!(run("@log class A {}").trouble().message.contains("decorators"));
    assert!(run("import fs = require('fs')").trouble().message.contains("import x from"));
    assert!(run("export = 1").trouble().message.contains("export default"));
    assert!(run("export const x = 1; return x").trouble().message.contains("export default"));
    assert_eq!(run("let a = 1; let a = 2;").trouble().name, "SyntaxError");
    assert_eq!(run("let a = 1;\nlet a = 2;").trouble().line, Some(2));
}

#[test]
fn whatever_is_thrown_is_told() {
    assert_eq!(run("throw 'text'").trouble().message, "text was thrown");
    assert_eq!(run("throw { code: 7 }").trouble().message, r#"{"code":7} was thrown"#);
    assert!(run("throw undefined").trouble().message.contains("undefined"));
    assert!(run("throw null").trouble().message.contains("null"));
    let heard = run("class Own extends Error { name = 'Own'; code = 1 } throw new Own('mine')");
    assert_eq!(heard.trouble().name, "Own");
}

#[test]
fn an_error_of_a_class_of_its_own_points_at_where_it_was_made() {
    let heard = run(
        "class Own extends TypeError {\n  constructor(m: string) {\n    super(m)\n  }\n}\nclass More extends Own {}\nfunction f() {\n  throw new More('x')\n}\nf()",
    );
    assert_eq!(heard.trouble().line, Some(8), "{heard:?}");
}

#[test]
fn an_error_that_is_longer_than_any_frame_is_cut() {
    let heard = run("throw new Error('m'.repeat(40 << 20))");
    assert!(heard.trouble().message.len() < 70_000);
    assert!(run("throw 'm'.repeat(40 << 20)").trouble().message.len() < 70_000);
}

#[test]
fn causes_are_told_too() {
    let heard = run("throw new Error('outer', { cause: { code: 1 } })");
    assert_eq!(heard.trouble().message, r#"outer (cause: {"code":1})"#);
    let heard = run("try { JSON.parse('{') } catch (e) { throw new Error('outer', { cause: e }) }");
    assert!(heard.trouble().message.starts_with("outer (cause: SyntaxError"), "{heard:?}");
    assert!(heard.trouble().stack.as_deref().unwrap().contains("[cause]"));
}

#[test]
fn a_program_that_takes_too_much_memory_is_told_so() {
    let mut job =
        script("const all = []; for (;;) all.push(new Array(1000).fill('x' + all.length))");
    job.memory = 64 << 20;
    let heard = hear(job);
    assert!(
        heard.trouble().message.contains("out of memory: the program may use 64 MiB"),
        "{heard:?}"
    );
    let mut job = script("const a = []; for (;;) a.push({ a: [1, 2, 3] })");
    job.memory = 64 << 20;
    assert!(hear(job).trouble().message.contains("out of memory"));
}

#[test]
fn recursion_without_end_is_an_error_and_can_be_caught() {
    let heard = run("const f = (n: number): number => f(n + 1) + 1; f(0)");
    assert_eq!(heard.trouble().name, "RangeError");
    let code = "const f = (n: number): number => f(n + 1) + 1; try { f(0) } catch (e) { 'caught' + (e instanceof RangeError) }\n'on'";
    assert_eq!(run(code).value(), json!("on"));
}

#[test]
fn recursion_as_deep_as_programs_need_works() {
    assert_eq!(
        run("const f = (n: number): number => n ? f(n - 1) + 1 : 0; f(2000)").value(),
        json!(2000)
    );
}

#[test]
fn a_stack_is_what_programs_of_node_expect() {
    let heard = run("try { null!.x } catch (e) { console.log((e as Error).stack) }");
    assert_eq!(heard.stdout, "TypeError: cannot read property 'x' of null\n    at main.ts:1:6\n");
}

#[test]
fn an_error_in_what_was_imported_names_it() {
    let mut job = script("import { f } from 'skill:broken';\nf()");
    job.modules = vec![module(
        "skill:broken",
        "type A = 1;\nexport function f(): A {\n  throw new Error('inside')\n}",
    )];
    let heard = hear(job);
    assert_eq!(
        heard.trouble().stack.as_deref(),
        Some("    at f (skill:broken:3:13)\n    at main.ts:2:1")
    );
    let mut job = script("import 'skill:broken'");
    job.modules = vec![module("skill:broken", "let x =\n;")];
    assert!(hear(job).trouble().message.contains("skill:broken:2:1"));
}
