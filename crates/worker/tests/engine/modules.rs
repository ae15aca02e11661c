//! Imports of skills, libraries, APIs, files and built-in modules.

use belljar_wire::Named;
use serde_json::json;

use super::worker::{module, run, run_script, script};

#[test]
fn program_imports_skills_and_libraries_by_name() {
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
    assert_eq!(run_script(job).value(), json!({ "a": 8, "b": 2, "c": true, "d": true, "e": 1 }));
}

#[test]
fn modules_with_circular_imports_are_loaded() {
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
    assert_eq!(run_script(job).value(), json!(true));
}

#[test]
fn apis_are_available_by_name_and_errors_list_them() {
    let api = |name: &str| Named { name: name.to_owned(), specifier: format!("api:{name}") };
    let job = |code: &str| {
        let mut job = script(code);
        job.apis = vec![api("github"), api("other")];
        job.modules = vec![
            module("api:github", "export default { get: async (x: string) => `got ${x}` }"),
            module("api:other", "console.log('other loaded'); export default { n: 1 }"),
        ];
        run_script(job)
    };
    let outcome = job("await apis.github.get('x')");
    assert_eq!(outcome.value(), json!("got x"));
    assert_eq!(outcome.stdout, "");
    assert_eq!(job("Object.keys(apis)").value(), json!(["github", "other"]));
    assert_eq!(job("const { other } = apis; other.n").value(), json!(1));
    assert!(job("apis.gitlab.get('x')").error().message.contains("available: github, other"));
    assert!(run("apis.x").error().message.contains("none are available"));
}

#[test]
fn data_urls_and_files_can_be_imported() {
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
fn missing_module_error_lists_alternatives() {
    let error = |code: &str| run(code).error().message.clone();
    assert!(error("import _ from 'lodash'; _()").contains("use the methods of Array"));
    assert!(error("import axios from 'axios'; axios()").contains("use the built-in `fetch`"));
    assert!(error("import x from 'npm:zod@3'; x()").contains("https://esm.sh/zod@3"));
    assert!(error("import x from 'skill:none'; x()").contains("no modules of the kind"));
    assert!(error("import { exec } from 'node:child_process'; exec()").contains("run_command"));
    assert!(error("await import('who')").contains("Built-in modules: assert"));
    assert!(error("const x = require('express')").contains("servers cannot be reached"));
    let mut job = script("import x from 'skill:none'; x()");
    job.modules = vec![module("skill:one", "")];
    assert!(run_script(job).error().message.contains("available: skill:one"));
    assert_eq!(
        run("try { await import('nope') } catch (e) { console.log((e as any).code) }").stdout,
        "ERR_MODULE_NOT_FOUND\n"
    );
}

#[test]
fn missing_export_is_a_syntax_error() {
    assert_eq!(run("import { nope } from 'node:path'; nope()").error().name, "SyntaxError");
}

#[test]
fn type_only_import_loads_no_module() {
    assert_eq!(
        run("import type { A } from 'nowhere'; import { B } from 'nowhere'; const x: A | B = 1; x")
            .value(),
        json!(1)
    );
}

#[test]
fn import_meta_contains_the_path_of_the_program() {
    assert_eq!(
        run("[import.meta.url, import.meta.main, import.meta.dirname]").value(),
        json!(["file:///workspace/main.ts", true, "/workspace"])
    );
}
