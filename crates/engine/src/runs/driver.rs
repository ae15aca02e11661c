//! The driver: one process per state directory that carries out all open runs of plans.
//!
//! ```text
//! host ended, timer, request ──▶ decide ──▶ record facts of all runs in one batch ──▶ apply ──▶ commands
//! ```
//! One thread does everything. A command such as the start of a host is carried out only after its fact is
//! on disk. If facts cannot be recorded, the driver drops its state and loads all runs again.
//!
//! **Wake-up.** A client first records its run or writes its request, and then connects to the socket of
//! the driver. If nobody listens, it starts a driver. A driver that has no open run closes its socket
//! before it looks for open runs for the last time, so no run is left without a driver.
//!
//! **Resume.** Open runs are the intents of the ledger without an outcome that have files here. A new
//! driver folds their facts, adopts the hosts that run, takes the results of hosts that ended, and judges
//! lost attempts by the ledger.

mod checks;
mod gates;
mod leases;
mod live;
mod rounds;
mod rows;
mod schedules;
mod tenant;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_ledger::{Event, LedgerPaths, Query, Reader, ReaderError};

pub(super) use self::gates::outcome_of;
use self::rounds::{Driver, Stop};
use super::fence::DriverLock;
use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::notice::Observer;
use crate::record::reading::{newest, read};
use crate::scope::{EngineConfig, Scoped};
use crate::supervisor::{self, protocol::Hello};

/// The name of a driver process. Belljar acts as a driver when `argv[0]` is this name.
pub const ROLE: &str = "belljar-driver";

/// The maximum time that a new driver waits for a driver that is about to exit.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time that a client waits until the driver has carried out an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time that a client waits until the driver notices it.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two attempts to connect to a driver that is about to start.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// The pause after a failure that may be temporary, such as a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Wakes the driver of the state directory, and starts one if none is running.
pub fn wake(state: &Scoped) -> Result<(), EngineError> {
    if is_answered(&state.store().layout().plans()) {
        return Ok(());
    }
    spawn(state).context("cannot start the driver of runs").map_err(|error| {
        let error = EngineError::new(ErrorKind::CannotStart, error);
        error.advise(
            "nothing is lost; `belljar resume` starts a driver, which continues all open runs",
        )
    })
}

/// Wakes the driver and waits until it has done something, or until [`ANSWER_TIMEOUT`].
pub(super) fn wake_until(state: &Scoped, is_done: &dyn Fn() -> bool) -> Result<(), EngineError> {
    let plans = state.store().layout().plans();
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut is_started = false;
    while !is_done() && Instant::now() < deadline {
        if let Ok(mut connection) = supervisor::connect_socket(&plans) {
            // The driver closes the connection at the end of its round.
            connection.set_read_timeout(Some(ANSWER_TIMEOUT)).ok();
            connection.read_exact(&mut [0]).ok(); // it never sends anything
        } else if !is_started {
            wake(state)?;
            is_started = true;
        }
        if !is_done() {
            std::thread::sleep(CONNECT_PAUSE);
        }
    }
    Ok(())
}

/// Wakes the driver that listens in a directory. Returns `false` if there is none, or if it dies first.
///
/// A connection alone is no proof: the kernel also accepts connections for a driver that was killed, as long
/// as a child that it was about to start has a copy of its socket. A driver closes each connection, and the
/// kernel resets the connections that nobody took.
fn is_answered(plans: &Path) -> bool {
    let Ok(mut connection) = supervisor::connect_socket(plans) else { return false };
    connection.set_read_timeout(Some(NOTICE_TIMEOUT)).ok(); // without it, the function only waits longer
    loop {
        match connection.read(&mut [0]) {
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The driver is busy.
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Starts a driver that goes on after this process exits.
fn spawn(state: &Scoped) -> anyhow::Result<()> {
    let plans = state.store().layout().plans();
    DirBuilder::new().recursive(true).mode(0o700).create(&plans)?;
    let log = File::options().create(true).append(true).open(plans.join("driver.log"))?;
    supervisor::spawn_driver(state, ROLE, log)?;
    Ok(())
}

/// Runs this process as a driver until no run is open and no schedule is enabled. Descriptor 0 is a connection with the caller.
pub fn main(host: HostEnv, clock: Clock, observer: Arc<dyn Observer>) -> Result<(), EngineError> {
    // Signals of the client's terminal must not end the driver.
    rustix::process::setsid().ok(); // fails only for a process group leader, which has its own session
    let connection = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    let connection = connection.context("cannot use standard input").kind(ErrorKind::Broken)?;
    let hello: Option<Hello> = supervisor::receive(&UnixStream::from(connection))
        .context("cannot receive the caller of the driver")
        .kind(ErrorKind::Broken)?;
    let nameless = || invalid("the client of the driver names no caller");
    let hello = hello.ok_or_else(nameless)?;
    let config_file = hello.operator_file();
    let caller = hello.caller.ok_or_else(nameless)?;
    let config = EngineConfig { home: host.state_dir()?, config_file, host };
    run(&Scoped::open(config, clock, observer, caller)?)
}

/// Carries out all open runs and fires the slots of schedules. Returns when no run is open and no schedule
/// is enabled, or if another driver does it.
pub fn run(state: &Scoped) -> Result<(), EngineError> {
    let deadline = Instant::now() + HANDOVER_TIMEOUT;
    let (lock, epoch) = loop {
        if let Some(acquired) = DriverLock::acquire(state.store(), last_epoch(state)?)? {
            break acquired;
        }
        // The other driver looks for new runs when it is woken.
        if is_answered(&state.store().layout().plans()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let text = "another driver holds the lock of runs and does not answer";
            return Err(EngineError::message(ErrorKind::Busy, text));
        }
    };
    loop {
        match Driver::open(state, epoch).and_then(Driver::drive) {
            Ok(()) => break,
            Err(Stop::Replaced) => {
                tracing::warn!("another driver recorded facts; this driver exits");
                break;
            }
            Err(Stop::Failed(error)) => {
                state.failed(&anyhow::anyhow!("{error:#}"));
                std::thread::sleep(RETRY_PAUSE);
            }
        }
    }
    drop(lock);
    Ok(())
}

/// Returns the highest recorded number of a driver.
fn last_epoch(state: &Scoped) -> Result<u64, EngineError> {
    // The epoch is also in a file, so a row that is missing in the index does no harm.
    let reader = match Reader::open_uncounted(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => return Ok(0),
        opened => opened.context("cannot read the ledger").kind(ErrorKind::Broken)?,
    };
    let query = Query { kind: Some("driver.opened".to_owned()), ..newest(1) };
    let rows = reader.events(&query).kind(ErrorKind::Broken)?;
    let Some(row) = rows.first() else { return Ok(0) };
    let entry = read(&reader, row)?;
    match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::DriverOpened(opened)) => Ok(opened.epoch),
        _ => Ok(0),
    }
}
