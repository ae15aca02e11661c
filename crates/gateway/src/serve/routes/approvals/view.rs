//! The JSON of approvals. All texts are safe to show: control and format characters are escaped.

use belljar_engine::approvals::gates::{GateApply, GateInput, GateQuestion};
use belljar_engine::approvals::index::{ApprovalEntry, FoundApproval};
use belljar_engine::approvals::{ApprovalId, ApprovalState};
use belljar_engine::error::ErrorKind;
use belljar_engine::runs::gates;
use belljar_engine::scope::Scoped;
use belljar_model::display;
use schemars::JsonSchema;
use serde::Serialize;

use crate::serve::problem::Problem;
use crate::serve::routes::account::time;

/// The maximum length of the content behind a gate in a response, in bytes.
const MAX_CONTENT: usize = 1024 * 1024;

/// An approval in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub(super) struct ApprovalView {
    id: String,
    /// `request` for a network request of a box, `gate` for a gate of a run, or `skill`.
    kind: &'static str,
    /// `open`, `claimed` if an answer is being carried out, `allowed`, `edited`, `denied`, `expired`,
    /// `withdrawn`, `rules-changed`, `gone`, `unrecorded` or `damaged`.
    state: &'static str,
    /// The box that asks, the plan and the task of a gate, or the skill.
    asker: String,
    #[serde(rename = "box")]
    box_name: Option<String>,
    /// The run that asks.
    run: Option<String>,
    /// The question on one line.
    text: String,
    asked: Option<String>,
    /// The time of the automatic denial.
    deadline: Option<String>,
    /// The person who answered.
    by: Option<String>,
    answered: Option<String>,
}

impl ApprovalView {
    pub(super) fn of(entry: &ApprovalEntry) -> Self {
        let answered = match &entry.state {
            ApprovalState::Closed { at, .. } => Some(time(*at)),
            ApprovalState::Open | ApprovalState::Claimed { .. } | ApprovalState::Damaged(_) => None,
        };
        Self {
            id: entry.id.to_string(),
            kind: entry.kind.name(),
            state: entry.state.name(),
            asker: entry.asker.clone(),
            box_name: entry.box_name.as_ref().map(ToString::to_string),
            run: entry.run.map(|run| run.to_string()),
            text: entry.text.clone(),
            asked: entry.asked.map(time),
            deadline: entry.deadline.map(time),
            by: entry.state.by().map(ToString::to_string),
            answered,
        }
    }
}

/// An approval with everything that an answer carries out.
#[derive(Serialize, JsonSchema)]
pub(super) struct ApprovalDetail {
    #[serde(flatten)]
    approval: ApprovalView,
    /// The digest that an answer must have.
    digest: String,
    /// The secrets that the request would carry.
    secrets: Vec<String>,
    answers: AnswersView,
    /// What an approval of a gate does; null for other approvals and for gates that are closed.
    gate: Option<GateDetail>,
}

/// Who may answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApprovalAnswers")]
struct AnswersView {
    /// `operator` if the person must have the role operator, admin or owner; otherwise `member`.
    approver: &'static str,
    /// Whether the person must be another one than the owner of the run or the box.
    two_people: bool,
    /// The principal that the run or the box belongs to.
    requester: Option<String>,
    /// Why the sender cannot answer; null if the sender can.
    refusal: Option<String>,
}

/// What an approval of a gate does.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Gate")]
struct GateDetail {
    plan: String,
    task: String,
    question: String,
    /// The branch that an approval moves.
    apply: Option<ApplyView>,
    /// What the gate reads.
    inputs: Vec<InputView>,
    /// The tasks that can start after an approval, each with what it does.
    then: Vec<DependentView>,
    /// The labels of everything that the gate reads.
    taint: Vec<String>,
    /// The labels that an approval removes.
    clears: Vec<String>,
    /// The reason why the gate cannot be approved now.
    obstacle: Option<String>,
    /// The complete content: the difference of the branch that an approval moves, or else the inputs. Null if it
    /// is longer than 1 MiB, and for senders who may not see contents.
    content: Option<String>,
}

