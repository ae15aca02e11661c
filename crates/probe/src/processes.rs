//! Acts on processes: whom one can see, stop, read and change, and how one outlives being stopped.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use belljar_sys::probe::{Arg, Call, Field, fork_and_run, ignore_every_signal, in_child};

use crate::acts::{Act, Words};
use crate::answer::{self, Answer, Stop};
use crate::files::bytes_of_hex;

pub(crate) const ACTS: &[Act] = &[
    Act { name: "kill", takes: "PID SIGNAL", run: kill },
    Act { name: "ptrace", takes: "PID", run: attach },
    Act { name: "vm-read", takes: "PID", run: |words| across(words, libc::SYS_process_vm_readv) },
    Act { name: "vm-write", takes: "PID", run: |words| across(words, libc::SYS_process_vm_writev) },
    Act { name: "steal-descriptor", takes: "PID FD", run: steal_descriptor },
    Act { name: "prlimit", takes: "PID", run: prlimit },
    Act { name: "affinity", takes: "PID", run: affinity },
    Act { name: "nice", takes: "PID VALUE", run: nice },
    Act { name: "ioprio", takes: "PID", run: ioprio },
    Act { name: "me", takes: "(ids, capabilities and guards of this process)", run: me },
    Act { name: "descriptors", takes: "(those beyond 0, 1 and 2)", run: descriptors },
    Act { name: "environment", takes: "", run: environment },
    Act { name: "pids", takes: "(the processes that /proc shows)", run: pids },
    Act { name: "run", takes: "PROGRAM [ARG…] (this program is replaced)", run },
    Act { name: "print", takes: "HEX", run: print },
    Act { name: "wait-for", takes: "PATH ACT [ARG…]", run: wait_for },
    Act { name: "judge-calls", takes: "SECONDS MARK (holds a seccomp listener)", run: judge_calls },
    Act { name: "boot-clock", takes: "(seconds since the machine started)", run: boot_clock },
    Act { name: "sleep", takes: "SECONDS [MARK]", run: sleep },
    Act { name: "spin", takes: "SECONDS", run: spin },
    Act {
        name: "stubborn",
        takes: "SECONDS MARK (two forks, own session, no signal heard)",
        run: stubborn,
    },
    Act { name: "stop-everything", takes: "SECONDS MARK", run: stop_everything },
];

