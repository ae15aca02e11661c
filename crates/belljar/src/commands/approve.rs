//! `belljar approve`: answers questions of boxes, gates of runs and skills that wait for approval.

mod gate;

use std::io::IsTerminal as _;

use belljar_model::boxes::BoxName;
use serde::Serialize;

use crate::cli::network::{ApproveArgs, QuestionId};
use crate::exit;
use crate::print;
use crate::scope;
use crate::scope::CLOCK;
use belljar_engine::approvals::gates::GateQuestion;
use belljar_engine::approvals::{
    self, Approval, ApprovalKind, ApprovalOutcome, ApprovalQuery, ApprovalQuestion, ApprovalState,
    Verdict,
};
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::runs::gates;
use belljar_engine::scope::Scoped;

/// A question that waits for approval or was answered, as JSON.
#[derive(Debug, Serialize)]
struct ApprovalLine<'a> {
    id: &'a str,
    /// The box that sent the request; `None` for a skill.
    #[serde(rename = "box")]
    name: Option<&'a BoxName>,
    asked: Option<u64>,
    until: Option<u64>,
    text: Option<&'a str>,
    secret: Option<String>,
    kind: Option<&'static str>,
    state: &'static str,
    /// The principal that answered.
    by: Option<String>,
    digest: Option<String>,
    /// The index of the question in the ledger.
    event: Option<u64>,
    /// The reason why the file of the question cannot be read.
    damage: Option<&'a str>,
    /// What happens after the approval of a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<&'a GateQuestion>,
}

impl<'a> ApprovalLine<'a> {
    fn new(approval: &'a Approval) -> Self {
        let about = approval.about.as_ref();
        let secrets = about.map(|about| about.secrets.join(", "));
        let damage = match &approval.state {
            ApprovalState::Damaged(why) => Some(why.as_str()),
            ApprovalState::Open | ApprovalState::Claimed { .. } | ApprovalState::Closed { .. } => {
                None
            }
        };
        Self {
            id: &approval.label,
            name: about.and_then(|about| about.name.as_ref()),
            asked: about.and_then(|about| about.asked),
            until: about.and_then(|about| about.deadline),
            text: about.map(|about| about.text.as_str()),
            secret: secrets.filter(|secrets| !secrets.is_empty()),
            kind: about.map(|about| about.kind.name()),
            state: approval.state.name(),
            by: approval.state.by().map(ToString::to_string),
            digest: about.map(|about| about.digest.to_string()),
            event: about.and_then(|about| about.event),
            damage,
            gate: about.and_then(|about| about.gate.as_deref()),
        }
    }
}

/// The result of an answer to one question, as JSON.
#[derive(Debug, Serialize)]
struct AnswerReport {
    id: String,
    answer: &'static str,
    /// The reason why the answer was not accepted.
    error: Option<String>,
    /// The index of the answer to a gate in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<u64>,
}

/// Runs `belljar approve`.
pub(crate) fn run(args: &ApproveArgs) -> exit::Outcome {
    let state = scope::open(None)?;
    if args.ids.is_empty() && args.all_of.is_empty() {
        if args.yes || args.edit.is_some() || args.reason.is_some() {
            return Err(invalid("name the question to answer; `belljar approve` lists them"));
        }
        return list_or_ask(&state, args);
    }
    if (args.edit.is_some() || args.reason.is_some()) && args.ids.len() != 1 {
        return Err(invalid("`--edit` and `--reason` answer one gate; name exactly one"));
    }
    let mut exit_code = 0;
    for id in &args.ids {
        let found = find(&state, id);
        if let (Err(_), QuestionId::Request { name, .. }) = (&found, id) {
            NamedBox::find(&state, name)?;
        }
        let is_gate = matches!(&found, Ok(about) if about.kind == ApprovalKind::Gate);
        let is_decided = args.yes || args.deny || args.edit.is_some();
        let code = match found {
            Ok(about) if is_gate && !is_decided => gate::decide(&state, about)?,
            found => {
                let verdict = gate::verdict(args)?;
                answer(&state, &id.to_string(), found, verdict, args.json)?
            }
        };
        exit_code = exit_code.max(code);
    }
    let mut count = args.ids.len();
    for name in &args.all_of {
        for approval in open_questions(&state, name)? {
            count += 1;
            let Approval { label, about, .. } = approval;
            let found = about.ok_or_else(|| no_open_question(name));
            let verdict = gate::verdict(args)?;
            exit_code = exit_code.max(answer(&state, &label, found, verdict, args.json)?);
        }
    }
    if count == 0 {
        print::note("no questions wait for an answer");
    }
    Ok(exit_code)
}

