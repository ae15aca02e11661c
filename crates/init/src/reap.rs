//! The main loop of PID 1: build the box, wait for `Go`, start the payload, reap until the payload ends.
//!
//! ```text
//! Build ──▶ Built ──Go──▶ Started ──▶ everything else is killed ──▶ Ended
//!   └─────────┴─────────────┴──▶ Failed / ExecFailed
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use belljar_sys::clone::CONTROL_FD;
use belljar_sys::process::{self, Ended, Fork, Usage};
use belljar_sys::signal::{SIGCHLD, SignalFd};
use belljar_sys::time::timespec;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};

use crate::exec_processes::{self, ExecProcesses};
use crate::payload::{self, Streams};
use crate::plan::{Event, InitCommand, Plan, Spent, Stage, Stdio};
use crate::{Context, Failure, build, lockdown, net, wire};

/// Runs as PID 1 of a box, with the control socket as descriptor 3. Returns when the payload has ended.
pub fn run() -> ExitCode {
    let Ok(control) = belljar_sys::exec::adopt(CONTROL_FD) else { return ExitCode::from(2) };
    match serve(control.as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { stage, what, errno }) => {
            // If sending fails, the supervisor sees the end of the socket.
            wire::send(control.as_fd(), &Event::Failed { stage, what, errno }, &[]).ok();
            ExitCode::FAILURE
        }
    }
}

/// Runs one box: carries out the commands of the supervisor from the plan to the end of the
/// payload.
fn serve(control: BorrowedFd<'_>) -> Result<(), Failure> {
    let protocol = || "cannot exchange messages with the supervisor".to_owned();
    let received = wire::receive(control, wire::MAX_MESSAGE).context(Stage::Protocol, protocol)?;
    let Some((InitCommand::Build(plan), mut trees)) = received else { return Ok(()) };
    let exec_channel = plan.has_exec_channel.then(|| trees.pop()).flatten();
    let program_fd = plan.has_program_fd.then(|| trees.pop()).flatten();
    let (streams, master) = build_box(&plan, control, &mut trees)?;
    drop(trees);
    let mut execs = ExecProcesses::new(&plan, exec_channel, payload::open_terminals()?);
    // From now on no process of the box can trace init or read its memory, even with the same uid.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context(Stage::Namespaces, || "cannot make init undumpable".to_owned())?;
    let abi = lockdown::lock(&plan)?;
    let with: Vec<BorrowedFd<'_>> = master.iter().map(AsFd::as_fd).collect();
    wire::send(control, &Event::Built { landlock_abi: abi }, &with)
        .context(Stage::Protocol, protocol)?;
    drop(with);
    drop(master);
    let received =
        wire::receive(control, wire::MAX_SMALL_MESSAGE).context(Stage::Protocol, protocol)?;
    let Some((InitCommand::Go, _)) = received else { return Ok(()) };
    let signals = SignalFd::new(&[SIGCHLD])
        .context(Stage::Namespaces, || "cannot watch for ended children".to_owned())?;
    let child = match start(&plan, streams, program_fd.as_ref())? {
        Ok(child) => child,
        Err(event) => {
            return wire::send(control, &event, &[]).context(Stage::Protocol, protocol);
        }
    };
    wire::send(control, &Event::Started, &[]).context(Stage::Protocol, protocol)?;
    let ended = reap(control, &signals, child, &mut execs).context(Stage::Protocol, protocol)?;
    let (exit, signal) = match ended {
        Some(Ended::Exited(code)) => (Some(code), None),
        Some(Ended::Signaled(signal)) => (None, Some(signal)),
        None => return Ok(()),
    };
    let spent = kill_all().ok();
    wire::send(control, &Event::Ended { exit, signal, spent }, &[])
        .context(Stage::Protocol, protocol)
}

/// Kills all other processes of the box and returns their resource usage. The kernel removes mounts and
/// network after init exits; this is slow, but the supervisor need not wait for it.
fn kill_all() -> io::Result<Spent> {
    exec_processes::signal_all(Signal::KILL);
    loop {
        match process::wait(-1, true) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::CHILD) => break,
            Err(error) => return Err(error),
        }
    }
    let Usage { user, system, max_rss_bytes } = process::usage()?;
    Ok(Spent { user, system, max_rss_bytes })
}

