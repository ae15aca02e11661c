//! Timers, unhandled rejections, and the end of a program.

use serde_json::json;

use super::worker::run;

#[test]
fn program_ends_after_its_timers_fired() {
    let outcome = run("setTimeout(() => console.log('late'), 5); console.log('soon')");
    assert_eq!(outcome.stdout, "soon\nlate\n");
    assert!(outcome.done.value.is_none());
}

#[test]
fn timers_fire_in_order_of_time_after_microtasks() {
    let outcome = run(
        "setTimeout((x: number) => console.log('b', x), 2, 7); setTimeout(() => console.log('a'), 1);
         setImmediate(() => console.log('now')); Promise.resolve().then(() => console.log('then'));
         queueMicrotask(() => console.log('micro')); process.nextTick(() => console.log('tick'));
         const never = setTimeout(() => console.log('never'), 1); clearTimeout(never); console.log('first')",
    );
    assert_eq!(outcome.stdout, "first\nthen\nmicro\ntick\nnow\na\nb 7\n");
}

#[test]
fn interval_repeats_until_it_is_cleared() {
    let code = "let n = 0; await new Promise<void>(r => { const t = setInterval(() => { if (++n === 3) { clearInterval(t); r() } }, 1) }); n";
    assert_eq!(run(code).value(), json!(3));
}

#[test]
fn unreferenced_timer_does_not_delay_the_end_of_a_program() {
    assert_eq!(run("setTimeout(() => console.log('no'), 60_000).unref(); 1").value(), json!(1));
}

#[test]
fn program_with_a_result_ends_although_timers_are_left_over() {
    let race =
        "const late = new Promise((_, no) => setTimeout(() => no(new Error('late')), 600_000));
        return await Promise.race([late, Promise.resolve('first')])";
    assert_eq!(run(race).value(), json!("first"));
    let interval = "let n = 0; setInterval(() => { n++ }, 1); setInterval(() => {}, 600_000);
        await new Promise(done => setTimeout(done, 5)); export default { n: n > 0 }";
    assert_eq!(run(interval).value(), json!({ "n": true }));
    assert_eq!(run("setTimeout(() => {}, 600_000); return null").value(), json!(null));
    let busy = "const again = () => setTimeout(again, 0); again(); 'done'";
    assert_eq!(run(busy).value(), json!("done"));
    // Control: a program without a result waits for its timers.
    let outcome = run("setTimeout(() => console.log('late'), 5)");
    assert_eq!((outcome.stdout.as_str(), outcome.done.value.is_none()), ("late\n", true));
}

#[test]
fn promise_that_can_never_settle_is_an_error() {
    assert!(run("await new Promise(() => {})").error().message.contains("can never settle"));
}

#[test]
fn unhandled_rejection_fails_the_program() {
    let outcome = run("Promise.reject(new TypeError('nobody asked')); export default 1");
    assert_eq!(outcome.error().name, "TypeError");
    assert_eq!(outcome.error().message, "nobody asked");
    assert_eq!(outcome.error().line, Some(1));
    let outcome = run("queueMicrotask(() => { throw new Error('in a microtask') })");
    assert_eq!(outcome.error().message, "in a microtask");
    let outcome = run(
        "setTimeout(() => { throw new Error('in a timer') }, 1); await new Promise(r => setTimeout(r, 50))",
    );
    assert_eq!(outcome.error().message, "in a timer");
}

#[test]
fn promise_rejection_that_is_handled_later_is_not_an_error() {
    let code = "const p = Promise.reject(new Error('x')); const q = (async () => { try { await p } catch { return 'caught' } })(); await q";
    assert_eq!(run(code).value(), json!("caught"));
    assert_eq!(
        run("await Promise.allSettled([Promise.reject(1)]).then(r => r.length)").value(),
        json!(1)
    );
}
