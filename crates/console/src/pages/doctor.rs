//! What the machine can enforce, and the results of the attack suite.

use askama::Template;
use serde::Deserialize;

use super::html;
use crate::frame::Frame;
use crate::text::Moment;
use crate::{Api, PageRequest, Refusal, Text, read_if_permitted};

/// A report, as `GET /v1/doctor` returns it.
#[derive(Debug, Deserialize)]
struct Report {
    healthy: bool,
    findings: Vec<Finding>,
    #[serde(default)]
    proofs: Option<Vec<Attack>>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    subject: Text,
    health: String,
    detail: Text,
    #[serde(default)]
    remedy: Option<Text>,
}

impl Finding {
    fn mark(&self) -> (&'static str, &'static str) {
        match &*self.health {
            "good" => ("ok", "ok"),
            "weak" => ("warn", "attention"),
            _ => ("bad", "no"),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Attack {
    id: Text,
    title: Text,
    kept: bool,
    verdict: Text,
    detail: Text,
}

/// A run of the attack suite, as `GET /v1/doctor/prove` returns it.
#[derive(Debug, Deserialize)]
struct Job {
    state: Text,
    done: u64,
    of: u64,
    started: String,
    #[serde(default)]
    report: Option<Report>,
    #[serde(default)]
    failure: Option<Text>,
}

/// A run of the attack suite, as it is shown.
struct Proof {
    state: Text,
    done: u64,
    of: u64,
    started: Moment,
    attacks: Vec<Attack>,
    failed: usize,
    failure: Option<Text>,
}

impl Proof {
    fn of(job: Job, now: u64) -> Self {
        let attacks = job.report.and_then(|report| report.proofs).unwrap_or_default();
        Self {
            state: job.state,
            done: job.done,
            of: job.of,
            started: Moment::of(&job.started, now),
            failed: attacks.iter().filter(|attack| !attack.kept).count(),
            attacks,
            failure: job.failure,
        }
    }
}

#[derive(Template)]
#[template(path = "doctor.html")]
struct Doctor {
    frame: Frame,
    /// `None` if the person may not see the state of the machine.
    report: Option<Report>,
    proof: Option<Proof>,
    /// Why the person cannot run the attack suite.
    locked: Option<&'static str>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Doctor").await?;
    let report: Option<Report> = read_if_permitted(api, "/v1/doctor").await?;
    let job: Option<Job> = read_if_permitted(api, "/v1/doctor/prove").await?;
    let locked = match &*frame.me.tenant {
        _ if !frame.me.is_admin() => Some("Administrators and owners run the attack suite"),
        "local" => None,
        _ => Some("Only the tenant local runs the attack suite"),
    };
    let proof = job.map(|job| Proof::of(job, request.now));
    html(&Doctor { frame, report, proof, locked })
}
