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

use anyhow::Context as _;
use belljar_model::Reason;
use belljar_model::boxes::BoxName;
use belljar_model::plan::Executor;
use belljar_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags};
use rustix::termios::Winsize;

use crate::cli::boxes::terminals::{BoxTarget, ExecArgs, ShellArgs};
use crate::cli::runs::TaskTarget;
use crate::exit::Outcome;
use crate::scope;
use crate::terminal::{self, RawMode};
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::{agent_work, control, host, view};
use belljar_engine::scope::Scoped;
use belljar_engine::screen::guard::Guard;
use belljar_engine::screen::protocol::Size;
use belljar_engine::supervisor::{
    self,
    protocol::{ExecSpec, FromSupervisor, ToSupervisor},
};

const SIGWINCH: i32 = 28;
/// The signals that are forwarded to the program: HUP, INT, QUIT, USR1, USR2, TERM and WINCH.
const FORWARDED_SIGNALS: [i32; 7] = [1, 2, 3, 10, 12, 15, SIGWINCH];
/// The control character (Ctrl-D) that means end of input on a terminal.
const END_OF_INPUT: u8 = 4;

/// The command of `belljar shell`, which starts bash, or sh if the box has no bash.
///
/// The choice is made inside the box, because the box can have another root file system than the host.
const SHELL: [&str; 3] =
    ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"];

/// Runs `belljar shell`.
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

/// Runs `belljar exec`.
pub(crate) fn run(args: &ExecArgs) -> Outcome {
    let state = scope::open(None)?;
    let is_tty = wants_terminal(args);
    let size = is_tty.then(|| terminal::size(io::stdin()).unwrap_or((24, 80)));
    let spec = spec(args, size);
    let connection = match &args.name {
        BoxTarget::Box(name) => start_in_box(&state, name, spec)?,
        BoxTarget::Task(target) => start_in_task(&state, target, spec)?,
    };
    // Until the program has started, a signal ends this command: the supervisor can be unable to answer.
    // Signals are blocked before threads are started, so that all threads inherit the block.
    let signals = SignalFd::new(&FORWARDED_SIGNALS)
        .context("cannot watch for signals")
        .kind(ErrorKind::Broken)?;
    let descriptors = supervisor::receive_descriptors(&connection)
        .context("cannot receive the streams of the program")
        .kind(ErrorKind::Broken)?;
    let ended = match <[OwnedFd; 3]>::try_from(descriptors) {
        Ok([input, output, error]) => run_with_pipes(&connection, &signals, [input, output, error]),
        Err(mut descriptors) => match descriptors.pop() {
            Some(terminal) => run_with_terminal(&connection, &signals, &terminal),
            None => Ok(None),
        },
    };
    match ended.context("cannot copy the input or output of the program").kind(ErrorKind::Broken)? {
        Some((exit, signal)) => Ok(Reason::Exited.exit_code(exit, signal)),
        None => Err(box_stopped(&args.name)),
    }
}

/// Starts the program in a named box, and returns the connection to its supervisor.
fn start_in_box(state: &Scoped, name: &BoxName, spec: ExecSpec) -> Result<UnixStream, EngineError> {
    let named_box = NamedBox::find(state, name)?;
    let request = ToSupervisor::Exec(spec);
    match supervisor::call(state, &named_box, &request, None)? {
        (connection, FromSupervisor::ExecStarted) => Ok(connection),
        _ => Err(box_stopped(&BoxTarget::Box(name.clone()))),
    }
}

/// Starts the program in the box of a running agent task, and returns the connection to its supervisor.
fn start_in_task(
    state: &Scoped,
    target: &TaskTarget,
    spec: ExecSpec,
) -> Result<UnixStream, EngineError> {
    let TaskTarget { run, task: of } = target;
    let run = view::find(state, run)?;
    let view = view::run(state, run)?;
    let task = view.task(of).ok_or_else(|| control::no_task(run, of))?;
    let executor = view.plan.task(&of.task).map(|task| &task.executor);
    if !matches!(executor, Some(Executor::Agent { .. })) {
        let text = format!(
            "task {of} of run {run} starts no additional programs, because no agent does it"
        );
        let error = EngineError::message(ErrorKind::Invalid, text);
        return Err(error.advise(format!("`belljar logs {run}/{of}` shows what it writes")));
    }
    let started = match agent_work::running_box(state, task) {
        Some(box_run) => host::exec(state, box_run, spec)?,
        None => None,
    };
    started.ok_or_else(|| {
        let status = task.status.name();
        let text = format!("task {of} of run {run} is not running; its state is {status}");
        let error = EngineError::message(ErrorKind::WrongState, text);
        error.advise(format!("`belljar runs show {run}/{of}` shows its result"))
    })
}

