//! Valid requests for all operations of the API, in an order in which each one succeeds for an owner.

use serde_json::{Value, json};

/// Operations that concern the whole machine, so that only senders of the tenant `local` can use them.
const OF_MACHINE: [&str; 3] = ["GET /metrics", "POST /v1/doctor/prove", "GET /v1/doctor/prove"];

/// Operations that create the object of their path without a header that says so.
const CREATIONS: [&str; 2] = ["PUT /v1/schedules/{schedule}", "PUT /v1/webhooks/{webhook}"];

const HANDSHAKE: &[&str] = &[
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol: belljar.stream.v1",
];

/// A valid request for an operation.
pub(super) struct Step {
    /// The method and the path as in the OpenAPI document.
    pub(super) operation: &'static str,
    pub(super) query: &'static str,
    /// A text `{name}` in a value stands for the saved value of this name.
    pub(super) body: Value,
    pub(super) headers: &'static [&'static str],
    pub(super) status: u16,
    /// The parts of the response that later requests need: a name and a JSON pointer.
    pub(super) saves: &'static [(&'static str, &'static str)],
}

pub(super) fn step(operation: &'static str, status: u16) -> Step {
    Step { operation, query: "", body: Value::Null, headers: &[], status, saves: &[] }
}

impl Step {
    fn query(self, query: &'static str) -> Self {
        Self { query, ..self }
    }

    fn body(self, body: Value) -> Self {
        Self { body, ..self }
    }

    fn headers(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }

    fn saves(self, saves: &'static [(&'static str, &'static str)]) -> Self {
        Self { saves, ..self }
    }

    pub(super) fn method(&self) -> &'static str {
        self.operation.split_once(' ').unwrap().0
    }

    pub(super) fn path(&self) -> &'static str {
        self.operation.split_once(' ').unwrap().1
    }

    /// Returns whether the step creates the object of its path.
    pub(super) fn is_creation(&self) -> bool {
        self.headers.contains(&"If-None-Match: *") || CREATIONS.contains(&self.operation)
    }

    /// Returns whether the step makes an object.
    pub(super) fn is_new(&self) -> bool {
        self.status == 201
    }

    /// Returns whether only the tenant `local` can use the operation.
    pub(super) fn is_of_machine(&self) -> bool {
        OF_MACHINE.contains(&self.operation)
    }

    /// Returns the path to fill. A new object has the name of the sender's objects.
    pub(super) fn target(&self) -> String {
        match self.path().rsplit_once('{') {
            Some((start, _)) if self.is_creation() => format!("{start}{{name}}"),
            // These operations concern the run of a single command and not that of a plan.
            _ if self.path().ends_with("/result") || self.path().ends_with("/output") => {
                self.path().replace("{run}", "{command}")
            }
            _ => self.path().to_owned(),
        }
    }

    /// Returns whether the step removes objects that other steps need.
    pub(super) fn is_last(&self) -> bool {
        self.method() == "DELETE"
    }
}

const VERSION_1: &[&str] = &["If-Match: \"1\""];

