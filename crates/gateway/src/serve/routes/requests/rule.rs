//! The route that makes the narrowest rule for a request. Nothing is saved.

use axum::response::Response;
use belljar_engine::policy::learn::{self, history};
use belljar_engine::policy::replay::request_line;
use belljar_engine::policy::{render, tenant};
use belljar_engine::record::browse::requests::{RecordedRequest, Templates};
use belljar_engine::record::owners::EventOwner;
use belljar_model::Config;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::policy::preview::{PreviewScope, PreviewView};
use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, Owned, blocking, json_response};
use crate::serve::json;
use crate::serve::policies;
use crate::serve::problem::{Problem, ProblemKind, of_state};

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::post("/v1/requests/{request}/rule", Access::For(Act::ProposeRules))
            .about(
                "Makes the narrowest rule that would allow a request, and shows what it would change; \
                 nothing is saved",
            )
            .optional_body::<RuleRequest>()
            .returns::<RuleView>(StatusCode::OK)
            .problems(&[ProblemKind::WRONG_STATE]),
        rule,
    )
}

/// The preview of a rule.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RuleRequest {
    /// The number of days whose requests are decided again; 30 by default.
    #[serde(default, deserialize_with = "json::integer")]
    #[schemars(range(min = 1, max = 30))]
    days: Option<u64>,
}

/// A rule that would allow a request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProposedRule")]
struct RuleView {
    /// The template that the rule belongs to.
    template: String,
    /// The rule as a section of the policy, in TOML.
    rule: String,
    /// A warning for the person who saves the rule.
    remark: Option<&'static str>,
    /// The whole policy with the rule. Null for the tenant `local`, whose policy is a file of the operator.
    policy: Option<String>,
    preview: PreviewView,
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the ledger has no such request")
}

fn wrong_state(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::WRONG_STATE, detail)
}

/// Finds a request that the sender may see, with the template of its box. Blocks.
fn find(
    scope: &PreviewScope,
    owned: &Owned,
    index: u64,
) -> Result<(RecordedRequest, Option<String>), Problem> {
    let found = scope.ledgers().read(scope.state(), |browser| {
        let is_visible = |owner: &EventOwner| owned.may_see(owner.maker.as_ref());
        let Some(found) = browser.request(index, &is_visible)? else { return Ok(None) };
        let template = Templates::default().of(browser, found.run)?;
        Ok(Some((found, template)))
    });
    found?.flatten().ok_or_else(unknown)
}

async fn rule(call: Call) -> Result<Response, Problem> {
    let RuleRequest { days } = call.optional_json()?;
    let index: u64 = call.param("request")?.parse().map_err(|_| unknown())?;
    let (scope, owned) = (PreviewScope::of(&call, days)?, call.owned_for(Act::SeeBoxes)?);
    let view = blocking(&call.app, move || {
        let (found, template) = find(&scope, &owned, index)?;
        let (config, _) = scope.state().load_config(None).map_err(of_state)?;
        let template = template
            .filter(|template| config.template(template).is_some())
            .ok_or_else(|| wrong_state("the policy no longer has the template of the box"))?;
        make(&scope, &config, template, found)
    })
    .await?;
    json_response(StatusCode::OK, &view)
}

/// Makes the rule for a request, and previews the policy with it.
fn make(
    scope: &PreviewScope,
    config: &Config,
    template: String,
    found: RecordedRequest,
) -> Result<RuleView, Problem> {
    let index = found.index;
    if request_line(&found.request).is_none() {
        return Err(wrong_state("no rule can describe this request"));
    }
    let policy = learn::policy(config, &template).map_err(of_state)?;
    let learned = learn::learn(&[history::attempt_of_request(found.request)], &policy);
    if let Some(why) = learned.rejected.values().next() {
        return Err(wrong_state(format!("no rule can be made for this request: {why}")));
    }
    let Some(first) = learned.rules.first() else {
        return Err(wrong_state("the policy allows this request already"));
    };
    let from = format!("request {index}");
    let section = render::sections(&learned.rules, &template, &from);
    let old = tenant::text(scope.state())?;
    let rules = (learned.rules.as_slice(), template.as_str(), from.as_str());
    let (text, _) =
        render::with_rules(std::path::Path::new("policy"), &old, rules).map_err(of_state)?;
    let new = policies::parse(scope.state(), &text)
        .map_err(|problem| wrong_state(problem.detail().to_owned()))?;
    let preview = scope.preview(config, &new)?;
    let is_local = tenant::operator_file(scope.state()).is_some();
    Ok(RuleView {
        template,
        rule: section,
        remark: first.remark,
        policy: (!is_local).then_some(text),
        preview,
    })
}
