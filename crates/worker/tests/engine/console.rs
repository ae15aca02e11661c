//! Output of `console`.

use super::worker::run;

#[track_caller]
fn check_log(code: &str, text: &str) {
    assert_eq!(run(&format!("console.log({code})")).stdout, format!("{text}\n"), "{code}");
}

#[test]
fn console_log_formats_values_as_node_does() {
    for (code, text) in [
        (
            "'a', 1, -0, 1n, true, null, undefined, Symbol('s')",
            "a 1 -0 1n true null undefined Symbol(s)",
        ),
        (
            "{ a: 1, 'b-c': 'x', [Symbol('k')]: [1, 'y'] }",
            "{ a: 1, 'b-c': 'x', [Symbol(k)]: [ 1, 'y' ] }",
        ),
        ("[], {}, [,1], [[1, [2, [3]]]]", "[] {} [ <1 empty item>, 1 ] [ [ 1, [ 2, [ 3 ] ] ] ]"),
        (
            "new Map<any, any>([['a', { b: 1 }]]), new Set([1])",
            "Map(1) { 'a' => { b: 1 } } Set(1) { 1 }",
        ),
        ("new Date(0), /x/g, [new Date(NaN)]", "1970-01-01T00:00:00.000Z /x/g [ Invalid Date ]"),
        (
            "function foo() {}, () => {}, class A {}, class B extends Map {}",
            "[Function: foo] [Function (anonymous)] [class A] [class B extends Map]",
        ),
        ("async function x() {}, function* g() {}", "[AsyncFunction: x] [GeneratorFunction: g]"),
        ("new (class Point { x = 1; #p = 2 })()", "Point { x: 1 }"),
        (
            "Object.create(null), Object.assign(Object.create(null), { a: 1 })",
            "[Object: null prototype] {} [Object: null prototype] { a: 1 }",
        ),
        (
            "new Uint8Array([1, 2]), Buffer.from('hi'), new ArrayBuffer(2)",
            "Uint8Array(2) [ 1, 2 ] <Buffer 68 69> ArrayBuffer { [Uint8Contents]: <00 00>, byteLength: 2 }",
        ),
        ("{ get a() { return 1 }, set b(v) {} }", "{ a: [Getter], b: [Setter] }"),
        ("Promise.resolve(1), new Promise(() => {})", "Promise { 1 } Promise { <pending> }"),
        (
            "{ a: { b: { c: { d: { e: { f: 1 } } } } } }",
            "{ a: { b: { c: { d: { e: [Object] } } } } }",
        ),
        ("['it\\'s', \"q\\\"\", 'line\\n']", "[ \"it's\", 'q\"', 'line\\n' ]"),
        ("Object(1), [Object('s')]", "[Number: 1] [ [String: 's'] ]"),
    ] {
        check_log(code, text);
    }
}

#[test]
fn console_log_limits_cycles_and_long_values() {
    let outcome = run(
        "const a: any = { n: 1 }; a.self = a; console.log(a); console.log(Array.from({ length: 200 }, (_, i) => i).join().length, new Array(120).fill(0).length)",
    );
    assert!(
        outcome.stdout.starts_with("<ref *1> { n: 1, self: [Circular *1] }\n"),
        "{}",
        outcome.stdout
    );
    let outcome = run(
        "console.log(Array.from({ length: 1000 }, (_, i) => i)); console.log(['x'.repeat(20000)])",
    );
    assert!(outcome.stdout.contains("... 900 more items"));
    assert!(outcome.stdout.contains("... 10000 more characters"));
    let outcome = run(
        "const wide: any = {}; let at = wide; for (let i = 0; i < 1e5; i++) at[i] = { i }; console.log(wide)",
    );
    assert!(outcome.stdout.len() < 200_000, "{}", outcome.stdout.len());
}

#[test]
fn console_log_breaks_wide_objects_into_lines() {
    let outcome = run("console.log({ first: 'a'.repeat(40), second: 'b'.repeat(40) })");
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    assert_eq!(outcome.stdout, format!("{{\n  first: '{a}',\n  second: '{b}'\n}}\n"));
}

#[test]
fn console_log_replaces_printf_formats() {
    for (code, text) in [
        ("'%s is %d years and %i, %f', 'x', 4.5, 4.5, '1.5'", "x is 4.5 years and 4, 1.5"),
        ("'%j %o', { a: 1 }, [1]", "{\"a\":1} [ 1, [length]: 1 ]"),
        ("'%c red %O %%', 'color: red', { a: { b: 1 } }", " red { a: { b: 1 } } %"),
        ("'100%', 1", "100% 1"),
        ("'%s', { toString() { return 'me' } }, 'rest'", "me rest"),
        ("'a', '%s', 'b'", "a %s b"),
    ] {
        check_log(code, text);
    }
}

#[test]
fn console_methods_write_to_stdout_or_stderr() {
    let outcome = run(
        "console.info('i'); console.debug('d'); console.warn('w'); console.error('e'); console.assert(1 > 2, 'why');
         console.group('g'); console.log('in\\nside'); console.groupEnd(); console.log('out');
         console.count(); console.count('x'); console.count(); console.countReset(); console.count();
         console.dir({ a: { b: { c: { d: 1 } } } }, { depth: 0 }); process.stdout.write('raw'); process.stderr.write('err')",
    );
    assert_eq!(
        outcome.stdout,
        "i\nd\ng\n  in\n  side\nout\ndefault: 1\nx: 1\ndefault: 2\ndefault: 1\n{ a: [Object] }\nraw"
    );
    assert_eq!(outcome.stderr, "w\ne\nAssertion failed: why\nerr");
    let outcome = run("function f() { console.trace('here') } f()");
    assert_eq!(outcome.stderr, "Trace: here\n    at f (main.ts:1:23)\n    at main.ts:1:40\n");
}

#[test]
fn console_table_prints_rows_and_columns_as_node_does() {
    let outcome = run("console.table([{ a: 1, b: 'x' }, { a: 2, c: true }])");
    assert_eq!(
        outcome.stdout,
        "┌─────────┬───┬─────┬──────┐\n│ (index) │ a │ b   │ c    │\n├─────────┼───┼─────┼──────┤\n\
         │ 0       │ 1 │ 'x' │      │\n│ 1       │ 2 │     │ true │\n└─────────┴───┴─────┴──────┘\n"
    );
}

#[test]
fn console_log_prints_errors_with_stack_and_cause() {
    let outcome =
        run("const e = new Error('outer', { cause: new TypeError('inner') });\nconsole.log(e)");
    assert_eq!(
        outcome.stdout,
        "Error: outer\n    at main.ts:1:43 {\n  [cause]: TypeError: inner\n      at main.ts:1:43\n}\n"
    );
    let outcome = run("console.log({ e: Object.assign(new Error('x'), { code: 7 }) })");
    assert!(
        outcome.stdout.contains("Error: x\n") && outcome.stdout.contains("code: 7"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn console_output_above_the_frame_size_is_sent_completely() {
    let outcome = run("for (let i = 0; i < 3; i++) console.log('é'.repeat(700_000))");
    assert_eq!(outcome.stdout.chars().count(), 3 * 700_001);
}
