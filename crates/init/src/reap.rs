//! The life of PID 1: build, wait for the word, start the payload, reap until it ends.
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

use crate::guests::{self, Guests};
use crate::payload::{self, Streams};
use crate::plan::{Event, Order, Plan, Spent, Stage, Stdio};
use crate::{During, Failure, build, lockdown, net, wire};

/// Runs as PID 1 of a box. The control socket is descriptor 3.
pub fn run() -> ExitCode {
    let Ok(control) = belljar_sys::exec::adopt(CONTROL_FD) else { return ExitCode::from(2) };
    match live(control.as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { stage, what, errno }) => {
            // When even this cannot be said, the end of the socket says enough.
            wire::send(control.as_fd(), &Event::Failed { stage, what, errno }, &[]).ok();
            ExitCode::FAILURE
        }
    }
}

fn live(control: BorrowedFd<'_>) -> Result<(), Failure> {
    let protocol = || "talk to the supervisor".to_owned();
    let received = wire::receive(control, wire::MAX_MESSAGE).during(Stage::Protocol, protocol)?;
    let Some((Order::Build(plan), mut trees)) = received else { return Ok(()) };
    let line = plan.line.then(|| trees.pop()).flatten();
    let carried = plan.carried.then(|| trees.pop()).flatten();
    let (streams, master) = raise(&plan, control, &mut trees)?;
    drop(trees);
    let mut guests = Guests::new(&plan, line, payload::terminals()?);
    // From here on no process of the box can look into this one, not even with the same uid.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .during(Stage::Namespaces, || "become undumpable".to_owned())?;
    let abi = lockdown::lock(&plan)?;
    let with: Vec<BorrowedFd<'_>> = master.iter().map(AsFd::as_fd).collect();
    wire::send(control, &Event::Built { landlock_abi: abi }, &with)
        .during(Stage::Protocol, protocol)?;
    drop(with);
    drop(master);
    let received = wire::receive(control, wire::MAX_WORD).during(Stage::Protocol, protocol)?;
    let Some((Order::Go, _)) = received else { return Ok(()) };
    let signals =
        SignalFd::new(&[SIGCHLD]).during(Stage::Namespaces, || "watch children".to_owned())?;
    let child = match start(&plan, streams, carried.as_ref())? {
        Ok(child) => child,
        Err(event) => {
            return wire::send(control, &event, &[]).during(Stage::Protocol, protocol);
        }
    };
    wire::send(control, &Event::Started, &[]).during(Stage::Protocol, protocol)?;
    let ended = reap(control, &signals, child, &mut guests).during(Stage::Protocol, protocol)?;
    let (exit, signal) = match ended {
        Some(Ended::Exited(code)) => (Some(code), None),
        Some(Ended::Signaled(signal)) => (None, Some(signal)),
        None => return Ok(()),
    };
    let spent = clear().ok();
    wire::send(control, &Event::Ended { exit, signal, spent }, &[])
        .during(Stage::Protocol, protocol)
}

