//! The payload's process between fork and exec.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::{exec, signal};
use rustix::fs::Mode;

use crate::plan::{Bytes, Event, Guest, Plan, Stage, Word};
use crate::{During, Failure, selftest, show};

/// What the payload's 0, 1 and 2 will be.
#[derive(Debug)]
pub(crate) enum Streams {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

/// Becomes the program, or returns what to tell the supervisor.
pub(crate) fn become_program(plan: &Plan, streams: &Streams, carried: Option<&OwnedFd>) -> Event {
    let prepared = prepare(streams)
        .and_then(|()| enter(&plan.workdir))
        .and_then(|()| if plan.self_test { selftest::sealed(plan) } else { Ok(()) });
    match prepared {
        Ok(()) => {
            let error = execute(&plan.argv, &plan.env, carried);
            Event::ExecFailed { errno: error.raw_os_error().unwrap_or(0) }
        }
        Err(Failure { stage, what, errno }) => Event::Failed { stage, what, errno },
    }
}

/// The same for a program that joins later.
pub(crate) fn become_guest(plan: &Plan, guest: &Guest, streams: &Streams) -> Word {
    let prepared = prepare(streams)
        .and_then(|()| if plan.self_test { selftest::sealed(plan) } else { Ok(()) });
    if let Err(Failure { what, errno, .. }) = prepared {
        return Word::Failed { what, errno };
    }
    // The first program may have made its own directory impossible to enter.
    let own = enter(&plan.workdir);
    let entered = guest.workdir.as_deref().map_or(own, enter);
    if let Err(Failure { errno, .. }) = entered {
        return Word::NoWorkdir { errno };
    }
    let error = execute(&guest.argv, &guest.env, None);
    Word::ExecFailed { errno: error.raw_os_error().unwrap_or(0) }
}

/// A session of its own, with these streams and nothing that init has changed for itself.
fn prepare(streams: &Streams) -> Result<(), Failure> {
    let session = || -> io::Result<()> {
        rustix::process::setsid()?;
        let [input, output, error] = match streams {
            Streams::Pipes([input, output, error]) => [input, output, error],
            Streams::Terminal(terminal) => {
                rustix::process::ioctl_tiocsctty(terminal)?;
                [terminal; 3]
            }
        };
        rustix::stdio::dup2_stdin(input)?;
        rustix::stdio::dup2_stdout(output)?;
        rustix::stdio::dup2_stderr(error)?;
        Ok(())
    };
    session().during(Stage::Terminal, || "start a session".to_owned())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    signal::reset().during(Stage::Namespaces, || "reset the signals".to_owned())
}

fn enter(directory: &[u8]) -> Result<(), Failure> {
    rustix::process::chdir(directory).during(Stage::Root, || format!("enter {}", show(directory)))
}

/// Looks for the program in PATH, as execvp(3), but never hands a file to a shell.
fn execute(argv: &[Bytes], env: &[Bytes], carried: Option<&OwnedFd>) -> io::Error {
    let c_strings = |strings: &[Bytes]| -> Result<Vec<CString>, _> {
        strings.iter().map(|string| CString::new(string.clone())).collect()
    };
    let (Ok(argv), Ok(env)) = (c_strings(argv), c_strings(env)) else {
        return io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error());
    };
    if let Some(program) = carried {
        return exec::execve_fd(program.as_fd(), &argv, &env);
    }
    let Some(program) = argv.first() else {
        return io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
    };
    let name = program.as_bytes();
    if name.is_empty() {
        return io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
    }
    if name.contains(&b'/') {
        return exec::execve(program, &argv, &env);
    }
    let path = env.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    let mut last = io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
    for dir in path.unwrap_or_default().split(|byte| *byte == b':').filter(|dir| !dir.is_empty()) {
        let Ok(candidate) = CString::new([dir, b"/", name].concat()) else { continue };
        let error = exec::execve(&candidate, &argv, &env);
        // "Not here" goes on to the next directory; "here, but not executable" is remembered.
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            last = error;
        }
    }
    last
}

impl Streams {
    /// From the last three descriptors of the plan.
    pub(crate) fn from_plan(trees: &mut Vec<OwnedFd>) -> Option<Self> {
        let error = trees.pop()?;
        let output = trees.pop()?;
        let input = trees.pop()?;
        Some(Self::Pipes([input, output, error]))
    }
}

/// Where the box's own terminals are.
pub(crate) fn terminals() -> Result<OwnedFd, Failure> {
    use rustix::fs::OFlags;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/pts", flags, Mode::empty())
        .during(Stage::Terminal, || "find the terminals".to_owned())
}

/// Opens a terminal of the box's own `devpts`: the supervisor's side and the payload's.
pub(crate) fn open_terminal(
    terminals: &OwnedFd,
    rows: u16,
    columns: u16,
) -> Result<(OwnedFd, OwnedFd), Failure> {
    use rustix::pty::OpenptFlags;
    let open = || -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::fs::openat(
            terminals,
            "ptmx",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::pty::unlockpt(&master)?;
        let terminal = rustix::pty::ioctl_tiocgptpeer(master.as_fd(), flags)?;
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&terminal, size)?;
        Ok((master, terminal))
    };
    open().during(Stage::Terminal, || "open a terminal".to_owned())
}