/// Returns the error for a box whose supervisor exited before it reported the end of the program.
fn box_stopped(target: &BoxTarget) -> EngineError {
    let text = match target {
        BoxTarget::Box(name) => format!(
            "box {name} stopped while the program was running; `belljar status {name}` shows the reason"
        ),
        BoxTarget::Task(TaskTarget { run, task }) => format!(
            "the box of {run}/{task} stopped while the program was running; `belljar runs show {run}/{task}` shows its result"
        ),
    };
    EngineError::message(ErrorKind::CannotStart, text)
}

/// Returns whether the program gets a terminal: as the options say, else if input and output are terminals.
fn wants_terminal(args: &ExecArgs) -> bool {
    if args.tty || args.no_tty {
        return args.tty;
    }
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Returns the request for the supervisor; `size` is the size of the terminal, if there is one.
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

/// The exit status and the fatal signal of a program, or `None` if the supervisor did not report them.
type ExecEnd = Option<(Option<i32>, Option<i32>)>;

/// Copies standard input, output and error through pipes until the program ends.
fn run_with_pipes(
    connection: &UnixStream,
    signals: &SignalFd,
    [input, output, error]: [OwnedFd; 3],
) -> io::Result<ExecEnd> {
    let (program_ended, ended_writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::spawn(move || copy_input(input, None));
    let out = spawn_output_copy(output, io::stdout(), program_ended.try_clone()?);
    let err = spawn_output_copy(error, io::stderr(), program_ended);
    let ended = wait(connection, signals, None)?;
    drop(ended_writer);
    join_copy(out)?;
    join_copy(err)?;
    Ok(ended)
}

/// Connects this terminal to the terminal of the program until the program ends.
fn run_with_terminal(
    connection: &UnixStream,
    signals: &SignalFd,
    master: &OwnedFd,
) -> io::Result<ExecEnd> {
    let own = io::stdin();
    let raw = own.is_terminal().then(|| RawMode::enter(own.as_fd())).transpose()?;
    let (program_ended, ended_writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let terminal_input = master.try_clone()?;
    std::thread::spawn(move || copy_input(terminal_input, Some(END_OF_INPUT)));
    let out = spawn_output_copy(master.try_clone()?, io::stdout(), program_ended);
    let ended = wait(connection, signals, Some(master))?;
    drop(ended_writer);
    join_copy(out)?;
    drop(raw);
    Ok(ended)
}

/// Waits for a copying thread and returns its result.
fn join_copy(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().map_err(|_| io::ErrorKind::Other)?
}

/// Copies standard input to the program until the input ends or the program stops reading.
///
/// At the end of the input, the byte `last` is sent.
fn copy_input(to: OwnedFd, last: Option<u8>) {
    let mut to = File::from(to);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::stdin().lock().read(&mut buffer) {
            Ok(0) => {
                last.map(|byte| to.write_all(&[byte])); // fails if the program reads no more
                return;
            }
            Ok(read) if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Starts a thread that copies the output of the program from `from` to `to`.
///
/// The thread ends at the end of the output. After the program has ended, which `program_ended` signals,
/// the thread ends when all available output is copied: a background process that the program left
/// behind can keep the output open.
fn spawn_output_copy<W>(
    from: OwnedFd,
    mut to: W,
    program_ended: OwnedFd,
) -> JoinHandle<io::Result<()>>
where
    W: io::Write + io::IsTerminal + Send + 'static,
{
    std::thread::spawn(move || {
        let mut guard = to.is_terminal().then(Guard::default);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mut polled =
                [PollFd::new(&from, PollFlags::IN), PollFd::new(&program_ended, PollFlags::IN)];
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
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(()), // EIO: end of a terminal
                Ok(read) => read,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            let chunk = buffer.get(..read).unwrap_or_default();
            let mut filtered = Vec::new();
            let chunk = match &mut guard {
                Some(guard) => {
                    guard.pass(chunk, &mut filtered);
                    &filtered
                }
                None => chunk,
            };
            match to.write_all(chunk).and_then(|()| to.flush()) {
                // Closing this end makes the program receive SIGPIPE, as a pipe would.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
    })
}

/// Waits until the program ends; forwards signals and terminal sizes in the meantime.
fn wait(
    connection: &UnixStream,
    signals: &SignalFd,
    master: Option<&OwnedFd>,
) -> io::Result<ExecEnd> {
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [_, has_message] = polled.map(|it| !it.revents().is_empty());
        while let Some(signal) = signals.read()? {
            match (signal, master) {
                (SIGWINCH, Some(master)) => resize(master),
                (SIGWINCH, None) => {}
                _ => supervisor::send(connection, &ToSupervisor::Signal(signal))?,
            }
        }
        if has_message {
            return match supervisor::receive(connection) {
                Ok(Some(FromSupervisor::ExecEnded { exit, signal })) => Ok(Some((exit, signal))),
                Ok(_) | Err(_) => Ok(None),
            };
        }
    }
}

/// Sets the terminal of the program to the size of this terminal.
fn resize(master: &OwnedFd) {
    if let Some((ws_row, ws_col)) = terminal::size(io::stdin()) {
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(master, size).ok(); // fails if the program has ended
    }
}
