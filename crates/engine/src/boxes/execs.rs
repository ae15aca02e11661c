//! Kept execs of a named box: additional programs that belong to the supervisor of the box and outlive their
//! clients. They end with the box.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::box_store::NamedBox;
use crate::error::{EngineError, ErrorKind};
use crate::scope::Scoped;
use crate::supervisor::exec_protocol::{ExecId, ExecStatus};
use crate::supervisor::protocol::{ExecSpec, FromSupervisor, ToSupervisor};
use crate::supervisor::{ask, call};

/// The maximum time to wait for the response of a supervisor to a client that attaches.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that is attached to an exec. The connection carries the frames of
/// [`crate::supervisor::exec_protocol`].
#[derive(Debug)]
pub struct AttachedExec {
    pub connection: UnixStream,
    /// The program has read the input before this offset.
    pub stdin_offset: u64,
}

/// Starts a program in a running box, after its start is recorded in the ledger. The caller chooses a random
/// id; a second request with the same id starts nothing.
pub fn start(
    state: &Scoped,
    named_box: &NamedBox,
    id: ExecId,
    spec: ExecSpec,
) -> Result<ExecStatus, EngineError> {
    let response = ask(state, named_box, &ToSupervisor::StartExec { id, spec })?;
    let FromSupervisor::Exec(status) = response else { return Err(unexpected(named_box)) };
    Ok(*status)
}

/// Returns the state of an exec. `None` if the running box has no such exec.
pub fn status(
    state: &Scoped,
    named_box: &NamedBox,
    id: ExecId,
) -> Result<Option<ExecStatus>, EngineError> {
    let response = ask(state, named_box, &ToSupervisor::DescribeExec(id))?;
    if matches!(response, FromSupervisor::NoSuchExec) {
        return Ok(None);
    }
    let FromSupervisor::Exec(status) = response else { return Err(unexpected(named_box)) };
    Ok(Some(*status))
}

/// Returns the execs of a box, the newest first. A box that does not run has none.
pub fn list(state: &Scoped, named_box: &NamedBox) -> Result<Vec<ExecStatus>, EngineError> {
    match ask(state, named_box, &ToSupervisor::ListExecs) {
        Ok(FromSupervisor::Execs(mut all)) => {
            all.sort_by_key(|status| (std::cmp::Reverse(status.started), status.id));
            Ok(all)
        }
        Ok(_) => Err(unexpected(named_box)),
        Err(error) if error.kind() == ErrorKind::WrongState => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Sends a signal to an exec. Returns whether the exec exists.
pub fn signal(
    state: &Scoped,
    named_box: &NamedBox,
    id: ExecId,
    signal: i32,
) -> Result<bool, EngineError> {
    let response = ask(state, named_box, &ToSupervisor::SignalExec { id, signal })?;
    Ok(matches!(response, FromSupervisor::Ok))
}

/// Attaches to an exec as a client that has the output before the offsets `[stdout, stderr]`. `None` if the
/// running box has no such exec.
pub fn attach(
    state: &Scoped,
    named_box: &NamedBox,
    id: ExecId,
    [stdout, stderr]: [u64; 2],
) -> Result<Option<AttachedExec>, EngineError> {
    let request = ToSupervisor::AttachExec { id, stdout, stderr };
    match call(state, named_box, &request, Some(ATTACH_TIMEOUT))? {
        (connection, FromSupervisor::ExecAttached { stdin_offset }) => {
            Ok(Some(AttachedExec { connection, stdin_offset }))
        }
        (_, FromSupervisor::NoSuchExec) => Ok(None),
        _ => Err(unexpected(named_box)),
    }
}

fn unexpected(named_box: &NamedBox) -> EngineError {
    let text = format!("the supervisor of box {} sent an unexpected message", named_box.name());
    EngineError::message(ErrorKind::Broken, text)
}
