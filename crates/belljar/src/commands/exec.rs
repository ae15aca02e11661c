//! `belljar exec` and `belljar shell`: run another program in a running box, with pipes or a terminal.
//!
//! The supervisor sends the descriptors of the program's streams. The program's output is hostile, so it
//! passes the terminal guard before it reaches a terminal.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use belljar_model::Reason;
use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};
use rustix::termios::Winsize;

use crate::cli::boxes::terminals::{ExecArgs, ShellArgs};
use crate::exit::Outcome;
use crate::scope;
use crate::terminal::{self, Raw};
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::screen::guard::Guard;
use belljar_engine::screen::protocol::Size;
use belljar_engine::supervisor::{
    self,
    protocol::{ExecSpec, FromSupervisor, ToSupervisor},
};

const SIGWINCH: i32 = 28;
/// What is passed on to the program: hang-up, interrupt, quit, both user signals, end.
const SIGNALS: [i32; 7] = [1, 2, 3, 10, 12, 15, SIGWINCH];
/// What ends the input of a program at a terminal.
const END_OF_INPUT: u8 = 4;

/// Starts bash, or sh if the box has no bash. The box can have another root file system than the host, so the
/// choice is made in the box.
const SHELL: [&str; 3] =
    ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"];

pub(crate) fn shell(args: &ShellArgs) -> Outcome {
    run(&ExecArgs {
        name: args.name.clone(),
        workdir: args.workdir.clone(),
        env: args.env.clone(),
        tty: false,
        no_tty: false,
        command: SHELL.map(OsString::from).to_vec(),
    })
}

pub(crate) fn run(args: &ExecArgs) -> Outcome {
    let state = scope::open(None)?;
    let of = NamedBox::find(&state, &args.name)?;
    let is_tty = wants_terminal(args);
    let size = is_tty.then(|| terminal::size(io::stdin()).unwrap_or((24, 80)));
    // Before there are threads, which then leave the signals alone.
    let signals = SignalFd::new(&SIGNALS).context("watch for signals").kind(ErrorKind::Broken)?;
    let request = ToSupervisor::Exec(spec(args, size));
    let (line, answer) = supervisor::call(&state, &of, &request, None)?;
    if !matches!(answer, FromSupervisor::ExecStarted) {
        return Err(gone(args));
    }
    let ends = supervisor::receive_descriptors(&line)
        .context("cannot receive the streams of the program")
        .kind(ErrorKind::Broken)?;
    let ended = match <[OwnedFd; 3]>::try_from(ends) {
        Ok([input, output, error]) => with_pipes(&line, &signals, [input, output, error]),
        Err(mut ends) => match ends.pop() {
            Some(terminal) => at_terminal(&line, &signals, &terminal),
            None => Ok(None),
        },
    };
    match ended.context("pass bytes on").kind(ErrorKind::Broken)? {
        Some((exit, signal)) => Ok(Reason::Exited.exit_code(exit, signal)),
        None => Err(gone(args)),
    }
}

/// The supervisor ended before it reported the end of the program.
fn gone(args: &ExecArgs) -> EngineError {
    let name = &args.name;
    let error = anyhow!("box {name} ended, and the program with it; `belljar status {name}`");
    EngineError::new(ErrorKind::CannotStart, error)
}