/// Ends everything else in the box. What comes after is slow, and nobody has to wait for it: the
/// kernel takes down the mounts and the network when this process is gone.
fn clear() -> io::Result<Spent> {
    guests::to_everybody(Signal::KILL);
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

/// The root, the network and the streams, while we still hold the rights to make them.
fn raise(
    plan: &Plan,
    control: BorrowedFd<'_>,
    trees: &mut Vec<OwnedFd>,
) -> Result<(Streams, Option<OwnedFd>), Failure> {
    for door in trees.drain(..plan.doors.min(trees.len())) {
        rustix::io::write(&door, b"0").during(Stage::Cgroup, || "join the cgroup".to_owned())?;
    }
    // Only now is this process in its cgroup, which becomes the root that the box sees.
    process::unshare_cgroup_namespace()
        .during(Stage::Namespaces, || "unshare the cgroup namespace".to_owned())?;
    rustix::system::sethostname(&plan.hostname)
        .during(Stage::Namespaces, || "set the host name".to_owned())?;
    belljar_sys::net::loopback_up()
        .during(Stage::Namespaces, || "bring the loopback up".to_owned())?;
    if let Some(wanted) = &plan.net {
        net::open(wanted, control)?;
    }
    if plan.own_clocks {
        start_clocks().during(Stage::TimeNamespace, || "start clocks of its own".to_owned())?;
    }
    lockdown::limit_user_counters()?;
    if plan.forbid_nested_userns {
        lockdown::forbid_nested_userns()?;
    }
    let pipes = match plan.stdio {
        Stdio::Terminal { .. } => None,
        Stdio::Pipes => {
            let missing =
                || Failure { stage: Stage::Protocol, what: "three streams".to_owned(), errno: 0 };
            Some(Streams::from_plan(trees).ok_or_else(missing)?)
        }
    };
    build::build(plan, trees)?;
    match (pipes, plan.stdio) {
        (None, Stdio::Terminal { rows, columns }) => {
            let terminals = payload::terminals()?;
            let (master, terminal) = payload::open_terminal(&terminals, rows, columns)?;
            Ok((Streams::Terminal(terminal), Some(master)))
        }
        (pipes, _) => Ok((pipes.expect("made above for every other kind"), None)),
    }
}

/// Sets the clocks since boot back to the start of the box, for the processes that are to come.
fn start_clocks() -> io::Result<()> {
    process::unshare_time_namespace()?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec;
    let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    let offsets =
        format!("monotonic -{} 0\nboottime -{} 0\n", monotonic.max(1) - 1, now.max(1) - 1);
    std::fs::write("/proc/self/timens_offsets", offsets)
}

/// Forks the payload and waits until it has executed its program, or has said why not.
fn start(
    plan: &Plan,
    streams: Streams,
    carried: Option<&OwnedFd>,
) -> Result<Result<i32, Event>, Failure> {
    let doing = || "start the payload".to_owned();
    let (answer, report) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).during(Stage::Protocol, doing)?;
    match process::fork().during(Stage::Protocol, doing)? {
        Fork::Child => {
            drop(answer);
            let event = payload::become_program(plan, &streams, carried);
            let said = postcard::to_allocvec(&event).unwrap_or_default();
            rustix::io::write(&report, &said).ok();
            belljar_sys::exec::exit_now(125)
        }
        Fork::Parent { child } => {
            drop(report);
            drop(streams);
            let mut said = Vec::new();
            let mut buffer = [0; 1024];
            loop {
                match rustix::io::read(&answer, &mut buffer) {
                    Ok(0) => break,
                    Ok(read) => said.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error).during(Stage::Protocol, doing),
                }
            }
            if said.is_empty() {
                return Ok(Ok(child)); // closed by exec
            }
            Ok(Err(postcard::from_bytes(&said).unwrap_or(Event::ExecFailed { errno: 0 })))
        }
    }
}

/// Reaps whatever ends until the payload does, and looks after the guests. `None`: the supervisor is
/// gone.
fn reap(
    control: BorrowedFd<'_>,
    signals: &SignalFd,
    payload: i32,
    guests: &mut Guests<'_>,
) -> io::Result<Option<Ended>> {
    loop {
        let (ordered, ready) = wait(control, signals, guests)?;
        while signals.read()?.is_some() {}
        while let Ok(Some((pid, ended, _))) = process::wait(-1, false) {
            if pid == payload {
                return Ok(Some(ended));
            }
            guests.ended(pid, ended);
        }
        if ordered {
            match wire::receive(control, wire::MAX_WORD)? {
                Some((Order::Signal(number), _)) => guests::deliver(payload, number),
                Some(_) => {}
                None => return Ok(None),
            }
        }
        guests.attend(&ready);
    }
}

/// Waits until something is to be done. First: whether there is an order.
fn wait(
    control: BorrowedFd<'_>,
    signals: &SignalFd,
    guests: &Guests<'_>,
) -> io::Result<(bool, guests::Ready)> {
    let mut polled = vec![
        PollFd::from_borrowed_fd(control, PollFlags::IN),
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
    ];
    polled.extend(guests.interests());
    let timeout = guests.sleep().map(timespec);
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready = |index: usize| polled.get(index).is_some_and(|fd| !fd.revents().is_empty());
    Ok((is_ready(0), guests::Ready { line: guests.listens() && is_ready(2) }))
}
