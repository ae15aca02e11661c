//! What a program gives back.

use serde_json::json;

use super::worker::{hear, run, script};

#[test]
fn a_default_export_is_what_a_program_gives() {
    assert_eq!(run("export default { answer: 6 * 7 }").value(), json!({ "answer": 42 }));
}

#[test]
fn a_default_export_that_is_a_function_is_called_with_the_input() {
    let mut job = script("export default async ({ n }) => { await null; return n + 1 }");
    job.input = Some(r#"{"n": 41}"#.to_owned());
    assert_eq!(hear(job).value(), json!(42));
}

#[test]
fn a_program_ends_when_its_timers_have_fired() {
    let heard = run("setTimeout(() => console.log('late'), 5); console.log('soon')");
    assert_eq!(heard.stdout, "soon\nlate\n");
    assert!(heard.done.value.is_none());
}

#[test]
fn a_promise_that_nothing_can_settle_ends_the_program() {
    assert!(run("await new Promise(() => {})").trouble().message.contains("nothing is left"));
}

#[test]
fn a_failure_that_nobody_asks_about_is_told() {
    let heard = run("Promise.reject(new TypeError('nobody asked')); export default 1");
    assert_eq!(heard.trouble().name, "TypeError");
    assert_eq!(heard.trouble().message, "nobody asked");
}
