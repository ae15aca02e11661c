//! Acts that start another program outside a box in a hostile environment: with extra descriptors, as
//! another user, or on a terminal.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use belljar_sys::probe::fork_and_run;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Gid, Pid, Uid, WaitOptions, waitpid};
use rustix::pty::OpenptFlags;

use crate::acts::{Act, Params};
use crate::result::{ActError, ActResult};

pub(crate) const ACTS: &[Act] = &[
    Act {
        name: "with-descriptors",
        takes: "DIRECTORY FILE PROGRAM [ARG…] (opens descriptors 3 to 64)",
        run: with_descriptors,
    },
    Act { name: "as", takes: "UID PROGRAM [ARG…]", run: as_user },
    Act { name: "on-terminal", takes: "PROGRAM [ARG…]", run: on_terminal },
];

#[expect(clippy::disallowed_methods, reason = "starts the program in the arguments")]
/// Executes a program. Returns only on failure.
fn become_program(params: &[String]) -> ActError {
    match params.split_first() {
        Some((program, args)) => Command::new(program).args(args).exec().into(),
        None => ActError::Usage("… PROGRAM is missing".to_owned()),
    }
}

/// Starts a program with additional open descriptors, as a careless shell or supervisor does.
fn with_descriptors(params: &Params<'_>) -> ActResult {
    // The descriptors are never closed, so that the next program inherits them.
    while open_next(params)?.into_raw_fd() < 64 {}
    Err(become_program(params.rest(2)))
}

/// Opens a directory, a file or a socket in turn, without `CLOEXEC`.
fn open_next(params: &Params<'_>) -> Result<OwnedFd, ActError> {
    let next_number = File::open("/")?.as_raw_fd();
    Ok(match next_number % 3 {
        0 => rustix::fs::open(params.text(0)?, OFlags::RDONLY, Mode::empty())?,
        1 => rustix::fs::open(params.text(1)?, OFlags::RDONLY, Mode::empty())?,
        _ => rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?,
    })
}

/// Starts a program with another user id and group id.
fn as_user(params: &Params<'_>) -> ActResult {
    let id: u32 = params.number(0)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_gid(Gid::from_raw(id))?;
    rustix::thread::set_thread_uid(Uid::from_raw(id))?;
    Err(become_program(params.rest(1)))
}

/// Runs a program as session leader on a new terminal and prints its output.
fn on_terminal(params: &Params<'_>) -> ActResult {
    let master =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let child = fork_and_run(|| {
        let error = match take_terminal(&name) {
            Ok(()) => become_program(params.rest(0)),
            Err(error) => error.into(),
        };
        writeln!(io::stdout(), "{error}").map_or(3, |()| 2)
    })?;
    let mut output = Vec::new();
    let mut piece = [0; 4096];
    let mut master = File::from(master);
    // When the last process closes the other side, a read fails with EIO.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        output.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    io::stdout().write_all(&output)?;
    let status = waitpid(Pid::from_raw(child), WaitOptions::empty())?;
    let code = status.and_then(|(_, status)| status.exit_status()).unwrap_or(1);
    Err(ActError::AlreadyPrinted(u8::try_from(code).unwrap_or(1)))
}

/// Makes a terminal the controlling terminal and the standard streams of this process.
fn take_terminal(name: &std::ffi::CStr) -> io::Result<()> {
    rustix::process::setsid()?;
    let terminal = rustix::fs::open(name, OFlags::RDWR, Mode::empty())?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    rustix::stdio::dup2_stdin(terminal.as_fd())?;
    rustix::stdio::dup2_stdout(terminal.as_fd())?;
    rustix::stdio::dup2_stderr(terminal.as_fd())?;
    Ok(())
}
