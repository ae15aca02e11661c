//! Runs the same expressions in Deno and in the runtime and compares the results.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::page;

/// The minimum number of compared cases, so that the test fails if the cases are not read.
const CASES: usize = 770;

#[test]
fn worker_runtime_gives_the_same_results_as_deno() {
    let cases = include_str!("cases.js");
    let ours = page::evaluate(&format!("{cases}\nreturn answers"));
    let sources = page::evaluate(&format!(
        "{cases}\nreturn Object.fromEntries(Object.entries(groups).map(([name, list]) => [name, list.map(String)]))"
    ));
    let theirs = deno(cases);
    let mut differ = String::new();
    let mut count = 0;
    for (group, theirs) in theirs.as_object().unwrap() {
        for (at, theirs) in theirs.as_array().unwrap().iter().enumerate() {
            count += 1;
            let ours = &ours[group][at];
            if ours != theirs {
                differ += &format!(
                    "{group} {at}: {}\n  deno {theirs}\n  ours {ours}\n",
                    sources[group][at]
                );
            }
        }
    }
    assert!(differ.is_empty(), "{differ}");
    assert!(count >= CASES, "only {count} cases");
}

fn deno(cases: &str) -> Value {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    let deno = clients.join("npm/node_modules/.bin/deno");
    assert!(deno.exists(), "{} is missing: `cargo xtask test` installs it", deno.display());
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("cases.mjs");
    std::fs::write(&script, format!("{cases}\nconsole.log(JSON.stringify(answers))")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test compares with Deno")]
    let ran = Command::new(deno)
        .args(["run", "--quiet", "--no-config", "--no-lock"])
        .arg(&script)
        .envs([("LANG", "en_US.UTF-8"), ("DENO_NO_UPDATE_CHECK", "1")])
        .env("DENO_DIR", dir.path().join("deno"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    let complaint = String::from_utf8_lossy(&ran.stderr);
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}{complaint}"))
}
