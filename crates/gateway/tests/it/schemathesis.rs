//! schemathesis sends generated requests to every route of the OpenAPI document and checks the responses.

use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_gateway::{Prover, Rate};
use serde_json::Value;

use crate::gateway::TestGateway;

/// Returns the directory where `cargo xtask test` installed schemathesis.
#[track_caller]
fn tool() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let dir = target.join("clients/schemathesis");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

/// All scopes but `mcp`, whose route is not in the document.
const SCOPES: [&str; 9] = [
    "boxes:read",
    "boxes:write",
    "changes:apply",
    "runs:read",
    "runs:write",
    "metrics:read",
    "ledger:read",
    "usage:read",
    "secrets:write",
];

/// A valid request that a route can refuse, with the reason.
struct Exception {
    /// Whether an operation is concerned.
    is_of: fn(&Value) -> bool,
    status: u16,
}

/// Returns whether an operation is a WebSocket.
fn is_websocket(operation: &Value) -> bool {
    operation["responses"].get("101").is_some()
}

/// Returns whether an operation has a parameter with this name.
fn has_parameter(operation: &Value, name: &str) -> bool {
    let parameters = operation["parameters"].as_array();
    parameters.into_iter().flatten().any(|parameter| parameter["name"] == name)
}

/// The refusals that no schema can express.
const EXCEPTIONS: [Exception; 7] = [
    // A generated cursor has the right form, but no valid signature.
    Exception { is_of: |operation| has_parameter(operation, "cursor"), status: 400 },
    // A schema does not describe the handshake of a WebSocket.
    Exception { is_of: is_websocket, status: 426 },
    // OpenAPI has no syntax for the rest of a path, so a generated one has escaped slashes.
    Exception { is_of: |operation| has_parameter(operation, "tile"), status: 400 },
    Exception { is_of: |operation| has_parameter(operation, "path"), status: 400 },
    // A text in a language of its own, such as a network rule, is described by a length only.
    Exception { is_of: |operation| operation["x-belljar-language"] == true, status: 400 },
    // A generated version is not that of the object, and the header depends on whether there is an object.
    Exception { is_of: |operation| has_parameter(operation, "If-Match"), status: 412 },
    Exception { is_of: |operation| has_parameter(operation, "If-Match"), status: 428 },
];

/// Returns the settings of the checks, with those of the operations with exceptions.
fn checks(document: &Value) -> String {
    // The default statuses do not have 412 and 413.
    let mut settings = "[checks]\nnegative_data_rejection.expected-statuses = \
                        [\"400\", \"401\", \"403\", \"404\", \"405\", \"406\", \"409\", \"412\", \
                        \"413\", \"415\", \"428\", \"429\", \"5xx\"]\n"
        .to_owned();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let found = EXCEPTIONS.iter().filter(|it| (it.is_of)(operation));
            let statuses: String = found.map(|it| format!("{}, ", it.status)).collect();
            if statuses.is_empty() {
                continue;
            }
            settings.push_str(&format!(
                "[[operations]]\ninclude-name = \"{} {path}\"\n\
                 checks.positive_data_acceptance.expected-statuses = \
                 [{statuses}\"2xx\", 401, 403, 404, 409, 429, \"5xx\"]\n",
                method.to_uppercase(),
            ));
            if is_websocket(operation) {
                settings.push_str(
                    "checks.negative_data_rejection.expected-statuses = [\"4xx\", \"5xx\"]\n",
                );
            }
        }
    }
    settings
}

/// Writes the configuration of a run with a token and a new session.
async fn configure(server: &TestGateway, token: &str, checks: &str, file: &Path) {
    let login = server.login("local").await;
    let (_, session) = login.cookie.split_once('=').unwrap();
    let configuration = format!(
        "base-url = \"{address}\"\nheaders = {{ Host = \"{host}\", Origin = \"http://{host}\", \
         X-Belljar-Csrf = \"{csrf}\" }}\n[auth.openapi.token]\nbearer = \"{token}\"\n\
         [auth.openapi.session]\napi_key = \"{session}\"\n{checks}",
        address = address(server),
        host = login.host,
        csrf = login.csrf,
    );
    std::fs::write(file, configuration).unwrap();
}

fn address(server: &TestGateway) -> String {
    format!("http://127.0.0.1:{}", server.addr.port())
}

/// The operations that revoke a credential. schemathesis would revoke its own one with them, so they are
/// tested after all others.
const REVOCATIONS: [&str; 2] = ["delete_v1_sessions_session", "delete_v1_tokens_token"];

/// Runs schemathesis with these options, and returns its output.
#[expect(clippy::disallowed_methods, reason = "the test starts another program")]
async fn run(server: &TestGateway, file: &Path, options: Vec<&'static str>) -> String {
    let tool = tool();
    let mut command = Command::new("/usr/bin/python3");
    command.arg(tool.join("bin/schemathesis")).arg("--config-file").arg(file);
    command.args(["run", &format!("{}/openapi.json", address(server)), "--checks", "all"]);
    command.args(["--seed", "1", "--no-color", "--generation-database", "none"]);
    command.args(["--max-examples", "5", "--phases", "examples,coverage,fuzzing"]).args(options);
    command.env("PYTHONPATH", &tool).current_dir(file.parent().unwrap());
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(text.contains("API Operations:"), "control: it ran\n{text}\n{errors}");
    assert!(ran.status.success(), "{text}\n{errors}");
    text
}

/// Asserts that the summary of a run counts this number of tested operations.
#[track_caller]
fn check_number(text: &str, number: usize) {
    assert!(text.contains(&format!("Tested: {number}\n")), "control: {number} operations\n{text}");
}

#[tokio::test]
async fn schemathesis_finds_no_violation_of_the_openapi_document() {
    let server = TestGateway::with(|options| {
        let unlimited = Rate::per_second(100_000, 100_000);
        let limits = &mut options.limits;
        (limits.reads, limits.writes, limits.failed_logins) = (unlimited, unlimited, unlimited);
        options.prover = Some(Prover::new(vec!["A01"], |_, _| Ok(Vec::new())));
    })
    .await;
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    let checks = checks(&document);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("schemathesis.toml");
    let token = server.login("local").await.token(&server, &SCOPES).await;
    configure(&server, &token, &checks, &file).await;
    let exclude = REVOCATIONS.iter().flat_map(|id| ["--exclude-operation-id", *id]).collect();
    let text = run(&server, &file, exclude).await;
    let methods = document["paths"].as_object().unwrap().values();
    let operations: usize = methods.map(|methods| methods.as_object().unwrap().len()).sum();
    // schemathesis leaves the address of the document itself out.
    check_number(&text, operations - 1 - REVOCATIONS.len());
    assert!(!text.contains("401 Unauthorized ("), "control: every credential was valid\n{text}");
    for id in REVOCATIONS {
        configure(&server, &token, &checks, &file).await;
        check_number(&run(&server, &file, vec!["--include-operation-id", id]).await, 1);
    }
}
