//! Tries from inside the lock what a broker that was taken over would try. `doctor` shows it, and so do
//! the tests, which compare with the same acts outside.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use belljar_sys::probe;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use rustix::process::{DumpableBehavior, PidfdFlags, Resource, Rlimit};
use rustix::rand::GetRandomFlags;

/// What is tried, under a name, and how.
type Act = (&'static str, fn() -> io::Result<()>);

/// Acts that must be refused; each is granted outside, or fails there for a reason of its own.
const ACTS: &[Act] = &[
    ("open a file", || open(OFlags::RDONLY)),
    ("open a place", || open(OFlags::PATH)),
    ("look at a file", || done(rustix::fs::stat("/"))),
    ("read a link", || done(rustix::fs::readlink("/proc/self/exe", Vec::new()))),
    ("make a directory", || done(rustix::fs::mkdir("/proc/nothing", Mode::empty()))),
    ("remove a file", || done(rustix::fs::unlink("/nothing"))),
    ("change the root", || done(rustix::process::chroot("/nothing"))),
    ("mount", || {
        done(rustix::mount::mount("none", "/nothing", "tmpfs", MountFlags::empty(), None))
    }),
    ("execute", || Err(Command::new("/nothing").exec())),
    ("fork", probe::fork_and_exit),
    ("start a thread", || {
        let thread = std::thread::Builder::new().spawn(|| ())?;
        thread.join().map_err(|_| io::ErrorKind::Other.into())
    }),
    ("trace", probe::trace_missing_process),
    ("map executable memory", probe::map_executable),
    ("make a file in memory", || done(rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC))),
    // Itself, since outside that is allowed to everybody.
    ("signal a process", || done(rustix::process::test_kill_process(rustix::process::getpid()))),
    ("hold a process", || {
        done(rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()))
    }),
    ("make a pair of local sockets", || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        done(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None))
    }),
    ("make a local socket", || socket(AddressFamily::UNIX, SocketType::STREAM)),
    ("make a netlink socket", || socket(AddressFamily::NETLINK, SocketType::RAW)),
    ("send raw packets", || {
        let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
        done(raw)
    }),
    ("raise a limit", || {
        let limit = rustix::process::getrlimit(Resource::Core);
        done(rustix::process::setrlimit(Resource::Core, Rlimit { current: limit.maximum, ..limit }))
    }),
    ("become dumpable", || {
        done(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable))
    }),
];

/// What a broker lives on, which must be granted.
const NEEDED: &[Act] = &[
    ("make a TCP socket", || socket(AddressFamily::INET, SocketType::STREAM)),
    ("make a UDP socket over IPv6", || socket(AddressFamily::INET6, SocketType::DGRAM)),
    ("wait for many", || {
        done(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC))
    }),
    ("get random bytes", || done(rustix::rand::getrandom(&mut [0; 8], GetRandomFlags::empty()))),
    ("get memory", || {
        std::hint::black_box(vec![1_u8; 1 << 20]);
        Ok(())
    }),
];

/// One line for each act: its name and `ok`, or the error's number.
pub fn run() -> Vec<String> {
    let tried = ACTS.iter().chain(NEEDED).map(|(name, act)| {
        let answer = match act() {
            Ok(()) => "ok".to_owned(),
            Err(error) => match error.raw_os_error() {
                Some(number) => format!("errno {number}"),
                None => format!("failed: {error}"),
            },
        };
        format!("{name} => {answer}\n")
    });
    tried.collect()
}

fn open(flags: OFlags) -> io::Result<()> {
    done(rustix::fs::open("/", flags | OFlags::CLOEXEC, Mode::empty()))
}

fn socket(family: AddressFamily, kind: SocketType) -> io::Result<()> {
    done(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None))
}

/// Only whether it was granted counts; what was granted is let go.
fn done<T>(result: rustix::io::Result<T>) -> io::Result<()> {
    result.map(drop).map_err(Into::into)
}
