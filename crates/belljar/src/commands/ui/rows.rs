//! Reads the status of all boxes for the full-screen view.

use belljar_model::boxes::BoxState;
use belljar_model::display;

use crate::scope::CLOCK;
use belljar_engine::approvals::{Approval, ApprovalKind, ApprovalQuery, ApprovalState};
use belljar_engine::box_store::NamedBox;
use belljar_engine::runs::gates;
use belljar_engine::scope::Scoped;
use belljar_engine::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};

/// A box in the list of the full-screen view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: BoxState,
    /// The time since the last output of the box, in milliseconds.
    pub(super) quiet: Option<u64>,
    pub(super) waits_for_review: bool,
    /// The requests of the box that wait for an answer.
    pub(super) questions: Vec<String>,
    pub(super) program: String,
    pub(super) place: String,
    pub(super) ended: Option<String>,
}

/// Returns all boxes; running boxes come first, then the order is by name.
pub(super) fn all(state: &Scoped) -> Vec<Row> {
    let boxes = NamedBox::all(state).unwrap_or_default();
    let open_approvals = open_approvals(state);
    let mut rows: Vec<Row> =
        boxes.iter().map(|named_box| row(state, named_box, &open_approvals)).collect();
    rows.sort_by(|left, right| (left.state, &left.name).cmp(&(right.state, &right.name)));
    rows
}

/// Reads the status of one box.
fn row(scope: &Scoped, named_box: &NamedBox, open_approvals: &[Approval]) -> Row {
    let state = named_box.state();
    let run = named_box.run().map(|run| run.record);
    let program = run.as_ref().map_or_else(Vec::new, |run| run.argv.clone());
    let place = named_box.record.ground.path().map_or_else(
        || "-".to_owned(),
        |path| display::safe_line(path.as_os_str().as_encoded_bytes()),
    );
    let is_up = matches!(state, BoxState::Running | BoxState::Paused);
    Row {
        name: named_box.name().as_str().to_owned(),
        state,
        quiet: is_up.then(|| quiet(scope, named_box)).flatten(),
        waits_for_review: run.as_ref().is_some_and(|run| run.review.is_pending()),
        questions: if is_up { questions(named_box, open_approvals) } else { Vec::new() },
        program: display::safe_line(program.join(" ")),
        place,
        ended: run.and_then(|run| run.result).map(|result| result.end_of_box()),
    }
}

/// Returns the milliseconds since the last output of a box, as its supervisor reports them.
fn quiet(state: &Scoped, named_box: &NamedBox) -> Option<u64> {
    let Ok(FromSupervisor::Status(live)) = supervisor::ask(state, named_box, &ToSupervisor::Status)
    else {
        return None;
    };
    let now = CLOCK.millis();
    live.last_output.map(|last| now.saturating_sub(last))
}

/// Returns the requests of all boxes that wait for an answer.
fn open_approvals(state: &Scoped) -> Vec<Approval> {
    let kind = Some(ApprovalKind::Request);
    let query = ApprovalQuery { kind, ..ApprovalQuery::default() };
    let mut open_approvals = gates::approvals(state).list(&query).unwrap_or_default();
    open_approvals.retain(|approval| approval.state == ApprovalState::Open);
    open_approvals
}

/// Returns the texts of the requests of one box that wait for an answer.
fn questions(named_box: &NamedBox, open_approvals: &[Approval]) -> Vec<String> {
    let about = open_approvals.iter().filter_map(|approval| approval.about.as_ref());
    let own = about.filter(|about| about.name.as_ref() == Some(named_box.name()));
    own.map(|about| about.text.clone()).collect()
}
