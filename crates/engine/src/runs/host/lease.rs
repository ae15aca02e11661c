//! The requests of hosts for larger leases, and the answers of the driver.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::anyhow;
use belljar_model::RunId;
use belljar_model::net::Budget;

use super::{RESPONSE_TIMEOUT, connect, is_running};
use crate::error::{EngineError, ErrorKind};
use crate::scope::Scoped;
use crate::supervisor;
use crate::supervisor::protocol::{FromSupervisor, Hello, ToSupervisor};
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
    let Some(connection) = connect(state, run)? else { return Ok(()) };
    let ask = || -> io::Result<Option<FromSupervisor>> {
        connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let hello = supervisor::encode(&Hello::of_client(state.caller()))?;
        let extend = supervisor::encode(&ToSupervisor::Extend(lease))?;
        (&connection).write_all(&[hello, extend].concat())?;
        supervisor::receive(&connection)
    };
    match ask() {
        Ok(Some(FromSupervisor::Failed { kind, message })) => {
            Err(EngineError::message(kind, message))
        }
        Ok(_) => Ok(()),
        Err(_) if !is_running(state, run) => Ok(()),
        Err(error) => {
            let error = anyhow!(error).context(format!("cannot extend the lease of box run {run}"));
            Err(EngineError::new(ErrorKind::Broken, error))
        }
    }
}
