//! Calls of MCP tools from programs.

use std::collections::HashMap;

use belljar_wire::{FromWorker, Job, Script, ToolRef};
use serde_json::{Value, json};

use super::worker::{Outcome, Tool, Worker, run_script_with_tools, script};

fn job(code: &str) -> Script {
    let tool = |server: &str, function: &str, tool: &str| ToolRef {
        server: server.to_owned(),
        function: function.to_owned(),
        tool: tool.to_owned(),
    };
    let mut job = script(code);
    job.tools = vec![tool("math", "addAll", "add-all"), tool("math", "fail", "fail")];
    job
}

fn run_with_math_tools(code: &str) -> Outcome {
    let mut tools: HashMap<&str, Tool> = HashMap::new();
    tools.insert("math/add-all", |input| {
        let numbers = input["numbers"].as_array().unwrap();
        Ok(json!({ "sum": numbers.iter().filter_map(Value::as_i64).sum::<i64>() }))
    });
    tools.insert("math/fail", |_| Err("the server said no".to_owned()));
    run_script_with_tools(job(code), &tools)
}

#[test]
fn tool_call_returns_the_value_of_the_tool() {
    assert_eq!(
        run_with_math_tools("(await tools.math.addAll({ numbers: [1, 2] })).sum").value(),
        json!(3)
    );
    assert_eq!(
        run_with_math_tools("(await tools.math['add-all']({ numbers: [1, 2] })).sum").value(),
        json!(3)
    );
}

#[test]
fn tool_calls_run_concurrently() {
    let code = "const all = await Promise.all([1, 2, 3].map(n => tools.math.addAll({ numbers: [n, n] }))); all.map(x => x.sum)";
    assert_eq!(run_with_math_tools(code).value(), json!([2, 4, 6]));
}

#[test]
fn program_with_a_result_does_not_wait_for_a_tool_call_that_is_left_over() {
    let code = "const slow = tools.math.addAll({ numbers: [1] });
        return await Promise.any([slow, Promise.resolve('fast')])";
    let mut worker = Worker::start();
    worker.send(&Job::Script(job(code)));
    let mut calls = 0;
    let done = loop {
        match worker.next().expect("a worker reports its result before it exits") {
            FromWorker::Call { .. } => calls += 1, // never answered
            FromWorker::Done(done) => break done,
            other @ (FromWorker::Ready | FromWorker::Output { .. }) => panic!("{other:?}"),
        }
    };
    assert_eq!(calls, 1, "control: the call was made");
    assert_eq!(done.value.as_ref().map(|json| json.get()), Some("\"fast\""));
    assert!(worker.child.wait().unwrap().success());
}

#[test]
fn failed_tool_call_throws_an_error() {
    let outcome = run_with_math_tools(
        "try { await tools.math.fail() } catch (e) { (e as Error).message }\nawait tools.math.fail({})",
    );
    assert_eq!(outcome.error().message, "the server said no");
}

#[test]
fn missing_tool_error_lists_the_available_ones() {
    assert!(
        run_with_math_tools("await tools.math.multiply({})")
            .error()
            .message
            .contains("available: addAll, fail")
    );
    assert!(
        run_with_math_tools("await tools.maths.addAll({})")
            .error()
            .message
            .contains("available: math")
    );
    assert_eq!(
        run_with_math_tools(
            "[Object.keys(tools), 'math' in tools, await tools.math && typeof tools.math.addAll]"
        )
        .value(),
        json!([["math"], true, "function"])
    );
}

#[test]
fn program_without_a_result_waits_for_tool_calls_that_it_does_not_await() {
    let code = "tools.math.addAll({ numbers: [4] }).then(x => console.log(x.sum)); const x = 1";
    let outcome = run_with_math_tools(code);
    assert_eq!(outcome.stdout, "4\n");
}
