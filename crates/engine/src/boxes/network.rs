//! Changes the network rules of a box, for the current run and for later starts.

use anyhow::Context as _;
use belljar_model::boxes::{BoxName, NetworkChange};

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::supervisor::{self, protocol::ToSupervisor, setup::Setup};

/// Changes the network rules of a box. Returns true if the box is running and uses the new rules now.
pub fn change_network(
    state: &Scoped,
    name: &BoxName,
    change: &NetworkChange,
) -> Result<bool, EngineError> {
    let _lock = NamedBox::find(state, name)?.lock_for_change()?;
    // Load the box again: the previous holder of the lock may have changed its record.
    let mut changed = NamedBox::find(state, name)?;
    changed.record.spec.network = Some(change.clone());
    let is_running = changed.is_up();
    if is_running {
        supervisor::ask(state, &changed, &ToSupervisor::SetNetwork(change.clone()))?;
    } else {
        Setup::of(&changed, state)?; // refuses rules that the box could not be started with
    }
    changed
        .save()
        .context("cannot save the network rules for the next start")
        .kind(ErrorKind::Broken)?;
    Ok(is_running)
}
