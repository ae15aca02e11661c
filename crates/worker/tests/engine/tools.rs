//! Functions of other servers.

use std::collections::HashMap;

use belljar_wire::{Script, ToolRef};
use serde_json::{Value, json};

use super::worker::{Heard, Tool, hear_with, script};

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

fn ask(code: &str) -> Heard {
    let mut tools: HashMap<&str, Tool> = HashMap::new();
    tools.insert("math/add-all", |input| {
        let numbers = input["numbers"].as_array().unwrap();
        Ok(json!({ "sum": numbers.iter().filter_map(Value::as_i64).sum::<i64>() }))
    });
    tools.insert("math/fail", |_| Err("the server said no".to_owned()));
    hear_with(job(code), &tools)
}

#[test]
fn a_function_of_another_server_is_called_and_gives_its_value() {
    assert_eq!(ask("(await tools.math.addAll({ numbers: [1, 2] })).sum").value(), json!(3));
    assert_eq!(ask("(await tools.math['add-all']({ numbers: [1, 2] })).sum").value(), json!(3));
}

#[test]
fn calls_run_beside_each_other() {
    let code = "const all = await Promise.all([1, 2, 3].map(n => tools.math.addAll({ numbers: [n, n] }))); all.map(x => x.sum)";
    assert_eq!(ask(code).value(), json!([2, 4, 6]));
}

#[test]
fn what_another_server_refuses_is_an_error() {
    let heard = ask(
        "try { await tools.math.fail() } catch (e) { (e as Error).message }\nawait tools.math.fail({})",
    );
    assert_eq!(heard.trouble().message, "the server said no");
}

#[test]
fn a_function_that_is_not_there_says_which_there_are() {
    assert!(
        ask("await tools.math.multiply({})").trouble().message.contains("there is: addAll, fail")
    );
    assert!(ask("await tools.maths.addAll({})").trouble().message.contains("there is: math"));
    assert_eq!(
        ask("[Object.keys(tools), 'math' in tools, await tools.math && typeof tools.math.addAll]")
            .value(),
        json!([["math"], true, "function"])
    );
}

#[test]
fn a_call_that_nobody_waits_for_still_ends_before_the_program() {
    let heard = ask("tools.math.addAll({ numbers: [4] }).then(x => console.log(x.sum)); 1");
    assert_eq!(heard.stdout, "4\n");
}
