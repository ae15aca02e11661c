//! Acts on processes: list, signal, read and change other processes, and resist termination.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use belljar_sys::probe::{Arg, Call, Field, fork_and_run, ignore_every_signal, in_child};

use crate::acts::{Act, Params};
use crate::files::parse_hex;
use crate::result::{self, ActError, ActResult};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "kill", takes: "PID SIGNAL", run: kill },
    Act { name: "ptrace", takes: "PID", run: attach },
    Act { name: "vm-read", takes: "PID", run: |params| across(params, libc::SYS_process_vm_readv) },
    Act {
        name: "vm-write",
        takes: "PID",
        run: |params| across(params, libc::SYS_process_vm_writev),
    },
    Act { name: "steal-descriptor", takes: "PID FD", run: steal_descriptor },
    Act { name: "prlimit", takes: "PID", run: prlimit },
    Act { name: "affinity", takes: "PID", run: affinity },
    Act { name: "nice", takes: "PID VALUE", run: nice },
    Act { name: "ioprio", takes: "PID", run: ioprio },
    Act { name: "me", takes: "(ids, capabilities and seccomp mode of this process)", run: me },
    Act { name: "descriptors", takes: "(open descriptors except 0, 1 and 2)", run: descriptors },
    Act { name: "environment", takes: "", run: environment },
    Act { name: "pids", takes: "(processes in /proc)", run: pids },
    Act { name: "run", takes: "PROGRAM [ARG…] (replaces this program)", run },
    Act { name: "print", takes: "HEX", run: print },
    Act { name: "wait-for", takes: "PATH ACT [ARG…]", run: wait_for },
    Act { name: "judge-calls", takes: "SECONDS MARK (holds a seccomp listener)", run: judge_calls },
    Act { name: "boot-clock", takes: "(seconds since boot)", run: boot_clock },
    Act { name: "sleep", takes: "SECONDS [MARK]", run: sleep },
    Act { name: "spin", takes: "SECONDS", run: spin },
    Act {
        name: "stubborn",
        takes: "SECONDS MARK (two forks, new session, ignores signals)",
        run: stubborn,
    },
    Act { name: "stop-everything", takes: "SECONDS MARK", run: stop_everything },
];

/// Returns the first argument of the operation as a process id.
fn pid(params: &Params<'_>) -> Result<Arg<'static>, ActError> {
    params.integer(0).map(Arg::Word)
}

fn kill(params: &Params<'_>) -> ActResult {
    let args = [pid(params)?, Arg::Word(params.integer(1)?)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_kill, &args)])?)
}

/// Attaches to another process with `PTRACE_SEIZE`, which does not stop that process. The child
/// detaches at its end.
fn attach(params: &Params<'_>) -> ActResult {
    let args = [Arg::Word(0x4206), pid(params)?];
    result::from_outcome(in_child(&[Call::new(libc::SYS_ptrace, &args)])?)
}

/// Reads or writes eight bytes of another process at an unmapped address, so that an allowed call fails
/// with `EFAULT` and changes nothing.
fn across(params: &Params<'_>, number: i64) -> ActResult {
    let mine = [0_u8; 8];
    let local = [Field::Bytes(&mine), Field::Word(8)];
    let remote = [Field::Word(16), Field::Word(8)];
    let args =
        [pid(params)?, Arg::Struct(&local), Arg::Word(1), Arg::Struct(&remote), Arg::Word(1)];
    result::from_outcome(in_child(&[Call::new(number, &args)])?)
}

fn steal_descriptor(params: &Params<'_>) -> ActResult {
    let open = Call::new(libc::SYS_pidfd_open, &[pid(params)?]);
    let get = Call::new(libc::SYS_pidfd_getfd, &[Arg::Result(0), Arg::Word(params.integer(1)?)]);
    result::from_outcome(in_child(&[open, get])?)
}

/// Reads the limit on open files of another process, without setting a new one.
fn prlimit(params: &Params<'_>) -> ActResult {
    let buffer = [0; 16];
    let args = [pid(params)?, Arg::Word(7), Arg::Word(0), Arg::Bytes(&buffer)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_prlimit64, &args)])?)
}

/// Binds another process to all CPUs, which changes nothing for most processes.
fn affinity(params: &Params<'_>) -> ActResult {
    let all = [0xff; 128];
    let args = [pid(params)?, Arg::Word(128), Arg::Bytes(&all)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_sched_setaffinity, &args)])?)
}

fn nice(params: &Params<'_>) -> ActResult {
    let args = [Arg::Word(0), pid(params)?, Arg::Word(params.integer(1)?)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_setpriority, &args)])?)
}

/// Sets the I/O priority of another process to the default: best effort, level 4.
fn ioprio(params: &Params<'_>) -> ActResult {
    let args = [Arg::Word(1), pid(params)?, Arg::Word((2 << 13) | 4)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_ioprio_set, &args)])?)
}