/// Lists the open questions, or on a terminal asks the operator about each of them.
fn list_or_ask(state: &Scoped, args: &ApproveArgs) -> exit::Outcome {
    let query = ApprovalQuery { kind: None, closed: args.list, name: None };
    let mut all = gates::approvals(state).list(&query)?;
    if !args.list {
        all.retain(|approval| match &approval.state {
            ApprovalState::Open | ApprovalState::Claimed { .. } => true,
            ApprovalState::Closed { .. } => {
                print::note(&format!(
                    "{}: closed without an answer, because its box is no longer running",
                    approval.label
                ));
                false
            }
            ApprovalState::Damaged(why) => {
                print::note(&format!(
                    "{}: the file of this question is damaged: {why}",
                    approval.label
                ));
                false
            }
        });
    }
    if args.json {
        for approval in &all {
            print::json(&ApprovalLine::new(approval)).kind(ErrorKind::Broken)?;
        }
        return Ok(0);
    }
    if all.is_empty() {
        print::note("no questions wait for an answer");
        return Ok(0);
    }
    if args.list || !std::io::stdin().is_terminal() {
        for approval in &all {
            print::out(&text_line(approval)).kind(ErrorKind::Broken)?;
            if let Some(gate) = open_gate(approval) {
                print::out(&gate::text(gate)).kind(ErrorKind::Broken)?;
            }
        }
        return Ok(0);
    }
    let mut exit_code = 0;
    for approval in all {
        print::ask(&text_line(&approval));
        let Approval { label, state: ApprovalState::Open, about: Some(about) } = approval else {
            continue;
        };
        if about.kind == ApprovalKind::Gate {
            match gate::ask(state, &about)? {
                gate::Asked::Answer(verdict) => {
                    exit_code = exit_code.max(answer(state, &label, Ok(about), verdict, false)?);
                }
                gate::Asked::Leave => {}
                gate::Asked::Quit => break,
            }
            continue;
        }
        print::ask("allow this once? [y/n, any other input leaves it open] ");
        let verdict = match gate::armed_answer()?.as_deref() {
            Some("y" | "Y" | "yes") => Verdict::Allow,
            Some("n" | "N" | "no") => Verdict::Deny,
            Some(_) => continue,
            None => break,
        };
        exit_code = exit_code.max(answer(state, &label, Ok(about), verdict, false)?);
    }
    Ok(exit_code)
}

/// Returns the open questions of a box, which must be running.
fn open_questions(state: &Scoped, name: &BoxName) -> Result<Vec<Approval>, EngineError> {
    let named_box = NamedBox::find(state, name)?;
    if !named_box.is_up() {
        return Err(not_running(name));
    }
    let kind = Some(ApprovalKind::Request);
    let query = ApprovalQuery { name: Some(name.clone()), kind, closed: false };
    let mut all = gates::approvals(state).list(&query)?;
    all.retain(|approval| approval.state == ApprovalState::Open);
    Ok(all)
}

/// Returns the question with this id: an open one if there is one, else the newest.
fn find(state: &Scoped, id: &QuestionId) -> Result<ApprovalQuestion, EngineError> {
    let (name, number) = match id {
        QuestionId::Request { name, number } => (name, number),
        QuestionId::Skill(skill) => return find_skill(state, &format!("skill:{skill}")),
        QuestionId::Digest(prefix) => return gate::find(state, prefix),
    };
    let kind = Some(ApprovalKind::Request);
    let query = ApprovalQuery { name: Some(name.clone()), kind, closed: true };
    let all = gates::approvals(state).list(&query)?;
    let label = id.to_string();
    let named = all.iter().filter(|approval| approval.label == label);
    let found = named.max_by_key(|approval| approval.state == ApprovalState::Open);
    if let Some(about) = found.and_then(|approval| approval.about.clone()) {
        return Ok(about);
    }
    let named_box = NamedBox::find(state, name)?;
    let file = named_box.run().map(|run| format!("{}-{number}", run.record.id));
    for approval in all {
        if let ApprovalState::Damaged(why) = approval.state
            && Some(approval.label) == file
        {
            return Err(EngineError::message(ErrorKind::Damaged, why));
        }
    }
    Err(if named_box.is_up() { no_open_question(name) } else { not_running(name) })
}

