//! The status of a named box: its records, and the report of its supervisor while the box runs.

use belljar_model::RunRecord;
use belljar_model::boxes::{BoxName, BoxState, BoxWorkspace};
use belljar_model::caller::Principal;
use serde::Serialize;

use crate::box_store::NamedBox;
use crate::error::ErrorKind;
use crate::scope::Scoped;
use crate::supervisor::{
    self,
    protocol::{FromSupervisor, Live, ToSupervisor},
};

/// The status of a box.
#[derive(Clone, Debug, Serialize)]
pub struct BoxStatus {
    pub name: BoxName,
    pub state: BoxState,
    /// The creation time in milliseconds since the Unix epoch.
    pub created: u64,
    pub ground: BoxWorkspace,
    /// The principal that created the box.
    pub maker: Principal,
    /// The newest run of the box, if there is one.
    pub run: Option<RunRecord>,
    /// The report of the supervisor, while the box runs.
    pub live: Option<Live>,
}

/// Returns the principal that created a box. Boxes of earlier versions belong to the user of the machine.
pub fn maker(named_box: &NamedBox) -> Principal {
    let local = || Principal::user(rustix::process::geteuid().as_raw());
    named_box.record.maker.clone().unwrap_or_else(local)
}

/// Reads the status of a box, and asks its supervisor if the box runs.
pub fn status(scope: &Scoped, named_box: &NamedBox) -> BoxStatus {
    let ask = || supervisor::ask(scope, named_box, &ToSupervisor::Status);
    let (state, live) = match named_box.state() {
        up @ (BoxState::Running | BoxState::Paused) => match ask() {
            Ok(FromSupervisor::Status(live)) => (up, Some(live)),
            // The box was stopping when it was asked, and `stop` waits for its end.
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::WrongState) => {
                let is_up = named_box.is_up();
                (if is_up { BoxState::Changing } else { named_box.state() }, None)
            }
            _ => (up, None),
        },
        state
        @ (BoxState::Changing | BoxState::Interrupted | BoxState::Stopped | BoxState::New) => {
            (state, None)
        }
    };
    BoxStatus {
        name: named_box.name().clone(),
        state,
        created: named_box.record.created,
        ground: named_box.record.ground.clone(),
        maker: maker(named_box),
        run: named_box.run().map(|run| run.record),
        live,
    }
}

impl BoxStatus {
    /// Returns whether the box runs without a network, because its broker has exited.
    pub fn is_broker_dead(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.dark)
    }

    /// Returns whether changes of the box wait for review.
    pub fn waits_for_review(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.review.is_pending())
    }
}
