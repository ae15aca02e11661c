//! Changing the network rules of a box, at once and for its next starts.

use anyhow::Context as _;
use belljar_model::boxes::{BoxName, NetworkChange};

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::supervisor::{self, protocol::ToSupervisor, setup::Setup};

/// Puts other rules into force. Returns whether the box is running, so that they apply now.
pub fn change(state: &Scoped, name: &BoxName, said: &NetworkChange) -> Result<bool, EngineError> {
    let _turn = NamedBox::find(state, name)?.turn()?;
    // Read again: the previous holder of the lock may have changed it.
    let mut one = NamedBox::find(state, name)?;
    one.record.spec.network = Some(said.clone());
    let running = one.is_up();
    if running {
        supervisor::ask(state, &one, &ToSupervisor::SetNetwork(said.clone()))?;
    } else {
        Setup::of(&one, state)?; // rules that the box could not be started with are not kept
    }
    one.save().context("keep the rules for the next start").kind(ErrorKind::Broken)?;
    Ok(running)
}