/// A branch that an approval moves.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GateBranch")]
struct ApplyView {
    /// The task that made the commit.
    of: String,
    branch: String,
    commit: String,
    base: String,
    files: u64,
    added_lines: u64,
    removed_lines: u64,
    /// The changed files that the host would execute, each with the reason.
    executes: Vec<String>,
}

/// A content that a gate reads.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GateInput")]
struct InputView {
    name: String,
    size: u64,
    /// The SHA-256 of the content.
    digest: String,
    labels: Vec<String>,
    /// The beginning of the content; null for senders who may not see contents.
    preview: Option<String>,
}

/// A task that can start after an approval.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GateDependent")]
struct DependentView {
    task: String,
    does: String,
}

impl ApplyView {
    fn of(apply: &GateApply) -> Self {
        // Destructured without `..`, so that a new part of the act cannot be left out.
        let GateApply { of, commit, base, branch, files, added_lines, removed_lines, executes } =
            apply.clone();
        Self { of, branch, commit, base, files, added_lines, removed_lines, executes }
    }
}

impl InputView {
    fn of(input: &GateInput, has_contents: bool) -> Self {
        let GateInput { name, size, digest, labels, preview } = input.clone();
        Self {
            name: display::safe_line(name),
            size,
            digest,
            labels,
            preview: has_contents.then_some(preview),
        }
    }
}

impl GateDetail {
    fn of(gate: &GateQuestion, content: Option<String>, has_contents: bool) -> Self {
        let then = gate.dependents.iter();
        let then = then.map(|it| DependentView { task: it.task.clone(), does: it.does.clone() });
        Self {
            plan: gate.plan.clone(),
            task: gate.task.clone(),
            question: gate.question.clone(),
            apply: gate.apply.as_ref().map(ApplyView::of),
            inputs: gate.inputs.iter().map(|input| InputView::of(input, has_contents)).collect(),
            then: then.collect(),
            taint: gate.taint.iter().map(ToString::to_string).collect(),
            clears: gate.clears.clone(),
            obstacle: gate.obstacle.clone(),
            content,
        }
    }
}

impl ApprovalDetail {
    /// Reads what an answer carries out. `refusal` tells why the sender cannot answer. Blocks.
    pub(super) fn read(
        state: &Scoped,
        found: &FoundApproval,
        refusal: Option<String>,
        has_contents: bool,
    ) -> Result<Self, Problem> {
        let FoundApproval { entry, approval, rule } = found;
        let about = approval.about.as_ref();
        let gate = about.and_then(|about| about.gate.as_deref());
        let content = match (&entry.id, entry.run, gate) {
            (ApprovalId::Gate(digest), Some(run), Some(_)) if has_contents => {
                match gates::details(state, run, digest) {
                    Ok(content) if content.len() > MAX_CONTENT => None,
                    Ok(content) => Some(display::safe_multiline(content)),
                    // The gate was answered a moment ago.
                    Err(error) if error.kind() == ErrorKind::WrongState => None,
                    Err(error) => return Err(error.into()),
                }
            }
            (ApprovalId::Gate(_) | ApprovalId::Request(_) | ApprovalId::Skill(_), _, _) => None,
        };
        let terms = rule.as_ref().map(|rule| rule.terms).unwrap_or_default();
        let requester = rule.as_ref().and_then(|rule| rule.requester.as_ref());
        Ok(Self {
            approval: ApprovalView::of(entry),
            digest: entry.digest.to_string(),
            secrets: about.map(|about| about.secrets.clone()).unwrap_or_default(),
            answers: AnswersView {
                approver: if terms.operator { "operator" } else { "member" },
                two_people: terms.two_people,
                requester: requester.map(ToString::to_string),
                refusal,
            },
            gate: gate.map(|gate| GateDetail::of(gate, content, has_contents)),
        })
    }
}
