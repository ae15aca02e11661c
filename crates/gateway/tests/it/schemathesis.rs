//! schemathesis sends generated requests to every route of the OpenAPI document and checks the responses.

use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_gateway::Rate;
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

/// A valid request that a route can refuse, with the reason.
struct Exception {
    /// Whether an operation is concerned.
    is_of: fn(&Value) -> bool,
    status: u16,
}

/// Returns whether an operation has a parameter with this name.
fn has_parameter(operation: &Value, name: &str) -> bool {
    let parameters = operation["parameters"].as_array();
    parameters.into_iter().flatten().any(|parameter| parameter["name"] == name)
}

/// The refusals that no schema can express.
const EXCEPTIONS: [Exception; 4] = [
    // A generated cursor has the right form, but no valid signature.
    Exception { is_of: |operation| has_parameter(operation, "cursor"), status: 400 },
    // A schema does not describe the handshake of a WebSocket.
    Exception { is_of: |operation| operation["responses"].get("101").is_some(), status: 426 },
    // OpenAPI has no syntax for the rest of a path, so a generated one has escaped slashes.
    Exception { is_of: |operation| has_parameter(operation, "tile"), status: 400 },
    // A text in a language of its own, such as a network rule, is described by a length only.
    Exception { is_of: |operation| operation["x-belljar-language"] == true, status: 400 },
];

/// Returns the settings of the operations with exceptions.
fn exceptions(document: &Value) -> String {
    let mut settings = String::new();
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
        }
    }
    settings
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test starts another program")]
async fn schemathesis_finds_no_violation_of_the_openapi_document() {
    let server = TestGateway::with(|options| {
        let unlimited = Rate::per_second(100_000, 100_000);
        let limits = &mut options.limits;
        (limits.reads, limits.writes, limits.failed_logins) = (unlimited, unlimited, unlimited);
    })
    .await;
    let login = server.login("local").await;
    let scopes =
        ["boxes:read", "boxes:write", "runs:read", "runs:write", "metrics:read", "ledger:read"];
    let token = login.token(&server, &scopes).await;
    let (_, session) = login.cookie.split_once('=').unwrap();
    let address = format!("http://127.0.0.1:{}", server.addr.port());
    let dir = tempfile::tempdir().unwrap();
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    let configuration = format!(
        "base-url = \"{address}\"\nheaders = {{ Host = \"{host}\", Origin = \"http://{host}\", \
         X-Belljar-Csrf = \"{csrf}\" }}\n[auth.openapi.token]\nbearer = \"{token}\"\n\
         [auth.openapi.session]\napi_key = \"{session}\"\n{exceptions}",
        host = login.host,
        csrf = login.csrf,
        exceptions = exceptions(&document),
    );
    let file = dir.path().join("schemathesis.toml");
    std::fs::write(&file, configuration).unwrap();
    let tool = tool();
    let mut command = Command::new("/usr/bin/python3");
    command.arg(tool.join("bin/schemathesis")).arg("--config-file").arg(&file);
    command.args(["run", &format!("{address}/openapi.json"), "--checks", "all", "--seed", "1"]);
    command.args(["--no-color", "--generation-database", "none", "--max-examples", "20"]);
    command.env("PYTHONPATH", &tool).current_dir(dir.path());
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(text.contains("API Operations:"), "control: it ran\n{text}\n{errors}");
    assert!(ran.status.success(), "{text}\n{errors}");
}
