//! The server `belljar serve` in the state directory: its lock, its local socket and its events in the ledger.
//!
//! **Invariant:** at most one server uses a state directory. The server holds the lock until it exits, and
//! only the holder of the lock creates the socket.

pub mod webhooks;
pub mod witness;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::Context as _;
use belljar_ledger::{AccessChanged, AccessDenied};
use belljar_model::caller::TenantId;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;
use crate::store::{durable, lock};
use crate::supervisor;

/// The maximum length of the address in the lock file, in bytes.
const MAX_ADDRESS: u64 = 256;

/// The lock of the server. Dropping the value releases it.
#[derive(Debug)]
#[must_use]
pub struct ServerLock {
    file: File,
}

impl ServerLock {
    /// Takes the lock of the server. If another server holds it, the error names that server.
    pub fn acquire(state: &Scoped) -> Result<Self, EngineError> {
        let layout = state.store().layout();
        let open = || -> io::Result<File> {
            DirBuilder::new().recursive(true).mode(0o700).create(layout.server())?;
            let mut options = File::options();
            options.create(true).truncate(false).read(true).write(true).open(layout.server_lock())
        };
        let file = open().context("cannot open the lock of the server").kind(ErrorKind::Broken)?;
        if !lock::try_acquire(&file, lock::PROBE_TIMEOUT) {
            let address = read_address(&file).map(|it| format!(" at {it}")).unwrap_or_default();
            let home = layout.home().display();
            let text = format!("another server{address} uses the state directory {home}");
            let error = EngineError::message(ErrorKind::WrongState, text);
            return Err(error.advise("stop that server, or set BELLJAR_HOME to another directory"));
        }
        let mut lock = Self { file };
        lock.announce("")?; // of an earlier server
        Ok(lock)
    }

    /// Writes the address of the server to the lock file, for the error of a second server.
    pub fn announce(&mut self, address: &str) -> Result<(), EngineError> {
        let mut write = || -> io::Result<()> {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(address.as_bytes())
        };
        write().context("cannot write the lock file of the server").kind(ErrorKind::Broken)
    }

    /// Creates the local socket of the server. Only the user of the server can connect to it.
    pub fn bind_socket(&self, state: &Scoped) -> Result<UnixListener, EngineError> {
        let dir = state.store().layout().server();
        let bind = || -> io::Result<UnixListener> {
            let listener = supervisor::bind_socket(&dir)?;
            fs::set_permissions(dir.join("socket"), Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let bound = bind().with_context(|| format!("cannot create a socket in {}", dir.display()));
        bound.kind(ErrorKind::Broken)
    }
}

/// Reads the address that the running server wrote. `None` if it wrote none yet.
fn read_address(file: &File) -> Option<String> {
    let mut text = String::new();
    file.take(MAX_ADDRESS).read_to_string(&mut text).ok()?;
    Some(text).filter(|text| !text.is_empty())
}

/// Connects to the local socket of the running server.
pub fn connect(state: &Scoped) -> Result<UnixStream, EngineError> {
    let dir = state.store().layout().server();
    supervisor::connect_socket(&dir).map_err(|_| {
        let text = format!("no server uses the state directory {}", state.home().display());
        EngineError::message(ErrorKind::WrongState, text).advise("start one with `belljar serve`")
    })
}

/// Returns the user of the process at the other end of a TCP connection of this machine. `None` if the
/// connection does not exist.
pub fn client_user(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    belljar_sys::net::tcp_socket_user(client, server)
}

/// Checks that the state directory and the ledger can be written.
pub fn check_writable(state: &Scoped) -> Result<(), EngineError> {
    /// The content of the written file. It needs a block of the disk, which an empty file does not.
    const BLOCK: [u8; 4096] = [b'.'; 4096];
    durable::write(&state.store().layout().server(), "ready", &BLOCK)
        .context("cannot write to the state directory")
        .kind(ErrorKind::Broken)?;
    record::open(state).map(drop).kind(ErrorKind::Unrecorded)
}

/// A change of the access to the server that is about to happen.
#[derive(Debug)]
pub struct AccessChange<'a> {
    pub act: &'a str,
    pub subject: &'a str,
    /// The tenant that the changed object belongs to.
    pub tenant: &'a TenantId,
    /// The address of the client.
    pub from: &'a str,
    pub details: &'a [String],
}

/// Records a change of the access to the server, made by the caller of the scope.
pub fn record_access_change(state: &Scoped, change: &AccessChange<'_>) -> Result<(), EngineError> {
    let event = AccessChanged {
        act: change.act.to_owned(),
        subject: change.subject.to_owned(),
        tenant: change.tenant.to_string(),
        by: state.caller().principal.to_string(),
        from: change.from.to_owned(),
        details: change.details.to_vec(),
    };
    record::fact(state, event)
}

/// A request that the server denied.
#[derive(Debug)]
pub struct AccessDenial<'a> {
    pub method: &'a str,
    /// The pattern of the path.
    pub route: &'a str,
    pub reason: &'a str,
    /// The address of the client.
    pub from: &'a str,
}

/// Records that the server denied a request of the caller of the scope.
pub fn record_access_denial(state: &Scoped, denial: &AccessDenial<'_>) -> Result<(), EngineError> {
    let event = AccessDenied {
        method: denial.method.to_owned(),
        route: denial.route.to_owned(),
        reason: denial.reason.to_owned(),
        by: state.caller().principal.to_string(),
        from: denial.from.to_owned(),
    };
    record::fact(state, event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;

    #[test]
    fn second_server_is_refused_with_the_address_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let mut first = ServerLock::acquire(&state).unwrap();
        first.announce("http://127.0.0.1:7070").unwrap();
        let error = ServerLock::acquire(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongState);
        let text = format!("{error:#}");
        assert!(
            text.contains("at http://127.0.0.1:7070") && text.contains("BELLJAR_HOME"),
            "{text}"
        );
        drop(first);
        drop(ServerLock::acquire(&state).unwrap());
    }

    #[test]
    fn local_socket_belongs_to_the_user_and_replaces_the_socket_of_a_killed_server() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let error = connect(&state).unwrap_err();
        assert!(format!("{error:#}").contains("belljar serve"), "{error:#}");
        for _ in 0..2 {
            let lock = ServerLock::acquire(&state).unwrap();
            let listener = lock.bind_socket(&state).unwrap();
            drop(connect(&state).unwrap());
            drop(listener.accept().unwrap());
        }
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(dir.path().join("server/socket")), 0o600);
        assert_eq!(mode(dir.path().join("server")), 0o700);
    }

    #[test]
    fn check_writable_fails_if_the_ledger_cannot_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let lock = ServerLock::acquire(&state).unwrap();
        check_writable(&state).unwrap();
        drop(lock);
        let other = tempfile::tempdir().unwrap();
        let state = of_test(other.path());
        let _lock = ServerLock::acquire(&state).unwrap();
        fs::write(other.path().join("ledger"), "a file instead of a directory").unwrap();
        assert_eq!(check_writable(&state).unwrap_err().kind(), ErrorKind::Unrecorded);
    }
}
