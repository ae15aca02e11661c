//! Acts outside a box that put another program into a bad position: with descriptors that it did not
//! ask for, as another user, on a terminal.

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

use crate::acts::{Act, Words};
use crate::answer::{Answer, Stop};

pub(crate) const ACTS: &[Act] = &[
    Act {
        name: "with-descriptors",
        takes: "DIRECTORY FILE PROGRAM [ARG…] (3 to 64 are open on them and on sockets)",
        run: with_descriptors,
    },
    Act { name: "as", takes: "UID PROGRAM [ARG…]", run: as_user },
    Act { name: "on-terminal", takes: "PROGRAM [ARG…]", run: on_terminal },
];

#[expect(clippy::disallowed_methods, reason = "starts what its caller named")]
fn become_program(words: &[String]) -> Stop {
    match words.split_first() {
        Some((program, args)) => Command::new(program).args(args).exec().into(),
        None => Stop::Usage("… PROGRAM is missing".to_owned()),
    }
}

/// Leaves the descriptors open over exec, as a careless shell or supervisor does.
fn with_descriptors(words: &Words<'_>) -> Answer {
    // Never closed: the next program is to find them.
    while open_another(words)?.into_raw_fd() < 64 {}
    Err(become_program(words.from(2)))
}

/// A directory, a file and a socket in turn; without `CLOEXEC`.
fn open_another(words: &Words<'_>) -> Result<OwnedFd, Stop> {
    let next_number = File::open("/")?.as_raw_fd();
    Ok(match next_number % 3 {
        0 => rustix::fs::open(words.text(0)?, OFlags::RDONLY, Mode::empty())?,
        1 => rustix::fs::open(words.text(1)?, OFlags::RDONLY, Mode::empty())?,
        _ => rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?,
    })
}

fn as_user(words: &Words<'_>) -> Answer {
    let id: u32 = words.number(0)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_gid(Gid::from_raw(id))?;
    rustix::thread::set_thread_uid(Uid::from_raw(id))?;
    Err(become_program(words.from(1)))
}

/// Runs the program as the leader of a session on a new terminal and passes on what it prints there.
fn on_terminal(words: &Words<'_>) -> Answer {
    let master =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let child = fork_and_run(|| {
        let stop = match take_terminal(&name) {
            Ok(()) => become_program(words.from(0)),
            Err(error) => error.into(),
        };
        writeln!(io::stdout(), "{stop}").map_or(3, |()| 2)
    })?;
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    let mut master = File::from(master);
    // When the last holder of the other side goes, reading ends with EIO.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        shown.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    io::stdout().write_all(&shown)?;
    let status = waitpid(Pid::from_raw(child), WaitOptions::empty())?;
    let code = status.and_then(|(_, status)| status.exit_status()).unwrap_or(1);
    Err(Stop::Told(u8::try_from(code).unwrap_or(1)))
}

fn take_terminal(name: &std::ffi::CStr) -> io::Result<()> {
    rustix::process::setsid()?;
    let terminal = rustix::fs::open(name, OFlags::RDWR, Mode::empty())?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    rustix::stdio::dup2_stdin(terminal.as_fd())?;
    rustix::stdio::dup2_stdout(terminal.as_fd())?;
    rustix::stdio::dup2_stderr(terminal.as_fd())?;
    Ok(())
}
