//! What is seen of each box.

use belljar_model::boxes::BoxState;
use belljar_model::display;

use crate::scope::CLOCK;
use belljar_engine::approvals::{Approval, ApprovalKind, ApprovalQuery, ApprovalState};
use belljar_engine::box_store::NamedBox;
use belljar_engine::scope::Scoped;
use belljar_engine::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};

/// One box on the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: BoxState,
    /// How long ago it wrote something, in milliseconds.
    pub(super) quiet: Option<u64>,
    pub(super) waits_for_review: bool,
    /// What it waits for an answer to.
    pub(super) questions: Vec<String>,
    pub(super) program: String,
    pub(super) place: String,
    pub(super) ended: Option<String>,
}

/// All boxes: those that run first, then by name.
pub(super) fn all(state: &Scoped) -> Vec<Row> {
    let boxes = NamedBox::all(state).unwrap_or_default();
    let asked = asked(state);
    let mut rows: Vec<Row> = boxes.iter().map(|of| row(state, of, &asked)).collect();
    rows.sort_by(|left, right| (left.state, &left.name).cmp(&(right.state, &right.name)));
    rows
}

fn row(scope: &Scoped, of: &NamedBox, asked: &[Approval]) -> Row {
    let state = of.state();
    let run = of.run().map(|run| run.record);
    let program = run.as_ref().map_or_else(Vec::new, |run| run.argv.clone());
    let place = of.record.ground.path().map_or_else(
        || "-".to_owned(),
        |path| display::safe_line(path.as_os_str().as_encoded_bytes()),
    );
    let is_up = state == BoxState::Running;
    Row {
        name: of.name().as_str().to_owned(),
        state,
        quiet: is_up.then(|| quiet(scope, of)).flatten(),
        waits_for_review: run.as_ref().is_some_and(|run| run.review.is_pending()),
        questions: if is_up { questions(of, asked) } else { Vec::new() },
        program: display::safe_line(program.join(" ")),
        place,
        ended: run.and_then(|run| run.result).map(|it| it.reason.sentence().to_owned()),
    }
}

/// How long the box has written nothing, as its supervisor reports.
fn quiet(state: &Scoped, of: &NamedBox) -> Option<u64> {
    let Ok(FromSupervisor::Status(live)) = supervisor::ask(state, of, &ToSupervisor::Status) else {
        return None;
    };
    let now = CLOCK.millis();
    live.last_output.map(|last| now.saturating_sub(last))
}

/// What waits for an answer in all boxes.
fn asked(state: &Scoped) -> Vec<Approval> {
    let kind = Some(ApprovalKind::Request);
    let query = ApprovalQuery { kind, ..ApprovalQuery::default() };
    let mut asked = supervisor::approvals(state).list(&query).unwrap_or_default();
    asked.retain(|approval| approval.state == ApprovalState::Open);
    asked
}

/// What it waits for an answer to, each in one line that is safe to show.
fn questions(of: &NamedBox, asked: &[Approval]) -> Vec<String> {
    let about = asked.iter().filter_map(|approval| approval.about.as_ref());
    let own = about.filter(|about| about.name.as_ref() == Some(of.name()));
    own.map(|about| about.text.clone()).collect()
}