/// Returns valid requests for all operations, in an order in which each one succeeds for an owner.
pub(super) fn steps() -> Vec<Step> {
    let mut steps = vec![
        step("GET /healthz", 200),
        step("GET /readyz", 200),
        step("GET /openapi.json", 200),
        step("GET /metrics", 200),
        step("GET /v1/me", 200),
        step("GET /v1/events", 200).query("from=0"),
        step("POST /v1/tokens", 201)
            .body(json!({ "name": "{name}", "kind": "service", "scopes": ["boxes:read"] }))
            .saves(&[("token", "/id")]),
        step("GET /v1/tokens", 200),
        step("GET /v1/sessions", 200).saves(&[("session", "/items/0/id")]),
        step("GET /v1/users", 200).saves(&[("user", "/items/0/id")]),
        step("PATCH /v1/users/{user}", 200).body(json!({ "disabled": false })).headers(VERSION_1),
        step("POST /v1/invites", 201).body(json!({ "name": "{name}", "role": "member" })),
        step("PUT /v1/webhooks/{webhook}", 201).body(json!({ "url": "https://hooks.invalid/" })),
        step("GET /v1/webhooks", 200),
        step("GET /v1/webhooks/{webhook}", 200),
        step("POST /v1/webhooks/{webhook}/test", 202),
        step("GET /v1/webhooks/{webhook}/deliveries", 200),
        step("GET /v1/doctor", 200),
        step("POST /v1/doctor/prove", 202).body(json!({ "wait_ms": 0 })),
        step("GET /v1/doctor/prove", 200),
    ];
    steps.extend(box_steps());
    steps.extend(program_steps());
    steps.extend(file_steps());
    steps.extend(policy_steps());
    steps.extend(run_steps());
    steps.extend(schedule_steps());
    steps.extend([
        step("GET /v1/ledger/events", 200).saves(&[("event", "/items/0/index")]),
        step("GET /v1/ledger/events/{event}", 200),
        step("GET /v1/ledger/events/{event}/proof", 200),
        step("GET /v1/ledger/checkpoint", 200),
        step("GET /v1/ledger/consistency", 200),
        step("GET /v1/ledger/key", 200),
        step("GET /v1/ledger/tile/{tile}", 200),
        step("POST /v1/ledger/verify", 200).body(json!({ "wait_ms": 60_000 })),
        step("GET /v1/ledger/verify", 200),
        step("POST /v1/ledger/redact", 200).body(json!({ "events": [], "reason": "a test" })),
        step("DELETE /v1/secrets/{secret}", 204).headers(&["If-Match: \"{secret_version}\""]),
        step("DELETE /v1/schedules/{schedule}", 204).headers(VERSION_1),
        step("DELETE /v1/webhooks/{webhook}", 204).headers(VERSION_1),
        step("DELETE /v1/boxes/{box}/files/{path}", 204),
        step("DELETE /v1/boxes/{box}", 204),
        step("DELETE /v1/tokens/{token}", 204).headers(VERSION_1),
        step("DELETE /v1/sessions/{session}", 204),
    ]);
    steps
}

/// Programs in the running box, and in boxes of their own.
fn program_steps() -> [Step; 7] {
    [
        step("POST /v1/boxes/{box}/execs", 201)
            .body(json!({ "command": ["sleep", "600"] }))
            .saves(&[("exec", "/id")]),
        step("GET /v1/execs/{exec}", 200),
        step("POST /v1/execs/{exec}/signal", 204).body(json!({ "signal": 18 })),
        step("GET /v1/execs/{exec}/stream", 101).headers(HANDSHAKE),
        step("POST /v1/run", 200)
            .body(json!({ "command": ["echo", "{name}"] }))
            .saves(&[("command", "/run")]),
        step("GET /v1/runs/{run}/result", 200),
        step("GET /v1/runs/{run}/output", 200),
    ]
}

/// Files and changes of the running box, which has no workspace and so no changes.
fn file_steps() -> [Step; 8] {
    [
        step("PUT /v1/boxes/{box}/files/{path}", 201),
        step("GET /v1/boxes/{box}/files/{path}", 200),
        step("GET /v1/boxes/{box}/changes", 200).saves(&[("digest", "/digest")]),
        step("GET /v1/boxes/{box}/changes/{path}", 404),
        // Changed files with the names `apply` and `discard`.
        step("GET /v1/boxes/{box}/changes/apply", 404),
        step("GET /v1/boxes/{box}/changes/discard", 404),
        step("POST /v1/boxes/{box}/changes/apply", 200).body(json!({ "digest": "{digest}" })),
        step("POST /v1/boxes/{box}/changes/discard", 204).body(json!({ "digest": "{digest}" })),
    ]
}

/// A plan with a gate, whose run waits for a person.
const PLAN: &str = "[run]\nname = '{name}'\n[task.gate]\ndo.approval = 'Go on?'\n";

fn run_steps() -> [Step; 16] {
    [
        step("POST /v1/plans/check", 200).body(json!({ "plan": PLAN })),
        step("POST /v1/runs", 201).body(json!({ "plan": PLAN })).saves(&[("run", "/id")]),
        step("GET /v1/runs", 200).query("q=kind:plan"),
        step("GET /v1/runs/{run}", 200).query("wait_ms=60000"),
        step("GET /v1/runs/{run}/tasks/{task}", 200),
        step("GET /v1/runs/{run}/receipt", 200),
        step("POST /v1/runs/{run}/resume", 200),
        // A success needs a lost attempt; see `runs.rs`.
        step("POST /v1/runs/{run}/tasks/{task}/settle", 409).body(json!({ "how": "failed" })),
        step("GET /v1/approvals", 200).saves(&[("approval", "/items/0/id")]),
        step("GET /v1/approvals/{approval}", 200).saves(&[("digest", "/digest")]),
        step("POST /v1/approvals/{approval}/answer", 200)
            .body(json!({ "answer": "approve", "digest": "{digest}" })),
        step("GET /v1/runs/{run}", 200).query("wait_ms=60000"),
        step("POST /v1/runs/{run}/rerun", 201)
            .body(json!({ "from": "gate" }))
            .saves(&[("run", "/id")]),
        step("GET /v1/runs/{run}", 200).query("wait_ms=60000"),
        step("POST /v1/runs/{run}/cancel", 200),
        step("GET /v1/usage", 200).query("by=run&step=total"),
    ]
}

