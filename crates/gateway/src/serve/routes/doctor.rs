//! The routes about the machine: the layers that it can enforce, and the attack suite.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use belljar_engine::doctor::{self, AttackResult, DoctorReport, Finding, Health};
use belljar_model::display;
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::jobs::{JobSlot, JobView};
use crate::serve::json;
use crate::serve::problem::{Problem, ProblemKind};
use crate::serve::prover::Prover;

/// The time for which the findings are used again. Each examination starts a process.
const FINDINGS_TIME: Duration = Duration::from_secs(10);
/// The time that a request waits for the end of the attacks, by default and at most.
const WAIT: (u64, u64) = (10_000, 60_000);
/// The maximum number of attacks that a request names.
const MAX_ATTACKS: usize = 200;

pub(super) fn add(routes: Routes) -> Routes {
    let prove_attacks = Access::For(Act::ProveDoctor);
    routes
        .add(
            Operation::get("/v1/doctor", Access::For(Act::SeeDoctor))
                .about("Describes the isolation layers that the machine can enforce")
                .returns::<ReportView>(StatusCode::OK),
            get,
        )
        .add(
            Operation::post("/v1/doctor/prove", prove_attacks)
                .about("Runs the attack suite; the response has the results if it ends in time")
                .optional_body::<ProveBody>()
                .returns::<JobView<ReportView>>(StatusCode::OK)
                .returns::<JobView<ReportView>>(StatusCode::ACCEPTED)
                .problems(&[ProblemKind::BUSY, ProblemKind::WRONG_STATE]),
            prove,
        )
        .add(
            Operation::get("/v1/doctor/prove", prove_attacks)
                .about(
                    "Describes the newest run of the attack suite with its progress or its results",
                )
                .returns::<JobView<ReportView>>(StatusCode::OK),
            newest_proof,
        )
}

/// The state of the routes about the machine.
pub(in crate::serve) struct Doctor {
    prover: Option<Prover>,
    findings: Mutex<Option<(Instant, Vec<FindingView>)>>,
    proofs: JobSlot<DoctorReport>,
    turns: Arc<Semaphore>,
}

impl Doctor {
    pub(in crate::serve) fn new(prover: Option<Prover>) -> Self {
        let (findings, proofs) = (Mutex::default(), JobSlot::default());
        Self { prover, findings, proofs, turns: Arc::new(Semaphore::new(1)) }
    }

    /// Examines the machine, unless that was done a moment ago. Blocks.
    fn findings(&self) -> Vec<FindingView> {
        let mut kept = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((time, findings)) = &*kept
            && time.elapsed() < FINDINGS_TIME
        {
            return findings.clone();
        }
        let findings: Vec<FindingView> = doctor::examine().iter().map(FindingView::of).collect();
        *kept = Some((Instant::now(), findings.clone()));
        findings
    }
}

/// A report about the machine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DoctorReport")]
struct ReportView {
    /// Whether the machine has everything that boxes need.
    healthy: bool,
    findings: Vec<FindingView>,
    /// The results of the attacks; absent if none were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    proofs: Option<Vec<AttackView>>,
}

