//! Tries the system calls that an attacker in a broker would try. `doctor --try-jail` prints the results,
//! and tests compare them with the results outside of the lockdown.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use belljar_sys::probe;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use rustix::process::{DumpableBehavior, PidfdFlags, Resource, Rlimit};
use rustix::rand::GetRandomFlags;

/// An attempt: its name and the function that performs it.
type Attempt = (&'static str, fn() -> io::Result<()>);

/// Attempts that must fail under the lockdown. Outside of it they succeed, or fail with another error.
const FORBIDDEN: &[Attempt] = &[
    ("open a file", || open(OFlags::RDONLY)),
    ("open a path descriptor", || open(OFlags::PATH)),
    ("read file metadata", || discard(rustix::fs::stat("/"))),
    ("read a link", || discard(rustix::fs::readlink("/proc/self/exe", Vec::new()))),
    ("make a directory", || discard(rustix::fs::mkdir("/proc/nothing", Mode::empty()))),
    ("remove a file", || discard(rustix::fs::unlink("/nothing"))),
    ("change the root", || discard(rustix::process::chroot("/nothing"))),
    ("mount a file system", || {
        discard(rustix::mount::mount("none", "/nothing", "tmpfs", MountFlags::empty(), None))
    }),
    ("execute a program", || Err(Command::new("/nothing").exec())),
    ("fork", probe::fork_and_exit),
    ("start a thread", || {
        let thread = std::thread::Builder::new().spawn(|| ())?;
        thread.join().map_err(|_| io::ErrorKind::Other.into())
    }),
    ("trace a process", probe::trace_missing_process),
    ("map executable memory", probe::map_executable),
    ("make a file in memory", || discard(rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC))),
    // The process itself, because every process may signal itself outside of the lockdown.
    ("signal a process", || discard(rustix::process::test_kill_process(rustix::process::getpid()))),
    ("open a process descriptor", || {
        discard(rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()))
    }),
    ("make a pair of local sockets", || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        discard(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None))
    }),
    ("make a local socket", || socket(AddressFamily::UNIX, SocketType::STREAM)),
    ("make a netlink socket", || socket(AddressFamily::NETLINK, SocketType::RAW)),
    ("send raw packets", || {
        let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
        discard(raw)
    }),
    ("raise a limit", || {
        let limit = rustix::process::getrlimit(Resource::Core);
        discard(rustix::process::setrlimit(
            Resource::Core,
            Rlimit { current: limit.maximum, ..limit },
        ))
    }),
    ("become dumpable", || {
        discard(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable))
    }),
];

/// Attempts that must succeed under the lockdown, because a broker needs them.
const REQUIRED: &[Attempt] = &[
    ("make a TCP socket", || socket(AddressFamily::INET, SocketType::STREAM)),
    ("make a UDP socket over IPv6", || socket(AddressFamily::INET6, SocketType::DGRAM)),
    ("create an epoll instance", || {
        discard(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC))
    }),
    ("get random bytes", || discard(rustix::rand::getrandom(&mut [0; 8], GetRandomFlags::empty()))),
    ("get memory", || {
        std::hint::black_box(vec![1_u8; 1 << 20]);
        Ok(())
    }),
];

/// Performs all attempts. Returns one line per attempt: its name and `ok` or the error number.
pub fn run() -> Vec<String> {
    let lines = FORBIDDEN.iter().chain(REQUIRED).map(|(name, attempt)| {
        let result = match attempt() {
            Ok(()) => "ok".to_owned(),
            Err(error) => match error.raw_os_error() {
                Some(number) => format!("errno {number}"),
                None => format!("failed: {error}"),
            },
        };
        format!("{name} => {result}\n")
    });
    lines.collect()
}

fn open(flags: OFlags) -> io::Result<()> {
    discard(rustix::fs::open("/", flags | OFlags::CLOEXEC, Mode::empty()))
}

fn socket(family: AddressFamily, kind: SocketType) -> io::Result<()> {
    discard(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None))
}

/// Drops the value of a successful result.
fn discard<T>(result: rustix::io::Result<T>) -> io::Result<()> {
    result.map(drop).map_err(Into::into)
}