fn schedule_steps() -> [Step; 6] {
    let new = json!({ "plan": PLAN, "cron": "0 0 29 2 *" });
    [
        step("PUT /v1/schedules/{schedule}", 201).body(new),
        step("GET /v1/schedules", 200),
        step("GET /v1/schedules/{schedule}", 200),
        step("POST /v1/schedules/{schedule}/run", 201),
        step("POST /v1/schedules/{schedule}/pause", 200),
        step("POST /v1/schedules/{schedule}/resume", 200),
    ]
}

fn policy_steps() -> [Step; 16] {
    const VERSION_0: &[&str] = &["If-Match: \"0\""];
    let policy = "[[test]]\nrequest = 'a.example'\nexpect = 'deny'\n";
    let propose = |version| {
        step("POST /v1/policy/proposals", 201)
            .body(json!({ "policy": policy, "base": version, "reason": "{name}" }))
            .saves(&[("proposal", "/id")])
    };
    [
        step("PUT /v1/policy", 200).body(json!({ "policy": policy })).headers(VERSION_0),
        step("GET /v1/policy", 200),
        step("GET /v1/policy/versions", 200),
        step("POST /v1/policy/preview", 200).body(json!({ "policy": policy, "days": 1 })),
        step("POST /v1/policy/explain", 200).body(json!({ "host": "a.example" })),
        propose(1),
        step("GET /v1/policy/proposals", 200),
        step("GET /v1/policy/proposals/{proposal}", 200),
        step("POST /v1/policy/proposals/{proposal}/accept", 200),
        propose(2),
        step("POST /v1/policy/proposals/{proposal}/reject", 200),
        step("PUT /v1/secrets/{secret}", 201)
            .body(json!({ "value": "a-value-of-the-test", "hosts": ["{name}.example"] }))
            .headers(&["If-None-Match: *"])
            .saves(&[("secret", "/name"), ("secret_version", "/version")]),
        step("PUT /v1/secrets/{secret}", 200)
            .body(json!({ "value": "another-value" }))
            .headers(&["If-Match: \"{secret_version}\""])
            .saves(&[("secret_version", "/version")]),
        step("GET /v1/secrets", 200),
        step("GET /v1/requests", 200).saves(&[("request", "/items/0/index")]),
        step("POST /v1/requests/{request}/rule", 200).body(json!({ "days": 1 })),
    ]
}

fn box_steps() -> [Step; 15] {
    [
        step("POST /v1/boxes", 201)
            .body(json!({ "name": "{name}", "program": ["/bin/sleep", "600"] }))
            .saves(&[("box", "/name"), ("box_run", "/run/id")]),
        step("GET /v1/boxes", 200),
        step("GET /v1/boxes/{box}", 200),
        step("PATCH /v1/boxes/{box}", 200).body(json!({ "health": "true" })),
        step("PUT /v1/boxes/{box}/network", 200).body(json!({ "mode": "none" })),
        step("GET /v1/boxes/{box}/log", 200),
        step("GET /v1/boxes/{box}/screen", 101).headers(HANDSHAKE),
        step("POST /v1/boxes/{box}/pause", 200),
        step("POST /v1/boxes/{box}/resume", 200),
        step("POST /v1/boxes/{box}/stop", 200).body(json!({ "now": true })),
        step("POST /v1/boxes/{box}/snapshot", 200).body(json!({ "tag": "one" })),
        step("POST /v1/boxes/{box}/reset", 200).body(json!({ "discard_work": true })),
        step("POST /v1/boxes/{box}/fork", 201).body(json!({ "name": "{name}-copy" })),
        step("POST /v1/boxes/{box}/start", 200),
        step("GET /v1/boxes", 200).query("q=state:running"),
    ]
}
