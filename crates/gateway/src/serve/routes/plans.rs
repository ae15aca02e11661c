//! The route that checks plans.

use axum::response::Response;
use belljar_engine::runs::grants::{self, Grant};
use belljar_engine::runs::submit;
use belljar_model::display;
use belljar_model::plan::{CheckedPlan, PlanFault, PlanFaults};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::runs::BASE;
use super::runs::view::BudgetView;
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::plan_request::{MAX_BODY, PlanRefusal, PlanRequest};
use crate::serve::problem::{Problem, of_state};

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::post("/v1/plans/check", Access::For(Act::UseRuns))
            .about("Checks a plan and starts nothing; the response lists what is wrong with it")
            .body::<PlanRequest>()
            .max_body(MAX_BODY)
            .with_language()
            .returns::<PlanReport>(StatusCode::OK),
        check,
    )
}

/// The result of the check of a plan.
#[derive(Serialize, JsonSchema)]
struct PlanReport {
    valid: bool,
    /// What is wrong with the plan, in the order of its lines.
    findings: Vec<FindingView>,
    /// The number of further findings.
    more: usize,
    /// What the plan would do; null for an invalid plan.
    plan: Option<PlanSummary>,
}

/// What is wrong in a line of a plan.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlanFinding")]
struct FindingView {
    /// The line, from 1.
    line: usize,
    reason: String,
}

/// What a plan would do.
#[derive(Serialize, JsonSchema)]
struct PlanSummary {
    name: String,
    template: String,
    tasks: usize,
    /// The maximum number of tasks after the expansion of lists.
    max_instances: usize,
    budget: BudgetView,
    reaches: Vec<GrantView>,
}

/// A destination that boxes of a plan can reach.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
struct GrantView {
    to: String,
    secrets: Vec<String>,
    /// Whether a person is asked before each request.
    asked: bool,
    tasks: Vec<String>,
    tiers: Vec<String>,
    agents: Vec<String>,
}

impl GrantView {
    fn of(grant: &Grant) -> Self {
        let Grant { to, secrets, is_asked, tasks, tiers, agents } = grant;
        Self {
            to: display::safe_line(to),
            secrets: secrets.iter().map(ToString::to_string).collect(),
            asked: *is_asked,
            tasks: tasks.iter().map(ToString::to_string).collect(),
            tiers: tiers.iter().map(ToString::to_string).collect(),
            agents: agents.iter().cloned().collect(),
        }
    }
}

impl PlanSummary {
    fn of(plan: &CheckedPlan, grants: &[Grant]) -> Self {
        Self {
            name: plan.name().to_owned(),
            template: plan.template().to_owned(),
            tasks: plan.tasks().len(),
            max_instances: plan.max_instances(),
            budget: BudgetView::of(plan.budget()),
            reaches: grants.iter().map(GrantView::of).collect(),
        }
    }
}

impl PlanReport {
    fn of_faults(faults: &PlanFaults) -> Self {
        Self {
            valid: false,
            findings: faults.list().iter().map(FindingView::of).collect(),
            more: faults.more(),
            plan: None,
        }
    }

    fn of_problem(problem: &Problem) -> Self {
        let (line, reason) = (problem.line_number().unwrap_or(1), problem.detail().to_owned());
        Self { valid: false, findings: vec![FindingView { line, reason }], more: 0, plan: None }
    }
}

impl FindingView {
    fn of(fault: &PlanFault) -> Self {
        Self { line: fault.line, reason: fault.reason.clone() }
    }
}

async fn check(call: Call) -> Result<Response, Problem> {
    let request: PlanRequest = call.json()?;
    request.check_syntax()?;
    let (state, who) = (call.scope()?, call.who()?.clone());
    let report = blocking(&call.app, move || {
        let (config, _) = state.load_config(None).map_err(of_state)?;
        let plan = match request.check(&state, &config, &who) {
            Ok(plan) => plan,
            Err(PlanRefusal::Faults(faults)) => return Ok(PlanReport::of_faults(&faults)),
            Err(PlanRefusal::Other(problem)) => return report_or_fail(problem),
        };
        if let Err(error) = submit::check(&state, &plan, BASE.as_ref()) {
            return report_or_fail(of_state(error));
        }
        let grants = grants::of_plan(&plan, &config, state.host()).map_err(of_state)?;
        let plan = Some(PlanSummary::of(&plan, &grants));
        Ok(PlanReport { valid: true, findings: Vec::new(), more: 0, plan })
    })
    .await?;
    json_response(StatusCode::OK, &report)
}

/// Reports a problem of the plan as a finding. A fault of the server is no finding.
fn report_or_fail(problem: Problem) -> Result<PlanReport, Problem> {
    if problem.kind.status.is_server_error() {
        return Err(problem);
    }
    Ok(PlanReport::of_problem(&problem))
}
