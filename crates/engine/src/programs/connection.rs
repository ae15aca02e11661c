//! The connection to a supervisor that has prepared the box of one program.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use crate::error::ErrorKind;
use crate::scope::Scoped;
use crate::supervisor::{
    self,
    asynchronous::Connection,
    protocol::{FromSupervisor, ToSupervisor},
    spec::{Prepare, ProgramBox},
};

/// The time that a supervisor has to exit after its connection was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A box that is built and can run one program, with its supervisor.
#[derive(Debug)]
pub(super) struct ReadyBox {
    pub(super) run: String,
    pub(super) remarks: Vec<String>,
    pub(super) supervisor: SupervisorConnection,
}

/// The connection to a supervisor, and the process of the supervisor.
#[derive(Debug)]
pub(super) struct SupervisorConnection {
    pub(super) connection: Connection,
    process: SupervisorProcess,
}

/// The process of a supervisor. Dropping this value starts a thread that waits for the process to exit.
#[derive(Debug)]
pub(super) struct SupervisorProcess(Option<Child>);

/// The reason why a box could not be built.
#[derive(Debug)]
pub(super) enum BoxError {
    /// An error in the request or the configuration, which the caller can correct.
    Usage(String),
    /// An internal error, which the caller cannot correct.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for BoxError {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Starts a supervisor and waits until it has built a box for one program.
pub(super) async fn prepare(
    state: Scoped,
    worker: Arc<OwnedFd>,
    of: ProgramBox,
) -> Result<ReadyBox, BoxError> {
    let start = move || {
        let prepare = Prepare::Program(of);
        supervisor::spawn(&state, prepare, &[worker.as_fd()], Stdio::inherit())
    };
    // Sending a large request blocks until the new process reads it.
    let started = tokio::task::spawn_blocking(start).await.context("cannot start a supervisor")?;
    let (child, connection) = started.context("cannot start a supervisor")?;
    let process = SupervisorProcess(Some(child));
    let mut connection =
        Connection::new(connection).context("cannot prepare the connection to a supervisor")?;
    match connection.next().await? {
        Some(FromSupervisor::Ready { run, remarks }) => Ok(ReadyBox {
            run: run.to_string(),
            remarks,
            supervisor: SupervisorConnection { connection, process },
        }),
        Some(FromSupervisor::Failed { kind: ErrorKind::Invalid, message }) => {
            Err(BoxError::Usage(message))
        }
        Some(FromSupervisor::Failed { message, .. }) => Err(BoxError::Broken(anyhow!(message))),
        Some(_) => Err(BoxError::Broken(anyhow!("a supervisor sent an unexpected message"))),
        None => Err(BoxError::Broken(anyhow!("a supervisor exited before its box was ready"))),
    }
}

impl ReadyBox {
    /// Sends the task to the supervisor, which starts the program.
    pub(super) async fn start(mut self, start: &ToSupervisor) -> anyhow::Result<Self> {
        self.supervisor.connection.send(start).await?;
        Ok(self)
    }

    /// Removes the box, and waits until its supervisor has exited.
    pub(super) async fn dismiss(self) {
        let SupervisorConnection { connection, mut process } = self.supervisor;
        drop(connection);
        let Some(child) = process.0.take() else { return };
        tokio::task::spawn_blocking(move || wait_for(child)).await.ok(); // a panic is reported there
    }
}

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            std::thread::spawn(move || wait_for(child));
        }
    }
}

/// Waits until a supervisor with a closed connection exits. Kills the supervisor after a timeout.
fn wait_for(mut child: Child) {
    let deadline = std::time::Instant::now() + EXIT_TIMEOUT;
    while std::time::Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    child.kill().ok(); // the process may have just exited
    child.wait().ok();
}