fn me(_: &Params<'_>) -> ActResult {
    const KEYS: &[&str] = &[
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
    ];
    let status = fs::read_to_string("/proc/self/status")?;
    let fields = status.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        let value = value.split_whitespace().collect::<Vec<_>>().join(",");
        KEYS.contains(&key).then(|| format!("{key}={value}"))
    });
    Ok(fields.collect::<Vec<_>>().join(" "))
}

fn descriptors(_: &Params<'_>) -> ActResult {
    let mut numbers: Vec<u32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    numbers.sort_unstable();
    // The descriptor of the directory itself was closed after the read, so its link is missing.
    let open = numbers.iter().filter_map(|number| {
        let link = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        Some(format!("{number}={}", link.display()))
    });
    Ok(open.collect::<Vec<_>>().join(" "))
}

#[expect(clippy::disallowed_methods, reason = "this act prints the environment")]
fn environment(_: &Params<'_>) -> ActResult {
    let mut pairs: Vec<String> = std::env::vars_os()
        .map(|(key, value)| {
            let (key, value) = (key.as_encoded_bytes(), value.as_encoded_bytes());
            format!("{}={}", key.escape_ascii(), value.escape_ascii())
        })
        .collect();
    pairs.sort();
    Ok(pairs.join("\u{1f}"))
}

fn pids(_: &Params<'_>) -> ActResult {
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

#[expect(clippy::disallowed_methods, reason = "replaces the probe, inside the box")]
fn run(params: &Params<'_>) -> ActResult {
    Err(Command::new(params.text(0)?).args(params.rest(1)).exec().into())
}

fn print(params: &Params<'_>) -> ActResult {
    io::stdout().write_all(&parse_hex(params.text(0)?)?)?;
    Err(ActError::AlreadyPrinted(0))
}

/// Performs an operation after a file exists, so that the test can prepare something first.
fn wait_for(params: &Params<'_>) -> ActResult {
    let until = Instant::now() + Duration::from_secs(60);
    while fs::symlink_metadata(params.text(0)?).is_err() {
        if Instant::now() > until {
            return Err(ActError::Failed("the file did not appear within 60 s".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    crate::acts::perform(params.text(1)?, params.rest(2))
}

fn boot_clock(_: &Params<'_>) -> ActResult {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Ok(now.tv_sec.to_string())
}

fn sleep(params: &Params<'_>) -> ActResult {
    std::thread::sleep(Duration::from_secs(params.number(0)?));
    Ok(String::new())
}

/// Installs a seccomp filter with a listener, through which one process can decide about calls of
/// another.
fn judge_calls(params: &Params<'_>) -> ActResult {
    let allow = [6, 0, 0, 0, 0, 0, 0xff, 0x7f];
    let filter = [Field::Word(1), Field::Bytes(&allow)];
    let time = [Field::Word(params.integer(0)?), Field::Word(0)];
    let calls = [
        Call::new(libc::SYS_prctl, &[Arg::Word(libc::PR_SET_NO_NEW_PRIVS as u64), Arg::Word(1)]),
        Call::new(libc::SYS_seccomp, &[Arg::Word(1), Arg::Word(8), Arg::Struct(&filter)]),
        Call::new(libc::SYS_nanosleep, &[Arg::Struct(&time)]),
    ];
    result::from_outcome(in_child(&calls)?)
}

fn spin(params: &Params<'_>) -> ActResult {
    let until = Instant::now() + Duration::from_secs(params.number(0)?);
    let mut rounds = 0_u64;
    while Instant::now() < until {
        rounds = rounds.wrapping_add(1);
    }
    Ok(rounds.to_string())
}

/// Starts a process in a new session that ignores all signals and keeps running.
fn stubborn(params: &Params<'_>) -> ActResult {
    let seconds = Duration::from_secs(params.number(0)?);
    fork_and_run(|| {
        let orphan = rustix::process::setsid().map_err(io::Error::from).and_then(|_| {
            fork_and_run(|| {
                ignore_every_signal();
                std::thread::sleep(seconds);
                0
            })
        });
        u8::from(orphan.is_err())
    })?;
    Ok(String::new())
}

/// Sends SIGSTOP to every process that it can signal, by process id and with the id -1, and sleeps.
fn stop_everything(params: &Params<'_>) -> ActResult {
    ignore_every_signal();
    let stop = Arg::Word(libc::SIGSTOP as u64);
    let own_pid = std::process::id();
    for pid in (1..32768).filter(|pid| *pid != own_pid) {
        let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) else { continue };
        // Most process ids do not exist, so errors are ignored.
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap_or_default();
    }
    in_child(&[Call::new(libc::SYS_kill, &[Arg::int(-1), stop])])?;
    sleep(params)
}
