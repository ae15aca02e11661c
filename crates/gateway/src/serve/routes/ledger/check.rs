//! The routes that verify the whole ledger, and that delete contents from it.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use belljar_engine::record::checking::{self, LedgerFinding, LedgerReport, VerifyRequest};
use belljar_engine::record::redaction;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LedgerName, LedgerParameters, Source, no_ledger};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::jobs::{Job, JobSlot, JobView};
use crate::serve::json;
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::routes::{Access, Operation, Routes};

/// The time that a request waits for the end of a verification, by default and at most.
const WAIT: (u64, u64) = (10_000, 60_000);
/// The maximum number of checkpoints of one request.
const MAX_CHECKPOINTS: usize = 8;
/// The maximum number of events and of bodies of one redaction.
const MAX_REDACTED: usize = 100;
/// The maximum number of characters of the reason for a redaction.
const MAX_REASON: usize = 500;

pub(super) fn add(routes: Routes) -> Routes {
    let check = Access::For(Act::CheckLedger);
    routes
        .add(
            Operation::post("/v1/ledger/verify", check)
                .about(
                    "Verifies the ledger; the response has the report if the verification ends in time",
                )
                .optional_body::<VerifyBody>()
                .with_language()
                .returns::<JobView<ReportView>>(StatusCode::OK)
                .returns::<JobView<ReportView>>(StatusCode::ACCEPTED)
                .problems(&[ProblemKind::BUSY]),
            verify,
        )
        .add(
            Operation::get("/v1/ledger/verify", check)
                .about("Describes the newest verification with its progress or its report")
                .query::<LedgerParameters>()
                .returns::<JobView<ReportView>>(StatusCode::OK),
            newest_verification,
        )
        .add(
            Operation::post("/v1/ledger/redact", Access::For(Act::RedactLedger))
                .about("Deletes the contents of bodies; the ledger stays valid and records the reason")
                .body::<RedactBody>()
                .returns::<RedactedView>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE, ProblemKind::LOGIN_AGE]),
            redact,
        )
}

/// The extent of a verification.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Verification")]
struct VerifyBody {
    /// Whether every body is checked too.
    deep: Option<bool>,
    /// The trusted key in the form `NAME+ID+BASE64`; by default the first key of the ledger.
    #[schemars(length(min = 1, max = 1024))]
    key: Option<String>,
    /// Signed checkpoints that were stored elsewhere.
    #[schemars(length(max = 8), inner(length(min = 1, max = 65_536)))]
    checkpoints: Option<Vec<String>>,
    /// The time in milliseconds that the request waits for the report.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 0, max = 60_000))]
    wait_ms: Option<u64>,
    /// `tenant` by default.
    ledger: Option<LedgerName>,
}

impl VerifyBody {
    fn request(&self) -> Result<VerifyRequest, Problem> {
        let key = self.key.as_deref().map(checking::parse_key).transpose();
        let key = key.map_err(|error| Problem::invalid(error.to_string()).field("/key"))?;
        let checkpoints = self.checkpoints.clone().unwrap_or_default();
        let is_long = |text: &String| text.len() > checking::MAX_CHECKPOINT || text.is_empty();
        if checkpoints.len() > MAX_CHECKPOINTS || checkpoints.iter().any(is_long) {
            let detail = format!(
                "`checkpoints` must have at most {MAX_CHECKPOINTS} texts of 1 to {} bytes",
                checking::MAX_CHECKPOINT
            );
            return Err(Problem::invalid(detail).field("/checkpoints"));
        }
        Ok(VerifyRequest { deep: self.deep.unwrap_or(false), key, checkpoints })
    }

    fn wait(&self) -> Result<Duration, Problem> {
        let wait = self.wait_ms.unwrap_or(WAIT.0);
        if wait > WAIT.1 {
            let detail = format!("`wait_ms` must be at most {}", WAIT.1);
            return Err(Problem::invalid(detail).field("/wait_ms"));
        }
        Ok(Duration::from_millis(wait))
    }
}

