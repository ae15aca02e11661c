//! A supervisor with the box of one program, as the server sees it.

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

/// A supervisor whose box is built.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) run: String,
    pub(super) remarks: Vec<String>,
    pub(super) line: SupervisorConnection,
}

/// The connection to a supervisor, and its process.
#[derive(Debug)]
pub(super) struct SupervisorConnection {
    pub(super) connection: Connection,
    /// Ends the process when dropped.
    process: Process,
}

/// The process of a supervisor. Another thread waits for its end.
#[derive(Debug)]
pub(super) struct Process(Option<Child>);

/// Why a box could not be built.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The request or the operator's file is wrong.
    Usage(String),
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Starts a supervisor and waits until its box is built.
pub(super) async fn prepare(
    state: Scoped,
    worker: Arc<OwnedFd>,
    of: ProgramBox,
) -> Result<Ready, Refusal> {
    let start = move || {
        let prepare = Prepare::Program(of);
        supervisor::spawn(&state, prepare, &[worker.as_fd()], Stdio::inherit())
    };
    // A large request may wait until the new process reads it.
    let started = tokio::task::spawn_blocking(start).await.context("cannot start a supervisor")?;
    let (child, connection) = started.context("cannot start a supervisor")?;
    let process = Process(Some(child));
    let mut connection = Connection::new(connection).context("cannot reach a supervisor")?;
    match connection.next().await? {
        Some(FromSupervisor::Ready { run, remarks }) => Ok(Ready {
            run: run.to_string(),
            remarks,
            line: SupervisorConnection { connection, process },
        }),
        Some(FromSupervisor::Failed { kind: ErrorKind::Invalid, message }) => {
            Err(Refusal::Usage(message))
        }
        Some(FromSupervisor::Failed { message, .. }) => Err(Refusal::Broken(anyhow!(message))),
        Some(_) => Err(Refusal::Broken(anyhow!("a supervisor sent an unexpected message"))),
        None => Err(Refusal::Broken(anyhow!("a supervisor exited without a report"))),
    }
}

impl Ready {
    /// Sends the task.
    pub(super) async fn begin(mut self, start: &ToSupervisor) -> anyhow::Result<Self> {
        self.line.connection.send(start).await?;
        Ok(self)
    }

    /// Removes the box, and waits until its supervisor has exited.
    pub(super) async fn dismiss(self) {
        let SupervisorConnection { connection, mut process } = self.line;
        drop(connection);
        let Some(child) = process.0.take() else { return };
        tokio::task::spawn_blocking(move || wait_for(child)).await.ok(); // a panic is reported there
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            std::thread::spawn(move || wait_for(child));
        }
    }
}

/// Waits for a supervisor, which exits when its connection is closed. Kills it if it does not.
fn wait_for(mut child: Child) {
    let until = std::time::Instant::now() + EXIT_TIMEOUT;
    while std::time::Instant::now() < until {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    child.kill().ok(); // it may have exited just now
    child.wait().ok();
}