fn wants_terminal(args: &ExecArgs) -> bool {
    if args.tty || args.no_tty {
        return args.tty;
    }
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

fn spec(args: &ExecArgs, size: Option<(u16, u16)>) -> ExecSpec {
    let bytes = |word: &OsStr| word.as_bytes().to_vec();
    let mut env: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    if size.is_some() {
        let term = std::env::var_os("TERM").unwrap_or_else(|| "xterm".into());
        env.push((b"TERM".to_vec(), bytes(&term)));
    }
    for variable in &args.env {
        let value = match variable.value() {
            Some(value) => Some(OsString::from(value)),
            None => std::env::var_os(variable.name()),
        };
        env.retain(|(name, _)| name != variable.name().as_bytes());
        env.extend(value.map(|value| (variable.name().as_bytes().to_vec(), bytes(&value))));
    }
    ExecSpec {
        argv: args.command.iter().map(|word| bytes(word)).collect(),
        env,
        workdir: args.workdir.as_ref().map(|path| bytes(path.as_os_str())),
        terminal: size.map(|(rows, columns)| Size { rows, columns }),
    }
}

/// How a program ended: what it returned, and what killed it. None: nobody knows.
type Ended = Option<(Option<i32>, Option<i32>)>;

fn with_pipes(
    line: &UnixStream,
    signals: &SignalFd,
    [input, output, error]: [OwnedFd; 3],
) -> io::Result<Ended> {
    let (over, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::spawn(move || feed(input, None));
    let out = pass_on(output, io::stdout(), over.try_clone()?);
    let err = pass_on(error, io::stderr(), over);
    let ended = wait(line, signals, None)?;
    drop(tell);
    copied(out)?;
    copied(err)?;
    Ok(ended)
}

fn at_terminal(line: &UnixStream, signals: &SignalFd, master: &OwnedFd) -> io::Result<Ended> {
    let own = io::stdin();
    let raw = own.is_terminal().then(|| Raw::enter(own.as_fd())).transpose()?;
    let (over, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let typed = master.try_clone()?;
    std::thread::spawn(move || feed(typed, Some(END_OF_INPUT)));
    let out = pass_on(master.try_clone()?, io::stdout(), over);
    let ended = wait(line, signals, Some(master))?;
    drop(tell);
    copied(out)?;
    drop(raw);
    Ok(ended)
}

fn copied(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().map_err(|_| io::ErrorKind::Other)?
}

/// Copies our input to the program until one of them ends.
fn feed(to: OwnedFd, last: Option<u8>) {
    let mut to = File::from(to);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::stdin().lock().read(&mut buffer) {
            Ok(0) => {
                last.map(|byte| to.write_all(&[byte])); // or nobody reads any more
                return;
            }
            Ok(read) if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Copies what the program writes, on a thread: to its end, or once the program is over to what is there.
/// Somebody whom it left behind may hold the other end.
fn pass_on<W>(from: OwnedFd, mut to: W, over: OwnedFd) -> JoinHandle<io::Result<()>>
where
    W: io::Write + io::IsTerminal + Send + 'static,
{
    std::thread::spawn(move || {
        let mut guard = to.is_terminal().then(Guard::default);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mut polled = [PollFd::new(&from, PollFlags::IN), PollFd::new(&over, PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [ready, ended] = polled.map(|it| !it.revents().is_empty());
            if !ready {
                if ended {
                    return Ok(());
                }
                continue;
            }
            let read = match rustix::io::read(&from, &mut buffer) {
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(()), // a terminal says it this way
                Ok(read) => read,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            let chunk = buffer.get(..read).unwrap_or_default();
            let mut kept = Vec::new();
            let chunk = match &mut guard {
                Some(guard) => {
                    guard.pass(chunk, &mut kept);
                    &kept
                }
                None => chunk,
            };
            match to.write_all(chunk).and_then(|()| to.flush()) {
                // Closing our end tells the program, as a pipe would.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
    })
}

/// Waits for the end of the program, and passes signals and sizes on.
fn wait(line: &UnixStream, signals: &SignalFd, master: Option<&OwnedFd>) -> io::Result<Ended> {
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [_, said] = polled.map(|it| !it.revents().is_empty());
        while let Some(signal) = signals.read()? {
            match (signal, master) {
                (SIGWINCH, Some(master)) => resize(master),
                (SIGWINCH, None) => {}
                _ => supervisor::send(line, &ToSupervisor::Signal(signal))?,
            }
        }
        if said {
            return match supervisor::receive(line) {
                Ok(Some(FromSupervisor::ExecEnded { exit, signal })) => Ok(Some((exit, signal))),
                Ok(_) | Err(_) => Ok(None),
            };
        }
    }
}

fn resize(master: &OwnedFd) {
    if let Some((ws_row, ws_col)) = terminal::size(io::stdin()) {
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(master, size).ok(); // the program may be gone
    }
}
