//! What a program can import.

use belljar_wire::Named;
use serde_json::json;

use super::worker::{hear, module, run, script};

#[test]
fn skills_and_libraries_are_imported_by_name() {
    let mut job = script(
        "import { double } from 'skill:double'; import half, * as all from 'lib:half'; import bare from 'half';
         const again = await import('skill:double');
         ({ a: double(4), b: half(4), c: bare === half, d: again.double === double, e: all.count })",
    );
    job.modules = vec![
        module(
            "skill:double",
            "import half from 'lib:half'; export const double = (x: number): number => half(x) * 4",
        ),
        module("lib:half", "export let count = 0; count++; export default (x: number) => x / 2"),
    ];
    assert_eq!(hear(job).value(), json!({ "a": 8, "b": 2, "c": true, "d": true, "e": 1 }));
}

#[test]
fn modules_may_go_in_circles() {
    let mut job = script("import { even } from 'lib:even'; even(10)");
    job.modules = vec![
        module(
            "lib:even",
            "import { odd } from 'lib:odd'; export const even = (n: number): boolean => n === 0 || odd(n - 1)",
        ),
        module(
            "lib:odd",
            "import { even } from 'lib:even'; export const odd = (n: number): boolean => n !== 0 && even(n - 1)",
        ),
    ];
    assert_eq!(hear(job).value(), json!(true));
}

#[test]
fn apis_are_there_by_name_and_say_what_there_is() {
    let api = |name: &str| Named { name: name.to_owned(), specifier: format!("api:{name}") };
    let job = |code: &str| {
        let mut job = script(code);
        job.apis = vec![api("github"), api("other")];
        job.modules = vec![
            module("api:github", "export default { get: async (x: string) => `got ${x}` }"),
            module("api:other", "console.log('other loaded'); export default { n: 1 }"),
        ];
        hear(job)
    };
    let heard = job("await apis.github.get('x')");
    assert_eq!(heard.value(), json!("got x"));
    assert_eq!(heard.stdout, "");
    assert_eq!(job("Object.keys(apis)").value(), json!(["github", "other"]));
    assert_eq!(job("const { other } = apis; other.n").value(), json!(1));
    assert!(job("apis.gitlab.get('x')").trouble().message.contains("there is: github, other"));
    assert!(run("apis.x").trouble().message.contains("there is none"));
}

#[test]
fn data_addresses_and_files_can_be_imported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("util.ts"),
        "import data from './data.json'; export const n: number = data.n",
    )
    .unwrap();
    std::fs::write(dir.path().join("data.json"), r#"{"n": 5, "__proto__": 1}"#).unwrap();
    let code = format!(
        "import x from 'data:text/javascript,export default 3'; const u = await import('{}/util'); x + u.n",
        dir.path().display()
    );
    assert_eq!(run(&code).value(), json!(8));
}

#[test]
fn a_module_that_is_not_there_says_what_there_is() {
    let trouble = |code: &str| run(code).trouble().message.clone();
    assert!(trouble("import _ from 'lodash'; _()").contains("use the methods of Array"));
    assert!(trouble("import axios from 'axios'; axios()").contains("`fetch` is there already"));
    assert!(trouble("import x from 'npm:zod@3'; x()").contains("https://esm.sh/zod@3"));
    assert!(trouble("import x from 'skill:none'; x()").contains("nothing of the kind"));
    assert!(trouble("import { exec } from 'node:child_process'; exec()").contains("run_command"));
    assert!(trouble("await import('who')").contains("Built in: assert"));
    assert!(trouble("const x = require('express')").contains("nothing here can be reached"));
    let mut job = script("import x from 'skill:none'; x()");
    job.modules = vec![module("skill:one", "")];
    assert!(hear(job).trouble().message.contains("there is: skill:one"));
    assert_eq!(
        run("try { await import('nope') } catch (e) { console.log((e as any).code) }").stdout,
        "ERR_MODULE_NOT_FOUND\n"
    );
}

#[test]
fn an_export_that_is_not_there_is_told() {
    assert_eq!(run("import { nope } from 'node:path'; nope()").trouble().name, "SyntaxError");
}

#[test]
fn a_type_that_is_imported_loads_nothing() {
    assert_eq!(
        run("import type { A } from 'nowhere'; import { B } from 'nowhere'; const x: A | B = 1; x")
            .value(),
        json!(1)
    );
}

#[test]
fn the_module_says_where_it_is() {
    assert_eq!(
        run("[import.meta.url, import.meta.main, import.meta.dirname]").value(),
        json!(["file:///workspace/main.ts", true, "/workspace"])
    );
}
