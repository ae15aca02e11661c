//! Tests every wrapper of `belljar_sys` against the real kernel.
//!
//! These tests do not use the standard harness, because it runs tests on threads, and `process::fork`
//! refuses a process with several threads.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "clippy exempts only tests that use the standard harness"
)]

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::clone::{self, Spawn, SpawnStep};
use belljar_sys::landlock::{self, Ruleset};
use belljar_sys::process::{self, Ended, Fork};
use belljar_sys::seccomp::{self, Instruction};
use belljar_sys::signal::{self, SignalFd};
use belljar_sys::{exec, net};

type Check = (&'static str, fn() -> io::Result<()>);

const CHECKS: &[Check] = &[
    ("wait_returns_the_exit_status_of_a_forked_child", fork_and_wait),
    ("fork_refuses_a_process_with_several_threads", no_fork_with_threads),
    ("signal_fd_returns_a_sent_signal_and_unblocks_when_dropped", signals),
    ("signal_reset_restores_the_default_actions", reset),
    ("execve_passes_only_the_given_arguments_and_variables", execve),
    ("adopt_succeeds_only_once_per_process", adopt),
    ("spawn_starts_a_program_from_a_descriptor", spawn),
    ("spawn_reports_the_step_that_failed", spawn_fails),
    ("hold_user_namespace_creates_a_namespace_until_killed", hold),
    ("seccomp_install_enforces_a_filter", filter),
    ("landlock_ruleset_denies_writing_and_allows_reading", restrict),
    ("namespace_and_network_setup_needs_privileges", namespaces),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--list") {
        // No test is ignored, so a list of ignored tests is empty.
        if !arguments.iter().any(|argument| argument == "--ignored") {
            println!("kernel: test");
        }
        return;
    }
    for (name, check) in CHECKS {
        check().unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name} ... ok");
    }
    println!("test result: ok. {} passed; 0 failed", CHECKS.len());
}

fn ensure(holds: bool, otherwise: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(otherwise.to_owned())) }
}

/// Runs `act` in a child process and returns an error if `act` fails.
fn in_child(act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match process::fork()? {
        Fork::Child => {
            let code = match act() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("child process: {error}");
                    1
                }
            };
            exec::exit_now(code)
        }
        Fork::Parent { child } => {
            let ended = process::wait(child, true)?.map(|(_, ended, _)| ended);
            ensure(ended == Some(Ended::Exited(0)), "the child process failed")
        }
    }
}

fn fork_and_wait() -> io::Result<()> {
    let Fork::Parent { child } = process::fork()? else { exec::exit_now(7) };
    let (pid, ended, _) = process::wait(child, true)?.ok_or(io::ErrorKind::NotFound)?;
    ensure(
        pid == child && ended == Ended::Exited(7),
        "wait returned another child or exit status",
    )?;
    ensure(process::wait(-1, false).is_err(), "a second child exists")
}

fn no_fork_with_threads() -> io::Result<()> {
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    let refused = process::fork().is_err();
    drop(stop);
    ensure(thread.join().is_ok() && refused, "fork succeeded in a process with two threads")
}

fn signals() -> io::Result<()> {
    const SIGUSR1: i32 = 10;
    in_child(|| {
        let signals = SignalFd::new(&[SIGUSR1])?;
        ensure(signals.read()?.is_none(), "a signal was pending before one was sent")?;
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR1)?;
        ensure(signals.read()? == Some(SIGUSR1), "another signal was read")?;
        let blocked = || -> io::Result<bool> {
            let status = std::fs::read_to_string("/proc/self/status")?;
            let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
            Ok(line.is_some_and(|mask| !mask.bytes().all(|digit| digit == b'0')))
        };
        ensure(blocked()?, "the signal is not blocked")?;
        drop(signals);
        ensure(!blocked()?, "the signal is still blocked after the drop")
    })
}

fn reset() -> io::Result<()> {
    in_child(|| {
        // The Rust runtime ignores SIGPIPE; an executed program must get the default action.
        const SIGPIPE: u64 = 1 << 12;
        let ignored = |status: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
            line.is_some_and(|mask| u64::from_str_radix(mask, 16).is_ok_and(|m| m & SIGPIPE != 0))
        };
        let status = || std::fs::read_to_string("/proc/self/status");
        ensure(ignored(&status()?), "SIGPIPE is not ignored before the reset")?;
        signal::reset()?;
        ensure(!ignored(&status()?), "SIGPIPE is still ignored")
    })
}

fn execve() -> io::Result<()> {
    let (mut read, write) = io::pipe()?;
    let Fork::Parent { child } = process::fork()? else {
        rustix::stdio::dup2_stdout(&write)?;
        let argv = ["sh", "-c", "echo $0 $A $HOME", "x"].map(|word| CString::new(word).unwrap());
        let error = exec::execve(c"/bin/sh", &argv, &[CString::new("A=b")?]);
        eprintln!("{error}");
        exec::exit_now(1)
    };
    drop(write);
    let mut output = String::new();
    read.read_to_string(&mut output)?;
    process::wait(child, true)?;
    ensure(output.trim() == "x b", &output)
}