fn pid(words: &Words<'_>) -> Result<Arg<'static>, Stop> {
    words.word(0).map(Arg::Word)
}

fn kill(words: &Words<'_>) -> Answer {
    let args = [pid(words)?, Arg::Word(words.word(1)?)];
    answer::of(in_child(&[Call::new(libc::SYS_kill, &args)])?)
}

/// `PTRACE_SEIZE`, which does not stop the victim; the attachment ends with the child.
fn attach(words: &Words<'_>) -> Answer {
    let args = [Arg::Word(0x4206), pid(words)?];
    answer::of(in_child(&[Call::new(libc::SYS_ptrace, &args)])?)
}

/// Reads or writes eight bytes at an address that no process has, so that a granted call shows as
/// `EFAULT` and changes nothing.
fn across(words: &Words<'_>, number: i64) -> Answer {
    let mine = [0_u8; 8];
    let local = [Field::Bytes(&mine), Field::Word(8)];
    let remote = [Field::Word(16), Field::Word(8)];
    let args = [pid(words)?, Arg::Struct(&local), Arg::Word(1), Arg::Struct(&remote), Arg::Word(1)];
    answer::of(in_child(&[Call::new(number, &args)])?)
}

fn steal_descriptor(words: &Words<'_>) -> Answer {
    let open = Call::new(libc::SYS_pidfd_open, &[pid(words)?]);
    let get = Call::new(libc::SYS_pidfd_getfd, &[Arg::Result(0), Arg::Word(words.word(1)?)]);
    answer::of(in_child(&[open, get])?)
}

/// Asks for the limit on open files and gives none, so that nothing changes.
fn prlimit(words: &Words<'_>) -> Answer {
    let room = [0; 16];
    let args = [pid(words)?, Arg::Word(7), Arg::Word(0), Arg::Bytes(&room)];
    answer::of(in_child(&[Call::new(libc::SYS_prlimit64, &args)])?)
}

/// Binds the process to every processor, which is where most processes are already.
fn affinity(words: &Words<'_>) -> Answer {
    let all = [0xff; 128];
    let args = [pid(words)?, Arg::Word(128), Arg::Bytes(&all)];
    answer::of(in_child(&[Call::new(libc::SYS_sched_setaffinity, &args)])?)
}

fn nice(words: &Words<'_>) -> Answer {
    let args = [Arg::Word(0), pid(words)?, Arg::Word(words.word(1)?)];
    answer::of(in_child(&[Call::new(libc::SYS_setpriority, &args)])?)
}

/// Best effort, the middle level: what every process has.
fn ioprio(words: &Words<'_>) -> Answer {
    let args = [Arg::Word(1), pid(words)?, Arg::Word((2 << 13) | 4)];
    answer::of(in_child(&[Call::new(libc::SYS_ioprio_set, &args)])?)
}

fn me(_: &Words<'_>) -> Answer {
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

fn descriptors(_: &Words<'_>) -> Answer {
    let mut numbers: Vec<u32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    numbers.sort_unstable();
    // The directory itself was open while it was read; its number leads nowhere now.
    let open = numbers.iter().filter_map(|number| {
        let link = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        Some(format!("{number}={}", link.display()))
    });
    Ok(open.collect::<Vec<_>>().join(" "))
}

#[expect(clippy::disallowed_methods, reason = "the environment is what this act is about")]
fn environment(_: &Words<'_>) -> Answer {
    let mut pairs: Vec<String> = std::env::vars_os()
        .map(|(key, value)| {
            let (key, value) = (key.as_encoded_bytes(), value.as_encoded_bytes());
            format!("{}={}", key.escape_ascii(), value.escape_ascii())
        })
        .collect();
    pairs.sort();
    Ok(pairs.join("\u{1f}"))
}

fn pids(_: &Words<'_>) -> Answer {
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

#[expect(clippy::disallowed_methods, reason = "replaces the probe, inside the box")]
fn run(words: &Words<'_>) -> Answer {
    Err(Command::new(words.text(0)?).args(words.from(1)).exec().into())
}

fn print(words: &Words<'_>) -> Answer {
    io::stdout().write_all(&bytes_of_hex(words.text(0)?)?)?;
    Err(Stop::Told(0))
}

/// Performs an act once a file is there, so that the other side can arrange something first.
fn wait_for(words: &Words<'_>) -> Answer {
    let until = Instant::now() + Duration::from_secs(60);
    while fs::symlink_metadata(words.text(0)?).is_err() {
        if Instant::now() > until {
            return Err(Stop::Failed("the file did not appear".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    crate::acts::perform(words.text(1)?, words.from(2))
}

fn boot_clock(_: &Words<'_>) -> Answer {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Ok(now.tv_sec.to_string())
}

fn sleep(words: &Words<'_>) -> Answer {
    std::thread::sleep(Duration::from_secs(words.number(0)?));
    Ok(String::new())
}

/// Installs a filter with a listener, the means by which one process decides about another's calls.
fn judge_calls(words: &Words<'_>) -> Answer {
    let allow = [6, 0, 0, 0, 0, 0, 0xff, 0x7f];
    let filter = [Field::Word(1), Field::Bytes(&allow)];
    let time = [Field::Word(words.word(0)?), Field::Word(0)];
    let calls = [
        Call::new(libc::SYS_prctl, &[Arg::Word(libc::PR_SET_NO_NEW_PRIVS as u64), Arg::Word(1)]),
        Call::new(libc::SYS_seccomp, &[Arg::Word(1), Arg::Word(8), Arg::Struct(&filter)]),
        Call::new(libc::SYS_nanosleep, &[Arg::Struct(&time)]),
    ];
    answer::of(in_child(&calls)?)
}

fn spin(words: &Words<'_>) -> Answer {
    let until = Instant::now() + Duration::from_secs(words.number(0)?);
    let mut turns = 0_u64;
    while Instant::now() < until {
        turns = turns.wrapping_add(1);
    }
    Ok(turns.to_string())
}

fn stubborn(words: &Words<'_>) -> Answer {
    let seconds = Duration::from_secs(words.number(0)?);
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

/// Stops every process it may signal, each by number too, and stays.
fn stop_everything(words: &Words<'_>) -> Answer {
    ignore_every_signal();
    let stop = Arg::Word(libc::SIGSTOP as u64);
    let me = std::process::id();
    for pid in (1..32768).filter(|pid| *pid != me) {
        let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) else { continue };
        // Most numbers belong to nobody; only the attempt matters.
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap_or_default();
    }
    in_child(&[Call::new(libc::SYS_kill, &[Arg::int(-1), stop])])?;
    sleep(words)
}
