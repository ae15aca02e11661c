//! The requests of hosts for larger leases, and the answers of the driver.

use std::fs;
use std::path::PathBuf;

use belljar_model::RunId;
use belljar_model::net::Budget;

use super::request;
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::supervisor::protocol::ToSupervisor;
use crate::supervisor::task_run::LEASE_REQUESTS;

/// Returns the box runs of a run that ask for a larger lease, with the files of their requests.
pub(in crate::runs) fn lease_requests(state: &Scoped, run: RunId) -> Vec<(PathBuf, RunId)> {
    let dir = state.store().layout().plan(run).join(LEASE_REQUESTS);
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = files.filter_map(|file| Some((file.path(), file.file_name().into_string().ok()?)));
    files.filter_map(|(path, name)| Some((path, name.parse().ok()?))).collect()
}

/// Replaces the lease of a running attempt by a larger one. Does nothing if no host is running.
pub(in crate::runs) fn extend(
    state: &Scoped,
    run: RunId,
    lease: Budget,
) -> Result<(), EngineError> {
    let what = || format!("cannot extend the lease of box run {run}");
    request(state, run, &ToSupervisor::Extend(lease), what).map(drop)
}