/// Builds the network, the root and the streams of the box, while init still has the privileges for
/// it. Returns the streams of the payload and the master side of its terminal.
fn build_box(
    plan: &Plan,
    control: BorrowedFd<'_>,
    trees: &mut Vec<OwnedFd>,
) -> Result<(Streams, Option<OwnedFd>), Failure> {
    for tasks in trees.drain(..plan.cgroup_files.min(trees.len())) {
        rustix::io::write(&tasks, b"0")
            .context(Stage::Cgroup, || "cannot join the cgroup".to_owned())?;
    }
    // After init has joined its cgroup, which becomes the root of the cgroup namespace.
    process::unshare_cgroup_namespace()
        .context(Stage::Namespaces, || "cannot unshare the cgroup namespace".to_owned())?;
    rustix::system::sethostname(&plan.hostname)
        .context(Stage::Namespaces, || "cannot set the host name".to_owned())?;
    belljar_sys::net::loopback_up()
        .context(Stage::Namespaces, || "cannot bring the loopback up".to_owned())?;
    if let Some(net_plan) = &plan.net {
        net::open(net_plan, control)?;
    }
    if plan.own_clocks {
        start_clocks()
            .context(Stage::TimeNamespace, || "cannot set the clocks of the box".to_owned())?;
    }
    lockdown::limit_user_counters()?;
    if plan.forbid_nested_userns {
        lockdown::forbid_nested_userns()?;
    }
    let pipes = match plan.stdio {
        Stdio::Terminal { .. } => None,
        Stdio::Pipes => {
            let missing = || Failure {
                stage: Stage::Protocol,
                what: "cannot start the payload: the plan has fewer than three streams".to_owned(),
                errno: 0,
            };
            Some(Streams::take_last(trees).ok_or_else(missing)?)
        }
    };
    build::build(plan, trees)?;
    match (pipes, plan.stdio) {
        (None, Stdio::Terminal { rows, columns }) => {
            let terminals = payload::open_terminals()?;
            let (master, terminal) = payload::open_terminal(&terminals, rows, columns)?;
            Ok((Streams::Terminal(terminal), Some(master)))
        }
        (pipes, _) => Ok((pipes.expect("streams exist for every other kind"), None)),
    }
}

/// Resets the monotonic and boot clocks for future child processes, so that they start with the box.
fn start_clocks() -> io::Result<()> {
    process::unshare_time_namespace()?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec;
    let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    let offsets =
        format!("monotonic -{} 0\nboottime -{} 0\n", monotonic.max(1) - 1, now.max(1) - 1);
    std::fs::write("/proc/self/timens_offsets", offsets)
}

/// Forks the process of the payload and waits until its program is executed. Returns its pid, or
/// the event that reports why exec failed.
fn start(
    plan: &Plan,
    streams: Streams,
    program_fd: Option<&OwnedFd>,
) -> Result<Result<i32, Event>, Failure> {
    let doing = || "cannot start the payload".to_owned();
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .context(Stage::Protocol, doing)?;
    match process::fork().context(Stage::Protocol, doing)? {
        Fork::Child => {
            drop(reader);
            let event = payload::become_program(plan, &streams, program_fd);
            let report = postcard::to_allocvec(&event).unwrap_or_default();
            rustix::io::write(&writer, &report).ok();
            belljar_sys::exec::exit_now(125)
        }
        Fork::Parent { child } => {
            drop(writer);
            drop(streams);
            let mut report = Vec::new();
            let mut buffer = [0; 1024];
            loop {
                match rustix::io::read(&reader, &mut buffer) {
                    Ok(0) => break,
                    Ok(read) => report.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error).context(Stage::Protocol, doing),
                }
            }
            if report.is_empty() {
                return Ok(Ok(child)); // exec closed the pipe
            }
            Ok(Err(postcard::from_bytes(&report).unwrap_or(Event::ExecFailed { errno: 0 })))
        }
    }
}

/// Reaps processes of the box and serves commands until the payload ends. Returns `None` if the
/// supervisor has exited.
fn reap(
    control: BorrowedFd<'_>,
    signals: &SignalFd,
    payload: i32,
    execs: &mut ExecProcesses<'_>,
) -> io::Result<Option<Ended>> {
    loop {
        let (has_command, ready) = wait(control, signals, execs)?;
        while signals.read()?.is_some() {}
        while let Ok(Some((pid, ended, _))) = process::wait(-1, false) {
            if pid == payload {
                return Ok(Some(ended));
            }
            execs.ended(pid, ended);
        }
        if has_command {
            match wire::receive(control, wire::MAX_SMALL_MESSAGE)? {
                Some((InitCommand::Signal(number), _)) => {
                    exec_processes::send_signal(payload, number);
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
        execs.serve(&ready);
    }
}

/// Waits for an event. Returns whether the control socket has a command, and whether the exec channel is
/// ready.
fn wait(
    control: BorrowedFd<'_>,
    signals: &SignalFd,
    execs: &ExecProcesses<'_>,
) -> io::Result<(bool, exec_processes::Ready)> {
    let mut polled = vec![
        PollFd::from_borrowed_fd(control, PollFlags::IN),
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
    ];
    polled.extend(execs.descriptors());
    let timeout = execs.timeout().map(timespec);
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready = |index: usize| polled.get(index).is_some_and(|fd| !fd.revents().is_empty());
    Ok((is_ready(0), exec_processes::Ready { channel: execs.is_listening() && is_ready(2) }))
}