/// The result of checking one feature of the machine.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "DoctorFinding")]
struct FindingView {
    subject: &'static str,
    #[schemars(schema_with = "schema_of_health")]
    health: &'static str,
    detail: String,
    /// Advice how to improve the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

const GOOD: &str = "good";
const WEAK: &str = "weak";
const MISSING: &str = "missing";

fn schema_of_health(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": [GOOD, WEAK, MISSING] })
}

/// The result of one attack.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AttackResult")]
struct AttackView {
    id: &'static str,
    title: &'static str,
    /// Whether the attack failed, as it must.
    kept: bool,
    verdict: &'static str,
    detail: String,
}

impl FindingView {
    fn of(finding: &Finding) -> Self {
        let health = match finding.health {
            Health::Good => GOOD,
            Health::Weak => WEAK,
            Health::Missing => MISSING,
        };
        let remedy = finding.remedy.as_ref().map(display::safe_line);
        Self {
            subject: finding.subject,
            health,
            detail: display::safe_line(&finding.detail),
            remedy,
        }
    }
}

impl ReportView {
    fn of(report: &DoctorReport) -> Self {
        let attack = |result: &AttackResult| AttackView {
            id: result.id,
            title: result.title,
            kept: result.kept,
            verdict: result.verdict,
            detail: display::safe_line(&result.detail),
        };
        let attacks = |results: &Vec<AttackResult>| results.iter().map(attack).collect();
        Self {
            healthy: report.healthy,
            findings: report.findings.iter().map(FindingView::of).collect(),
            proofs: report.proofs.as_ref().map(attacks),
        }
    }
}

async fn get(call: Call) -> Result<Response, Problem> {
    let app = call.app.clone();
    let findings = blocking(&call.app, move || Ok(app.doctor.findings())).await?;
    let healthy = findings.iter().all(|finding| finding.health != MISSING);
    json_response(StatusCode::OK, &ReportView { healthy, findings, proofs: None })
}

/// The attacks to run.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Attacks")]
struct ProveBody {
    /// The ids of the attacks, such as `C10`; all attacks by default.
    #[schemars(length(max = 200), inner(regex(pattern = r"^[A-Z][0-9]{2}$")))]
    only: Option<Vec<String>>,
    /// The time in milliseconds that the request waits for the results.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 0, max = 60_000))]
    wait_ms: Option<u64>,
}

impl ProveBody {
    fn check(&self) -> Result<(), Problem> {
        let is_id = |id: &String| match id.as_bytes() {
            [group, rest @ ..] => {
                group.is_ascii_uppercase() && rest.len() == 2 && rest.iter().all(u8::is_ascii_digit)
            }
            [] => false,
        };
        let only = self.only.as_deref().unwrap_or_default();
        if only.len() > MAX_ATTACKS || !only.iter().all(is_id) {
            let detail = format!("`only` must have at most {MAX_ATTACKS} ids such as `C10`");
            return Err(Problem::invalid(detail).field("/only"));
        }
        if self.wait_ms.is_some_and(|wait| wait > WAIT.1) {
            let detail = format!("`wait_ms` must be at most {}", WAIT.1);
            return Err(Problem::invalid(detail).field("/wait_ms"));
        }
        Ok(())
    }
}

/// Returns the attack suite of the server. The machine belongs to the tenant `local`.
fn prover(call: &Call) -> Result<Prover, Problem> {
    if !call.who()?.tenant().is_local() {
        let detail = "the attack suite tests the machine; only the tenant `local` may run it";
        return Err(Problem::new(ProblemKind::FORBIDDEN, detail));
    }
    let none = || Problem::new(ProblemKind::WRONG_STATE, "this server has no attack suite");
    call.app.doctor.prover.clone().ok_or_else(none)
}

async fn prove(call: Call) -> Result<Response, Problem> {
    let body: ProveBody = call.optional_json()?;
    body.check()?;
    let (prover, only) = (prover(&call)?, body.only.unwrap_or_default());
    if let Some(place) = only.iter().position(|id| !prover.ids().contains(&id.as_str())) {
        let detail = "the attack suite has no attack with this id";
        let problem = Problem::new(ProblemKind::WRONG_STATE, detail);
        return Err(problem.field(format!("/only/{place}")));
    }
    let (state, mut change) = (call.scope()?, call.change("doctor.proving", "attacks")?);
    change.details.clone_from(&only);
    let app = call.app.clone();
    let number = if only.is_empty() { prover.ids().len() } else { only.len() };
    let doctor = &call.app.doctor;
    let job = doctor.proofs.start(&call.app, &doctor.turns, move |progress| {
        change.record(&app)?;
        progress.set(0, u64::try_from(number).unwrap_or(u64::MAX));
        let proofs = prover.run(&only, &|| progress.add())?;
        let report = DoctorReport::new(doctor::examine(), Some(proofs));
        report.record(&state)?;
        Ok(report)
    })?;
    let wait = Duration::from_millis(body.wait_ms.unwrap_or(WAIT.0));
    let status = if job.wait(wait).await { StatusCode::OK } else { StatusCode::ACCEPTED };
    json_response(status, &job.view(ReportView::of))
}

async fn newest_proof(call: Call) -> Result<Response, Problem> {
    prover(&call)?;
    json_response(StatusCode::OK, &call.app.doctor.proofs.newest()?.view(ReportView::of))
}
