//! The routes of approvals: questions of boxes, gates of runs and versions of skills that wait for a person.
//!
//! The list has no act to answer with: the digest of an answer is part of the page of one approval, together with
//! everything that the answer carries out.

mod view;

use std::sync::Arc;

use axum::response::Response;
use belljar_engine::approvals::index::{self, ApprovalEntry, FoundApproval};
use belljar_engine::approvals::{
    ApprovalId, ApprovalKind, ApprovalOutcome, ApprovalState, Verdict,
};
use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes;
use belljar_engine::error::ErrorKind;
use belljar_engine::runs::gates;
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_model::caller::Principal;
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Extent, Role, extent};
use crate::serve::approver::Approver;
use crate::serve::call::{Call, Owned, blocking, json_response};
use crate::serve::filter::Filter;
use crate::serve::identity::Identity;
use crate::serve::makers::Makers;
use crate::serve::page::{List, PageParameters, PageQuery};
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::store::Millis;
use crate::serve::tenants::Tenant;
use view::{ApprovalDetail, ApprovalView};

/// The name of the list in its cursors.
const APPROVALS: &str = "approvals";
/// The keys of the filter of approvals.
const KEYS: [&str; 4] = ["state", "kind", "box", "run"];
/// The maximum length of a reason in bytes.
const MAX_REASON: usize = 2000;

pub(super) fn add(routes: Routes) -> Routes {
    let see = Access::For(Act::SeeRuns);
    routes
        .add(
            Operation::get("/v1/approvals", see)
                .about(
                    "Lists approvals: open ones first, of these the first to expire; the filter has the keys state, kind, box and run",
                )
                .query::<PageParameters>()
                .returns::<List<ApprovalView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::get("/v1/approvals/{approval}", see)
                .about("Describes an approval with everything that an answer carries out")
                .returns::<ApprovalDetail>(StatusCode::OK),
            get,
        )
        .add(
            Operation::post("/v1/approvals/{approval}/answer", Access::For(Act::Answer))
                .about("Answers an approval; only people can")
                .body::<AnswerRequest>()
                .returns::<ApprovalDetail>(StatusCode::OK)
                .problems(&[
                    ProblemKind::CONFLICT,
                    ProblemKind::WRONG_STATE,
                    ProblemKind::BUSY,
                    ProblemKind::GONE,
                ]),
            answer,
        )
}

/// The approvals that a sender may see.
struct Visible {
    state: Scoped,
    tenant: Arc<Tenant>,
    owned: Owned,
    makers: Makers,
}

impl Visible {
    /// Blocks.
    fn read(state: Scoped, tenant: Arc<Tenant>, owned: Owned) -> Result<Self, Problem> {
        let makers = Makers::read(&state, &owned)?;
        Ok(Self { state, tenant, owned, makers })
    }

    /// Returns whether the sender may see an approval. The question of a box belongs to the maker of the box; a
    /// skill belongs to nobody. `of_run` is the principal that started the run.
    fn includes(&self, entry: &ApprovalEntry, of_run: Option<&str>) -> bool {
        let of_box = entry.box_name.as_ref().and_then(|name| {
            let found = NamedBox::find(&self.state, name).ok()?;
            Some(boxes::maker(&found))
        });
        match of_box {
            Some(maker) => self.owned.may_use(&maker),
            None => {
                let maker = of_run.and_then(|maker| maker.parse::<Principal>().ok());
                self.makers.include(maker.as_ref())
            }
        }
    }

    /// Returns the approvals that the sender may see. Blocks.
    fn all(&self) -> Result<Vec<Arc<ApprovalEntry>>, Problem> {
        let mut all = self.tenant.approvals.list(&gates::approvals(&self.state))?;
        if self.owned.principals().is_none() {
            return Ok(all);
        }
        let runs: Vec<Option<RunId>> = all.iter().map(|entry| entry.run).collect();
        let known: Vec<RunId> = runs.iter().copied().flatten().collect();
        let mut makers = self.tenant.runs.makers(&self.state, &known)?.into_iter();
        let mut makers = runs.iter().map(|run| run.and_then(|_| makers.next().flatten()));
        all.retain(|entry| self.includes(entry, makers.next().flatten().as_deref()));
        Ok(all)
    }

    /// Returns an approval that the sender may see, with everything that an answer carries out. Blocks.
    fn find(&self, text: &str) -> Result<FoundApproval, Problem> {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the tenant has no such approval");
        let id: ApprovalId = text.parse().map_err(|_| unknown())?;
        let found = index::find(&gates::approvals(&self.state), &id)?.ok_or_else(unknown)?;
        let runs: Vec<RunId> = found.entry.run.into_iter().collect();
        let makers = self.tenant.runs.makers(&self.state, &runs)?;
        let maker = makers.into_iter().next().flatten();
        match self.includes(&found.entry, maker.as_deref()) {
            true => Ok(found),
            false => Err(unknown()),
        }
    }
}

