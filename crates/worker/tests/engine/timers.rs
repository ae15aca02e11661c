//! Waiting, and when a program is over.

use serde_json::json;

use super::worker::run;

#[test]
fn a_program_ends_when_its_timers_have_fired() {
    let heard = run("setTimeout(() => console.log('late'), 5); console.log('soon')");
    assert_eq!(heard.stdout, "soon\nlate\n");
    assert!(heard.done.value.is_none());
}

#[test]
fn timers_fire_in_their_order_and_microtasks_before_them() {
    let heard = run(
        "setTimeout((x: number) => console.log('b', x), 2, 7); setTimeout(() => console.log('a'), 1);
         setImmediate(() => console.log('now')); Promise.resolve().then(() => console.log('then'));
         queueMicrotask(() => console.log('micro')); process.nextTick(() => console.log('tick'));
         const never = setTimeout(() => console.log('never'), 1); clearTimeout(never); console.log('first')",
    );
    assert_eq!(heard.stdout, "first\nthen\nmicro\ntick\nnow\na\nb 7\n");
}

#[test]
fn an_interval_goes_on_until_it_is_stopped() {
    let code = "let n = 0; await new Promise<void>(r => { const t = setInterval(() => { if (++n === 3) { clearInterval(t); r() } }, 1) }); n";
    assert_eq!(run(code).value(), json!(3));
}

#[test]
fn a_timer_that_holds_nobody_is_left_behind() {
    assert_eq!(run("setTimeout(() => console.log('no'), 60_000).unref(); 1").value(), json!(1));
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
    assert_eq!(heard.trouble().line, Some(1));
    let heard = run("queueMicrotask(() => { throw new Error('in a microtask') })");
    assert_eq!(heard.trouble().message, "in a microtask");
    let heard = run(
        "setTimeout(() => { throw new Error('in a timer') }, 1); await new Promise(r => setTimeout(r, 50))",
    );
    assert_eq!(heard.trouble().message, "in a timer");
}

#[test]
fn a_failure_that_somebody_asks_about_later_is_none() {
    let code = "const p = Promise.reject(new Error('x')); const q = (async () => { try { await p } catch { return 'caught' } })(); await q";
    assert_eq!(run(code).value(), json!("caught"));
    assert_eq!(
        run("await Promise.allSettled([Promise.reject(1)]).then(r => r.length)").value(),
        json!(1)
    );
}