fn adopt() -> io::Result<()> {
    in_child(|| {
        let adopted = exec::adopt(1)?;
        ensure(exec::adopt(2).is_err(), "a second descriptor was adopted")?;
        drop(adopted);
        ensure(
            !std::path::Path::new("/proc/self/fd/1").exists(),
            "dropping the adopted descriptor did not close it",
        )
    })
}

fn start(program: &OwnedFd, control: &OwnedFd) -> io::Result<clone::Spawned> {
    let null: OwnedFd = std::fs::File::options().read(true).write(true).open("/dev/null")?.into();
    clone::spawn(&Spawn::without_namespaces(
        program.as_fd(),
        c"true",
        control.as_fd(),
        null.as_fd(),
    ))
}

fn spawn() -> io::Result<()> {
    let program: OwnedFd = std::fs::File::open("/bin/true")?.into();
    let (_ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let spawned = start(&program, &theirs.into())?;
    let ended = process::wait(spawned.pid, true)?.map(|(_, ended, _)| ended);
    ensure(ended == Some(Ended::Exited(0)), "the program failed")
}

fn spawn_fails() -> io::Result<()> {
    let program: OwnedFd = std::fs::File::open("/etc/passwd")?.into();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let spawned = start(&program, &theirs.into())?;
    process::wait(spawned.pid, true)?;
    let mut report = Vec::new();
    ours.read_to_end(&mut report)?;
    let (step, _) = SpawnStep::from_report(&report).ok_or(io::ErrorKind::InvalidData)?;
    ensure(step == SpawnStep::Exec, "the report names another step")
}

fn hold() -> io::Result<()> {
    let held = clone::hold_user_namespace()?;
    let theirs = std::fs::read_link(format!("/proc/{}/ns/user", held.pid))?;
    let ours = std::fs::read_link("/proc/self/ns/user")?;
    rustix::process::pidfd_send_signal(&held.pidfd, rustix::process::Signal::KILL)?;
    let ended = process::wait(held.pid, true)?.map(|(_, ended, _)| ended);
    ensure(ended == Some(Ended::Signaled(9)), "the holder was not killed by SIGKILL")?;
    ensure(ours != theirs, "the holder is in the namespace of this process")
}

fn filter() -> io::Result<()> {
    const LOAD_NUMBER: Instruction = Instruction { code: 0x20, jump_true: 0, jump_false: 0, k: 0 };
    let number = if cfg!(target_arch = "x86_64") { 63 } else { 160 }; // uname
    let is_uname = Instruction { code: 0x15, jump_true: 0, jump_false: 1, k: number };
    let refuse = Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0x0005_0000 | 1 };
    let allow = Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0x7fff_0000 };
    in_child(|| {
        rustix::thread::set_no_new_privs(true)?;
        ensure(
            std::fs::read("/proc/self/status").is_ok(),
            "/proc/self/status cannot be read before the filter",
        )?;
        seccomp::install(&[LOAD_NUMBER, is_uname, refuse, allow])?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        ensure(status.contains("Seccomp:\t2"), "the kernel reports no filter")
    })
}

fn restrict() -> io::Result<()> {
    let dir = std::env::temp_dir().join(format!("belljar-sys-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let file = dir.join("file");
    let outcome = in_child(|| {
        std::fs::File::create(&file)?.write_all(b"before")?;
        let abi = landlock::abi()?;
        let rules = Ruleset::new(landlock::fs::all(abi), 0)?;
        let root: OwnedFd = std::fs::File::open("/")?.into();
        rules.allow(root.as_fd(), landlock::fs::READ_FILE | landlock::fs::READ_DIR)?;
        rustix::thread::set_no_new_privs(true)?;
        rules.restrict_self()?;
        ensure(std::fs::read(&file)? == b"before", "reading returned other content")?;
        let written = std::fs::write(&file, "after").map_err(|error| error.kind());
        ensure(written == Err(io::ErrorKind::PermissionDenied), "writing is allowed")
    });
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn namespaces() -> io::Result<()> {
    in_child(|| {
        rustix::thread::set_no_new_privs(true)?;
        if rustix::process::geteuid().is_root() {
            process::unshare_cgroup_namespace()?;
            process::unshare_time_namespace()?;
            return net::loopback_up(); // already up: the call changes nothing
        }
        ensure(
            process::unshare_cgroup_namespace().is_err(),
            "unshared a namespace without privileges",
        )?;
        ensure(net::loopback_up().is_err(), "brought an interface up without privileges")?;
        let routed = net::make_every_address_local(net::Family::V4);
        ensure(routed.is_err(), "added a route without privileges")?;
        let redirected = net::redirect_tcp(&net::Redirects::default());
        ensure(redirected.is_err(), "installed redirects without privileges")
    })
}
