//! The JSON of network requests.

use belljar_engine::moment;
use belljar_engine::record::browse::requests::RecordedRequest;
use belljar_model::display::safe_line;
use schemars::JsonSchema;
use serde::Serialize;

/// A network request of a box. The box chose most of its texts; control characters are escaped.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecordedRequest")]
pub(super) struct RequestView {
    /// The index of the event in the ledger.
    index: u64,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "box")]
    box_name: Option<String>,
    /// The principal that started the box.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    method: String,
    /// `https`, `http` or `tcp`.
    scheme: String,
    host: String,
    port: u64,
    /// The path without the query.
    path: String,
    is_websocket: bool,
    /// `allow` or `deny`.
    verdict: String,
    /// The rule that decided, or that almost allowed a denied request.
    rule: Option<String>,
    reason: String,
    /// Names of the secrets that the request carried.
    secrets: Vec<String>,
    /// The outcome of an allowed request, if it has ended.
    outcome: Option<OutcomeView>,
}

/// The outcome of an allowed request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NetworkOutcome")]
struct OutcomeView {
    /// The HTTP status of the response.
    status: Option<u64>,
    sent_bytes: u64,
    received_bytes: u64,
    micros: u64,
    error: Option<String>,
}

impl RequestView {
    pub(super) fn of(found: &RecordedRequest) -> Self {
        let RecordedRequest { index, time, run, owner, request, outcome } = found;
        Self {
            index: *index,
            time: moment::rfc3339(*time),
            run: run.map(|run| run.to_string()),
            box_name: owner.box_name.clone(),
            by: owner.maker.as_ref().map(ToString::to_string),
            method: safe_line(&request.method),
            scheme: safe_line(&request.scheme),
            host: safe_line(&request.host),
            port: request.port,
            path: safe_line(&request.path),
            is_websocket: request.upgrade.is_some(),
            verdict: safe_line(&request.verdict),
            rule: request.rule.as_ref().map(safe_line),
            reason: safe_line(&request.reason),
            secrets: request.secrets.iter().map(safe_line).collect(),
            outcome: outcome.as_ref().map(|outcome| OutcomeView {
                status: outcome.status,
                sent_bytes: outcome.sent_bytes,
                received_bytes: outcome.received_bytes,
                micros: outcome.micros,
                error: outcome.error.as_ref().map(safe_line),
            }),
        }
    }
}