/// The report about a ledger.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LedgerReport")]
struct ReportView {
    /// Whether the ledger is undamaged; warnings do not count.
    sound: bool,
    events: u64,
    runs: u64,
    /// The length of the log in bytes.
    bytes: u64,
    /// The number of events that the signed head covers.
    signed: Option<u64>,
    /// The root hash of all events.
    root: Option<String>,
    key: Option<String>,
    /// The number of events that the given checkpoints cover.
    anchored: Option<u64>,
    /// The numbers of bodies; null unless the verification was deep.
    bodies: Option<BodiesView>,
    /// The findings, the worst first.
    findings: Vec<FindingView>,
    /// The number of findings that are not listed.
    left_out: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LedgerBodies")]
struct BodiesView {
    kept: u64,
    hash_only: u64,
    redacted: u64,
    pruned: u64,
}

/// A fault or remark about the ledger.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LedgerFinding")]
struct FindingView {
    /// `note`, `warning` or `damage`.
    severity: String,
    code: &'static str,
    at: String,
    event: Option<u64>,
    offset: Option<u64>,
    file: Option<String>,
    /// The time of the last event that is certainly intact.
    since: Option<String>,
    text: String,
}

impl ReportView {
    fn of(report: &LedgerReport) -> Self {
        let bodies = report.bodies.map(|numbers| BodiesView {
            kept: numbers.kept,
            hash_only: numbers.hash_only,
            redacted: numbers.redacted,
            pruned: numbers.pruned,
        });
        let safe = |text: &String| belljar_model::display::safe_line(text);
        let finding = |finding: &LedgerFinding| FindingView {
            severity: finding.severity.clone(),
            code: finding.code,
            at: safe(&finding.at),
            event: finding.event,
            offset: finding.offset,
            file: finding.file.as_ref().map(safe),
            since: finding.since.clone(),
            text: safe(&finding.text),
        };
        Self {
            sound: report.sound,
            events: report.events,
            runs: report.runs,
            bytes: report.bytes,
            signed: report.signed,
            root: report.root.clone(),
            key: report.key.clone(),
            anchored: report.anchored,
            bodies,
            findings: report.findings.iter().map(finding).collect(),
            left_out: report.left_out,
        }
    }
}

/// The verifications of a ledger.
type Verifications = Arc<JobSlot<LedgerReport>>;

fn verifications(call: &Call, ledger: Option<LedgerName>) -> Result<Verifications, Problem> {
    Ok(match ledger.unwrap_or_default() {
        LedgerName::Tenant => Arc::clone(&call.tenant()?.verifications),
        LedgerName::System => Arc::clone(&call.app.system_verifications),
    })
}

async fn verify(call: Call) -> Result<Response, Problem> {
    let body: VerifyBody = call.optional_json()?;
    let (request, wait) = (body.request()?, body.wait()?);
    let source = Source::of(&call, body.ledger)?;
    let slot = verifications(&call, body.ledger)?;
    let scope = source.scope.clone();
    let exists = blocking(&call.app, move || Ok(!checking::keys(&scope)?.is_empty())).await?;
    if !exists {
        return Err(no_ledger());
    }
    let scope = source.scope;
    let job = slot.start(&call.app, &call.app.verifying, move |progress| {
        Ok(checking::check(&scope, &request, &mut |done, of| progress.set(done, of))?)
    })?;
    let status = if job.wait(wait).await { StatusCode::OK } else { StatusCode::ACCEPTED };
    verification(&job, status)
}

async fn newest_verification(call: Call) -> Result<Response, Problem> {
    let LedgerParameters { ledger } = call.query()?;
    Source::of(&call, ledger)?;
    verification(&*verifications(&call, ledger)?.newest()?, StatusCode::OK)
}

fn verification(job: &Job<LedgerReport>, status: StatusCode) -> Result<Response, Problem> {
    json_response(status, &job.view(ReportView::of))
}

/// The bodies whose contents are deleted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Redaction")]
struct RedactBody {
    /// Events whose bodies are deleted.
    #[serde(default, deserialize_with = "json::integers")]
    #[schemars(length(max = 100), inner(range(max = 9_007_199_254_740_991_u64)))]
    events: Vec<u64>,
    /// Hashes of bodies.
    #[serde(default)]
    #[schemars(length(max = 100), inner(regex(pattern = r"^[0-9a-f]{64}$")))]
    bodies: Vec<String>,
    /// The reason, which the ledger keeps.
    #[schemars(regex(pattern = r"^[^\u0000-\u001f\u007f-\u009f]{1,500}$"))]
    reason: String,
}

impl RedactBody {
    fn check(&self) -> Result<(), Problem> {
        for (count, field) in [(self.events.len(), "events"), (self.bodies.len(), "bodies")] {
            if count > MAX_REDACTED {
                let detail = format!("`{field}` must have at most {MAX_REDACTED} items");
                return Err(Problem::invalid(detail).field(format!("/{field}")));
            }
        }
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_hash = |text: &String| text.len() == 64 && text.bytes().all(is_digit);
        if let Some(place) = self.bodies.iter().position(|hash| !is_hash(hash)) {
            let detail = "the hash of a body has 64 digits of 0-9 and a-f";
            return Err(Problem::invalid(detail).field(format!("/bodies/{place}")));
        }
        /// The largest integer that every JSON parser reads exactly.
        const MAX: u64 = 9_007_199_254_740_991;
        if let Some(place) = self.events.iter().position(|event| *event > MAX) {
            let detail = format!("the index of an event is at most {MAX}");
            return Err(Problem::invalid(detail).field(format!("/events/{place}")));
        }
        let length = self.reason.chars().count();
        if !(1..=MAX_REASON).contains(&length) || self.reason.chars().any(char::is_control) {
            let detail = format!("`reason` must be one line of 1 to {MAX_REASON} characters");
            return Err(Problem::invalid(detail).field("/reason"));
        }
        Ok(())
    }
}

/// The result of a redaction.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RedactionResult")]
struct RedactedView {
    /// The hashes of the bodies.
    redacted: Vec<String>,
    /// The number of deleted contents.
    contents: u64,
    /// The number of deleted random values, without which nobody can guess a content.
    salts: u64,
}

async fn redact(call: Call) -> Result<Response, Problem> {
    let body: RedactBody = call.json()?;
    body.check()?;
    call.who()?.check_login_age(call.app.now())?;
    let source = Source::of(&call, None)?;
    let (app, mut change) = (call.app.clone(), call.change("ledger.redacted", "bodies")?);
    let redacted = blocking(&call.app, move || {
        let hashes = source.read(|browser| {
            Ok(redaction::bodies_of(browser.reader(), &body.events, &body.bodies)?)
        });
        let hashes = hashes?.ok_or_else(no_ledger)?;
        let texts: Vec<String> = hashes.iter().map(ToString::to_string).collect();
        if hashes.is_empty() {
            return Ok(RedactedView { redacted: texts, contents: 0, salts: 0 });
        }
        change.details.clone_from(&texts);
        change.record(&app)?;
        let done = redaction::redact(&source.scope, &hashes, &body.reason)?;
        Ok(RedactedView { redacted: texts, contents: done.contents, salts: done.salts })
    });
    json_response(StatusCode::OK, &redacted.await?)
}