/// Returns the key of an approval in the order of the list, which is the order of the keys as texts.
fn order(entry: &ApprovalEntry) -> String {
    let (group, time) = match &entry.state {
        // Approvals without a deadline never expire, so they are the last of the open ones.
        ApprovalState::Open => ('0', entry.deadline.unwrap_or(u64::MAX)),
        ApprovalState::Claimed { .. } => ('1', entry.deadline.unwrap_or(u64::MAX)),
        ApprovalState::Closed { at, .. } => ('2', u64::MAX - at),
        ApprovalState::Damaged(_) => ('3', 0),
    };
    format!("{group}{time:020}{}", entry.id)
}

async fn list(call: Call) -> Result<Response, Problem> {
    let page = call.page(APPROVALS)?;
    let (state, owned, tenant) = (call.scope()?, call.owned()?, call.tenant()?);
    let (items, last) = blocking(&call.app, move || {
        let visible = Visible::read(state, tenant, owned)?;
        Ok(page_of(visible.all()?, &page))
    })
    .await?;
    call.list(APPROVALS, items, last.as_deref())
}

/// Returns the items of a page, and the key of the last one if there are more.
fn page_of(all: Vec<Arc<ApprovalEntry>>, page: &PageQuery) -> (Vec<ApprovalView>, Option<String>) {
    let filter = Filter::parse(page.q.as_deref(), &KEYS);
    let wanted = all.into_iter().filter(|entry| is_wanted(&filter, entry));
    let mut sorted: Vec<(String, Arc<ApprovalEntry>)> =
        wanted.map(|entry| (order(&entry), entry)).collect();
    sorted.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
    let mut rest = sorted
        .into_iter()
        .skip_while(|(key, _)| page.after.as_ref().is_some_and(|after| key <= after))
        .peekable();
    let mut items = Vec::new();
    let mut last = None;
    for (key, entry) in rest.by_ref().take(page.limit) {
        items.push(ApprovalView::of(&entry));
        last = Some(key);
    }
    let last = last.filter(|_| rest.peek().is_some());
    (items, last)
}

fn is_wanted(filter: &Filter, entry: &ApprovalEntry) -> bool {
    let run = entry.run.map(|run| run.to_string()).unwrap_or_default();
    let value = |key: &str| match key {
        "state" => entry.state.name(),
        "kind" => entry.kind.name(),
        "box" => entry.box_name.as_ref().map_or("", |name| name.as_str()),
        "run" => run.as_str(),
        _ => "",
    };
    if !filter.has_terms(value) {
        return false;
    }
    let texts = [entry.asker.to_lowercase(), entry.text.to_lowercase()];
    filter.texts().iter().all(|text| texts.iter().any(|it| it.contains(text.as_str())))
}

/// Describes an approval for a sender. Blocks.
fn described(
    visible: &Visible,
    who: &Identity,
    found: &FoundApproval,
) -> Result<ApprovalDetail, Problem> {
    let may_answer = extent(Act::Answer, who.role, &who.grant) > Extent::Nothing;
    let refusal = match Approver::of(who) {
        _ if !may_answer => Some("your role or your token does not allow answers".to_owned()),
        Err(problem) => Some(problem.detail().to_owned()),
        Ok(approver) => {
            let rule = found.rule.as_ref();
            rule.and_then(|rule| approver.check(rule).err()).map(|error| format!("{error:#}"))
        }
    };
    let has_contents = who.role != Role::Auditor;
    ApprovalDetail::read(&visible.state, found, refusal, has_contents)
}

async fn get(call: Call) -> Result<Response, Problem> {
    let (state, owned, tenant) = (call.scope()?, call.owned()?, call.tenant()?);
    let (who, id) = (call.who()?.clone(), call.param("approval")?.to_owned());
    let detail = blocking(&call.app, move || {
        let visible = Visible::read(state, tenant, owned)?;
        let found = visible.find(&id)?;
        described(&visible, &who, &found)
    })
    .await?;
    json_response(StatusCode::OK, &detail)
}

/// The answer of a person.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerRequest {
    #[schemars(schema_with = "schema_of_answer")]
    answer: String,
    /// The digest of the approval as the person saw it.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    digest: String,
    /// A reason, for the record.
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

const APPROVE: &str = "approve";
const DENY: &str = "deny";

fn schema_of_answer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": [APPROVE, DENY] })
}