/// Returns the open question about a skill.
fn find_skill(state: &Scoped, label: &str) -> Result<ApprovalQuestion, EngineError> {
    let query = ApprovalQuery { kind: Some(ApprovalKind::Skill), ..ApprovalQuery::default() };
    let all = gates::approvals(state).list(&query)?;
    let found = all.into_iter().find(|approval| approval.label == label);
    let not_waiting = || invalid("no version of this skill waits for approval");
    found.and_then(|approval| approval.about).ok_or_else(not_waiting)
}

/// Returns the error for a box that has no such open question.
fn no_open_question(name: &BoxName) -> EngineError {
    invalid(format!("box {name}: {}", approvals::NOT_WAITING))
}

/// Returns the error for a box that is not running.
fn not_running(name: &BoxName) -> EngineError {
    invalid(format!("box {name} is not running; `belljar start {name}` starts it"))
}

/// Answers one question, prints the result and returns the exit code.
fn answer(
    state: &Scoped,
    id: &str,
    about: Result<ApprovalQuestion, EngineError>,
    verdict: Verdict,
    json: bool,
) -> exit::Outcome {
    let (answer, done) = match &verdict {
        Verdict::Allow => ("allow", "allowed once"),
        Verdict::Edit(_) => ("edit", "allowed once with another output"),
        Verdict::Deny | Verdict::DenyBecause(_) => ("deny", "denied"),
    };
    let answered = about.and_then(|about| {
        gates::approvals(state).answer(&about.id, &about.digest, verdict)?;
        Ok(gate::event(state, &about))
    });
    let (error, event, code) = match answered {
        Ok(event) => (None, event, 0),
        Err(error) if concerns_one_question(&error) => {
            (Some(format!("{error:#}")), None, exit::code(error.kind()))
        }
        Err(failure) => return Err(failure),
    };
    if json {
        let id = id.to_owned();
        print::json(&AnswerReport { id, answer, error, event }).kind(ErrorKind::Broken)?;
    } else {
        match (error, event) {
            (Some(error), _) => print::note(&format!("{id}: {error}")),
            (None, Some(event)) => print::note(&format!("{id}: {done}, event {event}")),
            (None, None) => print::note(&format!("{id}: {done}")),
        }
    }
    Ok(code)
}

/// Returns whether an error concerns only one question, so that others can still be answered.
const fn concerns_one_question(error: &EngineError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::WrongState
            | ErrorKind::Conflict
            | ErrorKind::Damaged
    )
}

/// Returns the description of an open gate.
fn open_gate(approval: &Approval) -> Option<&GateQuestion> {
    approval.about.as_ref()?.gate.as_deref()
}

/// Returns one question as a line of text.
fn text_line(approval: &Approval) -> String {
    let label = &approval.label;
    let text = approval.about.as_ref().map_or("", |about| &about.text);
    let by = approval.state.by().map(ToString::to_string).unwrap_or_default();
    let state = match &approval.state {
        ApprovalState::Open if open_gate(approval).is_some() => gate::deadline(approval),
        ApprovalState::Open => match approval.about.as_ref().and_then(|about| about.deadline) {
            Some(until) => {
                let left = until.saturating_sub(CLOCK.millis()).div_ceil(1000);
                format!("{left} s left")
            }
            None => "waits".to_owned(),
        },
        ApprovalState::Claimed { .. } => format!("answered by {by}, not yet processed"),
        ApprovalState::Closed { outcome, .. } if by.is_empty() => outcome.name().to_owned(),
        ApprovalState::Closed { outcome: ApprovalOutcome::Allowed, .. } => {
            format!("allowed by {by}")
        }
        ApprovalState::Closed { outcome: ApprovalOutcome::Edited, .. } => {
            format!("allowed by {by} with another output")
        }
        ApprovalState::Closed { outcome: ApprovalOutcome::Denied, .. } => format!("denied by {by}"),
        ApprovalState::Closed { outcome, .. } => {
            format!("{}; the answer of {by} had no effect", outcome.name())
        }
        ApprovalState::Damaged(why) => format!("damaged: {why}"),
    };
    format!("{label:<20}  {text}  ({state})\n")
}
