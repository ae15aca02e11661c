//! Prepares a forked process and executes a program in it: the payload, or a program that joins later.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::{exec, signal};
use rustix::fs::Mode;

use crate::plan::{Bytes, Event, ExecEvent, ExecSpec, Plan, Stage};
use crate::{Context, Failure, display, selftest};

/// The standard streams of a program that is about to start.
#[derive(Debug)]
pub(crate) enum Streams {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

/// Replaces this process by the payload, the first program of the box. Returns only on failure,
/// with the event for the supervisor.
pub(crate) fn become_program(plan: &Plan, streams: &Streams, program: Option<&OwnedFd>) -> Event {
    let prepared = prepare(streams)
        .and_then(|()| enter(&plan.workdir))
        .and_then(|()| if plan.self_test { selftest::run(plan) } else { Ok(()) });
    match prepared {
        Ok(()) => {
            let error = execute(&plan.argv, &plan.env, program);
            Event::ExecFailed { errno: error.raw_os_error().unwrap_or(0) }
        }
        Err(Failure { stage, what, errno }) => Event::Failed { stage, what, errno },
    }
}

/// Replaces this process by an additional program of a running box. Returns only on failure, with
/// the event for the supervisor.
pub(crate) fn become_exec_program(
    plan: &Plan,
    spec: &ExecSpec,
    streams: &Streams,
    program: Option<&OwnedFd>,
) -> ExecEvent {
    let prepared =
        prepare(streams).and_then(|()| if plan.self_test { selftest::run(plan) } else { Ok(()) });
    if let Err(Failure { what, errno, .. }) = prepared {
        return ExecEvent::Failed { what, errno };
    }
    // An absolute directory must work even if the payload made its own directory inaccessible.
    let own = enter(&plan.workdir);
    let entered = spec.workdir.as_deref().map_or(own, enter);
    if let Err(Failure { errno, .. }) = entered {
        return ExecEvent::NoWorkdir { errno };
    }
    let error = execute(&spec.argv, &spec.env, program);
    ExecEvent::ExecFailed { errno: error.raw_os_error().unwrap_or(0) }
}

/// Starts a session with these streams and resets the umask and signals that init changed.
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
    session().context(Stage::Terminal, || "cannot start a session".to_owned())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    signal::reset().context(Stage::Namespaces, || "cannot reset the signals".to_owned())
}

/// Changes the working directory of this process.
fn enter(directory: &[u8]) -> Result<(), Failure> {
    rustix::process::chdir(directory)
        .context(Stage::Root, || format!("cannot enter {}", display(directory)))
}

/// Executes a program, searching PATH like execvp(3) but without a fallback to a shell. Returns
/// only on failure. `program_fd` is the program if it has no path in the box.
fn execute(argv: &[Bytes], env: &[Bytes], program_fd: Option<&OwnedFd>) -> io::Error {
    let c_strings = |strings: &[Bytes]| -> Result<Vec<CString>, _> {
        strings.iter().map(|string| CString::new(string.clone())).collect()
    };
    let (Ok(argv), Ok(env)) = (c_strings(argv), c_strings(env)) else {
        return io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error());
    };
    if let Some(program) = program_fd {
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
        // A missing file is ignored; another error, such as a file that is not executable, is returned.
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            last = error;
        }
    }
    last
}

impl Streams {
    /// Removes the last three descriptors from the list and returns them as streams.
    pub(crate) fn take_last(descriptors: &mut Vec<OwnedFd>) -> Option<Self> {
        let error = descriptors.pop()?;
        let output = descriptors.pop()?;
        let input = descriptors.pop()?;
        Some(Self::Pipes([input, output, error]))
    }
}

/// Opens the directory `/dev/pts` of the box.
pub(crate) fn open_terminals() -> Result<OwnedFd, Failure> {
    use rustix::fs::OFlags;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/pts", flags, Mode::empty())
        .context(Stage::Terminal, || "cannot open /dev/pts".to_owned())
}

/// Opens a new terminal of the box's `devpts`. Returns its master side and the side for the
/// program.
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
    open().context(Stage::Terminal, || "cannot open a terminal".to_owned())
}