async fn answer(call: Call) -> Result<Response, Problem> {
    let request: AnswerRequest = call.json()?;
    let is_allowed = match request.answer.as_str() {
        APPROVE => true,
        DENY => false,
        _ => {
            return Err(Problem::invalid("`answer` must be `approve` or `deny`").field("/answer"));
        }
    };
    let is_digest = |text: &str| {
        text.len() == 64 && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
    };
    if !is_digest(&request.digest) {
        let detail = "`digest` must have 64 hexadecimal digits in lower case";
        return Err(Problem::invalid(detail).field("/digest"));
    }
    if request.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(Problem::invalid("the reason is too long").field("/reason"));
    }
    let approver = Approver::of(call.who()?)?;
    let (state, owned, tenant) = (call.scope()?, call.owned()?, call.tenant()?);
    let (who, id) = (call.who()?.clone(), call.param("approval")?.to_owned());
    let mut change = call.change("approval.answered", &id)?;
    change.details = std::iter::once(request.answer).chain(request.reason.clone()).collect();
    let app = call.app.clone();
    let detail = blocking(&call.app, move || {
        let visible = Visible::read(state, tenant, owned)?;
        let found = visible.find(&id)?;
        if found.entry.digest.to_string() != request.digest {
            let detail = "the approval is another one than you saw; read it again";
            return Err(Problem::new(ProblemKind::CONFLICT, detail));
        }
        if let Some(done) = settled(&found.entry, &approver, is_allowed) {
            done?;
            return described(&visible, &who, &found);
        }
        if let Some(rule) = &found.rule {
            approver.check(rule)?;
        }
        let verdict = verdict(found.entry.kind, is_allowed, request.reason);
        change.record(&app)?;
        carry_out(&visible, &found.entry, verdict, &approver, is_allowed)?;
        let after = match visible.find(&id) {
            // A version of a skill does not wait any more once it has an answer.
            Err(problem) if problem.kind == ProblemKind::NOT_FOUND => {
                closed(found, &approver, is_allowed, app.now())
            }
            found => found?,
        };
        described(&visible, &who, &after)
    })
    .await?;
    json_response(StatusCode::OK, &detail)
}

/// Returns an approval with the answer of a person.
fn closed(
    mut found: FoundApproval,
    approver: &Approver,
    is_allowed: bool,
    at: Millis,
) -> FoundApproval {
    let outcome = if is_allowed { ApprovalOutcome::Allowed } else { ApprovalOutcome::Denied };
    let by = Some(approver.principal().clone());
    found.entry.state = ApprovalState::Closed { outcome, by, at };
    found
}

fn verdict(kind: ApprovalKind, is_allowed: bool, reason: Option<String>) -> Verdict {
    match (is_allowed, kind, reason) {
        (true, _, _) => Verdict::Allow,
        (false, ApprovalKind::Gate, Some(reason)) => Verdict::DenyBecause(reason),
        // The record of the request has the reason.
        (false, ApprovalKind::Gate | ApprovalKind::Request | ApprovalKind::Skill, _) => {
            Verdict::Deny
        }
    }
}

/// Returns the result for an approval that needs no answer any more. A repeated answer of the same person has no
/// effect and is no problem.
fn settled(
    entry: &ApprovalEntry,
    approver: &Approver,
    is_allowed: bool,
) -> Option<Result<(), Problem>> {
    let gone = |detail: String| Some(Err(Problem::new(ProblemKind::GONE, detail)));
    let is_own = entry.state.by() == Some(approver.principal());
    match &entry.state {
        ApprovalState::Open => None,
        ApprovalState::Claimed { .. } if is_own => {
            let detail = "your earlier answer is being carried out";
            Some(Err(Problem::new(ProblemKind::BUSY, detail).retry_after(1)))
        }
        ApprovalState::Claimed { .. } => gone("another person has answered".to_owned()),
        ApprovalState::Closed { outcome, .. } => {
            let same = if is_allowed { ApprovalOutcome::Allowed } else { ApprovalOutcome::Denied };
            if is_own && *outcome == same {
                return Some(Ok(()));
            }
            let by = entry.state.by().map(|by| format!(" by {by}")).unwrap_or_default();
            gone(format!("the approval is over: {}{by}", outcome.name()))
        }
        ApprovalState::Damaged(why) => Some(Err(Problem::new(ProblemKind::DAMAGED, why.clone()))),
    }
}

/// Carries an answer out. Blocks until the box or the driver has done it.
fn carry_out(
    visible: &Visible,
    entry: &ApprovalEntry,
    verdict: Verdict,
    approver: &Approver,
    is_allowed: bool,
) -> Result<(), Problem> {
    let approvals = gates::approvals(&visible.state);
    let answered =
        approver.answer(|person| approvals.answer_as(&entry.id, &entry.digest, verdict, person));
    let Err(error) = answered else { return Ok(()) };
    if !matches!(error.kind(), ErrorKind::WrongState | ErrorKind::Conflict) {
        return Err(of_state(error));
    }
    // Another answer can have been faster, or the approval has expired since it was read.
    let now = index::find(&approvals, &entry.id)?;
    match now.and_then(|now| settled(&now.entry, approver, is_allowed)) {
        Some(result) => result,
        None => Err(of_state(error)),
    }
}
